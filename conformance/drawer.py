"""Draws Programs in a process of its own, ahead of whoever runs them.

To draw a Program takes Hypothesis about as long as ranks take to play it. And what it keeps is so much that everything
else in its process, judging for one, takes twice as long.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import subprocess
from collections.abc import Callable, Generator
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe

from hypothesis.strategies import SearchStrategy

from allranks.conformance.draws import WITHOUT_FOLDER, draw_values, drawn_values
from allranks.conformance.program import Program
from allranks.conformance.strategies import programs
from allranks.conformance.worlds import Closing, few_collected
from allranks.processes.interpreter import interpreter
from allranks.processes.ties import end_with_parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """What to draw: so many Programs of a family, as `strategies.programs` makes them."""

    family: str
    count: int
    seed: int
    max_ranks: int
    min_ranks: int = 1
    min_steps: int | None = None
    max_steps: int | None = None

    def strategy(self) -> SearchStrategy[Program]:
        """Give what they are drawn from."""
        return programs(
            self.family,
            max_ranks=self.max_ranks,
            min_ranks=self.min_ranks,
            min_steps=self.min_steps,
            max_steps=self.max_steps,
        )


class Drawer(Closing):
    """A process that draws; it is started at once, and has something to give about half a second later.

    What is drawn is the same as if it were drawn here. If the process ends, the rest is drawn here.
    """

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        ours, theirs = Pipe()
        self._connection = ours
        self._running = subprocess.Popen(
            interpreter(__name__, str(theirs.fileno()), str(os.getpid())),
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # what it cannot draw is drawn here, and fails here
            env={**WITHOUT_FOLDER, **os.environ},
        )
        theirs.close()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._running.pid

    def drawn(self, draws: Draws) -> Generator[Program, None, None]:
        """Give Programs, each as soon as it is drawn; as many as fit into a pipe are drawn ahead."""
        if self._running.poll() is not None:
            self.close()
            self._start()
        given = 0
        try:
            with contextlib.suppress(EOFError, OSError, pickle.UnpicklingError):
                self._connection.send(draws)
                while given < draws.count:
                    program: Program = self._connection.recv()
                    given += 1
                    yield program
        finally:
            if given < draws.count:  # it has ended, or what is on its way will not be wanted
                self.close()
        if given < draws.count:
            yield from itertools.islice(drawn_values(draws.strategy(), draws.count, seed=draws.seed), given, None)

    def draw_programs(
        self, family: str, count: int, use: Callable[[Program, int], None], *, seed: int, max_ranks: int
    ) -> None:
        """Do what `draws.draw_programs` does."""
        draws = Draws(family=family, count=count, seed=seed, max_ranks=max_ranks)
        for number, program in enumerate(self.drawn(draws), start=1):
            use(program, number)

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._running.kill()
        self._running.wait()


def main(descriptor: str, parent: str) -> None:
    """Draw what is asked for, until nobody asks any more."""
    end_with_parent(int(parent))
    connection = Connection(int(descriptor))
    with few_collected():
        while True:
            try:
                draws: Draws = connection.recv()
                draw_values(draws.strategy(), draws.count, connection.send, seed=draws.seed)
            except (EOFError, OSError):
                return  # nobody is there any more
