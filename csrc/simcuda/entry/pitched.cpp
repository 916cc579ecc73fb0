// Memory of rows: allocation with a pitch, and fills of rows. What cuda.h does not say is an [assumption].
#include "cuda_api.hpp"

#include "../copy.hpp"
#include "../generated.hpp"

using namespace allranks::sim;

namespace {

constexpr std::uint64_t kPitchUnit = 512;  // [assumption] as the device's texture alignment

struct Rows {
  CUdeviceptr address;
  std::uint64_t pitch;
  std::uint64_t width_bytes;
  std::uint64_t count;

  CUdeviceptr row(std::uint64_t index) const { return address + index * pitch; }
};

// True when the rows lie one after the other and end where an address can be.
bool in_order(const Rows& rows) {
  if (rows.count > 1 && rows.pitch < rows.width_bytes) return false;
  return rows.width_bytes <= kHighestAddress && (rows.count <= 1 || rows.pitch <= kHighestAddress / (rows.count - 1));
}

CUresult check_rows(const Access& access, const Rows& rows) {
  if (!in_order(rows)) return CUDA_ERROR_INVALID_VALUE;
  for (std::uint64_t i = 0; i < rows.count; ++i) {
    const Translation there = access.process.translate(rows.row(i), access.device, true);
    if (there.reach == Reach::kMulticast)
      return static_cast<CUresult>(not_supported("fills of rows of multicast memory"));
    if (access.process.space.freed_within(rows.row(i), rows.width_bytes)) {
      access.process.node().incidents.add(
          access.process, access.label, "use_after_free", name_of(this_thread().call),
          place_of(rows.row(i), rows.width_bytes) + ": cuMemFreeAsync was called before");
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (check_range(access, rows.row(i), rows.width_bytes, true) != AccessFault::kNone) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// Appends the fill to the stream, and waits for it if it is no asynchronous one.
template <typename Element>
CUresult fill(Call call, const Context& context, Stream& stream, const Rows& rows, Element element, bool waits) {
  // Measured: one row has no next one, so its pitch may be any.
  const bool pitched = rows.count > 1 && rows.pitch % sizeof(Element) != 0;
  if (rows.address % sizeof(Element) != 0 || pitched) return CUDA_ERROR_INVALID_VALUE;
  if (rows.width_bytes == 0 || rows.count == 0) return CUDA_SUCCESS;
  const Access access{.process = context.process, .device = context.device, .label = this_thread().label};
  if (const CUresult result = check_rows(access, rows); result != CUDA_SUCCESS) return result;
  const std::uint64_t number = stream.enqueue(name_of(call), [=] {
    for (std::uint64_t i = 0; i < rows.count; ++i) {
      const AccessFault fault =
          fill_bytes(access, rows.row(i), &element, sizeof element, rows.width_bytes / sizeof element);
      if (fault != AccessFault::kNone) return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  });
  return waits ? stream.wait_for(number, name_of(call)) : CUDA_SUCCESS;
}

// [cuda.h] Address and pitch are multiples of the element's size; the width counts elements.
template <typename Element>
Rows rows_of(CUdeviceptr address, std::uint64_t pitch, std::uint64_t width, std::uint64_t height) {
  const std::uint64_t bytes = width > kHighestAddress ? kHighestAddress + 1 : width * sizeof(Element);
  return {.address = address, .pitch = pitch, .width_bytes = bytes, .count = height};
}

template <typename Element>
CUresult fill_now(Call call, const Rows& rows, Element element) {
  return entry_in_context(call, [&](const Process&, const Context& context) {
    return fill(call, context, context.streams->legacy(), rows, element, true);
  });
}

template <typename Element>
CUresult fill_on_stream(Call call, const Rows& rows, Element element, CUstream handle) {
  return entry_in_context(call, [&](Process& process, const Context& context) {
    Stream* const stream = find_stream(process, handle);
    return stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : fill(call, context, *stream, rows, element, false);
  });
}

}  // namespace

extern "C" {

// [cuda.h] Elements are of 4, 8 or 16 bytes.
CUresult CUDAAPI cuMemAllocPitch(CUdeviceptr* address, size_t* pitch, size_t width_bytes, size_t height,
                                 unsigned int element_bytes) {
  return entry_in_context(Call::kMemAllocPitch, [&](Process& process, Context& context) {
    const bool known = element_bytes == 4 || element_bytes == 8 || element_bytes == 16;
    if (address == nullptr || pitch == nullptr || width_bytes == 0 || height == 0 || !known) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const std::uint64_t most = process.node().machine.memory_bytes;
    if (width_bytes > UINT64_MAX / height) return CUDA_ERROR_INVALID_VALUE;  // measured: no number of bytes
    if (width_bytes > most || height > most) return CUDA_ERROR_OUT_OF_MEMORY;
    const std::uint64_t row = (width_bytes + kPitchUnit - 1) / kPitchUnit * kPitchUnit;
    if (row > most / height) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = process.allocate_plain(context, row * height, address);
    if (result == CUDA_SUCCESS) *pitch = row;
    return result;
  });
}

CUresult CUDAAPI cuMemsetD2D8(CUdeviceptr address, size_t pitch, unsigned char value, size_t width, size_t height) {
  return fill_now(Call::kMemsetD2D8, rows_of<unsigned char>(address, pitch, width, height), value);
}

CUresult CUDAAPI cuMemsetD2D16(CUdeviceptr address, size_t pitch, unsigned short value, size_t width, size_t height) {
  return fill_now(Call::kMemsetD2D16, rows_of<unsigned short>(address, pitch, width, height), value);
}

CUresult CUDAAPI cuMemsetD2D32(CUdeviceptr address, size_t pitch, unsigned int value, size_t width, size_t height) {
  return fill_now(Call::kMemsetD2D32, rows_of<unsigned int>(address, pitch, width, height), value);
}

CUresult CUDAAPI cuMemsetD2D8Async(CUdeviceptr address, size_t pitch, unsigned char value, size_t width, size_t height,
                                   CUstream stream) {
  return fill_on_stream(Call::kMemsetD2D8Async, rows_of<unsigned char>(address, pitch, width, height), value, stream);
}

CUresult CUDAAPI cuMemsetD2D16Async(CUdeviceptr address, size_t pitch, unsigned short value, size_t width,
                                    size_t height, CUstream stream) {
  return fill_on_stream(Call::kMemsetD2D16Async, rows_of<unsigned short>(address, pitch, width, height), value, stream);
}

CUresult CUDAAPI cuMemsetD2D32Async(CUdeviceptr address, size_t pitch, unsigned int value, size_t width, size_t height,
                                    CUstream stream) {
  return fill_on_stream(Call::kMemsetD2D32Async, rows_of<unsigned int>(address, pitch, width, height), value, stream);
}

}  // extern "C"
