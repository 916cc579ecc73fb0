// Copies. Each is one of the driver's, or one a row.
#include "../call.hpp"
#include "../registry.hpp"

using namespace allranks::cudart;

namespace {

// One copy, when there is no stream at once.
struct Order {
  bool in_stream = false;
  cudaStream_t stream = nullptr;
};

cudaError_t copy_bytes(void* destination, const void* source, size_t bytes, cudaMemcpyKind kind, const Order& order) {
  const CUdeviceptr to = address_of(destination);
  const CUdeviceptr from = address_of(source);
  const CUstream stream = order.stream;
  CUresult result = CUDA_SUCCESS;
  switch (kind) {
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      result = order.in_stream ? ALLRANKS_DRIVER(cuMemcpyAsync)(to, from, bytes, stream)
                               : ALLRANKS_DRIVER(cuMemcpy)(to, from, bytes);
      break;
    case cudaMemcpyHostToDevice:
      result = order.in_stream ? ALLRANKS_DRIVER(cuMemcpyHtoDAsync)(to, source, bytes, stream)
                               : ALLRANKS_DRIVER(cuMemcpyHtoD)(to, source, bytes);
      break;
    case cudaMemcpyDeviceToHost:
      result = order.in_stream ? ALLRANKS_DRIVER(cuMemcpyDtoHAsync)(destination, from, bytes, stream)
                               : ALLRANKS_DRIVER(cuMemcpyDtoH)(destination, from, bytes);
      break;
    case cudaMemcpyDeviceToDevice:
      result = order.in_stream ? ALLRANKS_DRIVER(cuMemcpyDtoDAsync)(to, from, bytes, stream)
                               : ALLRANKS_DRIVER(cuMemcpyDtoD)(to, from, bytes);
      break;
    default: return cudaErrorInvalidMemcpyDirection;
  }
  return as_error(result);
}

bool is_kind(cudaMemcpyKind kind) { return kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault; }

cudaError_t copy(void* destination, const void* source, size_t bytes, cudaMemcpyKind kind, const Order& order) {
  return call(Needs::kContext, [&] {
    if (!is_kind(kind)) return cudaErrorInvalidMemcpyDirection;
    return bytes == 0 ? cudaSuccess : copy_bytes(destination, source, bytes, kind, order);
  });
}

struct Rows {
  void* destination;
  size_t destination_pitch;
  const void* source;
  size_t source_pitch;
  size_t width;
  size_t height;
};

cudaError_t copy_rows(const Rows& rows, cudaMemcpyKind kind, const Order& order) {
  return call(Needs::kContext, [&] {
    if (!is_kind(kind)) return cudaErrorInvalidMemcpyDirection;
    if (rows.width == 0 || rows.height == 0) return cudaSuccess;
    if (rows.width > rows.destination_pitch || rows.width > rows.source_pitch) return cudaErrorInvalidPitchValue;
    if (rows.width == rows.destination_pitch && rows.width == rows.source_pitch) {
      return copy_bytes(rows.destination, rows.source, rows.width * rows.height, kind, order);
    }
    for (size_t row = 0; row < rows.height; ++row) {
      const cudaError_t error =
          copy_bytes(static_cast<char*>(rows.destination) + row * rows.destination_pitch,
                     static_cast<const char*>(rows.source) + row * rows.source_pitch, rows.width, kind, order);
      if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
  });
}

// The part of a variable; `address`: where it begins.
cudaError_t part_of(const void* symbol, size_t offset, size_t bytes, void*& address) {
  CUdeviceptr begin = 0;
  size_t size = 0;
  const cudaError_t error = registry().variable_of(symbol, begin, size);
  if (error != cudaSuccess) return error;
  address = reinterpret_cast<void*>(begin + offset);
  return offset > size || bytes > size - offset ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t copy_to_symbol(const void* symbol, const void* source, size_t bytes, size_t offset, cudaMemcpyKind kind,
                           const Order& order) {
  return call(Needs::kContext, [&] {
    void* address = nullptr;
    if (kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost) return cudaErrorInvalidMemcpyDirection;
    const cudaError_t error = part_of(symbol, offset, bytes, address);
    return error != cudaSuccess || bytes == 0 ? error : copy_bytes(address, source, bytes, kind, order);
  });
}

cudaError_t copy_from_symbol(void* destination, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind kind,
                             const Order& order) {
  return call(Needs::kContext, [&] {
    void* address = nullptr;
    if (kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice) return cudaErrorInvalidMemcpyDirection;
    const cudaError_t error = part_of(symbol, offset, bytes, address);
    return error != cudaSuccess || bytes == 0 ? error : copy_bytes(destination, address, bytes, kind, order);
  });
}

// Calls body(destination's context, source's context).
template <typename Body>
cudaError_t between(int destination, int source, const Body& body) {
  return call(Needs::kContext, [&] {
    CUcontext to = nullptr;
    CUcontext from = nullptr;
    cudaError_t error = primary_context(destination, to);
    if (error == cudaSuccess) error = primary_context(source, from);
    return error != cudaSuccess ? error : as_error(body(to, from));
  });
}

}  // namespace

extern "C" {

cudaError_t CUDARTAPI cudaMemcpy(void* destination, const void* source, size_t bytes, cudaMemcpyKind kind) {
  return copy(destination, source, bytes, kind, {});
}

cudaError_t CUDARTAPI cudaMemcpyAsync(void* destination, const void* source, size_t bytes, cudaMemcpyKind kind,
                                      cudaStream_t stream) {
  return copy(destination, source, bytes, kind, {.in_stream = true, .stream = stream});
}

cudaError_t CUDARTAPI cudaMemcpy2D(void* destination, size_t destination_pitch, const void* source, size_t source_pitch,
                                   size_t width, size_t height, cudaMemcpyKind kind) {
  return copy_rows({destination, destination_pitch, source, source_pitch, width, height}, kind, {});
}

cudaError_t CUDARTAPI cudaMemcpy2DAsync(void* destination, size_t destination_pitch, const void* source,
                                        size_t source_pitch, size_t width, size_t height, cudaMemcpyKind kind,
                                        cudaStream_t stream) {
  return copy_rows({destination, destination_pitch, source, source_pitch, width, height}, kind,
                   {.in_stream = true, .stream = stream});
}

cudaError_t CUDARTAPI cudaMemcpyPeer(void* destination, int destination_device, const void* source, int source_device,
                                     size_t bytes) {
  return between(destination_device, source_device, [&](CUcontext to, CUcontext from) {
    return ALLRANKS_DRIVER(cuMemcpyPeer)(address_of(destination), to, address_of(source), from, bytes);
  });
}

cudaError_t CUDARTAPI cudaMemcpyPeerAsync(void* destination, int destination_device, const void* source,
                                          int source_device, size_t bytes, cudaStream_t stream) {
  return between(destination_device, source_device, [&](CUcontext to, CUcontext from) {
    return ALLRANKS_DRIVER(cuMemcpyPeerAsync)(address_of(destination), to, address_of(source), from, bytes, stream);
  });
}

cudaError_t CUDARTAPI cudaMemcpyToSymbol(const void* symbol, const void* source, size_t bytes, size_t offset,
                                         cudaMemcpyKind kind) {
  return copy_to_symbol(symbol, source, bytes, offset, kind, {});
}

cudaError_t CUDARTAPI cudaMemcpyToSymbolAsync(const void* symbol, const void* source, size_t bytes, size_t offset,
                                              cudaMemcpyKind kind, cudaStream_t stream) {
  return copy_to_symbol(symbol, source, bytes, offset, kind, {.in_stream = true, .stream = stream});
}

cudaError_t CUDARTAPI cudaMemcpyFromSymbol(void* destination, const void* symbol, size_t bytes, size_t offset,
                                           cudaMemcpyKind kind) {
  return copy_from_symbol(destination, symbol, bytes, offset, kind, {});
}

cudaError_t CUDARTAPI cudaMemcpyFromSymbolAsync(void* destination, const void* symbol, size_t bytes, size_t offset,
                                                cudaMemcpyKind kind, cudaStream_t stream) {
  return copy_from_symbol(destination, symbol, bytes, offset, kind, {.in_stream = true, .stream = stream});
}

cudaError_t CUDARTAPI cudaGetSymbolAddress(void** pointer, const void* symbol) {
  return call(Needs::kContext, [&] {
    size_t size = 0;
    return pointer == nullptr ? cudaErrorInvalidValue : registry().variable_of(symbol, *address_in(pointer), size);
  });
}

cudaError_t CUDARTAPI cudaGetSymbolSize(size_t* size, const void* symbol) {
  return call(Needs::kContext, [&] {
    CUdeviceptr address = 0;
    return size == nullptr ? cudaErrorInvalidValue : registry().variable_of(symbol, address, *size);
  });
}

}  // extern "C"
