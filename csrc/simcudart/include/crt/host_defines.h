// The words that CUDA's headers are written in, for a host compiler. The nvidia-cuda-runtime package has its headers
// without this one; where a toolkit has its own, that is found first.
#ifndef ALLRANKS_SIMCUDART_CRT_HOST_DEFINES_H_
#define ALLRANKS_SIMCUDART_CRT_HOST_DEFINES_H_

#define CUDARTAPI
#define CUDARTAPI_CDECL

#define __host__
#define __device__
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__

#define __align__(bytes) __attribute__((aligned(bytes)))
#define __builtin_align__(bytes) __align__(bytes)
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __specialization_static static

#endif  // ALLRANKS_SIMCUDART_CRT_HOST_DEFINES_H_
