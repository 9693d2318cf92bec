"""Simulations side by side, over the same seeds: means with intervals, and ratios to the first of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from kvbench import stats
from kvbench.sim import sweep
from kvbench.sim.simulate import FIGURES, Task, simulate


@dataclass(frozen=True, slots=True)
class Estimate:
    """The mean over `n` seeds and half its two-sided 95 % interval (Student's t); None for one seed."""

    mean: float
    half_width: float | None
    n: int


@dataclass(frozen=True, slots=True)
class Column:
    """What one label's runs gave. `ratios` to the first column's, seed by seed; None where a figure is not above 0."""

    label: str
    figures: Mapping[str, Estimate]
    ratios: Mapping[str, stats.RatioInterval | None]


def compare(tasks: Mapping[str, Sequence[Task]], processes: int = 1) -> list[Column]:
    """`tasks`: for each label one task a seed, the same seeds in the same order."""
    flat = [task for runs in tasks.values() for task in runs]
    results = iter(sweep.over(simulate, flat, processes))
    return columns({label: [next(results) for _ in each] for label, each in tasks.items()}, FIGURES)


def columns(runs: Mapping[str, Sequence[Mapping[str, float]]], names: Iterable[str]) -> list[Column]:
    """What each label's runs gave of the figures with these names; the first label is the reference."""
    names, reference = tuple(names), next(iter(runs.values()))
    return [Column(label, _estimates(each, names), _ratios(each, reference, names)) for label, each in runs.items()]


def _estimates(runs: Sequence[Mapping[str, float]], names: Sequence[str]) -> dict[str, Estimate]:
    found = {}
    for name in names:
        values = [run[name] for run in runs]
        half_width = stats.mean_half_width(values) if len(values) > 1 else None
        found[name] = Estimate(fmean(values), half_width, len(values))
    return found


def _ratios(
    runs: Sequence[Mapping[str, float]], reference: Sequence[Mapping[str, float]], names: Sequence[str]
) -> dict[str, stats.RatioInterval | None]:
    ratios = {}
    for name in names:
        of, against = [run[name] for run in runs], [run[name] for run in reference]
        ratios[name] = stats.paired_log_ratio(of, against) if min(*of, *against, 1.0) > 0 else None
    return ratios
