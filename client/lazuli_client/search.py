"""Finds the rows of a file that are nearest to a query.

Takes a file of texts, which it embeds, or the output of a bulk job, whose vectors it uses; returns the best
rows. Holds a batch in memory and the best rows so far. An example and a check by eye, not a search engine.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lazuli_client.client import LazuliClient
from lazuli_client.errors import FileError
from lazuli_client.files import STDIN, naming
from lazuli_client.options import EmbedOptions
from lazuli_client.output import vectors
from lazuli_client.ranges import Ranges
from lazuli_client.source import Source

# Texts of a batch, if they were kept, and their vectors [N, D].
Corpus = Iterator[tuple[list[str | None], NDArray[Any]]]
_BATCH_ROWS = 1024


@dataclass(frozen=True)
class Hit:
    """A row near the query.

    Attributes:
        score: Cosine of the two vectors.
        row: Row of the file, from 0.
        text: Its text, None if the file holds vectors only.
    """

    score: float
    row: int
    text: str | None


def search(
    client: LazuliClient,
    path: Path,
    query: str,
    *,
    k: int,
    column: str,
    prompt_name: str | None = None,
    ranges: Ranges | None = None,
) -> list[Hit]:
    """The `k` rows nearest to `query`, best first; of equal ones the earlier row.

    Args:
        client: Embeds the query, and the file if it holds no vectors.
        path: .txt, .jsonl, .csv or .parquet; .parquet, .jsonl and .npy may hold vectors in `embedding`.
        query: The query.
        k: How many rows.
        column: Name of the text column.
        prompt_name: Prompt of the query; None takes the model's for queries, if it has one, and the file's texts get
            that for documents.
        ranges: Of the integers in the file; None compares them as they are, which only fits a model that makes them
            by a quantiser of its own.

    Raises:
        FileError: If the file cannot be read, or its vectors do not fit the model's or the ranges.
    """
    document_type = "document" if prompt_name is None else None
    corpus = _stored(path, column, ranges) or _embedded(client, path, column, document_type)
    hits: list[Hit] = []
    wanted: NDArray[np.float32] | None = None
    first_row = 0
    for texts, matrix in corpus:
        if wanted is None:
            wanted = _embed_query(client, query, matrix, prompt_name, path)
        scores = _unit(np.asarray(matrix, np.float32)) @ wanted
        best = np.argsort(-scores, kind="stable")[:k]
        hits += [Hit(float(scores[row]), first_row + int(row), texts[row]) for row in best]
        hits = sorted(hits, key=lambda hit: (-hit.score, hit.row))[:k]
        first_row += len(matrix)
    return hits


def _embed_query(
    client: LazuliClient, query: str, matrix: NDArray[Any], prompt_name: str | None, path: Path
) -> NDArray[np.float32]:
    """The query's vector, of unit length, with as many dimensions as the file's."""
    input_type = "query" if prompt_name is None else None
    width = matrix.shape[1]
    vector = client.embed(query, prompt_name=prompt_name, input_type=input_type).embeddings
    # The file was embedded with fewer dimensions. Fewer integers could be packed bits as well.
    if vector.shape[1] > width and matrix.dtype.kind == "f":
        vector = client.embed(
            query, prompt_name=prompt_name, input_type=input_type, dimensions=width, force_dimensions=True
        ).embeddings
    if vector.shape[1] != width:
        bits = ", and packed bits cannot be compared here" if 8 * width == vector.shape[1] else ""
        raise FileError(f"{path}: its vectors have {width} dimensions, those of the server {vector.shape[1]}{bits}")
    unit: NDArray[np.float32] = _unit(vector)[0]
    return unit


def _unit(matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return np.asarray(matrix / np.where(lengths == 0, 1, lengths), np.float32)


def _embedded(client: LazuliClient, path: Path, column: str, input_type: str | None) -> Corpus:
    kept: list[list[str | None]] = []

    def texts() -> Iterator[list[str]]:
        for batch in Source(path, column).batches(_BATCH_ROWS):
            kept.append(batch.column(0).to_pylist())
            yield batch.column(0).to_pylist()

    for result in client.embed_batches(texts(), EmbedOptions(truncate="end", input_type=input_type)):
        yield kept.pop(0), result.embeddings


def _stored(path: Path, column: str, ranges: Ranges | None) -> Corpus | None:
    """The vectors that the file holds, or None if it holds texts only."""
    corpus = _open(path, column)
    return None if corpus is None else _decoded(corpus, path, ranges)


def _decoded(corpus: Corpus, path: Path, ranges: Ranges | None) -> Corpus:
    for texts, matrix in corpus:
        if matrix.dtype.kind not in "fiu":
            raise FileError(f"{path}: holds vectors of {matrix.dtype}, but only numbers can be compared")
        if matrix.dtype.kind == "u" and ranges is None:
            raise FileError(
                f"{path}: holds vectors of {matrix.dtype}: those of `--output uint8` cannot be compared without "
                "`--calibration`, and packed bits not at all"
            )
        if ranges is not None and matrix.dtype.kind != "f":
            matrix = _decode(matrix, path, ranges)
        yield texts, matrix


def _decode(matrix: NDArray[Any], path: Path, ranges: Ranges) -> NDArray[np.float32]:
    try:
        return ranges.decode(matrix.astype(_integer_type(matrix, path)))
    except ValueError as error:
        raise FileError(f"{path}: {error}") from None


def _integer_type(matrix: NDArray[Any], path: Path) -> str:
    """The type of integers, which JSON does not tell."""
    least, most = int(matrix.min(initial=0)), int(matrix.max(initial=0))
    fitting = [name for name in ("int8", "uint8") if np.iinfo(name).min <= least and most <= np.iinfo(name).max]
    if matrix.dtype.name in fitting:
        return matrix.dtype.name
    if len(fitting) != 1:
        raise FileError(f"{path}: its integers, {least} to {most}, could be int8 and uint8 alike, or neither")
    return fitting[0]


def _open(path: Path, column: str) -> Corpus | None:
    kind = path.suffix.lower()
    if kind == ".npy":
        return _from_npy(path)
    if kind == ".parquet" and "embedding" in _parquet_names(path):
        return _from_parquet(path, column)
    if kind == ".jsonl" and path != STDIN and "embedding" in _first_record(path):
        return _from_jsonl(path, column)
    return None


def _parquet_names(path: Path) -> list[str]:
    with naming(path, "not Parquet"):
        names: list[str] = pq.read_schema(path).names
    return names


def _from_npy(path: Path) -> Corpus:
    with naming(path, "not a .npy file"):
        # Not `np.load`, which takes .npz and pickles for one too.
        matrix: NDArray[Any] = np.lib.format.open_memmap(str(path), mode="r")  # type: ignore[no-untyped-call, unused-ignore]
    if matrix.ndim != 2:
        raise FileError(f"{path}: must be [N, D], got shape {list(matrix.shape)}")
    for start in range(0, len(matrix), _BATCH_ROWS):
        rows = np.asarray(matrix[start : start + _BATCH_ROWS])
        yield [None] * len(rows), rows


def _from_parquet(path: Path, column: str) -> Corpus:
    with naming(path, "not the output of `lazuli embed`"), pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        kind = schema.field("embedding").type
        if not pa.types.is_fixed_size_list(kind):
            raise FileError(f"{path}: column 'embedding' must hold lists of one size, got {kind}")
        strings = [field.name for field in schema if pa.types.is_string(field.type)]
        # The output of a job has the input's name for the text, and the text comes first.
        name = column if column in schema.names else (strings[0] if strings else None)
        for batch in file.iter_batches(_BATCH_ROWS, columns=[name, "embedding"] if name else ["embedding"]):
            texts = batch.column(name).to_pylist() if name else [None] * batch.num_rows
            yield texts, vectors(batch.column("embedding"))


def _from_jsonl(path: Path, column: str) -> Corpus:
    with naming(path, "not the output of `lazuli embed`"), path.open(encoding="utf-8") as file:
        batch: list[dict[str, Any]] = []
        for number, line in enumerate(file, 1):
            batch.append(_record(line, f"{path}, line {number}"))
            if len(batch) == _BATCH_ROWS:
                yield _split_records(batch, column)
                batch = []
        if batch:
            yield _split_records(batch, column)


def _record(line: str, where: str) -> dict[str, Any]:
    try:
        record: Any = json.loads(line)
    except ValueError as error:
        raise FileError(f"{where}: {f'not JSON: {error}' if line.strip() else 'blank'}") from None
    if not isinstance(record, dict) or not isinstance(record.get("embedding"), list):
        raise FileError(f"{where}: no list 'embedding' in it")
    return record


def _split_records(records: Iterable[dict[str, Any]], column: str) -> tuple[list[str | None], NDArray[Any]]:
    texts = [record.get(column) for record in records]
    matrix = np.array([record["embedding"] for record in records])
    return texts, matrix if matrix.dtype.kind == "i" else matrix.astype(np.float32)


def _first_record(path: Path) -> dict[str, Any]:
    with naming(path), path.open(encoding="utf-8") as file:
        try:
            record = json.loads(file.readline() or "{}")
        except ValueError:
            return {}
        return record if isinstance(record, dict) else {}
