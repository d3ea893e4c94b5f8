"""A server on another checkpoint: its prompts, its limit, and a model that computes NaN for one word."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tritonclient.utils import InferenceServerException

from lazuli.checkpoint import resolve_checkpoint
from lazuli.launch.options import Door, ServeOptions
from lazuli.launch.running import running_server

from .conftest import assert_same_vectors
from .wire import DOORS, grpc_infer

POISON = "zebra"


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory):
    """MiniLM with prompts, a limit of 32 tokens, and NaN in the embedding of one word."""
    folder = tmp_path_factory.mktemp("poisoned") / "checkpoint"
    shutil.copytree(resolve_checkpoint("all-MiniLM-L6-v2"), folder)
    vocabulary = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    weights = load_file(folder / "model.safetensors")
    weights["embeddings.word_embeddings.weight"][vocabulary[POISON]] = torch.nan
    save_file(weights, folder / "model.safetensors")
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 32}))
    prompts = {"prompts": {"query": "query: ", "title": "title of {text}: "}, "default_prompt_name": None}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    return folder


@pytest.fixture(scope="module")
def poisoned_server(poisoned):
    with running_server(ServeOptions(checkpoint=str(poisoned))) as running:
        yield running


@pytest.mark.parametrize("door", DOORS, ids=list(DOORS))
def test_tei_644_a_vector_that_is_not_finite_is_an_error_of_its_request_alone(poisoned_server, reference, door):
    texts, expected = reference[0][:3], reference[1][:3]
    short = [text[:60] for text in texts]
    with pytest.raises(Exception, match=r"embedding\[1\]: the model computed NaN or Inf"):
        DOORS[door](poisoned_server, ["fine", f"a {POISON} crossing"])
    vectors, _ = DOORS[door](poisoned_server, short)
    assert np.isfinite(vectors).all()
    assert vectors.shape == expected.shape


def test_a_good_request_in_the_batch_of_a_bad_one_is_answered(poisoned_server, sentence_transformer):
    from concurrent.futures import ThreadPoolExecutor

    good = [f"good text {number}" for number in range(32)]
    expected = sentence_transformer.encode(good, show_progress_bar=False)

    def client(number):
        if number % 2:
            with pytest.raises(InferenceServerException, match="NaN or Inf"):
                grpc_infer(poisoned_server, [POISON])
        else:
            assert_same_vectors(grpc_infer(poisoned_server, [good[number]])[0], expected[number : number + 1])

    with ThreadPoolExecutor(32) as clients:
        list(clients.map(client, range(32)))


@pytest.mark.parametrize("name", ["query", "title"])
def test_prompts_of_the_checkpoint(poisoned_server, sentence_transformer, name):
    prefix = {"query": "query: ", "title": "title of {text}: "}[name]
    texts = ["how tall is a giraffe", "{text}"]
    expected = sentence_transformer.encode([prefix + text for text in texts], show_progress_bar=False)
    for door in DOORS.values():
        assert_same_vectors(door(poisoned_server, texts, prompt_name=name)[0], expected)


@pytest.mark.parametrize(("input_type", "prefix"), [("query", "query: "), ("document", "")])
def test_the_input_type_takes_the_prompt_that_there_is(poisoned_server, sentence_transformer, input_type, prefix):
    texts = ["how tall is a giraffe"]
    expected = sentence_transformer.encode([prefix + text for text in texts], show_progress_bar=False)
    for door in DOORS.values():
        assert_same_vectors(door(poisoned_server, texts, input_type=input_type)[0], expected)


def test_an_unknown_prompt_is_refused_with_those_there_are(poisoned_server):
    with pytest.raises(InferenceServerException, match="'document' is not known; this model has 'query', 'title'"):
        grpc_infer(poisoned_server, ["a"], prompt_name="document")


def test_the_limit_of_the_checkpoint(poisoned_server):
    with pytest.raises(InferenceServerException, match="33 tokens, but at most 32"):
        grpc_infer(poisoned_server, [" ".join(["word"] * 31)])


def test_names_and_prompts_in_any_script(tmp_path, poisoned, sentence_transformer):
    """The Python inside the stub takes the environment for ASCII, whatever the locale."""
    folder = tmp_path / "mödel 模型"
    shutil.copytree(poisoned, folder)
    options = ServeOptions(checkpoint=str(folder), door=Door.UNARY)
    with running_server(options, environment={"LAZULI_PROMPTS": '{"früh": "für: "}'}) as running:
        vectors, _ = grpc_infer(running, ["hello"], prompt_name="früh")
    assert_same_vectors(vectors, sentence_transformer.encode(["für: hello"], show_progress_bar=False))
