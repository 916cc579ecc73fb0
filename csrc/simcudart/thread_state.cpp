#include "thread_state.hpp"

namespace allranks::cudart {

ThreadState& this_thread() {
  static thread_local ThreadState state;
  return state;
}

}  // namespace allranks::cudart
