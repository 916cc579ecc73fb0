"""What is to be said of a job that has ended: what went wrong in each process, and what is merely worth knowing.

A finding makes the command fail. Not findings: primary contexts that are alive at the end, which every program of the
runtime library leaves; failed queries, which have no effect; codes that only say how things are, such as
``CUDA_ERROR_NOT_READY``; handles of a process that was killed; kernels that were recorded and not executed.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from allranks.processes.watch import ThreadState
from allranks.sim.broker import error_name
from allranks.sim.job import Ended

_SHOWN: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is wrong.

    Parameters
    ----------
    rank : int, optional
        In which process; None: in the whole job.
    kind : str
        ``exit``, ``killed``, ``alive``, ``swallowed``, ``unsupported``, ``hang``, ``left_behind``, ``fault``, or the
        kind of an incident of the driver, such as ``over_release``.
    text : str
        What exactly.
    """

    rank: int | None
    kind: str
    text: str


def findings_of(ended: Ended, report: dict[str, Any]) -> list[Finding]:
    """Give all that is wrong, by rank.

    Parameters
    ----------
    ended : Ended
        How the processes ended.
    report : dict
        What the broker knows of them.
    """
    found = list(_of_job(ended))
    unmet = [fault["fault"] for fault in report["faults"] if not fault["met"]]
    found += [Finding(rank=None, kind="fault", text=f"{fault} did not come about: no such call") for fault in unmet]
    clients = report["clients"]
    for rank in range(len(ended.pids)):
        mine = [client for client in clients if client["rank"] == rank]
        found += _of_rank(rank, ended, mine)
    return found


def _of_job(ended: Ended) -> Iterator[Finding]:
    if ended.hang == "blocked":
        yield Finding(rank=None, kind="hang", text="blocked: every process that is left waits, and none can ever go on")
    elif ended.hang == "timeout":
        yield Finding(rank=None, kind="hang", text="the job did not end before --timeout")
    if ended.left_behind:
        text = f"{ended.left_behind} processes were there still when all ranks had ended, and were killed"
        yield Finding(rank=None, kind="left_behind", text=text)


def _of_rank(rank: int, ended: Ended, clients: list[dict[str, Any]]) -> Iterator[Finding]:
    status = ended.statuses.get(rank)
    was_ended = rank in ended.stuck
    if was_ended:
        for text in waits_of(rank, ended):
            yield Finding(rank=rank, kind="hang", text=text)
    elif status is not None and status < 0:
        yield Finding(rank=rank, kind="killed", text=f"killed by {_signal_name(-status)}")
    elif status:
        yield Finding(rank=rank, kind="exit", text=f"exit code {status}")
    for client in clients:
        if status is not None and status >= 0 and not was_ended:
            yield from _alive(rank, client["ledger"])
        if status == 0:
            for failed in client["failed"]:
                if not failed["query"] and not failed["answer"]:
                    yield Finding(rank=rank, kind="swallowed", text=f"{failure(failed)}, and the exit code is 0")
        for name in unsupported(client):
            yield Finding(rank=rank, kind="unsupported", text=name)
        for incident in client["incidents"]:
            if incident["kind"] != "unsupported":
                rests = f" (rests on the assumption {incident['assumption']})" if incident["assumption"] else ""
                text = f"{incident['call']}: {incident['detail']}{rests}"
                yield Finding(rank=rank, kind=incident["kind"], text=text)


def _alive(rank: int, ledger: Iterable[dict[str, Any]]) -> Iterator[Finding]:
    """Handles of one kind that one call made are one finding."""
    kept = [entry for entry in ledger if entry["kind"] != "context"]
    counts = Counter((entry["kind"], entry["call"]) for entry in kept)
    for (kind, call), count in counts.items():
        some = [entry for entry in kept if (entry["kind"], entry["call"]) == (kind, call)]
        size = sum(entry["bytes"] for entry in some)
        of = f", {size} bytes" if size else ""
        text = f"{count} {kind}{'s' if count > 1 else ''} made by {call}{of}"
        yield Finding(rank=rank, kind="alive", text=text)


def unsupported(client: dict[str, Any]) -> list[str]:
    """Give the calls and features that the process asked for and that are not simulated."""
    incidents = {incident["call"] for incident in client["incidents"] if incident["kind"] == "unsupported"}
    return sorted({*client["unsupported"], *incidents})


def failure(failed: dict[str, Any]) -> str:
    """Say which call answered which code, and how often."""
    count = failed["count"]
    return f"{failed['call']} answered {error_name(failed['code'])}{f' {count} times' if count > 1 else ''}"


def waits_of(rank: int, ended: Ended) -> list[str]:
    """Say what a rank that was ended waited in, and for whom: first in the driver, then elsewhere."""
    clients = ended.waiting["clients"] if ended.waiting is not None else []
    said = []
    for client in clients:
        if client["rank"] == rank and client["alive"]:
            for wait in client["waits"]:
                ranks = ", ".join(map(str, wait["waits_for"]))
                whom = f", for rank{'s' if len(wait['waits_for']) > 1 else ''} {ranks}" if ranks else _without(ended)
                said.append(f"waits in {wait['call']} for {wait['object']}{whom}")
    return said or _at(ended.stuck[rank])


def _without(ended: Ended) -> str:
    """Say who cannot be waited for any more, where the driver knows nobody who is missing."""
    gone = sorted(set(ended.statuses) - set(ended.stuck))
    return f"; rank{'s' if len(gone) > 1 else ''} {', '.join(map(str, gone))} had ended" if gone else ""


def _at(threads: list[ThreadState]) -> list[str]:
    states = Counter(_thread(thread) for thread in threads)
    return [f"{text}{f' ({count} threads)' if count > 1 else ''}" for text, count in states.items()][:_SHOWN]


def _thread(thread: ThreadState) -> str:
    if thread.state in ("computing", "stopped"):
        return f"a thread is {thread.state}"
    on = f" on {thread.object}" if thread.object else ""
    limit = ", with a time-out" if thread.state == "timed" else ""
    return f"waits outside of the driver, in {thread.call}{on}{limit}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def as_json(ended: Ended, report: dict[str, Any], found: list[Finding], command: list[str]) -> dict[str, Any]:
    """Give everything for a file."""
    processes = [
        {
            "rank": rank,
            "pid": pid,
            "status": ended.statuses.get(rank),
            "ended_by_allranks": rank in ended.stuck,
            "clients": [client for client in report["clients"] if client["rank"] == rank],
        }
        for rank, pid in enumerate(ended.pids)
    ]
    return {
        "command": command,
        "seconds": round(ended.seconds, 3),
        "hang": ended.hang,
        "findings": [asdict(finding) for finding in found],
        "processes": processes,
        "waiting": ended.waiting["clients"] if ended.waiting is not None else None,
        "used_afterwards": report["used"],
        "refused_connections": report["refused"],
        "faults": report["faults"],
    }


def lines(ended: Ended, report: dict[str, Any], found: list[Finding]) -> Iterator[str]:
    """Give the report as text: one line a process, below it what is wrong and what is worth knowing."""
    for finding in found:
        if finding.rank is None:
            yield f"{finding.kind}: {finding.text}"
    for rank in range(len(ended.pids)):
        status = ended.statuses.get(rank)
        mine = [client for client in report["clients"] if client["rank"] == rank]
        how = "ended by allranks" if rank in ended.stuck else f"status {status}"
        yield f"rank {rank}: {how}, {sum(client['calls'] for client in mine)} driver calls"
        for finding in found:
            if finding.rank == rank:
                yield f"  {finding.kind}: {finding.text}"
        yield from _worth_knowing(mine, status)
    if not found:
        yield "all is well"


def _worth_knowing(clients: list[dict[str, Any]], status: int | None) -> Iterator[str]:
    for client in clients:
        for failed in client["failed"]:
            if failed["query"] or failed["answer"] or status != 0:
                yield f"  ({failure(failed)})"
        for name, count in client["kernels"].items():
            yield f"  (kernel {name}: launched {count} times, recorded and not executed)"
        contexts = sum(entry["kind"] == "context" for entry in client["ledger"])
        if contexts and not client["alive"]:
            yield f"  ({contexts} primary context{'s' if contexts > 1 else ''} alive at the end)"
