"""Each rule of multicast in the simulated driver, and the text of its sources that has to change to switch it off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_OBJECT: Final = "multicast.cpp"
_CALLS: Final = "entry/multicast.cpp"
_MAPS: Final = "entry/virtual_memory.cpp"
_HANDLES: Final = "entry/physical_memory.cpp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Off:
    """One way in which a rule is not kept.

    Parameters
    ----------
    rule : str
        Begins a line of the tables in ``docs/multicast.md``.
    file : str
        Under ``csrc/simcuda``.
    old, new : str
        What stands there once, and what makes the rule nobody's.
    """

    rule: str
    file: str
    old: str
    new: str


RULES: Final = (
    Off(
        rule="Without the device attribute every call answers",
        file=_CALLS,
        old="return process.node().machine.multicast_supported != 0;",
        new="return process.node().machine.device_count != 0;",
    ),
    Off(
        rule="An object is made for a number of devices and a size",
        file=_CALLS,
        old="properties->size == 0 || !on_granularity(process, properties->size)",
        new="properties->size == 0",
    ),
    Off(
        rule="An object is made for a number of devices and a size",
        file=_CALLS,
        old="properties->numDevices < 1 || properties->numDevices > static_cast<unsigned>(machine.device_count) ||",
        new="",
    ),
    Off(
        rule="Flags are zero",
        file=_CALLS,
        old="properties == nullptr || properties->flags != 0",
        new="properties == nullptr",
    ),
    Off(rule="Flags are zero", file=_CALLS, old="|| !allocation || flags != 0", new="|| !allocation"),
    Off(
        rule="Minimum and recommended granularity are the machine's",
        file=_CALLS,
        old="*granularity = machine.multicast_granularity_recommended_bytes",
        new="*granularity = machine.multicast_granularity_minimum_bytes",
    ),
    Off(
        rule="Minimum and recommended granularity are the machine's",
        file=_CALLS,
        old="*granularity = machine.multicast_granularity_minimum_bytes",
        new="*granularity = 2 << 20",
    ),
    Off(
        rule="A fabric handle type answers",
        file=_CALLS,
        old="? CUDA_ERROR_NOT_PERMITTED",
        new="? CUDA_ERROR_NOT_SUPPORTED",
    ),
    Off(
        rule="A team has as many devices as it was made for",
        file=_OBJECT,
        old="if (has(device) || complete())",
        new="if (has(device))",
    ),
    Off(
        rule="A device joins once and stays",
        file=_OBJECT,
        old="if (has(device) || complete())",
        new="if (complete())",
    ),
    Off(
        rule="A device that is not there is",
        file=_CALLS,
        old="device >= process.node().machine.device_count) return CUDA_ERROR_INVALID_DEVICE",
        new="device >= process.node().machine.device_count) return CUDA_ERROR_INVALID_VALUE",
    ),
    Off(
        rule="Export needs the handle type asked for at create",
        file=_HANDLES,
        old="|| (found->handle_types & static_cast<unsigned>(type)) == 0",
        new="",
    ),
    Off(
        rule="Export needs the handle type asked for at create",
        file=_HANDLES,
        old="{.allocation = found->allocation, .multicast = found->multicast, .birth = process.birth(kind)}",
        new="{.allocation = found->allocation, .multicast = found->multicast == nullptr ? nullptr : "
        "process.node().create_multicast(found->multicast->size, 2, 1), .birth = process.birth(kind)}",
    ),
    Off(
        rule="The object lives while a handle, a mapping or an open descriptor refers to it",
        file="process.cpp",
        old="  if (--handle->second.references == 0 && handle->second.mappings == 0) handles.erase(handle);",
        new="  if (--handle->second.references == 0 && handle->second.mappings == 0)\n"
        "    return void(handles.erase(handle));\n"
        "  if (handle->second.references == 0 && handle->second.multicast) handle->second.multicast->forget(*this);",
    ),
    Off(
        rule="A handle value without references and mappings is refused",
        file="process.cpp",
        old="if (--handle->second.references == 0 && handle->second.mappings == 0) handles.erase(handle);",
        new="--handle->second.references;",
    ),
    Off(
        rule="Binding, by handle or address, waits until every device of the team has been added",
        file=_CALLS,
        old="const CUresult result = await_complete(process, *object, call); result != CUDA_SUCCESS",
        new="const CUresult result = object->has(allocation->device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; "
        "result != CUDA_SUCCESS || call == nullptr",
    ),
    Off(
        rule="So does mapping",
        file=_MAPS,
        old='result = await_complete(process, *object, "cuMemMap");',
        new="",
    ),
    Off(
        rule="In a deterministic run a team that never becomes complete is a stall",
        file=_OBJECT,
        old="? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_TIMEOUT;",
        new="? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;",
    ),
    Off(
        rule="Offset, memory offset and size of a binding are multiples of the minimum granularity",
        file=_CALLS,
        old="!on_granularity(process, offset) ||",
        new="",
    ),
    Off(
        rule="Offset, memory offset and size of a binding are multiples of the minimum granularity",
        file=_CALLS,
        old="!on_granularity(process, allocation_offset) ||",
        new="",
    ),
    Off(
        rule="Offset, memory offset and size of a binding are multiples of the minimum granularity",
        file=_CALLS,
        old="!on_granularity(process, size) || size > object->size",
        new="size > object->size",
    ),
    Off(
        rule="Offset + size lies inside the object, memory offset + size inside the memory",
        file=_CALLS,
        old="|| offset > object->size - size",
        new="",
    ),
    Off(
        rule="Offset + size lies inside the object, memory offset + size inside the memory",
        file=_CALLS,
        old="|| allocation_offset > allocation->size - size",
        new="",
    ),
    Off(
        rule="A part of an allocation can be bound",
        file=_CALLS,
        old="      size > allocation->size ||",
        new="      size != allocation->size ||",
    ),
    Off(
        rule="The memory was created on a device of the team",
        file=_CALLS,
        old="if (!object->has(allocation->device)) return CUDA_ERROR_INVALID_VALUE;",
        new="if (!object->has(allocation->device)) return CUDA_SUCCESS;",
    ),
    Off(
        rule="A shareable or imported object takes shareable memory only",
        file=_CALLS,
        old="if (object->handle_types != 0 && allocation->handle_types == 0) return CUDA_ERROR_INVALID_VALUE;",
        new="",
    ),
    Off(
        rule="Memory of `cuMemAlloc` cannot be bound by its address",
        file=_CALLS,
        old="mapping != process.space.mappings.end() && mapping->second.origin == Origin::kMapped",
        new="mapping != process.space.mappings.end()",
    ),
    Off(
        rule="An address range that is bound lies within one mapping",
        file=_CALLS,
        old="usable ? address - mapping->first : 0, size, flags,",
        new="usable ? address - mapping->first : 0, "
        "usable ? std::min<std::uint64_t>(size, mapping->second.size) : size, flags,",
    ),
    Off(
        rule="An address range that is bound lies within one mapping",
        file=_CALLS,
        old="usable ? address - mapping->first : 0, size, flags,",
        new="0, size, flags,",
    ),
    Off(
        rule="Bindings of one device in one object do not overlap",
        file=_OBJECT,
        old="if (after != bound.end() && after->first < offset + binding.size) return CUDA_ERROR_INVALID_VALUE;",
        new="",
    ),
    Off(
        rule="Bindings of one device in one object do not overlap",
        file=_OBJECT,
        old="std::prev(after)->first + std::prev(after)->second.size > offset",
        new="std::prev(after)->first == offset",
    ),
    Off(
        rule="Unbinding takes the device, offset and size of the bind",
        file=_OBJECT,
        old="found == bound.end() || found->second.size != bytes",
        new="found == bound.end()",
    ),
    Off(
        rule="Unbinding takes the device, offset and size of the bind",
        file=_OBJECT,
        old="if (!has(device)) return {.result = CUDA_ERROR_INVALID_VALUE};",
        new="if (!has(device)) device = devices_.front();",
    ),
    Off(
        rule="A mapping starts at the object's offset 0",
        file=_MAPS,
        old="if (offset != 0) return CUDA_ERROR_NOT_SUPPORTED;",
        new="if (offset != 0 && !found->multicast) return CUDA_ERROR_NOT_SUPPORTED;",
    ),
    Off(
        rule="A mapping starts at the object's offset 0",
        file=_MAPS,
        old="|| size > found->multicast->size)",
        new="|| size != found->multicast->size)",
    ),
    Off(
        rule="A binding holds a reference on its memory",
        file=_OBJECT,
        old="const bool reported = freed && node_.machine.binding_on_free == SIMCU_UNBIND_REPORTS_ERROR;",
        new="const bool reported = freed;",
    ),
    Off(
        rule="A binding holds a reference on its memory",
        file=_OBJECT,
        old="const bool reported = freed && node_.machine.binding_on_free == SIMCU_UNBIND_REPORTS_ERROR;",
        new="const bool reported = false;",
    ),
    Off(
        rule="A mapping of an object needs access rights like any other",
        file="address_space.cpp",
        old="if (!rights.test(static_cast<std::size_t>(device))) {",
        new="if (!mapping.multicast && !rights.test(static_cast<std::size_t>(device))) {",
    ),
    Off(
        rule="A store, copy or memset through it reaches, on every device",
        file=_OBJECT,
        old=".host = binding->allocation->host() + allocation_offset});",
        new=".host = binding->allocation->host() + allocation_offset});\n    if (complete()) return true;",
    ),
    Off(
        rule="A store, copy or memset through it reaches, on every device",
        file="address_space.cpp",
        old="there.multicast_offset = offset;",
        new="there.multicast_offset = 0;",
    ),
    Off(
        rule="Devices may bind different places of their memory at one offset",
        file=_OBJECT,
        old="binding->allocation_offset + inside;",
        new="inside;",
    ),
    Off(
        rule="Any other read through a multicast address is undefined",
        file="copy.cpp",
        old="          through_multicast = true;",
        new="",
    ),
    Off(
        rule="Any other read through a multicast address is undefined",
        file="copy.cpp",
        old="          std::memset(out + done, 0xa5, now);  // undefined on hardware: never the value of some device\n"
        "          return true;",
        new="",
    ),
    Off(
        rule="Reaching an offset where some device has nothing bound writes nothing",
        file=_OBJECT,
        old="    if (binding == nullptr) {",
        new="    if (binding == nullptr && devices_.size() > 1 && device != devices_.front()) continue;\n"
        "    if (binding == nullptr) {",
    ),
    Off(
        rule="Reaching an offset where some device has nothing bound writes nothing",
        file="entry/copies.cpp",
        old="    context.sticky_error = code_of(fault);",
        new="",
    ),
    Off(
        rule="`multicast_capacity_bytes`",
        file=_OBJECT,
        old="if (bytes > node_.machine.multicast_capacity_bytes - used) return false;",
        new="",
    ),
    Off(
        rule="`multicast_charge`",
        file=_OBJECT,
        old="if (node_.machine.multicast_charge != SIMCU_CHARGE_AT_CREATE) return CUDA_SUCCESS;",
        new="",
    ),
    Off(
        rule="`multicast_charge_rounding_bytes`",
        file=_OBJECT,
        old="return (value + unit - 1) / unit * unit;",
        new="return value + unit - unit;",
    ),
)
