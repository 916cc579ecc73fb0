// Copies and fills, on the default stream and on streams.
//
// Ranges are checked when the call is made: measured, a fill of a mapping without access rights is INVALID_VALUE and
// leaves the context healthy. Copies from pageable host memory take the source when the call is made. Measured: plain
// memory is reached from another device's context too, without peer access.
#include "cuda_api.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "../copy.hpp"
#include "../own_pages.hpp"

using namespace allranks::sim;

namespace {

// One end of a copy, as the call names it: device memory, or the host's. `by_number`: what it is, only the number says,
// so a number that leads nowhere is an error of the call and not the program's own fault.
struct End {
  CUdeviceptr address;
  bool on_device;
  bool by_number = false;
};

// The same once it is known which device reaches it, and on whose behalf.
struct Place {
  CUdeviceptr address;
  bool on_device;
  bool by_number;
  Access access;
};

End device_end(CUdeviceptr address) { return {address, true}; }
End host_end(const void* pointer) { return {reinterpret_cast<CUdeviceptr>(pointer), false}; }
End unified_end(CUdeviceptr address) { return {address, is_device_address(address), true}; }

CUresult code_of(AccessFault fault) {
  if (fault == AccessFault::kNone) return CUDA_SUCCESS;
  return fault == AccessFault::kMulticastUnbound ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_ERROR_INVALID_VALUE;
}

Access access_of(Process& process, int device) {
  return {.process = process, .device = device, .label = this_thread().label};
}

// Whether host memory can be there: of a client, whose memory may have holes that a copy finds, the last byte is asked
// for before room is made for all of them.
bool may_be_host_memory(const Process& process, const Place& end, std::uint64_t size) {
  if (end.address == 0) return false;
  if (!end.by_number) return true;
  if (process.host == nullptr) return is_own_memory(reinterpret_cast<const void*>(end.address), size);
  unsigned char last = 0;
  return end.address + size > end.address &&
         process.host->read(&last, reinterpret_cast<const void*>(end.address + size - 1), 1);
}

// What a call answers about a range that it is to access. A hole behind a multicast address is found by the device, so
// it is reported and breaks the context [assumption].
CUresult check_end(Context& context, const Place& end, std::uint64_t size, bool for_writing) {
  const Access& access = end.access;
  if (!end.on_device) {
    return may_be_host_memory(access.process, end, size) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  if (access.process.space.freed_within(end.address, size)) {
    access.process.node().incidents.add(access.process, access.label, "use_after_free", name_of(this_thread().call),
                                        place_of(end.address, size) + ": cuMemFreeAsync was called before");
    return CUDA_ERROR_INVALID_VALUE;
  }
  const AccessFault fault = check_range(access, end.address, size, for_writing);
  if (fault == AccessFault::kMulticastUnbound) {
    access.process.node().incidents.add(access.process, access.label, "multicast_unbound", name_of(this_thread().call),
                                        place_of(end.address, size) + ": " + reason_of(fault));
    context.sticky_error = code_of(fault);
  }
  return code_of(fault);
}

CUresult check(Context& context, const Place& destination, const Place& source, std::uint64_t size) {
  const CUresult result = check_end(context, destination, size, true);
  return result != CUDA_SUCCESS ? result : check_end(context, source, size, false);
}

// Calls body(ours, offset, size) for a piece after the other of a range, with a buffer of this process as large as
// that.
template <typename Body>
CUresult through_buffer(std::uint64_t size, const Body& body) {
  constexpr std::uint64_t kPiece = std::uint64_t{1} << 20;
  std::vector<unsigned char> buffer(std::min(size, kPiece));
  for (std::uint64_t done = 0; done < size; done += kPiece) {
    const CUresult result = body(buffer.data(), done, std::min(kPiece, size - done));
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

// A copy whose host end lies in another real process. A host pointer that leads nowhere is INVALID_VALUE [assumption].
CUresult carry_out_for(HostMemory& host, const Place& destination, const Place& source, std::uint64_t size) {
  return through_buffer(size, [&](unsigned char* ours, std::uint64_t done, std::uint64_t now) {
    const auto* const host_source = reinterpret_cast<const unsigned char*>(source.address) + done;
    auto* const host_destination = reinterpret_cast<unsigned char*>(destination.address) + done;
    CUresult result = CUDA_SUCCESS;
    if (source.on_device) {
      result = code_of(read_bytes(source.access, ours, source.address + done, now));
    } else if (!host.read(ours, host_source, now)) {
      result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result != CUDA_SUCCESS) return result;
    if (destination.on_device) {
      return code_of(write_bytes(destination.access, destination.address + done, ours, now));
    }
    return host.write(host_destination, ours, now) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult carry_out(const Place& destination, const Place& source, std::uint64_t size) {
  Process& process = source.access.process;
  const auto* const host_source = reinterpret_cast<const void*>(source.address);
  auto* const host_destination = reinterpret_cast<void*>(destination.address);
  if (destination.on_device && source.on_device) {
    return code_of(copy_bytes(destination.access, destination.address, source.access, source.address, size));
  }
  if (process.host != nullptr) return carry_out_for(*process.host, destination, source, size);
  if (destination.on_device) return code_of(write_bytes(destination.access, destination.address, host_source, size));
  if (source.on_device) return code_of(read_bytes(source.access, host_destination, source.address, size));
  std::memmove(host_destination, host_source, size);
  return CUDA_SUCCESS;
}

// Runs work after everything that the default stream waits for; at once when nothing is pending.
CUresult on_default_stream(const Context& context, const char* call, std::function<CUresult()> work) {
  if (context.streams->idle()) return work();
  Stream& stream = context.streams->legacy();
  auto result = std::make_shared<CUresult>(CUDA_SUCCESS);
  const std::uint64_t number = stream.enqueue(call, [result, work = std::move(work)] {
    *result = work();
    return CUDA_SUCCESS;
  });
  const CUresult waited = stream.wait_for(number, call);
  return waited != CUDA_SUCCESS ? waited : *result;
}

// The bytes behind a host pointer as they are now; false when they are not there.
bool take(const Place& source, std::uint64_t size, std::vector<unsigned char>& bytes) {
  const Process& process = source.access.process;
  const auto* const begin = reinterpret_cast<const unsigned char*>(source.address);
  if (process.host == nullptr) {
    bytes.assign(begin, begin + size);
    return true;
  }
  bytes.resize(size);
  return process.host->read(bytes.data(), begin, size);
}

// The copy as work for later. Pageable host memory is read now.
CUresult as_work(const Place& destination, const Place& source, std::uint64_t size, std::function<CUresult()>& work) {
  if (source.on_device) {
    work = [=] { return carry_out(destination, source, size); };
    return CUDA_SUCCESS;
  }
  std::vector<unsigned char> bytes;
  if (!take(source, size, bytes)) return CUDA_ERROR_INVALID_VALUE;
  work = [=, staged = std::move(bytes)] {
    if (destination.on_device) {
      return code_of(write_bytes(destination.access, destination.address, staged.data(), size));
    }
    auto* const host_destination = reinterpret_cast<void*>(destination.address);
    HostMemory* const host = destination.access.process.host;
    if (host != nullptr)
      return host->write(host_destination, staged.data(), size) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    std::memcpy(host_destination, staged.data(), size);
    return CUDA_SUCCESS;
  };
  return CUDA_SUCCESS;
}

// Page-locked host memory is accessed by the device, when the work is carried out; pageable memory is the host's, and
// so is a client's where the kernel does not let us read it later.
bool reached_by_device(const Process& process, const End& end, std::uint64_t size) {
  if (is_device_address(end.address) || !process.space.is_page_locked(end.address, size)) return end.on_device;
  return process.host == nullptr || process.host->readable_later();
}

// Measured of copies that wait; [assumption] of others too.
Place located(Process& process, const Context& context, const End& end, std::uint64_t size) {
  const int device = reaching_device(process, end.address, context.device);
  return {end.address, reached_by_device(process, end, size), end.by_number, access_of(process, device)};
}

CUresult copy_now(Call call, const End& to, const End& from, std::uint64_t size) {
  return entry_in_context(call, [&](Process& process, Context& context) {
    if (size == 0) return CUDA_SUCCESS;
    const Place destination = located(process, context, to, size);
    const Place source = located(process, context, from, size);
    CUresult result = check(context, destination, source, size);
    if (result != CUDA_SUCCESS) return result;
    if (context.streams->idle()) return carry_out(destination, source, size);
    std::function<CUresult()> work;
    result = as_work(destination, source, size, work);
    return result != CUDA_SUCCESS ? result : on_default_stream(context, name_of(call), std::move(work));
  });
}

CUresult copy_on_stream(Call call, const End& to, const End& from, std::uint64_t size, CUstream handle) {
  return entry_in_context(call, [&](Process& process, Context& context) {
    Stream* const stream = find_stream(process, handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (size == 0) return CUDA_SUCCESS;
    const Place destination = located(process, context, to, size);
    const Place source = located(process, context, from, size);
    CUresult result = check(context, destination, source, size);
    if (result != CUDA_SUCCESS) return result;
    std::function<CUresult()> work;
    result = as_work(destination, source, size, work);
    if (result == CUDA_SUCCESS) stream->enqueue(name_of(call), std::move(work));
    return result;
  });
}

template <typename Element>
CUresult fill(Process& process, Context& context, const char* call, CUdeviceptr destination, Element element,
              std::uint64_t count, Stream* stream) {
  const Access access = access_of(process, context.device);
  if (destination % sizeof(Element) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (count == 0) return CUDA_SUCCESS;
  if (count > kHighestAddress / sizeof(Element)) return CUDA_ERROR_INVALID_VALUE;  // no such range, and no wrapping
  const CUresult result = check_end(context, {destination, true, false, access}, count * sizeof(Element), true);
  if (result != CUDA_SUCCESS) return result;
  std::function<CUresult()> work = [=] {
    return code_of(fill_bytes(access, destination, &element, sizeof element, count));
  };
  if (stream == nullptr) return on_default_stream(context, call, std::move(work));
  stream->enqueue(call, std::move(work));
  return CUDA_SUCCESS;
}

template <typename Element>
CUresult fill_now(Call call, CUdeviceptr destination, Element element, std::uint64_t count) {
  return entry_in_context(call, [&](Process& process, Context& context) {
    return fill(process, context, name_of(call), destination, element, count, nullptr);
  });
}

template <typename Element>
CUresult fill_on_stream(Call call, CUdeviceptr destination, Element element, std::uint64_t count, CUstream handle) {
  return entry_in_context(call, [&](Process& process, Context& context) {
    Stream* const stream = find_stream(process, handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return fill(process, context, name_of(call), destination, element, count, stream);
  });
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuMemcpy(CUdeviceptr destination, CUdeviceptr source, size_t size) {
  return copy_now(Call::kMemcpy, unified_end(destination), unified_end(source), size);
}

CUresult CUDAAPI cuMemcpyHtoD(CUdeviceptr destination, const void* source, size_t size) {
  return copy_now(Call::kMemcpyHtoD, device_end(destination), host_end(source), size);
}

CUresult CUDAAPI cuMemcpyDtoH(void* destination, CUdeviceptr source, size_t size) {
  return copy_now(Call::kMemcpyDtoH, host_end(destination), device_end(source), size);
}

CUresult CUDAAPI cuMemcpyDtoD(CUdeviceptr destination, CUdeviceptr source, size_t size) {
  return copy_now(Call::kMemcpyDtoD, device_end(destination), device_end(source), size);
}

CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr destination, CUdeviceptr source, size_t size, CUstream stream) {
  return copy_on_stream(Call::kMemcpyAsync, unified_end(destination), unified_end(source), size, stream);
}

CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr destination, const void* source, size_t size, CUstream stream) {
  return copy_on_stream(Call::kMemcpyHtoDAsync, device_end(destination), host_end(source), size, stream);
}

CUresult CUDAAPI cuMemcpyDtoHAsync(void* destination, CUdeviceptr source, size_t size, CUstream stream) {
  return copy_on_stream(Call::kMemcpyDtoHAsync, host_end(destination), device_end(source), size, stream);
}

CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr destination, CUdeviceptr source, size_t size, CUstream stream) {
  return copy_on_stream(Call::kMemcpyDtoDAsync, device_end(destination), device_end(source), size, stream);
}

CUresult CUDAAPI cuMemsetD8(CUdeviceptr destination, unsigned char value, size_t count) {
  return fill_now(Call::kMemsetD8, destination, value, count);
}

CUresult CUDAAPI cuMemsetD16(CUdeviceptr destination, unsigned short value, size_t count) {
  return fill_now(Call::kMemsetD16, destination, value, count);
}

CUresult CUDAAPI cuMemsetD32(CUdeviceptr destination, unsigned int value, size_t count) {
  return fill_now(Call::kMemsetD32, destination, value, count);
}

CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr destination, unsigned char value, size_t count, CUstream stream) {
  return fill_on_stream(Call::kMemsetD8Async, destination, value, count, stream);
}

CUresult CUDAAPI cuMemsetD16Async(CUdeviceptr destination, unsigned short value, size_t count, CUstream stream) {
  return fill_on_stream(Call::kMemsetD16Async, destination, value, count, stream);
}

CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr destination, unsigned int value, size_t count, CUstream stream) {
  return fill_on_stream(Call::kMemsetD32Async, destination, value, count, stream);
}

}  // extern "C"
