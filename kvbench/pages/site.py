"""What strategies meet on real directories: nodes, a load, and what happens meanwhile. Files of workloads/strategies/.
Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import exp
from pathlib import Path
from random import Random
from typing import Any

from kvbench import content
from kvbench.errors import UsageError
from kvbench.sim.site import Happening, SlowNodes
from kvbench.sim.strategies import ON_TIERS, Background, refuse_idle
from kvbench.store.cluster import ClusterView, Role
from kvbench.store.keys import PageKey
from kvbench.units import Count, RateBytes, Seconds, SizeBytes

_STRICT: dict[str, Any] = {"extra": "forbid"}
_LONGEST = 16  # times the median, of sessions whose lengths are spread


@dataclass(frozen=True, slots=True)
class Load:
    """`reads` of whole sessions, `at_once` at any moment; which session, by Zipf's law with exponent `skew`.

    A session has so many `pages`; where lengths are `spread`, that is the median of a log-normal with this sigma.
    `checkpoint_pages` are those that are written at any moment beside the reads. An emulated engine computes each
    prompt for `compute`, and `compute_page` longer for every page that is lacking; 0: there is none.
    """

    sessions: Count = 24
    pages: Count = 8
    page_bytes: SizeBytes = 256 * 1024
    reads: Count = 128
    at_once: Count = 8
    skew: float = 1.0
    spread: float = 0.0
    checkpoint_pages: int = 0
    compute: Seconds = 0.0
    compute_page: Seconds = 0.0

    __pydantic_config__ = _STRICT

    def session(self, number: int, seed: int = 0) -> tuple[PageKey, ...]:
        factor = exp(Random(f"{seed}/{number}").gauss(0.0, self.spread)) if self.spread else 1.0
        pages = max(1, round(self.pages * min(factor, _LONGEST)))
        return tuple(PageKey.named(f"{seed}/{number}/{page}") for page in range(pages))

    def order(self, seed: int) -> list[int]:
        """In which sessions are written: what is read most does not come first."""
        return Random(f"{seed}/order").sample(range(self.sessions), self.sessions)

    def draw(self, rng: Random) -> list[int]:
        """The sessions that are read, in order."""
        weights = [(1 + number) ** -self.skew for number in range(self.sessions)]
        return rng.choices(range(self.sessions), weights, k=self.reads)


@dataclass(frozen=True, slots=True)
class Below:
    """A tier below: `nodes` directories, each no faster than `rate`. `flash` and `capacity` are what the tiers hold,
    over all nodes. Without nodes there is flash of this size alone, and what it has no room for is lost."""

    flash: SizeBytes
    nodes: int = 0
    rate: RateBytes = 10**6
    capacity: SizeBytes = 0

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class Change:
    """After this share of the reads a node fails (`down`), comes back (`up`), is taken away (`leave`), or is `new`."""

    at: float
    what: Happening
    node: int = -1

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class Site:
    """`nodes` take pages from the start; those below follow them, and then those that are `new` later.

    `rate`      slows every node down to stand for another medium; those of a target have the rate of its file instead.
    `ios`       each node does at once.
    `background`  how fast goes what strategies do unasked; a round is short, and its nodes may be slow.
    `counted`   figures of reads are of those after this share of them, so that what a strategy learns first, or what
                changes then, is seen; bytes that move are those of the whole round.
    """

    id: str
    why: str
    nodes: Count = 4
    rate: RateBytes | None = None
    ios: Count = 4
    rounds: Count = 10
    load: Load = field(default_factory=Load)
    background: Background = field(default_factory=Background)
    slow: SlowNodes | None = None
    below: Below | None = None
    changes: tuple[Change, ...] = ()
    counted: float = 0.0

    __pydantic_config__ = _STRICT

    def __post_init__(self) -> None:
        if not all(0 <= share < 1 for share in (self.counted, *(change.at for change in self.changes))):
            raise ValueError("counted and changes.at are shares of the reads, from 0 to below 1")
        if self.slow and self.slow.count > self.nodes:
            raise ValueError(f"slow.count is {self.slow.count}, of {self.nodes} nodes")
        if self.rounds < 2:
            raise ValueError("rounds is at least 2: one has no interval")

    @property
    def coming(self) -> int:
        """How many nodes come later."""
        return sum(change.what == "new" for change in self.changes)

    @property
    def directories(self) -> int:
        return self.nodes + self.below_nodes + self.coming

    @property
    def below_nodes(self) -> int:
        return self.below.nodes if self.below else 0

    def cluster(self, *, apart: bool) -> ClusterView:
        """As it is at first. `apart`: the last node takes checkpoints alone."""
        below = range(self.nodes, self.nodes + self.below_nodes)
        roles = dict.fromkeys(below, Role.CAPACITY)
        if apart and self.nodes > 1:
            roles[self.nodes - 1] = Role.CHECKPOINT
        budgets = {}
        if self.below:
            sizes = {Role.KV: self.below.flash, Role.CAPACITY: self.below.capacity}
            budgets = {role: size_bytes // self.load.page_bytes for role, size_bytes in sizes.items()}
        return ClusterView(self.nodes + self.below_nodes, roles, budgets)

    def shares(self) -> list[float]:
        """Of each node that takes pages, what it may do against a node that is not slow."""
        slow = self.slow.count if self.slow else 0
        return [self.slow.share if self.slow and node < slow else 1.0 for node in range(self.nodes)]

    def rates(self, rate: int | None) -> list[int | None]:
        """The limit of each directory in bytes per second, where one that is not slowed further has `rate`."""
        above = [round(rate * share) if rate else None for share in self.shares()]
        return [*above, *([self.below.rate] * self.below.nodes if self.below else ()), *([rate] * self.coming)]

    def refuse(self, name: str) -> None:
        """Raises UsageError for what is no strategy, and for one with a layer that shows nothing here."""
        tiers, checkpoints = (bool(self.below), "tiers"), (bool(self.load.checkpoint_pages), "checkpoints")
        needs = dict.fromkeys(ON_TIERS, tiers)
        needs |= {"device": (bool(self.slow), "uneven"), "separate": checkpoints, "apart": checkpoints}
        needs |= {"guarded": (bool(self.background.ttft_limit), "grows"), "lazy": (bool(self.load.compute), "prefill")}
        refuse_idle(name, self.id, needs)


def on(site: Site, directories: Sequence[Path], rate: int | None) -> Site:
    """The site with as many nodes as a target has directories for. Raises UsageError."""
    nodes = len(directories) - site.below_nodes - site.coming
    named = max((change.node for change in site.changes), default=-1)
    if nodes < 1 or named >= nodes:
        least = site.below_nodes + site.coming + max(1, named + 1)
        raise UsageError(
            f"site {site.id} needs {least} nodes, and the target has {len(directories)}", "add directories"
        )
    if site.slow and not rate:
        raise UsageError(f"site {site.id} has slow nodes, and the target no rate", "add rate_limit_bytes_per_s to it")
    return replace(site, nodes=nodes)


def load(name: str) -> Site:
    """A site of workloads/strategies/, by name or by the path of a file. Raises UsageError."""
    return content.read(content.workload_path("strategies", name), Site)
