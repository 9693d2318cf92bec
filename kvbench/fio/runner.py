"""Start fio on one job file, wait for it within a limit, read what it wrote. Whether that counts is for the caller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvbench import clock, process
from kvbench.errors import KvbenchError, StepError
from kvbench.fio.hosts import Jobs, client
from kvbench.fio.parse import parse, version_of
from kvbench.fio.result import FioResult
from kvbench.probes.context import Context
from kvbench.units import format_seconds

MARGIN_S = 60.0  # for starting, and for the I/O in flight at the end
_OLDEST = (3, 1)  # json+ in nanoseconds, --output beside it, `ms` durations
_SLOWEST_BYTES_PER_S = 20e6  # of a medium that is worth waiting for
_POLL_S = 0.1


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


@dataclass(frozen=True, slots=True)
class Run:
    """One start of fio: the stem of its files, what to tell meanwhile, and how long it may and should take."""

    stem: str
    doing: str
    limit_s: float
    expected_s: float | None = None


def limit_s(size_bytes: int) -> float:
    """How long moving so many bytes may take before fio is said to hang."""
    return MARGIN_S + size_bytes / _SLOWEST_BYTES_PER_S


def run_sound(fio: str, run: Run, jobs: Jobs, context: Context) -> FioResult:
    """As `run_job`, and raises StepError too, with fio's own words, when the result is not sound."""
    result = run_job(fio, run, jobs, context)
    if not result.ok:
        raise unsound(result, run, context)
    return result


def unsound(result: FioResult, run: Run, context: Context) -> StepError:
    """The error that tells why a result does not count."""
    words = next((f" ({line})" for line in result.diagnostics if line not in result.reason), "")
    where = (context.raw_dir / f"{run.stem}.txt").relative_to(context.run_dir)
    return StepError(f"{run.doing}: {result.reason}{words}", f"see {where}")


def run_job(fio: str, run: Run, jobs: Jobs, context: Context) -> FioResult:
    """Run fio on one job file, or on one a host, and read its output, whatever it says. Raises StepError when it hangs.

    When a run on hosts is ended, fio tells their servers.
    """
    output, messages = (context.raw_dir / f"{run.stem}.{suffix}" for suffix in ("json", "txt"))
    argv = [fio, "--output-format=json+", f"--output={output}"]
    for number, (host, job_text) in enumerate(jobs.items()):
        job = context.raw_dir / (f"{run.stem}-{number}.fio" if host else f"{run.stem}.fio")
        job.write_text(job_text)
        argv += [client(host), str(job)] if host else [str(job)]
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
    return _of_all_hosts(parse(text, messages.read_bytes(), child.returncode), [host for host in jobs if host])


def _of_all_hosts(result: FioResult, hosts: Sequence[str]) -> FioResult:
    """fio ends well also when it has reached only some of its hosts."""
    took_part = len({job.host for job in result.jobs})
    if not result.ok or took_part >= len(hosts):
        return result
    words = [line for line in result.diagnostics if "connect" in line][-1:]
    return replace(result, ok=False, reason="; ".join([f"{took_part} of {len(hosts)} hosts took part", *words]))
