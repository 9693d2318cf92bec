"""The virtual clock: what happens when, in one heap, ordered by time and then by sequence. Pure."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class Agenda:
    """Actions and their moments, in nanoseconds from 0. What is due at the same moment happens in the order of `at`."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0

    def at(self, at_ns: int, action: Callable[..., None], *args: Any) -> None:
        """Call `action(*args)` at a moment; one that has passed means now."""
        self._sequence += 1
        heappush(self._heap, (max(at_ns, self.now_ns), self._sequence, action, args))

    def run(self) -> None:
        """Let everything happen, until nothing is left to happen."""
        while self._heap:
            self.now_ns, _, action, args = heappop(self._heap)
            action(*args)
