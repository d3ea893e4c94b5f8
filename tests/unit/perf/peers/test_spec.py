"""Targets as the command line names them."""

import argparse
from importlib.metadata import PackageNotFoundError

import pytest

from peers.registry import KINDS, open_peer
from peers.spec import Settings, TargetSpec, parse_target


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lazuli-grpc", TargetSpec("lazuli-grpc")),
        ("vllm=http://127.0.0.1:8090/a=b", TargetSpec("vllm", "http://127.0.0.1:8090/a=b")),
        (
            "lazuli-engine,dtype=bfloat16,label=a b",
            TargetSpec("lazuli-engine", None, {"dtype": "bfloat16", "label": "a b"}),
        ),
        (
            "tei=http://h:1,route=openai,command=run --x 1,2 --y=3",
            TargetSpec("tei", "http://h:1", {"route": "openai", "command": "run --x 1,2 --y=3"}),
        ),
    ],
)
def test_kind_address_and_options(text, expected):
    assert parse_target(text) == expected


def test_a_word_without_a_value_is_refused():
    with pytest.raises(argparse.ArgumentTypeError, match="'bfloat16' is not NAME=VALUE"):
        parse_target("lazuli-engine,bfloat16")


def test_an_unknown_kind_names_those_that_there_are():
    with pytest.raises(ValueError, match=r"'vllmm'; there are lazuli-grpc, .* onnxruntime"):
        open_peer(TargetSpec("vllmm"), Settings("x"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_refuses_an_option_that_it_does_not_know(kind):
    spec = TargetSpec(kind, "http://127.0.0.1:9", {"dtpye": "float32"})
    with pytest.raises(ValueError, match=f"{kind} has no option dtpye; it has"), open_peer(spec, Settings("x")):
        pass


def test_a_package_that_is_missing_is_named(monkeypatch):
    def missing(package):
        raise PackageNotFoundError(package)

    monkeypatch.setattr("peers.packages.version", missing)
    with pytest.raises(ValueError, match="onnxruntime is not installed here: pip install onnxruntime onnx onnxscript"):
        open_peer(TargetSpec("onnxruntime"), Settings("x")).__enter__()
