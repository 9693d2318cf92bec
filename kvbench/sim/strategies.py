"""Strategies by name: a placement, and layers on top of it. `prefix+ring+weights+hot+merge`, in any order. Pure.

What a name builds is the page store itself, with the collaborators that the layers stand for; nothing of it knows
that its nodes are modelled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kvbench.errors import UsageError
from kvbench.store.cluster import ClusterView, Role
from kvbench.store.core import PageStore
from kvbench.store.hashing import BoundedLoadRing, Hashing, Modulo, Rendezvous, Ring, TwoChoices
from kvbench.store.hot import HotPages, HotRule
from kvbench.store.moves import Mover, MoveSource
from kvbench.store.pace import TokenBucket, TtftGuard
from kvbench.store.placement import ByPage, PrefixAware, Strategy
from kvbench.store.policy import Heat, Lfu, Lru, Policy, S3Fifo
from kvbench.store.queues import Lane, Limit, Queues
from kvbench.store.rebalance import Rebalance
from kvbench.store.tiering import Tiered, Tiering
from kvbench.store.weights import DynamicWeights, WeightRule
from kvbench.units import RateBytes, Seconds

PLACEMENTS: Mapping[str, Callable[[bytes], Hashing]] = {
    "modulo": lambda seed: Modulo(),
    "ring": Ring,
    "bounded": lambda seed: BoundedLoadRing(Ring(seed)),
    "rendezvous": Rendezvous,
    "two-choices": lambda seed: TwoChoices(),
}
LAYERS: Mapping[str, str] = {
    "prefix": "all pages of a prefix on one node (two levels)",
    "weights": "node weights that follow the load where that pays, and pages that follow them within a byte budget",
    "hot": "more copies of pages that are read much",
    "merge": "neighbouring pages of a node read and written in one I/O",
    "separate": "writes in small doses of their own, behind reads",
    "heat": "what leaves the flash tier by decayed frequency, not by age",
    "lfu": "what leaves the flash tier by how often it was used, not by age",
    "s3-fifo": "what leaves the flash tier by three queues, not by age",
    "prefetch": "pages that follow one that is brought up come with it",
    "move": "pages that follow the placement when nodes come and go",
    "paced": "that, within a byte budget",
    "guarded": "that, paused while the TTFT is near a site's limit",
    "session": "that, all pages of a prefix at once",
    "device": "node weights by what each node can read, set once",
    "apart": "checkpoints on nodes of their own, where a site sets some aside",
    "lazy": "a prompt's pages are read when it is to be computed, not while others are",
}

_EVICTION: Mapping[str, Callable[[int], Policy]] = {
    "heat": lambda pages: Heat(_HALF_LIFE_USES),
    "lfu": lambda pages: Lfu(),
    "s3-fifo": S3Fifo,
}  # by the pages that the flash tier holds
ON_TIERS = (*_EVICTION, "prefetch")  # layers that show nothing without a tier below
_SECOND_NS = 10**9
_RUN_PAGES = 4
_MERGE_WAIT_NS = 500_000
_READ_DEPTH, _WRITE_DEPTH, _CHECKPOINT_DEPTH = 64, 4, 1  # a node's I/Os under way
_MOVE_DEPTH = 16
_BATCH_PAGES = _PREFETCH_PAGES = 16  # between tiers
_HALF_LIFE_USES = 20_000


@dataclass(frozen=True, slots=True)
class Background:
    """Of what a store does unasked: as it fits minutes on nodes of GB/s. Shorter runs and slower nodes need another.

    Weights are decided every `interval`; what is hot, and what a node has to do, is halved every two of them. `paced`
    and `weighed` are the most that may move per second, with nodes and with weights. `guarded` moves pause while the
    median TTFT is at nine tenths of `ttft_limit` or above; 0: there is none.
    """

    interval: Seconds = 5.0
    paced: RateBytes = 500 * 10**6
    weighed: RateBytes = 100 * 10**6
    ttft_limit: Seconds = 0.0

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    @property
    def half_life_ns(self) -> int:
        return 2 * self.interval_ns

    @property
    def interval_ns(self) -> int:
        return round(self.interval * _SECOND_NS)


_BACKGROUND = Background()


@dataclass(frozen=True, slots=True)
class Named:
    """A strategy's name, taken apart."""

    placement: str
    layers: frozenset[str]


def parse(name: str) -> Named:
    """Raises UsageError for a part that is not known, unless there is one placement, and for two ways to make room."""
    parts = name.split("+")
    for part in parts:
        if part not in PLACEMENTS and part not in LAYERS:
            raise UsageError(
                f"strategy {name!r}: there is no {part!r}",
                f"a placement ({', '.join(PLACEMENTS)}) and layers ({', '.join(LAYERS)}), joined by +",
            )
    placements = [part for part in parts if part in PLACEMENTS]
    if len(placements) != 1:
        raise UsageError(f"strategy {name!r}: one placement is needed", f"one of: {', '.join(PLACEMENTS)}")
    if len(evictions := sorted(_EVICTION.keys() & set(parts))) > 1:
        raise UsageError(f"strategy {name!r}: {' and '.join(evictions)} exclude each other", "take one of them")
    return Named(placements[0], frozenset(parts) - {placements[0]})


def refuse_idle(name: str, site: str, needs: Mapping[str, tuple[bool, str]]) -> None:
    """Raises UsageError for a layer that would show nothing on a site.

    `needs`: by layer, whether the site has what it works on, and the name of a site of ours that has it.
    """
    for layer in sorted(parse(name).layers & needs.keys()):
        there_is, ours = needs[layer]
        if not there_is:
            raise UsageError(f"strategy {name!r}: {layer} shows nothing on site {site}", f"--site {ours}")


def build(
    name: str,
    cluster: ClusterView,
    page_bytes: int,
    seed: int,
    *,
    has_tiers: bool = False,
    background: Background = _BACKGROUND,
) -> PageStore:
    """The page store that a strategy's name stands for, over `cluster`. Raises UsageError."""
    named = parse(name)
    hashing = PLACEMENTS[named.placement](seed.to_bytes(8, "little"))
    flash: Strategy = PrefixAware(hashing) if "prefix" in named.layers else ByPage(hashing)
    placement = Tiered(flash) if has_tiers else flash
    tiering = [_tiering(named.layers, flash, cluster.room(Role.KV))] if has_tiers else []
    rule = WeightRule(interval_ns=background.interval_ns, half_life_ns=background.half_life_ns)
    return PageStore(
        cluster,
        placement,
        queues=_queues(named.layers, page_bytes),
        mover=_mover(named.layers, placement, tiering, page_bytes, background),
        weights=DynamicWeights(rule, page_bytes) if "weights" in named.layers else None,
    )


def _queues(layers: frozenset[str], page_bytes: int) -> Queues:
    limits = {Lane.READ: Limit(_READ_DEPTH)}
    if "separate" in layers:
        limits |= {Lane.POPULATE: Limit(_WRITE_DEPTH), Lane.CHECKPOINT: Limit(_CHECKPOINT_DEPTH)}
    if "merge" not in layers:
        return Queues(page_bytes, limits=limits)
    return Queues(page_bytes, wait_ns=_MERGE_WAIT_NS, run_pages=_RUN_PAGES, limits=limits)


def _tiering(layers: frozenset[str], flash: Strategy, flash_pages: int) -> Tiering:
    policy = next((make(flash_pages) for name, make in _EVICTION.items() if name in layers), Lru())
    prefetch_pages = _PREFETCH_PAGES if "prefetch" in layers else 0
    return Tiering(flash, policy, Lru(), batch_pages=_BATCH_PAGES, prefetch_pages=prefetch_pages)


def _mover(
    layers: frozenset[str],
    placement: Strategy,
    tiering: Sequence[MoveSource],
    page_bytes: int,
    background: Background,
) -> Mover:
    sources = [*tiering]
    hot = HotPages(HotRule(half_life_ns=background.half_life_ns))
    if "hot" in layers:
        sources.append(hot)
    if layers & {"weights", "move", "paced", "guarded", "session"}:
        unit: Literal["page", "session"] = "session" if "session" in layers else "page"
        sources.append(Rebalance(placement, unit, hot.replicated))
    rate = background.paced if "paced" in layers else background.weighed
    budget = TokenBucket(rate, page_bytes) if layers & {"paced", "weights"} else None
    guard = TtftGuard(round(background.ttft_limit * _SECOND_NS)) if "guarded" in layers else None
    return Mover(sources, page_bytes=page_bytes, depth=_MOVE_DEPTH, budget=budget, guard=guard)
