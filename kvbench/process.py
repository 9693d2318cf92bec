"""The only place that starts a subprocess.

Every child leads a process group of its own and dies with us: through setpriv the kernel kills it when its parent
dies, and what it started in turn is found through the run's process list (`Survivors`) when the run is resumed.
No shell, ever.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from kvbench import clock
from kvbench.errors import KvbenchError, StepError

# cron's PATH lacks the sbin folders, where smartctl and nvme live (docs/decisions/tool-lookup.md).
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

    `env` is added to ours. Raises StepError when the program is missing or cannot be executed.
    """
    program = find_tool(argv[0])
    if program is None:
        raise StepError(f"cannot start {argv[0]}: no such program", "kvbench doctor lists what is missing")
    dies_with_us = [setpriv, "--pdeathsig", "KILL", "--"] if (setpriv := find_tool("setpriv")) else []
    child = subprocess.Popen(
        [*dies_with_us, program, *argv[1:]],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        cwd=cwd,
        env={**os.environ, **env} if env else None,
        process_group=0,
    )
    try:
        if survivors is not None:
            survivors.add(child.pid)
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
    for pid in _group_members(pgid, 0):
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
        return cls(pid, _start_ticks(pid), clock.boot_id())

    def is_alive(self) -> bool:
        return self == self.of(self.pid) and _stat_fields(self.pid)[:1] != ["Z"]

    def terminate(self) -> None:
        """Ask it to end; nothing happens when it is gone."""
        if self.is_alive():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)


def is_running(names: Container[str]) -> bool:
    """Whether a process of one of these names runs on this machine."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and (entry / "comm").read_text().strip() in names:
                return True
    return False


class Survivors:
    """The list, on disk, of process groups that a run has started, so that a resumed run can end what outlived it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, pid: int) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps({"pid": pid, "started": _start_ticks(pid), "boot_id": clock.boot_id()}) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def end_all(self) -> int:
        """Kill every group on the list that is still the one we started; returns how many were."""
        if not self.path.exists():
            return 0
        ended = 0
        for line in self.path.read_text().splitlines():
            try:
                entry = json.loads(line)
                pid, started, boot_id = int(entry["pid"]), entry["started"], entry["boot_id"]
            except (ValueError, KeyError, TypeError):
                continue  # a torn last line: its process died with us through the kernel
            if boot_id == clock.boot_id() and any(_group_members(pid, started)):
                _signal_group(pid, signal.SIGKILL)
                ended += 1
        self.path.unlink()
        return ended


def _stat_fields(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _start_ticks(pid: int) -> int:
    """When a process began, in clock ticks since boot; 0 when it is gone."""
    fields = _stat_fields(pid)
    return int(fields[19]) if len(fields) > 19 else 0


def _group_members(pgid: int, started: int) -> Iterator[int]:
    """Live members of a group, provided that it is the one that began at `started`.

    A group's id stays taken while it has a member, so members that began no earlier are ours.
    """
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        fields = _stat_fields(int(entry.name))
        if len(fields) > 19 and int(fields[2]) == pgid and int(fields[19]) >= started and fields[0] != "Z":
            yield int(entry.name)


def require_tool(name: str, package: str) -> str:
    """Absolute path of a program that is needed. Raises KvbenchError that names the package."""
    found = find_tool(name)
    if found is None:
        raise KvbenchError(
            f"{name} is not installed", f"install the package {package} (Debian, Ubuntu: apt-get install {package})"
        )
    return found
