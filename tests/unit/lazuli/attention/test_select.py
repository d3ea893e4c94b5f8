import logging
from functools import partial

import pytest
import torch

from lazuli.attention import select
from lazuli.attention.auto import AutoAttention
from lazuli.attention.base import AttentionBackend, AttentionShape
from lazuli.attention.sdpa import SdpaAttention
from lazuli.attention.select import BACKENDS, select_attention
from lazuli.attention.table import Entry
from lazuli.attention.torch_varlen import TorchVarlenAttention
from lazuli.attention.triton_ragged import TritonAttention
from lazuli.errors import ConfigError

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def shape(head_dim=32, **special):
    return AttentionShape(12, 12, head_dim, causal=False, num_layers=6, **special)


class TestNothingMeasured:
    @pytest.fixture(autouse=True)
    def no_table(self, monkeypatch):
        monkeypatch.setattr(select, "_read_entries", lambda device: [])

    @pytest.mark.parametrize(
        ("device", "dtype", "head_dim", "expected"),
        [
            ("cpu", torch.float32, 32, SdpaAttention),
            ("cpu", torch.bfloat16, 32, SdpaAttention),
            ("cuda", torch.bfloat16, 32, TritonAttention),
            ("cuda", torch.bfloat16, 40, TorchVarlenAttention),
            ("cuda", torch.float32, 32, SdpaAttention),
            ("cuda", torch.bfloat16, 20, SdpaAttention),
        ],
    )
    def test_the_first_that_can_run_is_chosen(self, device, dtype, head_dim, expected):
        assert type(select_attention(None, torch.device(device), dtype, shape(head_dim))) is expected

    @pytest.mark.parametrize(
        ("head_dim", "special", "expected"),
        [
            (32, {"window": 64}, TritonAttention),
            (40, {"window": 64}, TorchVarlenAttention),
            (32, {"biased": True}, TritonAttention),
            (40, {"biased": True}, SdpaAttention),
        ],
    )
    def test_that_can_do_what_the_model_wants(self, caplog, head_dim, special, expected):
        with caplog.at_level(logging.INFO, logger="lazuli.attention.select"):
            chosen = select_attention(None, CUDA, torch.bfloat16, shape(head_dim, **special))
        assert type(chosen) is expected
        assert ("torch_varlen: it has no relative bias" in caplog.text) == ("biased" in special)


class TestByName:
    def test_it_is_made(self):
        assert type(select_attention("sdpa", CUDA, torch.bfloat16, shape())) is SdpaAttention

    @pytest.mark.parametrize("name", [backend.name for backend in BACKENDS if backend is not SdpaAttention])
    def test_it_is_never_replaced_by_another(self, name):
        with pytest.raises(ConfigError, match=f"attention: '{name}' cannot be used on cpu: it needs a GPU"):
            select_attention(name, CPU, torch.bfloat16, shape(64))

    @pytest.mark.parametrize(
        ("name", "special", "reason"),
        [
            ("torch_varlen", {"biased": True}, "it has no relative bias"),
            ("flash_attn_cute", {"biased": True}, "it has no relative bias"),
            ("flashinfer_fa2", {"window": 64}, "it has no window that is symmetric"),
            ("flashinfer_fa3", {"biased": True}, "it has no relative bias"),
        ],
    )
    def test_nor_if_the_model_wants_what_it_has_not(self, monkeypatch, name, special, reason):
        (backend,) = (backend for backend in BACKENDS if backend.name == name)
        monkeypatch.setattr(backend, "why_not", classmethod(lambda cls, *where: None))
        with pytest.raises(ConfigError, match=f"attention: '{name}' cannot be used on cuda: {reason}"):
            select_attention(name, CUDA, torch.bfloat16, shape(64, **special))

    def test_nor_if_it_fails_to_start(self, monkeypatch):
        def fail(*arguments):
            raise RuntimeError("no compiler")

        monkeypatch.setattr(TorchVarlenAttention, "make", fail)
        with pytest.raises(ConfigError, match="'torch_varlen' failed to start on cuda: no compiler"):
            select_attention("torch_varlen", CUDA, torch.bfloat16, shape())

    def test_an_unknown_name_is_named_with_the_known_ones(self):
        known = ", ".join(backend.name for backend in BACKENDS)
        with pytest.raises(ConfigError, match=f"attention: 'flash' is not one of auto, {known}"):
            select_attention("flash", CPU, torch.float32, shape())


class Fake(AttentionBackend):
    capturable = True
    slow = None
    broken = False
    made = 0

    @classmethod
    def why_not(cls, device, dtype, head_dim):
        return None

    @classmethod
    def why_slow_to_make(cls, shape, dtype):
        return cls.slow

    @classmethod
    def make(cls, shape, device, dtype):
        if cls.broken:
            raise ImportError(f"no {cls.name}")
        cls.made += 1
        return cls()

    def forward(self, query, key, value, metadata, *, causal=False, window=None, bias=None):
        return query


def fake(name, **attributes):
    return type(name.title(), (Fake,), {"name": name, **attributes})


def entry(num_tokens, **call_us):
    return Entry(shape(), num_tokens, float(num_tokens), call_us, {})


class TestMeasured:
    ENTRIES = (
        entry(16, small=1.0, plain=2.0, large=3.0, bad=9.0),
        entry(4096, small=9.0, plain=8.0, large=5.0, bad=9.0),
    )

    def choose(self, monkeypatch, *backends, longest=None):
        monkeypatch.setattr(select, "BACKENDS", backends)
        monkeypatch.setattr(select, "_read_entries", lambda device: list(self.ENTRIES))
        return select_attention(None, CUDA, torch.bfloat16, shape(), longest)

    def choices(self, attention):
        assert type(attention) is AutoAttention
        return [attention.choice(length, 1, length) for length in (16, 4096)]

    def test_each_where_it_is_the_quickest(self, monkeypatch):
        backends = [fake(name) for name in ("plain", "large", "small", "bad")]
        assert self.choices(self.choose(monkeypatch, *backends)) == ["small", "large"]
        assert [backend.made for backend in backends] == [0, 1, 1, 0]  # no other is loaded

    @pytest.mark.parametrize(("longest", "expected"), [(16, [1, 0]), (17, [1, 1]), (9000, [1, 1])])
    def test_what_only_longer_texts_gain_by_is_not_loaded(self, monkeypatch, longest, expected):
        backends = [fake("small"), fake("large")]
        assert type(self.choose(monkeypatch, *backends, longest=longest)) is AutoAttention
        assert [backend.made for backend in backends] == expected

    @pytest.mark.parametrize(
        ("slow", "expected"),
        [
            ({}, [1, 1, 0]),
            ({"large"}, [1, 0, 1]),  # another is almost as quick
            ({"small"}, [1, 1, 0]),
            ({"large", "almost"}, [1, 1, 0]),  # one of the two suffices
        ],
    )
    def test_what_loads_slowly_and_gains_little_is_not_loaded(self, monkeypatch, slow, expected):
        measured = (entry(16, small=1.0, large=3.0, almost=3.0), entry(4096, small=9.0, large=5.0, almost=5.2))
        monkeypatch.setattr(self.__class__, "ENTRIES", measured)
        backends = [fake(name, loads_slowly=name in slow) for name in ("small", "large", "almost")]
        self.choose(monkeypatch, *backends)
        assert [backend.made for backend in backends] == expected

    def test_what_loads_slowly_is_loaded_where_the_better_one_fails(self, monkeypatch):
        monkeypatch.setattr(self.__class__, "ENTRIES", (entry(16, small=9.0, large=5.0, almost=5.1),))
        backends = [fake("small"), fake("large", loads_slowly=True, broken=True), fake("almost", loads_slowly=True)]
        assert self.choose(monkeypatch, *backends).choice(16, 1, 16) == "almost"

    def test_only_what_can_run_here(self, monkeypatch):
        unusable = fake("large", why_not=classmethod(lambda cls, *where: "too old"))
        chosen = self.choose(monkeypatch, fake("plain"), unusable, fake("small"))
        assert self.choices(chosen) == ["small", "plain"]

    def test_only_what_the_model_can_use(self, monkeypatch):
        monkeypatch.setitem(
            globals(), "shape", partial(AttentionShape, 12, 12, 32, causal=False, num_layers=6, window=9)
        )
        backends = [fake("plain", takes_window=True), fake("large", takes_window=True), fake("small")]
        assert self.choices(self.choose(monkeypatch, *backends)) == ["plain", "large"]

    def test_only_what_a_graph_can_hold(self, monkeypatch):
        chosen = self.choose(monkeypatch, fake("plain"), fake("small", capturable=False))
        assert self.choices(chosen) == ["plain", "plain"]

    def test_what_was_not_measured_is_not_taken(self, monkeypatch):
        assert self.choices(self.choose(monkeypatch, fake("new"), fake("plain"))) == ["plain", "plain"]
        assert self.choose(monkeypatch, fake("new"), fake("newer")).name == "new"

    def test_what_fails_to_start_is_left_out_and_said(self, monkeypatch, caplog):
        chosen = self.choose(monkeypatch, fake("plain"), fake("large", broken=True), fake("small"))
        assert self.choices(chosen) == ["small", "plain"]
        assert "large failed to start" in caplog.text

    def test_what_would_take_minutes_to_start_is_left_out_and_said(self, monkeypatch, caplog):
        chosen = self.choose(monkeypatch, fake("plain"), fake("large", slow="it is not compiled"), fake("small"))
        assert self.choices(chosen) == ["small", "plain"]
        assert "large would be quicker for some batches, but it is not compiled" in caplog.text

    def test_the_ranges_are_logged(self, monkeypatch, caplog):
        with caplog.at_level(logging.INFO, logger="lazuli.attention.select"):
            self.choose(monkeypatch, fake("plain"), fake("large"), fake("small"))
        assert "attention backend: auto (chosen)" in caplog.text
        assert "by measured times: 1 text: 16-256 small, 512-8192 large; " in caplog.text


@pytest.mark.parametrize(("name", "how"), [(None, "chosen"), ("sdpa", "asked for")])
def test_the_choice_is_logged(caplog, name, how):
    with caplog.at_level(logging.INFO, logger="lazuli.attention.select"):
        select_attention(name, CPU, torch.float32, shape())
    assert f"attention backend: sdpa ({how})" in caplog.text
    assert ("torch_varlen: it needs a GPU" in caplog.text) == (name is None)


def test_names_are_unique():
    assert len({backend.name for backend in BACKENDS}) == len(BACKENDS)
