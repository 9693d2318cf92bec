"""The saved rows have a version, and what is no such table is refused in a line."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvbench.errors import KvbenchError
from kvbench.load import rows


@pytest.mark.parametrize(
    ("version", "message"), [(b"4", "version 4; this kvbench reads version 3"), (None, "version 0")]
)
def test_rows_of_another_version_are_refused(tmp_path, version, message):
    metadata = {b"kvbench_rows_version": version} if version else None
    pq.write_table(pa.table({"a": [1]}).replace_schema_metadata(metadata), tmp_path / "rows.parquet")
    with pytest.raises(KvbenchError, match=message):
        rows.read(tmp_path / "rows.parquet")


def test_what_is_not_parquet_is_refused_by_name(tmp_path):
    path = tmp_path / "rows.parquet"
    path.write_text("request_id,due_ns\n")
    with pytest.raises(KvbenchError, match=r"rows\.parquet: not a Parquet file"):
        rows.read(path)


def test_an_empty_load_keeps_its_columns(tmp_path):
    rows.write([], tmp_path / "rows.parquet")
    table = pq.read_table(tmp_path / "rows.parquet")
    assert {"request_id", "due_ns", "sent_ns", "first_token_ns", "completion_tokens", "error_class"} <= set(
        table.column_names
    )
    assert rows.read(tmp_path / "rows.parquet") == []
