"""The reference communicator: collectives by loads and stores, on a CUDA driver that is loaded at run time.

Ranks open a `Communicator` each over a `Bootstrap`. What is collective succeeds on every rank or raises on every rank,
naming the rank at fault. Addresses are device addresses; sizes and offsets are in bytes, counts in elements.

Examples
--------
On two ranks, each on its own thread, over the simulated driver::

    rendezvous = InProcessRendezvous(2)
    comm = Communicator(bootstrap=rendezvous.bootstrap(rank), driver=driver, device=rank)
    comm.all_reduce(send, receive, count, "float32", "sum")
    comm.synchronize()
    comm.close()
"""

from __future__ import annotations

from allranks.refimpl.bootstrap import Bootstrap, InProcessRendezvous
from allranks.refimpl.channels import Channels
from allranks.refimpl.communicator import Communicator
from allranks.refimpl.multicast import Binding, MulticastGroup
from allranks.refimpl.options import Options
from allranks.refimpl.policies import (
    ChannelCachePolicy,
    MulticastPolicy,
    RegionIdentity,
    ReleasePolicy,
    Resource,
    SegmentIdentity,
)
from allranks.refimpl.types import DATA_TYPES, OPERATIONS, DataType, Operation

__all__ = [
    "DATA_TYPES",
    "OPERATIONS",
    "Binding",
    "Bootstrap",
    "ChannelCachePolicy",
    "Channels",
    "Communicator",
    "DataType",
    "InProcessRendezvous",
    "MulticastGroup",
    "MulticastPolicy",
    "Operation",
    "Options",
    "RegionIdentity",
    "ReleasePolicy",
    "Resource",
    "SegmentIdentity",
]
