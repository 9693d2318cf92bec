"""Requests served in virtual time: from their moments, through the tiers and the engine, to what was seen of each.

Two engines can serve them (see `Site.engine`); both ask the same page store for their pages.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from kvbench import kv
from kvbench.engine.protocol import Command, Emit, EngineConfig, FinishRequest, Submit
from kvbench.engine.scheduler import EngineCore
from kvbench.engine.tiers import Tier
from kvbench.errors import UsageError
from kvbench.load.workload import PageChain, Turn
from kvbench.sim.agenda import Agenda
from kvbench.sim.checkpoints import CheckpointWriters, Snapshots
from kvbench.sim.drive import Driver
from kvbench.sim.fluid import Instance, Job
from kvbench.sim.nodes import SimNodes
from kvbench.store.core import PageStore
from kvbench.store.keys import PageKey, prefix_of
from kvbench.store.protocol import Arrive, Copy, Finish, FirstToken, Io, Read


@dataclass(slots=True)
class Seen:
    """What was seen of one request. Pages are those of its prompt: `host_pages` and `read_pages` were hits."""

    due_ns: int
    output_tokens: int
    pages: int
    host_pages: int = 0
    read_pages: int = 0
    nodes: set[int] = field(default_factory=set)
    ios: float = 0.0  # an I/O that serves several requests is shared
    reading_s: float = 0.0
    hidden_s: float = 0.0  # of that, while its instance computed other prompts
    first_ns: int = -1
    done_ns: int = -1

    @property
    def ttft_s(self) -> float:
        return (self.first_ns - self.due_ns) / 1e9


class IoWatch:
    """Which requests the reads are for, and what is moved between nodes. Sees I/Os as they go out."""

    def __init__(self, page_bytes: int) -> None:
        self.copied_bytes = 0
        self._page_bytes = page_bytes
        self._wanted: dict[PageKey, list[Seen]] = {}

    def want(self, pages: Sequence[PageKey], seen: Seen) -> None:
        for page in pages:
            self._wanted.setdefault(page, []).append(seen)

    def __call__(self, command: Io) -> None:
        if isinstance(command, Copy):
            self.copied_bytes += self._page_bytes * (1 + len(command.more))
        if not isinstance(command, Read):
            return
        served: list[Seen] = self._wanted.pop(command.page, [])
        for page in command.more:
            served = served + self._wanted.pop(page, [])
        for seen in served:
            seen.nodes.add(command.node)
            seen.ios += 1 / len(served)


@dataclass(frozen=True, slots=True)
class Storage:
    """The store, and what its commands meet."""

    agenda: Agenda
    nodes: SimNodes
    store: PageStore
    watch: IoWatch


class Turns:
    """Gives turns at their moments: those with a moment of their own, and each other one after its predecessor."""

    def __init__(self, agenda: Agenda, turns: Sequence[Turn], give: Callable[[Turn], None]) -> None:
        self._agenda, self._give = agenda, give
        self._following: dict[str, list[Turn]] = defaultdict(list)
        for turn in turns:
            if turn.due_s is None:
                self._following[turn.after].append(turn)
            else:
                agenda.at(round(1e9 * turn.due_s), give, turn)

    def done(self, turn: Turn) -> None:
        for following in self._following.pop(turn.id, ()):
            self._agenda.at(self._agenda.now_ns + round(1e9 * following.think_s), self._give, following)


class FluidServing:
    """Instances that share the store: a request goes to the one with the fewest tokens to serve, and waits for room.

    Its pages come from the instance's host memory, then from the store, as far as there is no gap; the rest of its
    prompt is computed, and the pages that the store lacks are written when that is done. Pages of prompts that wait to
    be computed are read meanwhile, unless the instance is `lazy`: then it takes one prompt up after the other.
    """

    def __init__(
        self, storage: Storage, config: EngineConfig, instances: int, turns: Sequence[Turn], *, lazy: bool = False
    ) -> None:
        self.seen: list[Seen] = []
        self.saves_s: list[float] = []  # of checkpoints
        self._checkpoints: CheckpointWriters | None = None
        self._lazy = lazy
        self._agenda, self._store, self._watch = storage.agenda, storage.store, storage.watch
        self._config = config
        self._driver = Driver(self._agenda, storage.nodes, self._store, self._read_or_written, self._watch)
        self._chain = PageChain(config.page_tokens)
        self._turns = Turns(self._agenda, turns, self._come)
        self._rooms = [_Room(config, self._instance()) for _ in range(instances)]
        self._requests: list[_Request] = []

    def give(self, event: object) -> None:
        """Something else that happens to the store: a node comes or goes."""
        self._driver.give(event)

    def save(self, snapshots: Snapshots, last_ns: int) -> None:
        """Write checkpoints beside the requests."""
        page_bytes = self._config.page_bytes
        writers = CheckpointWriters(self._agenda, snapshots, page_bytes, last_ns, self._driver.give)
        self._checkpoints, self.saves_s = writers, writers.saves_s

    def _instance(self) -> Instance:
        return Instance(self._agenda, self._config.cost, self._config.step_tokens, self._first_token, self._finished)

    def _come(self, turn: Turn) -> None:
        room = min(self._rooms, key=lambda room: room.tokens)
        keys = tuple(PageKey(digest, 0) for digest in self._chain.digests(turn.prompt))
        seen = Seen(self._agenda.now_ns, turn.output_tokens, len(keys))
        request = _Request(len(self._requests), turn, keys, room, seen)
        self._requests.append(request)
        self.seen.append(seen)
        room.tokens += request.tokens
        room.waiting.append(request)
        self._admit(room)

    def _admit(self, room: _Room) -> None:
        while room.waiting and (room.free_tokens >= room.waiting[0].tokens or room.is_empty):
            if self._lazy and room.prompts:
                return
            request = room.waiting.popleft()
            room.prompts += 1
            room.free_tokens -= request.tokens
            hittable = request.keys[: kv.full_pages(request.turn.prompt_tokens, self._config.page_tokens)]
            host = tuple(takewhile(room.host.touch, hittable))
            stored = self._store.contains_prefix(hittable[len(host) :])
            request.seen.host_pages = len(host)
            request.wanted = hittable[len(host) : len(host) + stored]
            if stored:
                request.began_s, request.computed_s = self._agenda.now_ns / 1e9, room.instance.computed_s()
                self._watch.want(request.wanted, request.seen)
                self._driver.give(Arrive(2 * request.number, "read", request.wanted))
            else:
                self._compute(request, 0)

    def _read_or_written(self, finish: Finish) -> None:
        number, is_write = divmod(finish.op, 2)
        if self._checkpoints and number < 0:
            self._checkpoints.done()
        if is_write or number < 0:
            return
        request, bad = self._requests[number], set(finish.bad)
        request.seen.reading_s = self._agenda.now_ns / 1e9 - request.began_s
        request.seen.hidden_s = request.room.instance.computed_s() - request.computed_s
        good = next((count for count, key in enumerate(request.wanted) if key in bad), len(request.wanted))
        self._compute(request, good)

    def _compute(self, request: _Request, read: int) -> None:
        request.seen.read_pages = read
        request.wanted = ()
        cached = (request.seen.host_pages + read) * self._config.page_tokens
        missing = request.turn.prompt_tokens - cached
        request.room.instance.add(Job(request.number, missing, cached, max(1, request.turn.output_tokens)))

    def _first_token(self, number: int) -> None:
        request = self._requests[number]
        seen, now_ns = request.seen, self._agenda.now_ns
        seen.first_ns = now_ns
        self._driver.give(FirstToken(now_ns - seen.due_ns))
        request.room.prompts -= 1
        request.room.keep(request.keys)
        lacking = tuple(key for key in request.keys if not self._store.holds(key))
        if lacking:
            prefix = prefix_of([key.digest for key in request.keys], self._config.prefix_depth)
            self._driver.give(Arrive(2 * number + 1, "write", lacking, prefix))
        self._admit(request.room)

    def _finished(self, number: int) -> None:
        request = self._requests[number]
        request.seen.done_ns = self._agenda.now_ns
        request.room.tokens -= request.tokens
        request.room.free_tokens += request.tokens
        request.keys = ()
        self._turns.done(request.turn)
        self._admit(request.room)


class _Room:
    """An instance's memory, and who waits for room in it."""

    def __init__(self, config: EngineConfig, instance: Instance) -> None:
        self.instance = instance
        self.host = Tier(config.host_memory_bytes // config.page_bytes)
        self.waiting: deque[_Request] = deque()
        self.tokens = 0  # of all that it has to serve
        self.prompts = 0  # that are read or computed
        self.free_tokens = self._all_tokens = config.cost.kv_budget_bytes() // config.page_bytes * config.page_tokens

    @property
    def is_empty(self) -> bool:
        return self.free_tokens == self._all_tokens

    def keep(self, keys: Sequence[PageKey]) -> None:
        """Pages that were used stay in host memory; the last of a prompt go first."""
        if self.host.capacity_pages:
            for key in reversed(keys):
                if self.host.acquire(key):
                    self.host.release(key)


@dataclass(slots=True)
class _Request:
    number: int
    turn: Turn
    keys: tuple[PageKey, ...]
    room: _Room
    seen: Seen
    wanted: tuple[PageKey, ...] = ()
    began_s: float = 0.0  # when its pages began to be read, and for how long prompts had been computed then
    computed_s: float = 0.0

    @property
    def tokens(self) -> int:
        return self.turn.prompt_tokens + self.turn.output_tokens


class SchedulerServing:
    """One instance, step by step: the emulated engine's core with the store inside."""

    def __init__(self, storage: Storage, config: EngineConfig, turns: Sequence[Turn]) -> None:
        self.seen: list[Seen] = []
        self.saves_s: list[float] = []
        self._agenda, self._store, self._watch = storage.agenda, storage.store, storage.watch
        self._config, self._core = config, EngineCore(config, storage.store)
        self._driver = Driver(self._agenda, storage.nodes, self._core, self._told, self._watch)
        self._chain = PageChain(config.page_tokens)
        self._given: list[Turn] = []
        self._turns = Turns(self._agenda, turns, self._come)

    def give(self, event: object) -> None:
        self._driver.give(event)

    def _come(self, turn: Turn) -> None:
        if not self._core.fits(turn.prompt_tokens, max(1, turn.output_tokens)):
            raise UsageError(f"request {turn.id} of {turn.prompt_tokens} tokens does not fit into GPU memory")
        digests = tuple(self._chain.digests(turn.prompt))
        seen = Seen(self._agenda.now_ns, turn.output_tokens, len(digests))
        keys = [PageKey(digest, 0) for digest in digests]
        self._watch.want(keys[: self._store.contains_prefix(keys)], seen)
        self._given.append(turn)
        self.seen.append(seen)
        number = len(self._given) - 1
        self._driver.give(Submit(number, digests, turn.prompt_tokens, max(1, turn.output_tokens)))

    def _told(self, command: Command) -> None:
        if isinstance(command, Emit) and command.position == 0:
            seen = self.seen[command.request]
            seen.first_ns = self._agenda.now_ns
        elif isinstance(command, FinishRequest):
            seen = self.seen[command.request]
            seen.done_ns = self._agenda.now_ns
            seen.read_pages = command.cached_tokens // self._config.page_tokens
            self._turns.done(self._given[command.request])
