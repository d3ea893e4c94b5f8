"""How a batch is laid out for a GPU, on the CPU."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from lazuli.attention.sdpa import SdpaAttention
from lazuli.batch import RaggedBatch
from lazuli.buckets import Bucket
from lazuli.checkpoint import load_checkpoint
from lazuli.cpu import host_inputs
from lazuli.encoder import Encoder
from lazuli.input_buffer import InputBuffer, _parts, count_inputs, fill
from lazuli.models.registry import load_model


def make(*lengths, first=1, finish=None):
    rows = [np.arange(first, first + length, dtype=np.int32) for length in lengths]
    return RaggedBatch.pack(rows, finish or [1] * len(rows))


def make_buffer():
    buffer = InputBuffer(128, 128, torch.device("cpu"))
    buffer._device_buffer.fill_(-77)
    return buffer


def upload(batch, sizes, buffer=None):
    """The inputs of a batch in a buffer of garbage, or in one that was used before."""
    buffer = buffer or make_buffer()
    staging = buffer.staging_pool.take()
    staging.fill_(88)
    buffer.upload(batch, sizes, staging)
    inputs = buffer.inputs(batch.cu_seqlens, sizes)
    buffer.staging_pool.give_back(staging)
    return buffer, inputs


def exact(batch):
    return Bucket(batch.num_tokens, batch.num_sequences, batch.max_seqlen)


@pytest.mark.parametrize(("num_tokens", "num_sequences"), [(1, 1), (64, 4), (100, 100)])
def test_every_number_of_the_buffer_is_written(num_tokens, num_sequences):
    buffer = np.full(count_inputs(num_tokens, num_sequences), -77, dtype=np.int32)
    sizes = Bucket(num_tokens, num_sequences, 16)
    fill(buffer, make(1), sizes)
    for part in _parts(sizes):
        assert (buffer[part] >= 0).all()


@pytest.mark.parametrize(("num_tokens", "num_sequences"), [(1, 1), (7, 2), (64, 4), (101, 33)])
def test_parts_are_aligned_and_apart(num_tokens, num_sequences):
    parts = _parts(Bucket(num_tokens, num_sequences, 16))
    assert all(part.start % 4 == 0 for part in parts)
    assert all(first.stop <= second.start for first, second in pairwise(parts))
    assert parts[-1].stop == count_inputs(num_tokens, num_sequences)


def test_without_padding_it_is_the_batch():
    batch = make(3, 2, 2, finish=[1, 0, 18])
    _, inputs = upload(batch, exact(batch))
    assert inputs.input_ids.tolist() == batch.input_ids.tolist()
    assert inputs.position_ids.tolist() == batch.position_ids.tolist()
    assert inputs.attention.cu_seqlens.tolist() == batch.cu_seqlens.tolist()
    assert inputs.attention.max_seqlen == 3
    assert inputs.finish.tolist() == [0, 18, 1]


def test_padded_tokens_are_zero_and_padded_sequences_are_empty():
    batch = make(3, 2, finish=[1, 1])
    _, inputs = upload(batch, Bucket(8, 5, 16))
    assert inputs.input_ids.tolist() == [1, 2, 1, 2, 3, 0, 0, 0]
    assert inputs.position_ids.tolist() == [0, 1, 0, 1, 2, 0, 0, 0]
    # The last value is repeated: it is the number of real tokens, not that of the bucket.
    assert inputs.attention.cu_seqlens.tolist() == [0, 2, 5, 5, 5, 5]
    assert inputs.attention.max_seqlen == 16
    assert inputs.finish.tolist() == [1, 1, 0, 0, 0]


def test_nothing_of_the_batch_before_is_left():
    sizes = Bucket(16, 8, 16)
    buffer, _ = upload(make(*[2] * 8, first=40), sizes)
    _, again = upload(make(3, 2), sizes, buffer)
    _, fresh = upload(make(3, 2), sizes)
    for name in ("input_ids", "position_ids", "finish"):
        assert torch.equal(getattr(again, name), getattr(fresh, name))
    assert torch.equal(again.attention.cu_seqlens, fresh.attention.cu_seqlens)


def test_the_host_has_the_layout_of_the_device():
    _, inputs = upload(make(3, 2), Bucket(8, 5, 16))
    assert inputs.attention.cu_seqlens_cpu.tolist() == inputs.attention.cu_seqlens.tolist() == [0, 2, 5, 5, 5, 5]
    assert inputs.attention.padded_tokens == 8


def test_the_host_keeps_it_when_the_next_batch_comes():
    buffer, inputs = upload(make(3, 2), Bucket(8, 5, 16))
    _, later = upload(make(1, 2), Bucket(8, 5, 16), buffer)
    assert inputs.attention.cu_seqlens_cpu.tolist() == [0, 2, 5, 5, 5, 5]
    assert later.attention.cu_seqlens is inputs.attention.cu_seqlens


def test_a_bucket_has_its_addresses_before_any_batch():
    buffer = make_buffer()
    sizes = Bucket(8, 5, 16)
    early = buffer.inputs(np.array([0, 8], dtype=np.int32), sizes)
    _, inputs = upload(make(3, 2), sizes, buffer)
    assert early.input_ids.data_ptr() == inputs.input_ids.data_ptr()
    assert early.attention.cu_seqlens.data_ptr() == inputs.attention.cu_seqlens.data_ptr()
    assert early.attention.cu_seqlens_cpu.tolist() == [0] + [8] * 5


def test_every_part_is_a_view_of_the_buffer():
    """A graph reads the addresses of its capture: a copy made outside it would stay as it was then."""
    batch = make(3, 2)
    buffer, inputs = upload(batch, Bucket(8, 5, 16))
    first = buffer._device_buffer.data_ptr()
    last = first + buffer._device_buffer.numel() * 4
    for tensor in (inputs.input_ids, inputs.position_ids, inputs.attention.cu_seqlens, inputs.finish):
        assert first <= tensor.data_ptr() < last
        assert tensor.dtype == torch.int32


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_inputs_made_for_one_batch_compute_the_next_one_in_the_same_buffer(tiny_checkpoint, pooling):
    """As a graph replays it; of equal lengths, because SDPA looks at the layout on the host."""
    model = load_model(load_checkpoint(str(tiny_checkpoint)), SdpaAttention(), torch.device("cpu"), torch.float32)
    encoder = Encoder(model, pooling)
    sizes = Bucket(16, 4, 16)
    buffer, captured = upload(make(3, 5, first=2, finish=[0, 1]), sizes)
    batch = make(3, 5, first=30, finish=[1, 0])
    upload(batch, sizes, buffer)
    expected = encoder.encode(host_inputs(batch))
    torch.testing.assert_close(encoder.encode(captured)[:2], expected, atol=1e-5, rtol=1e-5)
    assert expected.norm(dim=1)[0] == pytest.approx(1, abs=1e-5)
    assert expected.norm(dim=1)[1] != pytest.approx(1, abs=1e-2)


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_padding_changes_no_vector(tiny_checkpoint, pooling):
    model = load_model(load_checkpoint(str(tiny_checkpoint)), SdpaAttention(), torch.device("cpu"), torch.float32)
    encoder = Encoder(model, pooling)
    batch = make(1, 4, 4, 17)
    _, padded = upload(batch, Bucket(64, 16, 32))
    vectors = encoder.encode(padded)
    assert vectors.shape == (16, 32)
    torch.testing.assert_close(vectors[:4], encoder.encode(host_inputs(batch)), atol=1e-5, rtol=1e-5)
