#include "broker/guest_memory.hpp"

#include <poll.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "wire/protocol.hpp"

namespace allranks::sim::broker {

namespace {

// The connection that the calling thread serves; -1: none.
int& serving() {
  thread_local int socket = -1;
  return socket;
}

}  // namespace

GuestMemory::Serving::Serving(int socket) { serving() = socket; }
GuestMemory::Serving::~Serving() { serving() = -1; }

// The number of a process that has ended may soon be another one's.
bool GuestMemory::alive() const {
  pollfd process{process_descriptor_.get(), POLLIN, 0};
  return process.fd < 0 || poll(&process, 1, 0) == 0;
}

// The kernel moves whole pages up to the first that is not there.
template <typename Move>
GuestMemory::Moved GuestMemory::move(std::uint64_t theirs, std::uint64_t ours, std::uint64_t size,
                                     const Move& move_piece) const {
  if (!alive()) return Moved::kNot;
  for (std::uint64_t done = 0; done < size;) {
    const iovec local{reinterpret_cast<void*>(ours + done), size - done};
    const iovec remote{reinterpret_cast<void*>(theirs + done), size - done};
    const ssize_t now = move_piece(pid_, &local, 1ul, &remote, 1ul, 0ul);
    if (now < 0 && (errno == EPERM || errno == ENOSYS || errno == ESRCH)) return Moved::kForbidden;
    if (now <= 0) return Moved::kNot;
    done += static_cast<std::uint64_t>(now);
  }
  return Moved::kAll;
}

bool GuestMemory::read(void* to, const void* source, std::uint64_t size) {
  const auto address = reinterpret_cast<std::uint64_t>(source);
  if (!by_socket_) {
    const Moved moved = move(address, reinterpret_cast<std::uint64_t>(to), size, process_vm_readv);
    if (moved != Moved::kForbidden) return moved == Moved::kAll;
    by_socket_ = true;
  }
  return read_by_socket(to, address, size);
}

bool GuestMemory::write(void* destination, const void* from, std::uint64_t size) {
  const auto address = reinterpret_cast<std::uint64_t>(destination);
  if (!by_socket_) {
    const Moved moved = move(address, reinterpret_cast<std::uint64_t>(from), size, process_vm_writev);
    if (moved != Moved::kForbidden) return moved == Moved::kAll;
    by_socket_ = true;
  }
  const auto* const bytes = static_cast<const unsigned char*>(from);
  const std::lock_guard lock(mutex_);
  written_.push_back({address, {bytes, bytes + size}});
  return true;
}

bool GuestMemory::read_by_socket(void* to, std::uint64_t address, std::uint64_t size) {
  const int socket = serving();
  if (socket < 0) return false;
  wire::Writer out;
  wire::Reader in;
  for (std::uint64_t done = 0; done < size;) {
    const std::uint64_t now = std::min<std::uint64_t>(size - done, wire::kMemoryPiece);
    std::uint32_t there = 0;
    out.clear();
    out.put(wire::Kind::kReadMemory);
    out.put(address + done);
    out.put(now);
    if (!out.send(socket) || !in.receive(socket) || !in.take(there) || there != 1) return false;
    if (!in.take_bytes(static_cast<unsigned char*>(to) + done, now)) return false;
    done += now;
  }
  return true;
}

void GuestMemory::deliver(int socket) {
  if (!by_socket_) return;
  const std::lock_guard one_at_a_time(delivering_);
  std::vector<Written> now;
  {
    const std::lock_guard lock(mutex_);
    now.swap(written_);
  }
  wire::Writer out;
  wire::Reader in;
  for (const Written& written : now) {
    for (std::uint64_t done = 0; done < written.bytes.size(); done += wire::kMemoryPiece) {
      const std::uint64_t size = std::min<std::uint64_t>(written.bytes.size() - done, wire::kMemoryPiece);
      out.clear();
      out.put(wire::Kind::kWriteMemory);
      out.put(written.address + done);
      out.put(size);
      out.put_bytes(written.bytes.data() + done, size);
      if (!out.send(socket) || !in.receive(socket)) return;
    }
  }
}

}  // namespace allranks::sim::broker
