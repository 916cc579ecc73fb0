#include "switch_channel.hpp"

#include <algorithm>

#include "device/plan.h"
#include "errors.hpp"
#include "properties.hpp"

namespace allranks {

namespace {

constexpr std::uint64_t kWord = 4;

}  // namespace

SwitchChannel::~SwitchChannel() {
  core_->dispose([bound = bound_] { bound->reset(); });
}

void SwitchChannel::require(std::uint64_t offset, std::uint64_t size_wanted) const {
  core_->require_usable();
  if (!bound()) throw UsageError("the region is not bound any more", core_->rank());
  if (offset > size() || size_wanted > size() - offset) {
    throw UsageError("offset=" + std::to_string(offset) + ": " + std::to_string(size_wanted) +
                         " bytes from there are beyond the " + std::to_string(size()) + " bytes of the region",
                     core_->rank());
  }
}

void SwitchChannel::store(std::uint64_t offset, const Bytes& bytes, CUstream stream) {
  require(offset, bytes.size());
  at_once(stream, [&] {
    const CUdeviceptr begin = address_ + offset;
    const CUdeviceptr end = begin + bytes.size();
    const CUdeviceptr first_word = std::min<CUdeviceptr>(round_up(begin, kWord), end);
    const CUdeviceptr last_word = std::max<CUdeviceptr>(round_down(end, kWord), first_word);
    const auto copy = [&](CUdeviceptr from, CUdeviceptr to) {
      if (to > from) core_->driver().cuMemcpyHtoD(from, bytes.data() + (from - begin), to - from);
    };
    copy(begin, first_word);
    store_words(first_word, bytes.data() + (first_word - begin), last_word - first_word, stream);
    copy(last_word, end);
  });
}

void SwitchChannel::store_words(CUdeviceptr to, const char* bytes, std::uint64_t size, CUstream stream) {
  for (std::uint64_t done = 0; done < size;) {
    const std::uint64_t piece = std::min(size - done, device::kStagingBytes);
    core_->driver().cuMemcpyHtoD(core_->scratch().staging(), bytes + done, piece);
    core_->launch<Kernel::multicast_store>({to + done, core_->scratch().staging(), piece}, 1, stream);
    core_->synchronize(stream);
    done += piece;
  }
}

Bytes SwitchChannel::load_reduce(const LoadReduce& what, CUstream stream) {
  const std::uint64_t width = device::bytes_of(what.data_type);
  if (what.count > size() / width) {
    throw UsageError("count=" + std::to_string(what.count) + ": the region has " + std::to_string(size()) + " bytes",
                     core_->rank());
  }
  require(what.offset, what.count * width);
  if (what.offset % width != 0) {
    throw UsageError(
        "offset=" + std::to_string(what.offset) + ": no multiple of the element's " + std::to_string(width) + " bytes",
        core_->rank());
  }
  if (!device::multimem_pair(what.data_type, what.operation).exists) {
    throw UsageError("data_type, operation: the fabric does not reduce this pair; a collective does it another way",
                     core_->rank());
  }
  return at_once(stream, [&] {
    // Whole words: what else lies in the first and last one is within the binding, and dropped.
    const CUdeviceptr begin = round_down(address_ + what.offset, kWord);
    const CUdeviceptr end = round_up(address_ + what.offset + what.count * width, kWord);
    Bytes bytes;
    for (CUdeviceptr at = begin; at < end;) {
      const std::uint64_t piece = std::min<std::uint64_t>(end - at, device::kStagingBytes);
      bytes += reduce_piece(at, piece, what, stream);
      at += piece;
    }
    return bytes.substr(address_ + what.offset - begin, what.count * width);
  });
}

Bytes SwitchChannel::reduce_piece(CUdeviceptr from, std::uint64_t piece, const LoadReduce& what, CUstream stream) {
  const device::MultimemPair pair = device::multimem_pair(what.data_type, what.operation);
  const device::MulticastLoadReduceArguments arguments{.destination = core_->scratch().staging(),
                                                       .multicast = from,
                                                       .bytes = piece,
                                                       .data_type = pair.type,
                                                       .operation = pair.operation,
                                                       .element_bytes = device::bytes_of(what.data_type)};
  core_->launch<Kernel::multicast_load_reduce>(arguments, 1, stream);
  core_->synchronize(stream);
  Bytes bytes(piece, '\0');
  core_->driver().cuMemcpyDtoH(bytes.data(), core_->scratch().staging(), piece);
  return bytes;
}

void SwitchChannel::unbind() {
  if (!bound() || core_->closed()) return;
  group_->unbind(*bound_);
}

}  // namespace allranks
