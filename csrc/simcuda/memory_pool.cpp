#include "memory_pool.hpp"

#include <algorithm>
#include <utility>

#include "node.hpp"
#include "process.hpp"

namespace allranks::sim {

namespace {

constexpr std::uint64_t kStep = 512;
constexpr std::uint64_t kChunkBytes = std::uint64_t{32} << 20;

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

MemoryPool::MemoryPool(Process& process, std::uint32_t serial_number, const Properties& wanted)
    : serial(serial_number), properties(wanted), process_(&process) {
  rights.read.set(static_cast<std::size_t>(wanted.device));
  rights.write = rights.read;
}

std::uint64_t MemoryPool::Chunk::hole_for(std::uint64_t room, bool reuses) const {
  std::uint64_t offset = reuses ? 0 : never_used;
  if (reuses) {
    for (const auto& [taken, piece] : pieces) {
      if (offset + room <= taken) break;
      offset = taken + piece.room;
    }
  }
  return offset + room <= range->size() ? offset : range->size();
}

MemoryPool::Piece* MemoryPool::piece_at(CUdeviceptr address) {
  auto chunk = chunks_.upper_bound(address);
  if (chunk == chunks_.begin()) return nullptr;
  --chunk;
  const auto piece = chunk->second.pieces.find(address - chunk->first);
  return piece == chunk->second.pieces.end() ? nullptr : &piece->second;
}

void MemoryPool::map(const Stream& stream, CUdeviceptr address, const Chunk& chunk, std::uint64_t offset,
                     std::uint64_t bytes) {
  process_->space.mappings.insert_or_assign(
      address,
      Mapping{.size = bytes,
              .allocation = std::make_shared<Allocation>(Allocation{.range = chunk.range,
                                                                    .range_offset = offset,
                                                                    .size = bytes,
                                                                    .device = properties.device,
                                                                    .owner_rank = process_->rank,
                                                                    .id = process_->node().next_allocation_id()}),
              .multicast = nullptr,
              .rights = rights,
              .origin = Origin::kPool,
              .context = &stream.context(),
              .pool = shared_from_this(),
              .buffer_id = process_->next_buffer_id(),
              .birth = process_->birth(LedgerKind::kPlain)});
  ++process_->translation_generation;
}

void MemoryPool::unmap(CUdeviceptr address) {
  process_->space.mappings.erase(address);
  ++process_->translation_generation;
}

// A piece of the same size that is on its way back in the same stream: whatever is still to come there comes before
// what the caller will do with it.
bool MemoryPool::take_again(Stream& stream, std::uint64_t bytes, CUdeviceptr* address) {
  if (!process_->space.reuses()) return false;
  for (auto& [base, chunk] : chunks_) {
    for (auto& [offset, piece] : chunk.pieces) {
      if (!piece.back || piece.back->done || piece.back->stream != &stream || piece.bytes != bytes) continue;
      piece.back.reset();
      *address = base + offset;
      map(stream, *address, chunk, offset, bytes);
      return true;
    }
  }
  return false;
}

bool MemoryPool::take_hole(Stream& stream, std::uint64_t bytes, CUdeviceptr* address) {
  const std::uint64_t room = round_up(bytes, kStep);
  for (auto& [base, chunk] : chunks_) {
    const std::uint64_t offset = chunk.hole_for(room, process_->space.reuses());
    if (offset == chunk.range->size()) continue;
    chunk.pieces.emplace(offset, Piece{.bytes = bytes, .room = room});
    chunk.never_used = std::max(chunk.never_used, offset + room);
    used_ += room;
    used_high = std::max(used_high, used_);
    *address = base + offset;
    map(stream, *address, chunk, offset, bytes);
    return true;
  }
  return false;
}

CUresult MemoryPool::grow(std::uint64_t bytes) {
  Node& node = process_->node();
  const std::uint64_t unit = node.machine.allocation_granularity_bytes;
  const std::uint64_t least = round_up(bytes, unit);
  const std::uint64_t most = properties.max_bytes == 0 ? node.machine.memory_bytes : properties.max_bytes;
  std::shared_ptr<PhysicalRange> range;
  for (const std::uint64_t size : {round_up(least, std::max(kChunkBytes, unit)), least}) {
    if (!range && size <= most && reserved_ <= most - size) range = node.take_physical(properties.device, size);
  }
  if (!range) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::uint64_t size = range->size();
  const CUdeviceptr base = process_->space.find_room(size, unit);
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  process_->space.reservations.emplace(base, Reservation{.internal = true, .size = size, .birth = {}});
  chunks_.emplace(base, Chunk{.range = std::move(range)});
  reserved_ += size;
  reserved_high = std::max(reserved_high, reserved_);
  return CUDA_SUCCESS;
}

// Forgets the pieces that are back, as far as `stream` may have them; null: as far as the host has seen it.
void MemoryPool::settle(const Stream* stream) {
  for (auto& [base, chunk] : chunks_) {
    std::erase_if(chunk.pieces, [&](const auto& entry) {
      const std::shared_ptr<Return>& back = entry.second.back;
      if (!back || !back->done) return false;
      return back->seen || (stream != nullptr && (reuse.opportunistic || back->stream == stream));
    });
  }
}

// Waits for pieces that are on their way back, where hardware has the stream wait. False: there are none for it.
bool MemoryPool::await_returns(const Stream& stream) {
  std::vector<std::shared_ptr<Return>> awaited;
  for (const auto& [base, chunk] : chunks_) {
    for (const auto& [offset, piece] : chunk.pieces) {
      const bool allowed = piece.back && (reuse.internal_dependencies || piece.back->stream == &stream);
      if (allowed && !piece.back->done) awaited.push_back(piece.back);
    }
  }
  for (const std::shared_ptr<Return>& back : awaited) {
    const WaitSpec spec{.ready = [&] { return back->done; },
                        .key = back.get(),
                        .call = name_of(this_thread().call),
                        .object = "memory freed in stream order"};
    if (process_->node().turnstile.wait(spec) != WaitResult::kReady) return false;
    back->seen = true;
  }
  return !awaited.empty();
}

CUresult MemoryPool::allocate(Stream& stream, std::uint64_t bytes, CUdeviceptr* address) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > process_->node().machine.memory_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  if (take_again(stream, bytes, address)) return CUDA_SUCCESS;
  settle(&stream);
  if (take_hole(stream, bytes, address)) return CUDA_SUCCESS;
  CUresult result = grow(bytes);
  if (result != CUDA_SUCCESS && await_returns(stream)) {
    settle(&stream);
    if (take_hole(stream, bytes, address)) return CUDA_SUCCESS;
    shrink_to(0);
    result = grow(bytes);
  }
  if (result != CUDA_SUCCESS) return result;
  return take_hole(stream, bytes, address) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void MemoryPool::free_in(Stream& stream, CUdeviceptr address) {
  Mapping& mapping = process_->space.mappings.at(address);
  mapping.freed = true;
  auto back = std::make_shared<Return>(Return{.stream = &stream});
  piece_at(address)->back = back;
  stream.enqueue(
      "cuMemFreeAsync",
      [pool = shared_from_this(), address, back] {
        pool->end_return(address, back);
        return CUDA_SUCCESS;
      },
      Stream::When::kEvenIfBroken);
}

void MemoryPool::end_return(CUdeviceptr address, const std::shared_ptr<Return>& back) {
  back->done = true;
  if (process_ == nullptr) return;
  process_->node().turnstile.notify(back.get());
  const Piece* const piece = piece_at(address);
  if (piece == nullptr || piece->back != back) return;  // the stream has it again
  used_ -= piece->room;
  unmap(address);
  if (destroyed) synchronised();
}

void MemoryPool::free_now(CUdeviceptr address) {
  const Piece* const piece = piece_at(address);
  used_ -= piece->room;
  unmap(address);
  const auto chunk = std::prev(chunks_.upper_bound(address));
  chunk->second.pieces.erase(address - chunk->first);
  if (destroyed) synchronised();
}

void MemoryPool::shrink_to(std::uint64_t keep) {
  settle(nullptr);
  for (auto chunk = chunks_.begin(); chunk != chunks_.end();) {
    const std::uint64_t size = chunk->second.range->size();
    if (!chunk->second.pieces.empty() || reserved_ - size < keep) {
      ++chunk;
      continue;
    }
    process_->space.reservations.erase(chunk->first);
    reserved_ -= size;
    chunk = chunks_.erase(chunk);
  }
}

void MemoryPool::synchronised() {
  for (auto& [base, chunk] : chunks_) {
    for (auto& [offset, piece] : chunk.pieces) {
      if (piece.back && piece.back->done) piece.back->seen = true;
    }
  }
  settle(nullptr);
  const std::uint64_t keep = destroyed ? 0 : release_threshold;
  if (reserved_ > keep) shrink_to(keep);
}

void MemoryPool::abandon() {
  chunks_.clear();
  reserved_ = used_ = 0;
  process_ = nullptr;
}

std::shared_ptr<Allocation> MemoryPool::find(std::uint32_t allocation) const {
  if (process_ == nullptr) return nullptr;
  for (const auto& [base, chunk] : chunks_) {
    for (const auto& [offset, piece] : chunk.pieces) {
      const auto mapping = process_->space.mappings.find(base + offset);
      if (piece.back || mapping == process_->space.mappings.end()) continue;
      if (mapping->second.allocation->id == allocation) return mapping->second.allocation;
    }
  }
  return nullptr;
}

std::vector<const PhysicalRange*> MemoryPool::ranges() const {
  std::vector<const PhysicalRange*> all;
  all.reserve(chunks_.size());
  for (const auto& [base, chunk] : chunks_) all.push_back(chunk.range.get());
  return all;
}

std::string MemoryPool::check_invariants(std::size_t mapped) const {
  std::uint64_t reserved_bytes = 0;
  std::uint64_t used_bytes = 0;
  for (const auto& [base, chunk] : chunks_) {
    reserved_bytes += chunk.range->size();
    const auto reservation = process_->space.reservations.find(base);
    if (reservation == process_->space.reservations.end() || reservation->second.size != chunk.range->size()) {
      return "a chunk of a memory pool has no reservation of its own";
    }
    std::uint64_t last_end = 0;
    for (const auto& [offset, piece] : chunk.pieces) {
      if (offset < last_end || offset + piece.room > chunk.range->size()) return "pieces of a memory pool overlap";
      last_end = offset + piece.room;
      if (piece.back && piece.back->done) continue;
      used_bytes += piece.room;
      const auto mapping = process_->space.mappings.find(base + offset);
      if (mapping == process_->space.mappings.end() || mapping->second.pool.get() != this || mapped-- == 0 ||
          mapping->second.freed != (piece.back != nullptr)) {
        return "a piece of a memory pool and what is mapped there disagree";
      }
    }
  }
  if (mapped != 0) return "memory of a pool is mapped where the pool knows of none";
  if (reserved_bytes != reserved_ || used_bytes != used_) return "a memory pool miscounts its bytes";
  if (reserved_ > reserved_high || used_ > used_high) return "a memory pool has more than its high mark";
  return {};
}

}  // namespace allranks::sim
