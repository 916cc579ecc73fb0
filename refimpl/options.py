"""What a communicator is opened with."""

from __future__ import annotations

from dataclasses import dataclass

from allranks._native import refimpl as _refimpl
from allranks.refimpl.bootstrap import timeout_to_us
from allranks.refimpl.policies import ChannelCachePolicy, MulticastPolicy, ReleasePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a communicator; equal on all ranks.

    Parameters
    ----------
    timeout_s : float, optional
        Longest wait for other ranks, on the host and on the device, in seconds. None waits for ever, which suits only
        the simulated driver's runs: they know a stall by themselves.
    scratch_bytes : int
        Scratch memory of each rank, at least 1 MiB; rounded up to the allocation granularity.
    block_count : int
        Blocks of a collective's kernel, at most 16; 0: 1 on the simulated driver, 16 on a GPU.
    multicast_threshold_bytes : int, optional
        Collectives of at least so many bytes a rank go by multicast, where the machine and the PTX table of
        ``multimem`` instructions allow it; None: never.
    zero_copy : bool
        Whether collectives read and write connected buffers in place.
    cache_capacity : int
        Entries of the channel cache, 1 to 64.
    channel_cache, multicast, release : policy, optional
        Decisions taken otherwise; None: the right ones.
    """

    timeout_s: float | None = 30.0
    scratch_bytes: int = 2 * 1024 * 1024
    block_count: int = 0
    multicast_threshold_bytes: int | None = 64 * 1024
    zero_copy: bool = True
    cache_capacity: int = 32
    channel_cache: ChannelCachePolicy | None = None
    multicast: MulticastPolicy | None = None
    release: ReleasePolicy | None = None

    def native(self) -> _refimpl.Options:
        """Give the same as the native options."""
        never = 2**64 - 1
        options = _refimpl.Options()
        options.timeout_us = timeout_to_us(self.timeout_s)
        options.scratch_bytes = self.scratch_bytes
        options.block_count = self.block_count
        threshold = self.multicast_threshold_bytes
        options.multicast_threshold_bytes = never if threshold is None else threshold
        options.zero_copy = self.zero_copy
        options.cache_capacity = self.cache_capacity
        options.set_policies(self.channel_cache, self.multicast, self.release)
        return options
