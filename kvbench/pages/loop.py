"""Keeps a number of page I/Os under way: each that ends brings the next, until there are no more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from threading import Event, Lock

from kvbench.errors import StepError
from kvbench.store.protocol import Done, Io, Status
from kvbench.store.real import RealNodes


@dataclass(frozen=True, slots=True)
class Ended:
    """An I/O that was carried out: the stamps are taken around the I/O alone (monotonic)."""

    command: Io
    status: Status
    began_ns: int
    ended_ns: int


class ClosedLoop:
    """Commands given to nodes, `at_once` of them at any moment. Its two callbacks belong to the nodes' own.

    `ended` may be read at any time, and grows meanwhile.
    """

    def __init__(self, commands: Iterator[Io], at_once: int) -> None:
        self.ended: list[Ended] = []
        self._commands, self._at_once = commands, at_once
        self._under_way: dict[int, Io] = {}
        self._stamps: dict[int, tuple[int, int]] = {}
        self._lock, self._finished = Lock(), Event()
        self._nodes: RealNodes | None = None

    def start(self, nodes: RealNodes) -> None:
        self._nodes = nodes
        with self._lock:
            for command in islice(self._commands, self._at_once):
                self._submit(command)
            self._look_for_the_end()

    def stop(self) -> None:
        """Bring no more; what is under way still ends."""
        with self._lock:
            self._commands = iter(())

    def wait(self, timeout_s: float) -> None:
        """Wait until all have ended. Raises StepError when they have not within `timeout_s`."""
        if not self._finished.wait(max(0.0, timeout_s)):
            raise StepError(f"{len(self._under_way)} page I/Os did not end within {timeout_s:.0f} s")

    def on_io(self, io: int, began_ns: int, ended_ns: int) -> None:
        self._stamps[io] = began_ns, ended_ns

    def on_done(self, done: Done) -> None:
        with self._lock:
            self.ended.append(Ended(self._under_way.pop(done.io), done.status, *self._stamps.pop(done.io)))
            if command := next(self._commands, None):
                self._submit(command)
            self._look_for_the_end()

    def _submit(self, command: Io) -> None:
        assert self._nodes is not None
        self._under_way[command.io] = command
        self._nodes.submit(command)

    def _look_for_the_end(self) -> None:
        if not self._under_way:
            self._finished.set()
