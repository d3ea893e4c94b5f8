import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lazuli_client import EmbedOptions, LazuliClient, job
from lazuli_client.errors import FileError
from lazuli_client.ranges import Ranges
from lazuli_client.search import Hit, search
from lazuli_client.source import Source

TEXTS = [f"text {row}" for row in range(2500)]  # more than two batches


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("\n".join(TEXTS))
    return path


@pytest.fixture
def transport(fake):
    return fake.Transport()


@pytest.fixture
def client(transport):
    with LazuliClient(transport=transport) as client:
        yield client


def check(fake, hits, query, k, width=4):
    """Compare with the slow way; rows of nearly the same score may come in either order."""
    unit = [fake.vector(text, width) / np.linalg.norm(fake.vector(text, width)) for text in [*TEXTS, query]]
    scores = [float(vector @ unit[-1]) for vector in unit[:-1]]
    assert [hit.score for hit in hits] == pytest.approx(sorted(scores, reverse=True)[:k], abs=1e-6)
    assert [hit.score for hit in hits] == pytest.approx([scores[hit.row] for hit in hits], abs=1e-6)
    assert len({hit.row for hit in hits}) == k


def test_texts_are_embedded(fake, client, path):
    hits = search(client, path, "text 77", k=7, column="text")
    assert hits[0].row == 77
    assert hits[0].score == pytest.approx(1, abs=1e-6)
    check(fake, hits, "text 77", 7)
    assert [hit.text for hit in hits] == [TEXTS[hit.row] for hit in hits]


@pytest.mark.parametrize("suffix", [".parquet", ".npy", ".jsonl"])
def test_stored_vectors_are_used(fake, client, transport, path, tmp_path, suffix):
    out = tmp_path / f"out{suffix}"
    job.run(job.Job(Source(path), out, EmbedOptions(), 64), client)
    transport.requests.clear()
    hits = search(client, out, "text 1999", k=5, column="text")
    check(fake, hits, "text 1999", 5)
    assert [hit.text for hit in hits] == [None if suffix == ".npy" else TEXTS[hit.row] for hit in hits]
    assert [len(request.rows) for request in transport.requests] == [1]  # the query alone


def test_a_file_of_fewer_dimensions(fake, client, path, tmp_path):
    out = tmp_path / "out.npy"
    job.run(job.Job(Source(path), out, EmbedOptions(dimensions=2), 64), client)
    hits = search(client, out, "text 9", k=3, column="text")
    check(fake, hits, "text 9", 3, width=2)


@pytest.mark.parametrize("suffix", [".npy", ".parquet", ".jsonl"])
def test_a_file_of_integers(fake, client, path, tmp_path, suffix):
    out = tmp_path / f"out{suffix}"
    job.run(job.Job(Source(path), out, EmbedOptions(output="int8"), 64), client)
    assert search(client, out, "text 9", k=1, column="text")[0].row == 9


@pytest.mark.parametrize("suffix", [".npy", ".parquet", ".jsonl"])
def test_a_file_of_packed_bits_is_not_taken_for_one_of_fewer_dimensions(client, path, tmp_path, suffix):
    out = tmp_path / f"out{suffix}"
    job.run(job.Job(Source(path), out, EmbedOptions(output="binary", dimensions=2), 64), client)
    with pytest.raises(FileError, match="its vectors have 2 dimensions, those of the server 4"):
        search(client, out, "text 9", k=1, column="text")


def test_a_file_of_another_model(client, tmp_path):
    out = tmp_path / "out.npy"
    np.save(out, np.ones((3, 9), np.float32))
    with pytest.raises(FileError, match="9 dimensions, those of the server 4"):
        search(client, out, "x", k=1, column="text")


def test_equal_rows_and_zero_vectors(client, fake, tmp_path):
    out = tmp_path / "out.npy"
    np.save(
        out,
        np.stack([np.zeros(4), fake.vector("q"), fake.vector("q") * 3, -fake.vector("q")]).astype(np.float32),
    )
    hits = search(client, out, "q", k=4, column="text")
    assert [hit.row for hit in hits] == [1, 2, 0, 3]
    assert hits[2].score == 0


def test_k_larger_than_the_file(client, tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(json.dumps({"body": text}) for text in "ab"))
    hits = search(client, path, "b", k=5, column="body")
    assert [type(hit) for hit in hits] == [Hit, Hit]
    assert hits[0].text == "b"


def test_an_empty_file(client, tmp_path):
    path = tmp_path / "in.txt"
    path.touch()
    assert search(client, path, "b", k=5, column="text") == []


def test_the_prompt_is_the_querys_alone(client, transport, path):
    search(client, path, "q", k=1, column="text", prompt_name="query")
    prompts = {request.parameters.get("prompt_name"): len(request.rows) for request in transport.requests}
    assert prompts["query"] == 1
    assert None in prompts
    assert not any("input_type" in request.parameters for request in transport.requests)


def test_without_a_prompt_each_side_has_the_models_own(client, transport, path):
    search(client, path, "q", k=1, column="text")
    types = {request.parameters["input_type"]: len(request.rows) for request in transport.requests}
    assert types["query"] == 1
    assert set(types) == {"query", "document"}


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("in.npy", b"", "not a .npy file"),
        ("in.npy", b"no numpy at all", "not a .npy file"),
        ("in.parquet", b"no parquet", "not Parquet"),
        ("in.jsonl", b'{"text": "a", "embedding": [1, 2, 3, 4]}\n\n', "line 2: blank"),
        ("in.jsonl", b'{"text": "a", "embedding": [1, 2, 3, 4]}\n{', "line 2: not JSON"),
        ("in.jsonl", b'{"text": "a", "embedding": [1, 2, 3, 4]}\n{"text": "b"}', "line 2: no list 'embedding'"),
        ("in.jsonl", b'{"embedding": [1, 2]}\n{"embedding": [1]}', "not the output of `lazuli embed`"),
    ],
)
def test_broken_vectors_name_the_file(client, tmp_path, name, content, match):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(FileError, match=f"{name}.*{match}"):
        search(client, path, "x", k=1, column="text")


def test_a_cut_or_odd_npy_names_the_file(client, tmp_path):
    path = tmp_path / "in.npy"
    np.save(path, np.ones((9, 4), np.float32))
    path.write_bytes(path.read_bytes()[:-16])
    with pytest.raises(FileError, match=r"in\.npy: not a \.npy file"):
        search(client, path, "x", k=1, column="text")
    np.save(path, np.ones((9, 4), np.uint8))  # packed bits, for one
    with pytest.raises(FileError, match=r"holds vectors of uint8: .* packed bits not at all"):
        search(client, path, "x", k=1, column="text")
    np.save(path, np.array([["a"]]))
    with pytest.raises(FileError, match=r"in\.npy: holds vectors of <U1, but only"):
        search(client, path, "x", k=1, column="text")


@pytest.fixture
def ranges():
    """Dimensions of very unlike widths, so that codes compared as they are give another order."""
    return Ranges({4: np.array([[-1, -8, 0, -0.1], [1, 8, 30, 0.1]], np.float32)})


def encode(ranges, vectors, kind):
    minimum, maximum = ranges.bounds[4]
    steps = np.clip((vectors - minimum) * 255 / (maximum - minimum), 0, 255).astype(np.uint8)
    return steps if kind == "uint8" else (steps.astype(np.int16) - 128).astype(np.int8)


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("suffix", [".npy", ".jsonl"])
def test_integers_are_decoded(fake, client, tmp_path, ranges, kind, suffix):
    vectors = np.array([fake.vector(text, 4) for text in TEXTS[:300]], np.float32)
    codes, path = encode(ranges, vectors, kind), tmp_path / f"in{suffix}"
    if suffix == ".npy":
        np.save(path, codes)
    else:
        path.write_text("\n".join(json.dumps({"embedding": row.tolist()}) for row in codes))
    decoded = ranges.decode(codes)
    wanted = fake.vector("text 7", 4)
    scores = decoded @ wanted / np.linalg.norm(decoded, axis=1) / np.linalg.norm(wanted)
    hits = search(client, path, "text 7", k=5, column="text", ranges=ranges)
    assert [hit.score for hit in hits] == pytest.approx(sorted(scores.tolist(), reverse=True)[:5], abs=1e-5)


def test_integers_that_could_be_of_two_types(client, tmp_path, ranges):
    path = tmp_path / "in.jsonl"
    path.write_text('{"embedding": [1, 2, 3, 4]}')
    with pytest.raises(FileError, match=r"its integers, 0 to 4, could be int8 and uint8 alike"):
        search(client, path, "x", k=1, column="text", ranges=ranges)


def test_packed_bits_are_known_by_their_width(client, tmp_path, monkeypatch):
    path = tmp_path / "in.npy"
    np.save(path, np.ones((3, 1), np.int8))
    answer = type("Answer", (), {"embeddings": np.ones((1, 8), np.float32)})
    monkeypatch.setattr(client, "embed", lambda *args, **options: answer)
    with pytest.raises(FileError, match="1 dimensions, those of the server 8, and packed bits cannot be compared"):
        search(client, path, "x", k=1, column="text")


def test_a_parquet_of_other_embeddings_names_the_file(client, tmp_path):
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table({"embedding": [[1.0], [1.0, 2.0]]}), path)
    with pytest.raises(FileError, match=r"in\.parquet: column 'embedding' must hold lists of one size"):
        search(client, path, "x", k=1, column="text")
