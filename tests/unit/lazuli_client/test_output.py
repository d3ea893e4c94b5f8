import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lazuli_client import Embeddings, output
from lazuli_client.errors import FileError
from lazuli_client.source import JSON_FIELD

ROWS = 20_000  # more than two row groups


def table(first, rows, *, with_input=True, keep=None):
    names = {"text": pa.array([f"t{row}" for row in range(first, first + rows)])}
    schema = [pa.field("text", pa.string())]
    if keep is not None:
        names["id"] = pa.array(keep[first : first + rows], pa.string())
        schema.append(pa.field("id", pa.string(), metadata=JSON_FIELD))
    batch = pa.record_batch(list(names.values()), schema=pa.schema(schema))
    vectors = np.arange(first * 3, (first + rows) * 3, dtype=np.float32).reshape(rows, 3)
    result = Embeddings(vectors, np.full(rows, 7, np.int32), np.arange(first, first + rows) % 2 == 0)
    return output.to_table(batch, result, with_input=with_input)


def test_table():
    made = table(5, 2)
    assert made.schema.names == ["text", "embedding", "token_count", "truncated"]
    assert made.schema.field("embedding").type.list_size == 3
    assert made.to_pylist()[1] == {
        "text": "t6",
        "embedding": [18.0, 19.0, 20.0],
        "token_count": 7,
        "truncated": True,
    }
    assert table(5, 2, with_input=False).schema.names == ["embedding", "token_count", "truncated"]


@pytest.mark.parametrize("kind", [".parquet", ".npy", ".jsonl"])
def test_the_same_rows_give_the_same_bytes(tmp_path, kind):
    cuts = [[ROWS], [1, 8191, 1, ROWS - 8193], [ROWS // 2, ROWS // 2]]
    written = set()
    for sizes in cuts:
        firsts = np.cumsum([0, *sizes[:-1]]).tolist()
        tables = (table(first, size) for first, size in zip(firsts, sizes, strict=True))
        path = tmp_path / f"out{kind}"
        output.write(path, kind, tables, ROWS)
        written.add(path.read_bytes())
    assert len(written) == 1


def test_parquet(tmp_path):
    path = tmp_path / "out.parquet"
    output.write(path, ".parquet", iter([table(0, ROWS)]), ROWS)
    read = pq.read_table(path)
    assert read.num_rows == ROWS
    assert read["text"][-1].as_py() == f"t{ROWS - 1}"
    assert np.array_equal(output.vectors(read["embedding"]), output.vectors(table(0, ROWS)["embedding"]))
    assert pq.ParquetFile(path).num_row_groups == 3


@pytest.mark.parametrize("rows", [1, 10, 1234])
def test_npy_is_what_numpy_reads(tmp_path, rows):
    path = tmp_path / "out.npy"
    output.write(path, ".npy", iter([table(0, rows, with_input=False)]), rows)
    for loaded in (np.load(path), np.load(path, mmap_mode="r")):
        assert loaded.dtype == np.float32
        assert np.array_equal(loaded, np.arange(rows * 3, dtype=np.float32).reshape(rows, 3))


def test_jsonl_gives_kept_values_back_as_they_were(tmp_path):
    path = tmp_path / "out.jsonl"
    keep = ['"a"', "7", "[1, null]", None, "null"]
    output.write(path, ".jsonl", iter([table(0, 5, keep=keep)]), 5)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["id"] for record in records] == ["a", 7, [1, None], None, None]
    assert records[1]["embedding"] == [3.0, 4.0, 5.0]
    assert list(records[0]) == ["text", "id", "embedding", "token_count", "truncated"]


def test_parquet_of_kept_json_holds_plain_strings(tmp_path):
    path = tmp_path / "out.parquet"
    output.write(path, ".parquet", iter([table(0, 6, keep=['"a"', "7", "[1, null]", None, "null", r'"\ud800"'])]), 6)
    assert pq.read_table(path)["id"].to_pylist() == ["a", "7", "[1, null]", None, None, r'"\ud800"']


def test_unknown_kind(tmp_path):
    with pytest.raises(FileError, match=r"\.parquet, \.npy or \.jsonl is needed"):
        output.check_kind(tmp_path / "out.csv")
    assert output.check_kind(tmp_path / "out.NPY") == ".npy"
