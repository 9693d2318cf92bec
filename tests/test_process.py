import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kvbench import process
from kvbench.errors import KvbenchError, StepError


def wait_gone(pid: int) -> bool:
    """Whether a process ends within a bounded number of looks at it."""
    for _ in range(500):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        subprocess.run(["sleep", "0.01"], check=True)
    return False


def test_output_and_exit_code_come_back_whatever_they_are() -> None:
    done = process.run([sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(32)"])
    assert (done.returncode, done.stdout, done.stderr) == (32, "out\n", "err\n")


def test_a_missing_program_is_a_step_error() -> None:
    with pytest.raises(StepError, match="cannot start nosuchprogram"):
        process.run(["nosuchprogram"])
    with pytest.raises(KvbenchError, match="nosuchprogram is not installed"):
        process.require_tool("nosuchprogram", "nosuch")


def test_a_program_that_cannot_be_executed_is_a_step_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF")
    program.chmod(0o755)
    monkeypatch.setattr(process, "find_tool", lambda name: None if name == "setpriv" else name)
    with pytest.raises(StepError, match=r"cannot start .*program: Exec format error"):
        process.run([str(program)])


def test_a_command_that_hangs_is_ended_with_what_it_started() -> None:
    with pytest.raises(StepError, match="did not end within"):
        process.run(["sh", "-c", "sleep 1000 & wait"], timeout_s=0.2)


def test_leaving_the_block_ends_the_whole_group(tmp_path: Path) -> None:
    script = f"sleep 1000 & echo $! > {tmp_path / 'pid'}.new; mv {tmp_path / 'pid'}.new {tmp_path / 'pid'}; wait"
    with process.start(["sh", "-c", script]):
        while not (tmp_path / "pid").exists():
            pass
    assert wait_gone(int((tmp_path / "pid").read_text()))


def test_a_process_lives_until_it_ends_not_until_it_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    look = process.stat_fields
    child = subprocess.Popen(["sleep", "1000"])
    known = process.ProcessId.of(child.pid)
    assert known.is_alive()
    child.kill()
    assert wait_gone(child.pid)
    ended = look(child.pid)
    assert not known.is_alive()
    child.wait()
    assert not known.is_alive()

    looks = iter([ended, []])  # waited for by somebody else, while we look
    monkeypatch.setattr(process, "stat_fields", lambda pid: next(looks))
    assert not known.is_alive()


def test_a_name_that_is_no_text_is_read_over() -> None:
    name = Path("/proc/self/comm")
    before = name.read_bytes()
    name.write_bytes("缓存".encode()[:5])  # as the kernel cuts a long one
    try:
        assert process.ProcessId.of(os.getpid()).is_alive()
        assert not process.is_running({"no such program"})
    finally:
        name.write_bytes(before)


def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    code = (
        "import sys; from kvbench import process\n"
        "with process.start(['sleep', '1000']) as child:\n"
        "    print(child.pid, flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        while (
            not Path(f"/proc/{child}/cmdline").read_bytes().endswith(b"sleep\x001000\x00")
            or b"setpriv" in Path(f"/proc/{child}/cmdline").read_bytes()
        ):
            pass  # between fork and setpriv's exec only the process list knows of it
        parent.send_signal(signal.SIGKILL)
    assert wait_gone(child)


def test_what_outlived_a_run_is_ended_with_what_it_started_and_nobody_else(tmp_path: Path) -> None:
    survivors, others = process.Survivors(tmp_path / "run-1"), process.Survivors(tmp_path / "run-11")
    with process.start(["sleep", "1000"], survivors=others) as theirs:
        ours = subprocess.Popen(["sh", "-c", "setsid sleep 1000 & wait"], env={**os.environ, **survivors.env})
        while len(survivors.alive()) < 2:
            pass
        grandchild = next(pid for pid in survivors.alive() if pid != ours.pid)
        assert survivors.end_all() == 2
        assert ours.wait(10) == -signal.SIGKILL
        assert wait_gone(grandchild)
        assert survivors.end_all() == 0
        assert theirs.poll() is None


def test_tools_are_found_where_cron_s_path_does_not_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert process.find_tool("sh") is not None
