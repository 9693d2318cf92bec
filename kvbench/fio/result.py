"""What fio measured, in plain units: bytes, seconds, nanoseconds. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Direction = Literal["read", "write", "trim", "mixed"]
LatencyKind = Literal["clat", "lat", ""]  # completion; submission and completion; none recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class FioFigures:
    """What was moved in one direction. `latency_ns` maps a percentile to nanoseconds, nearest rank over `latency_n`
    I/Os."""

    direction: Direction
    bytes: int | None
    runtime_s: float | None
    ios: int
    latency_ns: Mapping[float, int]
    latency_kind: LatencyKind
    latency_n: int

    @property
    def bandwidth_bytes_per_s(self) -> float | None:
        """Bytes ÷ runtime: fio's `bw_mean` and `iops_mean` are means of samples, perhaps of one job only."""
        return self.bytes / self.runtime_s if self.runtime_s and self.bytes is not None else None

    @property
    def iops(self) -> float | None:
        return self.ios / self.runtime_s if self.runtime_s else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FioJob(FioFigures):
    """One direction of one job (or of a group of jobs that fio reports as one).

    `bins` is fio's histogram, nanoseconds → count. `problem` says why the figures do not count, `notes` what is odd
    about them; `trusted` is False for reads that may have come from the page cache.
    """

    name: str
    host: str
    errors: int
    options: Mapping[str, str]
    bins: Mapping[int, int] = field(default_factory=dict)
    cpu_s: float | None = None  # processor time of the job, user and system, in all directions
    start_s: float | None = None  # wall time at which it began, where fio tells
    trusted: bool = True
    error: int = 0  # errno of the first I/O that failed
    problem: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FioResult:
    """One run of fio. `ok` only if return code, job errors, runtime and bytes agree; else `reason` says what does not.

    `version` is as fio wrote it (`"fio-3.33"`), or "". `diagnostics` are the lines that fio printed beside its JSON.
    """

    ok: bool
    reason: str
    warnings: tuple[str, ...]
    version: str
    jobs: tuple[FioJob, ...]
    diagnostics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FioTotal(FioFigures):
    """One direction over several jobs or hosts. `window` says what `runtime_s` is; `note` why a figure is absent."""

    jobs: int
    window: str
    note: str = ""
