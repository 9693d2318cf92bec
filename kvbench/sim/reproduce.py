"""The published cells, predicted: devices by their printed peaks, and an engine that is fitted on one cell.

A wave is simulated with the scheduler that kvbench's engine runs: it loads within its step, as the published engine
does, so all requests but the first get their tokens together; its host memory keeps what earlier waves have left in
it; and it decodes by the roofline. Two constants are fitted, on one cell and for all: the time before loading begins,
from that cell's TTFT, and the time that its wave took beyond that, from its throughput.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from kvbench.engine.protocol import EngineConfig
from kvbench.sim import sweep
from kvbench.sim.device import NodeModel
from kvbench.sim.published import RECOMPUTE, Cell, Published, Report
from kvbench.sim.roofline import cost
from kvbench.sim.waves import Rig, Sessions, Wave


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one wave."""

    ttft_p50_s: float
    wall_s: float
    sessions_read: float


@dataclass(frozen=True, slots=True)
class Constants:
    """`before_s`: until loading begins. `after_s`: what a wave takes beyond its tokens."""

    before_s: float
    after_s: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """A cell, as printed and as simulated. `naive_*`: constant bandwidth and the constants that fit the same cell."""

    cell: Cell
    ttft_p50_s: float
    tokens_per_s: float
    sessions_read: float | None
    naive_ttft_p50_s: float | None
    naive_tokens_per_s: float | None

    @property
    def errors(self) -> tuple[float, float]:
        """Of TTFT and throughput, as shares of what was printed."""
        return self.ttft_p50_s / self.cell.ttft_p50_s - 1, self.tokens_per_s / self.cell.tokens_per_s - 1

    @property
    def naive_errors(self) -> tuple[float, float] | None:
        if self.naive_ttft_p50_s is None or self.naive_tokens_per_s is None:
            return None
        return self.naive_ttft_p50_s / self.cell.ttft_p50_s - 1, self.naive_tokens_per_s / self.cell.tokens_per_s - 1


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Absolute errors of TTFT and throughput together, over the cells that nothing was fitted on."""

    median: float
    worst: float
    n: int


@dataclass(frozen=True, slots=True)
class Reproduction:
    report: Report
    fitted: Cell
    constants: Constants
    predictions: tuple[Prediction, ...]
    storage: Accuracy
    naive: Accuracy
    recompute: Accuracy | None


def reproduce(published: Published, name: str, seeds: Sequence[int], processes: int = 1) -> Reproduction:
    """Predict every cell of a report; figures are means over `seeds`, which draw the order of arrival."""
    report, fitted_report = published.report(name), published.report(published.fitted_on.report)
    fitted = fitted_report.cell(published.fitted_on.cell)
    reports = [report] if report is fitted_report else [replace(fitted_report, cells=(fitted,)), report]
    tasks = [(published, each, seed) for each in reports for seed in seeds]
    results = dict(zip([(task[1].id, task[2]) for task in tasks], sweep.over(_simulate, tasks, processes), strict=True))
    mean = {each.id: _mean([results[each.id, seed] for seed in seeds]) for each in reports}
    constants = _fit(published, fitted, mean[fitted_report.id][fitted.id])
    naive = _fit(published, fitted, _naive(published, fitted))
    predictions = tuple(_predict(published, cell, mean[report.id][cell.id], constants, naive) for cell in report.cells)
    free = [each for each in predictions if each.cell is not fitted]
    storage = [each for each in free if each.cell.medium != RECOMPUTE]
    recompute = [each for each in free if each.cell.medium == RECOMPUTE]
    return Reproduction(
        report,
        fitted,
        constants,
        predictions,
        _accuracy([each.errors for each in storage]),
        _accuracy([each.naive_errors for each in storage if each.naive_errors]),
        _accuracy([each.errors for each in recompute]) if recompute else None,
    )


def session_bytes(published: Published) -> int:
    platform = published.platform
    shape = cost("published platform", platform.model, platform.accelerator, 1).shape
    return shape.kv_bytes_per_token * platform.page_tokens * platform.session_pages


# ---------------------------------------------------------------- one simulation of all cells


def _simulate(task: tuple[Published, Report, int]) -> dict[str, Figures]:
    """All cells of a report under one seed; the cells of a medium follow each other in one engine."""
    published, report, seed = task
    engine, sessions = config(published, report), _sessions(published)
    most = max(cell.concurrency for cell in report.cells) // report.instances
    figures, rigs = {}, dict[str, Rig]()
    for cell in report.cells:
        if cell.starts or cell.medium not in rigs:
            device = _device(published, cell.medium)
            rigs[cell.medium] = Rig(engine, device, sessions, instances=report.instances, most=most, seed=seed)
        wave = rigs[cell.medium].wave(cell.concurrency)
        read = wave.bytes_read / session_bytes(published)
        figures[cell.id] = Figures(middle(report.percentile, wave), wave.wall_s, read)
    return figures


def config(published: Published, report: Report) -> EngineConfig:
    platform = published.platform
    return EngineConfig(
        cost(f"report {report.id}", platform.model, platform.accelerator, report.tensor_parallel),
        page_tokens=platform.page_tokens,
        step_tokens=platform.step_tokens,
        host_memory_bytes=platform.host_memory_per_rank * report.tensor_parallel,
        blocking_loads=True,
    )


def _sessions(published: Published) -> Sessions:
    """The prompt is the shortest one that the logged hits allow: one token more."""
    platform = published.platform
    return Sessions(platform.session_pages, platform.session_pages * platform.page_tokens + 1, platform.output_tokens)


def _device(published: Published, medium: str) -> NodeModel | None:
    return None if medium == RECOMPUTE else NodeModel.of_rate(published.rate_bytes_per_s(medium))


def middle(definition: str, wave: Wave) -> float:
    """The median as a report defines it."""
    merged = sorted(value for values in wave.ttft_s for value in values)
    match definition:
        case "floor_index":
            return merged[len(merged) // 2]
        case "nearest_rank":
            return merged[math.ceil(len(merged) / 2) - 1]
        case _:
            return fmean(values[len(values) // 2] for values in wave.ttft_s)


def _mean(runs: Sequence[Mapping[str, Figures]]) -> dict[str, Figures]:
    return {
        name: Figures(
            fmean(run[name].ttft_p50_s for run in runs),
            fmean(run[name].wall_s for run in runs),
            fmean(run[name].sessions_read for run in runs),
        )
        for name in runs[0]
    }


# ---------------------------------------------------------------- fit and predict


def _naive(published: Published, cell: Cell) -> Figures:
    """All bytes at the medium's peak, and nothing else."""
    seconds = cell.concurrency * session_bytes(published) / published.rate_bytes_per_s(cell.medium)
    return Figures(seconds, seconds, cell.concurrency)


def _fit(published: Published, cell: Cell, figures: Figures) -> Constants:
    before_s = cell.ttft_p50_s - figures.ttft_p50_s
    wall_s = cell.concurrency * published.platform.output_tokens / cell.tokens_per_s
    return Constants(before_s, wall_s - before_s - figures.wall_s)


def _predict(published: Published, cell: Cell, figures: Figures, constants: Constants, naive: Constants) -> Prediction:
    tokens = cell.concurrency * published.platform.output_tokens
    is_storage = cell.medium != RECOMPUTE
    plain_s = _naive(published, cell).ttft_p50_s if is_storage else 0.0
    return Prediction(
        cell,
        ttft_p50_s=figures.ttft_p50_s + constants.before_s,
        tokens_per_s=tokens / (figures.wall_s + constants.before_s + constants.after_s),
        sessions_read=figures.sessions_read if is_storage else None,
        naive_ttft_p50_s=plain_s + naive.before_s if is_storage else None,
        naive_tokens_per_s=tokens / (plain_s + naive.before_s + naive.after_s) if is_storage else None,
    )


def _accuracy(errors: Sequence[tuple[float, float]]) -> Accuracy:
    sizes = [abs(error) for pair in errors for error in pair]
    return Accuracy(median(sizes), max(sizes), len(sizes))
