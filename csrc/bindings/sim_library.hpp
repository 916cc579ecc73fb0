// The simulated driver's extension functions, found in a library opened at run time.
//
// The module links against no driver; `sim_library()` holds the table once Python has said where the library is.
#ifndef ALLRANKS_BINDINGS_SIM_LIBRARY_HPP_
#define ALLRANKS_BINDINGS_SIM_LIBRARY_HPP_

#include <string>

#include "../simcuda/include/simcu.h"

namespace allranks::bindings {

// Every function of simcu.h that Python uses.
// clang-format off: it takes the list for nested declarations
#define ALLRANKS_SIMCU_FUNCTIONS(X) \
  X(Version) X(NodeCreate) X(NodeDestroy) X(LastError) X(ProcessCreate) X(ProcessDestroy) \
  X(ProcessPlace) X(ProcessWish) X(Bind) X(RunBegin) X(RunBeginAsking) X(TaskEnter) X(TaskLeave) \
  X(RunWait) X(BlockingHooks) X(Yield) X(Now) X(Wait) X(Notify) X(RunStalled) X(RunReport) X(RunDeviations) \
  X(RunDecisions) X(RunVerdictNanoseconds) X(Label) X(Calls) X(CallName) X(Incidents) X(Ledger) \
  X(Resolve) X(MemoryUsed) X(MulticastUsed) X(Used) X(WritesRecord) X(Writes) X(WritesClear) X(Peek) \
  X(Poke) X(HostView) X(Fault) X(FaultsClear) X(CheckInvariants)
// clang-format on

struct SimLibrary {
#define ALLRANKS_SIMCU_MEMBER(name) decltype(&::simcu##name) name = nullptr;
  ALLRANKS_SIMCU_FUNCTIONS(ALLRANKS_SIMCU_MEMBER)
#undef ALLRANKS_SIMCU_MEMBER
};

// Opens the library (once; a second path must be the same). Throws std::runtime_error with the loader's words.
void load_sim_library(const std::string& path);
// The table. Throws std::runtime_error before load_sim_library.
const SimLibrary& sim_library();

}  // namespace allranks::bindings

#endif  // ALLRANKS_BINDINGS_SIM_LIBRARY_HPP_
