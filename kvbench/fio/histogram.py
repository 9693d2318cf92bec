"""fio's latency histogram, as json+ gives it since 2.99: the middle of a bucket in nanoseconds → count. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal

# fio's stat.h: 29 groups of 64 buckets, so that the last one is around 2**33 + 63.5 · 2**27 ns and holds whatever took
# longer. fio 2.x counted microseconds in 19 groups.
LAST_BUCKET_NS = 17_112_760_320
LAST_BUCKET_NS_BEFORE_2_99 = 16_711_680_000


def merge(histograms: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """The histogram of all samples together: the only way to a percentile over several jobs."""
    total: Counter[int] = Counter()
    for bins in histograms:
        total.update(bins)
    return dict(sorted(total.items()))


def percentile_ns(bins: Mapping[int, int], percentile: float) -> int:
    """Nearest rank (numpy's `inverted_cdf`): the smallest value that at least `percentile` % of samples do not exceed.

    `bins` must hold a sample. The rank is exact: in floats, 99.9 % of 1000 is the 1000th.
    """
    rank = max(1, math.ceil(Decimal(str(percentile)) * sum(bins.values()) / 100))
    seen = 0
    for value_ns in sorted(bins):
        seen += bins[value_ns]
        if seen >= rank:
            return value_ns
    raise ValueError("a histogram without samples has no percentile")
