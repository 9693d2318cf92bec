"""Averages and percentiles that forget: what was seen loses half its weight in every half-life. Pure.

Forward decay: a value gets the weight 2^(age of the clock ÷ half-life) when it comes, so that nothing that was seen
before has to be touched. Source: Cormode, Shkapenyuk, Srivastava and Xu, Forward decay, ICDE 2009.
"""

from __future__ import annotations

from math import exp, exp2, floor, log

_BUCKETS_PER_E = 20  # buckets are 5.1 % wide


class _Clock:
    """The weight of what comes now, and how to shrink what has come when that weight grows too large."""

    def __init__(self, half_life_ns: int) -> None:
        self._half_life_ns = half_life_ns
        self._began_ns: int | None = None

    def weight(self, now_ns: int) -> tuple[float, float]:
        """The weight of a value that comes now, and the factor that all earlier weights are to be multiplied by."""
        if self._began_ns is None:
            self._began_ns = now_ns
        half_lives = (now_ns - self._began_ns) / self._half_life_ns
        if half_lives < 256:  # a double reaches to 2^1023
            return exp2(half_lives), 1.0
        self._began_ns = now_ns
        return 1.0, exp2(-half_lives) if half_lives < 1000 else 0.0


class DecayedMean:
    """The mean of what was added; None before that."""

    def __init__(self, half_life_ns: int) -> None:
        self._clock = _Clock(half_life_ns)
        self._sum = self._weight = 0.0

    def add(self, now_ns: int, value: float) -> None:
        weight, shrink = self._clock.weight(now_ns)
        self._sum = self._sum * shrink + weight * value
        self._weight = self._weight * shrink + weight

    @property
    def value(self) -> float | None:
        return self._sum / self._weight if self._weight else None


class DecayedRate:
    """Units per second: what was added, spread over the half-lives that it is remembered for."""

    def __init__(self, half_life_ns: int) -> None:
        self._half_life_ns = half_life_ns
        self._sum, self._at_ns = 0.0, 0

    def add(self, now_ns: int, amount: float) -> None:
        self._sum = self._left(now_ns) + amount
        self._at_ns = now_ns

    def per_s(self, now_ns: int) -> float:
        """∑ amount · 2^(−age ÷ half-life), divided by the weight of all time, half-life ÷ ln 2."""
        return self._left(now_ns) * log(2) / (self._half_life_ns / 1e9)

    def _left(self, now_ns: int) -> float:
        return self._sum * exp2(-(now_ns - self._at_ns) / self._half_life_ns)


class DecayedHistogram:
    """Quantiles of what was added, to 5 %: values are counted in buckets of a geometric width."""

    def __init__(self, half_life_ns: int) -> None:
        self._clock = _Clock(half_life_ns)
        self._buckets: dict[int, float] = {}

    def add(self, now_ns: int, value: float) -> None:
        weight, shrink = self._clock.weight(now_ns)
        if shrink != 1.0:
            self._buckets = {bucket: held * shrink for bucket, held in self._buckets.items() if held * shrink}
        bucket = floor(log(max(value, 1.0)) * _BUCKETS_PER_E)
        self._buckets[bucket] = self._buckets.get(bucket, 0.0) + weight

    def quantile(self, share: float) -> float:
        """The upper end of the bucket that the quantile falls into; 0 when nothing was added."""
        wanted = share * sum(self._buckets.values())
        for bucket in sorted(self._buckets):
            wanted -= self._buckets[bucket]
            if wanted <= 0:
                return exp((bucket + 1) / _BUCKETS_PER_E)
        return 0.0
