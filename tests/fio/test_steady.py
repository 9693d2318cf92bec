"""Rounds of a profile until they are steady: by a fio that gives the bandwidths of a list, and once by a real one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from builders import make_context
from pyarrow import parquet

from kvbench import process
from kvbench.errors import StepError
from kvbench.fio import runner, steady
from kvbench.fio.hosts import HERE, Jobs
from kvbench.fio.result import FioJob, FioResult
from kvbench.model import Arm, Engine, Step, Storage
from kvbench.probes.context import Context, Measured
from kvbench.probes.metrics import STEADY_METRICS

SIZE_BYTES = 8 << 20
RISING = [100.0, 300.0, 500.0, 700.0, 900.0]
WRITES = {"rw": "randwrite", "bs": 65536, "ioengine": "psync"}


def step(**params: Any) -> Step:
    given = {"profile": "steady-write", "options": WRITES, "size_bytes": SIZE_BYTES, "runtime_s": 60.0, **params}
    return Step("steady-dut", "steady", "fio.steady", "dut", "", 0, given, 1, "none")


@pytest.fixture
def context(tmp_path: Path) -> Context:
    node = tmp_path / "node0"
    arm = Arm("dut", "dut", Engine(), storage=Storage((str(node),)))
    return make_context(tmp_path, "steady-dut", arm, (node,))


def answer(bandwidth: float) -> FioResult:
    job = FioJob(
        name="steady-write.0", host="", direction="write", bytes=int(bandwidth), runtime_s=1.0,
        ios=1, latency_ns={99: 1000}, latency_kind="clat", latency_n=1,
        errors=0, options={},
    )  # fmt: skip
    return FioResult(True, "", ("fio was short of time",), "fio-3.33", (job,))


def driven(monkeypatch: pytest.MonkeyPatch, bandwidths: Sequence[float]) -> list[str]:
    """Make fio give these bandwidths, the last one for ever; returns the job files that it will have been given."""
    given: list[str] = []

    def run(fio: str, run: runner.Run, jobs: Jobs, context: Context) -> FioResult:
        given.append(jobs[HERE])
        return answer(bandwidths[min(len(given) - 2, len(bandwidths) - 1)] if len(given) > 1 else 2.0 * SIZE_BYTES)

    monkeypatch.setattr(runner, "require_fio", lambda: "fio")
    monkeypatch.setattr(runner, "run_sound", run)
    return given


def value(result: Measured, name: str) -> float | None:
    return result.metrics[name].value


@pytest.mark.parametrize(
    ("bandwidths", "window", "mean"),
    [
        pytest.param([1000.0], [1, 5], 1000, id="steady from the first round on"),
        pytest.param([*RISING, 1000.0], [5, 9], 980, id="settled after a start"),
        pytest.param([900.0, 1101.0, 900.0, 1101.0, 1000.0], [2, 6], 1020.4, id="once beyond the range"),
    ],
)
def test_rounds_end_with_the_first_steady_window_and_its_mean_is_the_figure(
    bandwidths: list[float], window: list[int], mean: float, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    driven(monkeypatch, bandwidths)
    result = steady.measure(step(), context)
    assert value(result, "steady_bandwidth_bytes_per_s") == pytest.approx(mean)
    assert (value(result, "rounds_run"), result.facts["window"]) == (window[1], window)
    assert parquet.read_table(context.run_dir / result.series["rounds"]).num_rows == window[1]
    assert {name: metric.unit for name, metric in result.metrics.items()} == STEADY_METRICS


def test_a_profile_that_never_settles_has_no_steady_bandwidth_and_says_by_how_much(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    driven(monkeypatch, [1000.0, 2000.0] * 13)
    result = steady.measure(step(), context)
    metric = result.metrics["steady_bandwidth_bytes_per_s"]
    assert (metric.value, value(result, "rounds_run")) == (None, 25)
    assert metric.note == (
        "no steady state in 25 rounds; over the last 5 the range was 71 % of the mean where at most 20 % is asked, "
        "and the slope 0 % where at most 10 % is"
    )
    assert value(result, "range_share") == pytest.approx(1000 / 1400)


def test_what_was_written_before_is_stated_and_that_nothing_was_purged(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = driven(monkeypatch, [1000.0])
    result = steady.measure(step(), context)
    assert {"rw=write", "bs=131072", "loops=2", f"size={SIZE_BYTES}"} <= set(given[0].splitlines())
    assert value(result, "preconditioned_bytes") == 2 * SIZE_BYTES
    assert result.facts["purge"].startswith("not purged")
    assert result.warnings == ("fio was short of time (and so in 5 of 5 rounds)",)


def test_every_round_writes_bytes_of_its_own(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    given = driven(monkeypatch, [1000.0])
    steady.measure(step(), context)
    seeds = {line for job in given for line in job.splitlines() if line.startswith("randseed=")}
    assert len(seeds) == len(given) == 6


@pytest.mark.parametrize(
    ("params", "present", "absent"),
    [
        ({}, {"time_based=1", "runtime=60000ms"}, "io_size"),
        ({"round_bytes": 1 << 20}, {"io_size=1048576", "runtime=60000ms"}, "time_based"),
    ],
)
def test_a_round_lasts_its_time_or_moves_its_bytes(
    params: dict[str, Any], present: set[str], absent: str, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = driven(monkeypatch, [1000.0])
    steady.measure(step(**params), context)
    assert present <= set(given[1].splitlines())
    assert absent not in given[1]


def test_blocks_that_were_never_written_are_not_driven(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    driven(monkeypatch, [1000.0])
    with pytest.raises(StepError, match="precondition_passes must be 1 or more"):
        steady.measure(step(precondition_passes=0), context)


@pytest.mark.skipif(process.find_tool("fio") is None, reason="fio is not installed")
def test_a_real_fio_is_driven_round_by_round(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steady, "_MOST_ROUNDS", 6)  # what ends them is tested apart; a disk with other work has many
    result = steady.measure(step(round_bytes=4 << 20), context)
    rounds = parquet.read_table(context.run_dir / result.series["rounds"]).to_pylist()
    assert 5 <= len(rounds) <= 6
    assert {row["bytes"] for row in rounds} == {4 << 20}
    assert value(result, "preconditioned_bytes") == 2 * SIZE_BYTES
    assert (context.data_dirs[0] / "fio.data").stat().st_size == SIZE_BYTES
    assert result.metrics["rounds_run"].value == len(rounds)
