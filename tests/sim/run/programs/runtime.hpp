// What programs of the runtime library have in common, each written as somebody would who knows nothing of the
// simulator: its first argument says which part of the library it uses. It ends with 0, or at the first call that does
// not answer what it should.
#pragma once

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <initializer_list>

#define EXPECT(wanted, call)                                                                                          \
  do {                                                                                                                \
    const cudaError_t got = (call);                                                                                   \
    if (got != (wanted)) {                                                                                            \
      fprintf(stderr, "line %d: %s: %s, not %s\n", __LINE__, #call, cudaGetErrorName(got), cudaGetErrorName(wanted)); \
      exit(3);                                                                                                        \
    }                                                                                                                 \
  } while (0)
#define OK(call) EXPECT(cudaSuccess, call)
#define HOLDS(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition); \
      exit(3);                                                        \
    }                                                                 \
  } while (0)

static void* device_memory(size_t bytes) {
  void* pointer = nullptr;
  OK(cudaMalloc(&pointer, bytes));
  HOLDS(pointer != nullptr);
  return pointer;
}

struct Part {
  const char* name;
  void (*run)();
};

// Runs the part that the program was asked for; gives the exit code.
static int run_part(std::initializer_list<Part> parts, int count, char** arguments) {
  for (const Part& part : parts) {
    if (count == 2 && strcmp(arguments[1], part.name) == 0) {
      part.run();
      puts("as it should be");
      return 0;
    }
  }
  return 2;
}
