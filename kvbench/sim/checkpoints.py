"""Checkpoints that are written beside the requests: snapshots at intervals, each by several writers. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvbench.sim.agenda import Agenda
from kvbench.store.keys import PageKey
from kvbench.store.protocol import Arrive
from kvbench.units import Seconds, SizeBytes


@dataclass(frozen=True, slots=True)
class Snapshots:
    """A snapshot of `size` begins `every` so often, or when the one before is saved; it is kept.

    `writers` write it at once, each one page after the other. `nodes`: of the site's nodes, how many are set aside for
    checkpoints where a strategy wants that.
    """

    every: Seconds
    size: SizeBytes
    writers: int = 8
    nodes: int = 1

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    def __post_init__(self) -> None:
        if not (self.every and self.size and self.writers and self.nodes):
            raise ValueError("checkpoints need an interval, a size, writers and nodes above 0")


class CheckpointWriters:
    """Gives the store writes, and is told which have ended. Its operations have numbers below 0."""

    def __init__(
        self, agenda: Agenda, snapshots: Snapshots, page_bytes: int, last_ns: int, give: Callable[[Arrive], None]
    ) -> None:
        """No snapshot begins after `last_ns`."""
        self.saves_s: list[float] = []
        self._agenda, self._snapshots, self._give, self._last_ns = agenda, snapshots, give, last_ns
        self._pages = -(-snapshots.size // page_bytes)  # of a snapshot
        self._begun = self._written = self._end = 0  # pages of all snapshots so far; `_end` with the rest of this one
        self._began_ns = 0
        self._plan(round(1e9 * snapshots.every))

    def done(self) -> None:
        """A page is saved."""
        self._written += 1
        if self._written < self._end:
            self._write()
            return
        self.saves_s.append((self._agenda.now_ns - self._began_ns) / 1e9)
        self._plan(self._began_ns + round(1e9 * self._snapshots.every))

    def _plan(self, at_ns: int) -> None:
        if max(at_ns, self._agenda.now_ns) <= self._last_ns:
            self._agenda.at(at_ns, self._begin)

    def _begin(self) -> None:
        self._began_ns = self._agenda.now_ns
        self._end = self._begun + self._pages
        for _ in range(min(self._snapshots.writers, self._pages)):
            self._write()

    def _write(self) -> None:
        if self._begun < self._end:
            self._begun += 1
            page = PageKey.named(f"checkpoint {self._begun}")
            self._give(Arrive(-self._begun, "checkpoint", (page,)))
