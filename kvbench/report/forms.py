"""The report for machines: CSV of every metric, JSON of verdict and figures. Pure."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

from kvbench.journal import as_plain
from kvbench.model import FORMAT_VERSION, Measurement, Plan, Verdict

CSV_COLUMNS = (
    "step", "kind", "arm", "cell", "round", "attempt", "basis", "metric", "value", "unit", "n", "source", "note",
)  # fmt: skip


def csv_text(plan: Plan, measurements: Sequence[Measurement]) -> str:
    """One row a step and metric, in the order of the plan. An absent value is an empty field, with its note."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    taken = {measured.step_id: measured for measured in measurements}
    for step in plan.steps:
        if (measured := taken.get(step.id)) is None:
            continue
        where = (step.id, step.kind, step.arm, step.cell, step.round, measured.attempt, measured.basis)
        for name, metric in measured.metrics.items():
            writer.writerow((*where, name, metric.value, metric.unit, metric.n, metric.source, metric.note))
    return out.getvalue()


def json_text(plan: Plan, measurements: Sequence[Measurement], verdict: Verdict) -> str:
    """The verdict with its headline, and every step with its metrics."""
    taken = {measured.step_id: measured for measured in measurements}
    document = {
        "version": FORMAT_VERSION,
        "headline": verdict.headline,
        "verdict": as_plain(verdict),
        "target": plan.target.name,
        "kvbench_version": plan.kvbench_version,
        "content_digest": plan.content_digest,
        "steps": [
            {
                "step": step.id,
                "kind": step.kind,
                "arm": step.arm,
                "cell": step.cell,
                "round": step.round,
                "measurement": as_plain(taken[step.id]) if step.id in taken else None,
            }
            for step in plan.steps
        ],
    }
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
