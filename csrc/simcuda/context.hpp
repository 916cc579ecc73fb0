// A context of a process on a device: its streams, events, modules, and its error. The primary one of the device, or
// one that cuCtxCreate made.
//
// The object lives as long as its process, because threads may have the context current after its end; measured of
// primary ones, it is then still current, calls answer CONTEXT_IS_DESTROYED, and the next retain brings it back to
// life.
//
// Threads: with the turn held.
#ifndef ALLRANKS_SIMCUDA_CONTEXT_HPP_
#define ALLRANKS_SIMCUDA_CONTEXT_HPP_

#include <cuda.h>

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "event.hpp"
#include "kernel.hpp"
#include "ledger.hpp"
#include "stream.hpp"

namespace allranks::sim {

struct Context {
  // `serial` 0: the primary context of the device.
  Context(Process& owner, int device_index, std::uint64_t serial_number = 0);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // A fresh state after the last release or a reset.
  void clear();

  Node& node() const;
  CUcontext handle() const;
  bool is_primary() const { return serial == 0; }

  Process& process;
  const int device;
  const std::uint64_t serial;
  Birth birth;
  bool active = false;
  unsigned retains = 0;
  unsigned flags = 0;
  CUresult sticky_error = CUDA_SUCCESS;   // once set, every call of the context returns it
  std::set<const Context*> peers;         // whose memory cuCtxEnablePeerAccess opened
  std::map<CUlimit, std::size_t> limits;  // set to other than what they are from the start
  CUfunc_cache cache = CU_FUNC_CACHE_PREFER_NONE;
  std::unique_ptr<StreamTable> streams;
  std::vector<std::unique_ptr<StreamTable>> former_streams;
  std::unique_ptr<EventTable> events;
  std::unique_ptr<ModuleTable> modules;
};

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_CONTEXT_HPP_
