// What the generated code calls.
#ifndef ALLRANKS_SIMCUDART_GENERATED_HPP_
#define ALLRANKS_SIMCUDART_GENERATED_HPP_

namespace allranks::cudart {

// A function that is declared and not there: said to the driver, remembered, and cudaErrorNotSupported.
int not_supported(const char* name);

}  // namespace allranks::cudart

#endif  // ALLRANKS_SIMCUDART_GENERATED_HPP_
