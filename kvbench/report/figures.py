"""How a figure is written: through `units.format_value`, with its n and source, and never as 0 when absent. Pure."""

from __future__ import annotations

from kvbench.model import Check, Finding, Metric
from kvbench.report.document import Entry
from kvbench.stats import P99_NEEDS
from kvbench.units import format_value

ABSENT = "–"


def figure(metric: Metric | None, name: str = "") -> Entry:
    """A metric as a table entry. `name` tells a p99, which of fewer than 100 samples is printed as "max of n"."""
    if metric is None or metric.value is None:
        return Entry(ABSENT, numeric=True, note=metric.note if metric else "")
    is_max = "_p99_" in name and metric.n < P99_NEEDS
    note = f"max of {metric.n}" if is_max else metric.note
    return Entry(format_value(metric.value, metric.unit), metric.n, metric.source, note, numeric=True)


def text(value: object) -> Entry:
    return Entry(str(value))


def code(value: object) -> Entry:
    """An identifier or path, to be set in the fixed-width face."""
    return Entry(str(value), code=True)


def number(value: float | None, unit: str) -> str:
    return ABSENT if value is None else format_value(value, unit)


def interval_text(interval: tuple[float, float] | None, unit: str) -> str:
    return f"[{format_value(interval[0], unit)}, {format_value(interval[1], unit)}]" if interval else ""


def requirement(finding: Finding) -> str:
    """`≤ 0.75`, `in [0.99, 1.05]`, or "" for a check without a limit."""
    if finding.limit is None:
        return ""
    if isinstance(finding.limit, tuple):
        return f"in {interval_text(finding.limit, finding.unit)}"
    return f"{_sign(finding)} {format_value(finding.limit, finding.unit)}"


def required_change(finding: Finding) -> str:
    """The requirement on a ratio as the change that it stands for: `≤ −25 %`."""
    return f"{_sign(finding)} {change(finding.limit)}" if isinstance(finding.limit, int | float) else ""


def _sign(finding: Finding) -> str:
    return finding.op.replace("<=", "≤").replace(">=", "≥").replace("==", "=")


def change(ratio: float) -> str:
    """A ratio as the change that it stands for: 0.6 → `−40 %`."""
    sign = "−" if ratio < 1 else "+" if ratio > 1 else "±"
    return f"{sign}{format_value(abs(ratio - 1), 'share')}"


def is_paired(finding: Finding, checks: dict[str, Check]) -> bool:
    """Whether its figure is a ratio of two arms."""
    return finding.check in checks and checks[finding.check].rule in ("paired_log_ratio", "hourly_ratio")


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
