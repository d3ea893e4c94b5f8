"""Writes the output of a bulk job: .parquet, .npy or .jsonl.

Takes result tables one after the other, writes one file without holding more than a table in memory. The same
rows give the same bytes, however they were cut into tables. Does not know where the results come from.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lazuli_client.embeddings import Embeddings
from lazuli_client.errors import FileError
from lazuli_client.source import JSON_FIELD

RESULT_COLUMNS = ("embedding", "token_count", "truncated")
_ROW_GROUP_ROWS = 8192
# Arrow cannot hold a lone surrogate; such a string stays as its JSON text.
_SURROGATE = re.compile("[\ud800-\udfff]")


def check_kind(path: Path) -> str:
    """The suffix of an output path.

    Raises:
        FileError: If it is none that can be written.
    """
    kind = path.suffix.lower()
    if kind not in _WRITERS:
        raise FileError(f"{path}: cannot write {kind or 'a file without a suffix'}; .parquet, .npy or .jsonl is needed")
    return kind


def to_table(batch: pa.RecordBatch, result: Embeddings, *, with_input: bool) -> pa.Table:
    """Results as a table: the input's columns if wanted, `embedding`, `token_count`, `truncated`."""
    width = result.embeddings.shape[1]
    flat = pa.array(np.ascontiguousarray(result.embeddings).reshape(-1))
    results = [
        pa.FixedSizeListArray.from_arrays(flat, width),
        pa.array(result.token_counts, pa.int32()),
        pa.array(result.truncated, pa.bool_()),
    ]
    inputs = list(zip(batch.schema, batch.columns, strict=True)) if with_input else []
    fields = [field for field, _ in inputs]
    fields += [pa.field(name, column.type) for name, column in zip(RESULT_COLUMNS, results, strict=True)]
    return pa.Table.from_arrays([column for _, column in inputs] + results, schema=pa.schema(fields))


def vectors(column: pa.ChunkedArray | pa.Array) -> NDArray[Any]:
    """A column of fixed-size lists as [N, D], of the dtype that it holds."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if len(column) == 0:
        return np.zeros((0, 0), np.float32)
    values: NDArray[Any] = column.flatten().to_numpy(zero_copy_only=False)
    return values.reshape(len(column), -1)


def write(path: Path, kind: str, tables: Iterable[pa.Table], num_rows: int) -> None:
    """Write all tables as one file.

    Args:
        path: The file to write, replaced if it exists.
        kind: `.parquet`, `.npy` or `.jsonl`.
        tables: Tables of one schema, at least one.
        num_rows: Their rows together.
    """
    _WRITERS[kind](path, _regroup(tables), num_rows)


def _regroup(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of equal length, so that row groups do not show where a job was interrupted."""
    waiting: pa.Table | None = None
    for table in tables:
        waiting = table if waiting is None else pa.concat_tables([waiting, table])
        while waiting.num_rows >= _ROW_GROUP_ROWS:
            yield waiting.slice(0, _ROW_GROUP_ROWS).combine_chunks()
            waiting = waiting.slice(_ROW_GROUP_ROWS)
    if waiting is not None and waiting.num_rows:
        yield waiting.combine_chunks()


def _write_parquet(path: Path, tables: Iterator[pa.Table], num_rows: int) -> None:
    first = _without_json(next(tables))
    # Vectors are as good as random: a dictionary of their values only costs time.
    names = [name for name in first.schema.names if name != "embedding"]
    with pq.ParquetWriter(path, first.schema, use_dictionary=names) as writer:
        writer.write_table(first)
        for table in tables:
            writer.write_table(_without_json(table))


def _write_npy(path: Path, tables: Iterator[pa.Table], num_rows: int) -> None:
    with path.open("wb") as file:
        for place, table in enumerate(tables):
            values = vectors(table["embedding"])
            if place == 0:
                dtype = values.dtype.newbyteorder("<")
                file.write(_npy_header(num_rows, values.shape[1], dtype))
            file.write(np.ascontiguousarray(values, dtype).tobytes())


def _npy_header(num_rows: int, width: int, dtype: np.dtype[Any]) -> bytes:
    """Version 1.0 of numpy's format; numpy's own writer wants the whole array."""
    text = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': ({num_rows}, {width}), }}"
    # The data begins at a multiple of 64 bytes; the header's length is written in 2 bytes after 8 of magic.
    padded = text.ljust(-(-(len(text) + 11) // 64) * 64 - 11) + "\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded.encode()


def _write_jsonl(path: Path, tables: Iterator[pa.Table], num_rows: int) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for table in tables:
            as_json = [field.name for field in table.schema if field.metadata == JSON_FIELD]
            for row in table.to_pylist():
                row.update({name: json.loads(row[name]) for name in as_json if row[name] is not None})
                file.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")


def _without_json(table: pa.Table) -> pa.Table:
    """Kept columns of a .jsonl input for Parquet: strings as they are, other values as their JSON text."""
    for place, field in enumerate(table.schema):
        if field.metadata == JSON_FIELD:
            plain = pa.array([_plain(value) for value in table[field.name].to_pylist()], pa.string())
            table = table.set_column(place, pa.field(field.name, pa.string()), plain)
    return table


def _plain(value: str | None) -> str | None:
    decoded: Any = None if value is None else json.loads(value)
    is_text = isinstance(decoded, str) and not _SURROGATE.search(decoded)
    return decoded if is_text or decoded is None else value


_WRITERS = {".parquet": _write_parquet, ".npy": _write_npy, ".jsonl": _write_jsonl}
