"""What keeps a soak going, ends it, and stands beside it."""

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import kvbench, write_no_pdf
from small_runs import Nobody, execute
from soaks import make_plan, new_soak

from kvbench import clock, content, run
from kvbench.errors import KvbenchError
from kvbench.journal import RunFolder
from kvbench.model import Measurement, Step
from kvbench.process import ProcessId
from kvbench.report import pdf
from kvbench.soak import life
from kvbench.soak.status import Follower


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Twenty slices that take no time."""
    return new_soak(tmp_path, 2e-5, 1e-6)


def test_a_run_that_is_stopped_ends_before_its_next_step_and_goes_on_when_reopened(folder: RunFolder) -> None:
    class Stopping(Nobody):
        def measured(self, step: Step, measurement: Measurement) -> None:
            if step.round == 5:
                folder.end("stopped")

    run.execute(folder, content.model_shapes(), Stopping())
    assert Follower(folder).status().slices_done == 5
    execute(folder)  # as cron would
    assert Follower(folder).status().slices_done == 5
    assert folder.reopen() == "stopped"
    execute(folder)
    assert Follower(folder).status().slices_done == 20
    assert len(folder.starts()) == 3


def test_who_runs_a_run_is_told_by_the_process_and_not_by_a_number(folder: RunFolder) -> None:
    assert folder.holder() is None
    with folder.locked():
        folder.started()
    holder = folder.holder()
    assert holder is not None
    assert holder == ProcessId.of(holder.pid)
    starts = folder.path / "starts.jsonl"
    start = json.loads(starts.read_text())
    for change in ({"started": start["started"] - 1}, {"boot_id": "another"}, {"pid": 2**22 + 1}):
        starts.write_text(json.dumps(start | change) + "\n")
        assert folder.holder() is None


def test_recording_writes_the_figures_of_every_step_for_prometheus(folder: RunFolder, tmp_path: Path) -> None:
    collector = tmp_path / "textfiles"
    collector.mkdir()
    life.export_to(folder, collector)
    run.execute(folder, content.model_shapes(), life.Recording(Nobody(), folder))
    own = (folder.path / "kvbench.prom").read_text()
    assert 'kvbench_soak_slices_done{run="run"} 20.0' in own
    assert (collector / "kvbench-run.prom").read_text() == own
    with pytest.raises(KvbenchError, match="is not a directory"):
        life.export_to(folder, tmp_path / "nowhere")


def test_a_long_log_keeps_its_end_in_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "soak.log"
    with log.open("ab") as appending:
        for number in range(200_000):
            appending.write(b"line %d\n" % number)
        appending.flush()
        life.keep_short(log)
        appending.write(b"the end\n")
    lines = log.read_text().splitlines()
    assert log.stat().st_size < 2**20
    assert lines[-1] == "the end"
    assert [int(line.split()[1]) for line in lines[:-1]] == list(range(200_001 - len(lines), 200_000))


# ---------------------------------------------------------------- from the command line


@pytest.fixture
def long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunFolder]:
    """A soak of nearly two minutes, of four slices a second; killed at the end where it still runs."""
    monkeypatch.setattr(pdf, "pdf", lambda html: b"")  # it takes seconds, and none of these looks at it
    write_no_pdf(monkeypatch)
    folder = new_soak(tmp_path, 110, 0.25)
    yield folder
    if holder := folder.holder():
        os.kill(holder.pid, signal.SIGKILL)


def await_slices(folder: RunFolder, slices: int) -> None:
    follower = Follower(folder)
    while follower.status().slices_done < slices:
        assert folder.holder(), (folder.path / life.LOG).read_text()
        clock.sleep_s(0.05)


def test_started_stopped_and_taken_up_again(long: RunFolder) -> None:
    path = str(long.path)
    started = kvbench("soak", "start", path)
    assert "runs in the background" in started.out, started.err
    first = long.holder()
    again = kvbench("soak", "start", path)
    assert (again.code, long.holder()) == (0, first)
    assert "a second start changes nothing" in again.out
    assert kvbench("soak", "mark", path, "path A pulled").code == 0
    await_slices(long, 1)
    assert "running, minute 1 of 2" in kvbench("soak", "status", path).out

    stopped = kvbench("soak", "stop", path)
    assert stopped.code == 0, stopped.err
    assert long.holder() is None
    verdict = json.loads((long.path / "verdict.json").read_text())
    assert verdict["outcome"] == "INCONCLUSIVE"
    assert verdict["why"].startswith("The run ended in minute 1 of 2: 1 min ")
    assert (long.path / "report.html").is_file()
    assert kvbench("soak", "revive", path).out == ""
    assert len(long.starts()) == 1

    assert "it goes on" in kvbench("soak", "start", path).out
    done = Follower(long).status().slices_done
    await_slices(long, done + 1)
    assert kvbench("soak", "stop", path, "--now").code == 0
    assert len(long.starts()) == 2
    json_status = kvbench("soak", "status", path, "--json", "-")
    assert json.loads(json_status.out)["state"] == "stopped"
    events = [json.loads(line) for line in (long.path / "journal.jsonl").read_bytes().splitlines()]
    assert set(Counter(e["step"] for e in events if e["event"] == "measured").values()) == {1}


def test_a_start_that_fails_says_why(tmp_path: Path) -> None:
    folder = new_soak(tmp_path, 120, 2)
    (tmp_path / "node").rmdir()
    failed = kvbench("soak", "start", str(folder.path))
    assert failed.code == 4
    assert "node is not a directory" in failed.err


def test_a_run_of_rounds_is_no_soak(tmp_path: Path) -> None:
    made = replace(make_plan(2, 1), slice_s=0.0)
    folder = RunFolder.create(tmp_path / "run", made, {"gates/fake.yaml": b""}, tmp_path / "gate.yaml")
    for word in ("start", "status", "stop", "install"):
        refused = kvbench("soak", word, str(folder.path))
        assert refused.code == 2
        assert "is a run of gate FAKE, which does not last" in refused.err
