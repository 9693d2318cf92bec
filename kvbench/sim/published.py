"""Published figures and what is known of the platform that they were measured on: reports/published.yaml. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kvbench import content
from kvbench.errors import UsageError
from kvbench.units import SizeBytes

_STRICT: dict[str, Any] = {"extra": "forbid"}

RECOMPUTE = "recompute"


@dataclass(frozen=True, slots=True)
class Medium:
    """`peak`: the highest bandwidth of a second that was seen, in the source's printed unit."""

    peak: float

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class Platform:
    """What all reports have in common."""

    model: str
    accelerator: str
    page_tokens: int
    session_pages: int
    output_tokens: int
    host_memory_per_rank: SizeBytes
    step_tokens: int
    media: Mapping[str, Medium]

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class Cell:
    """One printed row, of one round. `busy` is the printed mean bandwidth of the seconds above 0.5, `busy_s` how many
    they were. `starts`: the engine was started anew before it. `notes` are the inconsistencies that touch it."""

    id: str
    medium: str
    concurrency: int
    ttft_p50_s: float
    tokens_per_s: float
    busy: float | None = None
    busy_s: float | None = None
    starts: bool = False
    notes: tuple[str, ...] = ()

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class Report:
    """`percentile`: which definition of the median the report uses. `pairs`: the cells compared, dut and baseline."""

    id: str
    about: str
    tensor_parallel: int
    instances: int
    percentile: Literal["floor_index", "nearest_rank", "mean_of_instances"]
    cells: tuple[Cell, ...]
    pairs: tuple[tuple[str, str], ...]

    __pydantic_config__ = _STRICT

    def cell(self, name: str) -> Cell:
        return next(cell for cell in self.cells if cell.id == name)


@dataclass(frozen=True, slots=True)
class FittedOn:
    report: str
    cell: str

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class Published:
    source: str
    printed_rate_bytes_per_s: float
    fitted_on: FittedOn
    platform: Platform
    reports: tuple[Report, ...]
    notes: Mapping[str, str] = field(default_factory=dict)

    __pydantic_config__ = _STRICT

    def report(self, name: str) -> Report:
        """Raises UsageError for one that is not there."""
        for report in self.reports:
            if report.id == name.upper():
                return report
        raise UsageError(
            f"there is no published report {name!r}", f"one of: {', '.join(report.id for report in self.reports)}"
        )

    def rate_bytes_per_s(self, medium: str) -> int:
        """The peak of a medium in bytes per second."""
        return round(self.platform.media[medium].peak * self.printed_rate_bytes_per_s)


def load(path: Path | None = None) -> Published:
    """Raises UsageError with file:line and key."""
    return content.read(path or content.content_root() / "reports" / "published.yaml", Published)
