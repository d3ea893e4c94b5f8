"""Several models in one server, each equal to its own reference at every door."""

import json
from dataclasses import replace

import numpy as np
import pytest
import tokenizers
import torch
from tokenizers import models, pre_tokenizers, processors

from lazuli.launch.options import Door, ServeOptions
from lazuli.launch.probe import Prober
from lazuli.launch.probe_model import outer_models
from lazuli.launch.running import running_server
from lazuli.launch.watch import Watch
from lazuli.repository.addition import Wish, add
from lazuli_client import AsyncLazuliClient, InvalidInputError, LazuliClient, ModelNotFoundError

from .conftest import assert_same_vectors
from .serving import run
from .wire import grpc_infer, grpc_stream, http_generate, http_generate_stream, http_infer

TEXTS = ["w1 w2 w3", "w7", "w5 w5 unknown w9 w11 w12", "how tall is a giraffe"]
MINILM = "all-MiniLM-L6-v2"
VOCABULARY = 60


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A random BERT as transformers writes it, with a prompt, in a folder of an odd name."""
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("tiny") / 'mödel "模型"'
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=40,
        initializer_range=0.5,
    )
    BertModel(config).save_pretrained(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{number}" for number in range(VOCABULARY - 4))]
    tokenizer = tokenizers.Tokenizer(
        models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))
    prompts = {"prompts": {"query": "w20 w21 "}, "default_prompt_name": None}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    return folder


@pytest.fixture(scope="module")
def repository(tmp_path_factory, tiny):
    """MiniLM twice, with a short limit and with the first token's vector, and the tiny one."""
    folder = tmp_path_factory.mktemp("models") / "added"
    short = Wish("short", MINILM, folder, parameters={"max_seq_length": "20"})
    for wish in (
        short,
        replace(short, name="first-token.v1", door=Door.UNARY, parameters={"pooling": "cls"}),
        replace(short, name="tiny", checkpoint=str(tiny), parameters={"prompts": '{"früh": "w30 "}'}),
    ):
        add(wish, lambda text: None)
    return folder


@pytest.fixture(scope="module")
def several(repository):
    # What the environment says is meant for the built-in model.
    environment = {"LAZULI_MAX_SEQ_LENGTH": "16", "LAZULI_POOLING": "mean"}
    with running_server(ServeOptions(model_repositories=("built-in", repository)), environment=environment) as running:
        yield running


@pytest.fixture(scope="module")
def references(sentence_transformer, tiny):
    """Model name to a function of texts."""
    from transformers import BertModel

    def first_token(texts):
        inputs = sentence_transformer.tokenizer(texts, padding=True, return_tensors="pt")
        with torch.no_grad():
            hidden = sentence_transformer[0].auto_model(**inputs).last_hidden_state[:, 0]
        return torch.nn.functional.normalize(hidden).numpy()

    tokenizer, model = tokenizers.Tokenizer.from_file(str(tiny / "tokenizer.json")), BertModel.from_pretrained(tiny)

    def mean(texts):
        with torch.no_grad():
            rows = [torch.tensor([tokenizer.encode(text).ids]) for text in texts]
            return torch.cat([model(row).last_hidden_state.mean(1) for row in rows]).numpy()

    def whole(texts):
        return sentence_transformer.encode(texts, show_progress_bar=False)

    return {"embed": whole, "short": whole, "first-token.v1": first_token, "tiny": mean}


def assert_equal(model, actual, expected):
    if model == "tiny":  # has no module that scales to unit length
        np.testing.assert_allclose(actual, expected, atol=2e-5)
    else:
        assert_same_vectors(actual, expected)


def test_all_models_are_served(several):
    parts = {".tokenizer", ".embedding", ".embedding_stream", ".stream", ""}
    expected = {name + part for name in ("short", "tiny") for part in parts}
    expected |= {f"first-token.v1{part}" for part in (".tokenizer", ".embedding", "")}
    assert set(several.models) == expected | {"embed", "embed_stream", "embedding", "embedding_stream", "tokenizer"}


@pytest.mark.parametrize("door", [grpc_infer, http_infer, http_generate])
@pytest.mark.parametrize("model", ["embed", "short", "first-token.v1", "tiny"])
def test_each_equals_its_reference(several, references, model, door):
    vectors, _ = door(several, TEXTS, model=model)
    assert_equal(model, vectors, references[model](TEXTS))


@pytest.mark.parametrize("door", [grpc_stream, http_generate_stream])
@pytest.mark.parametrize(
    ("model", "stream"), [("embed", "embed_stream"), ("short", "short.stream"), ("tiny", "tiny.stream")]
)
def test_each_equals_its_reference_in_a_stream(several, references, model, stream, door):
    texts = [TEXTS[3], TEXTS[1]]
    vectors, _ = door(several, texts, model=stream)
    assert_equal(model, vectors, references[model](texts))


@pytest.mark.parametrize("model", ["embed", "short", "first-token.v1", "tiny"])
def test_the_client_needs_the_name_alone(several, references, model):
    expected = references[model](TEXTS[:2])
    with LazuliClient(several.grpc, model=model) as client:
        assert_equal(model, client.embed(TEXTS[:2]).embeddings, expected)
        assert client.health().is_ready
        assert client.embed_tokens([[2, 7, 3]]).embeddings.shape == (1, expected.shape[1])
        if model != "first-token.v1":
            vectors = np.empty_like(expected)
            for part in client.embed_iter(TEXTS[:2]):
                vectors[part.indices] = part.embeddings
            assert_equal(model, vectors, expected)
    with LazuliClient(several.http, protocol="http", model=model) as client:
        assert_equal(model, client.embed(TEXTS[:2]).embeddings, expected)


async def test_the_asyncio_client_too(several, references):
    async with AsyncLazuliClient(several.grpc, model="tiny") as client:
        assert_equal("tiny", (await client.embed(TEXTS[:2])).embeddings, references["tiny"](TEXTS[:2]))


@pytest.mark.parametrize(("model", "limit"), [("embed", 16), ("short", 20), ("first-token.v1", 256), ("tiny", 40)])
def test_each_has_its_own_limit(several, model, limit):
    with LazuliClient(several.grpc, model=model) as client:
        assert client.embed(" ".join(["a"] * (limit - 2))).token_counts.tolist() == [limit]
        with pytest.raises(InvalidInputError, match=f"{limit + 1} tokens, but at most {limit} are allowed"):
            client.embed(" ".join(["a"] * (limit - 1)))


def test_each_has_its_own_prompts(several, references):
    for name, prefix in (("query", "w20 w21 "), ("früh", "w30 ")):
        vectors, _ = grpc_infer(several, TEXTS[:2], model="tiny", prompt_name=name)
        assert_equal("tiny", vectors, references["tiny"]([prefix + text for text in TEXTS[:2]]))
    with LazuliClient(several.grpc, model="short") as client, pytest.raises(InvalidInputError, match="'query'"):
        client.embed("a", prompt_name="query")


def test_a_door_that_was_not_made_is_told(several):
    missing = pytest.raises(ModelNotFoundError, match=r"first-token\.v1\.stream.*lazuli model list")
    with LazuliClient(several.grpc, model="first-token.v1") as client, missing:
        list(client.embed_iter(["a"]))


def test_commands_take_the_name(several, references, tmp_path):
    (tmp_path / "in.txt").write_text("\n".join(TEXTS) + "\n")
    done = run("embed", tmp_path / "in.txt", "-o", tmp_path / "v.npy", "--url", several.grpc, "--model", "tiny")
    assert done.returncode == 0, done.stderr
    assert_equal("tiny", np.load(tmp_path / "v.npy"), references["tiny"](TEXTS))
    done = run("search", tmp_path / "in.txt", "w7", "-k", "1", "--url", several.grpc, "--model", "tiny")
    assert done.returncode == 0, done.stderr
    # The command takes the model's prompt for queries, where it has one.
    documents, query = references["tiny"](TEXTS), references["tiny"](["w20 w21 w7"])[0]
    nearest = (documents @ query / np.linalg.norm(documents, axis=1)).argmax()
    assert done.stdout.splitlines()[1].split()[1:] == [str(nearest), *TEXTS[nearest].split()]
    done = run("search", tmp_path / "in.txt", "w7", "--url", several.grpc, "--model", "none")
    assert done.returncode == 1
    assert "'none' is not found" in done.stderr


def test_the_watch_probes_every_model(several):
    from lazuli.launch.addresses import Addresses

    prober = Prober(Addresses(several.http, several.grpc, several.metrics), several.admin_key)
    outer = outer_models(prober.served_models())
    assert {model.name for model in outer} == {
        *("embed", "embed_stream", "short", "short.stream", "first-token.v1", "tiny", "tiny.stream")
    }
    before = {model.name: prober.success_count(model.name) for model in outer}
    watch = Watch(several.process, prober, outer, interval_s=0.05, hang_timeout_s=60)
    try:
        for _ in range(600):
            if all(prober.success_count(name) > count for name, count in before.items()):
                break
            watch._end.wait(0.1)
        else:
            pytest.fail("a model was never asked")
        assert watch.fault() is None
    finally:
        watch.close()


def test_one_model_of_several_can_be_served_alone(repository):
    options = ServeOptions(model_repositories=("built-in", repository), models=("tiny",), door=Door.STREAM)
    with running_server(options) as running:
        assert set(running.models) == {"tiny.stream", "tiny.tokenizer", "tiny.embedding_stream"}
        grpc_stream(running, TEXTS[:2], model="tiny.stream")
