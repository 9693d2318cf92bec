"""What the emulated engine's core takes in and gives out, what it is built with, and what it counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvbench import kv
from kvbench.engine.cost import CostModel
from kvbench.store import protocol as store
from kvbench.store.policy import Lru, Policy


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """`step_tokens` is the most that one step computes. `host_memory_bytes` is the tier between GPU memory and storage,
    over all ranks; 0: none. `prefix_caching`: finished requests leave their pages in GPU memory for others to hit.
    `policy` makes the policy of GPU memory and that of host memory, each from its capacity in pages. `prefix_depth`:
    prompts whose first pages, so many of them, are the same are one group where pages are placed by prefix.
    `blocking_loads`: while pages come from below nobody is admitted and no step begins, as where a connector loads
    within the engine's step; else the others go on meanwhile."""

    cost: CostModel
    page_tokens: int = kv.PAGE_TOKENS
    step_tokens: int = 2048
    host_memory_bytes: int = 0
    prefix_caching: bool = False
    policy: Callable[[int], Policy] = lambda capacity: Lru()
    prefix_depth: int = 1
    blocking_loads: bool = False

    @property
    def ranks(self) -> int:
        return self.cost.tensor_parallel

    @property
    def page_bytes(self) -> int:
        """Bytes of one page over all ranks."""
        return self.cost.shape.page_bytes(self.ranks, self.page_tokens) * self.ranks


# ---------------------------------------------------------------- events: what happened


@dataclass(frozen=True, slots=True)
class Submit:
    """A request has come; `EngineCore.fits` holds of it. `digests` name the full pages of its prompt, in order."""

    request: int
    digests: tuple[bytes, ...]
    prompt_tokens: int
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Abort:
    """Nobody waits for the request any more."""

    request: int


@dataclass(frozen=True, slots=True)
class StepDone:
    """The step of the last `StartStep` has reached its end."""


@dataclass(frozen=True, slots=True)
class Flush:
    """Forget the pages in GPU and host memory that no request is using."""


Event = Submit | Abort | StepDone | Flush | store.Event

# ---------------------------------------------------------------- commands: what to do


@dataclass(frozen=True, slots=True)
class StartStep:
    """Compute until `ends_ns`, then report `StepDone`."""

    ends_ns: int


@dataclass(frozen=True, slots=True)
class Emit:
    """The request's output token number `position`, from 0, is there."""

    request: int
    position: int


@dataclass(frozen=True, slots=True)
class FinishRequest:
    """The request has all its tokens. `cached_tokens` of its prompt were hit in some tier and not computed."""

    request: int
    cached_tokens: int


Command = StartStep | Emit | FinishRequest | store.Command

# ---------------------------------------------------------------- totals


@dataclass(slots=True)
class Counters:
    """Totals since the start. Queries and hits are in tokens; stored and read pages are those of single ranks.

    `external` is all that lies beyond GPU memory; `host_hits` are the part of its hits that host memory answered.
    `unreachable_pages` were being read when their node went: misses, and no mismatches.
    """

    prompt_tokens: int = 0
    generation_tokens: int = 0
    requests_finished: int = 0
    preemptions: int = 0
    gpu_queries: int = 0
    gpu_hits: int = 0
    external_queries: int = 0
    external_hits: int = 0
    host_hits: int = 0
    allocation_failures: int = 0
    content_mismatches: int = 0
    unreachable_pages: int = 0
    stored_pages: int = 0
    read_pages: int = 0
