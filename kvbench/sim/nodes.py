"""Carries the page store's commands out in virtual time, on modelled nodes: what `store.real` is on directories.

The nodes know which pages they hold, so that a read of a page that is not there fails as it does on a disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvbench.sim.agenda import Agenda
from kvbench.sim.device import Link, Node, NodeModel
from kvbench.store.keys import PageKey
from kvbench.store.protocol import Copy, Delete, Done, Io, Read, Status, Sync, Write

OnDone = Callable[[Done], None]

_SYNC = 1 << 62  # keys of syncs, apart from those of pages


class SimNodes:
    """Nodes by their models. `links`: the rate of a link for every group of `nodes_per_link` nodes, in order."""

    def __init__(
        self,
        agenda: Agenda,
        models: Sequence[NodeModel],
        page_bytes: int,
        seed: int,
        *,
        link_rate: int = 0,
        nodes_per_link: int = 1,
    ) -> None:
        self.held: list[set[PageKey]] = []
        self.nodes: list[Node] = []
        self._agenda, self._page_bytes, self._seed = agenda, page_bytes, seed
        self._link_rate, self._nodes_per_link = link_rate, nodes_per_link
        self._uses: dict[tuple[PageKey | None, int], int] = {}  # of a page on a node; each use has luck of its own
        self._link: Link | None = None
        for model in models:
            self.add(model)

    def add(self, model: NodeModel) -> None:
        """A node comes, with the next number."""
        number = len(self.nodes)
        if self._link_rate and number % self._nodes_per_link == 0:
            self._link = Link(self._link_rate)
        self.nodes.append(Node(model, number, self._seed, self._link))
        self.held.append(set())

    def submit(self, command: Io, on_done: OnDone) -> None:
        """Give a command to its node; a `Done` with its `io` follows."""
        now_ns = self._agenda.now_ns
        match command:
            case Read():
                self._read(command, on_done)
            case Write():
                self._write(command, (command.page, *command.more), on_done)
            case Copy():
                self._copy(command, on_done)
            case Delete():
                key = self._key(command.node, command.page)
                times_ns = self.nodes[command.node].touch(now_ns, key)
                self._agenda.at(times_ns[1], self._deleted, command, times_ns, on_done)
            case Sync():
                times_ns = self.nodes[command.node].sync(now_ns, self._key(command.node, None))
                self._agenda.at(times_ns[1], on_done, Done(command.io, Status.OK, times_ns[1] - times_ns[0]))

    def _read(self, command: Read, on_done: OnDone) -> None:
        node, pages = self.nodes[command.node], (command.page, *command.more)
        key = self._key(command.node, command.page)
        begin_ns, end_ns = node.read(self._agenda.now_ns, self._page_bytes * len(pages), key)
        status, bad = Status.OK, tuple(page for page in pages if page not in self.held[command.node])
        if bad:
            status = Status.EIO
        elif node.fails(key):
            status, bad = (Status.EIO, Status.SHORT, Status.CORRUPT)[key % 3], (command.page,)
        self._agenda.at(end_ns, on_done, Done(command.io, status, end_ns - begin_ns, bad))

    def _write(self, command: Write | Copy, pages: tuple[PageKey, ...], on_done: OnDone) -> None:
        key = self._key(command.node, command.page)
        times_ns = self.nodes[command.node].write(self._agenda.now_ns, self._page_bytes * len(pages), key)
        failed = self.nodes[command.node].fails(key)
        self._agenda.at(times_ns[1], self._written, command, pages, times_ns, failed, on_done)

    def _written(
        self,
        command: Write | Copy,
        pages: tuple[PageKey, ...],
        times_ns: tuple[int, int],
        failed: bool,
        on_done: OnDone,
    ) -> None:
        if not failed:
            self.held[command.node].update(pages)
        on_done(Done(command.io, Status.EIO if failed else Status.OK, times_ns[1] - times_ns[0]))

    def _copy(self, command: Copy, on_done: OnDone) -> None:
        """The write begins when all has been read: store and forward, run by run."""
        pages = (command.page, *command.more)
        if not self.held[command.source].issuperset(pages):
            self._agenda.at(self._agenda.now_ns, on_done, Done(command.io, Status.EIO, 0))
            return
        key = self._key(command.source, command.page)
        _, end_ns = self.nodes[command.source].read(self._agenda.now_ns, self._page_bytes * len(pages), key)
        self._agenda.at(end_ns, self._write, command, pages, on_done)

    def _deleted(self, command: Delete, times_ns: tuple[int, int], on_done: OnDone) -> None:
        self.held[command.node].difference_update((command.page, *command.more))
        on_done(Done(command.io, Status.OK, times_ns[1] - times_ns[0]))

    def _key(self, node: int, page: PageKey | None) -> int:
        """What an I/O's luck is keyed by: its first page, and how often that was used on this node before."""
        use = self._uses.get((page, node), 0)
        self._uses[page, node] = use + 1
        name = int.from_bytes(page.digest, "little") + page.rank if page else _SYNC
        return name + (use << 128)
