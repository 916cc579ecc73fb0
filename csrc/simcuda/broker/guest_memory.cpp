#include "broker/guest_memory.hpp"

#include <poll.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "wire/protocol.hpp"

namespace allranks::sim::broker {

namespace {

// The connection that the calling thread serves; no memory: none.
struct Served {
  const GuestMemory* memory = nullptr;
  int socket = -1;
};

Served& serving() {
  thread_local Served served;
  return served;
}

}  // namespace

GuestMemory::Serving::Serving(const GuestMemory& memory, int socket) { serving() = {&memory, socket}; }
GuestMemory::Serving::~Serving() { serving() = {}; }

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
  add({.address = address, .bytes = {bytes, bytes + size}});
  return true;
}

void GuestMemory::give_back(void* begin, std::uint64_t size) {
  add({.address = reinterpret_cast<std::uint64_t>(begin), .bytes = {}, .unneeded = size});
}

void GuestMemory::add(News news) {
  const std::lock_guard lock(mutex_);
  news_.push_back(std::move(news));
  any_news_ = true;
}

// The thread may be at work for another client: fibers run on any thread.
bool GuestMemory::read_by_socket(void* to, std::uint64_t address, std::uint64_t size) const {
  const int socket = serving().memory == this ? serving().socket : -1;
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

bool GuestMemory::tell(int socket, const News& news, wire::Writer& out, wire::Reader& in) {
  if (news.unneeded != 0) {
    out.clear();
    out.put(wire::Kind::kUnmapMemory);
    out.put(news.address);
    out.put(news.unneeded);
    return out.send(socket) && in.receive(socket);
  }
  for (std::uint64_t done = 0; done < news.bytes.size(); done += wire::kMemoryPiece) {
    const std::uint64_t size = std::min<std::uint64_t>(news.bytes.size() - done, wire::kMemoryPiece);
    out.clear();
    out.put(wire::Kind::kWriteMemory);
    out.put(news.address + done);
    out.put(size);
    out.put_bytes(news.bytes.data() + done, size);
    if (!out.send(socket) || !in.receive(socket)) return false;
  }
  return true;
}

void GuestMemory::deliver(int socket) {
  if (!by_socket_ && !any_news_) return;
  const std::lock_guard one_at_a_time(delivering_);
  std::vector<News> now;
  {
    const std::lock_guard lock(mutex_);
    now.swap(news_);
    any_news_ = false;
  }
  wire::Writer out;
  wire::Reader in;
  for (const News& news : now) {
    if (!tell(socket, news, out, in)) return;
  }
}

}  // namespace allranks::sim::broker
