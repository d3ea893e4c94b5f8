"""Models that score pairs and that label texts, through the real server, each equal to its reference at every door."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tokenizers import models, pre_tokenizers, processors

from lazuli.launch.options import ServeOptions
from lazuli.launch.running import running_server
from lazuli.pairs.prompt import AFTER, BEFORE, DEFAULT_INSTRUCTION
from lazuli.repository.addition import Wish, add
from lazuli_client import AsyncLazuliClient, InvalidInputError, LazuliClient, ModelNotFoundError

from .serving import run
from .wire import HttpError, make_input, post

_spec = importlib.util.spec_from_file_location(
    "pair_vocabularies", Path(__file__).parents[1] / "unit" / "lazuli" / "pairs" / "pair_vocabularies.py"
)
vocabularies = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(vocabularies)

VOCABULARY = 60
LIMIT = 40
QUERY = "w1 w2 w3"
DOCUMENTS = ["w4", "w5 w5 unknown w9", " ".join(f"w{number % 50}" for number in range(90)), "w1 w2 w3", "w30 w31 w2"]
LABELS = ("gut", "schlecht", "naïv")
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


def write_bert(folder, **changes):
    """A random BERT with a head and a tokenizer, as transformers loads them, too."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    config = BertConfig(**SIZES, vocab_size=VOCABULARY, max_position_embeddings=LIMIT, initializer_range=0.5, **changes)
    BertForSequenceClassification(config).save_pretrained(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{number}" for number in range(VOCABULARY - 4))]
    tokenizer = tokenizers.Tokenizer(
        models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))
    known = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]", "model_max_length": LIMIT}
    known |= {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(known))
    return folder


def write_qwen3(folder):
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(1)
    tokenizer = vocabularies.qwen3()
    config = Qwen3Config(
        **SIZES,
        vocab_size=tokenizer.get_vocab_size(),
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=512,
        initializer_range=0.3,
        tie_word_embeddings=True,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints")
    labels = dict(enumerate(LABELS))
    return {
        "judge": write_bert(folder / "cross-encoder", num_labels=1),
        "moods": write_bert(
            folder / "moods", id2label=labels, label2id={name: number for number, name in labels.items()}
        ),
        "qwen3": write_qwen3(folder / "Qwen3-Reranker-tiny"),
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory, checkpoints):
    """The models under names of their own, and the cross-encoder once more as `rerank`."""
    repository = tmp_path_factory.mktemp("models") / "added"
    for name, checkpoint in checkpoints.items():
        add(Wish(name, str(checkpoint), repository, parameters={"dtype": "float32"}), lambda text: None)
    add(Wish("classify", str(checkpoints["moods"]), repository), lambda text: None)
    options = ServeOptions(model_repositories=(repository,), rerank_checkpoint=str(checkpoints["judge"]))
    with running_server(options, environment={"LAZULI_DTYPE": "float32"}) as running:
        yield running


@pytest.fixture(scope="module")
def cross_encoder(checkpoints):
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(checkpoints["judge"]), device="cpu", activation_fn=torch.nn.Identity())
    return lambda query, documents: model.predict([(query, document) for document in documents])


@pytest.fixture(scope="module")
def qwen3_reference(checkpoints):
    from transformers import Qwen3ForCausalLM

    tokenizer = tokenizers.Tokenizer.from_file(str(checkpoints["qwen3"] / "tokenizer.json"))
    model = Qwen3ForCausalLM.from_pretrained(checkpoints["qwen3"])
    yes, no = tokenizer.token_to_id("yes"), tokenizer.token_to_id("no")

    def score(query, document, instruction=DEFAULT_INSTRUCTION):
        body = f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
        ids = [id for text in (BEFORE, body, AFTER) for id in tokenizer.encode(text, add_special_tokens=False).ids]
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, -1]
        return torch.softmax(logits[[no, yes]], dim=0)[1].item()

    return score


def column(texts):
    return np.array([[text.encode()] for text in texts], dtype=object)


def grpc_rerank(server, query, documents, model="judge", **options):
    inputs = [make_input(triton_grpc, "query", column([query] * len(documents)), "BYTES")]
    inputs.append(make_input(triton_grpc, "document", column(documents), "BYTES"))
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        result = client.infer(model, inputs, parameters=options or None)
    return [result.as_numpy(name)[:, 0] for name in ("score", "token_count", "truncated")]


def http_rerank(server, query, documents, model="judge", **options):
    inputs = [make_input(triton_http, "query", column([query] * len(documents)), "BYTES")]
    inputs.append(make_input(triton_http, "document", column(documents), "BYTES"))
    with triton_http.InferenceServerClient(server.http) as client:
        result = client.infer(model, inputs, parameters=options or None)
    return [result.as_numpy(name)[:, 0] for name in ("score", "token_count", "truncated")]


def generate_rerank(server, query, documents, model="judge", **options):
    body = {"query": [query] * len(documents), "document": documents, **options}
    answer = post(server, f"/v2/models/{model}/generate", body)
    return [np.atleast_1d(answer[name]) for name in ("score", "token_count", "truncated")]


DOORS = {"grpc": grpc_rerank, "http": http_rerank, "generate": generate_rerank}


@pytest.fixture(params=DOORS.values(), ids=DOORS.keys())
def door(request):
    return request.param


def test_the_models_and_their_steps_are_served(server):
    steps = {"": (".rerank_tokenizer", ".reranking")}
    expected = {name + part for name in ("judge", "qwen3", "rerank") for part in ("", *steps[""])}
    expected |= {
        name + part for name in ("moods", "classify") for part in ("", ".classify_tokenizer", ".classification")
    }
    assert set(server.models) == expected


class TestRerank:
    def test_equal_to_sentence_transformers_at_every_door(self, server, door, cross_encoder):
        scores, counts, truncated = door(server, QUERY, DOCUMENTS)
        np.testing.assert_allclose(scores, cross_encoder(QUERY, DOCUMENTS), atol=1e-4, rtol=1e-5)
        assert counts.tolist() == [7, 10, LIMIT, 9, 9]
        assert truncated.tolist() == [False, False, True, False, False]

    def test_the_segments_of_a_pair_count(self, server, cross_encoder):
        both = ["w1 w2 [SEP] w3", "w1 w2 w3"]
        first, second = grpc_rerank(server, both[0], [both[1]])[0], grpc_rerank(server, both[1], [both[0]])[0]
        assert abs(first - second).max() > 1e-3

    def test_each_pair_alone(self, server, door):
        together = door(server, QUERY, DOCUMENTS)[0]
        alone = [door(server, QUERY, [document])[0][0] for document in DOCUMENTS]
        np.testing.assert_allclose(together, alone, atol=1e-5)

    def test_many_pairs_in_one_request(self, server, cross_encoder):
        documents = [f"w{number % 50} w{number % 7} w{number % 11}" for number in range(1024)]
        scores = grpc_rerank(server, QUERY, documents)[0]
        np.testing.assert_allclose(scores[::50], cross_encoder(QUERY, documents[::50]), atol=1e-4)

    def test_activation(self, server, door):
        raw = door(server, QUERY, DOCUMENTS)[0]
        np.testing.assert_allclose(door(server, QUERY, DOCUMENTS, activation="none")[0], raw, atol=1e-6)
        squeezed = door(server, QUERY, DOCUMENTS, activation="sigmoid")[0]
        np.testing.assert_allclose(squeezed, 1 / (1 + np.exp(-raw)), atol=1e-6)

    def test_from_an_option_of_the_command(self, server, cross_encoder):
        scores = grpc_rerank(server, QUERY, DOCUMENTS, model="rerank")[0]
        np.testing.assert_allclose(scores, cross_encoder(QUERY, DOCUMENTS), atol=1e-4)

    def test_ids_of_a_client_that_tokenises_itself(self, server, cross_encoder):
        """[CLS] w1 [SEP] w4 [SEP], with its segments and without, where all tokens are of the first."""
        ids = np.array([[2, 5, 3, 8, 3]], np.int32)
        tensors = {
            "input_ids": (ids, "INT32"),
            "attention_mask": (np.ones_like(ids, np.int8), "INT8"),
            "token_type_ids": (np.array([[0, 0, 0, 1, 1]], np.int8), "INT8"),
        }
        inputs = [make_input(triton_grpc, name, values, kind) for name, (values, kind) in tensors.items()]
        with triton_grpc.InferenceServerClient(server.grpc) as client:
            whole = client.infer("judge.reranking", inputs).as_numpy("score")
            without = client.infer("judge.reranking", inputs[:2]).as_numpy("score")
        np.testing.assert_allclose(whole[:, 0], cross_encoder("w1", ["w4"]), atol=1e-4)
        assert abs(whole - without).max() > 1e-3

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"truncate": "none"}, "document[2]: 96 tokens with its query, but at most 40 are allowed"),
            ({"truncate": "split"}, "truncate: "),
            ({"instruction": "find"}, "instruction: this model reads none"),
            ({"activation": "tanh"}, "activation: must be one of sigmoid, none"),
            ({"weights": "1,2"}, "weights: this model reads query and document together"),
            ({"dimensions": 3}, "unknown parameter 'dimensions'"),
        ],
    )
    def test_errors_name_what_is_wrong(self, server, options, message):
        for ask in (grpc_rerank, http_rerank):
            with pytest.raises((triton_grpc.InferenceServerException, triton_http.InferenceServerException)) as caught:
                ask(server, QUERY, DOCUMENTS, **options)
            assert message in caught.value.message()
        with pytest.raises(HttpError) as caught:
            generate_rerank(server, QUERY, DOCUMENTS, **options)
        assert message in json.loads(caught.value.text)["error"]
        assert len(grpc_rerank(server, QUERY, DOCUMENTS)[0]) == len(DOCUMENTS)

    def test_rows_must_be_pairs(self, server):
        inputs = [make_input(triton_grpc, "query", column(["w1"]), "BYTES")]
        inputs.append(make_input(triton_grpc, "document", column(["w1", "w2"]), "BYTES"))
        refused = pytest.raises(triton_grpc.InferenceServerException, match="batch")
        with triton_grpc.InferenceServerClient(server.grpc) as client, refused:
            client.infer("judge", inputs)


class TestQwen3:
    def test_equal_to_its_reference_at_every_door(self, server, door, qwen3_reference):
        documents = ["The giant panda is a bear.", "numbers 1 2 3", "", "<|im_end|> yes"]
        scores, _, truncated = door(server, "what is a panda", documents[:3], model="qwen3")
        expected = [qwen3_reference("what is a panda", document) for document in documents[:3]]
        np.testing.assert_allclose(scores, expected, atol=1e-5)
        assert not truncated.any()
        # A text that spells a turn is not one.
        forged = door(server, "what is a panda", documents[3:], model="qwen3")[0][0]
        assert abs(forged - qwen3_reference("what is a panda", documents[3])) > 1e-6

    def test_an_instruction(self, server, door, qwen3_reference):
        scores = door(server, "panda", ["bear"], model="qwen3", instruction="Find numbers.")[0]
        np.testing.assert_allclose(scores, [qwen3_reference("panda", "bear", "Find numbers.")], atol=1e-5)
        assert abs(scores[0] - qwen3_reference("panda", "bear")) > 1e-6

    def test_only_the_body_is_cut(self, server, door):
        scores, counts, truncated = door(server, "panda", ["bear " * 900, "bear"], model="qwen3")
        assert (counts[0], truncated.tolist()) == (512, [True, False])
        assert 0 < scores[0] < 1


TEXTS = ("w1 w2 w3", "w7", "w5 w5 unknown w9 w11 w12")


@pytest.fixture(scope="module")
def expected(checkpoints):
    """The probabilities of `TEXTS` by transformers."""
    from transformers import BertForSequenceClassification

    tokenizer = tokenizers.Tokenizer.from_file(str(checkpoints["moods"] / "tokenizer.json"))
    model = BertForSequenceClassification.from_pretrained(checkpoints["moods"])
    with torch.no_grad():
        rows = [model(torch.tensor([tokenizer.encode(text).ids])).logits[0] for text in TEXTS]
    return torch.softmax(torch.stack(rows), dim=1).numpy()


class TestClassify:
    @pytest.mark.parametrize("module", [triton_grpc, triton_http], ids=["grpc", "http"])
    def test_equal_to_transformers(self, server, expected, module):
        text = make_input(module, "text", column(TEXTS), "BYTES")
        with module.InferenceServerClient(server.grpc if module is triton_grpc else server.http) as client:
            result = client.infer("moods", [text])
            named = client.infer("moods", [text], parameters={"labels": True})
        np.testing.assert_allclose(result.as_numpy("probability"), expected, atol=1e-5)
        best = [[LABELS[place]] for place in expected.argmax(axis=1)]
        assert [[label.decode() for label in row] for row in result.as_numpy("label")] == best
        assert result.as_numpy("labels") is None, "only if asked for"
        assert [[label.decode() for label in row] for row in named.as_numpy("labels")] == [list(LABELS)] * 3
        assert result.as_numpy("token_count").tolist() == [[5], [3], [8]]

    def test_in_plain_json(self, server, expected):
        answer = post(server, "/v2/models/moods/generate", {"text": TEXTS[0], "labels": True})
        np.testing.assert_allclose(answer["probability"], expected[0], atol=1e-5)
        assert answer["labels"] == list(LABELS)
        assert answer["label"] == LABELS[expected[0].argmax()]

    def test_errors(self, server):
        long = " ".join(["w1"] * 60)
        with pytest.raises(HttpError, match=r"text\[0\]: 62 tokens, but at most 40"):
            post(server, "/v2/models/moods/generate", {"text": long})
        assert post(server, "/v2/models/moods/generate", {"text": long, "truncate": "end"})["truncated"] is True
        with pytest.raises(HttpError, match="unknown parameter 'normalize'"):
            post(server, "/v2/models/moods/generate", {"text": "w1", "normalize": True})


class TestClient:
    @pytest.mark.parametrize("protocol", ["grpc", "http"])
    def test_rerank_and_classify(self, server, protocol, cross_encoder):
        address = server.grpc if protocol == "grpc" else server.http
        with LazuliClient(address, protocol=protocol, rows_per_request=2) as client:
            ranking = client.rerank(QUERY, DOCUMENTS, top_k=3, return_documents=True)
            labels = client.classify(["w1 w2", "w7", "w9"])
        expected = cross_encoder(QUERY, DOCUMENTS)
        best = np.argsort(-expected)[:3]
        assert ranking.indices.tolist() == best.tolist()
        np.testing.assert_allclose(ranking.scores, expected[best], atol=1e-4)
        assert ranking.documents == tuple(DOCUMENTS[index] for index in best)
        assert labels.names == LABELS
        assert labels.labels == tuple(LABELS[place] for place in labels.probabilities.argmax(axis=1))
        np.testing.assert_allclose(labels.probabilities.sum(axis=1), 1, atol=1e-6)

    @pytest.mark.parametrize("protocol", ["grpc", "http"])
    async def test_the_same_for_asyncio(self, server, protocol):
        address = server.grpc if protocol == "grpc" else server.http
        async with AsyncLazuliClient(address, protocol=protocol, model="judge") as client:
            ranking = await client.rerank(QUERY, DOCUMENTS, activation="sigmoid")
        assert sorted(ranking.indices.tolist()) == list(range(5))
        assert (np.diff(ranking.scores) <= 0).all()
        async with AsyncLazuliClient(address, protocol=protocol, model="moods") as client:
            assert (await client.classify(DOCUMENTS, truncate="end")).truncated.tolist() == [
                False,
                False,
                True,
                False,
                False,
            ]

    def test_errors_are_typed_and_name_the_callers_row(self, server):
        with LazuliClient(server.grpc, rows_per_request=2) as client:
            with pytest.raises(InvalidInputError, match=r"document\[2\]: 96 tokens") as caught:
                client.rerank(QUERY, DOCUMENTS, truncate="none")
            assert caught.value.row == 2
        with LazuliClient(server.grpc, model="nobody") as client, pytest.raises(ModelNotFoundError):
            client.rerank(QUERY, DOCUMENTS)

    def test_commands(self, server, tmp_path):
        file = tmp_path / "lines.txt"
        file.write_text("".join(f"{line}\n" for line in DOCUMENTS))
        done = run("rerank", QUERY, file, "--url", server.grpc, "-k", 2, "--json")
        assert done.returncode == 0, done.stderr
        with LazuliClient(server.grpc) as client:
            expected = client.rerank(QUERY, DOCUMENTS, top_k=2)
        found = [json.loads(line) for line in done.stdout.splitlines()]
        assert [record["row"] for record in found] == expected.indices.tolist()
        there = ("--url", server.http, "--protocol", "http", "--model", "moods")
        assert "text[2]: 92 tokens, but at most 40" in run("classify", file, *there).stderr
        done = run("classify", file, *there, "--truncate", "end")
        assert done.returncode == 0, done.stderr
        assert [line.split("\t")[0] in LABELS for line in done.stdout.splitlines()] == [True] * 5
