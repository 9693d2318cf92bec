"""Evidence of the whole run, gathered from the steps' own files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kvbench.model import Measurement, Plan


def collect_requests(run_dir: Path, plan: Plan, measurements: Sequence[Measurement]) -> Path | None:
    """Write requests.parquet: every request of every wave, with its step, arm, cell and round before its own columns.

    None when no step has sent requests.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    steps = {step.id: step for step in plan.steps}
    tables = []
    for measurement in measurements:
        if path := measurement.series.get("requests"):
            table, step = pq.read_table(run_dir / path), steps[measurement.step_id]
            about = {"step": step.id, "arm": step.arm, "cell": step.cell, "round": step.round}
            names = [*about, *table.column_names]
            columns = [pa.array([value] * table.num_rows) for value in about.values()] + table.columns
            tables.append(pa.table(dict(zip(names, columns, strict=True))))
    if not tables:
        return None
    whole, partial = run_dir / "requests.parquet", run_dir / ".requests.parquet.new"
    pq.write_table(pa.concat_tables(tables), partial, compression="zstd")
    return partial.replace(whole)
