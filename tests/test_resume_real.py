"""Real runs through the command line, killed and resumed: nothing is measured twice, lost, or left behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import write_no_pdf
from small_runs import folder_on_disk, small_gate

KILLS = 20
LONGEST_S = 10.0  # of undisturbed work: time for a wave, and seldom for two
PATIENCE_S = 300.0
TARGET = """
version: 1
name: one disk
arms:
  - {{name: dut, role: dut, storage: {{nodes: [{node}]}}, engine: {{}}}}
  - {{name: recompute, role: baseline, kv: recompute, engine: {{}}}}
"""
VERDICTS = (0, 1, 3)


@dataclass(frozen=True)
class Site:
    """Where one run takes place."""

    root: Path

    @classmethod
    def prepare(cls, root: Path, rounds: int) -> Site:
        (root / "node").mkdir(parents=True)
        (root / "target.yaml").write_text(TARGET.format(node=root / "node"))
        small_gate(root / "small.yaml", concurrency=2, rounds=rounds)
        return cls(root)

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def pages(self) -> list[Path]:
        return list((self.root / "node").rglob("*.r0"))

    def go_on(self) -> subprocess.Popen[bytes]:
        """Start the run, or resume what there is of it."""
        begin = ["run", "gate", "small.yaml", "--target", "target.yaml", "--out", "run", "--yes"]
        command = ["resume", "run"] if self.run.exists() else begin
        with (self.root / "output.txt").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "kvbench", *command], cwd=self.root, stdout=output, stderr=output
            )

    def journal(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.run / "journal.jsonl").read_bytes().splitlines()]

    def processes(self) -> dict[int, str]:
        """Every process that names this place, by its command line."""
        return {pid: command for pid, command in _command_lines() if str(self.root) in command}

    def check_finished(self) -> None:
        steps = [step["id"] for step in json.loads((self.run / "plan.json").read_text())["steps"]]
        measured = Counter(event["step"] for event in self.journal() if event["event"] == "measured")
        assert measured == Counter(steps)
        assert self.processes() == {}
        assert list((self.root / "node").iterdir()) == []
        assert {"verdict.json", "report.html", "requests.parquet"} <= {file.name for file in self.run.iterdir()}


def _command_lines() -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").iterdir():
        try:
            yield int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (ValueError, OSError):
            continue


def _tree(pid: int) -> list[int]:
    """A process and all that descend from it."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    return [pid, *(p for child in children.read_text().split() for p in _tree(int(child)))]


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    for pid in _tree(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def kill_parent(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def until(condition: Callable[[], object], what: str) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up, f"waited in vain for {what}"
        time.sleep(0.01)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    write_no_pdf(monkeypatch)
    with folder_on_disk(tmp_path) as folder:
        yield folder


def test_a_run_killed_while_it_stores_and_while_it_settles_is_resumed(disk: Path) -> None:
    site = Site.prepare(disk, rounds=1)
    process = site.go_on()
    until(lambda: site.pages, "a page on the node")
    kill_tree(process)
    until(lambda: not site.processes(), "the processes to end")

    process = site.go_on()
    until(lambda: list(site.run.glob("raw/wave-*-dut/engine-2.log")), "the engine's second start")
    kill_parent(process)
    until(lambda: not site.processes(), "the children to end by themselves")
    assert site.pages

    assert site.go_on().wait(PATIENCE_S) in VERDICTS
    site.check_finished()


@pytest.mark.slow
@pytest.mark.parametrize("kill", [kill_tree, kill_parent])
def test_a_run_killed_at_random_moments_is_resumed(disk: Path, kill: Callable[[subprocess.Popen[bytes]], None]) -> None:
    rng = random.Random(20261130)
    kills = runs = 0
    while kills < KILLS:
        runs += 1
        site = Site.prepare(disk / str(runs), rounds=2)
        while True:
            process = site.go_on()
            try:
                code = process.wait(rng.uniform(0.2, LONGEST_S) if kills < KILLS else PATIENCE_S)
            except subprocess.TimeoutExpired:
                kill(process)
                kills += 1
                continue
            assert code in VERDICTS, (site.root / "output.txt").read_text()
            break
        site.check_finished()
