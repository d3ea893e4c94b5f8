import logging

import numpy as np
import pytest
import torch

from lazuli.attention.expanding import ExpandingAttention
from lazuli.attention.sdpa import SdpaAttention
from lazuli.cache_folder import find_cache_folder
from lazuli.config import EngineConfig
from lazuli.engine import Engine
from lazuli.native import accelerate as module
from lazuli.native.accelerate import accelerate
from lazuli.native.bert import NativeBert
from lazuli.options import RequestOptions
from lazuli.service import EmbeddingService

pytestmark = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() != module.MEASURED_ON, reason=f"a CPU without {module.MEASURED_ON}"
)
FITTING = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 96}
CACHE = find_cache_folder(None)


def rows_of(lengths, vocab_size=100):
    rng = np.random.default_rng(3)
    return [rng.integers(vocab_size, size=length, dtype=np.int32) for length in lengths]


@pytest.fixture
def folder(tmp_path, write_bert):
    return write_bert(tmp_path, **FITTING)


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_an_engine_gives_the_same_vectors(folder, pooling):
    engines = [
        Engine(EngineConfig(checkpoint=str(folder), pooling=pooling, attention=attention), torch.device("cpu"))
        for attention in (None, "sdpa")
    ]
    assert [engine.needs_torch_threads for engine in engines] == [False, True]
    rows = rows_of([1, 33, 64] * 12)  # so many that early picking of tokens counts
    native, exact = (engine.embed_ids(rows) for engine in engines)
    assert (native * exact).sum(axis=1).min() >= 1 - 1e-6
    np.testing.assert_allclose(native, exact, atol=1e-5)


def test_weights_are_kept_once(folder, load_bert):
    model = load_bert(folder)
    assert accelerate(model, SdpaAttention(), CACHE)
    assert model.native is not None
    assert model.layers == []


@pytest.mark.parametrize(
    ("changes", "attention"),
    [
        ({"hidden_act": "gelu_new"}, SdpaAttention()),
        ({"num_attention_heads": 4}, SdpaAttention()),
        ({}, ExpandingAttention(SdpaAttention())),
    ],
    ids=["another activation", "heads too small", "queries that are filled up"],
)
def test_what_it_does_not_compute_stays_in_torch(tmp_path, write_bert, load_bert, changes, attention):
    model = load_bert(write_bert(tmp_path, **{**FITTING, **changes}))
    assert not accelerate(model, attention, CACHE)
    assert model.native is None
    assert model.layers


def test_without_a_compiler_the_log_says_why(folder, load_bert, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("CXX", "no-such-compiler")
    model = load_bert(folder)
    assert not accelerate(model, SdpaAttention(), tmp_path)
    assert "the model runs in torch, as C++ for it cannot be had: no C++ compiler is on PATH" in caplog.text


def test_results_that_differ_are_not_taken(folder, load_bert, monkeypatch, caplog):
    class Wrong(NativeBert):
        def forward(self, input_ids, position_ids, cu_seqlens):
            hidden = super().forward(input_ids, position_ids, cu_seqlens)
            hidden[-1] += 1
            return hidden

    monkeypatch.setattr(module, "NativeBert", Wrong)
    model = load_bert(folder)
    assert not accelerate(model, SdpaAttention(), CACHE)
    assert "its results differ from torch: least cosine" in caplog.text
    assert model.layers


def test_the_log_says_what_runs(folder, load_bert, caplog):
    with caplog.at_level(logging.INFO, logger="lazuli"):
        accelerate(load_bert(folder), SdpaAttention(), CACHE)
    assert "the model runs in C++" in caplog.text


@pytest.mark.parametrize(("attention", "threads"), [(None, 1), ("sdpa", 2)])
def test_a_service_lets_torch_have_threads_only_where_it_computes(folder, make_sender, attention, threads):
    before = torch.get_num_threads()
    service = EmbeddingService(EngineConfig(checkpoint=str(folder), attention=attention, threads=2), streaming=False)
    try:
        assert torch.get_num_threads() == threads
        ids = np.array([[5, 6, 7]], dtype=np.int32)
        sender = make_sender()
        service.submit(ids, np.ones_like(ids, dtype=np.int8), RequestOptions(), sender, may_step=True, may_wait=True)
        # Where torch needs none, the thread that asks has computed it when it comes back.
        assert attention is not None or sender.ended
        assert sender.wait().embedding().shape == (1, 64)
    finally:
        service.close()
        torch.set_num_threads(before)


def test_other_machines_stay_with_torch(folder, load_bert, monkeypatch, caplog):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    with caplog.at_level(logging.INFO, logger="lazuli"):
        assert not accelerate(load_bert(folder), SdpaAttention(), CACHE)
    assert "only measured to be quicker with AVX512" in caplog.text
