// The driver API by name, as whatever libcuda.so.1 the process finds offers it.
//
// ALLRANKS_DRIVER(cuMemAlloc)(&address, bytes) calls the symbol that cuda.h means by that name. A driver without the
// symbol is answered for: CUDA_ERROR_NOT_SUPPORTED.
#ifndef ALLRANKS_SIMCUDART_DRIVER_HPP_
#define ALLRANKS_SIMCUDART_DRIVER_HPP_

#include <cuda.h>

namespace allranks::cudart {

// False: this process finds no libcuda.so.1.
bool has_driver();

// Null: the driver has no such symbol, or there is no driver.
void* driver_symbol(const char* name);

// A function that this library declares and does not have: said to a driver that wants to know, which names it in its
// report. Answers CUDA_ERROR_NOT_SUPPORTED, or why the driver cannot be asked anything.
CUresult tell_unsupported(const char* name);

template <typename Function>
class DriverFunction;

template <typename... Arguments>
class DriverFunction<CUresult (*)(Arguments...)> {
 public:
  explicit DriverFunction(const char* name)
      : name_(name), function_(reinterpret_cast<CUresult (*)(Arguments...)>(driver_symbol(name))) {}

  CUresult operator()(Arguments... arguments) const {
    return function_ == nullptr ? tell_unsupported(name_) : function_(arguments...);
  }

 private:
  const char* name_;
  CUresult (*function_)(Arguments...);
};

}  // namespace allranks::cudart

#define ALLRANKS_NAME_OF(symbol) #symbol
#define ALLRANKS_SYMBOL_OF(function) ALLRANKS_NAME_OF(function)
// Looked up once in each place that calls it. cuda.h renames functions to their newest version before this sees them.
#define ALLRANKS_DRIVER(function)                                                             \
  [] {                                                                                        \
    static const ::allranks::cudart::DriverFunction<decltype(&(function))> allranks_function( \
        ALLRANKS_SYMBOL_OF(function));                                                        \
    return allranks_function;                                                                 \
  }()

#endif  // ALLRANKS_SIMCUDART_DRIVER_HPP_
