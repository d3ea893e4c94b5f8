"""C++ against torch, which is tested against transformers."""

import threading

import numpy as np
import pytest
import torch

from lazuli.batch import RaggedBatch
from lazuli.cpu import host_inputs
from lazuli.segments import SEGMENT_BIT

# Around the sizes of tiles, blocks of queries and chunks of tokens.
LENGTHS = (1, 2, 13, 14, 15, 28, 29, 31, 32, 33, 64, 64, 3, 57)
SIZES = {
    "small": {},
    "one head of two panels": {"num_attention_heads": 1},
    "one layer": {"num_hidden_layers": 1},
    "wide": {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 512},
    "one token type, another eps": {"type_vocab_size": 1, "layer_norm_eps": 1e-2},
}


def inputs_of(lengths, vocab_size=100, seed=1):
    rng = np.random.default_rng(seed)
    rows = [rng.integers(vocab_size, size=length, dtype=np.int32) for length in lengths]
    return host_inputs(RaggedBatch.pack(rows, [1] * len(rows)))


def in_torch(model, inputs):
    return model.forward(inputs.input_ids, inputs.position_ids, inputs.attention)


def in_native(native, inputs):
    return native.forward(inputs.input_ids, inputs.position_ids, inputs.attention.cu_seqlens)


def assert_equal(mine, expected, atol=2e-5):
    assert torch.cosine_similarity(mine.double(), expected.double(), dim=1).min() >= 1 - 1e-6
    torch.testing.assert_close(mine, expected, rtol=1e-4, atol=atol)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
def test_against_torch(load_both, sizes, threads):
    model, native = load_both(threads, **sizes)
    for lengths in ([1], [5], [33], LENGTHS, [64] * 20):
        inputs = inputs_of(lengths)
        # In the wide one scores of random weights are large, and so is what rounding makes of them.
        assert_equal(in_native(native, inputs), in_torch(model, inputs), atol=3e-4 if "hidden_size" in sizes else 2e-5)


def test_a_text_alone_and_in_a_batch_are_the_same(load_both):
    _, native = load_both()
    together = in_native(native, inputs_of(LENGTHS))
    bounds = inputs_of(LENGTHS).attention.cu_seqlens
    ids = inputs_of(LENGTHS).input_ids
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        alone = host_inputs(RaggedBatch.pack([ids[begin:end].numpy()], [1]))
        assert_equal(in_native(native, alone), together[begin:end])


def test_segments(load_both):
    model, native = load_both(type_vocab_size=2)
    inputs = inputs_of([20, 40])
    plain = in_native(native, inputs)
    inputs.input_ids[30:] |= 1 << SEGMENT_BIT
    marked = in_native(native, inputs)
    assert_equal(marked, in_torch(model, inputs))
    assert not torch.allclose(plain, marked, atol=1e-2)


@pytest.mark.parametrize("factor", [0.0, 40.0])
def test_scores_from_all_equal_to_all_on_one_token(load_both, factor):
    model, native = load_both(num_hidden_layers=1)
    exact = model.layers[0]
    weight, bias = exact.qkv.weight.contiguous(), exact.qkv.bias
    weight[:128] *= factor  # queries and keys
    bias[:128] *= factor
    exact.qkv.__init__(weight, bias)
    native = remake(model, native)
    inputs = inputs_of(LENGTHS)
    assert_equal(in_native(native, inputs), in_torch(model, inputs), atol=1e-3 if factor else 2e-5)


def test_the_whole_range_of_gelu(load_both):
    model, native = load_both(num_hidden_layers=1, intermediate_size=512)
    up = model.layers[0].mlp.up
    up.__init__(torch.zeros(512, 64), torch.linspace(-40, 40, 512))
    native = remake(model, native)
    inputs = inputs_of([7])
    assert_equal(in_native(native, inputs), in_torch(model, inputs))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_shows_in_that_text_alone(load_both, value):
    model, native = load_both()
    inputs = inputs_of([10, 20, 30])
    inputs.input_ids[:] %= 99
    expected = in_native(native, inputs)
    model.embedding.tokens[99, 5] = value  # the table is shared
    inputs.input_ids[12] = 99
    hidden = in_native(native, inputs)
    assert not hidden[10:30].isfinite().any()
    assert torch.equal(hidden[:10], expected[:10])
    assert torch.equal(hidden[30:], expected[30:])


def test_many_callers_at_once(load_both):
    _, native = load_both(threads=3)
    batches = [inputs_of(lengths, seed=seed) for seed, lengths in enumerate([[3], LENGTHS, [64] * 9, [40, 41]])]
    expected = [in_native(native, inputs) for inputs in batches]
    wrong = []

    def call(place):
        answers = (in_native(native, batches[place]) for _ in range(40))
        wrong.extend(place for answer in answers if not torch.equal(answer, expected[place]))

    threads = [threading.Thread(target=call, args=[place]) for place in range(len(batches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def remake(model, native):
    """The same library, with the weights as they are now."""
    from lazuli.native.accelerate import make_native

    return make_native(model, native._library)
