"""The picture of page one: every performance check on one axis, as how many times better than its threshold it is.

For a check `observed ≥ limit` the place is observed ÷ limit, for `observed ≤ limit` it is limit ÷ observed, both on a
logarithmic axis. So 1 is the threshold of all of them, and the passing side is always the right. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from kvbench.model import Finding
from kvbench.report.document import Forest, ForestRow
from kvbench.report.figures import interval_text, number, requirement

_CAP = 10.0  # beyond ten times the threshold, how far is of no interest: the interval is cut there
_LEAST = 1.25  # an axis never narrower than this, lest noise fill the page
_TICKS = (0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
_TICK_GAP = 0.1  # least distance of two tick labels, as a share of the axis
_EDGE = 0.04  # a label nearer to an end than this would be cut


def margin(finding: Finding, value: float) -> float | None:
    """How many times better than the threshold `value` is; below 1 it misses it. None where that has no meaning."""
    if not isinstance(finding.limit, int | float) or finding.limit <= 0 or finding.op not in ("<=", ">="):
        return None
    if finding.op == ">=":
        return value / finding.limit
    return finding.limit / value if value > 0 else math.inf


def build(findings: Iterable[Finding]) -> Forest | None:
    """Rows for the performance findings that have a figure and a threshold to hold it against; None without any."""
    placed = [(finding, *_margins(finding)) for finding in findings if _is_shown(finding)]
    if not placed:
        return None
    ends = [value for _, *values in placed for value in values]
    low = max(1 / _CAP, min(1 / _LEAST, *ends) / 1.05)
    high = min(_CAP, max(_LEAST, *ends) * 1.05)
    return Forest(
        rows=tuple(_row(finding, values, low, high) for finding, *values in placed),
        threshold=_place(1.0, low, high),
        ticks=_ticks(low, high),
    )


def _is_shown(finding: Finding) -> bool:
    return (
        finding.kind == "performance" and finding.observed is not None and margin(finding, finding.observed) is not None
    )


def _margins(finding: Finding) -> tuple[float, float, float]:
    """Margins of the lower end, the figure itself and the upper end, in the order of the axis."""
    observed = finding.observed or 0.0
    ends = finding.interval or (observed, observed)
    low, point, high = sorted(margin(finding, value) or 0.0 for value in (ends[0], observed, ends[1]))
    return low, point, high


def _row(finding: Finding, values: list[float], low: float, high: float) -> ForestRow:
    places = [_place(value, low, high) for value in values]
    interval = interval_text(finding.interval, finding.unit)
    return ForestRow(
        label=finding.check,
        cell=" ".join(filter(None, (finding.cell, finding.arm))),
        low=places[0],
        point=places[1],
        high=places[2],
        cut_low=values[0] < low,
        cut_high=values[2] > high,
        outcome=finding.outcome,
        observed=f"{number(finding.observed, finding.unit)} {interval}".rstrip(),
        limit=requirement(finding),
        n=finding.n,
    )


def _place(value: float, low: float, high: float) -> float:
    clipped = min(max(value, low), high)
    return (math.log(clipped) - math.log(low)) / (math.log(high) - math.log(low))


def _ticks(low: float, high: float) -> tuple[tuple[float, str], ...]:
    """Round ticks that do not crowd one another; the threshold always is one."""
    chosen = {1.0: _place(1.0, low, high)}
    for value in sorted(_TICKS, key=lambda tick: abs(math.log(tick)), reverse=True):
        place = _place(value, low, high)
        if _EDGE <= place <= 1 - _EDGE and all(abs(place - other) >= _TICK_GAP for other in chosen.values()):
            chosen[value] = place
    return tuple((place, f"{value:g}×") for value, place in sorted(chosen.items()))
