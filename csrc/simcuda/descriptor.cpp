#include "descriptor.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "multicast.hpp"

namespace allranks::sim {

DescriptorTable::~DescriptorTable() {
  for (const Exported& exported : all_) close(exported.kept_end);
}

int DescriptorTable::add(Exported exported) {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return -1;
  struct stat status{};
  fstat(ends[1], &status);
  exported.kept_end = ends[0];
  exported.device = status.st_dev;
  exported.inode = status.st_ino;
  all_.push_back(std::move(exported));
  return ends[1];
}

const Exported* DescriptorTable::find(int descriptor) const {
  struct stat status{};
  if (fstat(descriptor, &status) != 0) return nullptr;
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const Exported& exported) {
    return exported.device == status.st_dev && exported.inode == status.st_ino;
  });
  return found == all_.end() ? nullptr : &*found;
}

void DescriptorTable::sweep() {
  if (all_.empty()) return;
  std::vector<pollfd> ends;
  ends.reserve(all_.size());
  for (const Exported& exported : all_) ends.push_back({exported.kept_end, 0, 0});
  if (poll(ends.data(), ends.size(), 0) <= 0) return;
  for (std::size_t i = all_.size(); i-- > 0;) {
    if ((ends[i].revents & (POLLHUP | POLLERR)) == 0) continue;
    close(all_[i].kept_end);
    all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// A process that ends closes its own copies, but ranks may be threads that go on: forget what it exported once closed.
void DescriptorTable::drop_of(const Process& owner) {
  sweep();
  for (Exported& exported : all_) {
    if (exported.owner == &owner) exported.owner = nullptr;
  }
}

}  // namespace allranks::sim
