from __future__ import annotations

import math
import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from kvbench import stats

FINITE = st.floats(min_value=1e-6, max_value=1e6)


# ---------------------------------------------------------------- percentile


@pytest.mark.parametrize(
    ("values", "q", "expected"),
    [
        ([7.0], 50, 7.0),
        ([1.0, 2.0], 50, 1.0),  # nearest rank, no mean of two neighbours
        ([1.0, 2.0, 3.0, 4.0], 50, 2.0),
        ([4.0, 1.0, 3.0, 2.0], 75, 3.0),
        (list(range(1, 101)), 99, 99.0),
        (list(range(1, 11)), 99, 10.0),
        ([1.0, 2.0, 3.0], 0, 1.0),
        ([1.0, 2.0, 3.0], 100, 3.0),
    ],
)
def test_percentile_is_the_nearest_rank(values, q, expected):
    assert stats.percentile(values, q) == expected


@given(st.lists(FINITE, min_size=1), st.integers(0, 100))
def test_percentile_is_one_of_the_values(values, q):
    assert stats.percentile(values, q) in values


def test_percentile_of_nothing_is_an_error():
    with pytest.raises(ValueError, match="no values"):
        stats.percentile([], 50)


# ---------------------------------------------------------------- the ratio of two arms


def test_ratio_and_interval_are_those_of_a_paired_t_test_on_logarithms():
    of, against = [1.2, 1.5, 1.1, 1.4], [2.0, 2.2, 2.1, 1.9]
    logs = np.log(np.divide(of, against))
    expected = scipy_stats.ttest_1samp(logs, 0).confidence_interval(0.95)
    interval = stats.paired_log_ratio(of, against)
    assert interval.ratio == pytest.approx(math.exp(logs.mean()))
    assert (interval.low, interval.high) == pytest.approx((math.exp(expected.low), math.exp(expected.high)))
    assert interval.log_sd == pytest.approx(logs.std(ddof=1))
    assert interval.n == 4


def test_what_the_rounds_share_does_not_widen_the_interval():
    baseline = [1.0, 3.0, 2.0, 5.0]
    interval = stats.paired_log_ratio([0.6 * value for value in baseline], baseline)
    assert (interval.low, interval.high) == pytest.approx((0.6, 0.6))


def test_one_round_has_no_interval():
    assert stats.paired_log_ratio([1.0], [2.0]) == stats.RatioInterval(0.5, None, None, 1, None)


@pytest.mark.parametrize(("of", "against"), [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0]), ([-1.0], [1.0])])
def test_rounds_without_a_ratio_are_an_error(of, against):
    with pytest.raises(ValueError):
        stats.paired_log_ratio(of, against)


@given(st.lists(FINITE, min_size=2, max_size=10), st.integers(0, 99))
def test_swapping_the_arms_turns_the_interval_over(of, seed):
    rng = random.Random(seed)
    against = [rng.uniform(0.5, 2) for _ in of]
    there, back = stats.paired_log_ratio(of, against), stats.paired_log_ratio(against, of)
    assert there.ratio == pytest.approx(1 / back.ratio)
    assert there.low == pytest.approx(1 / back.high)


# ---------------------------------------------------------------- how many rounds, how small an effect


def test_rounds_to_decide_is_the_first_number_whose_interval_excludes_the_limit():
    mean, sd, limit = math.log(0.72), 0.0424, 0.75
    rounds = stats.rounds_to_decide(mean, sd, limit)

    def excludes(n):
        return scipy_stats.t.ppf(0.975, n - 1) * sd / math.sqrt(n) < math.log(limit) - mean

    assert rounds is not None
    assert excludes(rounds) and not excludes(rounds - 1)


@pytest.mark.parametrize(
    ("ratio", "log_sd", "expected"),
    [(0.75, 0.01, None), (0.7499, 0.05, None), (0.70, 0.0, 2)],
)
def test_rounds_to_decide_gives_up_below_a_thousand(ratio, log_sd, expected):
    assert stats.rounds_to_decide(math.log(ratio), log_sd, 0.75) == expected


@pytest.mark.parametrize(
    ("true_ratio", "limit", "expected"),
    [
        (0.75, 0.75, 0.025),  # at the limit itself, one tail of the two-sided 95 %
        (1.29, 1.29, 0.025),
        (0.60, 0.75, 1.0),
        (1.60, 1.29, 1.0),
        (0.80, 0.75, 0.0),
        (1.20, 1.29, 0.0),
    ],
)
def test_probability_of_a_pass(true_ratio, limit, expected):
    assert stats.pass_probability(true_ratio, 0.03, 10, limit) == pytest.approx(expected, abs=1e-4)


def test_one_round_never_passes():
    assert stats.pass_probability(0.01, 0.03, 1, 0.75) == 0
    assert stats.smallest_effect(0.03, 1, 0.75) is None


@pytest.mark.parametrize("rounds", [2, 3, 10, 30])
@pytest.mark.parametrize("limit", [0.75, 1.29])
@pytest.mark.parametrize("power", [0.5, 0.8, 0.95])
def test_smallest_effect_passes_with_the_power_asked_for(rounds, limit, power):
    ratio = stats.smallest_effect(0.03, rounds, limit, power)
    assert ratio is not None
    assert abs(ratio - 1) > abs(limit - 1)
    assert stats.pass_probability(ratio, 0.03, rounds, limit) == pytest.approx(power, abs=1e-6)


def test_more_rounds_decide_smaller_effects():
    ratios = [stats.smallest_effect(0.03, rounds, 0.75) for rounds in (2, 3, 5, 10, 30)]
    assert ratios == sorted(ratios)


# ---------------------------------------------------------------- spread and trend


def test_lower_bound_of_the_coefficient_of_variation_holds_in_97_of_100_experiments():
    rng, true_cv = random.Random(1), 0.05
    above = sum(stats.cv_lower_bound([rng.gauss(1, true_cv) for _ in range(10)]) > true_cv for _ in range(4000))
    assert 0.015 < above / 4000 < 0.035


@pytest.mark.parametrize("values", [[], [1.0], [-1.0, 1.0]])
def test_spread_of_too_little_is_an_error(values):
    with pytest.raises(ValueError, match="two values"):
        stats.cv_lower_bound(values)


def test_drift_is_the_change_over_the_span_as_a_share_of_the_median():
    drift = stats.theil_sen_drift([0, 10, 20, 30, 40], [98.0, 99.0, 100.0, 101.0, 102.0])
    assert (drift.change, drift.low, drift.high, drift.n) == pytest.approx((0.04, 0.04, 0.04, 5))


def test_drift_is_not_moved_by_one_outlier():
    values = [100.0 + 0.01 * i for i in range(20)]
    assert stats.theil_sen_drift(range(20), [*values[:10], 500.0, *values[11:]]).change == pytest.approx(
        0.0019, rel=0.1
    )


@pytest.mark.parametrize(
    ("times", "values"), [([], []), ([0, 1], [1.0, 2.0]), ([5, 5, 5], [1.0, 2.0, 3.0]), ([0, 1, 2], [-1.0, 0.0, 1.0])]
)
def test_drift_of_too_little_is_an_error(times, values):
    with pytest.raises(ValueError, match="three samples"):
        stats.theil_sen_drift(times, values)


# ---------------------------------------------------------------- steady state


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        pytest.param([100.0] * 4, None, id="fewer rounds than a window"),
        pytest.param([100.0] * 5, (True, 0, 4), id="flat from the start"),
        pytest.param([300.0, 200.0, 100.0, 100.0, 100.0, 100.0, 100.0], (True, 2, 6), id="steady after a fall"),
        pytest.param([90.0, 110.0, 100.0, 110.0, 90.0], (True, 0, 4), id="range exactly 20 %"),
        pytest.param([90.0, 110.01, 99.99, 110.0, 90.0], (False, 0, 4), id="range just above 20 %"),
        pytest.param([95.0, 97.5, 100.0, 102.5, 105.0], (True, 0, 4), id="slope exactly 10 %"),
        pytest.param([94.9, 97.5, 100.0, 102.5, 105.1], (False, 0, 4), id="slope just above 10 %"),
        pytest.param([100.0, 150.0] * 20, (False, 20, 24), id="never, and nothing after 25 rounds is looked at"),
        pytest.param([*[100.0, 150.0] * 13, *[100.0] * 5], (False, 20, 24), id="steady too late"),
        pytest.param([0.0] * 5, (False, 0, 4), id="nothing moved at all"),
    ],
)
def test_steady_state(rounds, expected):
    seen = stats.steady_state(rounds)
    assert (seen and (seen.reached, seen.first, seen.last)) == expected


def test_steady_state_tells_what_it_saw():
    seen = stats.steady_state([95.0, 97.5, 100.0, 102.5, 105.0])
    assert seen is not None
    assert (seen.range_share, seen.slope_share) == pytest.approx((0.10, 0.10))


def test_importing_loads_neither_numpy_nor_scipy():
    code = "import sys, kvbench.judge; print({'numpy', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("values", "control", "low", "high"),
    [
        ([1.0] * 18, [1.0] * 18, 1.0, 1.0),
        ([0.0] * 8, [], 1.0, 1.0),  # no control, no excess
        ([1.0] * 14 + [0.5] * 4, [1.0] * 14 + [0.5] * 4, 0.4, 0.6),
        ([0.1, 0.2, 0.3], [0.4, 0.5, 0.6], 1 / 20, 1 / 20),  # exact: one of twenty orders
        ([0.0] * 8, [1.0] * 4 + [0.4, 0.5, 0.6, 0.7], 0.0, 0.001),
        ([1.0] * 8, [0.0] * 8, 0.99, 1.0),  # the other way round is no harm
    ],
)
def test_values_that_lie_lower_than_a_control_have_mann_and_whitneys_probability(values, control, low, high):
    assert low - 1e-12 <= stats.lower_probability(values, control) <= high + 1e-12
