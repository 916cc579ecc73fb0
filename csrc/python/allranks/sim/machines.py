"""Simulated machines: how many GPUs, how much memory, and what is assumed where no measurement exists.

Memory sizes and granularities of `h200` were measured on 2 x H200 (driver 580, CUDA 13.0). Everything about multicast
is taken from texts and public reports; what is an assumption is a field here, so that a property can be shown to hold
under each setting (see ``docs/multicast.md``).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Final, Literal

from allranks.errors import UsageError

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

MulticastCharge = Literal["create", "add_device", "bind"]
BindingOnFree = Literal["keeps_memory", "unbind_reports_error"]

_CHARGES: Final[tuple[MulticastCharge, ...]] = ("create", "add_device", "bind")
_ON_FREE: Final[tuple[BindingOnFree, ...]] = ("keeps_memory", "unbind_reports_error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One simulated host and its GPUs.

    Parameters
    ----------
    name : str
        What reports call it.
    device_count : int
        GPUs of the host.
    memory_bytes : int
        Memory of each GPU; ``cuMemGetInfo`` calls it total.
    allocation_granularity_bytes : int
        What sizes of physical allocations and addresses of mappings are multiples of.
    multicast_granularity_minimum_bytes, multicast_granularity_recommended_bytes : int
        What ``cuMulticastGetGranularity`` answers. Assumption: 2 MiB and 2 MiB, or 512 MiB recommended.
    multicast_capacity_bytes : int
        Multicast memory of each GPU's fabric. Assumption.
    multicast_charge : {"create", "add_device", "bind"}
        When an object is charged against that capacity. Assumption.
    multicast_charge_rounding_bytes : int
        Sizes are rounded up to a multiple of this before they are charged. Assumption.
    binding_on_free : {"keeps_memory", "unbind_reports_error"}
        What becomes of a binding whose memory was freed first. Assumption; see pytorch/pytorch#163750.
    multiprocessor_count, blocks_per_multiprocessor : int
        Their product is how many blocks of a kernel are resident at once.
    lanes : int
        Lanes (threads) that a host-compiled block runs: 1 to 32.
    compute_capability_major, compute_capability_minor, driver_version : int
        As the driver reports them; the version as 1000 * major + 10 * minor.
    multicast_supported, fabric_handle_supported, fabric_handle_permitted, peer_access : bool
        Capabilities. A fabric attribute that says yes while creating is not permitted is a machine too.
    """

    name: str
    device_count: int = 8
    memory_bytes: int
    allocation_granularity_bytes: int = 2 * MIB
    multicast_granularity_minimum_bytes: int = 2 * MIB
    multicast_granularity_recommended_bytes: int = 2 * MIB
    multicast_capacity_bytes: int
    multicast_charge: MulticastCharge = "create"
    multicast_charge_rounding_bytes: int = 2 * MIB
    binding_on_free: BindingOnFree = "keeps_memory"
    multiprocessor_count: int = 132
    blocks_per_multiprocessor: int = 1
    lanes: int = 1
    compute_capability_major: int = 9
    compute_capability_minor: int = 0
    driver_version: int = 13000
    multicast_supported: bool = True
    fabric_handle_supported: bool = True
    fabric_handle_permitted: bool = False
    peer_access: bool = True

    def as_fields(self) -> dict[str, Any]:
        """Give the fields as the native module takes them."""
        fields = dataclasses.asdict(self)
        fields["multicast_charge"] = _CHARGES.index(self.multicast_charge)
        fields["binding_on_free"] = _ON_FREE.index(self.binding_on_free)
        for name in ("multicast_supported", "fabric_handle_supported", "fabric_handle_permitted", "peer_access"):
            fields[name] = int(fields[name])
        return fields


MACHINES: Final[dict[str, Machine]] = {
    machine.name: machine
    for machine in (
        # Objects of 1 GiB that are never released run out at round 125 (microsoft/mscclpp#759: after about 120).
        Machine(name="h100", memory_bytes=81559 * MIB, multicast_capacity_bytes=124 * GIB),
        # Holds one object as large as a whole device's memory.
        Machine(name="h200", memory_bytes=150_109_880_320, multicast_capacity_bytes=288 * GIB),
        Machine(
            name="h100-512m",
            memory_bytes=81559 * MIB,
            multicast_capacity_bytes=124 * GIB,
            multicast_granularity_recommended_bytes=512 * MIB,
        ),
        Machine(
            name="no-multicast",
            memory_bytes=81559 * MIB,
            multicast_capacity_bytes=124 * GIB,
            multicast_supported=False,
        ),
        Machine(name="small", memory_bytes=512 * MIB, multicast_capacity_bytes=1 * GIB, multiprocessor_count=8),
        Machine(name="tiny", memory_bytes=64 * MIB, multicast_capacity_bytes=64 * MIB, multiprocessor_count=2),
    )
}


def machine(name: str, *, devices: int | None = None, **changes: Any) -> Machine:
    """Look a machine up by name, with some fields changed.

    Parameters
    ----------
    name : str
        One of `MACHINES`.
    devices : int, optional
        How many GPUs it has instead.
    **changes
        Fields of `Machine` to replace.

    Raises
    ------
    allranks.errors.UsageError
        If no machine has that name, or a field is unknown.

    Examples
    --------
    >>> machine("h100", devices=2).device_count
    2
    """
    found = MACHINES.get(name)
    if found is None:
        raise UsageError(f"machine={name!r}: no such machine; known are {', '.join(sorted(MACHINES))}")
    if devices is not None:
        changes["device_count"] = devices
    known = {field.name for field in dataclasses.fields(Machine)}
    for field in changes:
        if field not in known:
            raise UsageError(f"{field}={changes[field]!r}: a machine has no such field")
    return dataclasses.replace(found, **changes)
