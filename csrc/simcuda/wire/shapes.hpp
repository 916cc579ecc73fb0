// How each argument of a driver call travels from a client to the broker and back.
//
// Most arguments say it by their type: a value or a handle travels as it is; `T*` is one T that travels both ways, as
// much of it as the call leaves alone comes back unchanged; `const T*` is one T on its way there. What pointers to
// void, texts and arrays mean is said once for each such entry point, at the end of this file. An entry point with an
// argument that nothing is known about is not carried over: the client answers CUDA_ERROR_NOT_SUPPORTED and says so.
//
// Not for structs that hold pointers which the driver follows: those need a shape of their own.
#ifndef ALLRANKS_SIMCUDA_WIRE_SHAPES_HPP_
#define ALLRANKS_SIMCUDA_WIRE_SHAPES_HPP_

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <vector>

#include "later_names.hpp"

namespace allranks::sim::wire {

struct Auto {};      // by its type
struct Value {};     // a pointer that is a number to the driver: an address, a pointer into the caller's memory
struct Presence {};  // a pointer of which only matters whether it is null
struct Text {};      // const char*, up to its zero
struct One {};       // one element
template <std::size_t Count>
struct Array {};  // as many elements as argument number Count says, on their way there
template <std::size_t Count>
struct Room {};  // char*, which the call fills; argument number Count says how many there is room for
template <std::size_t Size>
struct Head {};  // const void*, of which the call looks at the first Size bytes
template <std::size_t Choice, auto SizeOf>
struct Measured {};  // void*, behind which SizeOf(argument number Choice) bytes travel both ways
template <std::size_t Count, std::size_t Choices, auto SizeOf>
struct MeasuredEach {};  // void**, as many as argument number Count says; each as Measured, by its own choice
template <std::size_t Type>
struct DescriptorOut {};  // void* to what an export gives; argument number Type says which type of handle
template <std::size_t Type>
struct DescriptorIn {};  // what is imported, passed as if it were a pointer
template <std::size_t Size>
struct OwnMemory {};  // void* into the caller's memory; null on its way when not all of argument number Size is there
template <std::size_t Size>
struct OwnPages {};  // void**: argument number Size bytes, which the caller maps and keeps if the call succeeds
struct Function {};  // of the caller, which calls it when a stream gets there
struct Unknown {};

inline constexpr std::uint64_t kLongestArray = 4096;

// Bytes behind cuPointerGetAttribute's data; 0 for an attribute that is not known.
constexpr std::size_t pointer_attribute_bytes(CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: return 8;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: return 4;
    default: return 0;
  }
}

// The same behind data of cuMemPoolGetAttribute and cuMemPoolSetAttribute.
constexpr std::size_t pool_attribute_bytes(CUmemPool_attribute attribute) {
  const int number = static_cast<int>(attribute);
  if (number < CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES || number > later::kPoolHardwareDecompression) {
    return 0;
  }
  const bool size = (number >= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && number <= CU_MEMPOOL_ATTR_USED_MEM_HIGH) ||
                    number == later::kPoolMaximumSize;
  return size ? 8 : 4;
}
inline constexpr std::size_t kLargestMeasured = 64;

namespace detail {

template <typename T>
concept Complete = requires { sizeof(T); };

template <typename T>
consteval auto shape_by_type() {
  if constexpr (!std::is_pointer_v<T>) {
    return Value{};
  } else {
    using Element = std::remove_pointer_t<T>;
    using Plain = std::remove_cv_t<Element>;
    if constexpr (std::is_void_v<Plain> || std::is_function_v<Plain> || std::is_same_v<Plain, char>) {
      return Unknown{};
    } else if constexpr (std::is_pointer_v<Plain>) {
      // A pointer to a handle is one handle; one to any other pointer may be anything.
      if constexpr (Complete<std::remove_pointer_t<Plain>> || std::is_void_v<std::remove_pointer_t<Plain>> ||
                    std::is_function_v<std::remove_pointer_t<Plain>>) {
        return Unknown{};
      } else {
        return One{};
      }
    } else if constexpr (Complete<Plain>) {
      return One{};
    } else {
      return Value{};  // a handle
    }
  }
}

}  // namespace detail

template <typename T, typename Declared>
using shape_t = std::conditional_t<std::is_same_v<Declared, Auto>, decltype(detail::shape_by_type<T>()), Declared>;

// The shapes of an entry point's arguments, where their types alone do not say them.
template <auto Function>
struct Declared;

template <typename... Shapes>
struct Are {
  template <std::size_t Index>
  using at = std::tuple_element_t<Index, std::tuple<Shapes...>>;
};

template <auto Function>
concept HasDeclared = requires { sizeof(Declared<Function>); };

template <auto Function, std::size_t Index, typename T>
consteval auto shape_of() {
  if constexpr (HasDeclared<Function>) {
    return shape_t<T, typename Declared<Function>::template at<Index>>{};
  } else {
    return shape_t<T, Auto>{};
  }
}

// Device memory and the caller's are numbers alike: the driver reaches the caller's by HostMemory.
template <>
struct Declared<&cuMemcpyHtoD> : Are<Auto, Value, Auto> {};
template <>
struct Declared<&cuMemcpyDtoH> : Are<Value, Auto, Auto> {};
template <>
struct Declared<&cuMemcpyHtoDAsync> : Are<Auto, Value, Auto, Auto> {};
template <>
struct Declared<&cuMemcpyDtoHAsync> : Are<Value, Auto, Auto, Auto> {};
template <>
struct Declared<&cuMemRetainAllocationHandle> : Are<Auto, Value> {};

template <>
struct Declared<&cuDeviceGetName> : Are<Room<1>, Auto, Auto> {};
template <>
struct Declared<&cuDeviceGetPCIBusId> : Are<Room<1>, Auto, Auto> {};
template <>
struct Declared<&cuDeviceGetByPCIBusId> : Are<Auto, Text> {};
template <>
struct Declared<&cuMemSetAccess> : Are<Auto, Auto, Array<3>, Auto> {};
template <>
struct Declared<&cuMemExportToShareableHandle> : Are<DescriptorOut<2>, Auto, Auto, Auto> {};
template <>
struct Declared<&cuMemImportFromShareableHandle> : Are<Auto, DescriptorIn<2>, Auto> {};
template <>
struct Declared<&cuPointerGetAttribute> : Are<Measured<1, &pointer_attribute_bytes>, Auto, Auto> {};
template <>
struct Declared<&cuPointerGetAttributes> : Are<Auto, Array<0>, MeasuredEach<0, 1, &pointer_attribute_bytes>, Auto> {};
template <>
struct Declared<&cuPointerSetAttribute> : Are<Head<sizeof(int)>, Auto, Auto> {};
template <>
struct Declared<&cuMemHostAlloc> : Are<OwnPages<1>, Auto, Auto> {};
template <>
struct Declared<&cuMemAllocHost> : Are<OwnPages<1>, Auto> {};
template <>
struct Declared<&cuMemHostRegister> : Are<OwnMemory<1>, Auto, Auto> {};
template <>
struct Declared<&cuMemFreeHost> : Are<Value> {};
template <>
struct Declared<&cuMemHostUnregister> : Are<Value> {};
template <>
struct Declared<&cuMemHostGetDevicePointer> : Are<Auto, Value, Auto> {};
template <>
struct Declared<&cuMemHostGetFlags> : Are<Auto, Value> {};
template <>
struct Declared<&cuMemPoolGetAttribute> : Are<Auto, Auto, Measured<1, &pool_attribute_bytes>> {};
template <>
struct Declared<&cuMemPoolSetAttribute> : Are<Auto, Auto, Measured<1, &pool_attribute_bytes>> {};
template <>
struct Declared<&cuMemPoolSetAccess> : Are<Auto, Array<2>, Auto> {};
template <>
struct Declared<&cuMemPoolExportToShareableHandle> : Are<DescriptorOut<2>, Auto, Auto, Auto> {};
template <>
struct Declared<&cuMemPoolImportFromShareableHandle> : Are<Auto, DescriptorIn<2>, Auto, Auto> {};
// It exports nothing yet.
template <>
struct Declared<&cuMemGetHandleForAddressRange> : Are<Presence, Auto, Auto, Auto, Auto> {};
template <>
struct Declared<&cuStreamBatchMemOp> : Are<Auto, Auto, Array<1>, Auto> {};
template <>
struct Declared<&cuLaunchHostFunc> : Are<Auto, Function, Value> {};
template <>
struct Declared<&cuStreamAddCallback> : Are<Auto, Function, Value, Auto> {};
// There is never a capture whose graph could be told.
template <>
struct Declared<&cuStreamGetCaptureInfo> : Are<Auto, Auto, Auto, Presence, Presence, Presence, Presence> {};
// A client's module is machine code, or for this simulator's own kernels useless: they are functions of the client.
template <>
struct Declared<&cuModuleLoadData> : Are<Auto, Head<sizeof(std::uint64_t)>> {};
template <>
struct Declared<&cuModuleGetFunction> : Are<Auto, Auto, Text> {};
// Parameters of kernels that are not executed are not looked at.
template <>
struct Declared<&cuLaunchKernel> : Are<Auto, Auto, Auto, Auto, Auto, Auto, Auto, Auto, Auto, Presence, Presence> {};

}  // namespace allranks::sim::wire

#endif  // ALLRANKS_SIMCUDA_WIRE_SHAPES_HPP_
