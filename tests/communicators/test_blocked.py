"""World `mpi`: ranks that are blocked for good are judged at once, those that poll at the deadline."""

from __future__ import annotations

import ctypes
import os
import select

import pytest

from allranks.conformance import program as p
from allranks.conformance.backend import RankContext
from allranks.conformance.checks import judge
from allranks.conformance.data import ITEM_BYTES
from allranks.conformance.launchers import family_of, mpi_library
from allranks.conformance.program import Operand, Program, Region
from allranks.conformance.running import make_world
from allranks.conformance.settings import settings_of
from allranks.conformance.trace import Trace

pytestmark = pytest.mark.usefixtures("mpi")

# No test waits for it, unless a verdict is missing.
FAR_S = 120.0
NEAR_S = 1.0
REGION = Operand(Region())
GATHERING = Program(
    rank_count=2,
    steps=(
        p.Allocate(size_bytes=4096),
        p.Allocate(size_bytes=8192),
        p.AllGather(send=REGION, receive=Operand(Region(buffer=1)), count=64),
    ),
)


class Pipes:
    """Right with one rank; with more each reads from a pipe of its own, which nobody ever writes to."""

    def __init__(self, context: RankContext) -> None:
        self.context = context
        self.pipe = os.pipe()

    def all_gather(self, send: int, receive: int, count: int, dtype: str) -> None:
        """Gather, or wait."""
        if self.context.rank_count > 1:
            self.wait()
        ctypes.memmove(receive, send, count * ITEM_BYTES[dtype])

    def wait(self) -> None:
        """Read from the pipe."""
        os.read(self.pipe[0], 1)

    def close(self) -> None:
        """Close the pipe."""
        pipe, self.pipe = self.pipe, (-1, -1)
        for descriptor in pipe:
            if descriptor >= 0:
                os.close(descriptor)


class _OneOfTwo(Pipes):
    """Rank 1 reads, and rank 0 goes on to where the world's ranks meet."""

    def wait(self) -> None:
        if self.context.rank == 1:
            super().wait()


class _Polling(Pipes):
    """Looks at the pipe again and again."""

    def wait(self) -> None:
        while not select.select([self.pipe[0]], [], [], 0.005)[0]:
            pass


class _Later(Pipes):
    """Rank 1 is asked for longer than it takes to be called blocked, while rank 0 waits in the world itself."""

    def wait(self) -> None:
        if self.context.rank == 1:
            select.select([self.pipe[0]], [], [], 1.0)


class AllRead:
    """Every rank is blocked."""

    name = "pipes"
    memory_spaces = ("host",)
    communicator: type[Pipes] = Pipes

    def capabilities(self, context: RankContext) -> frozenset[str]:
        """Say what there is."""
        return frozenset({"all_gather"})

    def open(self, context: RankContext) -> Pipes:
        """Make a communicator."""
        return self.communicator(context)


class OneReads(AllRead):
    """One rank is blocked, the other in the world."""

    communicator = _OneOfTwo


class Polls(AllRead):
    """No rank is blocked."""

    communicator = _Polling


class TakesItsTime(AllRead):
    """One rank waits with a time-out, and goes on."""

    communicator = _Later


def ran(backend: str, deadline_s: float) -> Trace:
    """Run the Program on two ranks, and then one that goes well."""
    settings = settings_of(backend=f"{__name__}:{backend}", world="mpi", ranks=2, deadline_s=deadline_s)
    with make_world(settings) as world:
        trace = world.run(GATHERING)
        after = world.run(Program(rank_count=1, steps=GATHERING.steps))
        assert after.first_trouble() is None
    return trace


@pytest.fixture
def silent_runtime(request: pytest.FixtureRequest) -> None:
    """Leave tests out where a thread of the library's own has a timer in every rank."""
    request.getfixturevalue("mpi")
    if family_of(mpi_library()) != "mpich":
        pytest.skip("only MPICH: in each rank of Open MPI a thread waits with a time-out, so none is blocked")


@pytest.mark.usefixtures("silent_runtime")
@pytest.mark.parametrize(
    ("backend", "said"),
    [
        ("AllRead", ["waits in read on a pipe, without a time-out, for ever"] * 2),
        ("OneReads", ["", "waits in read on a pipe, without a time-out, for ever"]),
    ],
)
def test_ranks_that_are_blocked_for_good_are_judged_before_any_deadline(backend: str, said: list[str]) -> None:
    trace = ran(backend, FAR_S)
    assert [moment["verdict"] for moment in trace.moments] == ["blocked"]
    assert [events[2].error for events in trace.events] == said
    assert trace.events[1][2].error_type == "Blocked"
    assert any("in wait" in frame for frame in trace.events[1][2].raised_at)
    assert judge(GATHERING, trace)["RDV-1"].violations


def test_ranks_that_poll_are_judged_at_the_deadline() -> None:
    trace = ran("Polls", NEAR_S)
    assert [moment["verdict"] for moment in trace.moments] == ["waiting"]
    assert {events[2].error_type for events in trace.events} == {"Waiting"}


def test_a_rank_that_goes_on_is_never_called_blocked() -> None:
    trace = ran("TakesItsTime", FAR_S)
    assert trace.moments == ()
    assert trace.first_trouble() is None
