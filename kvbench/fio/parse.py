"""The tolerant reader of fio's JSON, of every version and in whatever it comes. Pure; nothing that is read raises.

Units (fio's HOWTO, JSON output): since 2.99 `io_bytes` is bytes, `io_kbytes` KiB and latencies `*_ns`; before,
`io_bytes` was KiB and latencies microseconds. `bw` is KiB/s in all of them, `runtime` milliseconds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from kvbench.fio import histogram
from kvbench.fio.result import Direction, FioJob, FioResult, LatencyKind
from kvbench.tolerant_json import documents
from kvbench.units import parse_seconds

_VERSION = re.compile(r"fio-(\d{1,4})\.(\d{1,4})")
_ERROR_LINE = re.compile(r"^fio:.*\berr=\s*([1-9]\d*)", re.MULTILINE)
_SIGNAL_LINE = re.compile(r"terminating on signal (\d+)")
_CACHE_LINE = re.compile(r"cache invalidation of .* failed", re.IGNORECASE)
_NO_SAMPLES_NS = 2**63 // 1000  # a minimum that no sample ever lowered, perhaps printed in µs; 106 days otherwise
_LARGEST_COUNT = 2**62
_DIAGNOSTIC_LINES = 20
_ALL_CLIENTS = "All clients"


def version_of(text: object) -> tuple[int, int] | None:
    """`'fio-3.33-dirty'` → (3, 33); None where it is not a version of fio."""
    match = _VERSION.match(text) if isinstance(text, str) else None
    return (int(match[1]), int(match[2])) if match else None


def parse(output: str | bytes, stderr: str | bytes = "", returncode: int | None = None) -> FioResult:
    """Read one run of fio: what it printed or wrote with --output, and its exit code where that is known.

    Of several documents (--status-interval) the last one counts, since each is cumulative. Anything that is not
    fio's output ends in `ok=False` with its reason.
    """
    values, around = documents(_decoded(output))
    reports = [value for value in values if isinstance(value, dict) and _rows(value)]
    said = "\n".join((around, _decoded(stderr)))
    lines = (line.strip()[:500] for line in said.splitlines())
    diagnostics = tuple(line for line in lines if line and line[0] not in '"{}[]')[:_DIAGNOSTIC_LINES]
    problems = _run_problems(said, returncode)
    if not reports:
        words = [line for line in diagnostics if line.startswith("fio: ")][:1]
        nothing = "it holds no JSON result of fio" if values or said.strip() else "the output is empty"
        reason = "; ".join([*problems, *words]) or nothing
        return FioResult(ok=False, reason=reason, warnings=(), version="", jobs=(), diagnostics=diagnostics)
    report = reports[-1]
    rows = _rows(report)
    jobs = tuple(_checked(job, said) for row in rows for job in _jobs(row, report))
    problems += _row_problems(rows, said, jobs)
    problems += [f"{_label(job)}: {job.problem}" for job in jobs if job.problem]
    return FioResult(
        ok=not problems,
        reason="; ".join(problems),
        warnings=tuple(_warnings(reports, rows, jobs)),
        version=_text(report.get("fio version")),
        jobs=jobs,
        diagnostics=diagnostics,
    )


# ---------------------------------------------------------------- the run as a whole


def _run_problems(said: str, returncode: int | None) -> list[str]:
    problems = []
    if signal := _SIGNAL_LINE.search(said):
        problems.append(f"fio was interrupted by signal {signal[1]}")
    elif returncode is not None and returncode < 0:
        problems.append(f"fio was killed by signal {-returncode}")
    elif returncode:
        problems.append(f"fio ended with exit code {returncode}")
    if '"fio version"' in said:
        problems.append("its last JSON document is cut off")
    return problems


def _rows(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The jobs of a document. With clients, the row of their sum goes, unless it stands alone."""
    entries = report.get("jobs") or report.get("client_stats")
    rows = [_mapping(row) for row in entries if isinstance(row, dict)] if isinstance(entries, list) else []
    return [row for row in rows if row.get("jobname") != _ALL_CLIENTS] or rows


def _row_problems(rows: Sequence[Mapping[str, Any]], said: str, jobs: Sequence[FioJob]) -> list[str]:
    problems = []
    for row in rows:
        if code := _count(row.get("error")):
            problems.append(f"{_text(row.get('jobname'))}: error {code}, {_error_text(code)}")
        elif total := _count(row.get("total_err")):
            problems.append(f"{_text(row.get('jobname'))}: {total} I/Os failed")
    if not problems and (line := _ERROR_LINE.search(said)):
        problems.append(f"fio reported error {line[1][:9]}, {_error_text(int(line[1][:9]))}")
    if not problems and not jobs:
        problems.append("no I/O was done")
    return problems


def _error_text(code: int) -> str:
    return os.strerror(code) if code < 4096 else "unknown error"


def _warnings(
    reports: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], jobs: Sequence[FioJob]
) -> list[str]:
    warnings = [f"{_label(job)}: {note}" for job in jobs for note in job.notes]
    if len(reports) > 1:
        warnings.insert(0, f"{len(reports)} documents, each cumulative: the last one counts")
    for row in rows:
        options = _options(reports[-1], row)
        if _count(row.get("error")) and any(name.startswith("write_") and name.endswith("_log") for name in options):
            warnings.append(f"{_text(row.get('jobname'))}: series not available, the job was aborted")
    return warnings


# ---------------------------------------------------------------- one job, one direction


def _jobs(row: Mapping[str, Any], report: Mapping[str, Any]) -> list[FioJob]:
    return [
        _job(row, section, direction, report)
        for direction in get_args(Direction)
        if (section := _mapping(row.get(direction))) and (_count(section.get("total_ios")) or _io_bytes(section))
    ]


def _job(row: Mapping[str, Any], section: Mapping[str, Any], direction: Direction, report: Mapping[str, Any]) -> FioJob:
    io_bytes, ios = _io_bytes(section), _count(section.get("total_ios")) or 0
    runtime_ms, start_ms = _count(section.get("runtime")), _count(row.get("job_start"))
    latency = _latency(section, version_of(report.get("fio version")))
    errors = _count(row.get("total_err")) or (1 if _count(row.get("error")) else 0)
    host = ":".join(str(row[key]) for key in ("hostname", "port") if isinstance(row.get(key), str | int))
    return FioJob(
        name=_text(row.get("jobname")),
        host=_text(host),
        direction=direction,
        bytes=io_bytes,
        runtime_s=runtime_ms / 1000 if runtime_ms else None,
        ios=ios,
        latency_ns=latency.percentiles_ns,
        latency_kind=latency.kind,
        latency_n=latency.n,
        errors=errors,
        error=_count(row.get("error")) or 0,
        options=_options(report, row),
        bins=latency.bins,
        cpu_s=_cpu_s(row),
        start_s=start_ms / 1000 if start_ms else None,
        problem=_disagreement(section, io_bytes, runtime_ms),
        notes=latency.notes,
    )


def _cpu_s(row: Mapping[str, Any]) -> float | None:
    """`usr_cpu` and `sys_cpu` are percentages of the job's runtime."""
    shares, runtime_ms = [row.get(name) for name in ("usr_cpu", "sys_cpu")], _count(row.get("job_runtime"))
    known = [share for share in shares if isinstance(share, int | float) and 0 <= share < 1e6]
    return sum(known) / 100 * runtime_ms / 1000 if runtime_ms and len(known) == len(shares) else None


def _io_bytes(section: Mapping[str, Any]) -> int | None:
    size = _count(section.get("io_bytes"))
    in_bytes = "io_kbytes" in section or "bw_bytes" in section
    return size if in_bytes or size is None else size * 1024


def _options(report: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, str]:
    """What a job was given: its own options over the global ones. Either may be missing."""
    both = {**_mapping(report.get("global options")), **_mapping(row.get("job options"))}
    return {_text(name): _text(value) for name, value in both.items()}


def _disagreement(section: Mapping[str, Any], io_bytes: int | None, runtime_ms: int | None) -> str:
    """Why bytes, runtime and bandwidth cannot all be true. `bw` is cut to whole KiB/s, `runtime` to milliseconds."""
    if not runtime_ms:
        return "runtime is 0, so that it has neither bandwidth nor IOPS"
    if io_bytes is None:
        return "the number of bytes is missing"
    stated, step = _count(section.get("bw_bytes")), 1
    if stated is None:
        kib_per_s, step = _count(section.get("bw")), 1024
        stated = kib_per_s * step if kib_per_s is not None else None
    if stated is None:
        return ""
    derived = io_bytes * 1000 / runtime_ms
    if abs(derived - stated) > step + derived * (0.02 + 1.5 / runtime_ms):
        return f"{io_bytes} bytes in {runtime_ms} ms contradict the stated {stated} B/s"
    return ""


def _checked(job: FioJob, said: str) -> FioJob:
    """The job with what its options and fio's messages say about its figures."""
    notes = list(job.notes)
    requested_s = _seconds(job.options.get("runtime", ""))
    if requested_s and job.runtime_s and job.runtime_s > 1.1 * requested_s:
        notes.append(f"ran {job.runtime_s:.4g} s where {requested_s:.4g} s were asked for")
    problem = job.problem
    if (
        not problem
        and _is_set(job, "time_based")
        and requested_s
        and job.runtime_s
        and job.runtime_s < 0.9 * requested_s
    ):
        problem = f"ended after {job.runtime_s:.4g} s of {requested_s:.4g} s"
    cached = _CACHE_LINE.search(said) and job.direction in ("read", "mixed") and not _is_set(job, "direct")
    if cached:
        notes.append("reads are not trusted: fio could not drop the page cache, and direct=1 was not set")
    return replace(job, problem=problem, notes=tuple(notes), trusted=not cached)


def _is_set(job: FioJob, flag: str) -> bool:
    return job.options.get(flag, "0") != "0"  # fio writes a flag without a value as an empty one


# ---------------------------------------------------------------- latency


@dataclass(frozen=True, slots=True)
class _Latency:
    kind: LatencyKind
    n: int
    percentiles_ns: Mapping[float, int]
    bins: Mapping[int, int]
    notes: tuple[str, ...]


def _latency(section: Mapping[str, Any], version: tuple[int, int] | None) -> _Latency:
    """Completion latency where fio has percentiles of it, else the whole latency."""
    kinds: tuple[Literal["clat", "lat"], ...] = ("clat", "lat")
    for kind in kinds:
        unit_ns, key = (1, f"{kind}_ns") if f"{kind}_ns" in section else (1000, kind)
        found = _samples(kind, _mapping(section.get(key)), unit_ns, _count(section.get("total_ios")) or 0, version)
        if found.percentiles_ns:
            return found
    return _Latency("", 0, {}, {}, ("no latency was recorded",))


def _samples(
    kind: LatencyKind, stats: Mapping[str, Any], unit_ns: int, ios: int, version: tuple[int, int] | None
) -> _Latency:
    n = _count(stats.get("N"))
    if n == 0 or (n is None and not _count(stats.get("max"))):  # before 3.13 there is no N, and no samples read as 0
        return _Latency("", 0, {}, {}, ())
    percentiles = {
        percentile: value * unit_ns
        for key, raw in _mapping(stats.get("percentile")).items()
        if (percentile := _percent(key)) and (value := _count(raw)) is not None and value * unit_ns < _NO_SAMPLES_NS
    }
    bins, notes = _bins(stats, n, unit_ns, version)
    if bins:
        n = sum(bins.values())
        percentiles = {p: histogram.percentile_ns(bins, p) for p in sorted({50.0, 99.0, *percentiles})}
    end_ns = histogram.LAST_BUCKET_NS if unit_ns == 1 else histogram.LAST_BUCKET_NS_BEFORE_2_99
    if capped := [percentile for percentile, value in percentiles.items() if value >= end_ns]:
        notes.append(f"from p{min(capped):g} on, latencies are capped: the histogram ends at {end_ns / 1e9:.1f} s")
    return _Latency(kind, n if n is not None else ios, percentiles, bins, tuple(notes))


def _bins(
    stats: Mapping[str, Any], n: int | None, unit_ns: int, version: tuple[int, int] | None
) -> tuple[dict[int, int], list[str]]:
    """The histogram, if it is one in nanoseconds and complete; else nothing, with the reason."""
    raw = _mapping(stats.get("bins"))
    if not raw:
        return {}, []
    if unit_ns != 1 or (version is not None and version < (2, 99)):
        return {}, ["histogram not used: before fio 2.99 its keys are bucket numbers"]
    bins = {int(key): count for key, value in raw.items() if _is_bin(key) and (count := _count(value))}
    if not bins or (n is not None and sum(bins.values()) != n):
        return {}, [f"histogram not used: it holds {sum(bins.values())} of {n} I/Os"]
    return bins, []


def _is_bin(key: object) -> bool:
    return isinstance(key, str) and key.isascii() and key.isdecimal() and len(key) < 16


def _percent(key: object) -> float | None:
    """fio 2.x fills its list up with `0.00`; the 0th percentile is none."""
    try:
        percentile = float(_text(key))
    except ValueError:
        return None
    return percentile if 0 < percentile <= 100 else None


# ---------------------------------------------------------------- values of any kind


def _decoded(text: str | bytes) -> str:
    return text.decode("utf-8", errors="replace") if isinstance(text, bytes) else text


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int | None:
    """A number as fio counts, or None: text, a negative number, a sentinel such as 2**64 − 1."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < _LARGEST_COUNT:
        return None
    return int(value)


def _text(value: object) -> str:
    """Text that can be printed: a lone surrogate in JSON is legal, and no encoding takes it."""
    return str(value).encode("utf-8", errors="replace").decode("utf-8") if isinstance(value, str | int) else ""


def _seconds(text: str) -> float | None:
    """fio's durations: a bare number is seconds."""
    try:
        return parse_seconds(f"{text}s" if text.isdecimal() else text)
    except ValueError:
        return None


def _label(job: FioJob) -> str:
    return " ".join(part for part in (job.name, job.host, job.direction) if part)
