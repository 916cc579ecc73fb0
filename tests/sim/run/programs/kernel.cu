// A program as nvcc compiles it. Its kernel would double what it is given; here it is recorded.
#include <cstdio>

template <typename T>
__global__ void scale(T* data, T factor) {
  data[threadIdx.x] *= factor;
}

int main() {
  float* data = nullptr;
  if (cudaMalloc(&data, 1024) != cudaSuccess) return 3;
  scale<float><<<2, 128>>>(data, 2.0f);
  if (cudaGetLastError() != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess) return 4;
  if (cudaFree(data) != cudaSuccess) return 5;
  std::puts("launched");
  return 0;
}
