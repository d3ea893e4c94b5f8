import ast
import json
import shlex

import pytest

from lazuli.launch.addresses import Addresses
from lazuli.launch.examples import examples
from lazuli.launch.options import ServeOptions

ADDRESSES = Addresses.of(ServeOptions())


STEPS = ["tokenizer", "embedding", "embedding_stream"]
DOCS = ["docs", "docs.stream", "docs.tokenizer", "docs.embedding", "docs.embedding_stream"]


@pytest.mark.parametrize(
    ("folders", "called", "client"),
    [
        (["tokenizer", "embedding", "embed"], "embed", '"127.0.0.1:8001")'),
        (["tokenizer", "embedding_stream", "embed_stream"], "embed_stream", '"127.0.0.1:8001")'),
        ([*DOCS, *STEPS, "embed", "embed_stream"], "embed", '"127.0.0.1:8001")'),
        (DOCS, "docs", '"127.0.0.1:8001", model="docs")'),
        (["docs.tokenizer", "docs.embedding_stream", "docs.stream"], "docs.stream", '"127.0.0.1:8001", model="docs")'),
    ],
)
def test_the_examples_parse(folders, called, client):
    curl, python = examples(ADDRESSES, folders).split("\n\n")
    words = shlex.split(curl)
    assert words[:3] == ["curl", "-s", f"http://127.0.0.1:8000/v2/models/{called}/generate"]
    assert json.loads(words[-1]) == {"text": "A cat sleeps."}
    code = python.split("\n", 1)[1].removesuffix("\nEND")
    ast.parse(code)
    assert f"LazuliClient({client}" in code
    assert ("embed_iter" in code) == called.endswith("stream")


@pytest.mark.parametrize(
    ("steps", "body", "call"),
    [
        ((".rerank_tokenizer", ".reranking"), {"query": "Who sleeps?", "document": "A cat sleeps."}, "client.rerank("),
        ((".classify_tokenizer", ".classification"), {"text": "A cat sleeps."}, "client.classify("),
    ],
)
def test_each_task_has_its_own(steps, body, call):
    curl, python = examples(ADDRESSES, ["judge", *(f"judge{step}" for step in steps)]).split("\n\n")
    assert json.loads(shlex.split(curl)[-1]) == body
    code = python.split("\n", 1)[1].removesuffix("\nEND")
    ast.parse(code)
    assert call in code
    assert 'model="judge"' in code


def test_other_models_have_no_example():
    assert examples(ADDRESSES, ["resnet", "resnet.stream"]) == ""


@pytest.mark.parametrize(("host", "http"), [("0.0.0.0", "127.0.0.1:8000"), ("10.1.2.3", "10.1.2.3:8000")])
def test_every_interface_is_reached_over_loopback(host, http):
    assert Addresses.of(ServeOptions(host=host)).http == http


def test_chunks_come_with_their_documents():
    folders = ["docs", "docs.context_tokenizer", "docs.contextual"]
    curl, python = examples(ADDRESSES, folders).split("\n\n")
    assert json.loads(shlex.split(curl)[-1]) == {"text": "A cat sleeps.", "document": 0}
    code = python.split("\n", 1)[1].removesuffix("\nEND")
    ast.parse(code)
    assert 'model="docs"' in code
    assert "client.embed_context([[" in code
