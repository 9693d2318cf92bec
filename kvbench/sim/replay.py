"""A run's events, kept, and given again to a fresh core: the commands must be the same. Pure.

That a simulation decides like a run on real disks is not assumed: both drive this code, and a log of one shows it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol


class Core(Protocol):
    """A sans-I/O core: the page store, or the engine that contains it."""

    def step(self, now_ns: int, event: Any) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Entry:
    now_ns: int
    event: Any
    commands: list[Any]


class Recorded:
    """A core whose events and commands are kept in `log`."""

    def __init__(self, core: Core) -> None:
        self.log: list[Entry] = []
        self._core = core

    def step(self, now_ns: int, event: Any) -> list[Any]:
        commands = self._core.step(now_ns, event)
        self.log.append(Entry(now_ns, event, list(commands)))
        return commands


def first_difference(log: Iterable[Entry], fresh: Core) -> tuple[int, list[Any]] | None:
    """Where a fresh core departs from a log: the entry's number and the commands given instead; None: nowhere."""
    for number, entry in enumerate(log):
        commands = fresh.step(entry.now_ns, entry.event)
        if commands != entry.commands:
            return number, commands
    return None
