"""What is written is read back, and what comes back wrong is counted."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from builders import make_context

from kvbench import process
from kvbench.errors import StepError
from kvbench.fio import jobfile, runner, verify
from kvbench.fio.parse import parse
from kvbench.model import Arm, Engine, Step, Storage
from kvbench.probes.context import Context
from kvbench.probes.metrics import VERIFY_METRICS

needs_fio = pytest.mark.skipif(process.find_tool("fio") is None, reason="fio is not installed")
SIZE_BYTES = 8 << 20
STEP = Step("verify-dut", "verify", "fio.verify", "dut", "", 0, {"size_bytes": SIZE_BYTES}, 1, "none")


def context(run_dir: Path, nodes: int = 2, attempt: int = 1) -> Context:
    data_dirs = tuple(run_dir / f"node{number}" for number in range(nodes))
    arm = Arm("dut", "dut", Engine(), storage=Storage(tuple(map(str, data_dirs))) if nodes else None)
    return make_context(run_dir, STEP.id, arm, data_dirs, attempt=attempt)


def damage(data: Path) -> None:
    """Change one byte in the first block of a file that begins with a hole."""
    with data.open("r+b") as file:
        file.seek(os.lseek(file.fileno(), 0, os.SEEK_DATA) + 4711)
        file.write(b"x")


def misplace(data: Path) -> None:
    """Put a copy of the first block where the second belongs: whole, and yet not what was written there."""
    with data.open("r+b") as file:
        first = os.lseek(file.fileno(), 0, os.SEEK_DATA)
        file.seek(first)
        block = file.read(jobfile.LAYOUT_BLOCK_BYTES)
        file.write(block)


@needs_fio
def test_all_nodes_are_written_and_read_back(tmp_path: Path) -> None:
    measured = verify.measure(STEP, context(tmp_path))
    assert {name: metric.unit for name, metric in measured.metrics.items()} == dict(VERIFY_METRICS)
    assert (measured.metrics["verify_errors"].value, measured.metrics["verified_bytes"].value) == (0, SIZE_BYTES)
    assert 0 < (measured.metrics["verified_share"].value or 0) < 1
    report = json.loads((tmp_path / measured.metrics["verified_bytes"].source).read_text())
    assert sum(job["read"]["io_bytes"] for job in report["jobs"]) == SIZE_BYTES
    assert {file.name for file in (tmp_path / "raw/verify-dut").iterdir()} == {
        f"{stem}.{suffix}" for stem in ("write", "verify") for suffix in ("fio", "json", "txt")
    }
    assert measured.warnings == ()


@needs_fio
@pytest.mark.parametrize("harm", [damage, misplace])
def test_a_block_that_comes_back_wrong_is_counted_and_named(
    harm: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def between(paths: list[Path]) -> None:
        harm(paths[1])  # type: ignore[operator]

    monkeypatch.setattr(verify.pagecache, "evict", between)
    measured = verify.measure(STEP, context(tmp_path))
    assert (measured.metrics["verify_errors"].value, measured.metrics["verified_bytes"].value) == (1, SIZE_BYTES)
    assert any("node1" in warning for warning in measured.warnings)


@needs_fio
def test_a_block_of_an_earlier_attempt_does_not_pass_for_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the medium had lost this attempt's first write, and kept what the attempt before had put there."""
    verify.measure(STEP, context(tmp_path, nodes=1))
    data = tmp_path / "node0/verify.data"
    with data.open("rb") as file:
        file.seek(os.lseek(file.fileno(), 0, os.SEEK_DATA))
        stale = file.read(jobfile.LAYOUT_BLOCK_BYTES)
    data.unlink()

    def lose_a_write(paths: list[Path]) -> None:
        with paths[0].open("r+b") as file:
            file.seek(os.lseek(file.fileno(), 0, os.SEEK_DATA))
            file.write(stale)

    monkeypatch.setattr(verify.pagecache, "evict", lose_a_write)
    measured = verify.measure(STEP, context(tmp_path, nodes=1, attempt=2))
    assert measured.metrics["verify_errors"].value == 1


def report(error: int, total_err: int) -> str:
    read = {"io_bytes": 4096, "io_kbytes": 4, "runtime": 1, "total_ios": 4, "bw_bytes": 4096000}
    return json.dumps(
        {"fio version": "fio-3.33", "jobs": [{"jobname": "v", "error": error, "total_err": total_err, "read": read}]}
    )


@pytest.mark.parametrize(
    ("error", "total_err", "wrong"), [(0, 0, 0), (errno.EILSEQ, 3, 3), (errno.EIO, 1, 0), (errno.ENOSPC, 1, 0)]
)
def test_only_what_came_back_different_is_a_wrong_block(error: int, total_err: int, wrong: int) -> None:
    assert verify.wrong_blocks(parse(report(error, total_err))) == wrong


def test_an_io_error_is_no_count_but_an_error_of_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_job(fio: str, run: runner.Run, job: str, context: Context) -> object:
        return parse(report(errno.EIO if run.stem == "verify" else 0, 1 if run.stem == "verify" else 0))

    monkeypatch.setattr(runner, "run_job", run_job)
    monkeypatch.setattr(runner, "require_fio", lambda: "fio")
    monkeypatch.setattr(verify.pagecache, "evict", lambda paths: None)
    with pytest.raises(StepError, match=r"verifying 8\.39 MB: v: error 5, Input/output error"):
        verify.measure(STEP, context(tmp_path))


@pytest.mark.parametrize(
    ("size_bytes", "nodes", "reason"),
    [(SIZE_BYTES, 0, "the arm has no storage"), (1 << 60, 1, r"verifying needs 1152922 TB at .*node0")],
)
def test_what_cannot_be_verified_is_refused_before_anything_is_written(
    size_bytes: int, nodes: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "require_fio", lambda: "fio")
    step = Step("verify-dut", "verify", "fio.verify", "dut", "", 0, {"size_bytes": size_bytes}, 1, "none")
    with pytest.raises(StepError, match=reason):
        verify.measure(step, context(tmp_path, nodes))
