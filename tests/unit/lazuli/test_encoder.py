import numpy as np
import pytest
import torch

from lazuli.batch import RaggedBatch
from lazuli.cpu import host_inputs
from lazuli.dense import Dense
from lazuli.encoder import Encoder
from lazuli.heads.load import HeadLayer
from lazuli.layers.linear import Linear
from lazuli.models.base import ModelShape


class FakeModel:
    """The hidden state of a token is (its id, its position, 1)."""

    shape = ModelShape(hidden_size=3, head_dim=1, vocab_size=100, max_positions=64)

    def forward(self, input_ids, position_ids, metadata, wanted=None):
        hidden = torch.stack([input_ids, position_ids, torch.ones_like(input_ids)], dim=1).float()
        self.num_computed = len(hidden if wanted is None else wanted)
        return hidden if wanted is None else hidden[wanted]


def inputs(normalize, ids=((3,), (2, 6))):
    rows = [np.array(row, dtype=np.int32) for row in ids]
    return host_inputs(RaggedBatch.pack(rows, normalize))


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [("mean", [[3, 0, 1], [4, 0.5, 1]]), ("cls", [[3, 0, 1], [2, 0, 1]]), ("last", [[3, 0, 1], [6, 1, 1]])],
)
def test_model_then_pooling(pooling, expected):
    vectors = Encoder(FakeModel(), pooling).encode(inputs([False, False]))
    assert vectors.tolist() == expected
    assert vectors.dtype == torch.float32


@pytest.mark.parametrize(("pooling", "expected"), [("cls", [3, 7]), ("last", [4, 9])])
def test_of_many_tokens_the_last_layer_computes_what_is_wanted(pooling, expected):
    model = FakeModel()
    long = [7, *[1] * 1100, 9]
    vectors = Encoder(model, pooling).encode(inputs([False, False], ids=(long, (3, 4))))
    assert vectors[:, 0].tolist() == expected
    assert model.num_computed == 2


def test_chosen_vectors_are_of_unit_length():
    lengths = Encoder(FakeModel(), "mean").encode(inputs([True, False])).norm(dim=1)
    assert lengths[0] == pytest.approx(1)
    assert lengths[1] == pytest.approx((16 + 0.25 + 1) ** 0.5)


class TestDense:
    LAYERS = (
        Dense(Linear(torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]]), torch.tensor([0.0, 1.0])), "Identity"),
        Dense(Linear(torch.tensor([[0.1, 0.1], [3.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])), "ReLU"),
    )
    EXPECTED = torch.tensor([[0.4, 9, 0, 1], [0.6, 12, 0, 2]])

    def test_layers_come_between_pooling_and_normalisation(self):
        encoder = Encoder(FakeModel(), "mean", dense=self.LAYERS)
        assert encoder.dimension == 4
        torch.testing.assert_close(encoder.encode(inputs([False, False])), self.EXPECTED)
        lengths = torch.tensor([[float(self.EXPECTED[0].norm())], [1.0]])
        torch.testing.assert_close(encoder.encode(inputs([True, False])), self.EXPECTED / lengths)

    def test_of_many_tokens_too(self):
        ids = ([7, *[1] * 1100, 9], (3, 4))
        vectors = Encoder(FakeModel(), "cls", dense=self.LAYERS).encode(inputs([False, True], ids=ids))
        short, long = vectors  # a batch is sorted by length
        torch.testing.assert_close(short, self.EXPECTED[0] / self.EXPECTED[0].norm())
        torch.testing.assert_close(long, torch.tensor([0.8, 21, 0, 1]))

    def test_without_them_the_model_decides_the_dimension(self):
        assert Encoder(FakeModel(), "mean").dimension == 3


class TestHead:
    HEAD = (
        HeadLayer(Linear(torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]]), torch.tensor([0.0, 1.0])), "tanh"),
        HeadLayer(Linear(torch.tensor([[10.0, 1.0]]))),
    )

    def test_its_values_come_as_they_are(self):
        encoder = Encoder(FakeModel(), "last")
        encoder.attach(self.HEAD)
        assert encoder.dimension == 1
        expected = torch.tensor([[3.0, 0.0], [6.0, 1.0]]) * torch.tensor([1.0, 2.0]) + torch.tensor([0.0, 1.0])
        expected = expected.tanh() @ torch.tensor([[10.0], [1.0]])
        for finish in ([False, False], [True, True]):
            torch.testing.assert_close(encoder.encode(inputs(finish)), expected)


def test_shape_is_the_models():
    assert Encoder(FakeModel(), "mean").shape is FakeModel.shape


def test_nothing_is_captured_unless_said():
    assert not Encoder(FakeModel(), "mean").capturable
    assert Encoder(FakeModel(), "mean", capturable=True).capturable


def test_no_gradient_is_recorded():
    assert not Encoder(FakeModel(), "mean").encode(inputs([True, True])).requires_grad


class TestPlan:
    class Attention:
        def __init__(self):
            self.planned = []

        def plan(self, metadata):
            self.planned.append(metadata)

    def test_attention_plans_the_batch(self):
        attention = self.Attention()
        batch = inputs([True, True])
        Encoder(FakeModel(), "mean", attention=attention).plan(batch)
        assert attention.planned == [batch.attention]

    def test_encode_does_not_plan(self):
        attention = self.Attention()
        Encoder(FakeModel(), "mean", attention=attention).encode(inputs([True, True]))
        assert attention.planned == []

    def test_without_attention_there_is_nothing_to_plan(self):
        Encoder(FakeModel(), "mean").plan(inputs([True, True]))
