"""Sections of a report other than waves, and the table of which steps are told by which function. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from kvbench.model import Finding, GateStep, Verdict
from kvbench.report import acceptance, checkpoint, scaling, soak, storage, waves
from kvbench.report.document import Entry, Run, Section, Table
from kvbench.report.figures import ABSENT, code, figure, text
from kvbench.report.tables import NOT_MEASURED, all_metrics, metrics_by_step, notes_on, told_by
from kvbench.units import format_seconds, format_value

_FIO_COLUMNS = (
    ("Read", "read_bandwidth_bytes_per_s"),
    ("Read IOPS", "read_iops"),
    ("Read p50", "read_latency_p50_s"),
    ("Read p99", "read_latency_p99_s"),
    ("Bytes read", "read_bytes"),
    ("Write", "write_bandwidth_bytes_per_s"),
    ("Write IOPS", "write_iops"),
    ("Write p50", "write_latency_p50_s"),
    ("Write p99", "write_latency_p99_s"),
    ("Bytes written", "written_bytes"),
    ("Run time", "runtime_s"),
)
_FACT_UNITS = (("_bytes_per_s", "B/s"), ("_bytes", "B"), ("_share", "share"), ("_s", "s"))


def all_sections(run: Run, verdict: Verdict) -> tuple[Section, ...]:
    """Every section after page one: those of the steps, in the order of `_BY_PROBE`, then the annexes."""
    steps = run.plan.gate.steps
    told = [
        section for probe, build in _BY_PROBE.items() for s in steps if s.probe == probe for section in build(s, run)
    ]
    others = [section for s in steps if s.probe not in _BY_PROBE for section in _other(s, run)]
    return (*told, *others, _findings(verdict), _course(run), _evidence(run))


def _fio(gate_step: GateStep, run: Run) -> list[Section]:
    taken = run.steps(gate_step.id)
    title = f"fio: {gate_step.params.get('profile', gate_step.id)}"
    table = metrics_by_step(title, "", _FIO_COLUMNS, taken)
    tables = (table,) if table else ()
    return [Section(f"Storage {gate_step.id}", gate_step.why, tables=tables, notes=notes_on(taken))]


def _environment(gate_step: GateStep, run: Run) -> list[Section]:
    taken = run.steps(gate_step.id)
    rows = [(text(key), text(value)) for _, measured in taken for key, value in _flat(measured.facts)]
    rows += [
        (text(name), replace(figure(metric), numeric=False))
        for _, measured in taken
        for name, metric in measured.metrics.items()
    ]
    tables = (Table("What the machine is", ("Fact", "Value"), tuple(rows)),) if rows else ()
    notes = told_by(taken) if taken else NOT_MEASURED
    return [Section("Environment", gate_step.why, tables=tables, notes=notes)]


def _other(gate_step: GateStep, run: Run) -> list[Section]:
    taken = run.steps(gate_step.id)
    tables = (all_metrics("Figures", taken),) if taken else ()
    return [Section(gate_step.id, gate_step.why, tables=tables, notes=() if taken else NOT_MEASURED)]


_BY_PROBE: Mapping[str, Callable[[GateStep, Run], list[Section]]] = {
    "host.inventory": acceptance.inventory,
    "host.health": acceptance.health,
    "fio.verify": acceptance.verified,
    "fio.steady": storage.steady,
    "kv.pages": storage.pages,
    "kv.churn": soak.sections,
    "store.checkpoint": checkpoint.sections,
    "load.cold_recovery": waves.sections,
    "fake.wave": waves.sections,
    "load.scaling": scaling.sections,
    "fio.profile": _fio,
    "host.environment": _environment,
}


def _flat(facts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested facts as dotted keys and printable values."""
    for key, value in facts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
            yield from _flat({str(place): item for place, item in enumerate(value)}, f"{prefix}{key}.")
        elif isinstance(value, list | tuple):
            yield f"{prefix}{key}", ", ".join(map(str, value)) or ABSENT
        else:
            yield f"{prefix}{key}", _fact(key, value)


def _fact(key: str, value: Any) -> str:
    """A fact as people read it; the unit is the end of its name."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    unit = next((unit for end, unit in _FACT_UNITS if key.endswith(end)), None)
    if unit is not None and isinstance(value, int | float):
        return format_value(value, unit)
    return ABSENT if value in (None, "") else str(value)


# ---------------------------------------------------------------- annexes


def _findings(verdict: Verdict) -> Section:
    table = Table(
        "Every check on every cell and arm",
        ("Check", "Cell", "Arm", "n", "Finding", "Reason"),
        tuple(_finding_row(finding) for finding in verdict.findings),
    )
    return Section("All findings", "The worst of these is the verdict.", tables=(table,))


def _finding_row(finding: Finding) -> tuple[Entry, ...]:
    return (
        code(finding.check),
        text(finding.cell or ABSENT),
        text(finding.arm or ABSENT),
        Entry(str(finding.n or ABSENT), numeric=True),
        Entry(str(finding.outcome), outcome=finding.outcome),
        text(finding.reason),
    )


def _course(run: Run) -> Section:
    """What was done when: a row a planned step, whether it was measured or not."""
    rows = []
    for step in run.plan.steps:
        measured = run.measurements.get(step.id)
        if measured is None:
            rows.append((code(step.id), *map(text, (ABSENT, ABSENT, ABSENT, ABSENT)), text("not run")))
            continue
        spent = ", ".join(f"{phase} {format_seconds(seconds)}" for phase, seconds in measured.overhead.items())
        remarks = " ".join(filter(None, (measured.error and f"Not measured: {measured.error}", *measured.warnings)))
        lasted = (
            datetime.fromisoformat(measured.end.wall) - datetime.fromisoformat(measured.start.wall)
        ).total_seconds()
        rows.append(
            (
                code(step.id),
                text(measured.attempt),
                text(measured.basis),
                text(measured.start.wall.replace("T", " ").partition(".")[0]),
                Entry(format_seconds(lasted), note=spent, numeric=True),
                text(remarks or ABSENT),
            )
        )
    table = Table(
        "Steps in the order of the plan", ("Step", "Attempt", "Basis", "Start (UTC)", "Took", "Remarks"), tuple(rows)
    )
    return Section("Course of the run", "Every planned step, in order.", tables=(table,))


def _evidence(run: Run) -> Section:
    named = {path for m in run.measurements.values() for path in (*m.raw_files, *m.series.values())}
    paths = sorted(named | set(run.series.digests))
    rows = tuple((code(path), code(run.series.digests.get(path, "not in the run folder"))) for path in paths)
    return Section(
        "Evidence",
        "The raw files in the run folder that every figure above can be traced to.",
        tables=(Table("Files", ("Path in the run folder", "SHA-256"), rows),) if rows else (),
    )
