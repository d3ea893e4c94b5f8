import numpy as np
import pytest

from lazuli_client import LazuliClient
from lazuli_client.request import EmbedRequest
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


@pytest.mark.parametrize("timeout_s", [0.05, 0, -1, -float("inf")])
def test_short_timeouts_are_refused_with_the_reason(timeout_s):
    with pytest.raises(ValueError, match=r"timeout_s.*at least 0\.1.*crash Triton 24\.10"):
        LazuliClient(timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rows_per_request", 1025),
        ("retries", -1),
        ("max_in_flight", 0),
        ("rows_per_request", 0),
        ("chars_per_request", 0),
    ],
)
def test_limits_out_of_range_are_named(name, value):
    with pytest.raises(ValueError, match=f"{name}: {value}"):
        Settings(**{name: value})


@pytest.mark.parametrize("name", ["retries", "max_in_flight", "rows_per_request", "chars_per_request"])
@pytest.mark.parametrize("value", ["3", None, True, 2.5])
def test_limits_are_integers(name, value):
    with pytest.raises(ValueError, match=f"{name}: must be an integer, got {value!r}"):
        LazuliClient(**{name: value})
    assert getattr(Settings(**{name: np.int64(3)}), name) == 3


@pytest.mark.parametrize("model", ["", None, "embed\0x", "two\nlines"])
def test_a_model_has_a_name(model):
    with pytest.raises(ValueError, match="model: must be the name of a model, got"):
        LazuliClient(model=model)


def test_unknown_protocol():
    with pytest.raises(ValueError, match='protocol: must be "grpc" or "http"'):
        Settings(protocol="smtp")


@pytest.mark.parametrize("timeout_s", [float("inf"), float("nan"), 1e9])
def test_endless_timeouts_are_refused_with_the_reason(timeout_s):
    with pytest.raises(ValueError, match=r"timeout_s: .*at most 86400 \(a day\): without a deadline.*wait for ever"):
        LazuliClient(timeout_s=timeout_s)


def test_the_servers_limit_of_rows_is_named():
    assert Settings(rows_per_request=1024).rows_per_request == 1024
    with pytest.raises(ValueError, match="the server takes at most 1024 rows"):
        Settings(rows_per_request=1025)


def test_an_unknown_workload():
    with pytest.raises(ValueError, match="workload: must be one of query, bulk, got 'urgent'"):
        Settings(workload="urgent")


@pytest.mark.parametrize("url", ["h:1", "127.0.0.1:65535", "[::1]:8001", "a-b.example:8001", "my_host:1"])
def test_addresses(url):
    assert Settings(url=url).address == url
    assert Settings(url=url, protocol="http").address == url


def test_http_may_have_a_path():
    assert Settings(url="http://proxy:80/lazuli/", protocol="http").address == "proxy:80/lazuli"


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize(
    ("url", "match"),
    [
        ("h:65536", "out of range"),
        ("h:70000", "out of range"),
        ("h:-1", "[Pp]ort"),
        ("h:0", "no port"),
        ("h", "no port"),
        ("h:", "no port"),
        ("h:x", "[Pp]ort"),
        (":8001", "no host"),
        ("a:b:1", "[Pp]ort"),
        ("::1", "[Pp]ort"),
        ("[::1:8001", "Invalid IPv6"),
        ("h :1", "blank"),
        ("h:1\n", "control"),
        ("user@h:1", "more than"),
        ("h:1?x=1", "more than"),
    ],
)
def test_malformed_urls_are_refused(url, match, protocol):
    with pytest.raises(ValueError, match=rf"(?s)^url: .*{match}.*give host:port"):
        Settings(url=url, protocol=protocol)


def test_grpc_has_no_path():
    with pytest.raises(ValueError, match="more than a host and a port"):
        Settings(url="h:1/path")


@pytest.mark.parametrize(
    ("left_s", "deadline_ms"), [(0.1, 90), (0.5, 450), (10.0, 9000), (60.0, 59_000), (86_400.0, 86_399_000)]
)
def test_a_request_is_dropped_shortly_before_it_is_given_up(left_s, deadline_ms):
    request = EmbedRequest("embed", {}, {"truncate": "end"}, [0])
    assert Settings().mark(request, left_s).parameters == {"truncate": "end", "deadline_ms": deadline_ms}
    marked = Settings(workload="bulk").mark(request, left_s)
    assert marked.parameters == {"truncate": "end", "workload": "bulk", "deadline_ms": deadline_ms}
    assert Settings().mark(request) is request
    assert request.parameters == {"truncate": "end"}


def test_the_models_for_tokens_and_streams_follow_the_model():
    def names(**given):
        settings = Settings(**given)
        return settings.model, settings.token_model, settings.stream_model

    assert names() == ("embed", "embedding", "embed_stream")
    assert names(model="docs") == ("docs", "docs.embedding", "docs.stream")
    assert names(model="docs", stream_model="mine") == ("docs", "docs.embedding", "mine")
