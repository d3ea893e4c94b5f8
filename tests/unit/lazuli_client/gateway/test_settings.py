import msgspec
import pytest

from lazuli_client.gateway.settings import GatewaySettings


def test_settings_survive_the_way_to_a_worker():
    settings = GatewaySettings(
        replicas=("a:1", "b:2"), aliases={"text-embedding-3-small": "embed"}, tokenizers={"embed": "x"}, timeout_s=3.5
    )
    assert msgspec.json.decode(msgspec.json.encode(settings), type=GatewaySettings) == settings


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"workers": 0}, "workers: 0"),
        ({"max_rows": 0}, "max_rows: 0"),
        ({"requests_per_s": -1.0}, "requests_per_s: -1"),
        ({"timeout_s": 0.01}, "timeout_s: 0.01"),
        ({"timeout_s": float("nan")}, "timeout_s: nan"),
        ({"probe_timeout_s": 1e9}, "probe_timeout_s: 1000000000"),
        ({"replicas": ()}, "replicas: at least one"),
        ({"replicas": ("a:1", "a:1")}, "replicas: a:1, a:1"),
        ({"replicas": ("nowhere",)}, "nowhere"),
        ({"models": ("embed", "")}, "models: '', but it must be the name of a model"),
        ({"models": (" ",)}, "models: ' ', but it must be the name of a model"),
        ({"host": ""}, "host: '', but it must be an address to listen on"),
        ({"replicas": ("",)}, "replicas: one of them is empty"),
        ({"tokenizers": {"embed": ""}}, "tokenizers: one of them is empty"),
        ({"cors_origins": ("",)}, "cors_origins: one of them is empty"),
        ({"models": ("em\0bed",)}, r"models: 'em\\x00bed', but"),
        ({"aliases": {"x": "y"}}, "aliases: y is not among"),
        ({"tokenizers": {"y": "x"}}, "tokenizers: y is not among"),
        ({"tls_cert": "x"}, "tls_cert and tls_key"),
    ],
)
def test_what_is_out_of_range_is_named(values, words):
    with pytest.raises(ValueError, match=words):
        GatewaySettings(**values)


def test_a_worker_refuses_a_name_with_a_nul():
    with pytest.raises(ValueError, match=r"models: 'a\\x00b', but it must be the name of a model"):
        msgspec.json.decode(b'{"models": ["a\\u0000b"]}', type=GatewaySettings)
