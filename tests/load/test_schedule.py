"""Arrivals are offsets, made without a clock."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from kvbench.load import schedule

SECOND = 1_000_000_000


def test_a_wave_is_due_at_once():
    assert schedule.wave(3) == [0, 0, 0]


def test_a_constant_rate_does_not_drift():
    offsets = schedule.constant(3.0, 3001)
    assert offsets[0] == 0
    assert offsets[3000] == 1000 * SECOND


def test_poisson_arrivals_have_the_asked_rate_and_ascend():
    offsets = schedule.poisson(50.0, 20_000, Random(1))
    assert offsets == sorted(offsets)
    assert 20_000 / (offsets[-1] / SECOND) == pytest.approx(50.0, rel=0.03)


def test_poisson_gaps_have_the_spread_of_an_exponential():
    offsets = schedule.poisson(50.0, 20_000, Random(2))
    gaps = [b - a for a, b in pairwise(offsets)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert deviation / mean == pytest.approx(1.0, rel=0.05)


def test_the_same_seed_gives_the_same_arrivals():
    assert schedule.poisson(5.0, 10, Random(7)) == schedule.poisson(5.0, 10, Random(7))


@pytest.mark.parametrize(
    ("offsets", "window", "most"),
    [([], 1, 0), ([0, 0, 0], 1, 3), ([0, 5, 9, 10], 10, 3), ([0, 100, 101, 102], 3, 3), ([0, 100], 100, 1)],
)
def test_the_busiest_window_is_half_open(offsets, window, most):
    assert schedule.busiest(offsets, window) == most
