from pathlib import Path

import pyarrow as pa
import pytest

from lazuli_client.errors import FileError
from lazuli_client.parts import Parts

MANIFEST = {"input": {"size": 3}, "truncate": "end"}


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out.npy"


def rows(parts):
    return [value for table in parts.tables() for value in table["x"].to_pylist()]


def table(*values):
    return pa.table({"x": pa.array(values, pa.int32())})


def test_what_was_added_is_found_again(out):
    with Parts(out, MANIFEST) as parts:
        assert parts.num_rows == 0
        parts.append(table(1, 2))
        parts.append(table(3))
    with Parts(out, MANIFEST) as parts:
        assert parts.num_rows == 3
        parts.append(table(4))
        assert rows(parts) == [1, 2, 3, 4]


def test_nothing_done_leaves_no_folder(out, tmp_path):
    with Parts(out, MANIFEST):
        pass
    assert list(tmp_path.iterdir()) == []


def test_half_written_files_are_thrown_away(out, tmp_path):
    with Parts(out, MANIFEST) as parts:
        parts.append(table(1))
    folder = tmp_path / "out.npy.parts"
    (folder / "part-000000000001-5.arrow.tmp").write_bytes(b"half")
    with Parts(out, MANIFEST) as parts:
        assert rows(parts) == [1]
    assert not list(folder.glob("*.tmp"))


def test_another_job_is_refused_with_the_difference(out):
    with Parts(out, MANIFEST) as parts:
        parts.append(table(1))
    with pytest.raises(FileError, match=r"truncate was 'end', is 'none'.*--no-resume"):
        Parts(out, {**MANIFEST, "truncate": "none"})
    with pytest.raises(FileError, match=r"input was {'size': 3}, is {'size': 4}"):
        Parts(out, {**MANIFEST, "input": {"size": 4}})
    with Parts(out, {**MANIFEST, "truncate": "none"}, restart=True) as parts:
        assert parts.num_rows == 0


def test_a_gap_is_refused(out, tmp_path):
    with Parts(out, MANIFEST) as parts:
        parts.append(table(1))
        parts.append(table(2))
    next((tmp_path / "out.npy.parts").glob("part-000000000000-*")).unlink()
    with pytest.raises(FileError, match="expected rows from 0"):
        Parts(out, MANIFEST)


def test_other_columns_are_refused(out):
    with Parts(out, MANIFEST) as parts:
        parts.append(table(1))
    with Parts(out, MANIFEST) as parts, pytest.raises(FileError, match="column 'x' was int32, is int64"):
        parts.append(pa.table({"x": pa.array([1], pa.int64())}))


def test_two_jobs_at_once_are_refused(out):
    with Parts(out, MANIFEST), pytest.raises(FileError, match="another job is writing it"):
        Parts(out, MANIFEST)


def test_publish(out, tmp_path):
    with Parts(out, MANIFEST) as parts:
        parts.append(table(1))
        parts.staged.write_bytes(b"whole")
        parts.publish()
    assert out.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [out]


def interrupted_publish(out, monkeypatch):
    """Publish, but stop before the folder is removed."""
    with monkeypatch.context() as patch, Parts(out, MANIFEST) as parts:
        patch.setattr(Parts, "_remove", lambda self: None)
        parts.append(table(1))
        parts.staged.write_bytes(b"whole")
        parts.publish()


def test_published_but_not_tidied_up(out, tmp_path, monkeypatch):
    interrupted_publish(out, monkeypatch)
    with Parts(out, MANIFEST) as parts:
        assert parts.was_published
        assert parts.num_rows == 1
        parts.finish()
    assert list(tmp_path.iterdir()) == [out]


def test_a_published_job_does_not_stand_in_the_way_of_another(out, monkeypatch):
    interrupted_publish(out, monkeypatch)
    with Parts(out, {**MANIFEST, "truncate": "none"}) as parts:
        assert not parts.was_published
        assert parts.num_rows == 0


def test_a_published_job_whose_output_is_gone_is_an_unfinished_one(out, monkeypatch):
    interrupted_publish(out, monkeypatch)
    out.unlink()
    with Parts(out, MANIFEST) as parts:
        assert not parts.was_published
        assert rows(parts) == [1]


def test_starting_over_first_removes_the_mark_of_being_done(out, monkeypatch):
    # Killed in the middle, with the staged output gone and the mark there, the job would pass for done.
    interrupted_publish(out, monkeypatch)
    unlinked = []

    def note(path, missing_ok=False):
        unlinked.append(path.name)
        unlink(path, missing_ok)

    unlink = Path.unlink
    monkeypatch.setattr(Path, "unlink", note)
    with Parts(out, MANIFEST, restart=True):
        pass
    assert unlinked[0] == "publishing"
    assert len(unlinked) > 1


def test_a_half_removed_folder_is_no_job(out, tmp_path):
    trash = tmp_path / "out.npy.parts.done"
    trash.mkdir()
    (trash / "part-000000000007-1.arrow").touch()
    with Parts(out, MANIFEST) as parts:
        assert parts.num_rows == 0
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_names_the_file(out, monkeypatch):
    def full(*args, **kwargs):
        raise OSError("[Errno 28] Error writing bytes to file")

    with Parts(out, MANIFEST) as parts:
        parts.append(table(1))
        with monkeypatch.context() as patch:
            patch.setattr(pa.ipc, "new_file", full)
            with pytest.raises(FileError, match=r"part-000000000001-1\.arrow: \[Errno 28\]"):
                parts.append(table(2))
        assert parts.num_rows == 1
        parts.append(table(2))
        assert rows(parts) == [1, 2]


def test_a_broken_part_and_a_broken_manifest_are_named(out, tmp_path):
    with Parts(out, MANIFEST) as parts:
        parts.append(table(1))
    folder = tmp_path / "out.npy.parts"
    (part,) = folder.glob("*.arrow")
    part.write_bytes(b"broken")
    with pytest.raises(FileError, match=r"part-000000000000-1\.arrow"):
        Parts(out, MANIFEST)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(FileError, match=r"manifest\.json: no manifest; start over with --no-resume"):
        Parts(out, MANIFEST)
    with Parts(out, MANIFEST, restart=True) as parts:
        assert parts.num_rows == 0
