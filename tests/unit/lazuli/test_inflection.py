import pytest

from lazuli.inflection import find_inflection

SIZES = (1024, 2048, 4096, 8192, 16384)


def find(launch_s, sizes=SIZES):
    """Replays take 1 us a token; eager runs the same, but no less than launching takes."""
    return find_inflection(sizes, lambda size: max(size * 1e-6, launch_s), lambda size: size * 1e-6)


@pytest.mark.parametrize(
    ("launch_s", "expected"),
    [(20e-3, 16384), (16e-3, 16384), (6e-3, 8192), (4e-3, 4096), (1.1e-3, 2048), (1e-4, 1024)],
)
def test_where_launching_no_longer_counts(launch_s, expected):
    assert find(launch_s) == expected


def test_a_little_slower_is_as_quick():
    assert find_inflection(SIZES, lambda size: 1.02, lambda size: 1.0) == 1024
    assert find_inflection(SIZES, lambda size: 1.05, lambda size: 1.0) == 16384


def test_no_more_is_measured_than_needed():
    seen = []
    find_inflection(SIZES, lambda size: seen.append(size) or max(size, 6000), lambda size: size)
    assert seen == [16384, 8192, 4096]


def test_one_size():
    assert find(1.0, [512]) == 512
