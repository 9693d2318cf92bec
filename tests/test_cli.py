"""The command line as a user meets it: messages and exit codes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import command_line
import pytest
from typer.testing import CliRunner

from kvbench import content
from kvbench.cli.commands import COMMANDS, build
from kvbench.cli.main import app
from kvbench.report import pdf

GATE = str(Path(__file__).parent / "fixtures" / "gates" / "fake.yaml")
HEAVY = ("pandas", "matplotlib", "scipy", "pyarrow", "weasyprint")
WIDTH = 64  # of a line beside the longest name, at 80 columns


def kvbench(*args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kvbench", *args],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "100", **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from kvbench.cli.main import app\n"
        "for args in (['--help'], ['run', 'gate', '--help'], ['plan', '--help'], ['doctor', '--help']):\n"
        "    assert CliRunner().invoke(app, args).exit_code == 0\n"
        f"print([name for name in {HEAVY} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_help_of_the_whole_imports_no_command(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from kvbench.cli.main import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        "print(*sorted(name for name in sys.modules if name.startswith('kvbench.')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["kvbench.cli", "kvbench.cli.commands", "kvbench.cli.main", "kvbench.errors"]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_of_a_command_is_the_first_sentence_of_its_own_help(name: str) -> None:
    assert build(name).get_short_help_str(WIDTH) == COMMANDS[name][1]


def test_every_line_of_the_help_is_whole() -> None:
    assert all(len(line) <= WIDTH for _, line in COMMANDS.values())


def every_command(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """A command with its full name, or those of a group."""
    yield name, command
    for below, each in getattr(command, "commands", {}).items():
        yield from every_command(f"{name} {below}", each)


EVERY = dict(found for name in COMMANDS for found in every_command(name, build(name)))


@pytest.mark.parametrize("name", EVERY)
def test_every_help_has_an_example(name: str) -> None:
    result = CliRunner().invoke(app, [*name.split(), "--help"])
    assert result.exit_code == 0
    assert f"kvbench {name}" in result.output.split("Example:")[1]


def test_every_option_says_what_it_does_and_takes() -> None:
    for name, command in EVERY.items():
        for option in command.params:
            assert option.help, (name, option.name)


@pytest.mark.parametrize(
    ("words", "partial", "completed"),
    [("kvbench", "sc", "schema"), ("kvbench sim", "rep", "reproduce"), ("kvbench run gate", "--qui", "--quick")],
)
def test_names_and_options_are_completed(words: str, partial: str, completed: str) -> None:
    typed = {"COMP_WORDS": f"{words} {partial}", "COMP_CWORD": str(len(words.split()))}
    result = CliRunner().invoke(app, env={**typed, "_KVBENCH_COMPLETE": "complete_bash"})
    assert result.stdout.split() == [completed]


@pytest.mark.parametrize(
    ("args", "suggestion"), [(["camp"], "campaign"), (["soak", "stat"], "status"), (["run", "gat"], "gate")]
)
def test_a_mistyped_command_is_told_what_was_meant(args: list[str], suggestion: str) -> None:
    done = command_line.kvbench(*args)
    assert done.code == 2
    assert f"'{suggestion}'" in done.err.split("Did you mean")[1]


def test_a_run_from_plan_to_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    target = tmp_path / "target.yaml"
    target.write_text(
        f"version: 1\nname: t\narms:\n"
        f"  - {{name: dut, role: dut, storage: {{nodes: ['{tmp_path}/here']}}, engine: {{}}}}\n"
        f"  - {{name: base, role: baseline, kv: recompute, engine: {{}}}}\n"
    )
    done = kvbench("run", "gate", GATE, "--target", str(target), "--out", "run", "--json", "out.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "PASS (demonstration: simulated" in done.stdout
    result = json.loads((tmp_path / "out.json").read_text())
    assert result["verdict"]["outcome"] == "PASS"
    assert {"plan.json", "journal.jsonl", "verdict.json", "report.html", "report.pdf"} <= {
        p.name for p in (tmp_path / "run").iterdir()
    }
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pdf, "pdf", lambda html: b"")  # it takes seconds, and one is there
    assert command_line.kvbench("judge", "run").code == 0
    assert command_line.kvbench("report", "run", "--format", "md,csv,json").code == 0
    listed = command_line.kvbench("runs", "list", "--in", ".").out
    assert any(
        line.startswith("run ") and line.endswith(")") for line in listed.splitlines()[2:]
    )  # whole, by a path to copy
    stricter = tmp_path / "stricter.yaml"
    stricter.write_text(Path(GATE).read_text().replace("limit: 0.75", "limit: 0.5"))
    rejudged = command_line.kvbench("judge", "run", "--gate", str(stricter))
    assert rejudged.code == 1
    assert json.loads((tmp_path / "run" / "verdict.json").read_text())["outcome"] == "PASS"
    assert json.loads((tmp_path / "run" / "verdict-rejudged.json").read_text())["rejudged"] == str(stricter)
    assert command_line.kvbench("runs", "rm", "run", "--yes").code == 0
    assert not (tmp_path / "run").exists()


def test_what_is_for_machines_stands_alone_on_standard_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pdf, "pdf", lambda html: b"")
    planned = command_line.kvbench("plan", "gate", GATE, "--json", "-")
    assert json.loads(planned.out)["gate"]["id"] == "FAKE"
    assert planned.err
    assert command_line.kvbench("run", "gate", GATE, "--out", "run", "--json", "-").code == 0
    listed = command_line.kvbench("runs", "list", "--in", ".", "--json", "-")
    assert [row["run"] for row in json.loads(listed.out)] == [str(tmp_path / "run")]
    assert "target" in listed.err
    assert "target" in command_line.kvbench("runs", "list", "--in", ".").out


def test_an_internal_error_does_not_look_like_a_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "load_gate", lambda name: 1 / 0)
    monkeypatch.delenv("KVBENCH_DEBUG", raising=False)
    done = command_line.kvbench("plan", "gate", "G3")
    assert done.code == 70
    assert "internal error: ZeroDivisionError" in done.err
    assert "Traceback" not in done.err


def test_plan_touches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = command_line.kvbench("plan", "gate", "G3", "--quick")
    assert done.code == 0, done.err
    assert "destructive: nothing" in done.out
    assert list(tmp_path.iterdir()) == []


def test_init_writes_a_target_that_can_be_planned_and_never_overwrites_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command_line.kvbench("init", ".").code == 0
    done = command_line.kvbench("plan", "gate", "G3", "--target", "target.yaml")
    assert done.code == 0, done.err
    again = command_line.kvbench("init", ".")
    assert again.code == 2
    assert "target.yaml exists" in again.err


def test_no_colour_where_it_is_not_wanted(tmp_path: Path) -> None:
    done = kvbench("plan", "gate", "G3", cwd=tmp_path, NO_COLOR="1", FORCE_COLOR="")
    assert "\x1b[" not in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "gate", GATE),
        ("run", "gate", GATE, "--out", "run"),
        ("runs", "list"),
        ("sim", "run", "ring", "--workload", "retrieval", "--requests", "3"),
    ],
    ids=" ".join,
)
def test_json_to_standard_output_is_there_alone(arguments: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        result = CliRunner().invoke(app, [*arguments, "--json", "-"])
    json.loads(result.stdout)
    assert result.stderr.strip()


def test_after_json_what_is_said_goes_to_standard_output_again(tmp_path: Path) -> None:
    for arguments in (["--json", "-"], []):
        result = CliRunner().invoke(app, ["runs", "list", "--in", str(tmp_path), *arguments])
    assert result.stdout.startswith("no runs in")
