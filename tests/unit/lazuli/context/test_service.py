"""Chunks in context against a plain implementation on top of transformers: one pass a document, a mean a chunk."""

import json

import numpy as np
import pytest
import torch

from lazuli.config import EngineConfig
from lazuli.context.options import ContextOptions
from lazuli.context.service import ContextService
from lazuli.errors import InputError, OptionError

SEPARATOR = 99
VOCAB_SIZE = 90


def write_qwen3(folder):
    from transformers import Qwen3Config, Qwen3Model

    torch.manual_seed(0)
    sizes = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"head_dim": 16, "intermediate_size": 80, "vocab_size": 100, "max_position_embeddings": 128}
    model = Qwen3Model(Qwen3Config(**sizes, attn_implementation="eager")).eval()
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    saved = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(saved | {"architectures": ["PPLXQwen3Model"]}))

    def hidden(ids):
        nothing_masked = torch.zeros(1, 1, ids.shape[1], ids.shape[1])
        return model(ids, attention_mask={"full_attention": nothing_masked}).last_hidden_state

    return hidden


def read_bert(folder):
    from transformers import BertModel

    model = BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    return lambda ids: model(ids).last_hidden_state


@pytest.fixture(scope="module", params=["qwen3", "bert"])
def reference(request, tmp_path_factory, write_bert):
    """A checkpoint's folder, its hidden states by transformers, and whether vectors are of unit length."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "qwen3":
        return folder, write_qwen3(folder), False
    write_bert(folder, max_position_embeddings=128)
    return folder, read_bert(folder), True


@pytest.fixture(scope="module")
def service(reference):
    config = EngineConfig(checkpoint=str(reference[0]), device="cpu", dtype="float32", task="context", token_budget=200)
    service = ContextService(config, streaming=False)
    yield service
    service.close()


def expected(hidden, chunks, separator):
    """The mean of each chunk's hidden states, in one pass over all."""
    ids, places = [], []
    for chunk in chunks:
        ids += [SEPARATOR] if separator and ids else []
        places.append(slice(len(ids), len(ids) + len(chunk)))
        ids += chunk
    with torch.inference_mode():
        states = hidden(torch.tensor([ids]))[0].double()
    return torch.stack([states[place].mean(dim=0) for place in places]).numpy()


def random_documents(seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 6, size=rng.integers(1, 5))
    return [[rng.integers(VOCAB_SIZE, size=rng.integers(1, 20)).tolist() for _ in range(count)] for count in counts]


def arrays(documents, separator):
    rows = [
        ([SEPARATOR] if separator and place else [], ids) for chunks in documents for place, ids in enumerate(chunks)
    ]
    width = max(len(before) + len(ids) for before, ids in rows)
    input_ids, mask = np.zeros((len(rows), width), np.int32), np.zeros((len(rows), width), np.int8)
    for row, (before, ids) in enumerate(rows):
        input_ids[row, : len(before) + len(ids)] = [*before, *ids]
        mask[row, : len(before) + len(ids)] = [*[3] * len(before), *[1] * len(ids)]
    numbers = np.repeat(np.arange(len(documents), dtype=np.int32), [len(chunks) for chunks in documents])
    return input_ids, mask, numbers[:, None]


def assert_equal(mine, reference):
    cosine = (mine * reference).sum(axis=1) / np.linalg.norm(mine, axis=1) / np.linalg.norm(reference, axis=1)
    assert cosine.min() >= 1 - 1e-6
    assert np.abs(mine - reference).max() <= 1e-4 * np.abs(reference).max()


@pytest.mark.parametrize("separator", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_equal_to_transformers(service, reference, make_sender, seed, separator):
    _, hidden, normalize = reference
    documents = random_documents(seed)
    sender = make_sender()
    service.submit(*arrays(documents, separator), ContextOptions(), sender)
    vectors = np.concatenate([expected(hidden, chunks, separator) for chunks in documents])
    if normalize:
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert_equal(sender.wait().embedding(), vectors)
    assert sender.parts[0].token_count.tolist() == [len(ids) for chunks in documents for ids in chunks]


def test_many_at_the_same_time(service, reference, make_sender):
    _, hidden, _ = reference
    cases = [random_documents(seed) for seed in range(10, 40)]
    senders = [make_sender() for _ in cases]
    for documents, sender in zip(cases, senders, strict=True):
        service.submit(*arrays(documents, True), ContextOptions(normalize=False), sender)
    for documents, sender in zip(cases, senders, strict=True):
        vectors = np.concatenate([expected(hidden, chunks, True) for chunks in documents])
        assert_equal(sender.wait().embedding(), vectors)


def test_context_matters_and_other_documents_do_not(service, make_sender):
    def embed(*documents):
        sender = make_sender()
        service.submit(*arrays(documents, True), ContextOptions(), sender)
        return sender.wait().embedding()

    alone, with_context, beside = embed([[5, 6, 7]]), embed([[5, 6, 7], [8, 9]]), embed([[5, 6, 7]], [[8, 9]])
    np.testing.assert_allclose(alone[0], beside[0], atol=1e-5)
    assert np.abs(alone[0] - with_context[0]).max() > 1e-3


def test_a_document_of_one_chunk_is_a_text(service, make_sender):
    ids = np.array([[5, 6, 7, 8]], dtype=np.int32)
    sender = make_sender()
    service.submit(ids, np.ones((1, 4), np.int8), np.zeros((1, 1), np.int32), ContextOptions(), sender)
    normalize = service.engine.checkpoint.normalize
    np.testing.assert_allclose(sender.wait().embedding(), service.engine.embed_ids(list(ids), normalize), atol=1e-6)


@pytest.mark.parametrize("output", ["float16", "binary", "ubinary"])
def test_vectors_are_encoded_as_those_of_texts(service, make_sender, output):
    documents = arrays(random_documents(3), True)
    plain, encoded = make_sender(), make_sender()
    service.submit(*documents, ContextOptions(), plain)
    service.submit(*documents, ContextOptions(output=(output,)), encoded)
    vectors, values = plain.wait().embedding(), encoded.wait().embedding(f"embedding_{output}")
    if output == "float16":
        np.testing.assert_array_equal(values, vectors.astype(np.float16))
    elif values.shape == vectors.shape:  # a model with a quantiser of its own
        np.testing.assert_array_equal(values, np.where(vectors >= 0, 1, -1))
    else:
        shift = 128 if output == "binary" else 0
        packed = np.packbits(vectors >= 0 if service.engine.dense_model.native else vectors > 0, axis=1)
        np.testing.assert_array_equal(values.astype(np.int16) + shift, packed)


def test_what_cannot_be_embedded_is_refused(service, make_sender):
    ids, mask, document = arrays([[[1] * 100, [2] * 29]], False)
    with pytest.raises(
        InputError, match=r"input_ids\[0\] to input_ids\[1\]: 129 tokens in one document, but the model"
    ):
        service.submit(ids, mask, document, ContextOptions(), make_sender())
    ids, mask, _ = arrays([[[1], [2], [3]]], False)
    with pytest.raises(InputError, match=r"document\[2\]: 0 again"):
        service.submit(ids, mask, np.array([[0], [1], [0]]), ContextOptions(), make_sender())
    with pytest.raises(OptionError, match="dimensions: 1000, but"):
        service.submit(*arrays([[[1]]], False), ContextOptions(dimensions=1000), make_sender())
