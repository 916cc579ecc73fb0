// The primary context of a process on a device: its streams, events, modules, and its error.
//
// The object lives as long as its process, because threads may have the context current after its last release;
// measured, it is then still current, calls answer CONTEXT_IS_DESTROYED, and the next retain brings it back to life.
//
// Threads: with the turn held.
#ifndef ALLRANKS_SIMCUDA_CONTEXT_HPP_
#define ALLRANKS_SIMCUDA_CONTEXT_HPP_

#include <cuda.h>

#include <bitset>
#include <memory>
#include <vector>

#include "event.hpp"
#include "kernel.hpp"
#include "ledger.hpp"
#include "stream.hpp"

namespace allranks::sim {

struct Context {
  Context(Process& owner, int device_index);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // A fresh state after the last release or a reset.
  void clear();

  Node& node() const;
  CUcontext handle() const;

  Process& process;
  const int device;
  Birth birth;
  bool active = false;
  unsigned retains = 0;
  unsigned flags = 0;
  CUresult sticky_error = CUDA_SUCCESS;  // once set, every call of the context returns it
  std::bitset<128> peers;                // devices whose memory cuCtxEnablePeerAccess opened
  std::unique_ptr<StreamTable> streams;
  std::vector<std::unique_ptr<StreamTable>> former_streams;
  std::unique_ptr<EventTable> events;
  std::unique_ptr<ModuleTable> modules;
};

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_CONTEXT_HPP_
