import pytest

from lazuli.launch.errors import LaunchError
from lazuli.launch.restarts import WINDOW_S, Restarts


def test_pauses_double_up_to_a_minute():
    restarts = Restarts(limit=9, clock=lambda: 0.0)
    assert [restarts.next_pause_s("x") for _ in range(9)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_too_many_are_an_error_with_the_last_fault():
    restarts = Restarts(limit=2, clock=lambda: 0.0)
    restarts.next_pause_s("one")
    restarts.next_pause_s("two")
    with pytest.raises(LaunchError, match="gave up after 2 restarts within 10 minutes: three"):
        restarts.next_pause_s("three")


def test_what_is_long_ago_is_forgiven():
    now = [0.0]
    restarts = Restarts(limit=2, clock=lambda: now[0])
    for now[0] in (0.0, 1.0):
        restarts.next_pause_s("x")
    now[0] = WINDOW_S + 0.5
    assert restarts.next_pause_s("x") == 2
    assert restarts.recent == 2
    now[0] = 3 * WINDOW_S
    assert restarts.next_pause_s("x") == 1
    assert restarts.total == 4


def test_none_at_all():
    with pytest.raises(LaunchError):
        Restarts(limit=0).next_pause_s("x")
