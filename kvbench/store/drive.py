"""Drives one page store in real time, on the thread that calls: its I/Os on `RealNodes`, its timers between them."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from queue import Empty, SimpleQueue

from kvbench import clock
from kvbench.store.core import PageStore
from kvbench.store.protocol import Done, Event, Finish, Io, SetTimer, Timer
from kvbench.store.real import RealNodes


class Driver:
    """`events` is what the nodes put their `Done` into. `on_io` sees every I/O as it goes out.

    The pages that lie on the nodes already are taken over.
    """

    def __init__(
        self,
        store: PageStore,
        nodes: RealNodes,
        events: SimpleQueue[Done],
        on_io: Callable[[Io], None] = lambda command: None,
    ) -> None:
        self._store, self._nodes, self._events, self._on_io = store, nodes, events, on_io
        self._timers: list[tuple[int, int]] = []  # a heap of (when, id)
        self._ios = 0  # under way
        store.load(nodes.scan())

    def give(self, event: Event) -> list[Finish]:
        """Let the store take an event in, and carry out what follows; the operations that it has finished."""
        finished = []
        for command in self._store.step(clock.monotonic_ns(), event):
            if isinstance(command, Finish):
                finished.append(command)
            elif isinstance(command, SetTimer):
                heappush(self._timers, (command.at_ns, command.id))
            else:
                self._ios += 1
                self._on_io(command)
                self._nodes.submit(command)
        return finished

    def wait(self, until_ns: int | None = None) -> list[Finish]:
        """Wait for the next I/O that ends, or the next timer, and take it in; until a moment, if there is one."""
        wakes_ns = [at_ns for at_ns, _ in self._timers[:1]] + ([until_ns] if until_ns is not None else [])
        left_s = max(0.0, (min(wakes_ns) - clock.monotonic_ns()) / 1e9) if wakes_ns else None
        try:
            done = self._events.get(timeout=left_s)
        except Empty:
            is_due = self._timers and self._timers[0][0] == min(wakes_ns)
            return self.give(Timer(heappop(self._timers)[1])) if is_due else []
        self._ios -= 1
        return self.give(done)

    def settle(self) -> list[Finish]:
        """Until nothing is left to do."""
        finished: list[Finish] = []
        while self._ios or self._timers:
            finished += self.wait()
        return finished
