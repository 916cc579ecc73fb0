#include "copy.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "address_space.hpp"
#include "incidents.hpp"
#include "multicast.hpp"
#include "node.hpp"
#include "process.hpp"

namespace allranks::sim {

namespace {

constexpr CUdeviceptr kLowestDeviceAddress = CUdeviceptr{1} << 48;
constexpr CUdeviceptr kHighestDeviceAddress = CUdeviceptr{1} << 49;

AccessFault fault_of(Reach reach) {
  return reach == Reach::kNoAccess ? AccessFault::kNoRights : AccessFault::kNothingMapped;
}

// The first `size` bytes of a stretch, which may be page-locked memory of another real process. False: not there.
bool load(const Stretch& stretch, void* to, std::uint64_t size) {
  if (HostMemory* const elsewhere = stretch.allocation->elsewhere()) return elsewhere->read(to, stretch.host, size);
  std::memmove(to, stretch.host, size);
  return true;
}

bool store(const Stretch& stretch, const void* from, std::uint64_t size) {
  if (HostMemory* const elsewhere = stretch.allocation->elsewhere()) return elsewhere->write(stretch.host, from, size);
  std::memmove(stretch.host, from, size);
  return true;
}

// Fills with a pattern of which `done` bytes were written before.
bool fill(const Stretch& stretch, const unsigned char* pattern, std::uint64_t pattern_bytes, std::uint64_t done,
          std::uint64_t size) {
  if (HostMemory* const elsewhere = stretch.allocation->elsewhere()) {
    std::vector<unsigned char> bytes(std::min(size, std::uint64_t{1} << 20));  // a multiple of any pattern, or all
    for (std::uint64_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern[(done + i) % pattern_bytes];
    for (std::uint64_t at = 0; at < size; at += bytes.size()) {
      if (!elsewhere->write(stretch.host + at, bytes.data(), std::min<std::uint64_t>(bytes.size(), size - at))) {
        return false;
      }
    }
    return true;
  }
  const bool uniform = std::all_of(pattern, pattern + pattern_bytes, [&](unsigned char b) { return b == *pattern; });
  if (uniform) {
    std::memset(stretch.host, *pattern, size);
  } else {
    for (std::uint64_t i = 0; i < size; ++i) stretch.host[i] = pattern[(done + i) % pattern_bytes];
  }
  return true;
}

// Calls visit(stretches, bytes done, bytes now) for every piece of the range; a piece has one stretch, or behind a
// multicast address one a device. It gives false when the memory is not there after all.
template <typename Visit>
AccessFault for_each_piece(const Access& access, CUdeviceptr address, std::uint64_t size, bool for_writing,
                           const Visit& visit) {
  std::vector<Stretch> stretches;
  std::string missing;
  for (std::uint64_t done = 0; done < size;) {
    const Translation there = access.process.translate(address + done, access.device, for_writing);
    std::uint64_t now = std::min(size - done, there.size);
    stretches.clear();
    if (there.reach == Reach::kMemory) {
      stretches.push_back(there.stretch);
    } else if (there.reach == Reach::kMulticast) {
      if (!there.multicast->stretches_at(there.multicast_offset, now, stretches, missing)) {
        return AccessFault::kMulticastUnbound;
      }
      for (const Stretch& stretch : stretches) now = std::min(now, stretch.size);
    } else {
      return fault_of(there.reach);
    }
    if (now == 0 || !visit(there, stretches, done, now)) return AccessFault::kNothingMapped;
    done += now;
  }
  return AccessFault::kNone;
}

AccessFault with_host_source(const Access& access, CUdeviceptr destination, const unsigned char* source,
                             std::uint64_t size) {
  return for_each_piece(
      access, destination, size, true,
      [&](const Translation&, const std::vector<Stretch>& stretches, std::uint64_t done, std::uint64_t now) {
        return std::all_of(stretches.begin(), stretches.end(), [&](const Stretch& stretch) {
          if (!store(stretch, source + done, now)) return false;
          note_written(access, stretch, now);
          return true;
        });
      });
}

}  // namespace

std::string place_of(CUdeviceptr address, std::uint64_t size) {
  char text[64];
  std::snprintf(text, sizeof text, "%llu bytes at 0x%llx", static_cast<unsigned long long>(size),
                static_cast<unsigned long long>(address));
  return text;
}

const char* reason_of(AccessFault fault) {
  switch (fault) {
    case AccessFault::kNone: return "nothing is wrong there";
    case AccessFault::kNothingMapped: return "nothing is mapped there";
    case AccessFault::kNoRights: return "the device has no access rights there";
    case AccessFault::kMulticastUnbound: return "some device has nothing bound there";
  }
  return "";
}

bool is_device_address(CUdeviceptr address) {
  return address >= kLowestDeviceAddress && address < kHighestDeviceAddress;
}

void note_written(const Access& access, const Stretch& stretch, std::uint64_t size) {
  Node& node = access.process.node();
  if (node.writes.recording()) {
    node.writes.record(access.label.step, access.process.rank, stretch, size);
  }
  node.turnstile.notify_range(stretch.host, stretch.host + size);
}

AccessFault check_range(const Access& access, CUdeviceptr address, std::uint64_t size, bool for_writing) {
  return for_each_piece(
      access, address, size, for_writing,
      [](const Translation&, const std::vector<Stretch>&, std::uint64_t, std::uint64_t) { return true; });
}

AccessFault write_bytes(const Access& access, CUdeviceptr destination, const void* source, std::uint64_t size) {
  return with_host_source(access, destination, static_cast<const unsigned char*>(source), size);
}

AccessFault read_bytes(const Access& access, void* destination, CUdeviceptr source, std::uint64_t size) {
  auto* const out = static_cast<unsigned char*>(destination);
  bool through_multicast = false;
  const AccessFault fault = for_each_piece(
      access, source, size, false,
      [&](const Translation& there, const std::vector<Stretch>& stretches, std::uint64_t done, std::uint64_t now) {
        if (there.reach == Reach::kMulticast) {
          through_multicast = true;
          std::memset(out + done, 0xa5, now);  // undefined on hardware: never the value of some device
          return true;
        }
        return load(stretches.front(), out + done, now);
      });
  if (through_multicast) {
    access.process.node().incidents.add(access.process, access.label, "multicast_read", "memcpy",
                                        "a copy from a multicast address reads undefined bytes");
  }
  return fault;
}

int reaching_device(const Process& process, CUdeviceptr address, int device) {
  const auto mapping = process.space.mapping_at(address);
  const bool plain = mapping != process.space.mappings.end() && mapping->second.origin == Origin::kPlain;
  return plain ? mapping->second.allocation->device : device;
}

AccessFault copy_bytes(const Access& writer, CUdeviceptr destination, const Access& reader, CUdeviceptr source,
                       std::uint64_t size) {
  // Source and destination are cut into pieces independently, so the bytes pass through a buffer.
  constexpr std::uint64_t kChunk = 256 * 1024;
  std::vector<unsigned char> buffer(std::min(size, kChunk));
  for (std::uint64_t done = 0; done < size; done += kChunk) {
    const std::uint64_t now = std::min(kChunk, size - done);
    if (const AccessFault fault = read_bytes(reader, buffer.data(), source + done, now); fault != AccessFault::kNone) {
      return fault;
    }
    const AccessFault fault = with_host_source(writer, destination + done, buffer.data(), now);
    if (fault != AccessFault::kNone) return fault;
  }
  return AccessFault::kNone;
}

AccessFault fill_bytes(const Access& access, CUdeviceptr destination, const void* element, std::uint64_t element_bytes,
                       std::uint64_t count) {
  const auto* const pattern = static_cast<const unsigned char*>(element);
  return for_each_piece(
      access, destination, element_bytes * count, true,
      [&](const Translation&, const std::vector<Stretch>& stretches, std::uint64_t done, std::uint64_t now) {
        return std::all_of(stretches.begin(), stretches.end(), [&](const Stretch& stretch) {
          if (!fill(stretch, pattern, element_bytes, done, now)) return false;
          note_written(access, stretch, now);
          return true;
        });
      });
}

bool read_word(const Stretch& stretch, unsigned bytes, std::uint64_t* value) {
  HostMemory* const elsewhere = stretch.allocation->elsewhere();
  if (elsewhere == nullptr) {
    *value = bytes == 4 ? __atomic_load_n(reinterpret_cast<const std::uint32_t*>(stretch.host), __ATOMIC_ACQUIRE)
                        : __atomic_load_n(reinterpret_cast<const std::uint64_t*>(stretch.host), __ATOMIC_ACQUIRE);
    return true;
  }
  // The kernel promises no single access: a value counts that is read twice in a row.
  std::uint64_t before = 0;
  *value = 0;
  if (!elsewhere->read(value, stretch.host, bytes)) return false;
  do {
    before = *value;
    if (!elsewhere->read(value, stretch.host, bytes)) return false;
  } while (*value != before);
  return true;
}

}  // namespace allranks::sim
