"""The probe `fio.profile`: lays files out on the arm's nodes, drives them with fio, reads what it wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from kvbench import clock, plan, process
from kvbench.errors import KvbenchError, StepError
from kvbench.fio import jobfile
from kvbench.fio.parse import parse, version_of
from kvbench.fio.result import FioJob, FioResult, FioTotal
from kvbench.fio.total import total
from kvbench.model import Measurement, Metric, Step
from kvbench.probes import FIO_METRICS, Context, FioParams
from kvbench.units import format_bytes, format_seconds

_OLDEST = (3, 1)  # json+ in nanoseconds, --output beside it, `ms` durations
_MARGIN_S = 60.0  # for starting, and for the I/O in flight at the end
_SLOWEST_BYTES_PER_S = 20e6  # of a medium that is worth waiting for while files are laid out
_POLL_S = 0.1


def measure(step: Step, context: Context) -> Measurement:
    """Drive one profile on all nodes of the arm at once, over files that were written in full before.

    Raises StepError when fio fails, hangs or ends early, with its own words; KvbenchError when fio is missing or older
    than 3.1; UsageError when the profile cannot be a job file. Leaves no process.
    """
    params = cast(FioParams, plan.parse_params(step))
    if not context.data_dirs:
        raise StepError(f"{step.id}: the arm has no storage to drive", "give the arm a storage with nodes")
    fio = require_fio()
    paths = [folder / "fio.data" for folder in context.data_dirs]
    name, salt = jobfile.profile_name(params), f"{step.seed}/{context.attempt}"
    storage = context.arm.storage if context.arm else None
    profile = jobfile.profile_job(params, paths, salt, storage.rate_limit_bytes_per_s if storage else None)
    start, overhead = clock.stamp(), dict[str, float]()
    if params.lay_out:
        limit_s = _MARGIN_S + params.size_bytes / _SLOWEST_BYTES_PER_S
        layout = _Run("layout", f"writing {format_bytes(params.size_bytes)} for {name}", limit_s)
        _run(fio, layout, jobfile.layout_job(params, paths, salt), context)
        overhead["lay_out"] = (clock.monotonic_ns() - start.monotonic_ns) / 1e9
    run = _Run("profile", f"fio {name}", params.runtime_s + _MARGIN_S, expected_s=params.runtime_s)
    result = _run(fio, run, profile, context)
    source = str((context.raw_dir / "profile.json").relative_to(context.run_dir))
    return Measurement(
        step_id=step.id,
        attempt=context.attempt,
        basis="measured",
        start=start,
        end=clock.stamp(),
        boot_id=clock.boot_id(),
        metrics=metrics(result.jobs, source),
        raw_files=tuple(str(path.relative_to(context.run_dir)) for path in sorted(context.raw_dir.iterdir())),
        overhead=overhead,
        facts={"fio": result.version, "profile": name, "options": dict(result.jobs[0].options)},
        warnings=result.warnings,
    )


def require_fio() -> str:
    """Path of a fio that can be used. Raises KvbenchError when it is missing or too old."""
    path = process.require_tool("fio", "fio")
    answer = process.run([path, "--version"])
    version = version_of(answer.stdout.strip())
    if version is None:
        raise KvbenchError(f"{path} --version does not answer as fio does: {answer.stdout.strip()[:80]!r}")
    if version < _OLDEST:
        raise KvbenchError(
            f"{path} is {answer.stdout.strip()}, which is too old: its JSON is in other units",
            f"install fio {_OLDEST[0]}.{_OLDEST[1]} or newer",
        )
    return path


def metrics(jobs: Sequence[FioJob], source: str) -> dict[str, Metric]:
    """The probe's metrics from the measured jobs; None with the reason where a direction was not driven or trusted."""
    read, write = total(jobs, "read"), total(jobs, "write")
    untrusted = "" if all(job.trusted for job in jobs) else "reads may have come from the page cache"
    runtimes = [part.runtime_s for part in (read, write) if part.runtime_s is not None]
    return {
        **_side("read", "read_bytes", read, untrusted, source),
        **_side("write", "written_bytes", write, "", source),
        "runtime_s": Metric(max(runtimes, default=None), "s", len(jobs), source),
    }


def _side(side: str, bytes_name: str, part: FioTotal, untrusted: str, source: str) -> dict[str, Metric]:
    absent = untrusted if part.jobs else f"fio reported no {side}s"

    def metric(name: str, value: float | None, n: int, note: str) -> tuple[str, Metric]:
        if absent or value is None:
            return name, Metric(None, FIO_METRICS[name], n, source, absent or part.note or "fio gave no such figure")
        return name, Metric(value, FIO_METRICS[name], n, source, note)

    kind = "submission and completion latency" if part.latency_kind == "lat" else "completion latency"
    latency_s = {percentile: value_ns / 1e9 for percentile, value_ns in part.latency_ns.items()}
    return dict(
        [
            metric(bytes_name, part.bytes, part.ios, ""),
            metric(f"{side}_bandwidth_bytes_per_s", part.bandwidth_bytes_per_s, part.ios, f"bytes ÷ {part.window}"),
            metric(f"{side}_iops", part.iops, part.ios, f"I/Os ÷ {part.window}"),
            metric(f"{side}_latency_p50_s", latency_s.get(50), part.latency_n, kind),
            metric(f"{side}_latency_p99_s", latency_s.get(99), part.latency_n, kind),
        ]
    )


@dataclass(frozen=True, slots=True)
class _Run:
    """One start of fio: the stem of its files, what to tell meanwhile, and how long it may and should take."""

    stem: str
    doing: str
    limit_s: float
    expected_s: float | None = None


def _run(fio: str, run: _Run, job_text: str, context: Context) -> FioResult:
    """Run fio on one job file and read its output. Raises StepError when it hangs or its result is not sound."""
    job, output, messages = (context.raw_dir / f"{run.stem}.{suffix}" for suffix in ("fio", "json", "txt"))
    job.write_text(job_text)
    argv = [fio, "--output-format=json+", f"--output={output}", str(job)]
    with (
        messages.open("wb") as sink,
        process.start(argv, stdout=sink, stderr=sink, cwd=context.raw_dir, survivors=context.survivors) as child,
    ):
        started_ns = clock.monotonic_ns()
        limit_ns = min(started_ns + int(run.limit_s * 1e9), context.deadline_ns)
        while child.poll() is None:
            now_ns = clock.monotonic_ns()
            elapsed_s = (now_ns - started_ns) / 1e9
            if now_ns >= limit_ns:
                raise StepError(f"{run.doing}: fio did not end within {format_seconds(elapsed_s)}, and was ended")
            share = min(1.0, elapsed_s / run.expected_s) if run.expected_s else None
            context.progress(f"{run.doing}, {format_seconds(elapsed_s)}", share)
            clock.sleep_s(_POLL_S)
    text = output.read_bytes() if output.exists() else b""
    result = parse(text, messages.read_bytes(), child.returncode)
    if not result.ok:
        words = next((f" ({line})" for line in result.diagnostics if line not in result.reason), "")
        raise StepError(f"{run.doing}: {result.reason}{words}", f"see {messages.relative_to(context.run_dir)}")
    return result
