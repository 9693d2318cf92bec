"""The emulated engine's core, sans-I/O: events in, commands out. Pure.

Continuous batching with chunked prefill over paged KV, as vLLM does it (Kwon et al. 2023, arXiv:2309.06180; chunked
prefill: Agrawal et al. 2024, arXiv:2403.02310). A request waits → is admitted when its prompt's pages fit into GPU
memory → waits for its pages from below, if there are any → runs → finishes. A step computes one token of every
request that decodes, then chunks of prompts in the order of their coming, up to a budget of tokens; a request whose
last known token has been computed gets its next one. When GPU memory runs out, the request that came last
loses its pages and computes everything again.

The core contains the page store (through `Offload`) and routes its events, so that a driver drives one core. It is
deterministic: the same events at the same times give the same commands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from kvbench import kv
from kvbench.engine.cost import Chunk
from kvbench.engine.offload import Loaded, Offload
from kvbench.engine.protocol import (
    Abort,
    Command,
    Counters,
    Emit,
    EngineConfig,
    Event,
    FinishRequest,
    Flush,
    StartStep,
    StepDone,
    Submit,
)
from kvbench.engine.tiers import Tier, leading
from kvbench.store import protocol as store
from kvbench.store.core import PageStore


@dataclass(slots=True)
class _Request:
    """A request under way. `pages` are its pages in GPU memory; `computed` of its tokens have their KV there."""

    submitted: Submit
    came_ns: int
    generated: int = 0
    computed: int = 0
    cached_tokens: int = 0
    preempted: bool = False
    pages: list[Hashable] = field(default_factory=list)

    @property
    def id(self) -> int:
        return self.submitted.request

    @property
    def tokens(self) -> int:
        return self.submitted.prompt_tokens + self.generated

    @property
    def missing(self) -> int:
        return self.tokens - self.computed


@dataclass(frozen=True, slots=True)
class _Step:
    ends_ns: int
    work: tuple[tuple[_Request, int], ...]  # how many tokens of which request


class EngineCore:
    """The scheduler with its memory. `pages` is the storage below it, or None for an engine that recomputes."""

    def __init__(self, config: EngineConfig, pages: PageStore | None) -> None:
        self.config = config
        self.counters = Counters()
        gpu_pages = config.cost.kv_budget_bytes() // config.page_bytes
        host_pages = config.host_memory_bytes // config.page_bytes
        self.gpu = Tier(gpu_pages, config.policy(gpu_pages))
        host = Tier(host_pages, config.policy(host_pages))
        self.below = Offload(pages, config, host, self.counters) if pages else None
        self._waiting: deque[_Request] = deque()
        self._loading: dict[int, _Request] = {}
        self._running: dict[int, _Request] = {}  # in the order in which they began to run
        self._step: _Step | None = None

    @property
    def requests_running(self) -> int:
        return len(self._running)

    @property
    def requests_waiting(self) -> int:
        """Requests not yet admitted, and those that wait for their pages from below."""
        return len(self._waiting) + len(self._loading)

    def fits(self, prompt_tokens: int, max_tokens: int) -> bool:
        """Whether a request could run at all, alone in GPU memory."""
        return self._pages_of(prompt_tokens + max_tokens - 1) <= self.gpu.capacity_pages

    def step(self, now_ns: int, event: Event) -> list[Command]:
        """Take one event in; returns the commands that follow from it, in order."""
        commands: list[Command] = []
        match event:
            case Submit():
                self._waiting.append(_Request(event, now_ns))
            case Abort(request):
                self._abort(request)
            case StepDone():
                commands, now_ns = self._end_step()
            case Flush():
                self.gpu.clear()
                if self.below:
                    self.below.host.clear()
            case _ if self.below:
                commands = self._from_below(self.below.step(now_ns, event))
        return commands + self._schedule(now_ns)

    # ------------------------------------------------------------ steps

    def _schedule(self, now_ns: int) -> list[Command]:
        """Between two steps: make room for the tokens to come, admit who waits, start the next step."""
        if self._step or (self.config.blocking_loads and self._loading):
            return []
        commands: list[Command] = []
        self._preempt()
        while self._waiting and self._reserve(self._waiting[0]):
            commands += self._admit(now_ns, self._waiting.popleft())
        work = self._next_work()
        if work:
            self._step = _Step(now_ns + round(1e9 * self._duration_s(work)), work)
            commands.append(StartStep(self._step.ends_ns))
        return commands

    def _next_work(self) -> tuple[tuple[_Request, int], ...]:
        """Who computes how many tokens, within the budget.

        First come, first served: a prompt is done before the next one begins, so those that decode come before it.
        """
        budget = self.config.step_tokens
        work = []
        for request in self._running.values():
            tokens = min(request.missing, budget)
            if tokens:
                work.append((request, tokens))
                budget -= tokens
        return tuple(work)

    def _duration_s(self, work: Sequence[tuple[_Request, int]]) -> float:
        """One token costs what a decoded one does, also where it is the last one of a prompt."""
        chunks = [Chunk(tokens, request.computed) for request, tokens in work if tokens > 1]
        return self.config.cost.step_s(chunks, [request.computed + 1 for request, tokens in work if tokens == 1])

    def _end_step(self) -> tuple[list[Command], int]:
        """Commands, and the moment at which the next step begins: without a gap, however late the timer was."""
        assert self._step, "a step ends that was not started"
        step, self._step = self._step, None
        commands: list[Command] = []
        for request, tokens in step.work:
            if request.id not in self._running:
                continue  # aborted meanwhile
            request.computed += tokens
            if not request.missing:
                commands += self._token(step.ends_ns, request)
        return commands, step.ends_ns

    def _token(self, now_ns: int, request: _Request) -> list[Command]:
        """The request's next token; with its first one the prompt's KV is complete, with its last one it ends."""
        commands = [] if request.generated else self._prompt_done(now_ns, request)
        commands.append(Emit(request.id, request.generated))
        request.generated += 1
        self.counters.generation_tokens += 1
        if request.generated == request.submitted.max_tokens:
            self._free(self._running.pop(request.id))
            self.counters.requests_finished += 1
            commands.append(FinishRequest(request.id, request.cached_tokens))
        return commands

    def _prompt_done(self, now_ns: int, request: _Request) -> list[Command]:
        self.counters.prompt_tokens += request.submitted.prompt_tokens
        digests = request.submitted.digests
        if self.config.prefix_caching:
            for index, digest in enumerate(digests):
                if self.gpu.publish(request.pages[index], digest):
                    request.pages[index] = digest
        if not self.below:
            return []
        first_token = self.below.step(now_ns, store.FirstToken(now_ns - request.came_ns))
        return self._from_below(first_token + self.below.store(now_ns, digests))

    def _abort(self, number: int) -> None:
        self._waiting = deque(request for request in self._waiting if request.id != number)
        for requests in (self._loading, self._running):
            if number in requests:
                self._free(requests.pop(number))

    # ------------------------------------------------------------ memory

    def _pages_of(self, tokens: int) -> int:
        return -(-tokens // self.config.page_tokens)

    def _hittable(self, request: _Request) -> tuple[bytes, ...]:
        """The pages of the prompt that may be hits; a preempted request computes everything again."""
        if request.preempted:
            return ()
        return request.submitted.digests[: kv.full_pages(request.submitted.prompt_tokens, self.config.page_tokens)]

    def _reserve(self, request: _Request) -> bool:
        """Take the GPU pages that the request's tokens need and it does not have; all of them or none."""
        hits: tuple[bytes, ...] = ()
        if self.config.prefix_caching and not request.pages:
            hits = leading(self._hittable(request), self.gpu.__contains__)
        for digest in hits:
            self.gpu.acquire(digest)
        lacking = range(len(request.pages) + len(hits), self._pages_of(request.tokens))
        if len(lacking) > self.gpu.room():
            for digest in hits:
                self.gpu.release(digest)
            return False
        request.pages += hits
        for index in lacking:
            self.gpu.acquire((request.id, index))
            request.pages.append((request.id, index))
        return True

    def _free(self, request: _Request) -> None:
        for page in reversed(request.pages):  # a prefix is worth nothing without its beginning: that goes last
            if isinstance(page, bytes):
                self.gpu.release(page)
            else:
                self.gpu.settle(page, None)
        request.pages = []

    def _preempt(self) -> None:
        """Make room for the next tokens of all that run, at the cost of those that came last."""
        for request in list(self._running.values()):
            while request.id in self._running and not self._reserve(request):
                victim = self._running.popitem()[1]
                self._free(victim)
                victim.computed, victim.preempted = 0, True
                self._waiting.appendleft(victim)
                self.counters.preemptions += 1

    def _admit(self, now_ns: int, request: _Request) -> list[Command]:
        """Run a request whose GPU pages are reserved, after loading what the tiers below hold of its prompt."""
        hits = sum(isinstance(page, bytes) for page in request.pages)
        request.computed = request.cached_tokens = hits * self.config.page_tokens
        prompt_tokens = 0 if request.preempted else request.submitted.prompt_tokens
        if self.config.prefix_caching:
            self.counters.gpu_queries += prompt_tokens
            self.counters.gpu_hits += request.computed
        if self.below is None or request.preempted:
            self._running[request.id] = request
            return []
        self.counters.external_queries += prompt_tokens - request.computed
        self._loading[request.id] = request
        return self._from_below(self.below.load(now_ns, request.id, self._hittable(request)[hits:]))

    def _from_below(self, commands: Sequence[Loaded | store.Command]) -> list[Command]:
        """Take in what the tiers below have loaded; the rest is for the driver."""
        rest: list[Command] = []
        for command in commands:
            if not isinstance(command, Loaded):
                rest.append(command)
            elif command.request in self._loading:  # else it was aborted meanwhile
                request = self._running[command.request] = self._loading.pop(command.request)
                request.computed += command.hits * self.config.page_tokens
                request.cached_tokens = request.computed
                self.counters.external_hits += command.hits * self.config.page_tokens
                self.counters.host_hits += command.host_hits * self.config.page_tokens
        return rest
