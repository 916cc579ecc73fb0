// What the driver knows of a calling thread: its virtual process, its task, its label, its current contexts.
//
// Device code and stream work run on fibers, which move between threads; they never ask for this.
#ifndef ALLRANKS_SIMCUDA_THREAD_STATE_HPP_
#define ALLRANKS_SIMCUDA_THREAD_STATE_HPP_

#include <atomic>
#include <cstdint>
#include <vector>

#include "calls.hpp"

namespace allranks::sim {

class Process;
struct Context;
class Task;
struct WaitSpec;

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
  // Outside of a run: what the thread waits for right now, if anything; with the turn held.
  const WaitSpec* waiting = nullptr;
  // Set to true by whoever wants the thread to give up waiting, as Turnstile::wake_outside then has it find out.
  const std::atomic<bool>* abandoned = nullptr;
  bool in_host_function = false;  // of cuLaunchHostFunc or cuStreamAddCallback, which make no calls
  int capture_mode = 0;           // CUstreamCaptureMode, of cuThreadExchangeStreamCaptureMode
};

ThreadState& this_thread();

// The same pointer for equal texts, valid for the life of the library.
const char* interned(const char* text);

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_THREAD_STATE_HPP_
