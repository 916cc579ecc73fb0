// What cuda.h has names for since CUDA 13.1 only, by number: so that the header of 13.0 builds the simulated driver
// too.
#ifndef ALLRANKS_SIMCUDA_LATER_NAMES_HPP_
#define ALLRANKS_SIMCUDA_LATER_NAMES_HPP_

namespace allranks::sim::later {

// CUmemPool_attribute
inline constexpr int kPoolAllocationType = 9;
inline constexpr int kPoolExportHandleTypes = 10;
inline constexpr int kPoolLocationId = 11;
inline constexpr int kPoolLocationType = 12;
inline constexpr int kPoolMaximumSize = 13;
inline constexpr int kPoolHardwareDecompression = 14;

// CUstreamBatchMemOpType
inline constexpr int kStreamAtomicReduction = 8;

}  // namespace allranks::sim::later

#endif  // ALLRANKS_SIMCUDA_LATER_NAMES_HPP_
