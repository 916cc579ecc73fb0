#include "multicast_group.hpp"

#include <algorithm>
#include <utility>

#include "errors.hpp"
#include "properties.hpp"
#include "switch_channel.hpp"

namespace allranks {

Step MulticastGroup::step_of(StepKind kind, std::uint64_t ordinal) const {
  return {.kind = kind, .operation = number_, .ordinal = ordinal};
}

std::shared_ptr<MulticastGroup> MulticastGroup::open(std::shared_ptr<Core> core, std::uint64_t ordinal,
                                                     std::uint32_t number, std::uint64_t capacity_bytes) {
  const std::shared_ptr<MulticastGroup> group(new MulticastGroup(std::move(core), number));
  Agreement& agreement = group->core_->agreement();
  Step step = group->step_of(StepKind::kOpenMulticast, ordinal);
  step.count = capacity_bytes;

  Bytes payload;
  Descriptor descriptor;
  const Finding create_finding = attempt([&] { group->create(capacity_bytes, payload, descriptor); });
  const std::vector<Bytes> payloads = agreement.agree(step, create_finding, payload);
  step.phase = 1;
  const Finding join_finding = attempt([&] { group->join(payloads); });
  agreement.agree(step, join_finding);
  descriptor.reset();
  // Mapping blocks until every device has been added, which all ranks know by now.
  step.phase = 2;
  const Finding map_finding = attempt([&] {
    group->window_ = MappedRange(group->core_->cleanup(), group->core_->device(),
                                 {{group->object_.get(), group->wanted_bytes_}}, group->granularity_);
  });
  agreement.agree(step, map_finding);
  return group;
}

// Rank 0 creates and exports; the others learn the size.
void MulticastGroup::create(std::uint64_t capacity_bytes, Bytes& payload, Descriptor& descriptor) {
  core_->make_current();
  const Driver& driver = core_->driver();
  driver.require_multicast();
  if (!core_->multicast_supported()) throw UsageError("multicast is not supported by every rank's device");
  if (capacity_bytes == 0) throw UsageError("capacity_bytes=0: at least 1");
  const auto devices = static_cast<unsigned>(core_->rank_count());
  CUmulticastObjectProp properties = multicast_properties(capacity_bytes, devices);
  std::size_t granularity = 0;
  driver.cuMulticastGetGranularity(&granularity, &properties, CU_MULTICAST_GRANULARITY_MINIMUM);
  granularity_ = granularity;
  wanted_bytes_ = round_up(capacity_bytes, granularity_);
  if (core_->rank() != 0) return;
  properties.size = wanted_bytes_;
  AllocationHandle handle = 0;
  driver.cuMulticastCreate(&handle, &properties);
  object_ = MulticastObject(core_->cleanup(), handle);
  int number = -1;
  driver.cuMemExportToShareableHandle(&number, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  descriptor = Descriptor(core_->cleanup(), number);
  append(payload, static_cast<std::int32_t>(number));
}

void MulticastGroup::join(const std::vector<Bytes>& payloads) {
  const Driver& driver = core_->driver();
  if (core_->rank() != 0) {
    Reader reader(payloads.front());
    void* const number = reinterpret_cast<void*>(static_cast<std::intptr_t>(reader.next<std::int32_t>()));
    AllocationHandle handle = 0;
    driver.cuMemImportFromShareableHandle(&handle, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    object_ = MulticastObject(core_->cleanup(), handle);
  }
  driver.cuMulticastAddDevice(object_.get(), core_->device());
}

std::shared_ptr<SwitchChannel> MulticastGroup::bind(CUdeviceptr address, std::uint64_t size) {
  return core_->collective([&](std::uint64_t ordinal) { return bind(ordinal, address, size); });
}

std::shared_ptr<SwitchChannel> MulticastGroup::bind(std::uint64_t ordinal, CUdeviceptr address, std::uint64_t size) {
  Step step = step_of(StepKind::kBind, ordinal);
  step.count = size;
  std::shared_ptr<BoundRegion> bound;
  Bytes payload;
  const Finding prepare_finding = attempt([&] {
    core_->make_current();
    bound = prepare(address, size);
    append(payload, bound->lead);
    for (const OffsetRange& range : bound_ranges()) append(payload, range);
  });
  const std::vector<Bytes> payloads = core_->agreement().agree(step, prepare_finding, payload);
  place(step, *bound, payloads);
  step.phase = 1;
  const Finding bind_finding = attempt([&] { bind_parts(*bound); });
  try {
    core_->agreement().agree(step, bind_finding);
  } catch (...) {
    bound->reset();
    throw;
  }
  std::erase_if(bound_, [](const std::shared_ptr<BoundRegion>& other) { return !other->alive(); });
  bound_.push_back(bound);
  const CUdeviceptr reached = core_->options().policies.multicast->address_of(base(), bound->range.begin) + bound->lead;
  return std::make_shared<SwitchChannel>(core_, shared_from_this(), std::move(bound), reached);
}

std::shared_ptr<BoundRegion> MulticastGroup::prepare(CUdeviceptr address, std::uint64_t size) const {
  if (!is_open()) throw UsageError("the multicast group is closed");
  if (size == 0) throw UsageError("size=0: a binding has at least one byte");
  Region region(core_->cleanup(), core_->device(), "address", address, size);
  for (const RegionSegment& segment : region.segments()) {
    if (segment.plain) {
      throw UsageError("address=" + place_text(address, size) + ": only memory of cuMemCreate can be bound");
    }
    if (segment.mapping_bytes % granularity_ != 0) {
      throw UsageError("address=" + place_text(address, size) + ": an allocation of " +
                       std::to_string(segment.mapping_bytes) + " bytes, no multiple of the multicast granularity " +
                       std::to_string(granularity_));
    }
  }
  region.retain();
  const std::uint64_t lead = region.segments().front().identity.offset % granularity_;
  return std::make_shared<BoundRegion>(BoundRegion{
      .range = {0, round_up(lead + size, granularity_)}, .lead = lead, .region = std::move(region), .parts = {}});
}

std::vector<OffsetRange> MulticastGroup::bound_ranges() const {
  std::vector<OffsetRange> ranges;
  for (const std::shared_ptr<BoundRegion>& bound : bound_) {
    if (bound->alive()) ranges.push_back(bound->range);
  }
  return ranges;
}

// The same answer, or the same error, on every rank: it depends on what all have announced alone.
void MulticastGroup::place(const Step& step, BoundRegion& bound, const std::vector<Bytes>& payloads) const {
  std::vector<OffsetRange> taken;
  std::uint64_t lead = 0;
  for (std::size_t rank = 0; rank < payloads.size(); ++rank) {
    Reader reader(payloads[rank]);
    const auto theirs = reader.next<std::uint64_t>();
    if (rank == 0) lead = theirs;
    if (theirs != lead) {
      throw UsageError("rank " + std::to_string(rank) + ": " + text_of(step) + ": the region begins " +
                           std::to_string(theirs) +
                           " bytes behind a multiple of the multicast granularity, and rank 0's " +
                           std::to_string(lead) + ": no offset reaches both",
                       static_cast<int>(rank));
    }
    while (!reader.done()) taken.push_back(reader.next<OffsetRange>());
  }
  const std::uint64_t size = bound.range.end - bound.range.begin;
  const std::optional<std::uint64_t> offset = core_->options().policies.multicast->offset_of(taken, size, capacity());
  if (!offset) {
    throw UsageError(text_of(step) + ": no room for " + std::to_string(size) + " bytes in a multicast object of " +
                     std::to_string(capacity()));
  }
  bound.range = {*offset, *offset + size};
}

void MulticastGroup::bind_parts(BoundRegion& bound) {
  const Driver& driver = core_->driver();
  std::uint64_t at = bound.range.begin;
  for (const RegionSegment& segment : bound.region.segments()) {
    const std::uint64_t begin = round_down(segment.identity.offset, granularity_);
    const std::uint64_t end = round_up(segment.identity.offset + segment.identity.size, granularity_);
    driver.cuMulticastBindMem(object_.get(), at, segment.identity.handle, begin, end - begin, 0);
    bound.parts.emplace_back(core_->cleanup(), BoundStretch{object_.get(), core_->device(), at, end - begin});
    at += end - begin;
  }
}

void MulticastGroup::unbind(BoundRegion& bound) {
  core_->collective([&](std::uint64_t ordinal) {
    Step step = step_of(StepKind::kUnbind, ordinal);
    core_->agreement().agree(step, attempt([&] { core_->make_current(); }));
    step.phase = 1;
    core_->agreement().agree(step, attempt([&] { core_->give_back([&] { bound.reset(); }); }));
  });
}

void MulticastGroup::close() {
  if (!is_open() || core_->closed()) return;
  core_->collective([&](std::uint64_t ordinal) {
    Step step = step_of(StepKind::kCloseGroup, ordinal);
    core_->agreement().agree(step, attempt([&] { core_->make_current(); }));
    step.phase = 1;
    core_->agreement().agree(step, attempt([&] { core_->give_back([&] { give_back(); }); }));
  });
}

void MulticastGroup::give_back() noexcept {
  for (const std::shared_ptr<BoundRegion>& bound : bound_) bound->reset();
  bound_.clear();
  window_.reset();
  object_.reset();
}

MulticastGroup::~MulticastGroup() {
  if (core_->closed()) return;
  // What is left goes with the clean-up, on whatever thread that runs.
  struct Rest {
    std::vector<std::shared_ptr<BoundRegion>> bound;
    MappedRange window;
    MulticastObject object;
  };
  const auto rest = std::make_shared<Rest>(Rest{std::move(bound_), std::move(window_), std::move(object_)});
  core_->dispose([rest] {
    for (const std::shared_ptr<BoundRegion>& bound : rest->bound) bound->reset();
    rest->window.reset();
    rest->object.reset();
  });
}

}  // namespace allranks
