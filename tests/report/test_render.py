"""Files in the run folder, and what happens when one of them cannot be made."""

from __future__ import annotations

import builtins
import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvbench.errors import KvbenchError, UsageError
from kvbench.report import forms, markdown, pdf
from kvbench.report.load import load
from kvbench.report.render import render
from kvbench.report.view import build_view

Make = Callable[..., Any]


def without_pango(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing weasyprint fails as it does on a machine without Pango."""
    real_import = builtins.__import__

    def import_(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "weasyprint":
            raise OSError("cannot load library 'libpango-1.0-0'")
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", import_)


def test_every_format_is_written_into_the_run_folder(tmp_path: Path, synthetic: Make, write_series: Any) -> None:
    try:
        import weasyprint  # noqa: F401
    except OSError:
        pytest.skip(f"weasyprint's libraries are missing ({pdf.LIBRARIES})")
    run = synthetic(rounds=1)
    write_series(tmp_path, run)
    done = render(tmp_path, run.plan, run.measurements, run.verdict)
    assert done.messages == ()
    assert {name: path.name for name, path in done.files.items()} == {
        name: f"report.{name}" for name in ("html", "pdf", "md", "json", "csv")
    }
    assert done.files["pdf"].read_bytes().startswith(b"%PDF-")
    assert "series not available" not in done.files["html"].read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"raw", *(path.name for path in done.files.values())}


def test_without_pango_the_page_is_written_and_the_message_names_the_packages(
    tmp_path: Path, synthetic: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = synthetic(rounds=1).without_series()
    without_pango(monkeypatch)
    done = render(tmp_path, run.plan, run.measurements, run.verdict, ["pdf"])
    assert [path.name for path in done.files.values()] == ["report.html"]
    assert "libpango-1.0-0 libpangoft2-1.0-0" in done.messages[0]


def test_chinese_text_without_a_font_for_it_is_a_warning_that_names_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pdf, "has_cjk_font", lambda: False)
    assert "fonts-noto-cjk" in pdf.font_warning("<p>智算中心</p>")
    assert pdf.font_warning("<p>Rechenzentrum – ≤ 0.75 µs</p>") == ""


def test_an_unknown_format_is_a_usage_error_that_lists_the_formats(tmp_path: Path, synthetic: Make) -> None:
    run = synthetic(rounds=1)
    with pytest.raises(UsageError, match="no report format 'docx'") as raised:
        render(tmp_path, run.plan, run.measurements, run.verdict, ["docx"])
    assert "html,pdf,md,json,csv" in raised.value.hint


def test_a_folder_that_cannot_be_written_is_one_clear_sentence(tmp_path: Path, synthetic: Make) -> None:
    run = synthetic(rounds=1)
    with pytest.raises(KvbenchError, match=r"report\.csv cannot be written: No such file or directory"):
        render(tmp_path / "gone", run.plan, run.measurements, run.verdict, ["csv"])


def test_series_that_cannot_be_read_are_named_and_the_others_loaded(
    tmp_path: Path, synthetic: Make, write_series: Any
) -> None:
    run = synthetic(rounds=1)
    write_series(tmp_path, run)
    (tmp_path / "raw/wave-c8-r1-dut/requests.parquet").write_bytes(b"torn")
    (tmp_path / "raw/wave-c8-r1-dut/devices.parquet").unlink()
    loaded = load(tmp_path, run.measurements)
    assert [problem.split(" could")[0] for problem in loaded.problems] == [
        "raw/wave-c8-r1-dut/requests.parquet",
        "raw/wave-c8-r1-dut/devices.parquet",
    ]
    assert set(loaded.requests) == {"wave-c8-r1-recompute", "wave-c16-r1-dut", "wave-c16-r1-recompute"}
    assert loaded.requests["wave-c16-r1-dut"] == run.series.requests["wave-c16-r1-dut"]
    assert len(loaded.digests["raw/wave-c8-r1-dut/requests.parquet"]) == 64


def test_csv_has_a_row_for_every_step_and_metric_and_an_empty_field_for_what_is_absent(synthetic: Make) -> None:
    run = synthetic(rounds=1)
    rows = list(csv.DictReader(io.StringIO(forms.csv_text(run.plan, run.measurements))))
    assert len(rows) == sum(len(measured.metrics) for measured in run.measurements)
    by_metric = {(row["step"], row["metric"]): row for row in rows}
    ledger = by_metric["wave-c8-r1-dut", "ledger_ratio"]
    assert [ledger[name] for name in ("arm", "cell", "round", "value", "unit", "n", "source")] == [
        "dut", "c8", "1", "1.004", "ratio", "1", "raw/wave-c8-r1-dut/devices.parquet",
    ]  # fmt: skip
    absent = by_metric["wave-c8-r1-dut", "external_hit_ratio"]
    assert (absent["value"], absent["note"]) == ("", "the engine exports no such counter")


def test_json_holds_verdict_and_figures_and_null_for_a_step_not_run(synthetic: Make) -> None:
    run = synthetic(rounds=1)
    document = json.loads(forms.json_text(run.plan, run.measurements[:-1], run.verdict))
    assert document["headline"] == "PASS (demonstration: emulated engine, recompute baseline)"
    assert document["verdict"]["findings"][2]["limit"] == 0
    assert document["steps"][2]["measurement"]["metrics"]["ledger_ratio"]["value"] == 1.004
    assert document["steps"][-1]["measurement"] is None


def test_markdown_tells_page_one_and_the_tables(synthetic: Make) -> None:
    text = markdown.page(build_view(*synthetic(rounds=1).view_arguments()))
    assert text.startswith("# G3 Primary gate: PASS (demonstration: emulated engine, recompute baseline)\n")
    assert "**DEMONSTRATION: emulated engine, recompute baseline. Not an acceptance result.**" in text
    assert "| ttft-reduction | c8 | 0.601 × recompute |" in text
    assert "| 1 | dut | 2.16 GB (n = 1) | 2.15 GB (n = 8) | 1.004 (n = 1) |" in text


def test_markdown_cells_survive_pipes_and_line_ends(synthetic: Make) -> None:
    run = synthetic(rounds=1)
    run = replace(run, verdict=replace(run.verdict, warnings=("a|b\nc",)))
    assert r"- a\|b<br>c" in markdown.page(build_view(*run.view_arguments()))
