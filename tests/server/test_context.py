"""Chunks read with their documents, and long texts in chunks, through the real server."""

import json
from itertools import chain

import numpy as np
import pytest
import tokenizers
import torch
import tritonclient.grpc as triton_grpc
from tokenizers import models, pre_tokenizers

from lazuli.launch.options import Door, ServeOptions
from lazuli.launch.running import running_server
from lazuli.repository.addition import Wish, add
from lazuli.repository.names import Task
from lazuli_client import AsyncLazuliClient, InvalidInputError, LazuliClient

from .conftest import assert_same_vectors
from .wire import HttpError, make_input, post, text_input

MINILM = "all-MiniLM-L6-v2"
VOCABULARY = 60
SEPARATOR = VOCABULARY - 1
TINY = [["w1 w2", "w3", "w4 w5 w6 w7"], ["w8"], ["w9 w10", "w1 w2"]]
REAL = [
    ["Berlin is the capital of Germany.", "The city has 3.8 million inhabitants.", "It lies on the Spree."],
    ["A giraffe is a tall mammal."],
    ["It lies on the Spree."],
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A random checkpoint as Perplexity's for chunks: Qwen3 without a mask, a separator, nothing around documents."""
    from transformers import Qwen3Config, Qwen3Model

    folder = tmp_path_factory.mktemp("tiny") / "pplx"
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"head_dim": 16, "intermediate_size": 48, "max_position_embeddings": 40, "initializer_range": 0.5}
    Qwen3Model(Qwen3Config(vocab_size=VOCABULARY, **sizes)).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text()) | {
        "architectures": ["PPLXQwen3Model"],
        "auto_map": {"AutoModel": "modeling.PPLXQwen3ContextualModel"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    words = {f"w{number}": number for number in range(VOCABULARY - 1)}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def context(tmp_path_factory, tiny):
    folder = tmp_path_factory.mktemp("models") / "added"
    for name, checkpoint in (("embed_context", str(tiny)), ("minilm", MINILM)):
        add(Wish(name, checkpoint, folder, task=Task.CONTEXT), lambda text: None)
    options = ServeOptions(model_repositories=("built-in", folder), door=Door.UNARY)
    with running_server(options) as running:
        yield running


def tiny_reference(tiny, documents):
    """One pass a document over its chunks with separators between them; then a mean for each chunk."""
    from transformers import Qwen3Model

    model = Qwen3Model.from_pretrained(tiny).eval()
    vectors = []
    for chunks in documents:
        pieces = [[int(word[1:]) for word in chunk.split()] for chunk in chunks]
        ids = [number for piece in pieces for number in [*piece, SEPARATOR]][:-1]
        nothing_masked = {"full_attention": torch.zeros(1, 1, len(ids), len(ids))}
        with torch.no_grad():
            hidden = model(torch.tensor([ids]), attention_mask=nothing_masked).last_hidden_state[0]
        start = 0
        for piece in pieces:
            vectors.append(hidden[start : start + len(piece)].mean(0))
            start += len(piece) + 1
    return torch.stack(vectors).numpy()


def minilm_reference(sentence_transformer, documents):
    tokenizer, model = sentence_transformer.tokenizer, sentence_transformer[0].auto_model
    vectors = []
    for chunks in documents:
        pieces = [tokenizer(chunk, add_special_tokens=False)["input_ids"] for chunk in chunks]
        pieces[0] = [tokenizer.cls_token_id, *pieces[0]]
        pieces[-1] = [*pieces[-1], tokenizer.sep_token_id]
        with torch.no_grad():
            hidden = model(torch.tensor([list(chain.from_iterable(pieces))])).last_hidden_state[0]
        vectors += [piece.mean(0) for piece in hidden.split(list(map(len, pieces)))]
    return torch.nn.functional.normalize(torch.stack(vectors)).numpy()


def joined(results, name="embeddings"):
    return np.concatenate([getattr(result, name) for result in results])


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_as_perplexitys_model_does_it(context, tiny, protocol):
    with LazuliClient(getattr(context, protocol), protocol=protocol) as client:
        results = client.embed_context(TINY)
        assert [len(result) for result in results] == [3, 1, 2]
        np.testing.assert_allclose(joined(results), tiny_reference(tiny, TINY), atol=2e-5)
        assert joined(results, "token_counts").tolist() == [2, 1, 4, 1, 2, 2]
        assert not joined(results, "truncated").any()
        typed = client.embed_context(TINY, output="int8")
    expected = np.round(127 * np.tanh(joined(results))).astype(int)
    assert np.abs(joined(typed) - expected).max() <= 1
    assert joined(typed).dtype == np.int8


def test_real_weights_in_context(context, sentence_transformer):
    with LazuliClient(context.grpc, model="minilm", rows_per_request=3) as client:
        results = client.embed_context(REAL)
        alone = client.embed_context([["It lies on the Spree."]])
    assert_same_vectors(joined(results), minilm_reference(sentence_transformer, REAL))
    assert_same_vectors(results[2].embeddings, alone[0].embeddings)
    with LazuliClient(context.grpc) as client:
        assert_same_vectors(results[2].embeddings, client.embed(REAL[2]).embeddings)
    # In its document the sentence is about Berlin.
    berlin = results[0].embeddings[0]
    assert berlin @ results[0].embeddings[2] > berlin @ results[2].embeddings[0] + 0.1


async def test_from_asyncio(context, tiny):
    async with AsyncLazuliClient(context.grpc, rows_per_request=2) as client:
        results = await client.embed_context(TINY)
    np.testing.assert_allclose(joined(results), tiny_reference(tiny, TINY), atol=2e-5)


def test_the_wire(context, tiny):
    texts = [chunk for chunks in TINY for chunk in chunks]
    numbers = np.array([[7], [7], [7], [3], [-1], [-1]], dtype=np.int32)
    with triton_grpc.InferenceServerClient(context.grpc) as client:
        inputs = [text_input(triton_grpc, texts), make_input(triton_grpc, "document", numbers, "INT32")]
        result = client.infer("embed_context", inputs, parameters={"normalize": True})
    vectors = result.as_numpy("embedding")
    expected = tiny_reference(tiny, TINY)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors, expected, atol=2e-5)
    answer = post(context, "/v2/models/embed_context/generate", {"text": texts[:3], "document": [0, 0, 0]})
    np.testing.assert_allclose(np.reshape(answer["embedding"], (3, -1)), tiny_reference(tiny, TINY[:1]), atol=2e-5)
    with pytest.raises(HttpError, match=r"document\[2\]: 0 again, but the rows of a document must be consecutive"):
        post(context, "/v2/models/embed_context/generate", {"text": texts[:3], "document": [0, 1, 0]})


def test_a_document_over_the_limit_is_told(context):
    with LazuliClient(context.grpc) as client:
        assert len(client.embed_context([["w1 " * 20, "w2 " * 19]])[0]) == 2
        with pytest.raises(InvalidInputError) as caught:
            client.embed_context([["w1"], ["w1 " * 20, "w2 " * 20]])
    assert "text[1] to text[2]: 41 or more tokens in one document, but at most 40 are allowed" in str(caught.value)
    assert "(documents[1], chunk 0)" in str(caught.value)
    with LazuliClient(context.grpc) as client, pytest.raises(InvalidInputError, match=r"text\[2\]: no token is left"):
        client.embed_context([["w1"], ["w2", ""]])


class TestLongTexts:
    TEXT = " ".join(f"Sentence number {number} says that giraffes are tall." for number in range(90))

    def reference(self, sentence_transformer, overlap):
        """The mean of the chunks' vectors by tokens."""
        tokenizer, model = sentence_transformer.tokenizer, sentence_transformer[0].auto_model
        ids = tokenizer(self.TEXT, add_special_tokens=False, truncation=False, verbose=False)["input_ids"]
        pieces = [ids[start : start + 254] for start in range(0, len(ids) - overlap, 254 - overlap)]
        rows = [[tokenizer.cls_token_id, *piece, tokenizer.sep_token_id] for piece in pieces]
        with torch.no_grad():
            sums = [model(torch.tensor([row])).last_hidden_state[0].sum(0) for row in rows]
        assert len(rows) > 3
        mean = sum(sums) / sum(map(len, rows))
        return torch.nn.functional.normalize(mean, dim=0).numpy()[None], sum(map(len, rows))

    @pytest.mark.parametrize(("given", "overlap"), [({}, 25), ({"overlap": 0}, 0), ({"overlap": 100}, 100)])
    @pytest.mark.parametrize("protocol", ["grpc", "http"])
    def test_the_mean_of_overlapping_chunks(self, context, sentence_transformer, protocol, given, overlap):
        expected, count = self.reference(sentence_transformer, overlap)
        with LazuliClient(getattr(context, protocol), protocol=protocol) as client:
            result = client.embed([self.TEXT, "short"], truncate="split", **given)
            assert_same_vectors(result.embeddings[:1], expected)
            assert_same_vectors(result.embeddings[1:], client.embed("short").embeddings)
        assert result.token_counts.tolist() == [count, 3]
        assert not result.truncated.any()

    def test_it_is_cut_and_encoded_like_any(self, context, sentence_transformer):
        expected, _ = self.reference(sentence_transformer, 25)
        with LazuliClient(context.grpc) as client:
            bits = client.embed(self.TEXT, truncate="split", output="ubinary").embeddings
        differing = np.unpackbits(bits[0]) != (expected[0] > 0)
        assert np.abs(expected[0][differing]).max(initial=0) < 1e-5

    def test_whoever_sends_ids_can_mark_chunks(self, context, sentence_transformer):
        expected, count = self.reference(sentence_transformer, 25)
        with triton_grpc.InferenceServerClient(context.grpc) as client:
            parameters = {"truncate": "split", "overlap": 25}
            tokens = client.infer("tokenizer", [text_input(triton_grpc, [self.TEXT])], parameters=parameters)
            ids, mask = tokens.as_numpy("input_ids"), tokens.as_numpy("attention_mask")
            assert np.count_nonzero(mask == 2) == -(-count // 256) - 1
            inputs = [make_input(triton_grpc, "input_ids", ids, "INT32")]
            inputs.append(make_input(triton_grpc, "attention_mask", mask, "INT8"))
            vectors = client.infer("embedding", inputs).as_numpy("embedding")
        assert_same_vectors(vectors, expected)

    def test_an_overlap_without_chunks(self, context):
        for parameters in ({"overlap": 3}, {"overlap": 3, "truncate": "end"}):
            with pytest.raises(HttpError, match="overlap: only with truncate"):
                post(context, "/v2/models/embed/generate", {"text": "a", **parameters})
