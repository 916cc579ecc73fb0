// Waiting for words of memory and writing them, in stream order. What cuda.h does not say is an [assumption].
#include "cuda_api.hpp"

#include "../copy.hpp"
#include "../generated.hpp"
#include "../later_names.hpp"

using namespace allranks::sim;

namespace {

struct Word {
  CUdeviceptr address;
  std::uint64_t value;
  unsigned bytes;  // 4 or 8
};

// [cuda.h] Greater or equal is cyclic.
bool satisfied(unsigned condition, std::uint64_t seen, const Word& word) {
  switch (condition) {
    case CU_STREAM_WAIT_VALUE_EQ: return seen == word.value;
    case CU_STREAM_WAIT_VALUE_AND: return (seen & word.value) != 0;
    case CU_STREAM_WAIT_VALUE_NOR: {
      const std::uint64_t either = ~(seen | word.value);
      return (word.bytes == 4 ? either & UINT32_MAX : either) != 0;
    }
    default:
      return word.bytes == 4 ? static_cast<std::int32_t>(static_cast<std::uint32_t>(seen - word.value)) >= 0
                             : static_cast<std::int64_t>(seen - word.value) >= 0;
  }
}

Access access_of(const Stream& stream) {
  const Context& context = stream.context();
  return {.process = context.process, .device = context.device, .label = this_thread().label};
}

// The memory of a word that the stream's device reaches and that is naturally aligned; no allocation: there is none.
Stretch stretch_of(const Access& access, const Word& word) {
  if (word.address % word.bytes != 0) return {};
  const Translation there = access.process.translate(word.address, access.device, false);
  return there.reach == Reach::kMemory && there.size >= word.bytes ? there.stretch : Stretch{};
}

// [cuda.h] Flushing remote writes is for platforms whose attribute says so, and this one's does not.
CUresult check_wait(const Stream& stream, const Word& word, unsigned flags) {
  if ((flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (flags > CU_STREAM_WAIT_VALUE_NOR) return CUDA_ERROR_INVALID_VALUE;
  const Stretch there = stretch_of(access_of(stream), word);
  if (!there.allocation) return CUDA_ERROR_INVALID_VALUE;
  const HostMemory* const elsewhere = there.allocation->elsewhere();
  if (elsewhere == nullptr || elsewhere->readable_later()) return CUDA_SUCCESS;
  return static_cast<CUresult>(not_supported("waiting for a word of host memory that the kernel keeps private"));
}

void enqueue_wait(Stream& stream, const char* call, const Word& word, unsigned flags) {
  stream.enqueue(call, [&stream, call, word, flags, access = access_of(stream)] {
    const Context& context = stream.context();
    const Stretch there = stretch_of(access, word);
    if (!there.allocation) return CUDA_ERROR_ILLEGAL_ADDRESS;
    bool lost = false;  // the program has unmapped the memory
    const WaitSpec spec{.ready =
                            [&] {
                              std::uint64_t seen = 0;
                              lost = !read_word(there, word.bytes, &seen);
                              return lost || satisfied(flags, seen, word) || context.sticky_error != CUDA_SUCCESS;
                            },
                        .key = there.host,
                        .call = call,
                        .object = stream.name() + ", a word of memory",
                        .polled = there.allocation->pages != nullptr};
    if (context.node().turnstile.wait(spec) != WaitResult::kReady) return CUDA_ERROR_LAUNCH_TIMEOUT;
    return lost ? CUDA_ERROR_ILLEGAL_ADDRESS : context.sticky_error;
  });
}

CUresult check_write(const Stream& stream, const Word& word, unsigned flags) {
  // Measured of doing without the memory barrier, too.
  if (flags != CU_STREAM_WRITE_VALUE_DEFAULT || word.address % word.bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  const AccessFault fault = check_range(access_of(stream), word.address, word.bytes, true);
  return fault == AccessFault::kNone ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void enqueue_write(Stream& stream, const char* call, const Word& word) {
  stream.enqueue(call, [word, access = access_of(stream)] {
    const AccessFault fault = write_bytes(access, word.address, &word.value, word.bytes);  // little-endian
    return fault == AccessFault::kNone ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
  });
}

CUresult wait(Call call, CUstream handle, const Word& word, unsigned flags) {
  return entry_on_stream(call, handle, [&](const Process&, Stream& stream) {
    const CUresult result = check_wait(stream, word, flags);
    if (result == CUDA_SUCCESS) enqueue_wait(stream, name_of(call), word, flags);
    return result;
  });
}

CUresult write(Call call, CUstream handle, const Word& word, unsigned flags) {
  return entry_on_stream(call, handle, [&](const Process&, Stream& stream) {
    const CUresult result = check_write(stream, word, flags);
    if (result == CUDA_SUCCESS) enqueue_write(stream, name_of(call), word);
    return result;
  });
}

Word word_of(const CUstreamBatchMemOpParams& operation) {
  const bool wide =
      operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 || operation.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
  // Waits and writes have the same layout.
  return {.address = operation.waitValue.address,
          .value = wide ? operation.waitValue.value64 : operation.waitValue.value,
          .bytes = wide ? 8u : 4u};
}

CUresult check_operation(const Stream& stream, const CUstreamBatchMemOpParams& operation) {
  switch (static_cast<int>(operation.operation)) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64: return check_wait(stream, word_of(operation), operation.waitValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64: return check_write(stream, word_of(operation), operation.writeValue.flags);
    case CU_STREAM_MEM_OP_BARRIER:
      return operation.memoryBarrier.flags <= CU_STREAM_MEMORY_BARRIER_TYPE_GPU ? CUDA_SUCCESS
                                                                                : CUDA_ERROR_INVALID_VALUE;
    case later::kStreamAtomicReduction:
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES: return CUDA_ERROR_NOT_SUPPORTED;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
  return wait(Call::kStreamWaitValue32, stream, {.address = address, .value = value, .bytes = 4}, flags);
}

CUresult CUDAAPI cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
  return wait(Call::kStreamWaitValue64, stream, {.address = address, .value = value, .bytes = 8}, flags);
}

CUresult CUDAAPI cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
  return write(Call::kStreamWriteValue32, stream, {.address = address, .value = value, .bytes = 4}, flags);
}

CUresult CUDAAPI cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
  return write(Call::kStreamWriteValue64, stream, {.address = address, .value = value, .bytes = 8}, flags);
}

// [cuda.h] At most 256 operations, in their order. [assumption] One that cannot be done refuses them all.
CUresult CUDAAPI cuStreamBatchMemOp(CUstream handle, unsigned int count, CUstreamBatchMemOpParams* operations,
                                    unsigned int flags) {
  return entry_on_stream(Call::kStreamBatchMemOp, handle, [&](const Process&, Stream& stream) {
    if (flags != 0 || count > 256 || (count != 0 && operations == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; ++i) {
      if (const CUresult result = check_operation(stream, operations[i]); result != CUDA_SUCCESS) return result;
    }
    for (unsigned i = 0; i < count; ++i) {
      switch (operations[i].operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
          enqueue_wait(stream, "cuStreamBatchMemOp", word_of(operations[i]), operations[i].waitValue.flags);
          break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
          enqueue_write(stream, "cuStreamBatchMemOp", word_of(operations[i]));
          break;
        default: break;  // a barrier: memory is sequentially consistent here
      }
    }
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
