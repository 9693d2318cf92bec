"""Drives one core in virtual time: its I/Os on modelled nodes, its timers and steps on the agenda."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kvbench.engine.protocol import StartStep, StepDone
from kvbench.sim.agenda import Agenda
from kvbench.sim.nodes import SimNodes
from kvbench.store.protocol import Copy, Delete, Read, SetTimer, Sync, Timer, Write

_IOS = (Read, Write, Sync, Copy, Delete)


class Core(Protocol):
    """A sans-I/O core: the page store, or the engine that contains it."""

    def step(self, now_ns: int, event: Any) -> list[Any]: ...


class Driver:
    """`on_command` is given what the core tells its caller: operations and requests that end, tokens that come."""

    def __init__(
        self,
        agenda: Agenda,
        nodes: SimNodes,
        core: Core,
        on_command: Callable[[Any], None],
        on_io: Callable[[Any], None] | None = None,
    ) -> None:
        self._agenda, self._nodes, self._core = agenda, nodes, core
        self._on_command, self._on_io = on_command, on_io

    def give(self, event: Any) -> None:
        """Give the core an event now, and carry out what follows from it."""
        for command in self._core.step(self._agenda.now_ns, event):
            if isinstance(command, _IOS):
                if self._on_io:
                    self._on_io(command)
                self._nodes.submit(command, self.give)
            elif isinstance(command, SetTimer):
                self._agenda.at(command.at_ns, self.give, Timer(command.id))
            elif isinstance(command, StartStep):
                self._agenda.at(command.ends_ns, self.give, StepDone())
            else:
                self._on_command(command)
