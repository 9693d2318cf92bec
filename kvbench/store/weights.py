"""Weights that follow what each node has to do, and hold still when that does. Pure.

Three signals of every node, each against the mean of the nodes: the bytes that it moves, its queue depth, and its
latency at a high percentile, all of them forgetting. A node's load is the largest of the three ratios; its weight is
multiplied by (mean load ÷ load)^gain: where the load follows the weights, the error shrinks by (1 − gain) each time.

A change moves pages, so it has to be worth them: it waits until the nodes above the mean have served `price` bytes
too many for each byte that it moves. So what weights move is a bounded share of what is read and written, whatever
the load; and where a change has cured nothing, as with a single page that is read too much, the price doubles. The
store asks for no weights while pages still move to those that it has.
Source: the dynamic weights of the article on KV-cache load balancing (claim C3); the rule is our own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from kvbench.store.cluster import ClusterView
from kvbench.store.decay import DecayedHistogram, DecayedMean, DecayedRate


@dataclass(frozen=True, slots=True)
class WeightRule:
    """When and how far weights change.

    `deadband`      no weight changes while every load is within this share of the mean;
    `step`          nor when none would change by this share or more.
    `least`, `most` bound the weights: a load that they do not cure does not drive them on and on.
    `price`         bytes served too many that pay for one that moves; up to `most_price` while changes cure nothing.
    """

    interval_ns: int = 10**9
    half_life_ns: int = 2 * 10**9
    gain: float = 0.5
    deadband: float = 0.2
    step: float = 0.02
    least: float = 0.25
    most: float = 4.0
    latency_quantile: float = 0.99
    price: float = 3.0  # a page that moves is read, written, and read back
    most_price: float = 3.0 * 2**10


class _Seen:
    """What was seen of one node."""

    def __init__(self, rule: WeightRule) -> None:
        self.rate = DecayedRate(rule.half_life_ns)
        self.depth = DecayedMean(rule.half_life_ns)
        self.latency = DecayedHistogram(rule.half_life_ns)


class DynamicWeights:
    """Weights by load, decided anew every interval. `page_bytes`: what moves with a page; 0: moves cost nothing."""

    def __init__(self, rule: WeightRule | None = None, page_bytes: int = 0) -> None:
        self._rule, self._page_bytes = rule or WeightRule(), page_bytes
        self._price = self._rule.price
        self._seen: dict[int, _Seen] = {}
        self._decides_at_ns: int | None = None
        self._excess_bytes = 0.0  # served too many, since weights were last changed or loads were alike
        self._worst_before: float | None = None  # the highest load, against the mean, before the last change

    def observe(self, now_ns: int, node: int, size_bytes: int, latency_ns: int, cluster: ClusterView) -> None:
        """An I/O has ended at a node, `latency_ns` after it went out."""
        seen = self._seen.get(node) or self._seen.setdefault(node, _Seen(self._rule))
        seen.rate.add(now_ns, size_bytes)
        seen.depth.add(now_ns, cluster.in_flight[node] + 1)
        seen.latency.add(now_ns, latency_ns)

    def decide(self, now_ns: int, cluster: ClusterView) -> dict[int, float]:
        """The weights to be changed; none between two decisions, while loads are alike, or if it does not pay."""
        if self._decides_at_ns is None:
            self._decides_at_ns = now_ns + self._rule.interval_ns
        if now_ns < self._decides_at_ns:
            return {}
        self._decides_at_ns = now_ns + self._rule.interval_ns
        nodes = cluster.targets()
        signals = {node: self._signals(now_ns, node) for node in nodes}
        load, weights = loads(signals), {node: cluster.weights[node] for node in nodes}
        if not (wanted := next_weights(weights, load, self._rule)):
            self._excess_bytes = 0.0
            return {}
        rate = sum(bytes_per_s for bytes_per_s, _, _ in signals.values())
        self._excess_bytes += rate * excess(load) * self._rule.interval_ns / 1e9
        moved_bytes = self._page_bytes * cluster.target_pages * moved_share(weights, wanted)
        return self._changed(wanted, max(load.values()) / fmean(load.values()), moved_bytes)

    def _changed(self, wanted: dict[int, float], worst: float, moved_bytes: float) -> dict[int, float]:
        """The weights that are wanted, if what was served too much pays for what they move."""
        is_cured = self._worst_before is None or worst < self._worst_before
        price = self._rule.price if is_cured else min(2 * self._price, self._rule.most_price)
        if self._excess_bytes < price * moved_bytes:
            return {}
        self._price, self._worst_before, self._excess_bytes = price, worst, 0.0
        return wanted

    def _signals(self, now_ns: int, node: int) -> tuple[float, float, float]:
        if not (seen := self._seen.get(node)):
            return 0.0, 0.0, 0.0
        return seen.rate.per_s(now_ns), seen.depth.value or 0.0, seen.latency.quantile(self._rule.latency_quantile)


def loads(signals: Mapping[int, tuple[float, float, float]]) -> dict[int, float]:
    """A node's load: the largest ratio of one of its signals to the mean of that signal over the nodes.

    The signals are bytes per second, queue depth and latency in ns; one that is 0 everywhere says nothing.
    """
    means = [fmean(values) for values in zip(*signals.values(), strict=True)] if signals else []
    return {
        node: max((value / mean for value, mean in zip(values, means, strict=True) if mean), default=1.0)
        for node, values in signals.items()
    }


def excess(load: Mapping[int, float]) -> float:
    """The share of all work that nodes above the mean do beyond it."""
    mean = fmean(load.values())
    return fmean(max(0.0, value / mean - 1) for value in load.values())


def moved_share(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """The share of all pages that changes its node when shares follow the weights."""
    sums = sum(before.values()), sum(after.values())
    return sum(max(0.0, after[node] / sums[1] - weight / sums[0]) for node, weight in before.items())


def next_weights(weights: Mapping[int, float], load: Mapping[int, float], rule: WeightRule) -> dict[int, float]:
    """The weights that follow from the loads, with a mean of 1 before they are bounded; empty: they stay."""
    mean = fmean(load.values()) if load else 0.0
    if not mean or all(abs(value / mean - 1) <= rule.deadband for value in load.values()):
        return {}
    wanted = {node: weights[node] * (mean / max(load[node], mean * 1e-3)) ** rule.gain for node in weights}
    scale = fmean(wanted.values())
    bounded = {node: min(rule.most, max(rule.least, weight / scale)) for node, weight in wanted.items()}
    if all(abs(weight / weights[node] - 1) < rule.step for node, weight in bounded.items()):
        return {}
    return bounded
