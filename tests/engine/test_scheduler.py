"""The engine's core in a world where every token takes one millisecond, and a page of four tokens is 16 bytes."""

import heapq
from dataclasses import dataclass, field
from itertools import count
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.engine.cost import Accelerator, CostModel
from kvbench.engine.protocol import (
    Abort,
    Command,
    Emit,
    EngineConfig,
    Event,
    FinishRequest,
    Flush,
    StartStep,
    StepDone,
    Submit,
)
from kvbench.engine.scheduler import EngineCore
from kvbench.kv import ModelShape
from kvbench.store.cluster import ClusterView
from kvbench.store.core import Done, PageStore, Read, Status, Sync, Write
from kvbench.store.hashing import Rendezvous
from kvbench.store.keys import PageKey, chain
from kvbench.store.placement import ByPage

MS = 10**6
PAGE_TOKENS, PAGE_BYTES = 4, 16
READ_NS, WRITE_NS = 5 * MS, 7 * MS
SHAPE = ModelShape("tiny", 1, 0, 1, 1, parameters=0, parameters_active=1, weight_bytes_per_parameter=0, source="")


def config(gpu_pages: int = 100, **options: int | bool) -> EngineConfig:
    accelerator = Accelerator("unit", 2000, ceil(gpu_pages * PAGE_BYTES / 0.9), 10**12, 1, 1, "", "", "")
    return EngineConfig(CostModel(SHAPE, accelerator, 1), PAGE_TOKENS, **options)  # type: ignore[arg-type]


def prompt(request: int, tokens: int, max_tokens: int = 1, session: int | None = None) -> Submit:
    """Prompts of the same session share their beginning."""
    ids = [1000 * (request if session is None else session) + i for i in range(tokens)]
    return Submit(request, chain("tiny", PAGE_TOKENS, 1, ids), tokens, max_tokens)


@dataclass
class World:
    """Carries commands out in virtual time, and checks after each event that no tier is above its budget."""

    core: EngineCore
    bad: dict[bytes, Status] = field(default_factory=dict)  # page digest → how its reads end
    now_ns: int = 0
    emitted: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # request → (position, moment in ms)
    finished: dict[int, list[int]] = field(default_factory=dict)  # request → cached tokens, once for each finish
    log: list[tuple[int, Event, list[Command]]] = field(default_factory=list)
    reads: int = 0
    writes: int = 0
    _heap: list[tuple[int, int, Event]] = field(default_factory=list)
    _order: count = field(default_factory=count)  # type: ignore[type-arg]

    def at(self, at_ns: int, event: Event) -> None:
        heapq.heappush(self._heap, (at_ns, next(self._order), event))

    def submit(self, *requests: Submit) -> "World":
        for request in requests:
            self.at(self.now_ns, request)
        return self

    def run(self) -> "World":
        while self._heap:
            self.now_ns, _, event = heapq.heappop(self._heap)
            commands = self.core.step(self.now_ns, event)
            self.log.append((self.now_ns, event, commands))
            assert len(self.core.gpu) <= self.core.gpu.capacity_pages
            assert self.core.below is None or len(self.core.below.host) <= self.core.below.host.capacity_pages
            for command in commands:
                self._carry_out(command)
        return self

    def _carry_out(self, command: Command) -> None:
        match command:
            case StartStep(ends_ns):
                self.at(ends_ns, StepDone())
            case Read(io, _, page):
                self.reads += 1
                self.at(self.now_ns + READ_NS, Done(io, self.bad.get(page.digest, Status.OK), READ_NS))
            case Write(io):
                self.writes += 1
                self.at(self.now_ns + WRITE_NS, Done(io, Status.OK, WRITE_NS))
            case Sync(io):
                self.at(self.now_ns, Done(io, Status.OK, 0))
            case Emit(request, position):
                self.emitted.setdefault(request, []).append((position, self.now_ns // MS))
            case FinishRequest(request, cached_tokens):
                self.finished.setdefault(request, []).append(cached_tokens)


def world(setup: EngineConfig, *, storage: bool = True) -> World:
    return World(EngineCore(setup, PageStore(ClusterView(2), ByPage(Rendezvous())) if storage else None))


# ---------------------------------------------------------------- steps


@pytest.mark.parametrize(
    ("step_tokens", "requests", "moments_ms"),
    [
        pytest.param(100, [prompt(0, 9, 3)], {0: [9, 10, 11]}, id="a prompt, then one token a step"),
        pytest.param(4, [prompt(0, 9, 2)], {0: [9, 10]}, id="a prompt longer than a step goes in chunks"),
        pytest.param(
            4, [prompt(0, 4, 4), prompt(1, 6)], {0: [4, 8, 12, 13], 1: [12]}, id="who decodes goes first in each step"
        ),
        pytest.param(4, [prompt(0, 6), prompt(1, 6), prompt(2, 1)], {0: [8], 1: [12], 2: [13]}, id="prompts in order"),
        pytest.param(4, [prompt(0, 1, 2)], {0: [1, 2]}, id="a prompt of one token"),
    ],
)
def test_steps_hold_decoding_requests_and_then_prompts_in_order(
    step_tokens: int, requests: list[Submit], moments_ms: dict[int, list[int]]
) -> None:
    seen = world(config(step_tokens=step_tokens), storage=False).submit(*requests).run()
    assert {request: [at for _, at in tokens] for request, tokens in seen.emitted.items()} == moments_ms


def test_a_late_timer_does_not_move_the_steps_after_it() -> None:
    core = EngineCore(config(), None)
    assert core.step(0, prompt(0, 5, 2)) == [StartStep(5 * MS)]
    assert core.step(8 * MS, StepDone()) == [Emit(0, 0), StartStep(6 * MS)]


def test_requests_wait_in_order_until_gpu_memory_has_room_for_their_prompts() -> None:
    seen = world(config(gpu_pages=3), storage=False).submit(prompt(0, 8), prompt(1, 8), prompt(2, 4)).run()
    assert [(request, tokens[0][1]) for request, tokens in seen.emitted.items()] == [(0, 8), (1, 20), (2, 20)]


def test_what_can_never_fit_is_known_beforehand() -> None:
    core = EngineCore(config(gpu_pages=3), None)
    assert core.fits(12, 1)
    assert core.fits(8, 5)
    assert not core.fits(12, 2)


def test_without_room_for_a_token_the_last_request_computes_again() -> None:
    seen = world(config(gpu_pages=3), storage=False).submit(prompt(0, 4, 5), prompt(1, 4, 5)).run()
    assert seen.core.counters.preemptions == 1
    assert [position for position, _ in seen.emitted[1]] == [0, 1, 2, 3, 4]
    assert seen.emitted[0][-1][1] < seen.emitted[1][-1][1]


def test_a_preempted_request_reads_nothing_and_comes_before_those_that_wait() -> None:
    seen = world(config(gpu_pages=4)).submit(prompt(0, 4, 9), prompt(1, 5, 5), prompt(2, 5)).run()
    assert seen.core.counters.preemptions == 1
    assert seen.reads == 0
    assert seen.core.counters.external_queries == 4 + 5 + 5
    assert seen.emitted[1][-1][1] < seen.emitted[2][0][1]


# ---------------------------------------------------------------- storage


@pytest.mark.parametrize(
    ("tokens", "cached"), [(3, 0), (4, 0), (5, 4), (8, 4), (9, 8)], ids=lambda value: f"{value} tokens"
)
def test_a_prompt_that_returns_hits_all_its_full_pages_but_computes_its_last_token(tokens: int, cached: int) -> None:
    seen = world(config()).submit(prompt(0, tokens)).run()
    seen.submit(prompt(1, tokens, session=0)).run()
    assert seen.finished == {0: [0], 1: [cached]}
    assert seen.reads == cached // PAGE_TOKENS
    assert seen.writes == tokens // PAGE_TOKENS
    assert (seen.core.counters.external_queries, seen.core.counters.external_hits) == (2 * tokens, cached)
    assert (seen.core.counters.stored_pages, seen.core.counters.read_pages) == (seen.writes, seen.reads)


def test_a_request_waits_for_its_pages_while_others_compute() -> None:
    seen = world(config()).submit(prompt(0, 9)).run()
    start_ms = seen.now_ns // MS
    seen.submit(prompt(1, 9, session=0), prompt(2, 3)).run()
    assert seen.emitted[2] == [(0, start_ms + 3)]
    assert seen.emitted[1] == [(0, start_ms + 5 + 1)]  # read, then the one token that is left


def test_pages_on_their_way_to_storage_are_pending_and_not_sent_twice() -> None:
    core = EngineCore(config(), PageStore(ClusterView(1), ByPage(Rendezvous())))
    core.step(0, prompt(0, 8))
    core.step(0, prompt(1, 9, session=0))
    first = core.step(0, StepDone())
    assert core.below is not None
    assert core.below.stores_pending == 2
    writes = [command.io for command in first if isinstance(command, Write)]
    again = core.step(0, StepDone())
    assert FinishRequest(1, 0) in again
    assert not [command for command in again if isinstance(command, Write)]
    syncs = [command for io in writes for command in core.step(0, Done(io, Status.OK, 1))]
    for sync in syncs:
        assert isinstance(sync, Sync)
        core.step(0, Done(sync.io, Status.OK, 1))
    assert core.below.stores_pending == 0


@pytest.mark.parametrize(("status", "mismatches"), [(Status.CORRUPT, 1), (Status.SHORT, 1), (Status.EIO, 1)])
def test_the_prefix_is_cut_at_a_bad_page_and_the_rest_is_computed_and_stored_again(
    status: Status, mismatches: int
) -> None:
    seen = world(config()).submit(prompt(0, 17)).run()
    seen.bad = {prompt(0, 17).digests[1]: status}
    seen.submit(prompt(1, 17, session=0)).run()
    assert seen.finished[1] == [4]
    assert seen.core.counters.content_mismatches == mismatches
    assert (seen.core.counters.external_hits, seen.core.counters.read_pages) == (4, 3)
    assert seen.writes == 4 + 1
    seen.bad = {}
    seen.submit(prompt(2, 17, session=0)).run()
    assert seen.finished[2] == [16]


def test_an_engine_that_recomputes_neither_reads_nor_writes_nor_asks() -> None:
    seen = world(config(host_memory_bytes=10 * PAGE_BYTES), storage=False).submit(prompt(0, 9)).run()
    seen.submit(prompt(1, 9, session=0)).run()
    assert seen.finished == {0: [0], 1: [0]}
    assert (seen.reads, seen.writes, seen.core.counters.external_queries) == (0, 0, 0)


# ---------------------------------------------------------------- the tiers above storage


def test_host_memory_answers_what_it_holds_until_it_is_flushed() -> None:
    seen = world(config(host_memory_bytes=10 * PAGE_BYTES)).submit(prompt(0, 9)).run()
    seen.submit(prompt(1, 9, session=0)).run()
    assert (seen.finished[1], seen.reads, seen.core.counters.host_hits) == ([8], 0, 8)
    seen.core.step(seen.now_ns, Flush())
    seen.submit(prompt(2, 9, session=0)).run()
    assert (seen.finished[2], seen.reads, seen.core.counters.host_hits) == ([8], 2, 8)
    assert seen.core.counters.external_hits == 16


def test_a_page_still_on_its_way_is_no_hit_in_host_memory() -> None:
    seen = world(config(host_memory_bytes=10 * PAGE_BYTES)).submit(prompt(0, 9)).run()
    seen.core.step(seen.now_ns, Flush())
    seen.submit(prompt(1, 9, session=0), prompt(2, 9, session=0)).run()
    assert (seen.finished[1], seen.finished[2], seen.reads) == ([8], [8], 4)
    assert seen.core.counters.host_hits == 0


def test_a_bad_page_is_no_hit_in_host_memory() -> None:
    seen = world(config(host_memory_bytes=10 * PAGE_BYTES)).submit(prompt(0, 13)).run()
    seen.core.step(seen.now_ns, Flush())
    seen.bad = {prompt(0, 13).digests[1]: Status.CORRUPT}
    seen.submit(prompt(1, 13, session=0))
    seen.at(seen.now_ns + READ_NS + MS, prompt(2, 13, session=0))
    seen.run()
    assert (seen.finished[1], seen.finished[2]) == ([4], [4])


def test_host_memory_keeps_what_was_used_last_and_loses_the_end_of_a_prefix_first() -> None:
    seen = world(config(host_memory_bytes=3 * PAGE_BYTES)).submit(prompt(0, 9)).run()
    seen.submit(prompt(1, 5)).run()
    seen.submit(prompt(2, 5)).run()  # takes the room of the second page of session 0
    seen.submit(prompt(3, 9, session=0)).run()
    assert (seen.core.counters.host_hits, seen.reads) == (4, 1)  # which comes back in the room of session 1
    seen.submit(prompt(4, 5, session=2)).run()
    seen.submit(prompt(5, 5)).run()
    seen.submit(prompt(6, 5, session=2)).run()
    assert (seen.core.counters.host_hits, seen.reads) == (12, 1)


def test_pages_that_host_memory_has_no_room_for_pass_it_by_and_are_counted() -> None:
    seen = world(config(host_memory_bytes=PAGE_BYTES)).submit(prompt(0, 13)).run()
    assert seen.core.counters.allocation_failures == 2
    seen.submit(prompt(1, 13, session=0)).run()
    assert seen.finished[1] == [12]


def test_prefix_caching_in_gpu_memory_is_a_switch() -> None:
    for switch, hits in ((False, 0), (True, 8)):
        seen = world(config(prefix_caching=switch), storage=False).submit(prompt(0, 9)).run()
        seen.submit(prompt(1, 9, session=0)).run()
        assert seen.finished[1] == [hits]
        assert (seen.core.counters.gpu_hits, seen.core.counters.gpu_queries) == (hits, 18 if switch else 0)


def test_a_prefix_loses_its_end_first_when_gpu_memory_needs_room() -> None:
    seen = world(config(gpu_pages=4, prefix_caching=True), storage=False).submit(prompt(0, 13)).run()
    seen.submit(prompt(1, 8)).run()
    seen.submit(prompt(2, 13, session=0)).run()
    assert seen.finished[2] == [8]


@pytest.mark.parametrize("abort_ms", [0, 1, 5, 9, 20])
def test_an_aborted_request_leaves_nothing_behind(abort_ms: int) -> None:
    seen = world(config(gpu_pages=3)).submit(prompt(0, 9)).run()
    begin_ns = seen.now_ns
    seen.submit(prompt(1, 9, 3, session=0), prompt(2, 9))
    seen.at(begin_ns + abort_ms * MS, Abort(1))
    seen.run()
    assert seen.finished[2] == [0]
    assert len(seen.core.gpu) == seen.core.requests_running == seen.core.requests_waiting == 0


# ---------------------------------------------------------------- whatever comes

arrivals = st.tuples(
    st.integers(0, 60),  # ms
    st.integers(0, 3),  # session
    st.integers(1, 20),  # prompt tokens
    st.integers(1, 8),  # output tokens
    st.none() | st.integers(0, 60),  # aborted so many ms later
)
setups = st.builds(
    config,
    gpu_pages=st.integers(7, 20),
    step_tokens=st.integers(1, 30),
    host_memory_bytes=st.integers(0, 6).map(lambda pages: pages * PAGE_BYTES),
    prefix_caching=st.booleans(),
)
bad_pages = st.dictionaries(
    st.sampled_from([digest for session in range(4) for digest in prompt(0, 20, session=session).digests]),
    st.sampled_from([Status.CORRUPT, Status.SHORT, Status.EIO]),
    max_size=3,
)


@given(setups, st.lists(arrivals, max_size=12), bad_pages, st.booleans())
def test_every_request_finishes_once_with_each_token_once_and_a_replay_is_identical(
    setup: EngineConfig,
    requests: list[tuple[int, int, int, int, int | None]],
    bad: dict[bytes, Status],
    storage: bool,
) -> None:
    seen = world(setup, storage=storage)
    seen.bad = bad
    for number, (at_ms, session, tokens, max_tokens, aborted_ms) in enumerate(requests):
        seen.at(at_ms * MS, prompt(number, tokens, max_tokens, session=session))
        if aborted_ms is not None:
            seen.at((at_ms + aborted_ms) * MS, Abort(number))
    seen.run()

    for number, (_, _, tokens, max_tokens, aborted_ms) in enumerate(requests):
        positions = [position for position, _ in seen.emitted.get(number, [])]
        assert positions == list(range(len(positions)))
        finishes = seen.finished.get(number, [])
        assert len(finishes) == (len(positions) == max_tokens)
        assert finishes or aborted_ms is not None
        assert all(cached <= (tokens - 1) // PAGE_TOKENS * PAGE_TOKENS for cached in finishes)
    assert seen.core.gpu.room() == seen.core.gpu.capacity_pages
    assert seen.core.below is None or seen.core.below.host.room() == seen.core.below.host.capacity_pages
    assert seen.core.below is None or seen.core.below.stores_pending == 0

    fresh = EngineCore(setup, PageStore(ClusterView(2), ByPage(Rendezvous())) if storage else None)
    for now_ns, event, commands in seen.log:
        assert fresh.step(now_ns, event) == commands
    assert fresh.counters == seen.core.counters


def test_pages_of_all_ranks_make_a_hit() -> None:
    setup = config()
    ranks = EngineConfig(CostModel(SHAPE, setup.cost.accelerator, 2), PAGE_TOKENS)
    assert ranks.page_bytes == 2 * PAGE_BYTES  # of one KV head, which both ranks hold
    pages = PageStore(ClusterView(1), ByPage(Rendezvous()))
    digest = prompt(0, 5).digests[0]
    pages.load([((PageKey(digest, 0),), 0)])
    seen = World(EngineCore(ranks, pages)).submit(prompt(0, 5)).run()
    assert (seen.finished[0], seen.reads) == ([0], 0)
    seen.submit(prompt(1, 5, session=0)).run()
    assert (seen.finished[1], seen.reads) == ([4], 2)
