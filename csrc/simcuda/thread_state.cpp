#include "thread_state.hpp"

#include <mutex>
#include <string>
#include <unordered_set>

namespace allranks::sim {

ThreadState& this_thread() {
  thread_local ThreadState state;
  return state;
}

const char* interned(const char* text) {
  static std::mutex mutex;
  static std::unordered_set<std::string> texts;
  const std::lock_guard lock(mutex);
  return texts.emplace(text == nullptr ? "" : text).first->c_str();
}

}  // namespace allranks::sim
