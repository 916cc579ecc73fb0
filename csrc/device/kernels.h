// Every kernel by name, with the type of its one parameter.
#ifndef ALLRANKS_DEVICE_KERNELS_H_
#define ALLRANKS_DEVICE_KERNELS_H_

#define ALLRANKS_KERNELS(X)                      \
  X(all_reduce_scratch, AllReduceArguments)      \
  X(all_reduce_direct, DirectAllReduceArguments) \
  X(all_reduce_multicast, AllReduceArguments)    \
  X(all_gather_scratch, AllGatherArguments)      \
  X(all_gather_direct, DirectAllGatherArguments) \
  X(all_gather_multicast, AllGatherArguments)    \
  X(channel_copy, CopyArguments)                 \
  X(channel_signal, SignalArguments)             \
  X(channel_wait, WaitArguments)                 \
  X(multicast_store, MulticastStoreArguments)    \
  X(multicast_load_reduce, MulticastLoadReduceArguments)

#endif  // ALLRANKS_DEVICE_KERNELS_H_
