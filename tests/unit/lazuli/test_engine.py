import dataclasses
import os

import numpy as np
import pytest
import torch

from lazuli import engine as engine_module
from lazuli.batch import RaggedBatch
from lazuli.config import EngineConfig
from lazuli.device import choose_device
from lazuli.engine import Engine
from lazuli.errors import ConfigError
from lazuli.options import RequestOptions
from lazuli.outputs.calibration import FILE_NAME, calibrate
from lazuli.outputs.finish import Finish

CPU = torch.device("cpu")


@pytest.fixture
def make(tiny_checkpoint):
    def make(**parameters):
        parameters = {"checkpoint": str(tiny_checkpoint), "dtype": "float32"} | parameters
        return Engine(EngineConfig(**parameters), CPU)

    return make


def rows_of(*lengths, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(100, size=length, dtype=np.int32) for length in lengths]


class TestEngine:
    def test_what_it_says_of_itself(self, make):
        engine = make()
        assert (engine.dimension, engine.limits.vocab_size, engine.limits.max_positions) == (32, 100, 64)
        assert engine.token_budget == 2048
        assert make(token_budget=99).token_budget == 99

    @pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
    def test_alone_is_equal_to_batched(self, make, pooling):
        engine = make(pooling=pooling)
        rows = rows_of(1, 64, 7, 33, 7, 2, 64, 17, 1)
        together = engine.embed_ids(rows)
        assert together.shape == (9, 32)
        for row, vector in zip(rows, together, strict=True):
            alone = engine.embed_ids([row])[0]
            assert float(alone @ vector) >= 1 - 1e-6
            np.testing.assert_allclose(alone, vector, atol=1e-6)

    def test_equal_rows_give_equal_vectors_wherever_they_stand(self, make):
        row, *others = rows_of(9, 3, 9, 20)
        vectors = make().embed_ids([row, *others, row])
        np.testing.assert_allclose(vectors[0], vectors[-1], atol=1e-6)
        assert float(vectors[0] @ vectors[2]) < 0.999

    def test_vectors_are_finite_float32_of_unit_length(self, make):
        vectors = make().embed_ids(rows_of(5, 6))
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)

    def test_unless_said_otherwise(self, make):
        engine = make()
        raw, scaled = (engine.embed_ids(rows_of(5, 6), normalize=flag) for flag in (False, True))
        assert (np.abs(np.linalg.norm(raw, axis=1) - 1) > 0.01).all()
        np.testing.assert_allclose(raw / np.linalg.norm(raw, axis=1, keepdims=True), scaled, atol=1e-6)

    def test_step_keeps_the_order_of_the_batch(self, make):
        engine = make()
        rows = rows_of(9, 3, 5)
        batch = RaggedBatch.pack(rows, [True] * 3)
        expected = engine.embed_ids(rows)
        np.testing.assert_array_equal(engine.step(batch).result(), expected[batch.order])

    def test_each_pooling_gives_other_vectors(self, make):
        vectors = [make(pooling=pooling).embed_ids(rows_of(9))[0] for pooling in ("mean", "cls", "last")]
        assert all(float(a @ b) < 0.999 for a, b in ((vectors[0], vectors[1]), (vectors[1], vectors[2])))

    def test_the_checkpoint_decides_the_pooling(self, tmp_path, write_bert, make):
        folder = write_bert(tmp_path, pooling="cls")
        expected = make(checkpoint=str(folder), pooling="cls").embed_ids(rows_of(9))
        assert np.array_equal(make(checkpoint=str(folder)).embed_ids(rows_of(9)), expected)

    def test_bfloat16(self, make):
        exact, quick = (make(dtype=dtype).embed_ids(rows_of(9, 33)) for dtype in ("float32", "bfloat16"))
        assert quick.dtype == np.float32
        assert ((exact * quick).sum(axis=1) >= 0.99).all()
        assert not np.array_equal(exact, quick)

    def test_warm_up(self, tmp_path, write_bert, make):
        make(checkpoint=str(write_bert(tmp_path, max_position_embeddings=512))).warm_up()

    def test_it_is_warmed_up_within_the_most_sequences(self, make, monkeypatch):
        engine = make(max_batch_sequences=3)
        seen, step = [], engine.step
        monkeypatch.setattr(engine, "step", lambda batch: seen.append(batch.num_sequences) or step(batch))
        engine.warm_up()
        assert max(seen) == 3

    def test_a_model_of_few_positions_is_warmed_up_within_them(self, make):
        engine = make()
        assert engine.limits.max_positions == 64
        engine.warm_up()


class TestTasks:
    """With heads; `tests/unit/lazuli/heads` compares their values with references."""

    def classifier(self, folder, write_bert, make_bert_tensors, labels=1):
        generator = torch.Generator().manual_seed(0)  # the difference that bfloat16 makes hangs on them
        shapes = {"classifier.weight": (labels, 32), "classifier.bias": (labels,)}
        head = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
        names = {str(number): f"L{number}" for number in range(labels)}
        changes = {"architectures": ["BertForSequenceClassification"], "id2label": names}
        return str(write_bert(folder, tensors=make_bert_tensors() | head, **changes))

    def test_what_it_says_of_itself(self, tmp_path, write_bert, make_bert_tensors, make):
        engine = make(checkpoint=self.classifier(tmp_path, write_bert, make_bert_tensors, 3), task="classify")
        assert (engine.dimension, engine.head.labels, engine.num_segments) == (3, ("L0", "L1", "L2"), 2)
        assert make().head is None
        engine.warm_up()

    def test_a_head_has_its_own_pooling(self, tmp_path, write_bert, make_bert_tensors, make):
        folder = self.classifier(tmp_path, write_bert, make_bert_tensors)
        scores = make(checkpoint=folder, task="rerank").embed_ids(rows_of(9, 3))
        assert np.array_equal(make(checkpoint=folder, task="rerank", pooling="cls").embed_ids(rows_of(9, 3)), scores)
        with pytest.raises(ConfigError, match=r"pooling: 'mean', but the head of .* needs 'cls'"):
            make(checkpoint=folder, task="rerank", pooling="mean")

    def test_a_head_makes_no_vectors(self, tmp_path, write_bert, make_bert_tensors, make):
        with pytest.raises(ConfigError, match="made for the task rerank, and its vectors mean nothing"):
            make(checkpoint=self.classifier(tmp_path, write_bert, make_bert_tensors))

    def test_a_checkpoint_without_a_head_gives_no_labels(self, make):
        with pytest.raises(ConfigError, match="BertModel has no labels"):
            make(task="classify")

    def test_a_head_is_float32_where_the_model_is_not(self, tmp_path, write_bert, make_bert_tensors, make):
        folder = self.classifier(tmp_path, write_bert, make_bert_tensors)
        engine = make(checkpoint=folder, task="rerank", dtype="bfloat16")
        assert [layer._linear.weight.dtype for layer in engine._encoder._head] == [torch.float32] * 2
        exact = make(checkpoint=folder, task="rerank").embed_ids(rows_of(9, 33))
        np.testing.assert_allclose(engine.embed_ids(rows_of(9, 33)), exact, atol=0.1)

    def test_the_dtype_is_chosen_by_what_the_head_reads(
        self, tmp_path, write_bert, make_bert_tensors, make, monkeypatch
    ):
        seen = []
        monkeypatch.setattr("lazuli.precision.has_amx_bf16", lambda: True)
        monkeypatch.setattr("lazuli.precision.worst_cosine", lambda exact, quick: seen.append(exact.dimension) or 1.0)
        folder = self.classifier(tmp_path, write_bert, make_bert_tensors)
        assert make(checkpoint=folder, task="rerank", dtype=None).dimension == 1
        assert seen == [32]


class TestWithoutGraphs:
    """On a CPU."""

    def test_there_is_nothing_to_do_in_idle_time(self, make):
        engine = make()
        engine.warm_up()
        assert engine.use_idle_time(quiet=True) is False

    def test_all_counters_are_zero(self, make):
        engine = make()
        engine.embed_ids(rows_of(3))
        assert not any(dataclasses.astuple(engine.graph_counters))

    def test_nothing_is_written(self, make, tmp_path, monkeypatch):
        monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
        engine = make(cache_dir=str(tmp_path / "cache"))
        engine.warm_up()
        engine.close()
        assert not (tmp_path / "cache").exists()
        assert "TRITON_CACHE_DIR" not in os.environ


class TestGate:
    """`dtype: auto` on a CPU with AMX."""

    @pytest.fixture
    def with_amx(self, monkeypatch):
        monkeypatch.setattr("lazuli.precision.has_amx_bf16", lambda: True)

    def dtype_of(self, engine):
        return engine._encoder._model.embedding.tokens.dtype

    def write(self, write_bert, make_bert_tensors, folder, offset):
        """With a large offset bfloat16 rounds away what tells tokens apart; a norm takes it off."""
        sizes = {"max_position_embeddings": 128}
        tensors = make_bert_tensors(**sizes)
        tensors["embeddings.word_embeddings.weight"] += offset
        return str(write_bert(folder, tensors=tensors, **sizes))

    def test_a_model_whose_vectors_hold_is_bfloat16(self, with_amx, tmp_path, write_bert, make_bert_tensors, make):
        folder = self.write(write_bert, make_bert_tensors, tmp_path, 0.0)
        assert self.dtype_of(make(checkpoint=folder, dtype=None)) == torch.bfloat16

    def test_one_whose_vectors_do_not_hold_stays_float32(self, with_amx, tmp_path, write_bert, make_bert_tensors, make):
        folder = self.write(write_bert, make_bert_tensors, tmp_path, 1000.0)
        assert self.dtype_of(make(checkpoint=folder, dtype=None)) == torch.float32
        assert self.dtype_of(make(checkpoint=folder, dtype="bfloat16")) == torch.bfloat16  # asked for

    def test_a_model_of_few_positions_is_probed_within_them(self, with_amx, make):
        assert self.dtype_of(make(dtype=None)) in (torch.float32, torch.bfloat16)

    def test_without_amx_it_is_float32(self, monkeypatch, make):
        monkeypatch.setattr("lazuli.precision.has_amx_bf16", lambda: False)
        assert self.dtype_of(make(dtype=None)) == torch.float32


class TestFailures:
    def test_a_checkpoint_that_is_not_there(self, make):
        with pytest.raises(ConfigError, match="checkpoint: '/no/such'"):
            make(checkpoint="/no/such")

    @pytest.mark.parametrize("attention", ["flash", "torch_varlen"])
    def test_an_attention_backend_that_cannot_be_used(self, make, attention):
        with pytest.raises(ConfigError, match=f"attention: '{attention}'"):
            make(attention=attention)


class TestChooseDevice:
    @pytest.fixture
    def gpus(self, monkeypatch):
        def gpus(count):
            monkeypatch.setattr(engine_module.torch.cuda, "is_available", lambda: count > 0)
            monkeypatch.setattr(engine_module.torch.cuda, "device_count", lambda: count)

        return gpus

    @pytest.mark.parametrize(
        ("count", "name", "gpu_index", "expected"),
        [
            (0, None, None, "cpu"),
            (0, "cpu", None, "cpu"),
            (2, "cpu", 1, "cpu"),
            (2, None, None, "cuda:0"),
            (2, None, 1, "cuda:1"),
            (2, "cuda", None, "cuda:0"),
            (2, "cuda", 1, "cuda:1"),
            (2, "cuda:1", 0, "cuda:1"),
        ],
    )
    def test_choice(self, gpus, count, name, gpu_index, expected):
        gpus(count)
        assert choose_device(name, gpu_index) == torch.device(expected)

    @pytest.mark.parametrize(("count", "name"), [(0, "cuda"), (0, "cuda:0"), (2, "cuda:2")])
    def test_a_gpu_that_is_not_there(self, gpus, count, name):
        gpus(count)
        with pytest.raises(ConfigError, match=f"device: '{name}' is asked for, but torch sees {count} GPUs"):
            choose_device(name, None)

    def test_the_gpu_of_the_instance_must_be_there_as_well(self, gpus):
        gpus(1)
        with pytest.raises(ConfigError, match="torch sees 1 GPUs"):
            choose_device(None, 1)

    @pytest.mark.parametrize("name", ["gpu", "", "cuda:x", "mps", "meta", "xpu"])
    def test_another_name(self, gpus, name):
        gpus(2)
        with pytest.raises(ConfigError, match=f"device: '{name}' is not one of auto, cpu, cuda, cuda:N"):
            choose_device(name, None)


class TestFloat16:
    def test_vectors_are_near_those_of_float32(self, make):
        rows = rows_of(3, 17, 64)
        engine = make(dtype="float16")
        engine.warm_up()
        vectors = engine.embed_ids(rows)
        assert vectors.dtype == np.float32
        assert float((vectors * make().embed_ids(rows)).sum(axis=1).min()) >= 0.9999

    def test_a_checkpoint_that_overflows_does_not_start(self, tmp_path, write_bert, make_bert_tensors):
        tensors = make_bert_tensors()
        tensors["encoder.layer.1.output.dense.bias"] += 70_000
        engine = Engine(EngineConfig(checkpoint=str(write_bert(tmp_path, tensors=tensors)), dtype="float16"), CPU)
        with pytest.raises(ConfigError, match="dtype: float16: this checkpoint overflows in it"):
            engine.warm_up()

    def test_models_that_are_known_to_overflow_are_not_even_loaded(self, tmp_path, write_bert):
        folder = write_bert(tmp_path, architectures=["PPLXQwen3Model"])
        with pytest.raises(ConfigError, match="dtype: float16: PPLXQwen3Model overflows"):
            Engine(EngineConfig(checkpoint=str(folder), dtype="float16"), CPU)


class TestFinish:
    def test_an_engine_reads_the_ranges_beside_its_checkpoint(self, tmp_path, write_bert):
        folder = write_bert(tmp_path)
        engine = Engine(EngineConfig(checkpoint=str(folder), dtype="float32"), CPU)
        assert engine.dense_model.calibration is None
        vectors = engine.embed_ids(rows_of(*range(1, 40)))
        calibrate(vectors, (), normalize=True).write(folder / FILE_NAME)
        engine = Engine(EngineConfig(checkpoint=str(folder), dtype="float32"), CPU)
        form = engine.dense_model.choose(RequestOptions(output=("uint8",)))
        batch = RaggedBatch.pack(rows_of(5), [form.finish])
        (encoded,) = form.read(np.zeros(1, np.int32), engine.step(batch).result())["embedding_uint8"]
        minimum, maximum = vectors.min(axis=0), vectors.max(axis=0)
        places = (engine.embed_ids(rows_of(5))[0] - minimum) / (maximum - minimum) * 255
        np.testing.assert_allclose(encoded, np.clip(places, 0, 255), atol=1.01)

    def test_for_few_tokens_and_for_many(self, make):
        engine = make()
        for lengths in ((5,), (64,) * 20):
            rows = rows_of(*lengths)
            codes = [Finish(True, "binary").code] * len(rows)
            batch = RaggedBatch.pack(rows, codes)
            bits = np.packbits(engine.embed_ids(rows)[batch.order] > 0, axis=1)
            assert (engine.step(batch).result().view(np.int8)[:, :4] == (bits.astype(np.int16) - 128)).all()
