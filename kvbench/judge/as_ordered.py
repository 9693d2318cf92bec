"""The rule `expected`: what was ordered against what was found, a finding for every expectation. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvbench import wording
from kvbench.judge.cells import Cell, Row, Run, breach, finding
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


_SUBJECTS = {
    "capacity_bytes": "capacity",
    "logical_block_bytes": "logical block",
    "pcie_speed_gt_s": "PCIe speed in GT/s",
    "pcie_width": "PCIe lanes",
    "paths": "live paths",
    "ana_state": "ANA state",
    "numa_node": "NUMA node",
    "fs_type": "file system",
    "mtu": "MTU",
    "port_rate_gbit_s": "port rate in Gbit/s",
}


def _one(check: Check, cell: Cell, row: Row, held: Mapping[str, Any]) -> Finding:
    key, ok = held["key"], held["ok"]
    outcome = Outcome.INCONCLUSIVE if ok is None else Outcome.PASS if ok else breach(check)
    found_as = "not all could be found out" if ok is None else f"found {said(key, held['found'])}"
    reason = f"{_SUBJECTS.get(key, key.replace('_', ' '))}: {found_as}, where {said(key, held['expected'])} was ordered"
    evidence = row.measurement.raw_files if row.measurement else ()
    where = f"{reason} ({wording.place(row.step)}, by {held['source']})"
    found = finding(check, cell, outcome, where, arm=row.step.arm, n=int(ok is not None))
    return replace(found, evidence=evidence)


def said(key: str, value: Any) -> str:
    """What was ordered or found under a key of `Expect`, as people read it."""
    if isinstance(value, list | tuple):
        return ", ".join(said(key, one) for one in value)
    if key.endswith("_bytes") and isinstance(value, int | float):
        return f"{format_value(value, 'B')} ({value:,} B)"
    return str(value)
