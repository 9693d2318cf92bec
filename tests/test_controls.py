"""Negative controls of G3: real runs of the emulated engine on a real disk that must not pass, beside one that may.

One run has three arms, whose nodes are limited to a rate: a fast one and two that are equally slow. Judged with the
fast arm under test it is the positive control; with one slow arm against the other it is A/A. Every other control takes
that run and measures a single wave of it again, with one thing wrong.
"""

from __future__ import annotations

import json
import socketserver
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from socket import SHUT_WR, create_connection, socket
from threading import Thread
from typing import Any

import pytest
from small_runs import execute, folder_on_disk, small_gate

from kvbench import content, plan
from kvbench.engine import lifecycle
from kvbench.host.activity import cold
from kvbench.host.machine.blockdev import Media, media_of
from kvbench.journal import RunFolder
from kvbench.judge.cells import BEYOND
from kvbench.judge.verdict import judge
from kvbench.load import cold_sessions
from kvbench.model import Arm, Engine, Finding, Outcome, Role, Storage, Target, Verdict

SESSIONS, ROUNDS = 4, 3
FAST, SLOW = 800_000_000, 150_000_000  # bytes/s of a node
Again = Callable[..., RunFolder]
NOISE = ("byte-ledger", "idle-before", "baseline-not-held-back", "client-error")  # what others on the machine break
REPEATS = 2  # of the waves that they have broken


@pytest.fixture(scope="module", autouse=True)
def short_waits() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cold, "QUIET_S", 0.05)
        yield


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with folder_on_disk(tmp_path_factory.getbasetemp()) as folder:
        yield folder


def arm(name: str, role: Role, rate: int, node: Path) -> Arm:
    node.mkdir()
    return Arm(name, role, Engine(), storage=Storage((str(node),), rate_limit_bytes_per_s=rate))


@pytest.fixture(scope="module")
def sound(disk: Path) -> RunFolder:
    """The run that nothing is wrong with: what others on this machine have disturbed is measured again."""
    arms = (
        arm("fast", "dut", FAST, disk / "fast"),
        arm("slow", "baseline", SLOW, disk / "slow"),
        arm("also-slow", "reference", SLOW, disk / "also-slow"),
    )
    loaded = content.load_gate(str(small_gate(disk / "small.yaml", SESSIONS, ROUNDS)))
    made = plan.make_plan(loaded, Target("rate-limited", arms), content.model_shapes(), plan.Options())
    folder = RunFolder.create(disk / "sound", made, loaded.files, loaded.source)
    execute(folder)
    for number in range(REPEATS):
        if waves := disturbed(folder):
            folder = measured_again(folder, waves, disk / f"sound-{number}")
    return folder


def disturbed(folder: RunFolder) -> set[str]:
    """The waves whose own figures say that somebody else was at the disk or the processors."""
    checks = [check for check in folder.plan.gate.checks if check.id in NOISE and not check.divide_by]
    figures = [(m.step_id, check, m.metrics.get(check.metric)) for m in folder.measurements() for check in checks]
    return {step for step, check, figure in figures if figure and BEYOND[check.op](figure.value, check.limit) > 0}


def measured_again(folder: RunFolder, steps: Collection[str], where: Path, target: Target | None = None) -> RunFolder:
    """A run that has taken over all of another one but these steps, and has measured them itself."""
    content_files = folder.path / "content"
    files = {str(f.relative_to(content_files)): f.read_bytes() for f in content_files.rglob("*.yaml")}
    made = replace(folder.plan, target=target or folder.plan.target)
    again = RunFolder.create(where, made, files, Path("small.yaml"))
    for measurement in folder.measurements():
        if measurement.step_id not in steps:
            again.finish(measurement)
    execute(again)
    return again


def judged(folder: RunFolder, **roles: Role) -> Verdict:
    """The verdict with these roles; the arm that has none is the reference."""
    target = folder.plan.target
    if roles:
        arms = tuple(replace(a, role=roles.get(a.name.replace("-", "_"), "reference")) for a in target.arms)
        target = replace(target, arms=arms)
    return judge(replace(folder.plan, target=target), folder.measurements())


def by_check(verdict: Verdict) -> dict[str, Finding]:
    """The worst finding of each check."""
    return {f.check: f for f in sorted(verdict.findings, key=lambda finding: finding.outcome.severity)}


# ---------------------------------------------------------------- the run as it is


def test_a_faster_arm_passes(sound: RunFolder) -> None:
    """With all of the gate where the machine is ours alone, and else with all that does not concern the others."""
    verdict = judged(sound)
    found = by_check(verdict)
    assert found["ttft-reduction"].observed < 0.75
    assert found["throughput-gain"].observed > 1.29
    foreign = {f.check for f in verdict.findings if f.check in NOISE and f.outcome is not Outcome.PASS}
    if "byte-ledger" in foreign:
        assert found["byte-ledger"].observed > 1.05  # others have read too; less would not be cold
    gate = replace(sound.plan.gate, checks=tuple(c for c in sound.plan.gate.checks if c.id not in foreign))
    verdict = judge(replace(sound.plan, gate=gate), sound.measurements())
    lacking = {f.kind for f in verdict.findings if f.outcome is not Outcome.PASS}
    assert lacking <= {"performance"} and verdict.outcome is not Outcome.FAIL, verdict.why
    if lacking:  # the rounds lie too far apart: so they do where the processors have many times their work
        pytest.skip(f"the machine was overloaded all the while: {verdict.why}")
    assert verdict.headline.startswith("PASS (demonstration: emulated engine")
    assert "rate-limited node" in verdict.basis


def test_an_arm_against_its_equal_does_not_pass(sound: RunFolder) -> None:
    verdict = judged(sound, slow="dut", also_slow="baseline")
    assert verdict.outcome is not Outcome.PASS
    for check, limit in (("ttft-reduction", 0.75), ("throughput-gain", 1.29)):
        finding = by_check(verdict)[check]
        assert finding.outcome is not Outcome.PASS
        assert abs(finding.observed - 1) < abs(limit - 1), finding.reason


def test_a_slower_arm_does_not_pass(sound: RunFolder) -> None:
    verdict = judged(sound, slow="dut", fast="baseline")
    assert verdict.outcome is not Outcome.PASS
    found = by_check(verdict)
    assert found["ttft-reduction"].interval[0] > 1, found["ttft-reduction"].reason
    assert found["throughput-gain"].interval[1] < 1, found["throughput-gain"].reason


# ---------------------------------------------------------------- one wave of it again, with one thing wrong

AGAIN = f"wave-r03-c{SESSIONS}-fast"
READ_ALL = """
import pathlib, sys
for file in pathlib.Path(sys.argv[1]).rglob("*.r0"):
    file.read_bytes()
"""
SPOIL_TWO = """
import pathlib, sys
first, *_, other, last = sorted(pathlib.Path(sys.argv[1]).rglob("*.r0"))
with first.open("r+b") as file:
    file.seek(5_000_000)
    (byte,) = file.read(1)
    file.seek(5_000_000)
    file.write(bytes([byte ^ 1]))
last.write_bytes(other.read_bytes())
"""
LOSE_THREE = """
import os, pathlib, sys
torn, short, gone, *_ = sorted(pathlib.Path(sys.argv[1]).rglob("*.r0"))
size = torn.stat().st_size
os.truncate(torn, 8192)
os.truncate(torn, size)
os.truncate(short, 8192)
gone.unlink()
"""


@pytest.fixture
def again(sound: RunFolder, tmp_path: Path) -> Again:
    """Takes the sound run, and measures one wave of its fast arm again: with another storage, or after a hook."""

    def measure(hook: str = "", **storage: Any) -> RunFolder:
        target = sound.plan.target
        fast = replace(target.arm("fast"), storage=replace(target.arm("fast").storage, **storage))
        (node,) = fast.storage.nodes
        hooks = {"before_wave": (sys.executable, "-c", hook, node)} if hook else {}
        target = replace(target, arms=(fast, *target.arms[1:]), hooks=hooks)
        return measured_again(sound, {AGAIN}, tmp_path / "again", target)

    return measure


def test_a_wave_through_the_page_cache_is_not_cold(again: Again) -> None:
    verdict = judged(again(direct=False))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert by_check(verdict)["residency-after"].outcome is Outcome.INCONCLUSIVE
    assert by_check(verdict)["residency-after"].observed > 0.9


def test_a_wave_out_of_the_page_cache_is_not_cold(again: Again) -> None:
    verdict = judged(again(hook=READ_ALL, direct=False))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    ledger = by_check(verdict)["byte-ledger"]
    assert ledger.outcome is Outcome.INCONCLUSIVE
    assert verdict.why.startswith("No performance figure counts at 4 sessions")
    assert "was not cold" in verdict.why


def test_a_dropped_request_fails(again: Again, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "running", over_a_wire_that_breaks_once(lifecycle.running))
    verdict = judged(again())
    failed = by_check(verdict)["failed-requests"]
    assert verdict.outcome is failed.outcome is Outcome.FAIL
    assert failed.observed == 1
    assert f"raw/{AGAIN}/requests.parquet" in failed.evidence


def test_bytes_that_no_device_counts_are_missing(again: Again, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_devices(folders: Iterable[Path]) -> Media:
        return Media(tuple(replace(medium, devices=()) for medium in media_of(folders).each))

    monkeypatch.setattr(cold_sessions, "media_of", without_devices)
    verdict = judged(again())
    ledger = by_check(verdict)["byte-ledger"]
    assert verdict.outcome is ledger.outcome is Outcome.INCONCLUSIVE
    assert "no block device with counters" in ledger.reason


def test_a_page_with_a_flipped_bit_and_one_that_is_another_session_s_fail(again: Again) -> None:
    folder = again(SPOIL_TWO)
    verdict = judged(folder)
    content_finding = by_check(verdict)["content"]
    assert verdict.outcome is content_finding.outcome is Outcome.FAIL
    assert content_finding.observed == 2
    log = folder.path / "raw" / AGAIN / "engine-faults.jsonl"
    assert str(log.relative_to(folder.path)) in content_finding.evidence
    faults = [json.loads(line) for line in log.read_text().splitlines()]
    assert len({fault["page"] for fault in faults}) == 2
    assert all(fault["path"].endswith(f"{AGAIN}-a1/{fault['page']}") for fault in faults)


def test_pages_that_are_lost_fail_too_and_are_no_hits(again: Again) -> None:
    folder = again(LOSE_THREE)
    found = by_check(judged(folder))
    assert found["content"].outcome is Outcome.FAIL
    assert found["content"].observed == 3
    assert found["cold-hits"].outcome is not Outcome.PASS
    faults = map(json.loads, (folder.path / "raw" / AGAIN / "engine-faults.jsonl").read_text().splitlines())
    named = sorted(
        (fault["kind"], fault["node"], fault["offset"], fault["path"].endswith(fault["page"])) for fault in faults
    )
    assert named == [("missing", 0, 0, True), ("short", 0, 8192, True), ("torn", 0, 8192, True)]


def over_a_wire_that_breaks_once(running: Any) -> Any:
    """`lifecycle.running`, its engine behind a wire that breaks one connection of the wave."""

    @contextmanager
    def running_over_wire(*args: Any) -> Iterator[_Wired]:
        with running(*args) as engine:
            wired = _Wired(engine)
            with wired.listening():
                yield wired

    return running_over_wire


class _Wired:
    """An engine whose only address is that of a wire to it."""

    def __init__(self, engine: Any) -> None:
        self._engine, self.connections = engine, count()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    @contextmanager
    def listening(self) -> Iterator[None]:
        wire = self

        class Connection(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                # the first of the restarted engine's connections warms it up, the others are the wave's
                if wire.epoch == 2 and next(wire.connections) == 1:
                    self.request.recv(1)  # the request has come, and gets no reply
                    return
                host, port = wire._engine.urls[0].removeprefix("http://").split(":")
                with create_connection((host, int(port))) as onward:
                    back = Thread(target=_copy, args=(onward, self.request))
                    back.start()
                    _copy(self.request, onward)
                    back.join()

        with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connection) as server:
            self.urls = (f"http://127.0.0.1:{server.server_address[1]}",)
            serving = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            serving.start()
            yield
            server.shutdown()
            serving.join()


def _copy(source: socket, sink: socket) -> None:
    while data := source.recv(65536):
        sink.sendall(data)
    sink.shutdown(SHUT_WR)
