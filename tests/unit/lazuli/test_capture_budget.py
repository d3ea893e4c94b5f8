import pytest

from lazuli.capture_budget import CaptureBudget


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_one_is_allowed_at_once_and_the_next_when_its_time_is_earned(clock):
    budget = CaptureBudget(0.01, clock)
    assert budget.allows()
    budget.spend(0.030)
    assert not budget.allows()
    clock.now += 1.9
    assert not budget.allows()
    clock.now += 0.2
    assert budget.allows()


def test_over_a_long_time_it_is_the_share(clock):
    budget = CaptureBudget(0.02, clock)
    captures = 0
    for _ in range(100_000):  # 1000 s
        clock.now += 0.01
        if budget.allows():
            budget.spend(0.04)
            captures += 1
    assert captures * 0.04 == pytest.approx(20, rel=0.01)


def test_a_long_gap_does_not_save_up(clock):
    budget = CaptureBudget(0.01, clock)
    clock.now += 3600
    assert budget.allows()
    budget.spend(0.02)
    assert not budget.allows()


def test_no_share_allows_nothing(clock):
    budget = CaptureBudget(0.0, clock)
    clock.now += 10
    assert not budget.allows()
