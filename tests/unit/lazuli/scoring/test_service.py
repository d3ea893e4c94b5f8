import numpy as np
import pytest
import torch

from lazuli.config import EngineConfig
from lazuli.errors import ConfigError, InputError
from lazuli.scoring.options import ClassifyOptions, RerankOptions
from lazuli.scoring.service import ClassifyService, RerankService
from lazuli.segments import SEGMENT_BIT

LABELS = ("good", "bad", "none")


@pytest.fixture(scope="module")
def write(tmp_path_factory, write_bert, make_bert_tensors):
    """A BERT with a head of so many labels, and of enough positions for the engine's warm-up."""

    def write(labels, scale=1.0):
        sizes = {"max_position_embeddings": 128}
        generator = torch.Generator().manual_seed(0)
        head = {
            "classifier.weight": scale * torch.randn(labels, 32, generator=generator),
            "classifier.bias": torch.randn(labels, generator=generator),
        }
        names = {str(number): LABELS[number] for number in range(labels)}
        architecture = {"architectures": ["BertForSequenceClassification"], "id2label": names}
        folder = tmp_path_factory.mktemp("scoring")
        return str(
            write_bert(folder, tensors=make_bert_tensors(**sizes) | head, modules=False, **sizes, **architecture)
        )

    return write


@pytest.fixture(scope="module")
def start(write):
    services = []

    def start(cls, task, labels, streaming=False, **options):
        config = EngineConfig(checkpoint=write(labels, **options), task=task, device="cpu", dtype="float32")
        services.append(cls(config, streaming=streaming))
        return services[-1]

    yield start
    for service in services:
        service.close()


@pytest.fixture(scope="module", params=[False, True], ids=["unary", "stream"])
def reranker(start, request):
    return start(RerankService, "rerank", 1, streaming=request.param)


@pytest.fixture(scope="module")
def classifier(start):
    return start(ClassifyService, "classify", 3)


def pairs(lengths=((3, 9), (2, 40), (7, 1))):
    """Ids, mask and types of pairs of segments."""
    width = max(map(sum, lengths))
    rng = np.random.default_rng(3)
    ids = rng.integers(100, size=(len(lengths), width), dtype=np.int32)
    columns, lengths = np.arange(width), np.array(lengths)
    mask = (columns < lengths.sum(axis=1)[:, None]).astype(np.int8)
    types = (columns >= lengths[:, :1]).astype(np.int8) * mask
    return ids, mask, types


def scores_of(sender):
    return sender.embedding("score")


def test_scores_of_pairs(reranker, make_sender):
    ids, mask, types = pairs()
    sender = make_sender()
    reranker.submit(ids, mask, types, RerankOptions(), sender)
    scores = scores_of(sender.wait())
    assert scores.shape == (3, 1)
    marked = ids | types.astype(np.int32) << SEGMENT_BIT
    rows = [row[: int(count)] for row, count in zip(marked, mask.sum(axis=1), strict=True)]
    np.testing.assert_allclose(scores, reranker.engine.embed_ids(rows), atol=1e-6)


def test_types_count_and_none_means_one_segment(reranker, make_sender):
    ids, mask, types = pairs()
    answers = []
    for chosen in (types, None, np.zeros_like(types)):
        reranker.submit(ids, mask, chosen, RerankOptions(), sender := make_sender())
        answers.append(scores_of(sender.wait()))
    assert np.abs(answers[0] - answers[1]).max() > 0.01
    np.testing.assert_allclose(answers[1], answers[2], atol=1e-6)


def test_a_request_may_ask_for_another_activation(reranker, make_sender):
    ids, mask, types = pairs()
    reranker.submit(ids, mask, types, RerankOptions(activation="sigmoid"), squeezed := make_sender())
    reranker.submit(ids, mask, types, RerankOptions(activation="none"), raw := make_sender())
    expected = 1 / (1 + np.exp(-scores_of(raw.wait())))
    np.testing.assert_allclose(scores_of(squeezed.wait()), expected, atol=1e-6)


def test_labels(classifier, make_sender):
    ids, mask, _ = pairs()
    classifier.submit(ids, mask, None, ClassifyOptions(labels=True), sender := make_sender())
    (part,) = sender.wait().parts
    assert not sender.errors
    logits = classifier.engine.embed_ids([row[: int(n)] for row, n in zip(ids, mask.sum(axis=1), strict=True)])
    expected = torch.softmax(torch.from_numpy(logits), dim=1).numpy()
    np.testing.assert_allclose(part.outputs["probability"], expected, atol=1e-6)
    assert part.outputs["label"][:, 0].tolist() == [LABELS[best].encode() for best in logits.argmax(axis=1)]
    assert part.outputs["labels"].tolist() == [[name.encode() for name in LABELS]] * 3


def test_a_row_that_is_not_finite_is_an_error_of_its_request_alone(start, make_sender):
    service = start(RerankService, "rerank", 1, scale=1e38)  # a sum of such terms overflows
    ids, mask, types = pairs()
    service.submit(ids, mask, types, RerankOptions(), sender := make_sender())
    assert str(sender.wait().error()).startswith("score[0]: the model computed NaN or Inf")


def test_bad_arrays_are_refused_before_the_device(reranker, make_sender):
    ids, mask, types = pairs()
    sender = make_sender()
    with pytest.raises(InputError, match=r"token_type_ids\[0\]\[0\]: 2"):
        reranker.submit(ids, mask, types + 2, RerankOptions(), sender)
    with pytest.raises(InputError, match="attention_mask"):
        reranker.submit(ids, mask * 3, types, RerankOptions(), sender)
    with pytest.raises(InputError, match="the vocabulary has ids 0 to 99"):
        reranker.submit(ids | 1 << SEGMENT_BIT, mask, types, RerankOptions(), sender)
    assert not sender.ended


@pytest.mark.parametrize(
    ("cls", "task"), [(RerankService, "embed"), (RerankService, "classify"), (ClassifyService, "rerank")]
)
def test_the_task_of_the_parameters_must_be_that_of_the_service(cls, task):
    with pytest.raises(ConfigError, match=f"task: '{task}', but this model needs '{cls.task}'"):
        cls(EngineConfig(task=task), streaming=False)
