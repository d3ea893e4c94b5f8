import ast
import json
import os
import re
import shlex

import pytest
from typer.testing import CliRunner

from lazuli import cli
from lazuli.launch.folders import user_models
from lazuli.repository.text import size


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*args, code=0, **settings):
        result = CliRunner().invoke(cli.app, ["model", *map(str, args)], **settings)
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        return result

    return run


def test_add_list_remove(run, checkpoint):
    shown = run("add", "docs", "--checkpoint", "tiny", "--repository", "models", "--max-seq-length", 32).stdout
    assert re.search(r"^added docs to \S+/models: docs, docs\.embedding, ", shown)
    for line in ("dimension     32", "limit         32 tokens a text", "prompts       query, document", "BertModel"):
        assert line in shown
    assert re.search(r"weights +\d+\.\d kB, [\d,]+ numbers, float32; each of the two doors loads its own copy", shown)
    lines = run("list", "--repository", "models").stdout.splitlines()
    assert re.split(" {2,}", lines[0]) == [
        *("name", "task", "architecture", "output", "dimension", "limit", "pooling", "dtype", "checkpoint", "state")
    ]
    expected = ["docs", "embed", "BertModel", "dense", "32", "32", "mean", "auto", str(checkpoint), "complete"]
    assert re.split(" {2,}", lines[1]) == expected
    assert run("remove", "docs", "--repository", "models", "--yes").stdout.startswith("removed docs.tokenizer, ")
    assert os.listdir("models") == []


def test_how_to_call_it_is_shown(run, checkpoint, tmp_path):
    shown = run("add", "docs", "--checkpoint", "tiny", "--repository", "my models").stdout
    paragraphs = shown.split("\n\n")
    serve = next(shlex.split(text) for text in paragraphs if " serve " in text)
    assert serve[1:] == ["serve", "--model-repository", str(tmp_path / "my models"), "--model", "docs"]
    curl = next(shlex.split(text) for text in paragraphs if text.startswith("curl"))
    assert "/v2/models/docs/generate" in curl[2]
    assert json.loads(curl[-1])
    code = next(text for text in paragraphs if "<<'END'" in text)
    ast.parse(code.split("\n", 1)[1].removesuffix("\nEND"))
    assert 'model="docs"' in code
    assert paragraphs[-1].strip().endswith("lazuli embed FILE -o vectors.parquet --model docs")


def test_by_default_the_users_folder(run, checkpoint):
    shown = run("add", "docs", "--checkpoint", "tiny", "--door", "stream").stdout
    assert "lazuli serve --model docs" in shown
    assert "docs.stream/generate" in shown
    assert "--model docs\n" not in shown.split("Then call it")[1], "lazuli embed needs the unary door"
    listed = run("list").stdout
    assert re.search(r"^embed +embed +BertModel +dense +384", listed, re.MULTILINE)
    assert re.search(
        rf"^{re.escape(str(user_models()))}\nname .*\ndocs .* complete \(stream only\)$", listed, re.MULTILINE
    )
    run("remove", "docs", "-y")


def test_a_model_that_reranks(run, reranker):
    shown = run("add", "judge", "--checkpoint", reranker, "--repository", "models", "--max-seq-length", 32).stdout
    for line in ("task          rerank", "limit         32 tokens a pair", "scores        logits"):
        assert line in shown
    assert "each of the two doors" not in shown
    curl = next(shlex.split(text) for text in shown.split("\n\n") if text.startswith("curl"))
    assert sorted(json.loads(curl[-1])) == ["document", "query"]
    assert 'client.rerank("' in shown
    assert shown.strip().endswith("lazuli rerank QUERY FILE --model judge")
    line = run("list", "--repository", "models").stdout.splitlines()[1]
    expected = ["judge", "rerank", "BertForSequenceClassification", "score", "-", "32", "cls"]
    assert re.split(" {2,}", line)[:7] == expected
    assert line.endswith("  complete")


def test_a_model_that_classifies(run, classifier):
    shown = run("add", "moods", "--checkpoint", classifier, "--repository", "models").stdout
    assert "labels        good, bad, neither (softmax)" in shown
    assert 'client.classify(["' in shown
    assert shown.strip().endswith("lazuli classify FILE --model moods")


def test_remove_asks(run, checkpoint):
    run("add", "docs", "--checkpoint", "tiny", "--repository", "models")
    asked = run("remove", "docs", "--repository", "models", input="n\n", code=1)
    assert "remove docs.tokenizer, docs.embedding, docs.embedding_stream, docs, docs.stream from " in asked.output
    run("remove", "docs", "--repository", "models", input="", code=1)
    assert len(os.listdir("models")) == 5
    run("remove", "docs", "--repository", "models", input="y\n")
    assert os.listdir("models") == []


def test_any_parameter_can_be_set(run, checkpoint):
    prompts = json.dumps({"title": "a=b"})
    run(
        "add",
        "docs",
        "--checkpoint",
        "tiny",
        "--repository",
        "models",
        "--set",
        f"prompts={prompts}",
        "--set",
        "threads=2",
    )
    text = (checkpoint.parent / "models" / "docs.tokenizer" / "config.pbtxt").read_text()
    assert '{ key: "prompts", value: { string_value: "{\\"title\\": \\"a=b\\"}" } }' in text
    assert '{ key: "threads", value: { string_value: "2" } }' in text


def test_a_broken_model_is_listed_with_what_it_lacks(run, checkpoint):
    run("add", "docs", "--checkpoint", "tiny", "--repository", "models")
    (checkpoint / "model.safetensors").unlink()
    assert "incomplete: checkpoint: " in run("list", "--repository", "models").stdout


@pytest.mark.parametrize(
    ("args", "code", "match"),
    [
        (("add", "embed", "--checkpoint", "tiny"), 2, "name: 'embed' is a built-in model"),
        (("add", "a", "--checkpoint", "nowhere"), 2, "--checkpoint nowhere: not a folder"),
        (
            ("add", "a", "--checkpoint", "tiny", "--max-seq-length", "65"),
            2,
            "max_seq_length: 65, but the model takes 64",
        ),
        (("add", "a", "--checkpoint", "tiny", "--pooling", "max"), 2, "pooling: 'max' is not one of"),
        (("add", "a", "--checkpoint", "tiny", "--set", "threads"), 2, "--set 'threads' is not NAME=VALUE"),
        (("add", "a", "--checkpoint", "tiny", "--set", "checkpoint=/x"), 2, "use --checkpoint"),
        (("add", "a", "--checkpoint", "tiny", "--task", "translate"), 2, "'translate' is not"),
        (("add", "a", "--checkpoint", "tiny", "--task", "classify"), 2, "BertModel has no labels; task classify needs"),
        (("add", "a"), 2, "Missing option"),
        (("remove", "a", "--yes"), 2, "there is no model 'a' in .*; there are: none"),
        (("remove", "embed", "--yes"), 2, "built-in"),
        (("list", "--repository", "nowhere"), 2, "--repository nowhere is not a folder"),
        (("add", "a", "--checkpoint", "tiny", "--repository", "/proc/models"), 1, "nothing was changed"),
    ],
)
def test_errors(run, checkpoint, args, code, match):
    assert re.search(match, run(*args, code=code).stderr)
    assert not user_models().exists()


def test_an_error_with_its_remedy_and_no_pickle(run, checkpoint):
    (checkpoint / "model.safetensors").rename(checkpoint / "pytorch_model.bin")
    error = run("add", "a", "--checkpoint", "tiny", code=2).stderr
    first, second = error.splitlines()
    assert first.startswith("lazuli: checkpoint: the weights of ")
    assert second.startswith("to mend it: convert it, if you trust where it is from: python -c ")


@pytest.mark.parametrize(
    ("num_bytes", "expected"), [(0, "0 bytes"), (999, "999 bytes"), (90_868_376, "90.9 MB"), (16e9, "16.0 GB")]
)
def test_sizes(num_bytes, expected):
    assert size(int(num_bytes)) == expected
