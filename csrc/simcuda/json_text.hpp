// Writing JSON texts: just enough for reports that C hands to Python. Not a parser, not a document model.
#ifndef ALLRANKS_SIMCUDA_JSON_TEXT_HPP_
#define ALLRANKS_SIMCUDA_JSON_TEXT_HPP_

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

namespace allranks::sim {

inline std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += escape;
    } else {
      out += c;
    }
  }
  out += '"';
  return out;
}

// Copies as much as fits, zero-terminated when there is room; returns the whole length.
inline std::size_t copy_text(const std::string& text, char* destination, std::size_t capacity) {
  if (destination != nullptr && capacity > 0) {
    const std::size_t count = text.size() < capacity ? text.size() : capacity;
    std::memcpy(destination, text.data(), count);
    if (count < capacity) destination[count] = '\0';
  }
  return text.size();
}

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_JSON_TEXT_HPP_
