"""The crontab entry that revives a dead run every minute: its text, and how it gets in and out of the user's crontab.

The entry is one line, tagged at its end by a comment that names the run. All other lines are bytes that we do not read:
they stay as they are, in whatever encoding.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kvbench import process
from kvbench.errors import KvbenchError, UsageError

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # cron's own lacks the sbin folders
_DAEMONS = ("cron", "crond")
HELD = 75  # flock's exit code when its file is held: EX_TEMPFAIL of sysexits.h
_NO_CRONTAB = b"no crontab for"


# ---------------------------------------------------------------- the text, pure


def revive_argv(run: Path, python: str, flock: str) -> tuple[str, ...]:
    """What keeps a run going, from cron or detached: at most one at a time, whoever starts it.

    flock holds its file for as long as kvbench lives, so that cron's next attempts end before they start a Python.
    """
    return (flock, "-n", "-E", str(HELD), str(run / "revive.lock"), python, "-m", "kvbench", "soak", "revive", str(run))


def entry(run: Path, argv: Sequence[str], log: Path) -> bytes:
    """The crontab line, without its end. Raises UsageError for a path that no crontab can hold.

    In a crontab an unescaped % begins the command's input, and some crons eat backslashes.
    """
    if any(mark in str(run) for mark in "\n\\"):
        raise UsageError(f"{run}: cron cannot be given a path with a backslash or a line break", "rename the folder")
    command = f"PATH={_PATH} {shlex.join(argv)} >>{shlex.quote(str(log))} 2>&1"
    return os.fsencode(f"* * * * * {command}{_tag(run)}".replace("%", r"\%"))


def _tag(run: Path) -> str:
    return f" # kvbench soak {run}"


def without_entry(crontab: bytes, run: Path) -> bytes:
    """The crontab without the run's entry; every other line byte for byte. A commented-out entry is somebody's note."""
    tag = os.fsencode(_tag(run).replace("%", r"\%")) + b"\n"
    lines = crontab.splitlines(keepends=True)
    return b"".join(line for line in lines if line.startswith(b"#") or not line.endswith(tag))


def with_entry(crontab: bytes, run: Path, line: bytes) -> bytes:
    """The crontab with this one entry for the run, at the end."""
    rest = without_entry(crontab, run)
    return rest + (b"" if not rest or rest.endswith(b"\n") else b"\n") + line + b"\n"


# ---------------------------------------------------------------- the user's crontab


def install(run: Path, log: Path) -> bool:
    """Put the run's entry into the user's crontab, in place of one that it has; returns whether a cron runs here."""
    program = process.require_tool("crontab", "cron")
    argv = revive_argv(run, sys.executable, process.require_tool("flock", "util-linux"))
    before = _read(program)
    _write(program, before, with_entry(before, run, entry(run, argv, log)))
    return process.is_running(_DAEMONS)


def remove(run: Path) -> bool:
    """Take exactly the run's entry out of the user's crontab; returns whether there was one."""
    program = process.require_tool("crontab", "cron")
    before = _read(program)
    after = without_entry(before, run)
    _write(program, before, after)
    return after != before


def _read(program: str) -> bytes:
    """The user's crontab; b"" where there is none."""
    code, out, err = _call([program, "-l"])
    if code and _NO_CRONTAB not in err:
        raise _failed(err)
    return b"" if code else out


def _write(program: str, before: bytes, after: bytes) -> None:
    if after == before:
        return
    with tempfile.NamedTemporaryFile(prefix="kvbench-crontab-") as file:
        file.write(after)
        file.flush()
        code, _, err = _call([program, file.name] if after else [program, "-r"])
    if code:
        raise _failed(err)


def _call(argv: Sequence[str]) -> tuple[int, bytes, bytes]:
    with process.start(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={"LC_ALL": "C"}) as child:
        out, err = child.communicate()
    return child.returncode, out, err


def _failed(stderr: bytes) -> KvbenchError:
    said = stderr.decode(errors="replace").strip().splitlines()
    return KvbenchError(
        f"crontab: {said[-1] if said else 'failed without a word'}",
        "see /etc/cron.allow and /etc/cron.deny; or revive the run by other means: kvbench soak revive RUN",
    )
