"""When requests are due, as offsets in nanoseconds from the start of the load. Pure: no clock is read.

These are open-loop arrivals: a request is due whether or not the server has answered the ones before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from random import Random

_NS = 1_000_000_000


def wave(n: int) -> list[int]:
    """`n` requests, all due at once."""
    return [0] * n


def constant(rate_per_s: float, n: int) -> list[int]:
    """`n` requests, evenly spaced; the first is due at 0."""
    return [round(i * _NS / rate_per_s) for i in range(n)]


def poisson(rate_per_s: float, n: int, rng: Random) -> list[int]:
    """`n` requests of a Poisson process: exponential gaps of mean 1 ÷ rate, the first before the first request."""
    due_s, offsets = 0.0, []
    for _ in range(n):
        due_s += rng.expovariate(rate_per_s)
        offsets.append(round(due_s * _NS))
    return offsets


def busiest(due_offsets_ns: Sequence[int], window_ns: int) -> int:
    """The most requests that are due within any half-open window of this length. Offsets ascend."""
    return max((bisect_left(due_offsets_ns, due + window_ns) - i for i, due in enumerate(due_offsets_ns)), default=0)
