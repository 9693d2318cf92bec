"""Pages that change their place: copy, make durable, verify, switch, delete. Pure.

A page is readable throughout and never lost: the copy that is left is deleted after the other has been read back
right, and after the last read of it has ended. What fails half-way leaves the page where it was and removes what was
begun; on a node that is down that waits until the node is back. Nothing is kept between runs: after a restart the
pages that are found are compared with where they should be, and the work goes on from there.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from enum import Enum

from kvbench.store.cluster import ClusterView
from kvbench.store.directory import Directory
from kvbench.store.keys import PageKey
from kvbench.store.pace import TokenBucket, TtftGuard
from kvbench.store.protocol import MovePace, Status
from kvbench.store.queues import Action, Lane, Queues, Work


@dataclass(frozen=True, slots=True)
class Move:
    """Bring pages from a node to another, as a whole. `keeps_source`: the copies on both are wanted from now on."""

    pages: tuple[PageKey, ...]
    source: int
    target: int
    keeps_source: bool = False


@dataclass(frozen=True, slots=True)
class Drop:
    """Delete a copy. `is_last`: also when it is the only one, that is, give the page up."""

    page: PageKey
    node: int
    is_last: bool = False


class MoveSource:
    """Who says which pages should move. It is told what happens, and asked for one step at a time."""

    def stored(self, page: PageKey, node: int, directory: Directory) -> None:
        """A node has a copy of a page: a new one, or still the old one after a move that was given up."""

    def read(self, now_ns: int, page: PageKey, node: int, directory: Directory) -> None:
        """A page is read from a node."""

    def next(self, now_ns: int, directory: Directory, busy: Container[PageKey]) -> Move | Drop | None:
        """What should be done next, to pages that are not `busy`; None: nothing at the moment."""
        return None

    def has_more(self, directory: Directory) -> bool:
        """Whether there are pages that it has yet to look at."""
        return False


class _Stage(Enum):
    COPY = "copy"
    SYNC = "sync"
    VERIFY = "verify"
    DRAIN = "drain"  # the last reads of the copies that will be deleted
    DELETE = "delete"


@dataclass(slots=True)
class _Task:
    """Pages that take room on `node`: the target until the switch, then the one that they are deleted from."""

    pages: tuple[PageKey, ...]
    node: int
    stage: _Stage
    move: Move | None = None


@dataclass(slots=True)
class MoveCounters:
    """In pages. `failed`: moves that were given up, and deletions that a node refused."""

    moved: int = 0
    replicated: int = 0
    dropped: int = 0
    failed: int = 0


class Mover:
    """Carries out what its sources ask for, the first of them first: `depth` steps at a time, within a byte budget.

    The budget counts a page once for each copy that is made of it. The guard holds back what has not begun.
    """

    def __init__(
        self,
        sources: Sequence[MoveSource] = (),
        *,
        page_bytes: int = 0,
        depth: int = 4,
        budget: TokenBucket | None = None,
        guard: TtftGuard | None = None,
    ) -> None:
        self.counters = MoveCounters()
        self.busy: set[PageKey] = set()  # pages under way
        self.ended: list[PageKey] = []  # pages that are under way no more; the core takes them
        self.wakes_at_ns: int | None = None  # when the budget or the guard lets the next step begin
        self._sources, self._page_bytes, self._depth = sources, page_bytes, depth
        self._budget, self._guard = budget, guard
        self._tasks: dict[int, _Task] = {}
        self._draining: dict[int, None] = {}
        self._owed: dict[int, dict[PageKey, None]] = {}  # node → copies to be deleted when it is up
        self._held: Move | None = None  # the next one, which the budget does not let begin yet
        self._next_task = 0

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is under way, or waits for the budget."""
        return not self._tasks and self._held is None

    def is_moving(self, directory: Directory) -> bool:
        """Whether anything is under way, or may be when budget and guard allow."""
        return not self.is_at_rest or any(source.has_more(directory) for source in self._sources)

    # ------------------------------------------------------------ what happens

    def pace(self, pace: MovePace) -> None:
        """Another budget, with a burst of one page, and another guard."""
        self._budget = TokenBucket(pace.bytes_per_s, self._page_bytes) if pace.bytes_per_s else None
        self._guard = TtftGuard(pace.ttft_limit_ns) if pace.ttft_limit_ns else None

    def stored(self, page: PageKey, node: int, directory: Directory) -> None:
        for source in self._sources:
            source.stored(page, node, directory)

    def read(self, now_ns: int, page: PageKey, node: int, directory: Directory) -> None:
        for source in self._sources:
            source.read(now_ns, page, node, directory)

    def first_token(self, now_ns: int, ttft_ns: int) -> None:
        if self._guard:
            self._guard.first_token(now_ns, ttft_ns)

    def owe(self, pages: Sequence[PageKey], node: int, directory: Directory) -> None:
        """Delete pages, when the node is back, that may or may not have reached it before it went."""
        owed = self._owed.setdefault(node, {})
        directory.cluster.count(node, sum(page not in owed for page in pages))
        owed.update(dict.fromkeys(pages))

    def done(self, number: int, status: Status, directory: Directory, queues: Queues) -> None:
        """The I/O of a task has ended."""
        task = self._tasks[number]
        match task.stage:
            case _Stage.DELETE:
                self._deleted(number, task, status, directory)
            case _ if status is not Status.OK:
                self.counters.failed += len(task.pages)
                self._stays(task.move, directory)
                self._delete(number, task, directory, queues)
            case _Stage.COPY:
                self._put(number, task, _Stage.SYNC, Action.SYNC, queues)
            case _Stage.SYNC:
                self._put(number, task, _Stage.VERIFY, Action.READ, queues)
            case _:
                self._switch(number, task, directory)

    # ------------------------------------------------------------ what to do next

    def begin(self, now_ns: int, directory: Directory, queues: Queues, writing: Container[PageKey]) -> None:
        """Begin what may begin, of pages that nobody is writing; delete what nobody reads any more."""
        busy = _Either(self.busy, writing)
        if self._owed:
            self._settle_debts(directory, queues, busy)
        self.wakes_at_ns = None
        while len(self._tasks) < self._depth and (step := self._next(now_ns, directory, busy)):
            if isinstance(step, Drop):
                task = _Task((step.page,), step.node, _Stage.DRAIN)
                self._retire(self._start(task), task, directory)
                self.counters.dropped += 1
            else:
                task = _Task(step.pages, step.target, _Stage.COPY, step)
                directory.cluster.count(step.target, len(step.pages))
                self._put(self._start(task), task, _Stage.COPY, Action.COPY, queues)
        for number in list(self._draining):
            task = self._tasks[number]
            if not any(directory.is_read(page, task.node) for page in task.pages):
                del self._draining[number]
                self._delete(number, task, directory, queues)

    def _next(self, now_ns: int, directory: Directory, busy: Container[PageKey]) -> Move | Drop | None:
        if self._guard and now_ns < self._guard.free_at_ns:
            self.wakes_at_ns = self._guard.free_at_ns
            return None
        held, self._held = self._held, None
        if held and _is_sound(held, directory, busy):
            return self._paid(now_ns, held)
        self._stays(held, directory)
        for source in self._sources:
            while step := source.next(now_ns, directory, busy):
                if isinstance(step, Drop):
                    if _is_safe(step, directory, busy):
                        return step
                elif _is_sound(step, directory, busy):
                    return self._paid(now_ns, step)
                else:
                    self._stays(step, directory)
        return None

    def _stays(self, move: Move | None, directory: Directory) -> None:
        for page in move.pages if move else ():
            if move and move.source in directory.live(page):
                self.stored(page, move.source, directory)

    def _paid(self, now_ns: int, move: Move) -> Move | None:
        """The move, if the budget lets it pass now; otherwise it is the next one."""
        size_bytes = self._page_bytes * len(move.pages)
        if not self._budget or self._budget.take(now_ns, size_bytes):
            return move
        self._held, self.wakes_at_ns = move, self._budget.ready_at_ns(size_bytes)
        return None

    def _settle_debts(self, directory: Directory, queues: Queues, busy: Container[PageKey]) -> None:
        """Delete what could not be deleted while its node was down, unless the page has been stored there since."""
        for node in [node for node in self._owed if node in directory.cluster.up]:
            for page in [page for page in self._owed[node] if page not in busy]:
                del self._owed[node][page]
                if node in directory.replicas(page):
                    directory.cluster.count(node, -1)
                else:
                    task = _Task((page,), node, _Stage.DELETE)
                    self._delete(self._start(task), task, directory, queues)
            if not self._owed[node]:
                del self._owed[node]

    # ------------------------------------------------------------ the stages of a task

    def _start(self, task: _Task) -> int:
        number = self._next_task
        self._next_task += 1
        self._tasks[number] = task
        self.busy.update(task.pages)
        return number

    def _put(self, number: int, task: _Task, stage: _Stage, action: Action, queues: Queues) -> None:
        task.stage = stage
        source = task.move.source if task.move else -1
        queues.put(Work(Lane.BACKGROUND, action, task.node, task.pages, ((number,),), source))

    def _switch(self, number: int, task: _Task, directory: Directory) -> None:
        """The new copies are good: they are found from now on, and the old ones are not, unless both are wanted."""
        assert task.move
        directory.cluster.count(task.node, -len(task.pages))
        directory.layout.append(task.node, task.pages)
        for page in task.pages:
            directory.add(page, task.node)
            self.stored(page, task.node, directory)
        if task.move.keeps_source:
            self.counters.replicated += len(task.pages)
            self._end(number, task)
            return
        self.counters.moved += len(task.pages)
        task.node = task.move.source
        self._retire(number, task, directory)

    def _retire(self, number: int, task: _Task, directory: Directory) -> None:
        """Let nobody find the copies any more, and delete them when those who have found them are done."""
        for page in task.pages:
            directory.discard(page, task.node)
        directory.cluster.count(task.node, len(task.pages))
        task.stage = _Stage.DRAIN
        self._draining[number] = None

    def _delete(self, number: int, task: _Task, directory: Directory, queues: Queues) -> None:
        if task.node in directory.cluster.up:
            self._put(number, task, _Stage.DELETE, Action.DELETE, queues)
        else:
            self._deleted(number, task, Status.EIO, directory)

    def _deleted(self, number: int, task: _Task, status: Status, directory: Directory) -> None:
        directory.cluster.count(task.node, -len(task.pages))
        if task.node not in directory.cluster.up:
            self.owe(task.pages, task.node, directory)
        else:
            self.counters.failed += len(task.pages) if status is not Status.OK else 0
        self._end(number, task)

    def _end(self, number: int, task: _Task) -> None:
        del self._tasks[number]
        self.busy.difference_update(task.pages)
        self.ended += task.pages


@dataclass(frozen=True, slots=True)
class _Either:
    one: Container[PageKey]
    other: Container[PageKey]

    def __contains__(self, page: object) -> bool:
        return page in self.one or page in self.other


def has_room(move: Move, cluster: ClusterView) -> bool:
    """Whether the pages fit at the target."""
    return cluster.room(cluster.roles[move.target]) >= len(move.pages)


def _is_safe(drop: Drop, directory: Directory, busy: Container[PageKey]) -> bool:
    """Whether the copy is there, and is not the last one unless it may be."""
    live = directory.live(drop.page)
    return drop.page not in busy and drop.node in live and (len(live) > 1 or drop.is_last)


def _is_sound(move: Move, directory: Directory, busy: Container[PageKey]) -> bool:
    """Whether the pages are at the source, not at the target, and fit there."""
    return (
        has_room(move, directory.cluster)
        and move.target in directory.cluster.up
        and all(
            page not in busy and move.source in directory.live(page) and move.target not in directory.replicas(page)
            for page in move.pages
        )
    )
