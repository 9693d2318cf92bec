"""The load generator against others, each driven at the same server, which stamps what it sends.

    .venv/bin/python benchmarks/load.py --peers-venv DIR --json load.json

For every client: how far its TTFT is from the server's, how much of the ideal rate it keeps, what it costs. DIR is an
environment with the others in it (docs/performance.md); give several if they do not go together. The server streams 64
tokens, 10 ms apart, after 200 ms; N streams are N requests in flight, closed loop. Processor time counts from the first
request to the last token, memory until then. Run it on a quiet machine: clients and server share the processors.
Exit code 1 when kvbench misses a goal.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from load_clients import CLIENTS, TOKENS, Client, Job
from load_server import INTERVAL_S, TTFT_S, Server, Truth, build, serving

IDEAL_S = TTFT_S + (TOKENS - 1) * INTERVAL_S  # of one request
SOURCE = Path(__file__).parents[2] / "shared" / "loadgen" / "mockllm.c"
SAMPLE_S = 0.1
PATIENCE_S = 90  # for starting and summing up, beside five times as long as the load should take


@dataclass(frozen=True)
class Figures:
    """What one client did at one number of streams. None where there is no figure; `problem` says why."""

    client: str
    streams: int
    requests: int
    answered: int = 0
    in_flight: int = 0
    error_p50_ms: float | None = None
    error_p99_ms: float | None = None
    ideal_share: float | None = None
    cpu_us_per_token: float | None = None
    memory_mb: float | None = None
    start_s: float | None = None
    problem: str = ""


@dataclass(frozen=True)
class Goal:
    """What issue and documentation ask of kvbench."""

    figure: str
    least: float = 0.0
    most: float = float("inf")
    from_streams: int = 0
    to_streams: int = 1_000_000

    def met(self, value: float | None) -> bool:
        return value is not None and self.least <= value <= self.most


GOALS = (
    Goal("error_p50_ms", most=0.1, to_streams=256),
    Goal("error_p99_ms", most=5.0, to_streams=256),
    Goal("error_p50_ms", most=0.5, from_streams=1024),
    Goal("ideal_share", least=0.97, from_streams=1024),
    Goal("cpu_us_per_token", most=8.0, from_streams=1024),
    Goal("memory_mb", most=100.0),
    Goal("start_s", most=1.0),
)
TIMES_CHEAPER = 5.0  # than the cheapest other LLM client, at 1,024 streams


def main() -> int:
    asked = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # what was started is ended
    program = build(asked.mock)
    clients = [client for client in CLIENTS if client.name in asked.clients]
    found = {client.name: client.find(asked.peers_venv) for client in clients}
    all_figures = []
    with tempfile.TemporaryDirectory() as folder, serving(program, Path(folder)) as server:
        print(f"Python {platform.python_version()} on {platform.machine()}, {os.cpu_count()} processors")
        print(f"load {os.getloadavg()[0]:.1f}; server at real-time priority: {'yes' if server.real_time else 'no'}")
        for streams in asked.streams:
            print(f"\n{streams} streams\n{HEADING}")
            for client in clients:
                requests = streams * max(2, round(asked.seconds / IDEAL_S))
                job = Job(server.url, streams, requests, Path(tempfile.mkdtemp(dir=folder)))
                figures = measured(client, found[client.name], server, job)
                all_figures.append(figures)
                print(line(figures), flush=True)
            print(goal_line(streams), flush=True)
    if asked.json:
        asked.json.write_text(json.dumps([asdict(figures) for figures in all_figures], indent=1))
    return int(not judge(all_figures))


def arguments() -> argparse.Namespace:
    names = [client.name for client in CLIENTS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--mock", type=Path, default=os.environ.get("KVBENCH_MOCKLLM", SOURCE), help="the server's source"
    )
    parser.add_argument("--peers-venv", type=Path, action="append", default=[], help="where the others are installed")
    parser.add_argument("--streams", type=int, nargs="+", default=[16, 64, 256, 512, 1024])
    parser.add_argument("--clients", nargs="+", choices=names, default=names)
    parser.add_argument("--seconds", type=float, default=10.0, help="of load for each client and number of streams")
    parser.add_argument("--json", type=Path, help="write all figures there")
    return parser.parse_args()


# ---------------------------------------------------------------- one client at one number of streams


def measured(client: Client, program: Path | None, server: Server, job: Job) -> Figures:
    nothing = Figures(client.name, job.streams, job.requests)
    if program is None:
        return replace(nothing, problem="not installed")
    client.prepare(program, job)
    server.forget()
    usage = Usage()
    try:
        problem = run(client, program, job, usage)
    except OSError as error:  # of an environment that was moved, say
        problem = f"does not start: {error.strerror}"
    if problem:
        return replace(nothing, problem=problem)
    return replace(figures_of(nothing, client.ttfts_s(job), server.truth(), usage), in_flight=server.most_connections())


def run(client: Client, program: Path, job: Job, usage: Usage) -> str:
    """Run a client to its end, watching what it uses; gives what went wrong."""
    log, limit_s = job.folder / "log", PATIENCE_S + 5 * job.requests / job.streams * IDEAL_S
    with log.open("wb") as output:
        child = subprocess.Popen(
            client.argv(program, job),
            env={**os.environ, **client.env(job)},
            cwd=job.folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            while (ended := child.poll()) is None and usage.elapsed_s() < limit_s:
                usage.sample(child.pid)
                time.sleep(SAMPLE_S)
        finally:
            end_session(child)
    if ended is None:
        return f"not done within {limit_s:.0f} s"
    if ended:
        words = log.read_text(errors="replace").strip().splitlines()
        return f"exit code {ended}: {words[-1][:100] if words else ''}"
    return ""


def end_session(child: subprocess.Popen[bytes]) -> None:
    """End what is left of a client, its own children included."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def figures_of(nothing: Figures, ttfts_s: dict[str, float], truth: dict[str, Truth], usage: Usage) -> Figures:
    """The client's own TTFTs beside the server's; what it used between the first request and the last token."""
    seen = [(ttft_s, truth[name]) for name, ttft_s in ttfts_s.items() if name in truth]
    if not seen:
        return replace(nothing, problem="none of its requests is among the server's")
    errors_ms = sorted(1000 * abs(ttft_s - told.ttft_s) for ttft_s, told in seen)
    first_ns, last_ns = min(told.arrived_ns for _, told in seen), max(told.done_ns for _, told in seen)
    tokens = sum(told.tokens for _, told in seen)
    return replace(
        nothing,
        answered=len(seen),
        error_p50_ms=statistics.median(errors_ms),
        error_p99_ms=errors_ms[math.ceil(0.99 * len(errors_ms)) - 1],
        ideal_share=tokens / ((last_ns - first_ns) / 1e9) / (nothing.streams * TOKENS / IDEAL_S),
        cpu_us_per_token=1e6 * usage.cpu_s_between(first_ns, last_ns) / tokens,
        memory_mb=usage.peak_bytes_until(last_ns) / 1e6,
        start_s=(first_ns - usage.began_ns) / 1e9,
    )


class Usage:
    """Processor time and memory of a process and its descendants, sampled."""

    _TICK_S = 1 / os.sysconf("SC_CLK_TCK")
    _PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

    def __init__(self) -> None:
        self.began_ns = time.monotonic_ns()
        self._samples: list[tuple[int, float, int]] = [(self.began_ns, 0.0, 0)]  # when, CPU seconds, resident bytes

    def elapsed_s(self) -> float:
        return (time.monotonic_ns() - self.began_ns) / 1e9

    def sample(self, root: int) -> None:
        cpu_s, resident = 0.0, 0
        for pid in family(root):
            try:
                stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                cpu_s += sum(map(int, stat[11:15])) * self._TICK_S  # its own and that of children which have ended
                resident += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * self._PAGE_BYTES
            except OSError:
                continue  # it has just ended
        self._samples.append((time.monotonic_ns(), max(cpu_s, self._samples[-1][1]), resident))

    def peak_bytes_until(self, end_ns: int) -> int:
        return max(resident for at_ns, _, resident in self._samples if at_ns <= end_ns)

    def cpu_s_between(self, begin_ns: int, end_ns: int) -> float:
        return self._cpu_s_at(end_ns) - self._cpu_s_at(begin_ns)

    def _cpu_s_at(self, at_ns: int) -> float:
        """On the line between the samples before and after."""
        before = max(sample for sample in self._samples if sample[0] <= at_ns)
        after = min((sample for sample in self._samples if sample[0] > at_ns), default=before)
        share = (at_ns - before[0]) / (after[0] - before[0]) if after > before else 0.0
        return before[1] + share * (after[1] - before[1])


def family(pid: int) -> Iterator[int]:
    """A process and all that descend from it."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in children:
            yield from family(int(child))


# ---------------------------------------------------------------- what is printed

HEADING = (
    f"{'':16}{'TTFT error p50':>16}{'p99':>12}{'ideal rate':>12}{'CPU a token':>13}{'memory':>10}{'start-up':>10}"
    f"{'in flight':>11}{'answered':>14}"
)


def line(figures: Figures) -> str:
    if figures.problem:
        return f"{figures.client:16}  {figures.problem}"
    return (
        f"{figures.client:16}{figures.error_p50_ms:13.3f} ms{figures.error_p99_ms:9.2f} ms"
        f"{100 * figures.ideal_share:10.1f} %{figures.cpu_us_per_token:10.1f} µs{figures.memory_mb:7.0f} MB"
        f"{figures.start_s:8.2f} s{figures.in_flight:11}{figures.answered:7} / {figures.requests}"
    )


def goal_line(streams: int) -> str:
    """The goals of kvbench below the figures that they are about."""
    here = {goal.figure: goal for goal in GOALS if goal.from_streams <= streams <= goal.to_streams}

    def cell(figure: str, unit: str, width: int, scale: float = 1.0) -> str:
        if (goal := here.get(figure)) is None:
            return " " * width
        sign, value = ("≥", goal.least) if goal.least else ("≤", goal.most)
        return f"{sign} {scale * value:g} {unit}".rjust(width)

    return (
        f"{'goal of kvbench':16}{cell('error_p50_ms', 'ms', 16)}{cell('error_p99_ms', 'ms', 12)}"
        f"{cell('ideal_share', '%', 12, 100)}{cell('cpu_us_per_token', 'µs', 13)}{cell('memory_mb', 'MB', 10)}"
        f"{cell('start_s', 's', 10)}"
    )


def judge(all_figures: Sequence[Figures]) -> bool:
    """Print which goals kvbench misses; whether it misses none."""
    own = [figures for figures in all_figures if figures.client == "kvbench"]
    missed = [
        f"{goal.figure} at {figures.streams} streams"
        for figures in own
        for goal in GOALS
        if goal.from_streams <= figures.streams <= goal.to_streams and not goal.met(getattr(figures, goal.figure))
    ]
    for figures in own:
        others = [
            other.cpu_us_per_token
            for other in all_figures
            if other.streams == figures.streams and other.client in LLM_PEERS and other.cpu_us_per_token is not None
        ]
        if figures.streams >= 1024 and others and figures.cpu_us_per_token:
            times = min(others) / figures.cpu_us_per_token
            print(f"\nthe cheapest other LLM client takes {times:.1f} times the CPU a token; goal ≥ {TIMES_CHEAPER:g}")
            missed += [f"CPU against others at {figures.streams} streams"] if times < TIMES_CHEAPER else []
    print(f"\nmissed: {', '.join(missed) if missed else 'nothing'}")
    return not missed


LLM_PEERS = [client.name for client in CLIENTS if client.for_llms and client.name != "kvbench"]

if __name__ == "__main__":
    sys.exit(main())
