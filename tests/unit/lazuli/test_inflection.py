import pytest

from lazuli.inflection import find_inflection

SIZES = (1024, 2048, 4096, 8192, 16384)


def find(launch_s, sizes=SIZES):
    """Replays take 1 us a token."""
    return find_inflection(sizes, lambda size: launch_s, lambda size: size * 1e-6)


@pytest.mark.parametrize(
    ("launch_s", "expected"),
    [(20e-3, 16384), (3e-3, 16384), (2e-3, 16384), (1e-3, 8192), (0.5e-3, 4096), (0.2e-3, 2048), (1e-5, 1024)],
)
def test_where_launching_is_a_small_part(launch_s, expected):
    assert find(launch_s) == expected


def test_one_that_may_be_slower_ends_the_search():
    assert find_inflection(SIZES, lambda size: {4096: 9e-3}.get(size, 0.0), lambda size: size * 1e-6) == 8192


def test_no_more_is_measured_than_needed():
    seen = []
    find_inflection(SIZES, lambda size: seen.append(size) or 700, lambda size: size)
    assert seen == [16384, 8192, 4096]


def test_one_size():
    assert find(1.0, [512]) == 512
