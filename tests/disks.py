"""Nodes in memory that carry out a core's commands in any order, fail when told to, and check what must hold."""

from __future__ import annotations

import random
from collections import Counter

from kvbench.store.core import (
    Arrive,
    Command,
    Copy,
    Delete,
    Done,
    Event,
    Finish,
    NodeDown,
    NodeLeave,
    NodeUp,
    PageStore,
    Read,
    SetTimer,
    Status,
    Sync,
    Timer,
    Write,
)
from kvbench.store.keys import PageKey

Io = Read | Write | Copy | Delete | Sync


class Disks:
    """A core and its nodes. `held` is what lies on each node, whatever the core believes."""

    def __init__(self, core: PageStore, nodes: int, seed: int = 0, full_share: float = 0.0) -> None:
        self.core, self.full_share = core, full_share
        self.held: dict[int, Counter[PageKey]] = {node: Counter() for node in range(nodes)}
        self.down: set[int] = set()
        self.now_ns = 0
        self.rng = random.Random(seed)
        self.in_flight: dict[int, Io] = {}
        self.timers: list[tuple[int, int]] = []
        self.log: list[tuple[int, Event, list[Command]]] = []
        self.finished: list[Finish] = []
        self.most_held = 0
        self.asked: dict[int, Arrive] = {}

    # ------------------------------------------------------------ what a history is made of

    def ask(self, kind: str, *pages: PageKey, prefix: bytes = b"") -> None:
        event = Arrive(len(self.asked), kind, pages, prefix)
        self.asked[event.op] = event
        self.step(event)

    def write(self, *pages: PageKey, prefix: bytes = b"") -> None:
        self.ask("write", *pages, prefix=prefix)

    def read(self, *pages: PageKey) -> None:
        self.ask("read", *pages)

    def add_node(self) -> None:
        node = len(self.held)
        self.held[node] = Counter()
        self.step(NodeUp(node))

    def leave(self, node: int) -> None:
        self.step(NodeLeave(node))

    def fail(self, node: int) -> None:
        """What is in flight to the node is carried out or not, and nobody hears of it."""
        if node in self.down:
            return
        for io in [io for io, command in self.in_flight.items() if command.node == node]:
            command = self.in_flight.pop(io)
            if self.rng.random() < 0.5:
                self.carry_out(command)
        self.down.add(node)
        self.step(NodeDown(node))

    def revive(self, node: int) -> None:
        if node in self.down:
            self.down.discard(node)
            self.step(NodeUp(node))

    def go_on(self) -> bool:
        """End one I/O, whichever; where there is none, let the next timer run out. False: neither is there."""
        self.now_ns += 1000
        if self.in_flight:
            io = self.rng.choice(sorted(self.in_flight))
            command = self.in_flight.pop(io)
            self.step(Done(io, self.carry_out(command), 1000))
            return True
        if self.timers:
            at_ns, number = min(self.timers)
            self.timers.remove((at_ns, number))
            self.now_ns = max(self.now_ns, at_ns)
            self.step(Timer(number))
            return True
        return False

    def settle(self) -> None:
        for _ in range(100_000):
            if not self.go_on():
                return
        raise AssertionError("the store does not come to rest")

    # ------------------------------------------------------------ the nodes

    def step(self, event: Event) -> None:
        commands = self.core.step(self.now_ns, event)
        self.log.append((self.now_ns, event, commands))
        for command in commands:
            if isinstance(command, Finish):
                self.finished.append(command)
            elif isinstance(command, SetTimer):
                assert command.at_ns > self.now_ns
                self.timers.append((command.at_ns, command.id))
            else:
                assert command.node not in self.down
                assert command.io not in self.in_flight
                self.in_flight[command.io] = command

    def carry_out(self, command: Io) -> Status:
        held = self.held[command.node]
        pages = () if isinstance(command, Sync) else (command.page, *command.more)
        match command:
            case Read():
                assert all(page in held for page in pages), "a page is read where it is not"
            case Write() | Copy():
                if isinstance(command, Copy) and command.source in self.down:
                    return Status.EIO
                if self.rng.random() < self.full_share:
                    return Status.FULL
                if isinstance(command, Copy):
                    assert all(page in self.held[command.source] for page in pages)
                for page in pages:
                    held[page] = 1
            case Delete():
                for page in pages:
                    del held[page]
        return Status.OK

    # ------------------------------------------------------------ what must hold

    def copies(self, page: PageKey) -> list[int]:
        return [node for node, held in self.held.items() if page in held]

    def acknowledged(self) -> set[PageKey]:
        """The pages of all writes that ended well, and those of the others that are not named as bad."""
        return {
            page
            for finish in self.finished
            if self.asked[finish.op].kind != "read"
            for page in self.asked[finish.op].pages
            if page not in finish.bad
        }
