import stat

from lazuli.launch.shared_memory import keep_private, new_prefix


def test_regions_of_one_server_are_taken_from_other_accounts(tmp_path):
    ours, theirs = new_prefix(), new_prefix()
    for name in (f"{ours}a", f"{ours}b", f"{theirs}a"):
        (tmp_path / name).touch(0o644)
    keep_private(ours, tmp_path)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {f"{ours}a": 0o600, f"{ours}b": 0o600, f"{theirs}a": 0o644}
