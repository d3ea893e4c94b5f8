"""The models `reranking` and `classification`, as far as they differ from `embedding`."""

import numpy as np
import pytest
import torch

NAMES = {"0": "good", "1": "böse"}


@pytest.fixture
def start(load, arguments, tmp_path, write_bert, make_bert_tensors):
    models = []

    def start(name, labels, **options):
        sizes = {"max_position_embeddings": 128}
        generator = torch.Generator().manual_seed(0)
        head = {
            "classifier.weight": torch.randn(labels, 32, generator=generator),
            "classifier.bias": torch.zeros(labels),
        }
        changes = {"architectures": ["BertForSequenceClassification"], **sizes}
        changes["id2label"] = {number: NAMES[number] for number in list(NAMES)[:labels]}
        checkpoint = write_bert(tmp_path, tensors=make_bert_tensors(**sizes) | head, modules=False, **changes)
        model = load(name).TritonPythonModel()
        parameters = {"checkpoint": str(checkpoint), "device": "cpu", "dtype": "float32"}
        model.initialize(arguments(**parameters, **options))
        models.append(model)
        return model

    yield start
    for model in models:
        model.finalize()


def tensors(*lengths, types=True):
    width = max(lengths)
    mask = (np.arange(width) < np.array(lengths)[:, None]).astype(np.int8)
    ids = np.random.default_rng(0).integers(100, size=mask.shape, dtype=np.int32)
    second = {"token_type_ids": mask * (np.arange(width) > 1).astype(np.int8)} if types else {}
    return {"input_ids": ids, "attention_mask": mask, **second}


def answer(model, request):
    returned = model.execute([request])
    return returned[0] if returned is not None else request.wait().responses[0]


def test_scores(start, pb_utils):
    model = start("reranking", 1, task="rerank")
    response = answer(model, pb_utils.Request(**tensors(5, 9, 2)))
    assert set(response.tensors) == {"score", "token_count"}
    assert (response.tensors["score"].shape, response.tensors["score"].dtype) == ((3, 1), np.float32)
    assert response.tensors["token_count"].tolist() == [[5], [9], [2]]
    without = answer(model, pb_utils.Request(**tensors(5, 9, 2, types=False)))
    assert np.abs(response.tensors["score"] - without.tensors["score"]).max() > 0.001
    squeezed = answer(model, pb_utils.Request({"activation": "sigmoid"}, **tensors(5, 9, 2)))
    expected = 1 / (1 + np.exp(-response.tensors["score"]))
    np.testing.assert_allclose(squeezed.tensors["score"], expected, atol=1e-6)


def test_scores_in_parts(start, pb_utils):
    model = start("reranking", 1, task="rerank", decoupled=True, token_budget="8")
    request = pb_utils.Request(**tensors(8, 3, 8))
    assert model.execute([request]) is None
    responses = request.wait().responses
    assert len(responses) > 1
    assert sorted(np.concatenate([response.tensors["index"][:, 0] for response in responses])) == [0, 1, 2]


@pytest.mark.parametrize("labels", [False, True])
def test_labels(start, pb_utils, labels):
    model = start("classification", 2, task="classify")
    response = answer(model, pb_utils.Request({"labels": labels} if labels else {}, **tensors(5, 9, types=False)))
    assert set(response.tensors) == {"probability", "label", "token_count"} | ({"labels"} if labels else set())
    probability = response.tensors["probability"]
    np.testing.assert_allclose(probability.sum(axis=1), 1, rtol=1e-6)
    names = [name.encode() for name in NAMES.values()]
    assert response.tensors["label"].tolist() == [[names[best]] for best in probability.argmax(axis=1)]
    if labels:
        assert response.tensors["labels"].tolist() == [names] * 2


def test_strings_are_not_sent_before_they_are_there(start, pb_utils, monkeypatch):
    """Triton reads strings when a tensor is made, numbers when it is sent."""
    model = start("classification", 2, task="classify")
    made = []
    tensor = pb_utils.Tensor
    monkeypatch.setattr(
        pb_utils, "Tensor", lambda name, value: made.append((name, value.copy())) or tensor(name, value)
    )
    response = answer(model, pb_utils.Request(**tensors(5, 9, types=False)))
    assert [value.tolist() for name, value in made if name == "label"] == [response.tensors["label"].tolist()]


@pytest.mark.parametrize(
    ("name", "parameter"), [("reranking", "dimensions"), ("reranking", "labels"), ("classification", "normalize")]
)
def test_options_of_other_tasks_are_unknown(start, pb_utils, name, parameter):
    model = start(name, 1, task="rerank") if name == "reranking" else start(name, 2, task="classify")
    response = answer(model, pb_utils.Request({parameter: True}, **tensors(3)))
    assert response.error.message().startswith(f"unknown parameter '{parameter}'")


def test_bytes_of_strings_count_for_shared_memory(load):
    count = load("response_sender")._count_bytes
    assert count(np.array([[b"abc"], [b""]], dtype=np.object_)) == 3 + 2 * 4
    assert count(np.zeros((2, 3), dtype=np.float32)) == 24
