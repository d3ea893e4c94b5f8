"""The command as a person runs it, on the packaged MiniLM."""

import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from lazuli.config import TokenizerConfig
from lazuli.launch.options import Dtype
from lazuli.verify import command
from lazuli.verify.candidate import Candidate
from lazuli.verify.reference import LIBRARIES

NAME = "all-MiniLM-L6-v2"


@pytest.fixture(scope="module")
def verify(tmp_path_factory):
    texts = tmp_path_factory.mktemp("verify") / "texts.json"
    content = {
        "documents": ["Bees dance to tell where nectar is.", "Yeast makes dough rise.", "The moon causes the tides."],
        "queries": [{"text": "why does bread rise", "relevant": {"1": 1}}],
    }
    texts.write_text(json.dumps(content))
    app = typer.Typer()
    command.register(app)

    def verify(*arguments):
        words = ["--texts", str(texts), *arguments] if "--texts" not in arguments else list(arguments)
        return CliRunner().invoke(app, words)

    return verify


@pytest.mark.parametrize("reference", list(LIBRARIES))
def test_against_libraries(verify, reference):
    result = verify(NAME, "--reference", reference, "--min-cosine", "0.999999", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout.splitlines()[-1])["ndcg"] == 1.0


def test_a_file_is_written_and_held_against(verify, tmp_path):
    file = tmp_path / "vectors.npz"
    assert verify(NAME, "--save", str(file)).exit_code == 0
    assert verify(NAME, "--reference", str(file), "--min-cosine", "0.9999999").exit_code == 0
    other = verify(NAME, "--reference", str(file), "--pooling", "cls")
    assert other.exit_code == 1
    assert "cosine, least" in other.output
    assert other.output.rstrip().endswith("FAILED")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing", "--reference", "transformers"), "'nothing' is neither a folder nor"),
        ((NAME, "--reference", "nothing.npz"), "'nothing.npz' is neither a file nor one of transformers"),
        ((NAME, "--min-cosine", "2"), "min_cosine: 2, but it must be from -1 to 1"),
        ((NAME, "--texts", "nothing.json"), "nothing.json: cannot be read"),
        ((NAME, "--attention", "nothing"), "attention: 'nothing'"),
        (("embed", "--url", "localhost:1"), "checkpoint: needed with --url"),
        (("embed", "--task", "rerank"), "task: rerank, but the model 'embed' is for the task embed"),
        ((NAME, "--task", "classify"), "BertModel has no labels"),
        ((NAME, "--output", "int8"), "lazuli calibrate"),
        ((NAME, "--output", "multi"), "the model has no such output"),
        ((NAME, "--output", "binary", "--min-cosine", "0.9"), "min_cosine: not a limit of binary"),
        ((NAME, "--reference", "none"), "reference: none is only of use with --save"),
    ],
)
def test_mistakes_end_with_2_and_say_what_is_wrong(verify, arguments, said):
    result = verify(*arguments)
    assert result.exit_code == 2, result.output
    assert said in result.output


def test_a_file_of_something_else(verify, tmp_path):
    file = tmp_path / "other.npz"
    np.savez(file, vectors=np.ones(3))
    result = verify(NAME, "--reference", str(file))
    assert result.exit_code == 2
    assert "does not hold queries and documents" in result.output


def test_where_vectors_cannot_be_saved(verify, tmp_path):
    result = verify(NAME, "--save", str(tmp_path / "missing" / "vectors.npz"))
    assert result.exit_code == 2
    assert "cannot be written" in result.output


def test_references_read_texts_as_the_model_does():
    """With the prompts of the checkpoint and of the configuration, cut where the model cuts."""
    from types import SimpleNamespace

    from lazuli.verify.reading import Reading

    checkpoint = SimpleNamespace(prompts={"search_query": "find: ", "passage": "about: "}, max_seq_length=64)
    reading = Reading.of(checkpoint, TokenizerConfig())
    assert (dict(reading.prompts), reading.max_seq_length) == ({"query": "find: ", "document": "about: "}, 64)
    reader = TokenizerConfig(prompts='{"query": "q: "}', max_seq_length=32)
    reading = Reading.of(checkpoint, reader)
    assert (dict(reading.prompts), reading.max_seq_length) == ({"query": "q: ", "document": "about: "}, 32)
    reading = Reading.of(SimpleNamespace(prompts={}, max_seq_length=64), TokenizerConfig())
    assert dict(reading.prompts) == {"query": "", "document": ""}


def test_a_model_of_a_repository_has_its_own_parameters(monkeypatch):
    monkeypatch.setenv("LAZULI_DTYPE", "float32")
    monkeypatch.setenv("LAZULI_MAX_SEQ_LENGTH", "64")
    monkeypatch.setenv("LAZULI_PROMPTS", '{"query": "find: "}')
    engine, tokenizer = Candidate("embed", dtype=Dtype.BFLOAT16).configure()
    assert (engine.checkpoint, engine.dtype, tokenizer.max_seq_length) == (NAME, "bfloat16", 64)
    assert tokenizer.parsed_prompts() == {"query": "find: "}
