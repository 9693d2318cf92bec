"""A page step that is left by an exception, whatever it is: its workers end first, and its folder goes after them."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from threading import enumerate as threads

import pytest

from kvbench import safety
from kvbench.errors import KvbenchError
from kvbench.store import pagefile, real
from kvbench.store.core import Done, Write
from kvbench.store.keys import PageKey, chain
from kvbench.store.real import RealNodes

PAGE_BYTES = 64 * 1024
PAGES = [PageKey(digest, 0) for digest in chain("m", 1, 1, range(20))]
WRITE = pagefile.write


class Signal(BaseException):
    """As a signal becomes one: no Exception, and at any moment."""


class Gate:
    """Writes that stop at a gate; those of `prepare_directory` do not."""

    def __init__(self) -> None:
        self.open, self.reached = Event(), Event()

    def write(self, path: Path, unfinished: Path, buffer: memoryview, direct: bool) -> None:
        if path != unfinished:
            self.reached.set()
            self.open.wait(30)
        WRITE(path, unfinished, buffer, direct)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    monkeypatch.setattr(pagefile, "write", gate.write)
    yield gate
    gate.open.set()


def interrupted(node: Path, gate: Gate, dones: SimpleQueue[Done], hangs: bool) -> list[str]:
    """Leave nodes by an exception while one page is being written and others wait; the pages that are then there."""
    with suppress(Signal), RealNodes([node], PAGE_BYTES, on_done=dones.put, direct=False, workers_per_node=1) as nodes:
        for io, page in enumerate(PAGES):
            nodes.submit(Write(io, 0, page))
        gate.reached.wait(30)
        if not hangs:
            gate.open.set()
        raise Signal
    return [path.name for path in node.iterdir()]


def test_workers_end_after_the_io_that_they_are_in_and_begin_no_other(tmp_path: Path, gate: Gate) -> None:
    before, dones = set(threads()), SimpleQueue[Done]()
    assert interrupted(tmp_path / "node", gate, dones, hangs=False) == [PAGES[0].file_name]
    assert set(threads()) <= before
    assert dones.empty()


def test_a_worker_whose_io_hangs_is_not_waited_for_for_ever_and_writes_nothing_afterwards(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real, "_HANG_NS", 10**7)
    before, dones = set(threads()), SimpleQueue[Done]()
    assert interrupted(tmp_path / "node", gate, dones, hangs=True) == []
    safety.remove_tree(tmp_path / "node")
    gate.open.set()
    for thread in set(threads()) - before:
        thread.join(30)
    assert not (tmp_path / "node").exists()
    assert dones.empty()


def test_a_folder_in_which_files_come_and_go_meanwhile_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rmtree, late = safety.shutil.rmtree, iter(["a page", "another"])

    def removing(path: Path, **options: bool) -> None:
        rmtree(path, **options)
        if name := next(late, None):
            path.mkdir()
            (path / name).touch()

    monkeypatch.setattr(safety.shutil, "rmtree", removing)
    (tmp_path / "pages").mkdir()
    safety.remove_tree(tmp_path / "pages")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_stays_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety.shutil, "rmtree", lambda path, **options: None)
    with pytest.raises(KvbenchError, match=f"{tmp_path} cannot be removed"):
        safety.remove_tree(tmp_path)


# ---------------------------------------------------------------- through the command line

GATE = """
version: 1
id: SHORT
title: One step
why: To be interrupted.
rounds: 1
quick_rounds: 1
steps:
  - {{id: pages, probe: {probe}, arms: dut, why: Load., params: {params}}}
checks:
  - {{id: content, kind: integrity, step: pages, metric: content_mismatches, rule: each, op: "==", limit: 0,
     unit: count, why: A wrong page.}}
"""
TARGET = """
version: 1
name: one disk
arms:
  - {{name: dut, role: dut, engine: {{}}, storage: {{nodes: [{node}], direct: false, rate_limit_bytes_per_s: 60 MB/s}}}}
  - {{name: recompute, role: baseline, kv: recompute, engine: {{}}}}
"""
STEPS = {
    "kv.churn": "{pages: churn, slice_s: 60, working_set_bytes: 64 MiB, page_bytes: 1 MiB}",
    "kv.pages": "{pages: page-write, total_bytes: 1 GiB, concurrency: 8, page_bytes: 1 MiB}",
}


@pytest.mark.parametrize("probe", STEPS)
def test_ctrl_c_pressed_twice_is_an_interruption_that_leaves_nothing(tmp_path: Path, probe: str) -> None:
    rng, node = random.Random(probe), tmp_path / "node"
    node.mkdir()
    (tmp_path / "gate.yaml").write_text(GATE.format(probe=probe, params=STEPS[probe]))
    (tmp_path / "target.yaml").write_text(TARGET.format(node=node))
    argv = ["-m", "kvbench", "run", "gate", "gate.yaml", "--target", "target.yaml", "--out", "run", "--yes"]
    with subprocess.Popen([sys.executable, *argv], cwd=tmp_path, stderr=subprocess.PIPE, text=True) as run:
        while not list(node.rglob("*.r0*")) and run.poll() is None:
            time.sleep(0.02)
        for _ in range(2):
            time.sleep(0.2 * rng.random())
            run.send_signal(signal.SIGINT)
        assert run.stderr is not None
        said = run.stderr.read()
    assert "interrupted; the run keeps what it measured" in said
    assert run.returncode == 130
    assert list(node.iterdir()) == []
