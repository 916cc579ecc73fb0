// The thread of a client on which functions of the program are called that its streams get to.
#ifndef ALLRANKS_SIMCUDA_CLIENT_HOST_THREAD_HPP_
#define ALLRANKS_SIMCUDA_CLIENT_HOST_THREAD_HPP_

namespace allranks::sim::client {

// Starts the thread, once a process; false when there can be none. To be called before a stream can get to a function.
bool begin_host_thread();
// Whether the calling thread is that one, whose functions make no driver calls.
bool is_host_thread();

}  // namespace allranks::sim::client

#endif  // ALLRANKS_SIMCUDA_CLIENT_HOST_THREAD_HPP_
