"""How far rounds scatter: from G2's arm against itself into G3's plan. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kvbench import stats
from kvbench.judge.cells import Run
from kvbench.judge.rules import paired_interval
from kvbench.model import Measurement, Plan


def round_noise(plan: Plan, measurements: Sequence[Measurement]) -> tuple[float, int] | None:
    """The spread of one arm's rounds as a coefficient of variation, and how many pairs of rounds it comes from.

    For `Options.round_cv` of G3. Of each check that holds an arm against itself, the log ratios' variance is pooled
    over its cells, and the noisiest check counts. None where no cell has two whole rounds.
    """
    run = Run(plan, measurements)
    found = []
    for check in plan.gate.checks:
        if check.rule != "no_difference":
            continue
        intervals = [paired_interval(check, cell, run) for cell in run.cells(check)]
        spreads = [(one.log_sd, one.n) for one in intervals if one is not None and one.log_sd is not None]
        if spreads:
            degrees = sum(n - 1 for _, n in spreads)
            pooled = math.sqrt(math.fsum((n - 1) * sd**2 for sd, n in spreads) / degrees)
            found.append((stats.round_cv(pooled), sum(n for _, n in spreads)))
    return max(found, default=None)
