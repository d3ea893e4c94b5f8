"""Weights, vectors of tokens and scores made of them, from text to answer, of tiny random checkpoints."""

import json

import numpy as np
import pytest
import torch
import tritonclient.grpc as triton_grpc
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from lazuli.launch.options import Door, ServeOptions
from lazuli.launch.running import running_server
from lazuli_client import LazuliClient, max_sim

from .wire import post, text_input

WORDS = [f"w{number}" for number in range(40)]
TEXTS = ["w1 w2 w2 w7", "w9", "w3 w1 w4 w1 w5 w9 w2 w6", "w8 w8 w8"]
QUERIES = ["w1 w2", "w5 w3 w9"]


def write_tokenizer(folder, special, **tokens):
    vocabulary = {token: number for number, token in enumerate([*special, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=tokens["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    first, last = tokens["cls_token"], tokens["sep_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}", special_tokens=[(token, vocabulary[token]) for token in (first, last)]
    )
    tokenizer.add_special_tokens(special)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64, **tokens}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return len(vocabulary)


def randomize(model):
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 66,
}


@pytest.fixture(scope="module")
def bge_m3(tmp_path_factory):
    from transformers import XLMRobertaConfig, XLMRobertaModel

    folder = tmp_path_factory.mktemp("token_outputs") / "bge-m3"
    folder.mkdir()
    names = {"cls_token": "<s>", "sep_token": "</s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    size = write_tokenizer(folder, ["<s>", "<pad>", "</s>", "<unk>"], **names)
    torch.manual_seed(0)
    config = XLMRobertaConfig(vocab_size=size, type_vocab_size=1, **SIZES)
    model = randomize(XLMRobertaModel(config, add_pooling_layer=False))
    model.save_pretrained(folder)
    layers = {"sparse_linear": torch.nn.Linear(32, 1), "colbert_linear": torch.nn.Linear(32, 32)}
    for name, layer in layers.items():
        torch.save(layer.state_dict(), folder / f"{name}.pt")
    entries = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [{"type": f"sentence_transformers.models.{name}", "path": path} for name, path in entries.items()]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    return folder, model, layers


@pytest.fixture(scope="module")
def server(bge_m3):
    options = ServeOptions(checkpoint=str(bge_m3[0]), rerank_checkpoint=str(bge_m3[0]), dtype="float32")
    with running_server(options) as running:
        yield running


@pytest.fixture(scope="module")
def expected(bge_m3):
    """Of a text: its vector, its weights by id, the vectors of its tokens, by FlagEmbedding's formulas."""
    folder, model, layers = bge_m3
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    @torch.inference_mode()
    def expected(text):
        ids = tokenizer.encode(text).ids
        hidden = model(torch.tensor([ids])).last_hidden_state[0]
        weights = {}
        for number, weight in zip(ids, layers["sparse_linear"](hidden).relu().squeeze(1).tolist(), strict=True):
            if number > 3 and weight > weights.get(number, 0.0):
                weights[number] = weight
        unit = torch.nn.functional.normalize
        return unit(hidden[0], dim=0).numpy(), weights, unit(layers["colbert_linear"](hidden[1:]), dim=1).numpy()

    return expected


def check(answer, expected):
    for row, text in enumerate(TEXTS):
        vector, weights, vectors = expected(text)
        np.testing.assert_allclose(answer.embeddings[row], vector, atol=1e-5)
        assert answer.sparse[row].as_dict() == pytest.approx(weights, abs=1e-5)
        np.testing.assert_allclose(answer.multi[row], vectors, atol=1e-5)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize("rows_per_request", [1, 64])
def test_all_outputs_of_one_call(server, expected, protocol, rows_per_request):
    settings = {"protocol": protocol, "rows_per_request": rows_per_request}
    with LazuliClient(getattr(server, protocol), **settings) as client:
        check(client.embed(TEXTS, output=["dense", "sparse", "multi"]), expected)
        only = client.embed(TEXTS, output="sparse")
    assert only.embeddings.shape == (4, 0)
    assert only.multi is None
    assert only.sparse[0].as_dict() == pytest.approx(expected(TEXTS[0])[1], abs=1e-5)


def test_a_stream(server, expected):
    with LazuliClient(server.grpc) as client:
        parts = list(client.embed_iter(TEXTS, output=["sparse", "multi"]))
    for part in parts:
        for place, row in enumerate(part.indices):
            _, weights, vectors = expected(TEXTS[row])
            assert part.sparse[place].as_dict() == pytest.approx(weights, abs=1e-5)
            np.testing.assert_allclose(part.multi[place], vectors, atol=1e-5)
    assert sorted(row for part in parts for row in part.indices) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("output", "names"),
    [
        ("sparse", {"sparse_ids", "sparse_weights"}),
        ("multi,float16", {"multi_vector", "multi_vector_count", "embedding_float16"}),
        ("dense", {"embedding"}),
    ],
)
def test_only_what_was_asked_for_is_in_the_answer(server, output, names):
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        answer = client.infer("embed", [text_input(triton_grpc, TEXTS)], parameters={"output": output})
    found = {entry.name for entry in answer.get_response().outputs}
    assert found == names | {"token_count", "truncated"}


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_scores(server, expected, protocol):
    by_hand = {}
    for text in (*TEXTS, *QUERIES):
        by_hand[text] = expected(text)
    with LazuliClient(getattr(server, protocol), protocol=protocol) as client:
        for query in QUERIES:
            parts = []
            for document in TEXTS:
                (vector, weights, vectors), (other, others, more) = by_hand[query], by_hand[document]
                sparse = sum(weight * others.get(number, 0.0) for number, weight in weights.items())
                parts.append([float(vector @ other), sparse, max_sim(vectors, more) / len(vectors)])
            ranking = client.rerank(query, TEXTS)
            scores = np.empty(len(TEXTS))
            scores[ranking.indices] = ranking.scores
            np.testing.assert_allclose(scores, np.mean(parts, axis=1), atol=1e-5)


def test_scores_of_one_method_and_its_weights(server):
    def scores(**options):
        body = {"query": [QUERIES[0]] * 4, "document": TEXTS, **options}
        return np.array(post(server, "/v2/models/rerank/generate", body)["score"])

    dense, sparse, multi = (scores(method=method) for method in ("dense", "sparse", "multi"))
    np.testing.assert_allclose(scores(), (dense + sparse + multi) / 3, atol=1e-5)
    np.testing.assert_allclose(scores(method="hybrid", weights="2,1,0"), (2 * dense + sparse) / 3, atol=1e-5)


class TestOthers:
    """Checkpoints that have no vectors of texts."""

    def write(self, folder, model, modules):
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
        size = write_tokenizer(folder, special, **names)
        torch.manual_seed(0)
        model = randomize(model(size))
        model.save_pretrained(folder)
        (folder / "modules.json").write_text(json.dumps(modules))
        return model

    def test_splade(self, tmp_path):
        from transformers import BertConfig, BertForMaskedLM

        modules = [
            {"type": "sentence_transformers.sparse_encoder.models.MLMTransformer", "path": ""},
            {"type": "sentence_transformers.sparse_encoder.models.SpladePooling", "path": "1_SpladePooling"},
        ]
        (tmp_path / "1_SpladePooling").mkdir()
        (tmp_path / "1_SpladePooling" / "config.json").write_text(json.dumps({"pooling_strategy": "max"}))
        model = self.write(tmp_path, lambda size: BertForMaskedLM(BertConfig(vocab_size=size, **SIZES)), modules)
        tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
        options = ServeOptions(checkpoint=str(tmp_path), door=Door.UNARY, dtype="float32")
        with running_server(options) as server, LazuliClient(server.http, protocol="http") as client:
            answer = client.embed(TEXTS)
            with pytest.raises(Exception, match="output: dense: the model has no such output, it has sparse"):
                client.embed(TEXTS, output="dense")
        for text, sparse in zip(TEXTS, answer.sparse, strict=True):
            with torch.inference_mode():
                logits = model(torch.tensor([tokenizer.encode(text).ids])).logits[0]
            weights = logits.relu().log1p().amax(dim=0)
            mine = torch.zeros_like(weights)
            mine[sparse.ids.tolist()] = torch.from_numpy(sparse.weights.copy())
            torch.testing.assert_close(mine, weights, atol=1e-5, rtol=1e-5)
