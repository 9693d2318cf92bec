"""What keeps a soak going and lets it end: start in the background, the records beside the run, the stop."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from kvbench import clock, process
from kvbench.errors import KvbenchError
from kvbench.journal import RunFolder, write_atomically
from kvbench.model import Measurement, Step
from kvbench.run import Observer
from kvbench.soak import crontab, textfile
from kvbench.soak.status import Follower

LOG = "soak.log"
PROM = "kvbench.prom"
_TEXTFILE_DIR = "textfile-dir"
_LOG_LIMIT_BYTES = 2**20
_LOG_KEPT_BYTES = 2**19
_POLL_S = 0.1
_LAST_LINES = 5


class Recording:
    """A run's observer that, after every step, also replaces the Prometheus file and keeps the log short."""

    def __init__(self, inner: Observer, folder: RunFolder) -> None:
        self.began, self.progress, self.note = inner.began, inner.progress, inner.note
        self._inner = inner
        self._follower = Follower(folder)

    def measured(self, step: Step, measurement: Measurement) -> None:
        self._inner.measured(step, measurement)
        export(self._follower)
        keep_short(self._follower.folder.path / LOG)


def export(follower: Follower) -> None:
    """Replace kvbench.prom in the run folder, and its copy where a collector looks for it."""
    folder, status = follower.folder.path, follower.status()
    files = [folder / PROM]
    if (folder / _TEXTFILE_DIR).is_file():
        files.append(Path((folder / _TEXTFILE_DIR).read_text().strip()) / f"kvbench-{folder.name}.prom")
    textfile.write(textfile.registry(folder.name, status, follower.latest), files)


def export_to(folder: RunFolder, directory: Path) -> None:
    """Have the Prometheus file copied into a collector's directory too, whoever revives the run."""
    if not directory.is_dir():
        raise KvbenchError(f"{directory} is not a directory", "give the one that node_exporter was started with")
    write_atomically(folder.path / _TEXTFILE_DIR, f"{directory.resolve()}\n".encode())


def keep_short(log: Path) -> None:
    """Cut the log's older half off when it has become long. In place: those that append to it go on at its new end."""
    if not log.is_file() or log.stat().st_size <= _LOG_LIMIT_BYTES:
        return
    with log.open("r+b") as file:
        file.seek(-_LOG_KEPT_BYTES, os.SEEK_END)
        file.readline()
        tail = file.read()
        file.seek(0)
        file.write(tail)
        file.truncate()


def start_detached(folder: RunFolder) -> str:
    """Start the run in the background, and wait until it is under way. Returns what has become of it, as a clause.

    Raises KvbenchError with the end of its log when it ends before.
    """
    log = folder.path / LOG
    argv = crontab.revive_argv(folder.path, sys.executable, process.require_tool("flock", "util-linux"))
    before = len(folder.starts())
    child = process.detach(argv, log)
    while child.poll() is None:
        holder = folder.holder()
        if holder is not None and len(folder.starts()) > before:
            return f"runs in the background as process {holder.pid}; its log: {log}"
        clock.sleep_s(_POLL_S)
    if child.returncode == crontab.HELD:
        return "is being started by another kvbench at this moment"
    if folder.ended():
        return f"is over already; its log: {log}"
    last = "\n".join(log.read_text(errors="replace").splitlines()[-_LAST_LINES:])
    raise KvbenchError(f"{folder.path} did not start (exit code {child.returncode}):\n{last}", f"see {log}")


def stop(folder: RunFolder, now: bool, waiting: Callable[[], None]) -> bool:
    """End the run after the step in flight, or at once, and wait for it. Returns whether anybody still ran it.

    The order is recorded before anybody is asked, so that a kill in between revives nothing.
    """
    folder.end("stopped")
    holder = folder.holder()
    if holder is None:
        return False
    if now:
        holder.terminate()
    waiting()
    while holder.is_alive():
        clock.sleep_s(_POLL_S)
    return True
