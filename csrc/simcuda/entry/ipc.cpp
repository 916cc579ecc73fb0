// CUDA IPC: handles of memory and events, between the processes of a node. What cuda.h does not say is an [assumption].
#include "cuda_api.hpp"

#include <algorithm>
#include <cstring>

using namespace allranks::sim;

namespace {

// What a handle holds; the rest of it is zero.
struct Exported {
  std::uint64_t magic;
  std::uint64_t serial;  // of the allocation or event: unique in the node, and never used again
  std::uint64_t place;   // of memory: the device of the context that it was asked for in
};
constexpr std::uint64_t kMemory = 0x6d65'6d2d'6970'6331;
constexpr std::uint64_t kEvent = 0x6576'742d'6970'6331;

template <typename Handle>
void write(Handle* handle, const Exported& exported) {
  static_assert(sizeof(Exported) <= sizeof(Handle));
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &exported, sizeof exported);
}

// False: the handle is none of that sort.
template <typename Handle>
bool read(const Handle& handle, std::uint64_t magic, std::uint64_t* serial) {
  Exported exported{};
  std::memcpy(&exported, &handle, sizeof exported);
  *serial = exported.serial;
  return exported.magic == magic;
}

struct OwnedMemory {
  const Process* owner = nullptr;
  std::shared_ptr<Allocation> allocation;
};

OwnedMemory find_memory(const Node& node, std::uint64_t serial) {
  for (const auto& process : node.processes()) {
    for (const auto& [address, mapping] : process->space.mappings) {
      if (mapping.origin == Origin::kPlain && mapping.allocation->id == serial)
        return {process.get(), mapping.allocation};
    }
  }
  return {};
}

// Where the process has the allocation open; end() when nowhere.
auto find_opened(Process& process, const Allocation& allocation) {
  auto& mappings = process.space.mappings;
  return std::find_if(mappings.begin(), mappings.end(), [&](const auto& at) {
    return at.second.origin == Origin::kImported && !at.second.pool && at.second.allocation.get() == &allocation;
  });
}

auto opened_at(Process& process, CUdeviceptr address) {
  auto& mappings = process.space.mappings;
  const auto found = mappings.find(address);
  const bool opened = found != mappings.end() && found->second.origin == Origin::kImported && !found->second.pool;
  return opened ? found : mappings.end();
}

struct OwnedEvent {
  const Process* owner = nullptr;
  std::shared_ptr<Event> event;
};

OwnedEvent find_exported_event(const Node& node, std::uint64_t serial) {
  for (const auto& process : node.processes()) {
    for (const Context* context : process->contexts()) {
      for (const auto& [handle, held] : context->events->all()) {
        if (!held.opened && held.event->interprocess && held.event->serial == serial)
          return {process.get(), held.event};
      }
    }
  }
  return {};
}

}  // namespace

extern "C" {

// Measured: INVALID_VALUE for VMM and stream-ordered memory, and for null before the context is looked at; another
// handle where another device's context is current. [use] An inner pointer gives the handle of the whole
// allocation (PyTorch and MSCCL++ send the offset along).
CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  return entry(Call::kIpcGetMemHandle, Needs::kInit, [&](Process& process) {
    if (handle == nullptr || address == 0) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = check_context(process); result != CUDA_SUCCESS) return result;
    const auto mapping = process.space.mapping_at(address);
    if (mapping == process.space.mappings.end() || mapping->second.origin != Origin::kPlain) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    write(handle, {.magic = kMemory,
                   .serial = mapping->second.allocation->id,
                   .place = static_cast<std::uint64_t>(process.current_context()->device)});
    return CUDA_SUCCESS;
  });
}

// Measured: INVALID_CONTEXT in the process that exported it. [cuda.h] One context a device may have it open, and a
// second open gives the same address and counts. [assumption] A handle of nothing, or of memory that was freed, is
// INVALID_VALUE.
CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned int flags) {
  return entry_in_context(Call::kIpcOpenMemHandle, [&](Process& process, const Context& context) {
    std::uint64_t serial = 0;
    if (address == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || !read(handle, kMemory, &serial)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const auto [owner, allocation] = find_memory(process.node(), serial);
    if (owner == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (owner == &process) return CUDA_ERROR_INVALID_CONTEXT;
    const bool peer = allocation->device != context.device;
    if (peer && process.node().machine.peer_access == 0) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    const auto opened = find_opened(process, *allocation);
    if (opened != process.space.mappings.end()) {
      if (opened->second.context != &context) return CUDA_ERROR_INVALID_CONTEXT;
      ++opened->second.references;
      *address = opened->first;
      return CUDA_SUCCESS;
    }
    Rights rights;
    rights.read.set(static_cast<std::size_t>(context.device)).set(static_cast<std::size_t>(allocation->device));
    rights.write = rights.read;
    *address = process.map_imported(context, allocation, rights, nullptr);
    return *address == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  });
}

// [cuda.h] The last close unmaps; [assumption] that waits for the process's work, as cuMemUnmap does.
CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr address) {
  return entry_in_context(Call::kIpcCloseMemHandle, [&](Process& process, const Context&) {
    const auto opened = opened_at(process, address);
    if (opened == process.space.mappings.end()) return CUDA_ERROR_INVALID_VALUE;
    if (opened->second.references == 1) {
      if (const CUresult result = synchronize_process(process); result != CUDA_SUCCESS) return result;
    }
    const auto still = opened_at(process, address);  // other threads went on meanwhile
    if (still == process.space.mappings.end()) return CUDA_ERROR_INVALID_VALUE;
    if (still->second.references > 1) {
      --still->second.references;
    } else {
      process.unmap_imported(still);
    }
    return CUDA_SUCCESS;
  });
}

// [cuda.h] The event was made as an interprocess one; [assumption] INVALID_HANDLE otherwise, and for an opened one.
CUresult CUDAAPI cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent event) {
  return entry_in_context(Call::kIpcGetEventHandle, [&](Process& process, const Context&) {
    const EventTable::Held* const held = find_held_event(process, event);
    if (handle == nullptr || event == nullptr) return CUDA_ERROR_INVALID_VALUE;  // measured
    if (held == nullptr || held->opened || !held->event->interprocess) return CUDA_ERROR_INVALID_HANDLE;
    write(handle, {.magic = kEvent, .serial = held->event->serial, .place = 0});
    return CUDA_SUCCESS;
  });
}

// [assumption] As of memory: INVALID_CONTEXT in the process that exported it, INVALID_VALUE for a handle of nothing.
CUresult CUDAAPI cuIpcOpenEventHandle(CUevent* event, CUipcEventHandle handle) {
  return entry_in_context(Call::kIpcOpenEventHandle, [&](const Process& process, const Context& context) {
    std::uint64_t serial = 0;
    if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!read(handle, kEvent, &serial)) return CUDA_ERROR_MAP_FAILED;  // measured
    const auto [owner, found] = find_exported_event(process.node(), serial);
    if (owner == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (owner == &process) return CUDA_ERROR_INVALID_CONTEXT;
    *event = context.events->open(found);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
