// Messages between a client and the broker: one call or one answer each, with at most one file descriptor.
//
// A message is one record of a SOCK_SEQPACKET socket, so it comes whole or not at all. Values lie in it one after the
// other as they lie in memory: both ends are this build, on this machine (Hello says so). What comes from a client is
// believed in nothing: a Reader never reads past its end.
// Threads: a message belongs to one thread at a time.
#ifndef ALLRANKS_SIMCUDA_WIRE_MESSAGE_HPP_
#define ALLRANKS_SIMCUDA_WIRE_MESSAGE_HPP_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace allranks::sim::wire {

inline constexpr std::size_t kLargestMessage = std::size_t{96} * 1024;

// A file descriptor that is closed with its owner.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return number_; }
  int release();
  void reset(int number = -1);

 private:
  int number_ = -1;
};

class Writer {
 public:
  Writer() = default;

  void put_bytes(const void* begin, std::size_t size) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + size);
    if (size > 0) std::memcpy(bytes_.data() + at, begin, size);
  }
  template <typename T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    put_bytes(static_cast<const void*>(std::addressof(value)), sizeof(T));
  }
  void put_text(const std::string& text);
  // The receiver gets a copy of it. The writer closes it afterwards only if it is `owned`.
  void attach(int descriptor, bool owned);
  void clear();

  std::size_t size() const { return bytes_.size(); }
  // False when the message is too long, or the other side is gone. A descriptor that is not open is left out.
  bool send(int socket);

 private:
  std::vector<unsigned char> bytes_;
  int attached_ = -1;
  Descriptor owned_;
};

class Reader {
 public:
  Reader() : bytes_(kLargestMessage) {}

  // False when the other side is gone.
  bool receive(int socket);
  bool take_bytes(void* into, std::size_t size);
  template <typename T>
  bool take(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return take_bytes(static_cast<void*>(std::addressof(value)), sizeof(T));
  }
  bool take_text(std::string& text);
  std::size_t left() const { return size_ - at_; }
  // -1: none came with the message.
  Descriptor take_descriptor() { return std::move(descriptor_); }

 private:
  std::vector<unsigned char> bytes_;
  std::size_t size_ = 0;
  std::size_t at_ = 0;
  Descriptor descriptor_;
};

}  // namespace allranks::sim::wire

#endif  // ALLRANKS_SIMCUDA_WIRE_MESSAGE_HPP_
