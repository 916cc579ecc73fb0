"""One rank's part in a run: it opens a communicator, carries out planned steps, and notes how each of them ended."""

from __future__ import annotations

from collections.abc import Callable, Hashable, MutableSequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from allranks.conformance import model
from allranks.conformance import program as p
from allranks.conformance.backend import CAPABILITIES, Backend, MemorySpace, spaces_of
from allranks.conformance.plan import Planned
from allranks.conformance.program import Program
from allranks.conformance.trace import CLOSING, OPENING, PROBING, Event, Placed, Usage
from allranks.conformance.worlds.actions import COMMUNICATOR, USER, Actions, Seen
from allranks.conformance.worlds.meeting import Meeting
from allranks.conformance.worlds.memory import UserMemory
from allranks.conformance.worlds.site import Site
from allranks.conformance.worlds.stacks import Abandoned, raised_at
from allranks.driver import Driver
from allranks.errors import DriverError, Stalled, UsageError, WorldError

T = TypeVar("T")

_LAUNCH_TIMEOUT: Final = 702  # what the simulated driver answers to a rank that a stall has unwound
_OF_USER: Final = (p.Allocate, p.Free)
USE_NEEDS: Final = {"connect": "channels", "all_reduce": "all_reduce"}  # what is tried after close
_NOT_REACHED: Final = Event()
_NOT_DONE: Final = ("error", "not_reached")  # after a part that was so, a rank does no more of the compound step
_PROBES: Final = 2  # usable means right bytes every time, broken an error every time


def _to_nobody(number: int) -> None:
    """Listen to no session."""


def _unknown() -> None:
    """Leave the counting to another rank."""


def _text_of(error: BaseException) -> str:
    """Give the text of an exception of the communicator under test, whose own ``__str__`` may raise, too."""
    try:
        return str(error)
    except Exception as other:  # noqa: BLE001 -- as above
        return f"an error without a text: its __str__ raises {type(other).__name__}"


@dataclass(slots=True)
class Context:
    """What the backend gets; see `allranks.conformance.backend.RankContext`."""

    rank: int
    rank_count: int
    device: int
    driver: Driver
    memory_space: MemorySpace
    timeout_s: float
    meeting: Meeting

    def exchange(self, value: T, what: str, members: tuple[int, ...] | None = None) -> list[T]:
        """Give the value of every rank, or of every member."""
        return self.meeting.exchange(self.rank, value, what, self.timeout_s, members)

    def barrier(self, what: str) -> None:
        """Wait for every rank."""
        self.meeting.exchange(self.rank, None, what, self.timeout_s)

    def shared(self, key: Hashable, make: Callable[[], T]) -> T:
        """Give the one object of that key."""
        return self.meeting.shared(key, make)


@dataclass(slots=True, kw_only=True)
class Session:
    """One rank, from open to close."""

    program: Program
    plan: list[Planned]
    ranges: dict[tuple[int, int], list[tuple[int, int]]]  # where steps touch buffers, by (rank, buffer)
    backend: Backend
    context: Context
    site: Site
    owners: dict[int, tuple[int, int, int]]  # as of `Actions`, shared by the sessions
    board: MutableSequence[int]  # [rank] is the label of what the rank does; outlives the process if it is shared
    told: Callable[[int], None] = _to_nobody  # called with OPENING, and with a step's number, once its event is there
    events: list[Event] = field(default_factory=list)
    placed: dict[int, Placed] = field(default_factory=dict)
    usage: list[Usage] = field(default_factory=list)
    contents: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    probes: list[Event] = field(default_factory=list)
    after_close: list[Event] = field(default_factory=list)
    opening: Event = field(default_factory=Event)
    closing: Event = field(default_factory=Event)
    capabilities: frozenset[str] = frozenset()
    counts: bool = False  # whether the communicator is there and counts its internal rendezvous
    entered: int = -1  # internal rendezvous after the last step; -1: not known
    memory: UserMemory | None = None
    actions: Actions | None = None
    failure: BaseException | None = None  # what went wrong in this package itself
    rank: int = field(init=False)

    def __post_init__(self) -> None:
        self.rank = self.context.rank

    def play(self) -> None:
        """Do everything; errors become events."""
        self.events = [_NOT_REACHED] * len(self.plan)
        opening = self.opening = self._attempt(OPENING, "open", USER, self._open)
        self.told(OPENING)
        if self.actions is not None:
            for step in self.plan:
                self._do(step, self.actions)
                self.told(step.number)
                if self.events[step.number].status == "stalled":
                    return
        try:
            if self._all_well(opening):
                assert self.actions is not None
                self.contents = self.actions.look(self.ranges)
            elif self.actions is not None and "all_reduce" in self.capabilities:
                self._probe(self.actions)
        except Stalled as error:
            self._note(self.closing, error)
            return
        closing = self._attempt(CLOSING, "close", COMMUNICATOR, self._close)
        self.closing = closing if opening.status == "ok" else opening

    def _all_well(self, opening: Event) -> bool:
        """Meet the others after the last step, and find out whether all collective steps ended well everywhere."""
        well = opening.status == "ok" and all(
            self.events[step.number].status in ("ok", "unsupported")
            for step in self.plan
            if step.applies and self.rank in step.ranks
        )
        return all(self.context.meeting.exchange(self.rank, well, "world: after the last step", None))

    def _attempt(self, label: int, operation: str, owner: int, action: Callable[..., Seen], *given: Planned) -> Event:
        """Carry out an action under a label; its outcome as an event."""
        self.site.label(label, operation, owner=owner)
        self.board[self.rank] = label
        event, before = Event(status="ok"), self.entered
        try:
            event.observed = action(*given) or {}
        except Abandoned:
            raise
        except BaseException as error:  # noqa: BLE001 -- whatever the communicator under test raises is a finding
            self._note(event, error)
        if self.counts and (owner == COMMUNICATOR or label == OPENING):  # what the user does alone is none of its
            self.entered = after = self._counted(event)
            if before >= 0 and after >= 0:
                event.rendezvous = after - before
        return event

    def _counted(self, event: Event) -> int:
        """Give the rendezvous so far, -1 if unknown; one that cannot be asked fails in the step of the event."""
        try:
            return self._rendezvous()
        except Exception as error:  # noqa: BLE001 -- as above
            if event.status == "ok":
                self._note(event, error)
            return -1

    @staticmethod
    def _note(event: Event, error: BaseException) -> None:
        event.error = _text_of(error)
        event.error_type = type(error).__name__
        if not isinstance(error, WorldError | UsageError):
            event.raised_at = raised_at(error)
        event.error_code = error.name if isinstance(error, DriverError) else ""
        unwound = isinstance(error, DriverError) and error.code == _LAUNCH_TIMEOUT
        event.status = "stalled" if isinstance(error, Stalled) or unwound else "error"

    def _rendezvous(self) -> int:
        if self.actions is None:
            return -1
        count = self.actions.communicator.rendezvous_count
        if type(count) is not int:
            raise TypeError(f"rendezvous_count={count!r}: wants int")
        return count

    def _open(self) -> None:
        context = self.context
        if context.memory_space not in spaces_of(self.backend):
            raise UsageError(f"memory_space={context.memory_space}: {self.backend.name} works on no such memory")
        self.site.open()
        pieces = max((step.count for step in self.plan if isinstance(step.step, p.Put | p.SubsetPut)), default=0)
        self.memory = UserMemory(self.site, pieces * context.rank_count)
        self.site.label(OPENING, "open", owner=COMMUNICATOR)
        said = frozenset(self.backend.capabilities(context))
        if not said <= set(CAPABILITIES):
            unknown = ", ".join(sorted(map(str, said - set(CAPABILITIES))))
            raise UsageError(f"capabilities={unknown}: known are {', '.join(CAPABILITIES)}")
        self.capabilities = said
        self.actions = Actions(
            program=self.program,
            rank=self.rank,
            site=self.site,
            meeting=context.meeting,
            memory=self.memory,
            communicator=self.backend.open(context),
            owners=self.owners,
            placed=self.placed,
        )
        self.counts = "rendezvous_count" in self.capabilities

    def _close(self) -> None:
        try:
            if self.actions is not None:
                actions, self.actions = self.actions, None
                try:
                    actions.communicator.close()
                    self._use_after_close(actions)
                finally:
                    actions.objects.clear()
        finally:
            self.site.label(CLOSING, "close", owner=USER)
            if self.memory is not None:
                self.memory.free_all()
            self.site.close()

    def _use_after_close(self, actions: Actions) -> None:
        """Close once more, and use what is closed, on a buffer that is still there."""
        held = next(iter(actions.memory.live.values()), None)
        for name in ("close", *(name for name in ("connect", "all_reduce") if held is not None)):
            if name != "close" and USE_NEEDS[name] not in self.capabilities:
                continue
            event = Event(status="ok", observed={"call": name})
            try:
                if name == "close":
                    actions.communicator.close()
                elif held is not None and name == "connect":
                    actions.communicator.connect(held.address, held.size_bytes)
                elif held is not None:
                    actions.communicator.all_reduce(held.address, held.address, 1, "uint8", "max")
            except Exception as error:  # noqa: BLE001 -- as in `_attempt`
                self._note(event, error)
            self.after_close.append(event)

    def _do(self, planned: Planned, actions: Actions) -> None:
        if not planned.applies or self.rank not in planned.ranks:
            event = Event(status="skipped")
        elif planned.capability and planned.capability not in self.capabilities:
            event = Event(status="unsupported")
        elif planned.follows and self.events[planned.number - 1].status in _NOT_DONE:
            event = Event(status="not_reached")
        elif planned.needs >= 0 and planned.needs not in actions.objects:
            event = Event(status="skipped")  # what it needs could not be made
        else:
            owner = USER if isinstance(planned.step, _OF_USER) else COMMUNICATOR
            event = self._attempt(planned.number, planned.operation, owner, actions.of(planned), planned)
        self.events[planned.number] = event
        if event.status != "stalled" and planned.ends_round is not None:
            self._round_ends(planned, planned.ends_round, actions)

    def _round_ends(self, planned: Planned, turn: int, actions: Actions) -> None:
        if self.context.memory_space == "host":
            return  # nobody counts there, so ranks need not wait until it has been done
        try:
            used = actions.meet_and_look(
                planned.number, "end of round", self.site.usage if self.rank == 0 else _unknown
            )
            if used is not None:
                self.usage.append(Usage(planned.number, turn, *used))
        except Stalled as error:
            self._note(self.events[planned.number], error)

    def _probe(self, actions: Actions) -> None:
        """After a failure: is the communicator usable, or broken? Collectives on a fresh buffer tell."""
        operand = model.probe_operand(self.program, self.rank)

        def ask() -> dict[str, Any]:
            self.site.label(PROBING, "probe", owner=USER)
            send = actions.memory.fresh(4096).address
            self.site.label(PROBING, "probe", owner=COMMUNICATOR)
            receive = send + 2048
            self.site.poke(send, operand)
            actions.communicator.all_reduce(send, receive, len(operand), model.PROBE_DTYPE, "sum")
            return {"result": self.site.peek(receive, operand.nbytes)}

        for _ in range(_PROBES):
            self.probes.append(self._attempt(PROBING, "probe", COMMUNICATOR, ask))
