#include "message.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace allranks::sim::wire {

namespace {

using Control = std::array<unsigned char, CMSG_SPACE(sizeof(int))>;

void set_control(msghdr& message, Control& control, int descriptor) {
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
}

ssize_t send_whole(int socket, const msghdr& message) {
  ssize_t sent = -1;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent;
}

}  // namespace

int Descriptor::release() { return std::exchange(number_, -1); }

void Descriptor::reset(int number) {
  if (number_ >= 0) close(number_);
  number_ = number;
}

void Writer::put_text(const std::string& text) {
  put(static_cast<std::uint32_t>(text.size()));
  put_bytes(text.data(), text.size());
}

void Writer::attach(int descriptor, bool owned) {
  attached_ = descriptor;
  owned_.reset(owned ? descriptor : -1);
}

void Writer::clear() {
  bytes_.clear();
  attached_ = -1;
  owned_.reset();
}

bool Writer::send(int socket) {
  if (bytes_.size() > kLargestMessage) return false;
  alignas(cmsghdr) Control control{};
  iovec part{bytes_.data(), bytes_.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (attached_ >= 0) set_control(message, control, attached_);
  ssize_t sent = send_whole(socket, message);
  if (sent < 0 && errno == EBADF && attached_ >= 0) {
    message.msg_control = nullptr;
    message.msg_controllen = 0;
    sent = send_whole(socket, message);
  }
  return sent >= 0;
}

bool Reader::receive(int socket) {
  alignas(cmsghdr) Control control{};
  iovec part{bytes_.data(), bytes_.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = -1;
  do {
    got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  size_ = got > 0 ? static_cast<std::size_t>(got) : 0;
  at_ = 0;
  descriptor_.reset();
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    int number = -1;
    std::memcpy(&number, CMSG_DATA(header), sizeof number);
    descriptor_.reset(number);
  }
  return got > 0;
}

bool Reader::take_bytes(void* into, std::size_t size) {
  if (size > left()) return false;
  if (size > 0) std::memcpy(into, bytes_.data() + at_, size);
  at_ += size;
  return true;
}

bool Reader::take_text(std::string& text) {
  std::uint32_t size = 0;
  if (!take(size) || size > left()) return false;
  text.resize(size);
  return take_bytes(text.data(), size);
}

}  // namespace allranks::sim::wire
