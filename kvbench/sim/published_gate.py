"""G3's two thresholds, held against published cells: what one round can decide, and what its figures miss. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

from kvbench import stats
from kvbench.judge.cells import BEYOND
from kvbench.model import Check, Gate, Outcome
from kvbench.sim.published import Report

_FIGURES = {"ttft_p50_s": attrgetter("ttft_p50_s"), "output_tokens_per_s": attrgetter("tokens_per_s")}


@dataclass(frozen=True, slots=True)
class PublishedFinding:
    """One check of one pair of cells. `misses`: the figure itself lies on the wrong side, interval or none."""

    check: Check
    dut: str
    baseline: str
    ratio: float
    n: int
    outcome: Outcome
    misses: bool


def judge(report: Report, gate: Gate) -> list[PublishedFinding]:
    """Every pair of a report by the gate's checks of TTFT and throughput against the baseline, limits from the gate.

    Waves in which nodes change (`against_step`) have not been published.
    """
    checks = [
        check
        for check in gate.checks
        if check.rule == "paired_log_ratio"
        and check.metric in _FIGURES
        and check.against == "baseline"
        and not check.against_step
    ]
    return [_finding(report, check, dut, baseline) for dut, baseline in report.pairs for check in checks]


def _finding(report: Report, check: Check, dut: str, baseline: str) -> PublishedFinding:
    figure = _FIGURES[check.metric]
    interval = stats.paired_log_ratio([figure(report.cell(dut))], [figure(report.cell(baseline))])
    misses = BEYOND[check.op](interval.ratio, check.limit) > 0
    return PublishedFinding(check, dut, baseline, interval.ratio, interval.n, Outcome.INCONCLUSIVE, misses)
