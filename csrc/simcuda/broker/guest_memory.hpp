// The memory of a client process, for copies: through the kernel where it lets us, over the client's connection where
// not.
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

  int process_descriptor() const { return process_descriptor_.get(); }
  // To be called by the thread that serves a connection of the client, without the turn, before it answers. When it
  // returns, all that was written before is in place.
  void deliver(int socket);

  // While one of these lives, the calling thread may ask the client over this connection.
  class Serving {
   public:
    explicit Serving(int socket);
    ~Serving();
    Serving(const Serving&) = delete;
    Serving& operator=(const Serving&) = delete;
  };

 private:
  enum class Moved { kAll, kNot, kForbidden };
  template <typename Move>
  Moved move(std::uint64_t theirs, std::uint64_t ours, std::uint64_t size, const Move& move_piece) const;
  bool alive() const;
  static bool read_by_socket(void* to, std::uint64_t address, std::uint64_t size);

  struct Written {
    std::uint64_t address;
    std::vector<unsigned char> bytes;
  };
  const pid_t pid_;
  const wire::Descriptor process_descriptor_;
  std::atomic<bool> by_socket_;
  std::mutex delivering_;
  std::mutex mutex_;
  std::vector<Written> written_;
};

}  // namespace allranks::sim::broker

#endif  // ALLRANKS_SIMCUDA_BROKER_GUEST_MEMORY_HPP_
