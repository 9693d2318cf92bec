"""The only place that starts a subprocess.

Every child leads a process group of its own and dies with us: through setpriv the kernel kills it when its parent
dies, and what slips through is found by its environment (`Survivors`) when the run is resumed.
No shell, ever.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from kvbench import clock
from kvbench.errors import KvbenchError, StepError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

# cron's PATH lacks the sbin folders, where smartctl and nvme live.
_EXTRA_PATH = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin")
_GRACE_S = 5.0


def find_tool(name: str) -> str | None:
    """Absolute path of a program, looked up in PATH and then in the folders that cron's PATH lacks."""
    path = os.pathsep.join([os.environ.get("PATH", ""), *_EXTRA_PATH])
    return shutil.which(name, path=path)


@dataclass(frozen=True, slots=True)
class Completed:
    """A finished command: its exit code (negative: killed by that signal) and what it printed."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str


def run(argv: Sequence[str], timeout_s: float = 30.0, env: Mapping[str, str] | None = None) -> Completed:
    """Run a short command to its end. Any exit code is returned, since tools use it in ways of their own.

    Raises StepError when the program is missing or does not end within `timeout_s`.
    """
    with start(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as child:
        try:
            out, err = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise StepError(f"{argv[0]} did not end within {timeout_s:g} s") from None
    text = (out or b"").decode(errors="replace"), (err or b"").decode(errors="replace")
    return Completed(tuple(argv), child.returncode, *text)


@contextmanager
def start(
    argv: Sequence[str],
    *,
    stdout: int | IO[Any] = subprocess.DEVNULL,
    stderr: int | IO[Any] = subprocess.DEVNULL,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    survivors: Survivors | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a child for as long as the `with` block lasts; on leaving, its whole group is ended.

    `env` is added to ours; with `survivors`, the child is marked as one of a run. Raises StepError when the program is
    missing or cannot be executed.
    """
    program = find_tool(argv[0])
    if program is None:
        raise StepError(f"cannot start {argv[0]}: no such program", "kvbench doctor lists what is missing")
    dies_with_us = [setpriv, "--pdeathsig", "KILL", "--"] if (setpriv := find_tool("setpriv")) else []
    try:
        child = subprocess.Popen(
            [*dies_with_us, program, *argv[1:]],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env={**os.environ, **(env or {}), **(survivors.env if survivors else {})},
            process_group=0,
        )
    except OSError as error:
        raise StepError(f"cannot start {argv[0]}: {error.strerror}") from None
    try:
        yield child
    finally:
        end_group(child)


def detach(argv: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a program that goes on when we and our terminal are gone, in a session of its own; it writes to `log`.

    Raises StepError when the program is missing.
    """
    program = find_tool(argv[0])
    if program is None:
        raise StepError(f"cannot start {argv[0]}: no such program", "kvbench doctor lists what is missing")
    with log.open("ab") as output:
        return subprocess.Popen(
            [program, *argv[1:]],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


@contextmanager
def in_parallel(
    function: Callable[..., None], arguments: Sequence[tuple[Any, ...]]
) -> Iterator[list[Connection[Any, Any]]]:
    """Call `function(pipe, *arguments)` in a Python process of its own for each tuple; gives our ends of the pipes.

    Ctrl-C reaches us alone; on leaving, those that still run are ended. A pipe ends with its process.
    """
    import multiprocessing

    context = multiprocessing.get_context("spawn")  # nothing of ours is in its memory, and no thread is lost
    children, pipes = [], []
    try:
        for some in arguments:
            ours, theirs = context.Pipe()
            children.append(context.Process(target=_call, args=(function, theirs, some), daemon=True))
            children[-1].start()
            theirs.close()
            pipes.append(ours)
        yield pipes
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.join()


def _call(function: Callable[..., None], pipe: Any, arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    function(pipe, *arguments)


def end_group(child: subprocess.Popen[bytes], grace_s: float = _GRACE_S) -> int:
    """Terminate the child's process group, wait, then kill what is left. Returns the child's exit code."""
    if child.poll() is None:
        _signal_group(child.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            child.wait(grace_s)
    _signal_group(child.pid, signal.SIGKILL)
    return child.wait()


def mapped_files(pgid: int) -> set[Path]:
    """The files that the live members of a group that we lead have mapped into their memory."""
    mapped = set()
    for pid in _group_members(pgid):
        with suppress(OSError):  # it has ended meanwhile
            lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
            mapped |= {Path(line.split(maxsplit=5)[5]) for line in lines if line.count(" /") == 1}
    return mapped


def _signal_group(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # gone, or its id belongs to somebody else by now
        os.killpg(pid, number)


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process that no later one can be mistaken for: its number, when it began (clock ticks since boot), the boot."""

    pid: int
    started: int
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        fields = stat_fields(pid)
        return cls(pid, int(fields[19]) if fields else 0, clock.boot_id())

    def is_alive(self) -> bool:
        """Whether it still runs. Told by one look: between two, a process that has ended can be gone."""
        fields = stat_fields(self.pid)
        return fields[:1] not in ([], ["Z"]) and self == ProcessId(self.pid, int(fields[19]), clock.boot_id())

    def terminate(self) -> None:
        """Ask it to end; nothing happens when it is gone."""
        if self.is_alive():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)


def is_running(names: Container[str]) -> bool:
    """Whether a process of one of these names runs on this machine."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and (entry / "comm").read_text(errors="replace").strip() in names:
                return True
    return False


class Survivors:
    """What a run has started, wherever it is: every child carries the run in its environment, and so does what it
    starts in turn. A resumed run ends what outlived the one before it."""

    _NAME = "KVBENCH_CHILD_OF"

    def __init__(self, run: Path) -> None:
        self.env = {self._NAME: str(run)}
        self._mark = f"{self._NAME}={run}".encode()

    def alive(self) -> list[int]:
        """The processes of the run that live now."""
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and self._marks(entry)]

    def end_all(self) -> int:
        """Kill them all; returns how many there were."""
        pids = self.alive()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)

    def _marks(self, entry: Path) -> bool:
        try:
            return self._mark in (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended meanwhile, or belongs to somebody else
            return False


def stat_fields(pid: int) -> list[str]:
    """What /proc/PID/stat says behind the name, from the state on; empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _group_members(pgid: int) -> Iterator[int]:
    """Live members of a process group."""
    for entry in Path("/proc").iterdir():
        fields = stat_fields(int(entry.name)) if entry.name.isdigit() else []
        if fields and int(fields[2]) == pgid and fields[0] != "Z":
            yield int(entry.name)


def require_tool(name: str, package: str) -> str:
    """Absolute path of a program that is needed. Raises KvbenchError that names the package."""
    found = find_tool(name)
    if found is None:
        raise KvbenchError(
            f"{name} is not installed", f"install the package {package} (Debian, Ubuntu: apt-get install {package})"
        )
    return found
