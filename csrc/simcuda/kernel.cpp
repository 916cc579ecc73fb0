#include "kernel.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "block.hpp"
#include "context.hpp"
#include "node.hpp"
#include "process.hpp"

namespace allranks::sim {

namespace {

constexpr std::uint64_t kModuleTag = 0x4d00'0000'0000ull;
constexpr std::uint64_t kFunctionTag = 0xf000'0000'0000ull;

std::uint64_t handle_of(std::uint64_t tag, int device, std::uint64_t ordinal) {
  return tag | (static_cast<std::uint64_t>(device) << 32) | (ordinal << 4);
}

// Runs a launch from inside its stream's fiber and returns what the context gets.
class Launch {
 public:
  Launch(Context& context, const Kernel& kernel, const LaunchShape& shape, const Label& label,
         const std::vector<std::vector<unsigned char>>& parameters)
      : context_(context), kernel_(kernel), shape_(shape), label_(label) {
    for (const std::vector<unsigned char>& parameter : parameters) pointers_.push_back(parameter.data());
  }

  CUresult run() {
    const simcuMachine& machine = context_.node().machine;
    resident_limit_ = static_cast<std::uint32_t>(machine.multiprocessor_count) *
                      static_cast<std::uint32_t>(machine.blocks_per_multiprocessor);
    if (shape_.block_count == 1 && shape_.lane_count == 1) {
      BlockGroup group(context_, label_, kernel_.name, 0, shape_.block_count, shape_.lane_count);
      run_lane(group, 0);
      return error_;
    }
    start_more();
    const WaitSpec spec{.ready = [&] { return live_lanes_ == 0; },
                        .key = this,
                        .call = "cuLaunchKernel",
                        .object = "kernel " + kernel_.name};
    while (live_lanes_ > 0) context_.node().turnstile.wait(spec);  // a stall ends the lanes first, then this
    return error_;
  }

 private:
  void start_more() {
    while (next_block_ < shape_.block_count && resident_ < resident_limit_) {
      const std::uint32_t block = next_block_++;
      ++resident_;
      auto group =
          std::make_shared<BlockGroup>(context_, label_, kernel_.name, block, shape_.block_count, shape_.lane_count);
      for (std::uint32_t lane = 0; lane < shape_.lane_count; ++lane) {
        ++live_lanes_;
        context_.node().turnstile.spawn(name_of(block, lane), &context_.process, label_, [this, group, lane] {
          run_lane(*group, lane);
          end_lane(*group);
        });
      }
    }
  }

  std::string name_of(std::uint32_t block, std::uint32_t lane) const {
    std::string name =
        "rank " + std::to_string(context_.process.rank) + " kernel " + kernel_.name + " block " + std::to_string(block);
    return shape_.lane_count == 1 ? name : name + " lane " + std::to_string(lane);
  }

  void run_lane(BlockGroup& group, std::uint32_t lane) {
    const CUresult result = group.run_lane(lane, kernel_.entry, pointers_.data());
    if (result != CUDA_SUCCESS && error_ == CUDA_SUCCESS) error_ = result;
  }

  void end_lane(BlockGroup& group) {
    --live_lanes_;
    if (group.lane_ended()) {
      --resident_;
      if (error_ == CUDA_SUCCESS) start_more();
    }
    if (live_lanes_ == 0) context_.node().turnstile.notify(this);
  }

  Context& context_;
  const Kernel& kernel_;
  const LaunchShape shape_;
  const Label label_;
  std::vector<const void*> pointers_;
  std::uint32_t resident_limit_ = 1;
  std::uint32_t next_block_ = 0;
  std::uint32_t resident_ = 0;
  std::uint32_t live_lanes_ = 0;
  CUresult error_ = CUDA_SUCCESS;
};

}  // namespace

ModuleTable::ModuleTable(Context& context) : context_(context), next_handle_(context.process.next_object) {}

CUmodule ModuleTable::load(const void* image) {
  const auto* const header = static_cast<const simcuModuleImage*>(image);
  std::uint64_t magic = 0;
  std::memcpy(&magic, image, sizeof magic);
  if (magic != SIMCU_MODULE_MAGIC || header->version != 1) return nullptr;
  Module module{.birth = context_.process.birth(LedgerKind::kModule), .functions = {}};
  for (std::uint32_t i = 0; i < header->kernel_count; ++i) {
    const simcuKernel& kernel = header->kernels[i];
    module.functions.push_back(
        add_function({.name = kernel.name,
                      .entry = kernel.entry,
                      .parameter_bytes = {kernel.parameter_bytes, kernel.parameter_bytes + kernel.parameter_count}}));
  }
  return add_module(std::move(module));
}

CUmodule ModuleTable::load_machine_code() {
  return add_module({.birth = context_.process.birth(LedgerKind::kModule), .machine_code = true});
}

std::uint64_t ModuleTable::add_function(Kernel kernel) {
  const std::uint64_t handle = handle_of(kFunctionTag, context_.device, next_handle_++);
  functions_.emplace(handle, std::make_shared<const Kernel>(std::move(kernel)));
  return handle;
}

CUmodule ModuleTable::add_module(Module module) {
  const std::uint64_t handle = handle_of(kModuleTag, context_.device, next_handle_++);
  modules_.emplace(handle, std::move(module));
  return reinterpret_cast<CUmodule>(handle);
}

bool ModuleTable::known(CUmodule handle) const { return modules_.contains(reinterpret_cast<std::uint64_t>(handle)); }

bool ModuleTable::unload(CUmodule handle) {
  const auto found = modules_.find(reinterpret_cast<std::uint64_t>(handle));
  if (found == modules_.end()) return false;
  for (const std::uint64_t function : found->second.functions) functions_.erase(function);
  modules_.erase(found);
  return true;
}

CUfunction ModuleTable::function(CUmodule handle, const char* name) {
  const auto found = modules_.find(reinterpret_cast<std::uint64_t>(handle));
  if (found == modules_.end()) return nullptr;
  for (const std::uint64_t function : found->second.functions) {
    if (functions_.at(function)->name == name) return reinterpret_cast<CUfunction>(function);
  }
  if (!found->second.machine_code) return nullptr;
  found->second.functions.push_back(add_function({.name = name}));
  return reinterpret_cast<CUfunction>(found->second.functions.back());
}

std::shared_ptr<const Kernel> ModuleTable::find(CUfunction handle) const {
  const auto found = functions_.find(reinterpret_cast<std::uint64_t>(handle));
  return found == functions_.end() ? nullptr : found->second;
}

std::shared_ptr<const Kernel> find_kernel(Process& process, CUfunction handle) {
  for (Context* context : process.contexts()) {
    if (std::shared_ptr<const Kernel> kernel = context->modules->find(handle)) return kernel;
  }
  return nullptr;
}

void launch_kernel(Context& context, Stream& stream, std::shared_ptr<const Kernel> kernel, const LaunchShape& shape,
                   void** parameters) {
  if (kernel->entry == nullptr) {
    ++context.process.recorded_launches[kernel->name];
    // Its place in the stream: behind what is there already.
    if (!stream.idle()) stream.enqueue("cuLaunchKernel", [] { return CUDA_SUCCESS; });
    return;
  }
  std::vector<std::vector<unsigned char>> copies;
  copies.reserve(kernel->parameter_bytes.size());
  for (std::size_t i = 0; i < kernel->parameter_bytes.size(); ++i) {
    const auto* const begin = static_cast<const unsigned char*>(parameters[i]);
    copies.emplace_back(begin, begin + kernel->parameter_bytes[i]);
  }
  stream.enqueue("cuLaunchKernel",
                 [&context, kernel = std::move(kernel), shape, label = this_thread().label,
                  copies = std::move(copies)] { return Launch(context, *kernel, shape, label, copies).run(); });
}

}  // namespace allranks::sim
