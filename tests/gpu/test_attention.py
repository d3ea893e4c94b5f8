"""Every attention backend that can be used here against plain softmax attention in float32."""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch

from lazuli.attention.base import AttentionMetadata, AttentionShape
from lazuli.attention.select import BACKENDS, select_attention
from lazuli.errors import ConfigError

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

DEVICE = torch.device("cuda", 0)
LENGTHS = [[1], [7], [64], [65], [513], [4096], [1, 7, 64, 65, 513], [4096, 1, 65], [7] * 40, [300, 1, 1, 300]]
HEADS = [(16, 8, 128), (16, 16, 64), (12, 12, 32)]


@dataclass(frozen=True)
class Sight:
    """Which keys count, and whether their distance does."""

    causal: bool = False
    window: int | None = None
    biased: bool = False

    def options(self, heads):
        """Arguments of `forward`."""
        bias = None
        if self.biased:
            bias = torch.randn(heads[0], 257, device=DEVICE, generator=torch.Generator("cuda").manual_seed(9))
        return {"causal": self.causal, "window": self.window, "bias": bias}


CASES = [(heads, Sight(causal)) for heads in HEADS for causal in (False, True)]
CASES += [
    ((12, 12, 64), Sight(window=64)),
    ((12, 12, 64), Sight(causal=True, window=5)),
    ((12, 12, 64), Sight(biased=True)),
]
CASES += [((3, 1, 256), Sight()), ((3, 1, 256), Sight(window=256))]
# Another layout of as many tokens and sequences as a graph was captured for, with and without empty sequences.
LAYOUTS = [[513, 64, 7], [1, 1, 1, 1, 1, 1, 1, 700], [64] * 8, [765], [100, 1, 99, 300]]
NUM_TOKENS, NUM_SEQUENCES, MAX_SEQLEN = 768, 8, 768


def reference(query, key, value, lengths, causal=False, window=None, bias=None):
    """Softmax of the products of each sequence, float32."""
    query, key, value = query.float(), key.float(), value.float()
    group = query.shape[1] // key.shape[1]
    outputs = []
    for start, end in pairwise(np.cumsum([0, *lengths]).tolist()):
        q = query[start:end].transpose(0, 1)  # [H, L, head_dim]
        k = key[start:end].transpose(0, 1).repeat_interleave(group, dim=0)
        v = value[start:end].transpose(0, 1).repeat_interleave(group, dim=0)
        scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
        places = torch.arange(end - start, device=q.device)
        distance = places - places.unsqueeze(1)
        if bias is not None:
            reach = bias.shape[1] // 2
            scores += bias[:, distance.clamp(-reach, reach) + reach]
        hidden = (distance > 0) & causal
        if window is not None:
            hidden |= distance.abs() > window
        outputs.append((scores.masked_fill(hidden, -math.inf).softmax(dim=-1) @ v).transpose(0, 1))
    return torch.cat(outputs)


def make_inputs(num_tokens, heads, seed=0):
    """Views of one packed product, as the models pass them."""
    num_heads, num_kv_heads, head_dim = heads
    generator = torch.Generator("cuda").manual_seed(seed)
    packed = torch.randn(num_tokens, num_heads + 2 * num_kv_heads, head_dim, device=DEVICE, generator=generator)
    return packed.bfloat16().split((num_heads, num_kv_heads, num_kv_heads), dim=1)


def make_metadata(lengths, num_tokens=None, num_sequences=None, max_seqlen=None, on_device=None):
    cu_seqlens = np.cumsum([0, *lengths], dtype=np.int32)
    if num_sequences is not None:
        cu_seqlens = np.pad(cu_seqlens, (0, num_sequences - len(lengths)), mode="edge")
    if on_device is None:
        on_device = torch.from_numpy(cu_seqlens).cuda()
    else:
        on_device.copy_(torch.from_numpy(cu_seqlens))
    return AttentionMetadata(on_device, cu_seqlens, max_seqlen or max(lengths), num_tokens)


def assert_close(output, expected):
    """A bfloat16 has 8 bits; probabilities are rounded to it before they weigh the values."""
    output, expected = output[: len(expected)].float(), expected
    torch.testing.assert_close(output, expected, rtol=2e-2, atol=2e-2)
    cosine = torch.nn.functional.cosine_similarity(output.flatten(1), expected.flatten(1), dim=1)
    assert cosine.min() >= 0.9999


@pytest.fixture(scope="module", params=BACKENDS, ids=lambda backend: backend.name)
def make_backend(request):
    made = {}

    def make(heads, sight):
        shape = AttentionShape(*heads, sight.causal, num_layers=1, window=sight.window, biased=sight.biased)
        reason = request.param.why_not(DEVICE, torch.bfloat16, shape.head_dim) or request.param.why_not_shape(shape)
        if reason is not None:
            pytest.skip(f"{request.param.name}: {reason}")
        if shape not in made:
            made[shape] = select_attention(request.param.name, DEVICE, torch.bfloat16, shape)
        return made[shape]

    return make


@pytest.mark.parametrize(("heads", "sight"), CASES, ids=str)
class TestAgainstFloat32:
    @pytest.mark.parametrize("lengths", LENGTHS, ids=str)
    def test_layouts(self, make_backend, heads, sight, lengths):
        backend, options = make_backend(heads, sight), sight.options(heads)
        inputs, metadata = make_inputs(sum(lengths), heads), make_metadata(lengths)
        backend.plan(metadata)
        output = backend.forward(*inputs, metadata, **options)
        assert output.shape == inputs[0].shape
        assert_close(output, reference(*inputs, lengths, **options))

    def test_padding_tokens_and_empty_sequences(self, make_backend, heads, sight):
        backend, options = make_backend(heads, sight), sight.options(heads)
        lengths = [65, 7, 130]
        inputs = make_inputs(256, heads)
        metadata = make_metadata(lengths, num_tokens=256, num_sequences=8, max_seqlen=512)
        backend.plan(metadata)
        output = backend.forward(*inputs, metadata, **options)
        assert output.shape == inputs[0].shape
        assert_close(output, reference(*(part[: sum(lengths)] for part in inputs), lengths, **options))

    def test_what_an_earlier_batch_leaves_behind_spoils_nothing(self, make_backend, heads, sight):
        backend, options = make_backend(heads, sight), sight.options(heads)
        broken, whole = make_inputs(256, heads), make_inputs(256, heads, seed=1)
        for part in broken:
            part.fill_(float("nan"))
        sizes = {"num_tokens": 256, "num_sequences": 4, "max_seqlen": 256}
        full, padded = make_metadata([256], **sizes), make_metadata([100, 30], **sizes)
        backend.plan(full)
        backend.forward(*broken, full, **options)
        backend.plan(padded)
        hidden = backend.forward(*whole, padded, **options).clone()  # what the next layer gets
        query, key, _ = whole
        value = hidden[:, : key.shape[1]]
        backend.plan(padded)
        output = backend.forward(query, key, value, padded, **options)
        used = [part[:130] for part in (query, key, value)]
        assert_close(output, reference(*used, [100, 30], **options))

    def test_more_sequences_than_kernels_search_one_by_one(self, make_backend, heads, sight):
        backend, options = make_backend(heads, sight), sight.options(heads)
        lengths = [1, 2, 3] * 100
        inputs, metadata = make_inputs(sum(lengths), heads), make_metadata(lengths)
        backend.plan(metadata)
        assert_close(backend.forward(*inputs, metadata, **options), reference(*inputs, lengths, **options))

    def test_a_graph_serves_every_layout_of_its_size(self, make_backend, heads, sight):
        backend, options = make_backend(heads, sight), sight.options(heads)
        if not backend.capturable:
            pytest.skip(f"{backend.name} cannot be captured")
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            inputs = [part.clone() for part in make_inputs(NUM_TOKENS, heads)]
            on_device = torch.zeros(NUM_SEQUENCES + 1, dtype=torch.int32, device=DEVICE)
            sizes = (NUM_TOKENS, NUM_SEQUENCES, MAX_SEQLEN, on_device)
            metadata = make_metadata(LAYOUTS[0], *sizes)
            backend.plan(metadata)
            backend.forward(*inputs, metadata, **options)  # loads the kernels
            stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            backend.plan(metadata)
            graph.capture_begin(capture_error_mode="thread_local")
            output = backend.forward(*inputs, metadata, **options)
            graph.capture_end()
            for seed, lengths in enumerate([*LAYOUTS, *LAYOUTS]):
                for part, fresh in zip(inputs, make_inputs(NUM_TOKENS, heads, seed), strict=True):
                    part.copy_(fresh)
                backend.plan(make_metadata(lengths, *sizes))
                graph.replay()
                used = [part[: sum(lengths)] for part in inputs]
                assert_close(output.clone(), reference(*used, lengths, **options))

    def test_sequences_do_not_see_each_other(self, make_backend, heads, sight):
        backend, options = make_backend(heads, sight), sight.options(heads)
        together, alone = make_metadata([65, 300, 7]), make_metadata([300])
        inputs = make_inputs(372, heads)
        backend.plan(together)
        among_others = backend.forward(*inputs, together, **options)[65:365].clone()
        backend.plan(alone)
        by_itself = backend.forward(*(part[65:365] for part in inputs), alone, **options)
        torch.testing.assert_close(among_others, by_itself, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("heads", [(16, 8, 128), (16, 16, 64)], ids=str)
def test_plans_in_flight_do_not_overwrite_each_other(make_backend, heads):
    """Many batches are planned and replayed while the device is held up."""
    backend = make_backend(heads, Sight())
    if not backend.capturable:
        pytest.skip(f"{backend.name} reads the layout on the host")
    stream = torch.cuda.Stream()
    layouts = [[600 - 50 * number, 50 * number + 100] for number in range(10)]
    inputs = make_inputs(700, heads)
    pinned = [torch.tensor(np.cumsum([0, *lengths]), dtype=torch.int32).pin_memory() for lengths in layouts]
    on_device = torch.zeros(3, dtype=torch.int32, device=DEVICE)
    torch.cuda.synchronize()
    outputs = []
    with torch.cuda.stream(stream):
        on_device.copy_(pinned[0])
        first = AttentionMetadata(on_device, pinned[0].numpy(), 600, 700)
        backend.plan(first)
        backend.forward(*inputs, first)
        stream.synchronize()
        torch.cuda._sleep(1_000_000_000)
        for cu_seqlens in pinned:
            on_device.copy_(cu_seqlens, non_blocking=True)
            metadata = AttentionMetadata(on_device, cu_seqlens.numpy(), 600, 700)
            backend.plan(metadata)
            outputs.append(backend.forward(*inputs, metadata).clone())
        stream.synchronize()
    for lengths, output in zip(layouts, outputs, strict=True):
        assert_close(output, reference(*inputs, lengths, causal=False))


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
@pytest.mark.parametrize(("dtype", "head_dim"), [(torch.float32, 64), (torch.bfloat16, 20)])
def test_what_was_asked_for_by_name_is_not_replaced(backend, dtype, head_dim):
    if backend.why_not(DEVICE, dtype, head_dim) is None:
        pytest.skip("it can")
    shape = AttentionShape(2, 2, head_dim, causal=False, num_layers=1)
    with pytest.raises(ConfigError, match=f"attention: '{backend.name}' cannot be used on cuda:0"):
        select_attention(backend.name, DEVICE, dtype, shape)


@pytest.mark.parametrize(("heads", "sight"), [case for case in CASES if not case[1].causal], ids=str)
def test_auto_is_right_wherever_it_changes_its_choice(heads, sight):
    shape = AttentionShape(*heads, causal=False, num_layers=28, window=sight.window, biased=sight.biased)
    backend, options = select_attention(None, DEVICE, torch.bfloat16, shape), sight.options(heads)
    for lengths in ([16], [128], [512], [4096], [64] * 8, [512] * 8, [17, 300, 45, 900, 64, 8]):
        inputs, metadata = make_inputs(sum(lengths), heads), make_metadata(lengths)
        backend.plan(metadata)
        assert_close(backend.forward(*inputs, metadata, **options), reference(*inputs, lengths, **options))
