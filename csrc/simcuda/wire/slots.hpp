// One argument of a call on its way: what the client sends, what the broker hands to the entry point, what comes back.
//
// Client: `put` (false: not an argument that can be sent) and `take_back`. Broker: `take`, `argument`, `fits` (false:
// the argument that says how many there are says otherwise), then `put_back`. `all` are all arguments of the call.
#ifndef ALLRANKS_SIMCUDA_WIRE_SLOTS_HPP_
#define ALLRANKS_SIMCUDA_WIRE_SLOTS_HPP_

#include <algorithm>
#include <cstring>
#include <string>

#include "message.hpp"
#include "own_pages.hpp"
#include "shapes.hpp"

namespace allranks::sim::wire {

template <typename T, typename Shape, std::size_t Index>
struct Slot;

// What a slot does that is there on the way to the broker only.
struct OneWay {
  template <typename Arguments>
  static bool fits(const Arguments&) {
    return true;
  }
  template <typename Arguments>
  void put_back(Writer&, CUresult, const Arguments&) {}
  template <typename Arguments>
  static bool take_back(Reader&, const Arguments&) {
    return true;
  }
};

template <typename T, std::size_t Index>
struct Slot<T, Value, Index> : OneWay {
  // Not all enumerations of cuda.h have a 0; `take` comes first.
  T value{};  // NOLINT(bugprone-invalid-enum-default-initialization)

  template <typename Arguments>
  static bool put(Writer& out, const Arguments& all) {
    out.put(std::get<Index>(all));
    return true;
  }
  bool take(Reader& in) { return in.take(value); }
  T argument() { return value; }
};

// What the slots below have in common: a pointer that may be null.
template <std::size_t Index>
struct Pointer : OneWay {
  bool present = false;

  template <typename Arguments>
  static bool put_presence(Writer& out, const Arguments& all) {
    const bool there = std::get<Index>(all) != nullptr;
    out.put(there);
    return there;
  }
};

template <typename T, std::size_t Index>
struct Slot<T, Presence, Index> : Pointer<Index> {
  using Element = std::remove_pointer_t<T>;
  std::conditional_t<std::is_void_v<Element>, void*, std::remove_cv_t<Element>> somewhere{};

  template <typename Arguments>
  static bool put(Writer& out, const Arguments& all) {
    Pointer<Index>::put_presence(out, all);
    return true;
  }
  bool take(Reader& in) { return in.take(this->present); }
  T argument() { return this->present ? static_cast<T>(&somewhere) : nullptr; }
};

template <typename E, std::size_t Index>
struct Slot<E*, One, Index> : Pointer<Index> {
  std::remove_cv_t<E> element{};

  template <typename Arguments>
  static bool put(Writer& out, const Arguments& all) {
    if (Pointer<Index>::put_presence(out, all)) out.put(*std::get<Index>(all));
    return true;
  }
  bool take(Reader& in) { return in.take(this->present) && (!this->present || in.take(element)); }
  E* argument() { return this->present ? &element : nullptr; }
  template <typename Arguments>
  void put_back(Writer& out, CUresult, const Arguments&) {
    if (!std::is_const_v<E> && this->present) out.put(element);
  }
  template <typename Arguments>
  static bool take_back(Reader& in, const Arguments& all) {
    if constexpr (std::is_const_v<E>) {
      return true;
    } else {
      return std::get<Index>(all) == nullptr || in.take(*std::get<Index>(all));
    }
  }
};

template <std::size_t Index>
struct Slot<const char*, Text, Index> : Pointer<Index> {
  std::string text;

  template <typename Arguments>
  static bool put(Writer& out, const Arguments& all) {
    if (Pointer<Index>::put_presence(out, all)) out.put_text(std::get<Index>(all));
    return true;
  }
  bool take(Reader& in) { return in.take(this->present) && (!this->present || in.take_text(text)); }
  const char* argument() { return this->present ? text.c_str() : nullptr; }
};

template <typename E, std::size_t Count, std::size_t Index>
struct Slot<E*, Array<Count>, Index> : Pointer<Index> {
  std::vector<std::remove_cv_t<E>> elements;
  std::uint64_t count = 0;

  template <typename Arguments>
  static bool put(Writer& out, const Arguments& all) {
    const auto count = static_cast<std::uint64_t>(std::get<Count>(all));
    if (!Pointer<Index>::put_presence(out, all)) return true;
    if (count > kLongestArray) return false;
    out.put(count);
    out.put_bytes(std::get<Index>(all), count * sizeof(E));
    return true;
  }
  bool take(Reader& in) {
    if (!in.take(this->present)) return false;
    if (!this->present) return true;
    if (!in.take(count) || count > in.left() / sizeof(E)) return false;
    elements.resize(std::max<std::size_t>(count, 1));  // an empty array is not a null one
    return in.take_bytes(elements.data(), count * sizeof(E));
  }
  E* argument() { return this->present ? elements.data() : nullptr; }
  template <typename Arguments>
  bool fits(const Arguments& all) const {
    return !this->present || count == static_cast<std::uint64_t>(std::get<Count>(all));
  }
};

template <std::size_t Count, std::size_t Index>
struct Slot<char*, Room<Count>, Index> : Pointer<Index> {
  static constexpr long long kLongestText = 4096;
  std::vector<char> room;

  static std::uint64_t usable(long long size) {
    return static_cast<std::uint64_t>(std::clamp(size, 0LL, kLongestText));
  }

  template <typename Arguments>
  static bool put(Writer& out, const Arguments& all) {
    Pointer<Index>::put_presence(out, all);
    return true;
  }
  bool take(Reader& in) {
    if (!in.take(this->present)) return false;
    if (this->present) room.assign(kLongestText, '\0');  // longer than any text that a call writes
    return true;
  }
  char* argument() { return this->present ? room.data() : nullptr; }
  template <typename Arguments>
  void put_back(Writer& out, CUresult result, const Arguments& all) {
    if (!this->present) return;
    const std::uint64_t written = ::strnlen(room.data(), room.size() - 1) + 1;
    const std::uint64_t size = result == CUDA_SUCCESS ? std::min(written, usable(std::get<Count>(all))) : 0;
    out.put(size);
    out.put_bytes(room.data(), size);
  }
  template <typename Arguments>
  static bool take_back(Reader& in, const Arguments& all) {
    std::uint64_t size = 0;
    if (std::get<Index>(all) == nullptr) return true;
    return in.take(size) && size <= usable(std::get<Count>(all)) && in.take_bytes(std::get<Index>(all), size);
  }
};

template <std::size_t Size, std::size_t Index>
struct Slot<const void*, Head<Size>, Index> : Pointer<Index> {
  alignas(std::max_align_t) std::array<unsigned char, Size> bytes{};

  template <typename Arguments>
  static bool put(Writer& out, const Arguments& all) {
    if (Pointer<Index>::put_presence(out, all)) out.put_bytes(std::get<Index>(all), Size);
    return true;
  }
  bool take(Reader& in) {
    return in.take(this->present) && (!this->present || in.take_bytes(bytes.data(), bytes.size()));
  }
  const void* argument() { return this->present ? bytes.data() : nullptr; }
};

template <std::size_t Choice, auto SizeOf, std::size_t Index>
struct Slot<void*, Measured<Choice, SizeOf>, Index> : Pointer<Index> {
  alignas(std::max_align_t) std::array<unsigned char, kLargestMeasured> bytes{};

  template <typename Arguments>
  static bool put(Writer& out, const Arguments& all) {
    if (!Pointer<Index>::put_presence(out, all)) return true;
    const std::uint64_t size = SizeOf(std::get<Choice>(all));
    out.put(size);
    out.put_bytes(std::get<Index>(all), size);
    return true;
  }
  bool take(Reader& in) {
    std::uint64_t size = 0;
    if (!in.take(this->present)) return false;
    if (!this->present) return true;
    return in.take(size) && size <= bytes.size() && in.take_bytes(bytes.data(), size);
  }
  void* argument() { return this->present ? bytes.data() : nullptr; }
  template <typename Arguments>
  void put_back(Writer& out, CUresult, const Arguments& all) {
    if (this->present) out.put_bytes(bytes.data(), SizeOf(std::get<Choice>(all)));
  }
  template <typename Arguments>
  static bool take_back(Reader& in, const Arguments& all) {
    void* const data = std::get<Index>(all);
    return data == nullptr || in.take_bytes(data, SizeOf(std::get<Choice>(all)));
  }
};

template <std::size_t Count, std::size_t Choices, auto SizeOf, std::size_t Index>
struct Slot<void**, MeasuredEach<Count, Choices, SizeOf>, Index> : Pointer<Index> {
  struct alignas(std::max_align_t) Bytes {
    std::array<unsigned char, kLargestMeasured> bytes{};
    std::uint64_t size = 0;
  };
  std::vector<Bytes> each;
  std::vector<void*> pointers;

  template <typename Arguments, typename Visit>
  static bool visit(const Arguments& all, const Visit& visit_one) {
    const auto count = static_cast<std::uint64_t>(std::get<Count>(all));
    if (std::get<Index>(all) == nullptr || std::get<Choices>(all) == nullptr) return true;
    if (count > kLongestArray) return false;
    for (std::uint64_t i = 0; i < count; ++i) {
      void* const data = std::get<Index>(all)[i];
      if (!visit_one(data, data == nullptr ? 0 : SizeOf(std::get<Choices>(all)[i]))) return false;
    }
    return true;
  }
  template <typename Arguments>
  static bool put(Writer& out, const Arguments& all) {
    if (!Pointer<Index>::put_presence(out, all)) return true;
    out.put(std::get<Choices>(all) == nullptr ? std::uint64_t{0} : static_cast<std::uint64_t>(std::get<Count>(all)));
    return visit(all, [&](const void* data, std::uint64_t size) {
      out.put(data != nullptr);
      out.put(size);
      out.put_bytes(data, size);
      return true;
    });
  }
  bool take(Reader& in) {
    std::uint64_t count = 0;
    if (!in.take(this->present)) return false;
    if (!this->present) return true;
    if (!in.take(count) || count > kLongestArray) return false;
    each.resize(count);
    pointers.assign(std::max<std::size_t>(count, 1), nullptr);
    for (std::uint64_t i = 0; i < count; ++i) {
      bool there = false;
      if (!in.take(there) || !in.take(each[i].size) || each[i].size > kLargestMeasured) return false;
      if (!in.take_bytes(each[i].bytes.data(), each[i].size)) return false;
      pointers[i] = there ? each[i].bytes.data() : nullptr;
    }
    return true;
  }
  void** argument() { return this->present ? pointers.data() : nullptr; }
  template <typename Arguments>
  bool fits(const Arguments& all) const {
    return !this->present || std::get<Choices>(all) == nullptr ||
           each.size() == static_cast<std::uint64_t>(std::get<Count>(all));
  }
  template <typename Arguments>
  void put_back(Writer& out, CUresult, const Arguments&) {
    for (const Bytes& one : each) out.put_bytes(one.bytes.data(), one.size);
  }
  template <typename Arguments>
  static bool take_back(Reader& in, const Arguments& all) {
    return visit(all, [&](void* data, std::uint64_t size) { return in.take_bytes(data, size); });
  }
};

// An exported descriptor goes to the client, which alone keeps it: the node sees when its last copy is closed.
template <std::size_t Type, std::size_t Index>
struct Slot<void*, DescriptorOut<Type>, Index> : Pointer<Index> {
  alignas(std::max_align_t) std::array<unsigned char, kLargestMeasured> bytes{};

  template <typename Arguments>
  static bool is_descriptor(const Arguments& all) {
    return std::get<Type>(all) == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  }
  template <typename Arguments>
  static bool put(Writer& out, const Arguments& all) {
    Pointer<Index>::put_presence(out, all);
    return true;
  }
  bool take(Reader& in) { return in.take(this->present); }
  void* argument() { return this->present ? bytes.data() : nullptr; }
  template <typename Arguments>
  void put_back(Writer& out, CUresult result, const Arguments& all) {
    const bool exported = result == CUDA_SUCCESS && is_descriptor(all);
    out.put(exported);
    if (!exported) return;
    int number = -1;
    std::memcpy(&number, bytes.data(), sizeof number);
    out.attach(number, true);
  }
  // A client that may open no more descriptors gets none with the message.
  template <typename Arguments>
  static bool take_back(Reader& in, const Arguments& all) {
    bool exported = false;
    Descriptor got = in.take_descriptor();
    if (!in.take(exported)) return false;
    if (!exported) return true;
    if (got.get() < 0) return false;
    const int number = got.release();
    std::memcpy(std::get<Index>(all), &number, sizeof number);
    return true;
  }
};

template <std::size_t Type, std::size_t Index>
struct Slot<void*, DescriptorIn<Type>, Index> : OneWay {
  void* value = nullptr;
  Descriptor descriptor;

  template <typename Arguments>
  static bool put(Writer& out, const Arguments& all) {
    void* const given = std::get<Index>(all);
    out.put(given);
    if (std::get<Type>(all) == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
      out.attach(static_cast<int>(reinterpret_cast<std::intptr_t>(given)), false);
    }
    return true;
  }
  // The number that it has here; -1 when what the client gave is no open descriptor.
  bool take(Reader& in) {
    descriptor = in.take_descriptor();
    if (!in.take(value)) return false;
    value = reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor.get()));
    return true;
  }
  void* argument() { return value; }
};

template <typename T, std::size_t Index>
struct Slot<T, Function, Index> : Slot<T, Value, Index> {};

template <std::size_t Size, std::size_t Index>
struct Slot<void*, OwnMemory<Size>, Index> : Slot<void*, Value, Index> {
  template <typename Arguments>
  static bool put(Writer& out, const Arguments& all) {
    void* const given = std::get<Index>(all);
    out.put(is_own_memory(given, std::get<Size>(all)) ? given : nullptr);
    return true;
  }
};

template <std::size_t Size, std::size_t Index>
struct Slot<void**, OwnPages<Size>, Index> : Pointer<Index> {
  void* pages = nullptr;

  template <typename Arguments>
  static bool put(Writer& out, const Arguments& all) {
    if (!Pointer<Index>::put_presence(out, all)) return true;
    out.put(std::get<Size>(all) == 0 ? nullptr : own_pages(std::get<Size>(all)));
    return true;
  }
  bool take(Reader& in) { return in.take(this->present) && (!this->present || in.take(pages)); }
  void** argument() { return this->present ? &pages : nullptr; }
  template <typename Arguments>
  void put_back(Writer& out, CUresult result, const Arguments&) {
    if (!this->present) return;
    out.put(pages);
    out.put(result == CUDA_SUCCESS);
  }
  template <typename Arguments>
  static bool take_back(Reader& in, const Arguments& all) {
    void* mapped = nullptr;
    bool kept = false;
    if (std::get<Index>(all) == nullptr) return true;
    if (!in.take(mapped) || !in.take(kept)) return false;
    if (kept) *std::get<Index>(all) = mapped;
    if (!kept && mapped != nullptr) munmap(mapped, std::get<Size>(all));
    return true;
  }
};

}  // namespace allranks::sim::wire

#endif  // ALLRANKS_SIMCUDA_WIRE_SLOTS_HPP_
