"""Weights follow the load, come to rest, and do not swing."""

from itertools import pairwise
from math import exp2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.store.cluster import ClusterView
from kvbench.store.decay import DecayedHistogram, DecayedMean, DecayedRate
from kvbench.store.weights import DynamicWeights, WeightRule, excess, loads, moved_share, next_weights

S = 10**9
RULE = WeightRule()


def follow(capacities: list[float], rounds: int = 60, rule: WeightRule = RULE) -> list[list[float]]:
    """The weights after each decision, when each node's load is its share of the pages by its capacity."""
    weights = dict.fromkeys(range(len(capacities)), 1.0)
    course = [list(weights.values())]
    for _ in range(rounds):
        load = {node: weights[node] / capacity for node, capacity in enumerate(capacities)}
        weights |= next_weights(weights, load, rule)
        course.append(list(weights.values()))
    return course


CAPACITIES = st.lists(st.floats(0.3, 3.0), min_size=2, max_size=10)


@settings(deadline=None)
@given(CAPACITIES)
def test_under_a_constant_load_the_weights_come_to_rest(capacities):
    course = follow(capacities)
    assert course[-1] == course[-20]


@settings(deadline=None)
@given(CAPACITIES)
def test_at_rest_no_node_has_more_to_do_than_the_deadband_allows(capacities):
    weights = follow(capacities)[-1]
    if RULE.least < min(weights) and max(weights) < RULE.most:
        load = [weight / capacity for weight, capacity in zip(weights, capacities, strict=True)]
        assert max(load) <= (1 + RULE.deadband + 1e-9) * sum(load) / len(load)


@settings(deadline=None)
@given(CAPACITIES)
def test_the_weights_of_two_nodes_move_apart_or_together_but_do_not_swing(capacities):
    """The ratio of any two weights goes one way only, while no weight is at a bound."""
    course = [weights for weights in follow(capacities) if RULE.least < min(weights) and max(weights) < RULE.most]
    ratios = [one / other for one, other, *_ in course]
    assert ratios == sorted(ratios) or ratios == sorted(ratios, reverse=True) or _is_flat(ratios)


def _is_flat(ratios: list[float]) -> bool:
    """Up and down by rounding alone."""
    return max(ratios) / min(ratios) < 1 + 1e-9


@settings(deadline=None)
@given(st.lists(st.floats(0.01, 100.0), min_size=2, max_size=10))
def test_a_load_that_weights_do_not_cure_drives_them_no_farther_than_their_bounds(load):
    weights = dict.fromkeys(range(len(load)), 1.0)
    for _ in range(100):
        weights |= next_weights(weights, dict(enumerate(load)), RULE)
        assert all(RULE.least <= weight <= RULE.most for weight in weights.values())
    assert not next_weights(weights, dict(enumerate(load)), RULE)


def test_loads_that_are_alike_change_nothing():
    assert next_weights({0: 1.0, 1: 1.0}, {0: 1.15, 1: 0.85}, RULE) == {}
    assert next_weights({0: 1.0, 1: 1.0}, {0: 0.0, 1: 0.0}, RULE) == {}


def test_a_load_is_the_largest_of_a_nodes_signals_against_their_means():
    assert loads({0: (10.0, 2.0, 300.0), 1: (30.0, 2.0, 100.0)}) == {0: 1.5, 1: 1.5}
    assert loads({0: (0.0, 0.0, 0.0)}) == {0: 1.0}


def test_a_node_that_is_slow_and_busy_loses_weight_once_an_interval():
    cluster, weights = ClusterView(2), DynamicWeights()
    for ms in range(0, 10_000, 20):
        for node in (0, 1):
            cluster.in_flight[node] = 9 * node
            weights.observe(ms * 10**6, node, 1000, 10**6 * (1 + 9 * node), cluster)
        changed = weights.decide(ms * 10**6, cluster)
        if changed:
            assert ms % 1000 == 0
            assert changed[1] < changed[0]
            cluster.weigh(changed)
    assert cluster.weights[1] < 0.5
    assert cluster.weights[0] > 1.5


# ---------------------------------------------------------------- what a change costs


def test_what_moves_and_what_is_served_too_much_are_shares_of_all():
    assert moved_share({0: 1.0, 1: 1.0}, {0: 0.5, 1: 1.5}) == 0.25
    assert excess({0: 1.5, 1: 0.5}) == 0.25
    assert excess({0: 1.0, 1: 1.0}) == 0


class Skewed:
    """Two nodes with 100 pages of 1 MB each; the first serves 9 MB/s and the second 1 MB/s, whatever the weights."""

    def __init__(self, page_bytes=10**6):
        self.cluster, self.weights = ClusterView(2), DynamicWeights(page_bytes=page_bytes)
        self.now_ns, self.moved_bytes, self.changes = 0, 0.0, []
        for node in (0, 1):
            self.cluster.count(node, 100)

    def run(self, seconds, rates=(9 * 10**6, 10**6)):
        for _ in range(10 * seconds):
            self.now_ns += S // 10
            for node, rate in enumerate(rates):
                self.weights.observe(self.now_ns, node, rate // 10, 10**6, self.cluster)
            before = dict(enumerate(self.cluster.weights))
            if changed := self.weights.decide(self.now_ns, self.cluster):
                self.cluster.weigh(changed)
                self.moved_bytes += 200 * 10**6 * moved_share(before, changed)
                self.changes.append(self.now_ns)


def test_a_change_waits_until_what_was_served_too_much_pays_for_it():
    free, priced = Skewed(page_bytes=0), Skewed()
    free.run(30)
    priced.run(30)
    assert free.changes[0] < 2 * S
    assert not priced.changes, "1.4 MB/s are served too much, and the change moves 15 MB: three times that is 44 MB"
    priced.run(30)
    assert priced.changes


def test_a_load_that_no_change_cures_moves_less_and_less():
    skewed = Skewed()
    skewed.run(1000)
    assert len(skewed.changes) >= 3
    waits = [late - early for early, late in pairwise(skewed.changes)]
    assert waits == sorted(waits)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 10**8), st.integers(1, 10**8)), min_size=1, max_size=8))
def test_weights_never_move_more_than_a_third_of_what_was_served_too_much(courses):
    skewed = Skewed()
    for rates in courses:
        skewed.run(10, rates)
    assert skewed.moved_bytes <= sum(10 * sum(rates) for rates in courses) / 3


# ---------------------------------------------------------------- what they are made of

SAMPLES = st.lists(st.tuples(st.integers(0, 10 * S), st.integers(1, 10**9)), min_size=1, max_size=50)


@settings(deadline=None)
@given(SAMPLES)
def test_a_decayed_mean_weighs_each_value_by_its_age(samples):
    mean, now_ns, seen = DecayedMean(2 * S), 0, []
    for wait_ns, value in samples:
        now_ns += wait_ns
        mean.add(now_ns, value)
        seen.append((now_ns, value))
    weights = [exp2((at_ns - now_ns) / (2 * S)) for at_ns, _ in seen]
    expected = sum(weight * value for weight, (_, value) in zip(weights, seen, strict=True)) / sum(weights)
    assert mean.value == pytest.approx(expected)


def test_averages_survive_a_very_long_time():
    mean, histogram = DecayedMean(1), DecayedHistogram(1)
    for now_ns in (0, 10**6, 10**12, 10**18):
        mean.add(now_ns, now_ns)
        histogram.add(now_ns, 5.0)
    assert mean.value == 10**18
    assert histogram.quantile(0.5) == pytest.approx(5, rel=0.06)


def test_a_steady_rate_is_found():
    rate = DecayedRate(S)
    for ms in range(10_000):
        rate.add(ms * 10**6, 500.0)
    assert rate.per_s(10 * S) == pytest.approx(500_000, rel=0.01)
    assert rate.per_s(11 * S) == pytest.approx(250_000, rel=0.01)


@settings(deadline=None)
@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=200), st.sampled_from([0.5, 0.9, 0.99]))
def test_quantiles_are_right_to_six_percent_and_never_below(values, share):
    histogram = DecayedHistogram(S)
    for value in values:
        histogram.add(0, value)
    exact = sorted(values)[max(0, -(-int(share * 100) * len(values) // 100) - 1)]
    assert exact * 0.999 <= histogram.quantile(share) <= exact * 1.06


def test_quantiles_forget():
    histogram = DecayedHistogram(S)
    for _ in range(1000):
        histogram.add(0, 10**6)
    for _ in range(10):
        histogram.add(20 * S, 10**3)
    assert histogram.quantile(0.9) == pytest.approx(10**3, rel=0.06)
