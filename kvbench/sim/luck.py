"""Chance, keyed by what it falls on: the same node meets the same luck at the same operation, whatever came before.

So strategies that are compared differ by what they decide, not by their draws (common random numbers). Pure.
"""

from __future__ import annotations

from functools import cache
from math import exp
from statistics import NormalDist

_MASK = (1 << 64) - 1
_PRIME = (1 << 61) - 1  # of Mersenne
_QUANTILES = 4096


def uniform_bits(seed: int, node: int, operation: int) -> int:
    """64 evenly spread bits for an operation on a node; equal names give equal bits in every process.

    SplitMix64's finaliser (Steele, Lea and Flood, Fast splittable pseudorandom generators, 2014) over the three, the
    operation taken modulo a prime.
    """
    word = (operation % _PRIME + 0x9E3779B97F4A7C15 * (node + 1) + 0xD1B54A32D192ED03 * (seed + 1)) & _MASK
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
    return word ^ (word >> 31)


@cache
def lognormal(sigma: float) -> tuple[float, ...]:
    """4,096 values of a log-normal with median 1, one from the middle of each of as many equal shares."""
    normal = NormalDist()
    return tuple(exp(sigma * normal.inv_cdf((i + 0.5) / _QUANTILES)) for i in range(_QUANTILES))


def pick(values: tuple[float, ...], bits: int) -> float:
    """One of `lognormal`'s values, by the upper bits of a draw."""
    return values[bits >> 52]
