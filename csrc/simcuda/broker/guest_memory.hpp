// The memory of a client process, for copies and page-locked memory: through the kernel where it lets us, over the
// client's connection where not.
//
// Over the connection, the client has to be in a call. Reads happen in the call that names the memory. What is to be
// written is kept until some thread of the client is answered next: before that it could not have looked, because it
// had not been told that the copy was done.
#ifndef ALLRANKS_SIMCUDA_BROKER_GUEST_MEMORY_HPP_
#define ALLRANKS_SIMCUDA_BROKER_GUEST_MEMORY_HPP_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "host_memory.hpp"
#include "wire/message.hpp"

namespace allranks::sim::broker {

class GuestMemory : public HostMemory {
 public:
  // `process_descriptor`: a pidfd, or -1.
  GuestMemory(pid_t pid, wire::Descriptor process_descriptor, bool by_socket)
      : pid_(pid), process_descriptor_(std::move(process_descriptor)), by_socket_(by_socket) {}

  bool read(void* to, const void* source, std::uint64_t size) override;
  bool write(void* destination, const void* from, std::uint64_t size) override;
  bool readable_later() const override { return !by_socket_; }
  // The client unmaps them, told with the next answer to any of its threads.
  void give_back(void* begin, std::uint64_t size) override;

  int process_descriptor() const { return process_descriptor_.get(); }
  // To be called by the thread that serves a connection of the client, without the turn, before it answers. When it
  // returns, all that was written before is in place, and what was given back is unmapped.
  void deliver(int socket);

  // While one of these lives, the calling thread may ask the client over this connection.
  class Serving {
   public:
    Serving(const GuestMemory& memory, int socket);
    ~Serving();
    Serving(const Serving&) = delete;
    Serving& operator=(const Serving&) = delete;
  };

 private:
  enum class Moved { kAll, kNot, kForbidden };
  template <typename Move>
  Moved move(std::uint64_t theirs, std::uint64_t ours, std::uint64_t size, const Move& move_piece) const;
  bool alive() const;
  bool read_by_socket(void* to, std::uint64_t address, std::uint64_t size) const;

  // What the client has to be told: bytes that were written, or pages that are not needed any more.
  struct News {
    std::uint64_t address;
    std::vector<unsigned char> bytes;
    std::uint64_t unneeded = 0;
  };
  static bool tell(int socket, const News& news, wire::Writer& out, wire::Reader& in);
  void add(News news);
  const pid_t pid_;
  const wire::Descriptor process_descriptor_;
  std::atomic<bool> by_socket_;
  std::mutex delivering_;
  std::mutex mutex_;
  std::vector<News> news_;
  std::atomic<bool> any_news_ = false;
};

}  // namespace allranks::sim::broker

#endif  // ALLRANKS_SIMCUDA_BROKER_GUEST_MEMORY_HPP_
