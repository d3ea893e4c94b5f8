import pytest

from lazuli_client.cli import CLI_RETRIES
from lazuli_client.errors import (
    ConnectionFailedError,
    DeadlineError,
    InvalidInputError,
    ServerError,
    UnavailableError,
)
from lazuli_client.retry import MIN_TIMEOUT_S, RetryPolicy
from lazuli_client.settings import Settings


def test_delays_double_up_to_the_cap():
    policy = RetryPolicy(retries=10, base_s=0.1, cap_s=1.0)
    assert [policy.delay_s(attempt, lambda: 1.0) for attempt in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert policy.delay_s(5000, lambda: 1.0) == 1.0


def span_s(policy, uniform):
    return sum(policy.delay_s(attempt, lambda: uniform) for attempt in range(policy.retries))


@pytest.mark.parametrize(("retries", "seconds"), [(Settings().retries, 31), (CLI_RETRIES, 40)])
def test_the_defaults_outlast_a_restart_of_the_server_within_the_timeout(retries, seconds):
    policy = Settings(retries=retries).retry
    assert span_s(policy, 0.5) == pytest.approx(seconds, rel=0.1)
    assert span_s(policy, 0.0) > seconds / 2
    assert span_s(policy, 1.0) < Settings().timeout_s


def test_jitter_spreads_over_the_upper_half():
    policy = RetryPolicy()
    assert policy.delay_s(1, lambda: 0.0) == pytest.approx(0.1)
    drawn = {policy.delay_s(1) for _ in range(50)}
    assert len(drawn) > 1
    assert all(0.1 <= delay_s <= 0.2 for delay_s in drawn)


@pytest.mark.parametrize("kind", [UnavailableError, ConnectionFailedError])
def test_retries_are_bounded(kind):
    policy = RetryPolicy(retries=2)
    assert policy.next_delay_s(kind("x"), 0, 60) is not None
    assert policy.next_delay_s(kind("x"), 1, 60) is not None
    assert policy.next_delay_s(kind("x"), 2, 60) is None


@pytest.mark.parametrize("kind", [InvalidInputError, DeadlineError, ServerError])
def test_other_errors_are_final(kind):
    assert RetryPolicy().next_delay_s(kind("x"), 0, 60) is None


def test_a_retry_never_leaves_a_deadline_that_crashes_the_server():
    policy = RetryPolicy(base_s=1.0)
    assert policy.next_delay_s(UnavailableError("x"), 0, 1.0 + MIN_TIMEOUT_S) is not None
    assert policy.next_delay_s(UnavailableError("x"), 0, 0.5 + MIN_TIMEOUT_S / 2) is None
