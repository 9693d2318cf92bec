"""The rule `expected`: what was ordered against what was found, a finding for every expectation. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvbench import wording
from kvbench.cells import Cell, Row, Run, breach, finding
from kvbench.model import Check, Finding, Outcome
from kvbench.units import format_value


def expected(check: Check, cell: Cell, run: Run) -> list[Finding]:
    """Of every measurement, its facts' `expectations`: met, not met, or not to be found out. None where none are."""
    return [found for row in cell.rows for found in _of_row(check, cell, row)]


def _of_row(check: Check, cell: Cell, row: Row) -> list[Finding]:
    step, measurement = row
    if measurement is None or measurement.error:
        why = "was not measured" if measurement is None else f"could not be measured ({measurement.error.rstrip('.')})"
        reason = f"{wording.place(step)} {why}"
        return [finding(check, cell, Outcome.INCONCLUSIVE, reason, arm=step.arm)]
    return [_one(check, cell, row, one) for one in measurement.facts.get("expectations", ())]


def _one(check: Check, cell: Cell, row: Row, held: Mapping[str, Any]) -> Finding:
    key, ok = held["key"], held["ok"]
    subject, ordered = key.replace("_", " "), _said(key, held["expected"])
    if ok is None:
        outcome, reason = Outcome.INCONCLUSIVE, f"{subject} could not be found out, where {ordered} was ordered"
    else:
        outcome = Outcome.PASS if ok else breach(check)
        reason = f"{subject} is {_said(key, held['found'])}, where {ordered} was ordered"
    evidence = row.measurement.raw_files if row.measurement else ()
    where = f"{reason} ({wording.place(row.step)}, by {held['source']})"
    found = finding(check, cell, outcome, where, arm=row.step.arm, n=int(ok is not None))
    return replace(found, evidence=evidence)


def _said(key: str, value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_said(key, one) for one in value)
    if key.endswith("_bytes") and isinstance(value, int | float):
        return f"{format_value(value, 'B')} ({value:,} B)"
    return str(value)
