"""The per-request table of a load, as Parquet: the raw evidence behind every latency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from kvbench.errors import KvbenchError
from kvbench.load.result import RequestRow

VERSION = 3  # of the columns; a reader refuses what is newer. 2: output_head; 3: retry_after
_VERSION_KEY = b"kvbench_rows_version"
_TYPES = {"str": "string", "int": "int64", "int | None": "int64", "bool": "bool"}


def write(rows: Sequence[RequestRow], path: Path) -> None:
    """Write one row a request, whole or not at all."""
    import pyarrow.parquet as pq

    table = _table(rows)
    partial = path.with_name(path.name + ".partial")
    pq.write_table(table, partial, compression="zstd")
    partial.replace(path)


def read(path: Path) -> list[RequestRow]:
    """Read what `write` wrote. Raises KvbenchError for a file that is not such a table, or a newer one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise KvbenchError(f"{path}: not a Parquet file: {error}") from error
    version = int((table.schema.metadata or {}).get(_VERSION_KEY, b"0"))
    if not 0 < version <= VERSION:
        raise KvbenchError(f"{path}: request rows of version {version}; this kvbench reads version {VERSION}")
    return [RequestRow(**row) for row in table.to_pylist()]


def _table(rows: Sequence[RequestRow]) -> Any:
    import pyarrow as pa

    columns = [pa.field(field.name, pa.type_for_alias(_TYPES[str(field.type)])) for field in fields(RequestRow)]
    schema = pa.schema(columns, metadata={_VERSION_KEY: str(VERSION).encode()})
    return pa.Table.from_pylist([asdict(row) for row in rows], schema=schema)
