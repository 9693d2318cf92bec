"""Which layers a load is worth: the articles' rule by the load's own statistics, held against simulations of all.

The rule (claim C12): concurrency stable and lengths alike, prefix hashing; long-tailed lengths, dynamic weights too;
contexts above 128K with hot and cold pages, tiers too. It names no limits; those below are kvbench's.

The advice is the smallest set of layers that meets the limit with its whole interval; where none does, the smallest
one than which no other is certainly faster. A layer's gain is that set with it against that set without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import chain, combinations
from typing import Protocol

from kvbench import stats
from kvbench.load.workload import PageChain, Turn, ideal_hits
from kvbench.sim import sweep
from kvbench.sim.compare import Column, columns
from kvbench.sim.simulate import FIGURES, serve
from kvbench.sim.site import Capacity, Site

Layers = frozenset[str]

# each with the layers of sim.strategies that it stands for
LAYERS: Mapping[str, tuple[str, ...]] = {"prefix": ("prefix",), "weights": ("weights", "hot"), "tiers": ("heat",)}
FIGURE = "ttft_p99_s"
FLASH_PRICE = 5  # of a byte, against one of the capacity tier: flash alone gets what that tier would have cost

_LONG_CONTEXT = 128 * 1024
_LONG_TAILED = 1.0  # coefficient of variation above which lengths are more spread than an exponential distribution
_STABLE = 0.5  # coefficient of variation up to which concurrency stays near its mean
_LONG_SHARE = 0.01  # of requests: the p99 is one of them
_HOT_PAGES, _HOT_USES = 0.1, 0.5  # disparity: a tenth of the pages has half of the uses


class Load(Protocol):
    """What makes turns; the first `unseen` of them fill the storage."""

    @property
    def unseen(self) -> int: ...
    def turns(self, seed: int) -> list[Turn]: ...


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of a load. `in_flight` requests and their variation are those of its simulation without any layer."""

    requests: int
    prompt_tokens_p50: float
    prompt_tokens_p99: float
    prompt_tokens_most: int
    prompt_tokens_cv: float
    long_context_share: float
    hot_uses_share: float
    reused_share: float
    in_flight: float
    in_flight_cv: float

    @property
    def is_long_tailed(self) -> bool:
        return self.prompt_tokens_cv > _LONG_TAILED

    @property
    def is_stable(self) -> bool:
        return self.in_flight_cv <= _STABLE

    @property
    def has_disparity(self) -> bool:
        return self.hot_uses_share >= _HOT_USES

    @property
    def has_long_contexts(self) -> bool:
        return self.long_context_share >= _LONG_SHARE


class Limit(StrEnum):
    """Whether the interval of a figure, and what the models miss, lie below the limit, above it, or on both sides."""

    MET = "met"
    MISSED = "missed"
    UNDECIDED = "undecided"


class Worth(StrEnum):
    """What is said of a layer."""

    FASTER = "worth it: certainly faster with it"
    NEEDED = "worth it: the limit is certainly met only with it"
    JOINTLY = "worth it: every smaller set is certainly slower than another one"
    MET_WITHOUT = "not worth it: the limit is met without it"
    SLOWER = "not worth it: certainly slower with it"
    UNCERTAIN = "not worth it: no certain gain"
    NO_CHOICE = "not simulated: with one node there is nothing to choose"
    NO_TIER = "not simulated: the site has no tier below flash"


@dataclass(frozen=True, slots=True)
class Combination:
    """Layers together. `to_limit`: their TTFT ÷ the limit, over seeds. `error`: by which share the models miss what
    was measured, as far as that is known."""

    layers: Layers
    column: Column
    to_limit: stats.RatioInterval
    error: float = 0.0

    @property
    def name(self) -> str:
        return name_of(self.layers)

    @property
    def limit(self) -> Limit:
        low, high, off = self.to_limit.low, self.to_limit.high, 1 + self.error
        if high is not None and high * off < 1:
            return Limit.MET
        return Limit.MISSED if low is not None and low / off > 1 else Limit.UNDECIDED


@dataclass(frozen=True, slots=True)
class Gain:
    """What a layer does to the advised set: TTFT with it ÷ TTFT without it; None where it was not simulated."""

    layer: str
    in_rule: bool
    ratio: stats.RatioInterval | None
    worth: Worth


@dataclass(frozen=True, slots=True)
class Advice:
    """`rule`: what the articles' rule says. `rule_ratio`: its TTFT ÷ that of the advised set, as far as the site can
    show its layers."""

    statistics: Statistics
    rule: Layers
    combinations: tuple[Combination, ...]
    advised: Combination
    gains: tuple[Gain, ...]
    rule_ratio: stats.RatioInterval


def advise(
    load: Load,
    site: Site,
    limit_s: float,
    seeds: Sequence[int],
    *,
    processes: int = 1,
    before_s: float = 0.0,
    error: float = 0.0,
    done: Callable[[int], object] = lambda runs: None,
) -> Advice:
    """Simulate every set of layers that the site can show. `before_s` comes before each first token; `error` is what
    the models are known to miss. `done` is told how many simulations there are, after each of them."""
    shown = _shown(site)
    sets = [frozenset(each) for each in chain(*(combinations(shown, count) for count in range(len(shown) + 1)))]
    tasks = [(site, layers, seed) for layers in sets for seed in seeds]
    results = iter(sweep.over(partial(_simulate, load, before_s), tasks, processes, partial(done, len(tasks))))
    runs = {layers: [next(results) for _ in seeds] for layers in sets}
    named = {name_of(layers): each for layers, each in runs.items()}
    measured = Ttft({layers: [run[FIGURE] for run in each] for layers, each in runs.items()})
    found = tuple(
        Combination(layers, column, measured.to_limit(layers, limit_s), error)
        for layers, column in zip(sets, columns(named, FIGURES), strict=True)
    )
    advised = choose(found, measured)
    base = runs[frozenset()]
    statistics = statistics_of(load.turns(seeds[0])[load.unseen :], site.page_tokens, base)
    rule = by_rule(statistics)
    gains = tuple(_gain(layer, layer in rule, site, advised, measured) for layer in LAYERS)
    return Advice(statistics, rule, found, advised, gains, measured.ratio(rule & frozenset(shown), advised.layers))


# ---------------------------------------------------------------- the load, and the rule


def statistics_of(turns: Sequence[Turn], page_tokens: int, runs: Sequence[Mapping[str, float]]) -> Statistics:
    """Of turns, and of their simulations without any layer."""
    lengths = [turn.prompt_tokens for turn in turns]
    pages = PageChain(page_tokens)
    uses = sorted(Counter(page for turn in turns for page in pages.digests(turn.prompt)).values(), reverse=True)
    hottest = max(1, round(_HOT_PAGES * len(uses)))
    return Statistics(
        requests=len(turns),
        prompt_tokens_p50=stats.percentile(lengths, 50),
        prompt_tokens_p99=stats.percentile(lengths, 99),
        prompt_tokens_most=max(lengths),
        prompt_tokens_cv=stats.coefficient_of_variation(lengths) if len(lengths) > 1 else 0.0,
        long_context_share=sum(length > _LONG_CONTEXT for length in lengths) / len(lengths),
        hot_uses_share=sum(uses[:hottest]) / max(1, sum(uses)),
        reused_share=ideal_hits(turns, page_tokens).share,
        in_flight=sum(run["in_flight"] for run in runs) / len(runs),
        in_flight_cv=sum(run["in_flight_cv"] for run in runs) / len(runs),
    )


def by_rule(load: Statistics) -> Layers:
    """The articles' rule; none where it says nothing."""
    layers = set[str]()
    if load.is_long_tailed:
        layers |= {"prefix", "weights"}
    elif load.is_stable:
        layers.add("prefix")
    if load.has_long_contexts and load.has_disparity:
        layers.add("tiers")
    return frozenset(layers)


# ---------------------------------------------------------------- what is simulated


def name_of(layers: Layers) -> str:
    return " + ".join(layer for layer in LAYERS if layer in layers) or "none"


def strategy_of(layers: Layers) -> str:
    """As sim.strategies names it."""
    return "+".join(["ring", *(part for layer, parts in LAYERS.items() if layer in layers for part in parts)])


def without_tiers(site: Site) -> Site:
    """Flash alone, as much of it as flash and capacity tier together cost."""
    tiers = site.capacity
    if tiers is None:
        return site
    flash = tiers.flash + tiers.capacity // FLASH_PRICE
    return replace(site, capacity=Capacity(nodes=0, node=tiers.node, flash=flash, capacity=0))


def _shown(site: Site) -> list[str]:
    return [layer for layer in LAYERS if _hidden(layer, site) is None]


def _hidden(layer: str, site: Site) -> Worth | None:
    """Why a site cannot show what a layer does; None where it can."""
    if layer == "tiers":
        return None if site.capacity and site.capacity.nodes else Worth.NO_TIER
    return Worth.NO_CHOICE if site.nodes == 1 else None


def _simulate(load: Load, before_s: float, task: tuple[Site, Layers, int]) -> dict[str, float]:
    site, layers, seed = task
    place = site if "tiers" in layers else without_tiers(site)
    figures = serve(place, load.turns(seed), strategy_of(layers), seed, load.unseen)
    return figures | {name: value + before_s for name, value in figures.items() if name.startswith("ttft_")}


# ---------------------------------------------------------------- the choice


@dataclass(frozen=True, slots=True)
class Ttft:
    """Seconds of each set of layers, seed by seed."""

    of: Mapping[Layers, Sequence[float]]

    def ratio(self, layers: Layers, against: Layers) -> stats.RatioInterval:
        return stats.paired_log_ratio(self.of[layers], self.of[against])

    def to_limit(self, layers: Layers, limit_s: float) -> stats.RatioInterval:
        return stats.paired_log_ratio(self.of[layers], [limit_s] * len(self.of[layers]))


def choose(found: Sequence[Combination], measured: Ttft) -> Combination:
    """The fewest layers come first, and of as many the faster ones."""
    ordered = sorted(found, key=lambda each: (len(each.layers), each.to_limit.ratio))
    met = (each for each in ordered if each.limit is Limit.MET)
    return next(met, None) or next(each for each in ordered if not _is_beaten(each, found, measured))


def _is_beaten(by: Combination, found: Sequence[Combination], measured: Ttft) -> bool:
    return any(is_below_1(measured.ratio(other.layers, by.layers)) for other in found if other is not by)


def is_below_1(ratio: stats.RatioInterval) -> bool:
    return ratio.high is not None and ratio.high < 1


def is_above_1(ratio: stats.RatioInterval) -> bool:
    return ratio.low is not None and ratio.low > 1


def _gain(layer: str, in_rule: bool, site: Site, advised: Combination, measured: Ttft) -> Gain:
    hidden = _hidden(layer, site)
    if hidden:
        return Gain(layer, in_rule, None, hidden)
    ratio = measured.ratio(advised.layers | {layer}, advised.layers - {layer})
    if layer in advised.layers:
        without_gain = Worth.NEEDED if advised.limit is Limit.MET else Worth.JOINTLY
        worth = Worth.FASTER if is_below_1(ratio) else without_gain
    elif is_above_1(ratio):
        worth = Worth.SLOWER
    else:
        worth = Worth.MET_WITHOUT if advised.limit is Limit.MET else Worth.UNCERTAIN
    return Gain(layer, in_rule, ratio, worth)
