// Memory in the order of streams, and the pools that it comes from. Structs and numbers are the driver's.
#include "../call.hpp"

#include <cstddef>

using namespace allranks::cudart;

static_assert(sizeof(cudaMemPoolProps) == sizeof(CUmemPoolProps));
static_assert(offsetof(cudaMemPoolProps, maxSize) == offsetof(CUmemPoolProps, maxSize));
static_assert(offsetof(cudaMemPoolProps, usage) == offsetof(CUmemPoolProps, usage));
static_assert(sizeof(cudaMemAccessDesc) == sizeof(CUmemAccessDesc));
static_assert(sizeof(cudaMemLocation) == sizeof(CUmemLocation));
static_assert(sizeof(cudaMemPoolPtrExportData) == sizeof(CUmemPoolPtrExportData));

namespace {

CUmemPool_attribute driver_attribute(cudaMemPoolAttr attribute) { return static_cast<CUmemPool_attribute>(attribute); }

CUmemAllocationHandleType driver_type(cudaMemAllocationHandleType type) {
  return static_cast<CUmemAllocationHandleType>(type);
}

}  // namespace

extern "C" {

cudaError_t CUDARTAPI cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
  return allocate(pointer, bytes, [&] { return ALLRANKS_DRIVER(cuMemAllocAsync)(address_in(pointer), bytes, stream); });
}

cudaError_t CUDARTAPI cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  return allocate(pointer, bytes,
                  [&] { return ALLRANKS_DRIVER(cuMemAllocFromPoolAsync)(address_in(pointer), bytes, pool, stream); });
}

cudaError_t CUDARTAPI cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuMemFreeAsync)(address_of(pointer), stream); });
}

cudaError_t CUDARTAPI cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  return call(Needs::kContext, [&] {
    return ALLRANKS_DRIVER(cuMemPoolCreate)(pool, reinterpret_cast<const CUmemPoolProps*>(properties));
  });
}

cudaError_t CUDARTAPI cudaMemPoolDestroy(cudaMemPool_t pool) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuMemPoolDestroy)(pool); });
}

cudaError_t CUDARTAPI cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuMemPoolTrimTo)(pool, bytes); });
}

cudaError_t CUDARTAPI cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return call(Needs::kContext,
              [&] { return ALLRANKS_DRIVER(cuMemPoolSetAttribute)(pool, driver_attribute(attribute), value); });
}

cudaError_t CUDARTAPI cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return call(Needs::kContext,
              [&] { return ALLRANKS_DRIVER(cuMemPoolGetAttribute)(pool, driver_attribute(attribute), value); });
}

cudaError_t CUDARTAPI cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* rights, size_t count) {
  return call(Needs::kContext, [&] {
    return ALLRANKS_DRIVER(cuMemPoolSetAccess)(pool, reinterpret_cast<const CUmemAccessDesc*>(rights), count);
  });
}

cudaError_t CUDARTAPI cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t pool, cudaMemLocation* location) {
  return call(Needs::kContext, [&] {
    return ALLRANKS_DRIVER(cuMemPoolGetAccess)(reinterpret_cast<CUmemAccess_flags*>(flags), pool,
                                               reinterpret_cast<CUmemLocation*>(location));
  });
}

cudaError_t CUDARTAPI cudaMemPoolExportToShareableHandle(void* handle, cudaMemPool_t pool,
                                                         cudaMemAllocationHandleType type, unsigned int flags) {
  return call(Needs::kContext, [&] {
    return ALLRANKS_DRIVER(cuMemPoolExportToShareableHandle)(handle, pool, driver_type(type), flags);
  });
}

cudaError_t CUDARTAPI cudaMemPoolImportFromShareableHandle(cudaMemPool_t* pool, void* handle,
                                                           cudaMemAllocationHandleType type, unsigned int flags) {
  return call(Needs::kContext, [&] {
    return ALLRANKS_DRIVER(cuMemPoolImportFromShareableHandle)(pool, handle, driver_type(type), flags);
  });
}

cudaError_t CUDARTAPI cudaMemPoolExportPointer(cudaMemPoolPtrExportData* data, void* pointer) {
  return call(Needs::kContext, [&] {
    return ALLRANKS_DRIVER(cuMemPoolExportPointer)(reinterpret_cast<CUmemPoolPtrExportData*>(data),
                                                   address_of(pointer));
  });
}

cudaError_t CUDARTAPI cudaMemPoolImportPointer(void** pointer, cudaMemPool_t pool, cudaMemPoolPtrExportData* data) {
  return call(Needs::kContext, [&] {
    return ALLRANKS_DRIVER(cuMemPoolImportPointer)(address_in(pointer), pool,
                                                   reinterpret_cast<CUmemPoolPtrExportData*>(data));
  });
}

cudaError_t CUDARTAPI cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuDeviceGetDefaultMemPool)(pool, device); });
}

cudaError_t CUDARTAPI cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuDeviceGetMemPool)(pool, device); });
}

cudaError_t CUDARTAPI cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuDeviceSetMemPool)(device, pool); });
}

cudaError_t CUDARTAPI cudaMemGetDefaultMemPool(cudaMemPool_t* pool, cudaMemLocation* location,
                                               cudaMemAllocationType type) {
  return call(Needs::kContext, [&] {
    return ALLRANKS_DRIVER(cuMemGetDefaultMemPool)(pool, reinterpret_cast<CUmemLocation*>(location),
                                                   static_cast<CUmemAllocationType>(type));
  });
}

cudaError_t CUDARTAPI cudaMemGetMemPool(cudaMemPool_t* pool, cudaMemLocation* location, cudaMemAllocationType type) {
  return call(Needs::kContext, [&] {
    return ALLRANKS_DRIVER(cuMemGetMemPool)(pool, reinterpret_cast<CUmemLocation*>(location),
                                            static_cast<CUmemAllocationType>(type));
  });
}

cudaError_t CUDARTAPI cudaMemSetMemPool(cudaMemLocation* location, cudaMemAllocationType type, cudaMemPool_t pool) {
  return call(Needs::kContext, [&] {
    return ALLRANKS_DRIVER(cuMemSetMemPool)(reinterpret_cast<CUmemLocation*>(location),
                                            static_cast<CUmemAllocationType>(type), pool);
  });
}

}  // extern "C"
