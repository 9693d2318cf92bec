"""Read what stands beside the measurements in a run folder: per-request and device tables, and digests of all files.

What cannot be read becomes a sentence on page one; a report is never refused for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from kvbench.model import Measurement
from kvbench.report.document import Rows, Series

_RUN_FILES = ("plan.json", "journal.jsonl", "verdict.json")


def load(run_dir: Path, measurements: Sequence[Measurement]) -> Series:
    """The series of a run. Reads files only."""
    problems: list[str] = []
    tables = {
        name: {
            measured.step_id: rows
            for measured in measurements
            if name in measured.series and (rows := _table(run_dir, measured.series[name], problems)) is not None
        }
        for name in ("requests", "devices", "rounds", "moves")
    }
    named = {path for measured in measurements for path in (*measured.raw_files, *measured.series.values())}
    present = sorted(path for path in {*named, *_RUN_FILES} if (run_dir / path).is_file())
    digests = {path: _digest(run_dir / path) for path in present}
    return Series(**tables, digests=digests, problems=tuple(problems))


def _table(run_dir: Path, path: str, problems: list[str]) -> Rows | None:
    from pyarrow import ArrowException, parquet

    try:
        rows: Rows = parquet.ParquetFile(run_dir / path).read().to_pylist()
    except (OSError, ArrowException) as error:
        problems.append(f"{path} could not be read: {str(error).splitlines()[0]}")
        return None
    return rows


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
