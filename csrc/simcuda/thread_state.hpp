// What the driver knows of a calling thread: its virtual process, its task, its label, its current contexts.
//
// Device code and stream work run on fibers, which move between threads; they never ask for this.
#ifndef ALLRANKS_SIMCUDA_THREAD_STATE_HPP_
#define ALLRANKS_SIMCUDA_THREAD_STATE_HPP_

#include <cstdint>
#include <vector>

#include "calls.hpp"

namespace allranks::sim {

class Process;
struct Context;
class Task;

// What the caller is doing, for the ledger, the call log and stories. `operation` lives for ever (interned).
struct Label {
  std::uint32_t step = 0;
  const char* operation = "";
  std::uint16_t owner = 0;  // 0: the user's own call; 1: the communicator's
};

struct ThreadState {
  Process* process = nullptr;
  Task* task = nullptr;
  Label label;
  Call call = Call::kNone;         // the driver call that it is in, or was in last
  std::vector<Context*> contexts;  // the current one is the last
  bool in_host_function = false;   // of cuLaunchHostFunc or cuStreamAddCallback, which make no calls
  int capture_mode = 0;            // CUstreamCaptureMode, of cuThreadExchangeStreamCaptureMode
};

ThreadState& this_thread();

// The same pointer for equal texts, valid for the life of the library.
const char* interned(const char* text);

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_THREAD_STATE_HPP_
