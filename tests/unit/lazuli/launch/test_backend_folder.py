import os

from lazuli.launch.backend_folder import assemble_backend
from lazuli.launch.server_binary import python_tag


def test_backend_and_stub_lie_together(wheel, tmp_path):
    folder = assemble_backend(wheel, tmp_path / "cache")
    assert folder.name == f"wheel-1.0-py{python_tag()}"
    names = {path.name for path in (folder / "python").iterdir()}
    assert names == {"libtriton_python.so", "triton_python_backend_utils.py", "triton_python_backend_stub"}
    assert os.access(folder / "python" / "triton_python_backend_stub", os.X_OK)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_an_intact_folder_is_kept(wheel, tmp_path):
    folder = assemble_backend(wheel, tmp_path)
    before = folder.stat().st_ino
    assert assemble_backend(wheel, tmp_path).stat().st_ino == before


def test_a_broken_folder_is_made_again(wheel, tmp_path):
    folder = assemble_backend(wheel, tmp_path)
    (folder / "python" / "libtriton_python.so").write_bytes(b"")
    (folder / "python" / "triton_python_backend_stub").unlink()
    assemble_backend(wheel, tmp_path)
    assert (folder / "python" / "libtriton_python.so").read_bytes() == b"backend"
    assert (folder / "python" / "triton_python_backend_stub").is_file()
