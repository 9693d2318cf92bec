"""Gates on a storage that fails in the middle of a step: the step says why, and the run goes on once it is mended."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_g2 import Trouble, disk, execute, measured, mounted, new_run
from small_runs import Nobody

from kvbench import process
from kvbench.errors import KvbenchError
from kvbench.fio import runner
from kvbench.host.activity import cold
from kvbench.journal import RunFolder

needs_fio = pytest.mark.skipif(process.find_tool("fio") is None, reason="fio is not installed")


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a silent device: others use this one too."""
    monkeypatch.setattr(cold, "wait_idle", lambda *_: 0.0)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Path]:
    with disk(tmp_path) as folder:
        yield folder


def error_of(folder: RunFolder, step: str) -> str:
    """Why a step could not be measured, when it is the only one; no process of the run is left."""
    failed = {measurement.step_id: measurement.error for measurement in folder.measurements() if measurement.error}
    assert list(failed) == [step]
    assert "\n" not in failed[step]
    assert folder.survivors.alive() == []
    return failed[step]


def unmount(node: Path) -> None:
    subprocess.run(["umount", "-l", node], check=True)


def check_mended(folder: RunFolder, failed: str) -> None:
    """A resumed run measures what is lacking, and nothing twice."""
    execute(RunFolder.open(folder.path), Nobody())
    assert measured(folder) == {step.id: 1 + (step.id == failed) for step in folder.plan.steps}
    assert [measurement.error for measurement in folder.measurements()] == [""] * len(folder.plan.steps)
    assert folder.survivors.alive() == []


def test_a_disk_that_others_fill_while_pages_are_written(node: Path, tmp_path: Path) -> None:
    others = node / "others"

    def fill() -> None:
        left = shutil.disk_usage(node).free
        with others.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, left - 2 * 2**20)

    folder, full = new_run(tmp_path, node, steps=("page-read",)), Trouble("populate", fill)
    with pytest.raises(KvbenchError, match=r"step page-read-.* needs 2.* MB free at .*; there are 2\.\d+ MB"):
        execute(folder, full)
    said = error_of(folder, full.step)
    assert said.startswith("populate pages: ")
    assert said.endswith("No space left on device")
    assert 0 < int(said.split()[2]) < 16  # some had been written
    others.unlink()
    check_mended(folder, full.step)


@pytest.mark.parametrize("when", ["populate", "settle", "read"])
def test_a_target_that_is_unmounted_in_mid_step(when: str, node: Path, tmp_path: Path) -> None:
    folder, trouble = new_run(tmp_path, node, steps=("page-read",)), Trouble(when, lambda: unmount(node))
    with pytest.raises(KvbenchError, match=f"{node}/kvbench-run has gone"):
        execute(folder, trouble)
    assert error_of(folder, trouble.step) == f"{node}/kvbench-run/{trouble.step}-a1 went away while the step ran"
    with pytest.raises(KvbenchError, match=f"{node} was on the file system mounted at {node} when the run began"):
        execute(RunFolder.open(folder.path), Nobody())
    assert list(node.iterdir()) == []  # nothing was written to the disk below the mount point
    with mounted(tmp_path / "disk.img", node):
        check_mended(folder, trouble.step)


def test_a_run_is_not_resumed_on_another_disk_at_the_same_mount_point(node: Path, tmp_path: Path) -> None:
    folder, trouble = new_run(tmp_path, node, steps=("page-read",)), Trouble("read", lambda: unmount(node))
    with pytest.raises(KvbenchError, match="has gone"):
        execute(folder, trouble)
    other = tmp_path / "other"
    other.mkdir()
    with disk(other) as another:
        subprocess.run(["mount", "--bind", another, node], check=True)
        with pytest.raises(KvbenchError, match=f"{node} was on the file system with .* when the run began, and is on "):
            execute(RunFolder.open(folder.path), Nobody())
        assert [path.name for path in node.iterdir()] == ["lost+found"]
        unmount(node)
    with mounted(tmp_path / "disk.img", node):
        check_mended(folder, trouble.step)


@needs_fio
@pytest.mark.parametrize("when", ["writing", "fio page-read", "settle"])
def test_a_folder_that_is_moved_away_in_mid_step(when: str, tmp_path: Path) -> None:
    node = tmp_path / "node"
    node.mkdir()
    folder, trouble = new_run(tmp_path, node), Trouble(when, lambda: node.rename(tmp_path / "elsewhere"))
    with pytest.raises(KvbenchError, match="node/kvbench-run has gone"):
        execute(folder, trouble)
    assert "went away while the step ran" in error_of(folder, trouble.step)
    node.mkdir(exist_ok=True)  # fio makes folders that its job file names
    check_mended(folder, trouble.step)


@needs_fio
def test_fio_that_is_killed(tmp_path: Path) -> None:
    def kill() -> None:
        while not (pids := folder.survivors.alive()):  # its mark is on it once it has been executed
            pass
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    (tmp_path / "node").mkdir()
    folder = new_run(tmp_path, tmp_path / "node")
    trouble = Trouble("fio page-read", kill)
    execute(folder, trouble)
    assert error_of(folder, trouble.step).startswith("fio page-read: fio was killed by signal 9")
    check_mended(folder, trouble.step)


@needs_fio
def test_fio_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fio = tmp_path / "bin" / "fio"
    fio.parent.mkdir()
    fio.write_text('#!/bin/sh\n[ "$1" = --version ] && echo fio-3.33 && exit\nsleep 600 & sleep 600\n')
    fio.chmod(0o755)
    (tmp_path / "node").mkdir()
    folder = new_run(tmp_path, tmp_path / "node")
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{fio.parent}:{os.environ['PATH']}")
        patch.setattr(runner, "MARGIN_S", 0.3)
        patch.setattr(runner, "_SLOWEST_BYTES_PER_S", 20e9)
        execute(folder, Nobody())
    failed = folder.plan.steps[0].id
    assert "fio did not end within" in error_of(folder, failed)
    check_mended(folder, failed)
