"""Results of fio that somebody else measured, as plain values for a table or for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kvbench.errors import UsageError
from kvbench.fio.parse import parse
from kvbench.fio.result import FioFigures, FioJob, FioTotal
from kvbench.fio.total import totals


def import_files(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """One entry a file: `file`, `ok`, `reason`, `warnings`, `diagnostics`, `version`, `jobs`, `total` (by direction).

    Sizes are bytes, times seconds, latencies nanoseconds by percentile. A file that is no result of fio has
    `ok` false and its reason. Raises UsageError for a file that cannot be read.
    """
    return [_imported(path) for path in paths]


def _imported(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise UsageError(
            f"{path}: no such file", "give a file that fio printed or wrote with --output-format=json"
        ) from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    result = parse(content)
    return {
        "file": str(path),
        "ok": result.ok,
        "reason": result.reason,
        "warnings": list(result.warnings),
        "diagnostics": list(result.diagnostics),
        "version": result.version,
        "jobs": [_job(job) for job in result.jobs],
        "total": {total.direction: _total(total) for total in totals(result.jobs)},
    }


def _job(job: FioJob) -> dict[str, Any]:
    return {
        "name": job.name,
        "host": job.host,
        "direction": job.direction,
        **_figures(job),
        "errors": job.errors,
        "trusted": job.trusted,
        "problem": job.problem,
        "options": dict(job.options),
    }


def _total(total: FioTotal) -> dict[str, Any]:
    return {"jobs": total.jobs, **_figures(total), "window": total.window, "note": total.note}


def _figures(of: FioFigures) -> dict[str, Any]:
    return {
        "bytes": of.bytes,
        "runtime_s": of.runtime_s,
        "bandwidth_bytes_per_s": of.bandwidth_bytes_per_s,
        "iops": of.iops,
        "ios": of.ios,
        "latency_kind": of.latency_kind,
        "latency_n": of.latency_n,
        "latency_ns": _named(of.latency_ns),
    }


def _named(latency_ns: Mapping[float, int]) -> dict[str, int]:
    """Percentiles as people write them: 50, 99.9."""
    return {str(percentile).removesuffix(".0"): value for percentile, value in sorted(latency_ns.items())}
