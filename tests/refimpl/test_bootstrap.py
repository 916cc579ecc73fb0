"""The bootstrap between threads: values, deadlines, who is named, and what becomes of the others.

Not verified here: bootstraps between processes.
"""

from __future__ import annotations

import pytest

from allranks import refimpl
from allranks.errors import PeerLost, Stalled, Timeout, UsageError
from tests.refimpl.ranks_world import Rank, run_ranks


def test_all_gather_gives_everybodys_bytes_in_rank_order() -> None:
    def body(rank: Rank) -> list[list[bytes]]:
        bootstrap = rank.rendezvous.bootstrap(rank.rank)
        return [bootstrap.all_gather(bytes([rank.rank, i])) for i in range(5)]

    values = run_ranks(3, body).succeed()
    assert values == [[[bytes([rank, i]) for rank in range(3)] for i in range(5)]] * 3


def test_send_and_receive_by_tag() -> None:
    def body(rank: Rank) -> tuple[bytes, bytes]:
        bootstrap = rank.rendezvous.bootstrap(rank.rank)
        peer = 1 - rank.rank
        bootstrap.send(peer, b"first", tag=1)
        bootstrap.send(peer, b"second", tag=2)
        return bootstrap.recv(peer, tag=2), bootstrap.recv(peer, tag=1)

    assert run_ranks(2, body).succeed() == [(b"second", b"first")] * 2


def test_sessions_of_one_rendezvous_do_not_hear_each_other() -> None:
    def body(rank: Rank) -> list[bytes]:
        first, second = rank.rendezvous.bootstrap(rank.rank), rank.rendezvous.bootstrap(rank.rank)
        second.send(1 - rank.rank, b"second")
        first.send(1 - rank.rank, b"first")
        return [first.recv(1 - rank.rank), second.recv(1 - rank.rank)]

    assert run_ranks(2, body).succeed() == [[b"first", b"second"]] * 2


def test_a_rank_that_does_not_come_is_named_and_too_late_later() -> None:
    def body(rank: Rank) -> BaseException | None:
        bootstrap = rank.rendezvous.bootstrap(rank.rank)
        bootstrap.set_timeout(2.5)
        if rank.rank == 1:
            late = rank.rendezvous.bootstrap(rank.rank)  # a wait of its own that outlasts the others'
            late.set_timeout(5)
            with pytest.raises(Timeout):
                late.barrier()
        try:
            bootstrap.barrier("meeting")
        except PeerLost as error:
            return error.with_traceback(None)
        return None

    errors = run_ranks(3, body).succeed()
    assert [type(error) for error in errors] == [Timeout, PeerLost, Timeout]
    assert str(errors[0]) == "rank 0: bootstrap.all_gather (meeting): waited 2.5 s for rank 1"
    assert [error.ranks for error in errors] == [(1,), (1,), (1,)]
    assert "gave up waiting for rank 1" in str(errors[1])


def test_a_rank_that_leaves_ends_the_waits_for_it() -> None:
    def body(rank: Rank) -> str | None:
        bootstrap = rank.rendezvous.bootstrap(rank.rank)
        if rank.rank == 2:
            bootstrap.leave()
            return None
        with pytest.raises(PeerLost) as caught:
            bootstrap.barrier()
        assert caught.value.ranks == (2,)
        return str(caught.value)

    assert "rank 2 has left" in run_ranks(3, body).succeed()[0]


def test_a_stall_is_known_without_a_deadline() -> None:
    def body(rank: Rank) -> None:
        if rank.rank == 0:
            rank.rendezvous.bootstrap(0).barrier("never")

    outcome = run_ranks(2, body)
    assert outcome.stalled
    assert isinstance(outcome.errors[0], Stalled)
    assert outcome.errors[0].ranks == (1,)
    waits = outcome.report["moments"][-1]["waits"]
    assert [(wait["call"], wait["object"], wait["waits_for"]) for wait in waits] == [
        ("bootstrap.all_gather", "never", [1])
    ]


def test_wrong_arguments() -> None:
    with pytest.raises(UsageError, match="rank_count=0"):
        refimpl.InProcessRendezvous(0)
    with pytest.raises(UsageError, match="rank=2: ranks are 0 to 1"):
        refimpl.InProcessRendezvous(2).bootstrap(2)
