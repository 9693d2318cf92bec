"""Sections of checkpoints and models, with the published figures beside what was measured. Pure but for those."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvbench import content
from kvbench.model import GateStep
from kvbench.report.document import Run, Section, Table
from kvbench.report.figures import ABSENT, text
from kvbench.report.tables import metrics_by_step, notes_on
from kvbench.units import format_bytes

_STRICT: dict[str, Any] = {"extra": "forbid"}

_COLUMNS = (
    ("Moved", "moved_bytes"),
    ("Save", "save_s"),
    ("Save bandwidth", "save_bandwidth_bytes_per_s"),
    ("Load", "load_s"),
    ("Load bandwidth", "load_bandwidth_bytes_per_s"),
    ("Slowest rank", "rank_bandwidth_min_bytes_per_s"),
    ("Switch", "switch_s"),
    ("Effective utilisation", "effective_utilisation_share"),
    ("Starved", "starved_share"),
    ("Ledger", "ledger_ratio"),
    ("Wrong chunks", "wrong_chunks"),
)


@dataclass(frozen=True, slots=True)
class Figure:
    """One published comparison, as printed. `notes` name the inconsistencies that touch it."""

    step: str
    what: str
    baseline: str = ABSENT
    dut: str = ABSENT
    claim: str = ABSENT
    notes: tuple[str, ...] = ()

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class Published:
    source: str
    figures: tuple[Figure, ...]
    inconsistencies: Mapping[str, str] = field(default_factory=dict)

    __pydantic_config__ = _STRICT


def published() -> Published:
    return content.read(content.content_root() / "reports" / "published-r1.yaml", Published)


def sections(gate_step: GateStep, run: Run) -> list[Section]:
    """What a step measured; the last one is followed by what was published."""
    taken = run.steps(gate_step.id)
    table = metrics_by_step("By round and arm", "", _COLUMNS, taken)
    stated = dict.fromkeys(_stated(measured.facts) for _, measured in taken if "scale" in measured.facts)
    section = Section(
        f"Checkpoints and models: {gate_step.id}",
        gate_step.why,
        tables=(table,) if table else (),
        notes=(*stated, *notes_on(taken)),
    )
    last = [step.id for step in run.plan.gate.steps if step.probe == gate_step.probe][-1]
    return [section, _published()] if gate_step.id == last else [section]


def _stated(facts: Mapping[str, Any]) -> str:
    if facts["not_available"]:
        return f"Writer {facts['writer']}: {facts['not_available']}."
    files = "1 file" if facts["ranks"] == 1 else f"{facts['ranks']} files"
    how = {"direct": "past the page cache", "buffered": "through the page cache", "mmap": "through a mapping"}
    writer = "" if facts["writer"] == "plain" else f", written by {facts['writer']}"
    return (
        f"{files}, {format_bytes(facts['total_bytes'])} at a scale of {facts['scale']:g}, {how[facts['io']]}{writer}; "
        f"time is that of the slowest."
    )


def _published() -> Section:
    told = published()
    rows = tuple(
        tuple(map(text, (one.what, one.baseline, one.dut, one.claim, ", ".join(one.notes) or ABSENT)))
        for one in told.figures
    )
    table = Table("One run each, as printed", ("What", "Baseline", "Array", "Claim", "See"), rows)
    notes = tuple(f"{name}: {what}" for name, what in told.inconsistencies.items())
    return Section(
        "Published figures of checkpoints and models", f"Source: {told.source}.", tables=(table,), notes=notes
    )
