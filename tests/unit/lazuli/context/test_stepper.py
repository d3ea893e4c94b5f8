from itertools import pairwise

import numpy as np
import pytest
import torch

from lazuli.batch import RaggedBatch
from lazuli.config import EngineConfig
from lazuli.context.stepper import SpanStepper, SpanTensor, device_inputs, lay_out
from lazuli.cpu import host_inputs
from lazuli.engine import Engine
from lazuli.errors import ConfigError
from lazuli.lazy_tensor import HostTensor
from lazuli.outputs.finish import Finish

CPU = torch.device("cpu")
RAW = Finish(normalize=False).code


def int32(*numbers):
    return np.array(numbers, dtype=np.int32)


@pytest.fixture(scope="module")
def engine(tiny_checkpoint):
    return Engine(EngineConfig(checkpoint=str(tiny_checkpoint), device="cpu", dtype="float32", task="context"), CPU)


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    rows = [rng.integers(100, size=length, dtype=np.int32) for length in (9, 3, 5)]
    return RaggedBatch.pack(rows, [RAW, Finish(normalize=True).code, RAW]).with_spans(
        [int32(4, 1, 4), int32(3), int32(2, 3)]
    )


def test_spans_follow_the_order_of_the_batch(batch):
    assert batch.order.tolist() == [1, 2, 0]
    assert batch.spans.counts.tolist() == [1, 2, 3]
    assert batch.spans.cu_spans.tolist() == [0, 3, 5, 8, 12, 13, 17]
    assert batch.spans.cu_spans.dtype == np.int32
    assert batch.finish.tolist() == [1, 0, 0, 0, 0, 0]


def test_vectors_are_means_of_spans_in_their_sequence(engine, batch):
    result = engine.step(batch).result()
    assert [piece.shape for piece in result] == [(1, 32), (2, 32), (3, 32)]
    inputs = host_inputs(batch)
    with torch.inference_mode():
        hidden = engine._encoder._model.forward(inputs.input_ids, inputs.position_ids, inputs.attention).numpy()
    edges = batch.spans.cu_spans
    means = np.stack([hidden[begin:end].mean(axis=0) for begin, end in pairwise(edges)])
    means[0] /= np.linalg.norm(means[0])
    np.testing.assert_allclose(np.concatenate(list(result)), means, rtol=1e-4, atol=1e-5)


def test_a_batch_without_spans_gives_a_vector_for_each_sequence(engine, tiny_checkpoint):
    rows = [int32(1, 2, 3), int32(4)]
    plain = Engine(EngineConfig(checkpoint=str(tiny_checkpoint), device="cpu", dtype="float32"), CPU)
    np.testing.assert_array_equal(engine.embed_ids(rows), plain.embed_ids(rows))
    assert isinstance(engine._stepper, SpanStepper)
    assert not isinstance(plain._stepper, SpanStepper)


def test_what_goes_to_the_device_is_what_the_host_would_use(batch):
    whole, places = lay_out(batch)
    assert whole.dtype == np.int32
    assert all(place.start % 4 == 0 for place in places)
    device = torch.from_numpy(whole)
    inputs, expected = device_inputs(batch, [device[place] for place in places]), host_inputs(batch)
    for name in ("input_ids", "position_ids", "finish", "cu_spans"):
        assert torch.equal(getattr(inputs, name), getattr(expected, name)), name
    assert torch.equal(inputs.attention.cu_seqlens, expected.attention.cu_seqlens)
    assert inputs.attention.max_seqlen == 9


def test_nor_do_spans_that_are_not_there():
    batch = RaggedBatch.pack([int32(5, 6)], [1])
    whole, places = lay_out(batch)
    assert device_inputs(batch, [torch.from_numpy(whole)[place] for place in places]).cu_spans is None


def test_a_result_by_sequence():
    tensor = SpanTensor(HostTensor(torch.arange(12).reshape(6, 2)), np.array([2, 1, 3]))
    assert tensor.is_ready()
    result = tensor.result()
    assert result.dtype == np.object_
    assert [piece.tolist() for piece in result] == [[[0, 1], [2, 3]], [[4, 5]], [[6, 7], [8, 9], [10, 11]]]
    (alone,) = SpanTensor(HostTensor(torch.zeros(2, 2)), np.array([2])).result()
    assert alone.shape == (2, 2)


@pytest.mark.parametrize("pooling", ["cls", "last"])
def test_only_means_have_spans(tmp_path, write_bert, pooling):
    folder = write_bert(tmp_path / "bert", pooling=pooling)
    with pytest.raises(ConfigError, match=f"pooling: '{pooling}', but the vectors of chunks are means of their tokens"):
        Engine(EngineConfig(checkpoint=str(folder), device="cpu", dtype="float32", task="context"), CPU)
    config = EngineConfig(checkpoint=str(folder), device="cpu", dtype="float32", task="context", pooling="mean")
    assert Engine(config, CPU).embed_ids([int32(1)]).shape == (1, 32)
