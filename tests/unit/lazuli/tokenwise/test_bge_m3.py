"""bge-m3's three outputs against a plain re-implementation of FlagEmbedding's formulas."""

import numpy as np
import pytest
import torch

from lazuli.errors import ConfigError, NonFiniteError
from lazuli.options import RequestOptions
from lazuli.tokenwise.probe import run_pairs, run_tokens

LENGTHS = (2, 7, 7, 33, 62, 3)
ALL = ("float32", "sparse", "multi")


@pytest.fixture(params=[".pt", ".safetensors"])
def reference(request, tmp_path, write_bge_m3):
    return tmp_path, write_bge_m3(tmp_path, suffix=request.param, multi_size=24)


@torch.inference_mode()
def by_formula(model, sparse, multi, ids):
    """Vector, weights by id, and vectors of tokens, of one text."""
    tokens = torch.from_numpy(ids).long().unsqueeze(0)
    hidden = model(tokens, position_ids=torch.arange(2, 2 + len(ids)).unsqueeze(0)).last_hidden_state[0]
    weights: dict[int, float] = {}
    for number, weight in zip(ids.tolist(), torch.relu(sparse(hidden)).squeeze(1).tolist(), strict=True):
        if number not in (0, 1, 2, 3) and weight > weights.get(number, 0.0):
            weights[number] = weight
    vectors = torch.nn.functional.normalize(multi(hidden[1:]), dim=-1)
    return torch.nn.functional.normalize(hidden[0], dim=-1).numpy(), weights, vectors.numpy()


def scores_by_formula(query, document):
    dense = float(query[0] @ document[0])
    sparse = sum(weight * document[1].get(number, 0.0) for number, weight in query[1].items())
    products = query[2].astype(float) @ document[2].astype(float).T
    return dense, sparse, float(products.max(axis=1).mean())


def outputs_of(engine, rows, output=ALL, **options):
    return run_tokens(engine.run, rows, engine.answers.choose(RequestOptions(output=output, **options)))


def as_weights(outputs, row):
    pairs = zip(outputs["sparse_ids"][row].tolist(), outputs["sparse_weights"][row].tolist(), strict=True)
    return {number: weight for number, weight in pairs if number != -1}


class TestOutputs:
    def test_against_the_formulas(self, reference, make_engine, rows_of):
        folder, parts = reference
        rows = rows_of(*LENGTHS)
        outputs = outputs_of(make_engine(folder), rows)
        for row, ids in enumerate(rows):
            vector, weights, vectors = by_formula(*parts, ids)
            assert float(outputs["embedding"][row] @ vector) >= 1 - 1e-6
            assert as_weights(outputs, row) == pytest.approx(weights, abs=1e-5)
            count = int(outputs["multi_vector_count"][row, 0])
            assert count == len(ids) - 1
            np.testing.assert_allclose(outputs["multi_vector"][row, :count], vectors, atol=1e-5)
            assert not outputs["multi_vector"][row, count:].any()

    def test_ids_ascend_and_padding_is_at_the_end(self, reference, make_engine, rows_of):
        outputs = outputs_of(make_engine(reference[0]), rows_of(*LENGTHS))
        for ids, weights in zip(outputs["sparse_ids"], outputs["sparse_weights"], strict=True):
            count = int((ids >= 0).sum())
            assert (np.diff(ids[:count]) > 0).all()
            assert (weights[:count] > 0).all()
            assert (ids[count:] == -1).all()
            assert not weights[count:].any()

    def test_a_text_alone_is_equal_to_the_same_in_a_batch(self, reference, make_engine, rows_of):
        engine, rows = make_engine(reference[0]), rows_of(*LENGTHS)
        together = outputs_of(engine, rows)
        for row, ids in enumerate(rows):
            alone = outputs_of(engine, [ids])
            np.testing.assert_allclose(together["embedding"][row], alone["embedding"][0], atol=1e-6)
            assert as_weights(together, row) == pytest.approx(as_weights(alone, 0), abs=1e-6)
            count = len(ids) - 1
            np.testing.assert_allclose(together["multi_vector"][row, :count], alone["multi_vector"][0], atol=1e-6)

    def test_only_what_is_asked_for_is_answered(self, reference, make_engine, rows_of):
        engine = make_engine(reference[0])
        assert set(outputs_of(engine, rows_of(5), ("sparse",))) == {"sparse_ids", "sparse_weights"}
        assert set(outputs_of(engine, rows_of(5), ("multi",))) == {"multi_vector", "multi_vector_count"}
        typed = outputs_of(engine, rows_of(5), ("float16", "sparse"))
        assert typed["embedding_float16"].dtype == np.float16

    def test_vectors_are_those_of_the_other_program(self, reference, make_engine, rows_of):
        engine, rows = make_engine(reference[0]), rows_of(*LENGTHS)
        np.testing.assert_allclose(outputs_of(engine, rows)["embedding"], engine.embed_ids(rows), atol=1e-6)

    def test_a_text_without_weights(self, reference, make_engine):
        outputs = outputs_of(make_engine(reference[0]), [np.array([0, 2], dtype=np.int32)])
        assert outputs["sparse_ids"].tolist() == [[-1]]
        assert outputs["sparse_weights"].tolist() == [[0.0]]

    def test_what_is_not_finite_names_the_row(self, reference, make_engine, rows_of):
        engine = make_engine(reference[0])
        engine._encoder._model.embedding.tokens[77] = float("nan")
        rows = [*rows_of(5, 9), np.array([0, 77, 2], dtype=np.int32)]
        for output, name in (("sparse", "sparse_weights"), ("multi", "multi_vector"), ("float32", "embedding")):
            with pytest.raises(NonFiniteError, match=rf"{name}\[2\]: the model computed NaN"):
                outputs_of(engine, rows, (output, "sparse") if output == "float32" else (output,))


class TestPairs:
    def test_against_the_formulas(self, reference, make_engine, rows_of):
        folder, parts = reference
        queries, documents = rows_of(5, 9, 2, seed=1), rows_of(33, 5, 62, seed=2)
        pairs = [(query, document) for query in queries for document in documents]
        scores = run_pairs(make_engine(folder, task="rerank").run, pairs)
        known = {ids.tobytes(): by_formula(*parts, ids) for ids in (*queries, *documents)}
        expected = [scores_by_formula(known[query.tobytes()], known[document.tobytes()]) for query, document in pairs]
        np.testing.assert_allclose(scores, expected, atol=1e-5)

    def test_a_pair_alone_is_equal_to_the_same_in_a_batch(self, reference, make_engine, rows_of):
        run = make_engine(reference[0], task="rerank").run
        pairs = list(zip(rows_of(5, 9, 5, seed=1), rows_of(33, 5, 62, seed=2), strict=True))
        together = run_pairs(run, pairs)
        for scores, pair in zip(together, pairs, strict=True):
            np.testing.assert_allclose(scores, run_pairs(run, [pair])[0], atol=1e-6)

    def test_a_text_of_several_pairs_is_computed_once(self, reference, make_engine, monkeypatch, rows_of):
        engine, sizes = make_engine(reference[0], task="rerank"), []
        run = engine._stepper.run
        monkeypatch.setattr(
            engine._stepper, "run", lambda batch, compute: sizes.append(batch.num_sequences) or run(batch, compute)
        )
        query, *documents = rows_of(5, 9, 12, 9)
        run_pairs(engine.run, [(query, document) for document in (*documents, query)])
        assert sizes == [5]  # as a query and as a document: models may treat these differently


class TestFiles:
    def test_a_layer_of_another_size(self, tmp_path, write_bge_m3, make_engine):
        write_bge_m3(tmp_path)
        torch.save(torch.nn.Linear(16, 1).state_dict(), tmp_path / "sparse_linear.pt")
        with pytest.raises(ConfigError, match=r"sparse_linear.pt: the tensor 'weight' has shape \[1, 16\]"):
            make_engine(tmp_path)

    def test_a_bias_of_another_size(self, tmp_path, write_bge_m3, make_engine):
        write_bge_m3(tmp_path)
        torch.save({"weight": torch.ones(1, 32), "bias": torch.ones(2)}, tmp_path / "sparse_linear.pt")
        with pytest.raises(ConfigError, match=r"sparse_linear.pt: the tensor 'bias' has shape \[2\], expected \[1\]"):
            make_engine(tmp_path)

    @pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
    @pytest.mark.parametrize("kept", [0, 1, 8, 100, -1])
    def test_a_damaged_file(self, tmp_path, write_bge_m3, make_engine, suffix, kept):
        write_bge_m3(tmp_path, suffix=suffix)
        file = tmp_path / f"sparse_linear{suffix}"
        file.write_bytes(file.read_bytes()[:kept])
        with pytest.raises(ConfigError, match=rf"sparse_linear{suffix}: it cannot be read as tensors \(.+\)"):
            make_engine(tmp_path)

    @pytest.mark.parametrize("error", [IndexError(), KeyError("x"), AssertionError(""), ValueError("a\nb")])
    def test_whatever_torch_raises(self, tmp_path, write_bge_m3, make_engine, monkeypatch, error):
        def fail(*_, **__):
            raise error

        write_bge_m3(tmp_path)
        monkeypatch.setattr(torch, "load", fail)
        with pytest.raises(ConfigError, match=r"_linear.pt: it cannot be read as tensors \(.+\)"):
            make_engine(tmp_path)

    @pytest.mark.parametrize(
        ("missing", "there"), [("sparse_linear", "colbert_linear"), ("colbert_linear", "sparse_linear")]
    )
    def test_half_of_a_copy(self, tmp_path, write_bge_m3, make_engine, missing, there):
        write_bge_m3(tmp_path)
        (tmp_path / f"{missing}.pt").unlink()
        with pytest.raises(
            ConfigError, match=rf"checkpoint: {tmp_path} has {there} but no {missing} \(.safetensors or"
        ):
            make_engine(tmp_path)

    @pytest.mark.parametrize("content", [{"weight": 3}, [1], {"scale": torch.ones(2)}])
    def test_a_file_of_something_else(self, tmp_path, write_bge_m3, make_engine, content):
        write_bge_m3(tmp_path)
        torch.save(content, tmp_path / "sparse_linear.pt")
        with pytest.raises(ConfigError, match=r"sparse_linear.pt: "):
            make_engine(tmp_path)

    def test_a_pickle_is_not_run(self, tmp_path, write_bge_m3, make_engine):
        class Evil:
            def __reduce__(self):
                return (open, (str(tmp_path / "made"), "w"))

        write_bge_m3(tmp_path)
        torch.save({"weight": Evil()}, tmp_path / "sparse_linear.pt")
        with pytest.raises(ConfigError, match=r"sparse_linear.pt: it cannot be read as tensors"):
            make_engine(tmp_path)
        assert not (tmp_path / "made").exists()
