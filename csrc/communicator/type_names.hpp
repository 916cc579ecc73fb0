// Names of data types and operations, for messages; those of the Python API.
#ifndef ALLRANKS_COMMUNICATOR_TYPE_NAMES_HPP_
#define ALLRANKS_COMMUNICATOR_TYPE_NAMES_HPP_

#include <array>
#include <cstdint>

#include "device/types.h"

namespace allranks {

inline const char* data_type_name(std::uint32_t number) {
  static constexpr std::array<const char*, device::kDataTypeCount> kNames = {
      "int8",  "uint8",  "int16",   "uint16",   "int32",   "uint32",
      "int64", "uint64", "float16", "bfloat16", "float32", "float64"};
  return number < kNames.size() ? kNames[number] : "unknown";
}

inline const char* operation_name(std::uint32_t number) {
  static constexpr std::array<const char*, device::kOperationCount> kNames = {"sum", "prod", "min", "max"};
  return number < kNames.size() ? kNames[number] : "unknown";
}

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_TYPE_NAMES_HPP_
