"""The input of a bulk job: .txt, .jsonl, .csv or .parquet, read batch by batch.

Takes a path and column names, returns Arrow record batches whose first column is the text. Never holds more
than a batch (for Parquet a row group) in memory, drops no line silently, and does not know servers or
vectors.
"""

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from lazuli_client.errors import FileError
from lazuli_client.files import STDIN, naming

# Marks a kept column of a .jsonl input, which holds each value as its JSON text: the values may be of any
# type.
JSON_FIELD = {b"lazuli": b"json"}
_CSV_FIELD_LIMIT = 2**31 - 1  # the default of 128 KiB is less than a long document


@dataclass(frozen=True)
class Source:
    """An input file.

    Attributes:
        path: The file; `-` is standard input, read as .txt.
        column: Name of the text column.
        keep: Further columns to carry along.
    """

    path: Path
    column: str = "text"
    keep: Sequence[str] = ()

    def num_rows(self) -> int | None:
        """Number of rows where it is cheap to tell, for the progress bar."""
        if self.path == STDIN or self._kind == ".csv":
            return None
        if self._kind == ".parquet":
            with naming(self.path, "not Parquet"), pq.ParquetFile(self.path) as file:
                return int(file.metadata.num_rows)
        return _count_lines(self.path)

    def place(self, row: int) -> str:
        """How a person finds a row: its line where lines are rows, else its number."""
        return f"{self.path}, row {row}" if self._kind in (".csv", ".parquet") else f"{self.path}, line {row + 1}"

    def batches(self, batch_rows: int, skip: int = 0) -> Iterator[pa.RecordBatch]:
        """Batches of `batch_rows` rows, without the first `skip` rows.

        Raises:
            FileError: If the file is not what its name says, or lacks a column.
        """
        if self._kind == ".parquet":
            return _skip_rows(self._parquet(batch_rows), skip)
        schema = pa.schema([self._text_field(), *(self._kept_field(name) for name in self.keep)])
        records = islice(self._records(), skip, None)
        return _to_batches(records, batch_rows, schema)

    @property
    def _kind(self) -> str:
        if self.path == STDIN:
            return ".txt"
        kind = self.path.suffix.lower()
        if kind not in (".txt", ".jsonl", ".csv", ".parquet"):
            what = kind or "a file without a suffix"
            raise FileError(f"{self.path}: cannot read {what}; .txt, .jsonl, .csv or .parquet is needed")
        return kind

    def _text_field(self) -> pa.Field:
        return pa.field(self.column, pa.string(), nullable=False)

    def _kept_field(self, name: str) -> pa.Field:
        return pa.field(name, pa.string(), metadata=JSON_FIELD if self._kind == ".jsonl" else None)

    def _records(self) -> Iterator[tuple[str | None, ...]]:
        with naming(self.path), _open(self.path) as file:
            lines = _decode(file, self.path)
            if self._kind == ".csv":
                yield from self._csv_records(lines)
            elif self._kind == ".jsonl":
                yield from self._jsonl_records(lines)
            else:
                self._check_columns(["text"])
                yield from ((_chomp(line),) for line in lines)

    def _jsonl_records(self, lines: Iterable[str]) -> Iterator[tuple[str | None, ...]]:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                raise FileError(f"{self.path}, line {number}: blank; each line must be a JSON object")
            try:
                record = json.loads(line)
            except ValueError as error:
                raise FileError(f"{self.path}, line {number}: not JSON: {error}") from None
            if not isinstance(record, dict):
                raise FileError(f"{self.path}, line {number}: must be a JSON object, got {type(record).__name__}")
            if not isinstance(record.get(self.column), str):
                self._check_columns(record, f", line {number}")
                got = type(record[self.column]).__name__
                raise FileError(f"{self.path}, line {number}: {self.column!r} must be a string, got {got}")
            self._check_unicode(record[self.column], number)
            kept = (json.dumps(record[name]) if name in record else None for name in self.keep)
            yield record[self.column], *kept

    def _check_unicode(self, text: str, number: int) -> None:
        try:
            text.encode()
        except UnicodeEncodeError:  # an escape such as \ud800 alone
            raise FileError(f"{self.path}, line {number}: {self.column!r} holds a lone surrogate") from None

    def _csv_records(self, lines: Iterable[str]) -> Iterator[tuple[str | None, ...]]:
        csv.field_size_limit(_CSV_FIELD_LIMIT)
        reader = csv.reader(lines, strict=True)
        try:
            header = next(reader, [])
            self._check_columns(header)
            places = [header.index(name) for name in (self.column, *self.keep)]
            for fields in reader:
                # In a file of one column, an empty line is an empty text.
                fields = fields or [""]
                if len(fields) != len(header):
                    wrong = f"{len(fields)} fields, but the header has {len(header)}"
                    raise FileError(f"{self.path}, line {reader.line_num}: {wrong}")
                yield tuple(fields[place] for place in places)
        except csv.Error as error:
            raise FileError(f"{self.path}, line {reader.line_num}: not CSV: {error}") from None

    def _parquet(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        with naming(self.path, "not Parquet"), pq.ParquetFile(self.path) as file:
            names = [self.column, *self.keep]
            self._check_columns(file.schema_arrow.names)
            row = 0
            for batch in file.iter_batches(batch_rows, columns=names):
                yield self._checked(batch.select(names), row)
                row += batch.num_rows

    def _checked(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        texts = batch.column(0)
        kind = texts.type.value_type if pa.types.is_dictionary(texts.type) else texts.type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise FileError(f"{self.path}: column {self.column!r} must hold strings, got {texts.type}")
        if texts.null_count:
            row = first_row + texts.is_null().index(True).as_py()
            raise FileError(f"{self.path}, row {row}: column {self.column!r} is null")
        return batch.set_column(0, self._text_field(), texts.cast(pa.string()))

    def _check_columns(self, present: Iterable[str], where: str = "") -> None:
        present = list(present)
        missing = [name for name in (self.column, *self.keep) if name not in present]
        if missing:
            raise FileError(f"{self.path}{where}: no column {missing[0]!r}; there are: {', '.join(present) or 'none'}")
        for name in (self.column, *self.keep):
            if present.count(name) > 1:
                raise FileError(f"{self.path}{where}: {present.count(name)} columns are named {name!r}; rename one")


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    if path == STDIN:
        yield sys.stdin.buffer
        return
    with path.open("rb") as file:
        yield file


def _decode(file: BinaryIO, path: Path) -> Iterator[str]:
    """The lines with their ends; only LF ends a line, so a stray CR, NUL or U+2028 stays inside its text."""
    for number, line in enumerate(file, 1):
        try:
            # Editors of Windows begin a file with a byte order mark, which is no part of the first text.
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            byte = line[error.start]
            message = f"not valid UTF-8, byte 0x{byte:02x} at offset {error.start}"
            raise FileError(f"{path}, line {number}: {message}") from None


def _chomp(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


def _count_lines(path: Path) -> int:
    count, last = 0, b"\n"
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")


def _to_batches(
    records: Iterator[tuple[str | None, ...]], batch_rows: int, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    while rows := list(islice(records, batch_rows)):
        columns = [pa.array(values, pa.string()) for values in zip(*rows, strict=True)]
        yield pa.record_batch(columns, schema=schema)


def _skip_rows(batches: Iterator[pa.RecordBatch], skip: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rest = batch.slice(min(skip, batch.num_rows))
        skip -= batch.num_rows - rest.num_rows
        if rest.num_rows:
            yield rest
