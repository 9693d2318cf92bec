"""The picture of page one: checks of different units on one axis, right of the threshold passes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from kvbench.model import Finding, Outcome
from kvbench.report import forest


def finding(op: str, limit: Any, observed: float | None, interval: Any = None, **other: Any) -> Finding:
    told = {"check": "x", "kind": "performance", "cell": "c8", "arm": "", "reason": "", "why": ""} | other
    return Finding(
        outcome=Outcome.PASS, observed=observed, interval=interval, op=op, limit=limit, unit="ratio", n=3, **told
    )


@pytest.mark.parametrize(
    ("op", "limit", "value", "margin"),
    [
        ("<=", 0.75, 0.6, 1.25),
        ("<=", 0.75, 1.5, 0.5),
        (">=", 1.29, 1.29, 1.0),
        (">=", 1.2, 2.4, 2.0),
        ("<=", 0.05, 0.0, float("inf")),
        ("==", 0, 0, None),
        ("in", (0.99, 1.05), 1.0, None),
        ("<=", 0, 1, None),
    ],
)
def test_margin_is_how_many_times_better_than_the_threshold(op: str, limit: Any, value: float, margin: Any) -> None:
    assert forest.margin(finding(op, limit, value), value) == margin


def test_better_lies_to_the_right_whatever_the_direction_of_the_check() -> None:
    built = forest.build([finding("<=", 0.75, 0.6, (0.55, 0.66)), finding(">=", 1.29, 1.2, (1.1, 1.25))])
    assert built is not None
    good, bad = built.rows
    assert built.threshold < good.low < good.point < good.high <= 1
    assert 0 <= bad.low < bad.point < bad.high < built.threshold


def test_an_interval_beyond_the_axis_is_cut_and_marked() -> None:
    built = forest.build([finding("<=", 0.05, 0.001, (0.0, 0.06))])
    assert built is not None
    (row,) = built.rows
    assert (row.cut_low, row.cut_high, row.high) == (False, True, 1.0)


def test_the_axis_is_labelled_at_the_threshold_and_labels_keep_apart() -> None:
    built = forest.build([finding("<=", 0.75, 0.1, (0.09, 0.9))])
    assert built is not None
    places = [place for place, _ in built.ticks]
    assert (built.threshold, "1×") in built.ticks
    assert all(later - earlier >= 0.1 for earlier, later in pairwise(places))


@pytest.mark.parametrize("other", [{"kind": "evidence"}, {"kind": "integrity"}])
def test_only_performance_is_drawn(other: dict[str, Any]) -> None:
    assert forest.build([finding("<=", 0.75, 0.6, **other)]) is None


def test_a_check_without_a_figure_is_not_drawn() -> None:
    assert forest.build([finding("<=", 0.75, None)]) is None
