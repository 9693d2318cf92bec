"""A soak under the cron of this machine, killed and revived; and one of thousands of slices. Minutes long."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from soaks import new_soak

from kvbench import clock, lasting, process
from kvbench.journal import RunFolder
from kvbench.soak import life
from kvbench.soak.status import Follower

pytestmark = pytest.mark.slow

USERS_LINES = b"# kept by hand, caf\xe9\n\n 5 4 * * 0\ttrue  # 100\\%\n"
NEXT_MINUTE_S = 130


def kvbench(*args: str) -> str:
    command = [sys.executable, "-m", "kvbench", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def read_crontab() -> bytes | None:
    done = subprocess.run(["crontab", "-l"], capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None


def write_crontab(content: bytes | None, where: Path) -> None:
    if content is None:
        subprocess.run(["crontab", "-r"], capture_output=True, check=False)
        return
    (where / "crontab").write_bytes(content)
    subprocess.run(["crontab", str(where / "crontab")], check=True)


def within(seconds: float, condition: object) -> bool:
    """Whether a condition comes true within so many seconds."""
    assert callable(condition)
    end_ns = clock.monotonic_ns() + round(seconds * 1e9)
    while not condition():
        if clock.monotonic_ns() > end_ns:
            return False
        clock.sleep_s(0.1)
    return True


@pytest.fixture
def cron(tmp_path: Path) -> Iterator[None]:
    """A cron that runs this user's crontab, which is given back as it was. A cron of our own is ended."""
    program = shutil.which("cron", path="/usr/sbin:/sbin:/usr/bin") or shutil.which("crond", path="/usr/sbin:/sbin")
    if program is None or shutil.which("crontab") is None:
        pytest.skip("no cron is installed here: apt-get install cron")
    before = read_crontab()
    ours = None if process.is_running(("cron", "crond")) else subprocess.Popen([program, "-f"])
    try:
        beat = tmp_path / "beat"
        write_crontab(b"* * * * * touch %s\n" % os.fsencode(beat), tmp_path)
        if not within(NEXT_MINUTE_S, beat.exists):
            pytest.skip("the cron here did not run an entry of this user within two minutes")
        write_crontab(USERS_LINES, tmp_path)
        yield
    finally:
        write_crontab(before, tmp_path)
        if ours:
            ours.terminate()
            ours.wait()


def kill(folder: RunFolder, after_slices: int) -> None:
    """Kill the run with -9 in the middle of a slice."""
    follower = Follower(folder)
    assert within(60, lambda: follower.status().slices_done >= after_slices)
    holder = folder.holder()
    assert holder is not None
    os.kill(holder.pid, signal.SIGKILL)
    assert within(10, lambda: not holder.is_alive())


def revived(folder: RunFolder, starts: int) -> bool:
    return within(NEXT_MINUTE_S, lambda: len(folder.starts()) == starts and folder.holder())


def test_killed_three_times_with_the_clock_set_back_once_every_slice_is_there_once(cron: None, tmp_path: Path) -> None:
    folder = new_soak(tmp_path, 60, 2)
    path = str(folder.path)
    kvbench("soak", "install", path)
    kvbench("soak", "start", path)
    assert "a second start changes nothing" in kvbench("soak", "start", path)
    kvbench("soak", "install", path)

    kill(folder, after_slices=4)
    assert revived(folder, 2)

    kill(folder, after_slices=9)
    crontab = read_crontab()
    assert crontab is not None
    write_crontab(b"KVBENCH_TEST_WALL_OFFSET_S=-60\n" + crontab, tmp_path)
    assert revived(folder, 3)

    kill(folder, after_slices=14)
    kvbench("soak", "remove", path)
    minute = clock.wall().replace(second=0, microsecond=0)
    assert within(70, lambda: (clock.wall() - minute).total_seconds() > 65)  # a minute has passed without us
    kvbench("soak", "install", path)
    assert revived(folder, 4)
    assert within(120, lambda: folder.ended() == "finished")
    assert not within(65, lambda: len(folder.starts()) > 4), "a finished run was revived"

    kvbench("soak", "remove", path)
    assert read_crontab() == b"KVBENCH_TEST_WALL_OFFSET_S=-60\n" + USERS_LINES
    verify(folder)


def verify(folder: RunFolder) -> None:
    """Every slice once, one gap above a minute, hours that add up, a clock that was set and nothing made of it."""
    events = [json.loads(line) for line in (folder.path / "journal.jsonl").read_bytes().splitlines()]
    count = {kind: Counter(e["step"] for e in events if e["event"] == kind) for kind in ("begin", "measured")}
    assert count["measured"] == Counter(step.id for step in folder.plan.steps)
    assert sum(begun > 1 for begun in count["begin"].values()) in (2, 3)  # a kill may fall between two steps
    assert len(folder.starts()) == 4

    measurements = folder.measurements()
    account = lasting.account(measurements, {step.id: step.kind for step in folder.plan.steps})
    assert account.covered_s + account.gaps_s == pytest.approx(account.span_s)
    (outage,) = account.outages
    assert 60 < outage.length_s < 190
    walls = [datetime.fromisoformat(e["measurement"]["start"]["wall"]) for e in events if e["event"] == "measured"]
    assert walls != sorted(walls)

    found = Follower(folder).status()
    assert found.unavailable_s == outage.length_s
    assert found.wall_clock_set_s == pytest.approx(-60, abs=2)
    assert (found.state, found.slices_done, found.revivals) == ("finished", 30, 3)
    assert (folder.path / "report.html").is_file()
    assert "kvbench_soak_slices_done" in (folder.path / life.PROM).read_text()


def test_memory_stays_flat_over_two_thousand_slices(tmp_path: Path) -> None:
    folder = new_soak(tmp_path, 20, 0.01)
    run = subprocess.Popen(
        [sys.executable, "-m", "kvbench", "soak", "revive", str(folder.path)], stdout=subprocess.DEVNULL
    )
    resident_bytes = {}
    try:
        for slices in (300, 1900):
            assert within(600, lambda until=slices: (folder.path / "raw" / f"churn-r{until:04}-dut").exists())
            pages = int(Path(f"/proc/{run.pid}/statm").read_text().split()[1])
            resident_bytes[slices] = pages * os.sysconf("SC_PAGESIZE")
    finally:
        run.kill()
        run.wait()
    assert resident_bytes[1900] - resident_bytes[300] < 10e6, resident_bytes
