"""The crontab entry of a soak: what cron runs, and that nothing else in the crontab changes."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from kvbench import process
from kvbench.errors import KvbenchError, UsageError
from kvbench.soak import crontab

FAKE = """#!/bin/sh
case "$1" in
-l) [ -f {file} ] || {{ echo "no crontab for tester" >&2; exit 1; }}; cat {file};;
-r) rm {file};;
*) cp "$1" {file};;
esac
"""
CRONTABS = {
    "none": None,
    "comments and spaces": b"# mine\n\n  \nMAILTO=me\n0 3 * * 0\t/usr/bin/backup  # weekly \n",
    "not UTF-8": b"# caf\xe9\n1 2 3 4 5 echo 100\\%\r\n",
    "a run whose name begins alike": b"* * * * * x # kvbench soak /runs/a-run-too\n",
    "a run whose name ends alike": b"* * * * * x # kvbench soak /other/runs/a run\n",
    "the entry, commented out": b"#* * * * * x # kvbench soak /runs/a run\n",
}


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that a crontab program of our own keeps; absent where the user has no crontab."""
    file, program = tmp_path / "crontab of tester", tmp_path / "bin" / "crontab"
    program.parent.mkdir()
    program.write_text(FAKE.format(file=shlex.quote(str(file))))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return file


@pytest.mark.parametrize("before", CRONTABS.values(), ids=CRONTABS)
def test_what_was_there_before_is_there_after(users: Path, before: bytes | None) -> None:
    run = Path("/runs/a run")
    if before is not None:
        users.write_bytes(before)
    crontab.install(run, run / "soak.log")
    crontab.install(run, run / "soak.log")
    lines = users.read_bytes().removeprefix(before or b"").splitlines()
    assert len(lines) == 1
    assert b"soak revive" in lines[0]
    assert crontab.remove(run)
    assert (users.read_bytes() if users.exists() else None) == before
    assert not crontab.remove(run)


def test_entries_of_two_runs_keep_out_of_each_other_s_way(users: Path) -> None:
    for run in ("/runs/one", "/runs/one%two"):
        crontab.install(Path(run), Path(run, "soak.log"))
    assert crontab.remove(Path("/runs/one"))
    (line,) = users.read_bytes().splitlines()
    assert line.endswith(rb"# kvbench soak /runs/one\%two")


@pytest.mark.parametrize("name", ["plain", "with space", "50%", "it's", "$HOME `id` #x", "日本"])
def test_cron_runs_exactly_this_whatever_the_folder_is_called(tmp_path: Path, name: str) -> None:
    run = tmp_path / name
    run.mkdir()
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$PATH"; for word; do echo "$word"; done\n')
    python.chmod(0o755)
    flock = process.require_tool("flock", "util-linux")
    line = crontab.entry(run, crontab.revive_argv(run, str(python), flock), run / "log")
    schedule, command = line[:10], line[10:].replace(rb"\%", b"%")  # as cron hands it to the shell
    assert schedule == b"* * * * * "
    assert b"%" not in line.replace(rb"\%", b"")
    subprocess.run([b"/bin/sh", b"-c", command], env={"PATH": "/usr/bin:/bin"}, cwd="/", check=True)
    path, *argv = (run / "log").read_text().splitlines()
    assert "/usr/sbin" in path.split(":")
    assert argv == ["-m", "kvbench", "soak", "revive", str(run)]


def test_while_one_lives_cron_starts_no_other(tmp_path: Path) -> None:
    argv = crontab.revive_argv(tmp_path, "true", process.require_tool("flock", "util-linux"))
    holding = ["flock", "-n", str(tmp_path / "revive.lock"), "sh", "-c", "echo; cat"]
    with subprocess.Popen(holding, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert subprocess.run(argv, check=False).returncode == crontab.HELD
    assert subprocess.run(argv, check=False).returncode == 0


@pytest.mark.parametrize("path", ["/runs/a\\b", "/runs/a\nb"])
def test_a_path_that_no_crontab_can_hold_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match="cron cannot be given a path"):
        crontab.entry(Path(path), ("flock",), Path("log"))


def test_a_machine_without_cron_is_told_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "find_tool", lambda name: None)
    with pytest.raises(KvbenchError, match="crontab is not installed") as refused:
        crontab.install(Path("/runs/x"), Path("/runs/x/soak.log"))
    assert "package cron" in refused.value.hint


def test_a_user_who_may_not_use_cron_is_told_so_and_loses_nothing(users: Path) -> None:
    program = users.parent / "bin" / "crontab"
    program.write_text("#!/bin/sh\necho 'You (tester) are not allowed to use this program (crontab)' >&2\nexit 1\n")
    with pytest.raises(KvbenchError, match="not allowed") as refused:
        crontab.remove(Path("/runs/x"))
    assert "cron.allow" in refused.value.hint
