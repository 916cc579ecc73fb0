#include "config.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>

namespace allranks {

namespace {

constexpr const char* kAllow = "ALLRANKS_ALLOW_HARDWARE_MULTICAST";
constexpr const char* kNcclEnable = "NCCL_NVLS_ENABLE";
constexpr std::array kDisabling = {"TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS",
                                   "MSCCLPP_FORCE_DISABLE_NVLS"};

std::string trimmed_lower(const std::string& value) {
  std::string text;
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isspace(byte) == 0) text += static_cast<char>(std::tolower(byte));
  }
  return text;
}

// Anything set but a plain "no" is in force.
bool disables(const std::string& value) {
  const std::string text = trimmed_lower(value);
  constexpr std::array kNo = {"", "0", "false", "no", "off", "n", "f"};
  return std::find(kNo.begin(), kNo.end(), text) == kNo.end();
}

// NCCL reads a number: 0 switches off, anything above (2 is "automatic") does not.
bool nccl_disables(const std::string& value) {
  const std::string text = trimmed_lower(value);
  if (text.empty()) return false;
  const bool digits = std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  return !digits || std::all_of(text.begin(), text.end(), [](char c) { return c == '0'; });
}

}  // namespace

Environment read_environment() {
  Environment environment;
  const auto read = [&](const char* name) {
    if (const char* const value = std::getenv(name)) environment[name] = value;
  };
  read(kAllow);
  read(kNcclEnable);
  for (const char* const name : kDisabling) read(name);
  return environment;
}

MulticastDecision decide_multicast(bool simulated, const Environment& environment) {
  if (simulated) return {.allowed = true, .reason = "simulated driver"};
  if (const auto found = environment.find(kNcclEnable); found != environment.end() && nccl_disables(found->second)) {
    return {.allowed = false, .reason = std::string(kNcclEnable) + "=" + found->second};
  }
  for (const char* const name : kDisabling) {
    if (const auto found = environment.find(name); found != environment.end() && disables(found->second)) {
      return {.allowed = false, .reason = std::string(name) + "=" + found->second};
    }
  }
  const auto allow = environment.find(kAllow);
  if (allow == environment.end() || allow->second != "1") {
    return {.allowed = false, .reason = std::string(kAllow) + " is not 1"};
  }
  return {.allowed = true, .reason = std::string(kAllow) + "=1"};
}

}  // namespace allranks
