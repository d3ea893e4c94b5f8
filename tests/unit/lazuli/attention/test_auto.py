import numpy as np
import torch

from lazuli.attention.auto import AutoAttention
from lazuli.attention.base import AttentionBackend, AttentionMetadata, AttentionShape
from lazuli.attention.table import Entry

SHAPE = AttentionShape(2, 2, 8, causal=False, num_layers=10)


class Recorder(AttentionBackend):
    capturable = True

    def __init__(self, name):
        self.name = name
        self.planned, self.calls = [], []

    @classmethod
    def why_not(cls, device, dtype, head_dim):
        return None

    def plan(self, metadata):
        self.planned.append(metadata)

    def forward(self, query, key, value, metadata, *, causal=False, window=None, bias=None):
        self.calls.append((metadata, causal, window, bias))
        return query


def entry(num_tokens, length, plan_us=None, **call_us):
    return Entry(SHAPE, num_tokens, float(length), call_us, plan_us or {})


ENTRIES = [
    entry(16, 16, quick=5.0, large=9.0),
    entry(4096, 4096, quick=400.0, large=200.0),
    entry(4096, 64, quick=30.0, large=31.0),
]


def make_auto():
    backends = {name: Recorder(name) for name in ("quick", "large")}
    return AutoAttention(backends, ENTRIES, SHAPE.num_layers), backends


def metadata(lengths, num_tokens=None, num_sequences=None, max_seqlen=None):
    cu_seqlens = np.cumsum([0, *lengths], dtype=np.int32)
    if num_sequences is not None:
        cu_seqlens = np.pad(cu_seqlens, (0, num_sequences - len(lengths)), mode="edge")
    return AttentionMetadata(torch.from_numpy(cu_seqlens), cu_seqlens, max_seqlen or max(lengths), num_tokens)


def test_each_batch_goes_to_the_quickest_on_the_nearest():
    auto, _ = make_auto()
    assert auto.choice(20, 1, 20) == "quick"
    assert auto.choice(5000, 1, 5000) == "large"
    assert auto.choice(5000, 80, 64) == "quick"


def test_plan_and_forward_go_to_the_same_backend():
    auto, backends = make_auto()
    for lengths, chosen in (([10], "quick"), ([3000], "large"), ([60] * 60, "quick")):
        batch, heads = metadata(lengths), torch.zeros(sum(lengths), 2, 8)
        auto.plan(batch)
        auto.forward(heads, heads, heads, batch, causal=True, window=7, bias=heads)
        assert backends[chosen].planned.pop() is batch
        assert backends[chosen].calls.pop() == (batch, True, 7, heads)
    assert not any(backend.planned or backend.calls for backend in backends.values())


def test_all_batches_of_a_bucket_go_to_one_backend():
    auto, backends = make_auto()
    for lengths in ([3000], [2000, 900], [1] * 4):
        auto.plan(metadata(lengths, num_tokens=4096, num_sequences=4, max_seqlen=4096))
    assert len(backends["large"].planned) == 3


def test_a_plan_counts_once_for_all_layers():
    backends = {name: Recorder(name) for name in ("planned", "unplanned")}
    entries = [entry(16, 16, plan_us={"planned": 35.0}, planned=5.0, unplanned=8.0)]
    assert AutoAttention(backends, entries, 10).choice(16, 1, 16) == "unplanned"
    assert AutoAttention(backends, entries, 12).choice(16, 1, 16) == "planned"


def test_it_describes_its_choices():
    described = make_auto()[0].describe()
    assert described.startswith("1 text: 16-256 quick, 512-8192 large; 8 texts: ")
    assert "; 50 texts: " in described
