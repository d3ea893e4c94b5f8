import pytest

from lazuli_client import LazuliClient
from lazuli_client.settings import Settings


def test_default_addresses():
    assert Settings().address == "localhost:8001"
    assert Settings(protocol="http").address == "localhost:8000"


def test_a_fitting_scheme_is_taken_off():
    assert Settings(url="http://host:1/", protocol="http").address == "host:1"
    assert Settings(url="grpc://host:1").address == "host:1"


@pytest.mark.parametrize("url", ["https://host:1", "http://host:1"])
def test_another_scheme_is_refused(url):
    with pytest.raises(ValueError, match="does not fit protocol 'grpc'"):
        Settings(url=url)


@pytest.mark.parametrize("timeout_s", [0.05, 0, -1, float("nan")])
def test_short_timeouts_are_refused_with_the_reason(timeout_s):
    with pytest.raises(ValueError, match=r"timeout_s.*at least 0\.1.*crash Triton 24\.10"):
        LazuliClient(timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("name", "value"),
    [("retries", -1), ("max_in_flight", 0), ("rows_per_request", 0), ("chars_per_request", 0)],
)
def test_limits_out_of_range_are_named(name, value):
    with pytest.raises(ValueError, match=f"{name}: {value}"):
        Settings(**{name: value})


def test_unknown_protocol():
    with pytest.raises(ValueError, match='protocol: must be "grpc" or "http"'):
        Settings(protocol="smtp")
