// The driver's primary contexts, as the runtime uses them: retained once a process when a device is first needed, and
// made current to a thread at its first call that needs one. A context that the program has made current itself is left
// in place, and used.
//
// Threads: any.
#ifndef ALLRANKS_SIMCUDART_CONTEXTS_HPP_
#define ALLRANKS_SIMCUDART_CONTEXTS_HPP_

#include <cuda.h>
#include <driver_types.h>

namespace allranks::cudart {

// cuInit, until it succeeds once.
cudaError_t initialise();

// The device's primary context, retained.
cudaError_t primary_context(int device, CUcontext& context);

// Makes the device the calling thread's.
cudaError_t use_device(int device);

// Sees to it that the calling thread has a current context.
cudaError_t need_context();
// The current context, after need_context() succeeded.
CUcontext current_context();

// The calling thread's device: that of its current context.
cudaError_t current_device(int& device);

// Destroys the primary context of the calling thread's device, for every thread.
cudaError_t reset_device();

}  // namespace allranks::cudart

#endif  // ALLRANKS_SIMCUDART_CONTEXTS_HPP_
