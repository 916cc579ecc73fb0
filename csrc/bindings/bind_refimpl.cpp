#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <vector>

#include "bind_policies.hpp"
#include "communicator/communicator.hpp"
#include "communicator/in_process_bootstrap.hpp"
#include "communicator/switch_channel.hpp"
#include "errors_to_python.hpp"
#include "sim_library.hpp"

namespace allranks::bindings {

namespace py = pybind11;

namespace {

using NoGil = py::call_guard<py::gil_scoped_release>;

// Ranks that are threads of this process wait by the simulated driver's turnstile where there is one.
std::shared_ptr<Waiter> waiter_of_process() {
  try {
    const SimLibrary& library = sim_library();
    return std::make_shared<TurnstileWaiter>(library.Wait, library.Notify);
  } catch (const std::runtime_error&) {
    return std::make_shared<ConditionWaiter>();
  }
}

void bind_bootstrap(py::module_& module) {
  py::class_<Bootstrap, std::shared_ptr<Bootstrap>>(module, "Bootstrap")
      .def_property_readonly("rank", &Bootstrap::rank)
      .def_property_readonly("rank_count", &Bootstrap::rank_count)
      .def_property_readonly("rendezvous_count", &Bootstrap::rendezvous_count)
      .def("set_timeout_us", &Bootstrap::set_timeout_us, py::arg("timeout_us"))
      .def(
          "all_gather",
          [](Bootstrap& self, const std::string& data, const std::string& object) {
            std::vector<Bytes> gathered;
            {
              const py::gil_scoped_release nogil;
              gathered = self.all_gather(data, object);
            }
            py::list list;
            for (const Bytes& bytes : gathered) list.append(py::bytes(bytes));
            return list;
          },
          py::arg("data"), py::arg("object"))
      .def(
          "barrier", [](Bootstrap& self, const std::string& object) { self.barrier(object); }, py::arg("object"),
          NoGil())
      .def("send", &Bootstrap::send, py::arg("peer"), py::arg("tag"), py::arg("data"), NoGil())
      .def(
          "receive",
          [](Bootstrap& self, int peer, int tag) {
            Bytes bytes;
            {
              const py::gil_scoped_release nogil;
              bytes = self.receive(peer, tag);
            }
            return py::bytes(bytes);
          },
          py::arg("peer"), py::arg("tag"))
      .def("leave", &Bootstrap::leave, NoGil());
  py::class_<InProcessRendezvous, std::shared_ptr<InProcessRendezvous>>(module, "InProcessRendezvous")
      .def(py::init(
               [](int rank_count) { return std::make_shared<InProcessRendezvous>(rank_count, waiter_of_process()); }),
           py::arg("rank_count"))
      .def_property_readonly("rank_count", &InProcessRendezvous::rank_count)
      .def("bootstrap", &InProcessRendezvous::bootstrap, py::arg("rank"), NoGil());
}

CUstream stream_from(std::uint64_t handle) { return reinterpret_cast<CUstream>(handle); }

void bind_channels(py::module_& module) {
  py::class_<MemoryChannels, std::shared_ptr<MemoryChannels>>(module, "MemoryChannels")
      .def(
          "put",
          [](MemoryChannels& self, int peer, std::uint64_t destination_offset, std::uint64_t source_address,
             std::uint64_t size,
             std::uint64_t stream) { self.put(peer, {destination_offset, source_address, size}, stream_from(stream)); },
          py::arg("peer"), py::arg("destination_offset"), py::arg("source_address"), py::arg("size"), py::arg("stream"),
          NoGil())
      .def(
          "get",
          [](MemoryChannels& self, int peer, std::uint64_t source_offset, std::uint64_t destination_address,
             std::uint64_t size,
             std::uint64_t stream) { self.get(peer, {source_offset, destination_address, size}, stream_from(stream)); },
          py::arg("peer"), py::arg("source_offset"), py::arg("destination_address"), py::arg("size"), py::arg("stream"),
          NoGil())
      .def(
          "signal",
          [](MemoryChannels& self, int peer, std::uint64_t stream) { self.signal(peer, stream_from(stream)); },
          py::arg("peer"), py::arg("stream"), NoGil())
      .def(
          "wait", [](MemoryChannels& self, int peer, std::uint64_t stream) { self.wait(peer, stream_from(stream)); },
          py::arg("peer"), py::arg("stream"), NoGil())
      .def(
          "flush", [](MemoryChannels& self, std::uint64_t stream) { self.flush(stream_from(stream)); },
          py::arg("stream"), NoGil())
      .def("remote_address", &MemoryChannels::remote_address, py::arg("peer"))
      .def("remote_size", &MemoryChannels::remote_size, py::arg("peer"))
      .def_property_readonly("connection_number", &MemoryChannels::connection_number)
      .def("close", &MemoryChannels::close, NoGil());
}

void bind_groups(py::module_& module) {
  py::class_<SwitchChannel, std::shared_ptr<SwitchChannel>>(module, "SwitchChannel")
      .def_property_readonly("address", &SwitchChannel::address)
      .def_property_readonly("offset_bytes", &SwitchChannel::offset)
      .def_property_readonly("size", &SwitchChannel::size)
      .def_property_readonly("bound", &SwitchChannel::bound)
      .def(
          "store",
          [](SwitchChannel& self, std::uint64_t offset, const std::string& data, std::uint64_t stream) {
            const py::gil_scoped_release nogil;
            self.store(offset, data, stream_from(stream));
          },
          py::arg("offset"), py::arg("data"), py::arg("stream"))
      .def(
          "load_reduce",
          [](SwitchChannel& self, std::uint64_t offset, std::uint64_t count, std::uint32_t data_type,
             std::uint32_t operation, std::uint64_t stream) {
            Bytes bytes;
            {
              const py::gil_scoped_release nogil;
              bytes = self.load_reduce(
                  {offset, count, static_cast<device::DataType>(data_type), static_cast<device::Operation>(operation)},
                  stream_from(stream));
            }
            return py::bytes(bytes);
          },
          py::arg("offset"), py::arg("count"), py::arg("data_type"), py::arg("operation"), py::arg("stream"))
      .def("unbind", &SwitchChannel::unbind, NoGil());
  py::class_<MulticastGroup, std::shared_ptr<MulticastGroup>>(module, "MulticastGroup")
      .def_property_readonly("capacity_bytes", &MulticastGroup::capacity)
      .def_property_readonly("granularity_bytes", &MulticastGroup::granularity)
      .def_property_readonly("is_open", &MulticastGroup::is_open)
      .def("bind", py::overload_cast<CUdeviceptr, std::uint64_t>(&MulticastGroup::bind), py::arg("address"),
           py::arg("size"), NoGil())
      .def("close", &MulticastGroup::close, NoGil());
}

void bind_options(py::module_& module) {
  py::class_<Options>(module, "Options")
      .def(py::init<>())
      .def_readwrite("timeout_us", &Options::timeout_us)
      .def_readwrite("scratch_bytes", &Options::scratch_bytes)
      .def_readwrite("block_count", &Options::block_count)
      .def_readwrite("multicast_threshold_bytes", &Options::multicast_threshold_bytes)
      .def_readwrite("zero_copy", &Options::zero_copy)
      .def_readwrite("cache_capacity", &Options::cache_capacity)
      .def(
          "set_policies",
          [](Options& self, std::shared_ptr<ChannelCachePolicy> cache, std::shared_ptr<MulticastPolicy> multicast,
             std::shared_ptr<ReleasePolicy> release) {
            if (cache) self.policies.channel_cache = std::move(cache);
            if (multicast) self.policies.multicast = std::move(multicast);
            if (release) self.policies.release = std::move(release);
          },
          py::arg("channel_cache"), py::arg("multicast"), py::arg("release"), py::keep_alive<1, 2>(),
          py::keep_alive<1, 3>(), py::keep_alive<1, 4>());
}

CollectiveCall call_from(std::uint64_t send, std::uint64_t receive, std::uint64_t count, std::uint32_t data_type,
                         std::uint32_t operation, std::uint64_t stream) {
  return {send,
          receive,
          count,
          static_cast<device::DataType>(data_type),
          static_cast<device::Operation>(operation),
          stream_from(stream)};
}

void bind_communicator(py::module_& module) {
  py::class_<Communicator, std::shared_ptr<Communicator>>(module, "Communicator")
      .def(py::init([](std::shared_ptr<Bootstrap> bootstrap, std::shared_ptr<Driver> driver, int device,
                       const Options& options) {
             const py::gil_scoped_release nogil;
             return std::make_shared<Communicator>(std::move(bootstrap), std::move(driver), device, options);
           }),
           py::arg("bootstrap"), py::arg("driver"), py::arg("device"), py::arg("options"), py::keep_alive<1, 5>())
      .def_property_readonly("rank", &Communicator::rank)
      .def_property_readonly("rank_count", &Communicator::rank_count)
      .def_property_readonly("multicast_supported", &Communicator::multicast_supported)
      .def_property_readonly("closed", &Communicator::closed)
      .def_property_readonly("broken", &Communicator::broken)
      .def_property_readonly("rendezvous_count", &Communicator::rendezvous_count)
      .def_property_readonly("cached_connections", &Communicator::cached_connections)
      .def_property_readonly("last_algorithm", [](const Communicator& self) { return name_of(self.last_algorithm()); })
      .def("connect", &Communicator::connect, py::arg("address"), py::arg("size"), py::keep_alive<0, 1>(), NoGil())
      .def("open_multicast", &Communicator::open_multicast, py::arg("capacity_bytes"), py::keep_alive<0, 1>(), NoGil())
      .def(
          "all_reduce",
          [](Communicator& self, std::uint64_t send, std::uint64_t receive, std::uint64_t count,
             std::uint32_t data_type, std::uint32_t operation,
             std::uint64_t stream) { self.all_reduce(call_from(send, receive, count, data_type, operation, stream)); },
          py::arg("send_address"), py::arg("receive_address"), py::arg("count"), py::arg("data_type"),
          py::arg("operation"), py::arg("stream"), NoGil())
      .def(
          "all_gather",
          [](Communicator& self, std::uint64_t send, std::uint64_t receive, std::uint64_t count,
             std::uint32_t data_type,
             std::uint64_t stream) { self.all_gather(call_from(send, receive, count, data_type, 0, stream)); },
          py::arg("send_address"), py::arg("receive_address"), py::arg("count"), py::arg("data_type"),
          py::arg("stream"), NoGil())
      .def(
          "synchronize", [](Communicator& self, std::uint64_t stream) { self.synchronize(stream_from(stream)); },
          py::arg("stream"), NoGil())
      .def("close", &Communicator::close, NoGil())
      .def("abandon", &Communicator::abandon, NoGil());
}

}  // namespace

void bind_refimpl(py::module_& module) {
  translate_errors();
  bind_policies(module);
  bind_bootstrap(module);
  bind_options(module);
  bind_channels(module);
  bind_groups(module);
  bind_communicator(module);
}

}  // namespace allranks::bindings
