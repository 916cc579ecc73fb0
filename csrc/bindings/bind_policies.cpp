#include "bind_policies.hpp"

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <string>
#include <utility>
#include <vector>

#include "communicator/policies.hpp"

namespace allranks::bindings {

namespace py = pybind11;

namespace {

// The communicator asks without holding the GIL; each override takes it for the call.
class PyChannelCachePolicy : public ChannelCachePolicy {
 public:
  std::string key(const RegionIdentity& region) const override {
    const py::gil_scoped_acquire gil;
    const py::function replacement = py::get_override(static_cast<const ChannelCachePolicy*>(this), "key");
    return replacement ? replacement(region).cast<std::string>() : ChannelCachePolicy::key(region);
  }
  std::vector<SlotMask> decide(const std::vector<SlotMask>& mine, const Exchange& exchange) const override {
    {
      const py::gil_scoped_acquire gil;
      const py::function replacement = py::get_override(static_cast<const ChannelCachePolicy*>(this), "decide");
      if (replacement) {
        const Exchange waiting = [&](const std::vector<SlotMask>& masks) {
          const py::gil_scoped_release nogil;
          return exchange(masks);
        };
        return replacement(mine, waiting).cast<std::vector<SlotMask>>();
      }
    }
    return ChannelCachePolicy::decide(mine, exchange);
  }
};

class PyMulticastPolicy : public MulticastPolicy {
 public:
  std::optional<std::uint64_t> offset_of(const std::vector<OffsetRange>& bound, std::uint64_t size,
                                         std::uint64_t capacity) const override {
    const py::gil_scoped_acquire gil;
    const py::function replacement = py::get_override(static_cast<const MulticastPolicy*>(this), "offset_of");
    if (!replacement) return MulticastPolicy::offset_of(bound, size, capacity);
    std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
    ranges.reserve(bound.size());
    for (const OffsetRange& range : bound) ranges.emplace_back(range.begin, range.end);
    return replacement(ranges, size, capacity).cast<std::optional<std::uint64_t>>();
  }
  std::uint64_t address_of(std::uint64_t base, std::uint64_t offset) const override {
    const py::gil_scoped_acquire gil;
    const py::function replacement = py::get_override(static_cast<const MulticastPolicy*>(this), "address_of");
    return replacement ? replacement(base, offset).cast<std::uint64_t>() : MulticastPolicy::address_of(base, offset);
  }
};

class PyReleasePolicy : public ReleasePolicy {
 public:
  bool gives_back(Resource resource) const override {
    const py::gil_scoped_acquire gil;
    const py::function replacement = py::get_override(static_cast<const ReleasePolicy*>(this), "gives_back");
    return replacement ? replacement(name_of(resource)).cast<bool>() : ReleasePolicy::gives_back(resource);
  }
};

std::vector<OffsetRange> ranges_from(const std::vector<std::pair<std::uint64_t, std::uint64_t>>& pairs) {
  std::vector<OffsetRange> ranges;
  ranges.reserve(pairs.size());
  for (const auto& [begin, end] : pairs) ranges.push_back({begin, end});
  return ranges;
}

Resource resource_from(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(Resource::kContext); ++i) {
    if (name == name_of(static_cast<Resource>(i))) return static_cast<Resource>(i);
  }
  throw py::value_error("resource='" + name + "': no such kind of resource");
}

}  // namespace

void bind_policies(py::module_& module) {
  py::class_<SegmentIdentity>(module, "SegmentIdentity")
      .def_readonly("handle", &SegmentIdentity::handle)
      .def_readonly("buffer_id", &SegmentIdentity::buffer_id)
      .def_readonly("offset", &SegmentIdentity::offset)
      .def_readonly("size", &SegmentIdentity::size);
  py::class_<RegionIdentity>(module, "RegionIdentity")
      .def_readonly("address", &RegionIdentity::address)
      .def_readonly("size", &RegionIdentity::size)
      .def_readonly("segments", &RegionIdentity::segments);
  py::class_<ChannelCachePolicy, PyChannelCachePolicy, std::shared_ptr<ChannelCachePolicy>>(module,
                                                                                            "ChannelCachePolicy")
      .def(py::init<>())
      .def(
          "key",
          [](const ChannelCachePolicy& self, const RegionIdentity& region) {
            return py::bytes(self.ChannelCachePolicy::key(region));
          },
          py::arg("region"))
      .def(
          "decide",
          [](const ChannelCachePolicy& self, const std::vector<SlotMask>& mine,
             const ChannelCachePolicy::Exchange& exchange) { return self.ChannelCachePolicy::decide(mine, exchange); },
          py::arg("mine"), py::arg("exchange"));
  py::class_<MulticastPolicy, PyMulticastPolicy, std::shared_ptr<MulticastPolicy>>(module, "MulticastPolicy")
      .def(py::init<>())
      .def(
          "offset_of",
          [](const MulticastPolicy& self, const std::vector<std::pair<std::uint64_t, std::uint64_t>>& bound,
             std::uint64_t size,
             std::uint64_t capacity) { return self.MulticastPolicy::offset_of(ranges_from(bound), size, capacity); },
          py::arg("bound"), py::arg("size"), py::arg("capacity"))
      .def(
          "address_of",
          [](const MulticastPolicy& self, std::uint64_t base, std::uint64_t offset) {
            return self.MulticastPolicy::address_of(base, offset);
          },
          py::arg("base"), py::arg("offset"));
  py::class_<ReleasePolicy, PyReleasePolicy, std::shared_ptr<ReleasePolicy>>(module, "ReleasePolicy")
      .def(py::init<>())
      .def(
          "gives_back",
          [](const ReleasePolicy& self, const std::string& resource) {
            return self.ReleasePolicy::gives_back(resource_from(resource));
          },
          py::arg("resource"));
}

}  // namespace allranks::bindings
