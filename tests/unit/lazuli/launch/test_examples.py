import ast
import json
import shlex

import pytest

from lazuli.launch.addresses import Addresses
from lazuli.launch.examples import curl_example, examples, python_example
from lazuli.launch.options import ServeOptions

ADDRESSES = Addresses.of(ServeOptions())


@pytest.mark.parametrize("models", [["embed"], ["embed_stream"], ["tokenizer", "embed", "embed_stream"]])
def test_the_examples_parse(models):
    words = shlex.split(curl_example(ADDRESSES, models))
    assert words[:2] == ["curl", "-s"]
    assert json.loads(words[-1]) == {"text": "A cat sleeps."}
    code = python_example(ADDRESSES, models).split("\n", 1)[1].removesuffix("\nEND")
    ast.parse(code)
    assert '"127.0.0.1:8001"' in code


def test_other_models_have_no_example():
    assert examples(ADDRESSES, ["rerank"]) == ""


@pytest.mark.parametrize(("host", "http"), [("0.0.0.0", "127.0.0.1:8000"), ("::", "[::1]:8000")])
def test_every_interface_is_reached_over_loopback(host, http):
    assert Addresses.of(ServeOptions(host=host)).http == http
