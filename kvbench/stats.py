"""Percentiles, intervals, steady state, drift. Pure.

The independent unit is the round: requests of one wave share the queue and finish together. numpy and scipy are
imported inside the functions that use them, so that the command line starts fast; quantiles are kept, since they
depend on counts alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

P99_NEEDS = 100  # samples; of fewer a nearest-rank p99 is the maximum
MOST_ROUNDS = 1000  # no plan has as many; a question that needs more is not decided by more rounds


@dataclass(frozen=True, slots=True)
class RatioInterval:
    """A ratio of two arms over `n` rounds: geometric mean, two-sided interval, spread of its logarithm.

    One round has neither an interval nor a spread: then they are None.
    """

    ratio: float
    low: float | None
    high: float | None
    n: int
    log_sd: float | None


@dataclass(frozen=True, slots=True)
class Drift:
    """The change over the whole span of `n` samples, as a share of their median, with its two-sided interval."""

    change: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class SteadyState:
    """The first window of rounds that was steady, or the last one looked at where none was.

    `first` and `last` are its rounds, counted from 0. `range_share` and `slope_share` are what the rule limits.
    """

    reached: bool
    first: int
    last: int
    range_share: float
    slope_share: float


def percentile(values: Sequence[float], q: float) -> float:
    """The `q`-th percentile (0 to 100) by nearest rank: always one of `values` (Hyndman & Fan 1996, definition 1).

    Raises ValueError when there are no values.
    """
    import numpy as np

    if len(values) == 0:
        raise ValueError("no values, so no percentile")
    return float(np.percentile(values, q, method="inverted_cdf"))


def ratio(part: float | None, whole: float | None) -> float | None:
    """None where the part is not known, or the whole is not known or nothing."""
    return None if part is None or not whole else part / whole


def paired_log_ratio(of: Sequence[float], against: Sequence[float], confidence: float = 0.95) -> RatioInterval:
    """Ratio `of` ÷ `against`, paired round by round: Student's t on the logarithms.

    Raises ValueError on no rounds, unequal numbers of them, or a value that is not positive.
    """
    logs = [math.log(a / b) for a, b in zip(of, against, strict=True)]
    if not logs:
        raise ValueError("no rounds, so no ratio")
    n, mean = len(logs), math.fsum(logs) / len(logs)
    if n == 1:
        return RatioInterval(math.exp(mean), None, None, 1, None)
    sd = math.sqrt(math.fsum((x - mean) ** 2 for x in logs) / (n - 1))
    half = _t_quantile(n - 1, confidence) * sd / math.sqrt(n)
    return RatioInterval(math.exp(mean), math.exp(mean - half), math.exp(mean + half), n, sd)


def rounds_to_decide(log_ratio_mean: float, log_sd: float, limit: float, confidence: float = 0.95) -> int | None:
    """The smallest number of rounds whose interval would exclude the ratio `limit`, were mean and spread to stay.

    None when it is not below 1,000.
    """
    distance = abs(log_ratio_mean - math.log(limit))
    widths = _half_widths(confidence)
    return next((n for n, width in enumerate(widths, start=2) if width * log_sd < distance), None)


def mean_half_width(values: Sequence[float], confidence: float = 0.95) -> float:
    """Half the width of the two-sided interval of the mean, by Student's t. Raises ValueError below two values."""
    n = len(values)
    if n < 2:
        raise ValueError("an interval needs two values")
    mean = math.fsum(values) / n
    sd = math.sqrt(math.fsum((x - mean) ** 2 for x in values) / (n - 1))
    return _t_quantile(n - 1, confidence) * sd / math.sqrt(n)


def lower_probability(values: Sequence[float], control: Sequence[float]) -> float:
    """How likely `values` would lie so low against `control` if both came from one distribution.

    Mann and Whitney's rank test, one-sided, with scipy's choice between the exact and the normal distribution.
    1.0 when there is nothing to compare.
    """
    from scipy.stats import mannwhitneyu

    if not values or not control or len({*values, *control}) == 1:
        return 1.0
    return float(mannwhitneyu(values, control, alternative="less").pvalue)


def coefficient_of_variation(values: Sequence[float]) -> float:
    """Sample standard deviation ÷ mean. Raises ValueError below two values or at a mean of 0."""
    n = len(values)
    mean = math.fsum(values) / n if n else 0.0
    if n < 2 or mean == 0:
        raise ValueError("a coefficient of variation needs two values and a mean that is not 0")
    return math.sqrt(math.fsum((x - mean) ** 2 for x in values) / (n - 1)) / abs(mean)


def cv_lower_bound(values: Sequence[float], confidence: float = 0.95) -> float:
    """Lower end of the two-sided interval of the coefficient of variation, for normal values.

    Modified McKay: Vangel (1996), The American Statistician 50(1), 21–26; good for coefficients below about 1/3.
    Raises ValueError as `coefficient_of_variation` does.
    """
    cv, n = coefficient_of_variation(values), len(values)
    u = _chi2_quantile(n - 1, 0.5 + confidence / 2)
    return cv / math.sqrt(((u + 2) / n - 1) * cv**2 + u / (n - 1))


def theil_sen_drift(times: Sequence[float], values: Sequence[float], confidence: float = 0.95) -> Drift:
    """The median slope of all pairs × the span of `times` ÷ the median of `values` (Theil 1950; Sen 1968).

    Raises ValueError below three samples, or where span or median is 0.
    """
    import numpy as np
    from scipy import stats

    n = len(values)
    span, median = (float(np.ptp(times)), float(np.median(values))) if n else (0.0, 0.0)
    if n < 3 or span == 0 or median == 0:
        raise ValueError("a drift needs three samples, a span of time, and a median that is not 0")
    fit = stats.theilslopes(values, times, alpha=confidence)
    low, high = sorted(float(slope) * span / median for slope in (fit.low_slope, fit.high_slope))
    return Drift(float(fit.slope) * span / median, low, high, n)


def steady_state(rounds: Sequence[float], window: int = 5, at_most: int = 25) -> SteadyState | None:
    """The SNIA rule (Solid State Storage Performance Test Specification 2.0): the first `window` consecutive rounds
    with max − min ≤ 20 % of their mean, whose fitted line moves ≤ 10 % of the mean from the first round to the last.

    Rounds after `at_most` are not looked at. None while there are fewer rounds than a window.
    """
    seen = None
    for first in range(min(len(rounds), at_most) - window + 1):
        seen = _steadiness(rounds[first : first + window], first)
        if seen.reached:
            break
    return seen


def _steadiness(values: Sequence[float], first: int) -> SteadyState:
    n, mean = len(values), math.fsum(values) / len(values)
    from_centre = [i - (n - 1) / 2 for i in range(n)]
    slope = math.fsum(x * y for x, y in zip(from_centre, values, strict=True)) / math.fsum(x * x for x in from_centre)
    spread, movement = max(values) - min(values), abs(slope) * (n - 1)
    reached = mean > 0 and 5 * spread <= mean and 10 * movement <= mean  # multiplied out: the borders are exact
    shares = (spread / mean, movement / mean) if mean > 0 else (math.inf, math.inf)
    return SteadyState(reached, first, first + n - 1, *shares)


def pass_probability(true_ratio: float, round_cv: float, rounds: int, limit: float) -> float:
    """How probably a check that asks for a gain passes: its whole interval beyond `limit`, on the side away from 1.

    Two-sided 95 %. `round_cv` is the coefficient of variation of one arm's rounds, both arms alike and log-normal;
    the t statistic against the limit is then noncentral t. One round never passes.
    """
    from scipy import stats  # scipy.special has no number for some large shifts

    if rounds < 2:
        return 0.0
    beyond = math.log(limit / true_ratio) if limit < 1 else math.log(true_ratio / limit)
    shift = beyond * math.sqrt(rounds) / _log_ratio_sd(round_cv)
    return float(stats.nct.sf(_t_quantile(rounds - 1, 0.95), rounds - 1, shift))


def smallest_effect(round_cv: float, rounds: int, limit: float, power: float = 0.8) -> float | None:
    """The true ratio nearest to `limit`, on its side away from 1, that passes with probability `power`.

    0.70 for a limit of 0.75 reads: a reduction of 30 % can be decided, a smaller one may well stay open.
    None below two rounds, which never pass.
    """
    from scipy import optimize

    if rounds < 2:
        return None
    away = -1 if limit < 1 else 1
    step = _log_ratio_sd(round_cv) / math.sqrt(rounds)

    def lacking(shift: float) -> float:
        return pass_probability(limit * math.exp(away * shift * step), round_cv, rounds, limit) - power

    most = 8.0 * _t_quantile(rounds - 1, 0.95)  # shifts beyond it pass for certain
    return limit * math.exp(away * float(optimize.brentq(lacking, 0.0, most)) * step)


def round_cv(log_ratio_sd: float) -> float:
    """The coefficient of variation of one arm's rounds, from the spread of the log ratio of two arms alike."""
    return math.sqrt(math.expm1(log_ratio_sd**2 / 2))


def _log_ratio_sd(round_cv: float) -> float:
    """Standard deviation of the log ratio of two independent log-normal values of this coefficient of variation."""
    return math.sqrt(2 * math.log1p(round_cv**2))


@lru_cache
def _t_quantile(degrees: int, confidence: float) -> float:
    from scipy import special  # scipy.stats has the same under plainer names, and takes most of a second to import

    return float(special.stdtrit(degrees, 0.5 + confidence / 2))


@lru_cache
def _chi2_quantile(degrees: int, q: float) -> float:
    from scipy import special

    return float(2 * special.gammaincinv(degrees / 2, q))


@lru_cache
def _half_widths(confidence: float) -> tuple[float, ...]:
    """Half width of an interval of 2, 3 … rounds, in standard deviations of one round."""
    import numpy as np
    from scipy import special

    n = np.arange(2, MOST_ROUNDS)
    return tuple((special.stdtrit(n - 1, 0.5 + confidence / 2) / np.sqrt(n)).tolist())
