"""Results of other people's fio, as JSON and as a table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvbench.cli.main import app
from kvbench.errors import UsageError
from kvbench.fio.importer import import_files

FIXTURES = Path(__file__).parents[1] / "fixtures" / "fio"
TWO_JOBS = FIXTURES / "F31-bins-of-two-jobs.json"
NOT_FIO = FIXTURES / "other-json.json"


def test_an_entry_holds_jobs_and_the_total_of_each_direction() -> None:
    (entry,) = import_files([TWO_JOBS])
    assert (entry["file"], entry["ok"], entry["reason"], entry["version"]) == (str(TWO_JOBS), True, "", "fio-3.33")
    assert [(job["name"], job["direction"], job["bytes"]) for job in entry["jobs"]] == [
        ("a", "read", 1048576),
        ("b", "read", 1048576),
    ]
    total = entry["total"]["read"]
    assert (total["jobs"], total["bytes"], total["window"]) == (2, 2097152, "longest runtime")
    assert (total["bandwidth_bytes_per_s"], total["iops"]) == (2097152.0, 400.0)
    assert (total["latency_ns"], total["latency_kind"], total["latency_n"]) == ({"50": 900, "99": 900}, "clat", 400)


def test_a_file_that_is_no_result_of_fio_has_its_reason() -> None:
    (entry,) = import_files([NOT_FIO])
    assert (entry["ok"], entry["reason"], entry["jobs"]) == (False, "it holds no JSON result of fio", [])


@pytest.mark.parametrize(("name", "message"), [("none.json", "no such file"), (".", "cannot be read: Is a directory")])
def test_a_file_that_cannot_be_read_is_a_usage_error(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        import_files([tmp_path / name])


@pytest.mark.parametrize(("files", "code"), [([TWO_JOBS], 0), ([TWO_JOBS, NOT_FIO], 3)])
def test_the_exit_code_tells_whether_every_file_was_sound(files: list[Path], code: int) -> None:
    result = CliRunner().invoke(app, ["fio", "import", *map(str, files), "--json"])
    assert result.exit_code == code
    assert json.loads(result.stdout) == import_files(files)


def test_the_table_shows_totals_and_the_reason() -> None:
    lines = CliRunner().invoke(app, ["fio", "import", str(TWO_JOBS), str(NOT_FIO)]).stdout.splitlines()
    assert f"{NOT_FIO}: unknown version, it holds no JSON result of fio" in lines
    assert lines[-1] == "  try: give what fio printed or wrote with --output-format=json"
    (headings,) = (line for line in lines if line.startswith("job"))
    assert headings.split()[-5:] == ["clat", "p50", "clat", "p99", "n"]  # which latency fio's p50 is of
    (total,) = (line for line in lines if line.strip().startswith("all 2"))
    assert " ".join(total.split()) == "all 2 read 2.10 MB 1 s 2.10 MB/s 400 900 ns 900 ns 400"


def test_help_has_an_example() -> None:
    assert "Example:  kvbench fio import" in CliRunner().invoke(app, ["fio", "import", "--help"]).stdout
