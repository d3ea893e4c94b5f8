import io
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lazuli_client.errors import FileError
from lazuli_client.source import Source


def texts_of(path, batch_rows=2, skip=0, **columns):
    return [text for batch in Source(path, **columns).batches(batch_rows, skip) for text in batch.column(0).to_pylist()]


def write(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("a\nb\n", ["a", "b"]),
        ("a\nb", ["a", "b"]),
        ("a\r\nb\r\n", ["a", "b"]),
        ("a\n\n\nb\n", ["a", "", "", "b"]),
        ("\n", [""]),
        ("", []),
        ("\r\n", [""]),
        ("a\rb\0c\u2028d\x0be\n", ["a\rb\0c\u2028d\x0be"]),
        ("\ufeffa\n\ufeffb\n", ["a", "\ufeffb"]),
        ("größe\n日本語\n", ["größe", "日本語"]),
    ],
)
def test_txt(tmp_path, content, texts):
    path = write(tmp_path, "in.txt", content)
    assert texts_of(path) == texts
    assert Source(path).num_rows() == len(texts)


def test_invalid_utf8_names_the_line(tmp_path):
    path = write(tmp_path, "in.txt", b"fine\nfi\xffne\n")
    with pytest.raises(FileError, match=r"in\.txt, line 2: not valid UTF-8, byte 0xff at offset 2"):
        texts_of(path)


def test_batches_and_skip(tmp_path):
    path = write(tmp_path, "in.txt", "".join(f"{row}\n" for row in range(7)))
    sizes = [batch.num_rows for batch in Source(path).batches(3)]
    assert sizes == [3, 3, 1]
    assert texts_of(path, 3, skip=4) == ["4", "5", "6"]
    assert texts_of(path, 3, skip=7) == []


def test_txt_is_read_lazily(tmp_path):
    path = write(tmp_path, "in.txt", b"a\nb\n\xff\n")
    batches = Source(path).batches(2)
    assert next(batches).column(0).to_pylist() == ["a", "b"]
    with pytest.raises(FileError, match="line 3"):
        next(batches)


def test_stdin(monkeypatch):
    from pathlib import Path

    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"a\n\nb")))
    assert texts_of(Path("-")) == ["a", "", "b"]
    assert Source(Path("-")).num_rows() is None


def test_jsonl(tmp_path):
    path = write(tmp_path, "in.jsonl", '{"text": "a\\nb", "id": 7}\n{"id": [1], "text": ""}\n{"text": "c"}\n')
    assert texts_of(path) == ["a\nb", "", "c"]
    (batch,) = Source(path, keep=["id"]).batches(9)
    assert batch.column(1).to_pylist() == ["7", "[1]", None]
    assert Source(path).num_rows() == 3


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("nope", "line 2: not JSON"),
        ("", "line 2: blank"),
        (" \t\r", "line 2: blank"),
        ("[1]", "line 2: must be a JSON object, got list"),
        ('{"title": "x", "id": 1}', "line 2: no column 'text'; there are: title, id"),
        ('{"text": null}', "line 2: 'text' must be a string, got NoneType"),
        ('{"text": "a\\ud800"}', "line 2: 'text' holds a lone surrogate"),
        ('{"text": 3}', "line 2: 'text' must be a string, got int"),
    ],
)
def test_bad_jsonl_names_the_line(tmp_path, line, match):
    path = write(tmp_path, "in.jsonl", f'{{"text": "a"}}\n{line}\n')
    with pytest.raises(FileError, match=match):
        texts_of(path)


def test_csv(tmp_path):
    path = write(tmp_path, "in.csv", '\ufeffid,text\r\n1,a\r\n2,"b, ""c""\r\nd"\r\n3,\r\n')
    assert texts_of(path) == ["a", 'b, "c"\r\nd', ""]
    (batch,) = Source(path, keep=["id"]).batches(9)
    assert batch.to_pylist()[1] == {"text": 'b, "c"\r\nd', "id": "2"}


def test_csv_of_one_column_keeps_empty_lines(tmp_path):
    assert texts_of(write(tmp_path, "in.csv", 'text\na\n\n""\nb\n')) == ["a", "", "", "b"]


def test_csv_field_longer_than_the_modules_default(tmp_path):
    long = "x" * 200_000
    assert texts_of(write(tmp_path, "in.csv", f"text\n{long}\n")) == [long]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("id,title\n1,a\n", "no column 'text'; there are: id, title"),
        ("", "no column 'text'; there are: none"),
        ("text,id,text\na,1,b\n", r"in\.csv: 2 columns are named 'text'"),
        ("id,text\n1,a\n2\n", "line 3: 1 fields, but the header has 2"),
        ("id,text\n1,a,b\n", "line 2: 3 fields, but the header has 2"),
        ('id,text\n1,"a\n', "not CSV"),
    ],
)
def test_bad_csv(tmp_path, content, match):
    with pytest.raises(FileError, match=match):
        texts_of(write(tmp_path, "in.csv", content))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_parquet(tmp_path, kind):
    path = tmp_path / "in.parquet"
    texts = [f"t{row % 3}" for row in range(10)]
    table = pa.table({"id": pa.array(range(10)), "body": pa.array(texts).cast(kind)})
    pq.write_table(table, path, row_group_size=4)
    assert texts_of(path, 3, column="body") == texts
    for skip in range(11):
        assert texts_of(path, 3, skip, column="body") == texts[skip:]
    batch = next(Source(path, "body", ["id"]).batches(99))
    assert batch.schema.names == ["body", "id"]
    assert batch.schema.field("id").type == pa.int64()
    assert Source(path, "body").num_rows() == 10


def test_bad_parquet(tmp_path):
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table({"text": ["a", "b", "c", None], "n": [1, 2, 3, 4]}), path)
    with pytest.raises(FileError, match="row 3: column 'text' is null"):
        texts_of(path)
    with pytest.raises(FileError, match="column 'n' must hold strings, got int64"):
        texts_of(path, column="n")
    with pytest.raises(FileError, match="no column 'x'; there are: text, n"):
        texts_of(path, column="x")
    path.write_bytes(b"no parquet")
    with pytest.raises(FileError, match="not Parquet"):
        texts_of(path)


@pytest.mark.parametrize("name", ["in.docx", "in"])
def test_unknown_kind(tmp_path, name):
    with pytest.raises(FileError, match=r"\.txt, \.jsonl, \.csv or \.parquet is needed"):
        texts_of(write(tmp_path, name, "a"))


def test_places(tmp_path):
    assert Source(tmp_path / "a.txt").place(3).endswith("a.txt, line 4")
    assert Source(tmp_path / "a.csv").place(3).endswith("a.csv, row 3")


def test_a_kept_column_twice_is_refused_another_is_no_matter(tmp_path):
    path = write(tmp_path, "in.csv", "text,id,id,x,x\na,1,2,3,4\n")
    with pytest.raises(FileError, match="2 columns are named 'id'"):
        texts_of(path, keep=["id"])
    assert texts_of(path) == ["a"]


def test_broken_parquet_names_the_file(tmp_path):
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table({"text": [f"text {row}" for row in range(5000)]}), path, compression="snappy")
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + b"\xff" * 2000 + whole[2004:])
    with pytest.raises(FileError, match=r"in\.parquet: not Parquet"):
        texts_of(path)
    path.write_bytes(whole[:-20])
    with pytest.raises(FileError, match=r"in\.parquet: not Parquet"):
        Source(path).num_rows()
