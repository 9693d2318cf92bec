"""Runs side by side: first what differs in the set-up, then the figures with their intervals. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kvbench import stats
from kvbench.model import Measurement, Metric, Plan

_PASSING = ("pressure", "free_bytes")  # of the machine's facts: what changes by the minute tells no machine apart


@dataclass(frozen=True, slots=True)
class Run:
    """One run to compare. `content` maps each file of gates and workloads that it used to its SHA-256."""

    name: str
    plan: Plan
    measurements: Sequence[Measurement]
    content: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing of the set-up that is not the same in all runs. "" where a run does not have it."""

    what: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """Mean over rounds with its two-sided 95 % interval (Student's t); None for a single round.

    `ratio` is the mean ÷ that of the first run; None where there is none, or where that is 0.
    """

    n: int
    mean: float
    low: float | None
    high: float | None
    ratio: float | None


@dataclass(frozen=True, slots=True)
class Row:
    """A metric of one gate step, cell and arm, over all runs. `judged`: a check of a gate looks at it."""

    kind: str
    cell: str
    arm: str
    metric: str
    unit: str
    judged: bool
    figures: tuple[Figure | None, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    runs: tuple[str, ...]
    differences: tuple[Difference, ...]
    rows: tuple[Row, ...]


def compare(runs: Sequence[Run]) -> Comparison:
    """Compare with the first run, which needs not be the oldest."""
    setups = [dict(_setup(run)) for run in runs]
    names = dict.fromkeys(name for setup in setups for name in setup)
    differences = [Difference(name, tuple(setup.get(name, "") for setup in setups)) for name in names]
    return Comparison(
        runs=tuple(run.name for run in runs),
        differences=tuple(one for one in differences if len(set(one.values)) > 1),
        rows=tuple(_rows(runs)),
    )


# ---------------------------------------------------------------- the set-up


def _setup(run: Run) -> Iterator[tuple[str, str]]:
    """Everything about a run that may explain its figures, as dotted names and printed values."""
    plan = run.plan
    yield "kvbench", plan.kvbench_version
    yield "gate", plan.gate.id
    yield from ((f"content {name}", digest[:12]) for name, digest in run.content.items())
    options = {
        "quick": plan.quick,
        "rounds": max((step.round for step in plan.steps), default=0),
        "seed": plan.seed,
        "slice_s": plan.slice_s,
        "ungated": plan.ungated,
    }
    yield from _flat("plan", options)
    target = asdict(plan.target)
    arms = {arm.pop("name"): arm for arm in target.pop("arms")}
    yield from _flat("target", {**target, "arms": arms})
    for measurement in run.measurements:
        if "machine" in measurement.facts:
            yield from _flat("", measurement.facts)


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    items: Sequence[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        items = [(key, one) for key, one in value.items() if key not in _PASSING]
    elif isinstance(value, list | tuple) and any(isinstance(one, Mapping) for one in value):
        items = list(enumerate(value))
    elif isinstance(value, list | tuple):
        yield prefix, ", ".join(map(str, value))
    else:
        yield prefix, "" if value is None else str(value)
    for key, one in items:
        yield from _flat(f"{prefix}.{key}".lstrip("."), one)


# ---------------------------------------------------------------- the figures

_Key = tuple[str, str, str, str]  # gate step, cell, arm, metric


def _rows(runs: Sequence[Run]) -> Iterator[Row]:
    found = [_values(run) for run in runs]
    units = {key: metrics[0].unit for values in found for key, metrics in values.items()}
    judged = {pair for run in runs for pair in _judged(run.plan)}
    for key in _in_order(units):
        kind, cell, arm, metric = key
        values = [[metric.value for metric in one.get(key, ()) if metric.value is not None] for one in found]
        if any(values):
            figures = tuple(_figure(own, values[0]) for own in values)
            yield Row(kind, cell, arm, metric, units[key], (kind, metric) in judged, figures)


def _in_order(keys: Iterable[_Key]) -> list[_Key]:
    """Steps, cells and metrics as they came, and arms by name: their order in a plan is shuffled."""
    keys = list(keys)
    places = [{name: place for place, name in enumerate(dict.fromkeys(part))} for part in zip(*keys, strict=True)]
    return sorted(keys, key=lambda key: (places[0][key[0]], places[1][key[1]], places[3][key[3]], key[2]))


def _values(run: Run) -> dict[_Key, list[Metric]]:
    """The metrics of every gate step, cell and arm, in the order of the rounds; what was not measured is left out."""
    by_step = {measurement.step_id: measurement for measurement in run.measurements if not measurement.error}
    values: dict[_Key, list[Metric]] = {}
    for step in run.plan.steps:
        if measurement := by_step.get(step.id):
            for name, metric in measurement.metrics.items():
                values.setdefault((step.kind, step.cell, step.arm, name), []).append(metric)
    return values


def _judged(plan: Plan) -> Iterator[tuple[str, str]]:
    for check in plan.gate.checks:
        yield check.step, check.metric
        step, _, metric = check.divide_by.partition(".")
        yield step, metric


def _figure(values: Sequence[float], first: Sequence[float]) -> Figure | None:
    if not values:
        return None
    mean, reference = math.fsum(values) / len(values), math.fsum(first) / len(first) if first else 0.0
    half = stats.mean_half_width(values) if len(values) > 1 else None
    return Figure(
        n=len(values),
        mean=mean,
        low=None if half is None else mean - half,
        high=None if half is None else mean + half,
        ratio=mean / reference if reference else None,
    )
