import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from lazuli_client import ConnectionFailedError, InvalidInputError, LazuliClient, ServerError, job
from lazuli_client.errors import FileError
from lazuli_client.options import EmbedOptions
from lazuli_client.source import Source

ROWS = 23
CUT = EmbedOptions(truncate="end")


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(job, "_PART_ROWS", 4)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("".join(f"text {row}\n" for row in range(ROWS)))
    return path


def client_of(transport):
    return LazuliClient(transport=transport, rows_per_request=2, max_in_flight=2, retries=0)


def run(fake, source, out, hook=lambda request: None, options=CUT, **settings):
    """The summary, and the texts that were sent."""
    transport = fake.Transport(hook)
    try:
        with client_of(transport) as client:
            return job.run(job.Job(Source(source), out, options, 2), client, **settings), transport
    finally:
        run.sent = [text for request in transport.requests for text in request.tensors["text"][:, 0]]


def test_a_whole_job(fake, source, tmp_path, small_parts):
    seen = []
    summary, transport = run(fake, source, tmp_path / "out.parquet", progress=seen.append)
    table = pq.read_table(tmp_path / "out.parquet")
    assert table["text"].to_pylist() == [f"text {row}" for row in range(ROWS)]
    expected = np.stack([fake.vector(f"text {row}") for row in range(ROWS)])
    assert np.array_equal(np.stack(table["embedding"].to_pylist()).astype(np.float32), expected)
    assert (summary.texts, summary.tokens, summary.truncated, summary.resumed) == (ROWS, 2 * ROWS, 0, 0)
    assert summary.tokens_per_s > 0
    assert seen[0] == 0
    assert seen[-1] == ROWS
    assert seen == sorted(seen)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.parquet"]
    assert transport.requests[0].parameters == {"truncate": "end"}


@pytest.mark.parametrize("suffix", [".parquet", ".npy", ".jsonl"])
@pytest.mark.parametrize("stop", [0, 1, 2, 5, 11])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ConnectionFailedError("gone")])
def test_interrupted_and_resumed_equals_uninterrupted(
    fake, source, tmp_path, small_parts, monkeypatch, suffix, stop, error
):
    whole, out = tmp_path / f"whole{suffix}", tmp_path / f"out{suffix}"
    run(fake, source, whole)

    if error is KeyboardInterrupt:
        # Ctrl-C comes to the main thread, so between two batches.
        calls, make = iter(range(99)), job.to_table

        def to_table(*args, **kwargs):
            if next(calls) == stop:
                raise KeyboardInterrupt
            return make(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(job, "to_table", to_table)
            with pytest.raises(KeyboardInterrupt):
                run(fake, source, out)
    else:

        def hook(request):
            if request.rows[0] >= 2 * stop:
                raise error

        with pytest.raises(ConnectionFailedError):
            run(fake, source, out, hook)
    assert not out.exists()

    summary, _ = run(fake, source, out)
    assert summary.resumed == 2 * stop  # what was done is kept, in whole parts or not
    assert len(run.sent) == ROWS - summary.resumed
    assert (summary.texts, summary.tokens) == (ROWS, 2 * ROWS)
    assert out.read_bytes() == whole.read_bytes()
    assert not (tmp_path / f"out{suffix}.parts").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_killed_at_every_step_and_resumed_equals_uninterrupted(tmp_path, suffix):
    driver = Path(__file__).with_name("kill_driver.py")
    command = [sys.executable, str(driver), str(tmp_path), suffix]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 30  # the steps at which it was killed


def test_a_bad_row_names_its_line_and_keeps_what_was_done(fake, tmp_path, small_parts):
    path = tmp_path / "in.txt"
    path.write_text("".join("word " * (99 if row == 13 else 1) + "\n" for row in range(ROWS)))
    out = tmp_path / "out.npy"
    with pytest.raises(InvalidInputError, match=r"in\.txt, line 14: text\[13\]: 99 tokens") as caught:
        run(fake, path, out, options=EmbedOptions(truncate="none"))
    assert caught.value.row == 13
    with pytest.raises(InvalidInputError, match="line 14: text"):
        run(fake, path, out, options=EmbedOptions(truncate="none"))
    assert len(run.sent) < ROWS - 8
    with pytest.raises(FileError, match="truncate was 'none', is 'end'"):
        run(fake, path, out)
    summary, _ = run(fake, path, out, restart=True)
    assert (summary.resumed, summary.truncated) == (0, 1)


def interrupt(fake, source, out):
    def hook(request):
        if request.rows[0] >= 8:
            raise ConnectionFailedError("gone")

    with pytest.raises(ConnectionFailedError):
        run(fake, source, out, hook)


def test_a_changed_input_is_refused(fake, source, tmp_path):
    out = tmp_path / "out.npy"
    interrupt(fake, source, out)
    source.write_text(source.read_text().replace("text 3", "text three"))
    with pytest.raises(FileError, match="input was"):
        run(fake, source, out)
    assert run.sent == []


def test_a_touched_input_is_resumed(fake, source, tmp_path):
    out = tmp_path / "out.npy"
    interrupt(fake, source, out)
    os.utime(source, ns=(7, 7))
    summary, _ = run(fake, source, out)
    assert summary.resumed == 8
    assert summary.texts == ROWS


def test_an_edit_of_the_same_size_is_refused(fake, source, tmp_path):
    out = tmp_path / "out.npy"
    interrupt(fake, source, out)
    source.write_text(source.read_text().replace("text 3", "tent 3"))
    os.utime(source, ns=(7, 7))
    with pytest.raises(FileError, match="input was"):
        run(fake, source, out)


def test_a_full_disk_names_the_file(fake, source, tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    out = tmp_path / "out.npy"
    with monkeypatch.context() as patch:
        patch.setattr(job, "write", full)
        with pytest.raises(FileError, match=r"out\.npy\.parts/output: No space left on device"):
            run(fake, source, out)
    summary, _ = run(fake, source, out)
    assert summary.resumed == ROWS


def test_a_model_of_other_dimensions_is_refused(fake, source, tmp_path, monkeypatch):
    out = tmp_path / "out.npy"
    interrupt(fake, source, out)
    make = job.to_table

    def wider(batch, result, **kwargs):
        result = type(result)(np.hstack([result.embeddings] * 2), result.token_counts, result.truncated)
        return make(batch, result, **kwargs)

    monkeypatch.setattr(job, "to_table", wider)
    with pytest.raises(FileError, match="column 'embedding' was"):
        run(fake, source, out)


def test_an_existing_output_is_refused(fake, source, tmp_path):
    out = tmp_path / "out.npy"
    out.write_text("precious")
    with pytest.raises(FileError, match="pass --overwrite"):
        run(fake, source, out)
    assert out.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.npy"]
    run(fake, source, out, overwrite=True)
    assert np.load(out).shape == (ROWS, 4)


def test_the_old_output_stays_until_the_new_one_is_whole(fake, source, tmp_path):
    out = tmp_path / "out.npy"
    out.write_text("precious")

    def gone(request):
        raise ServerError("gone")

    with pytest.raises(ServerError):
        run(fake, source, out, gone, overwrite=True)
    assert out.read_text() == "precious"


def test_an_empty_input_is_an_error(fake, tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("")
    with pytest.raises(FileError, match="there is no text in it"):
        run(fake, path, tmp_path / "out.npy")
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_a_column_with_the_name_of_a_result_is_refused(fake, tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("text,embedding\na,b\n")
    task = job.Job(Source(path, keep=["embedding"]), tmp_path / "out.parquet", EmbedOptions(), 2)
    with pytest.raises(FileError, match="'embedding' has the name of a result"):
        job.check(task, overwrite=False)
