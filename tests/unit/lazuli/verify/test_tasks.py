"""Every task against its references, on tiny random checkpoints; and what is wrong must be seen."""

import json

import numpy as np
import pytest

from lazuli.errors import ConfigError
from lazuli.verify.candidate import Candidate

LIBRARIES = ("transformers", "sentence-transformers")


@pytest.fixture(scope="module")
def embedder(write_embedder):
    return write_embedder()


def calibrated(folder, rng=3.0):
    """Ranges of 32 dimensions that no vector of unit length leaves."""
    ranges = [{"dimensions": 32, "minimum": [-rng] * 32, "maximum": [rng] * 32}]
    content = {"version": 1, "dimension": 32, "normalize": True, "texts": 9, "ranges": ranges}
    (folder / "lazuli_calibration.json").write_text(json.dumps(content))


class TestEncodings:
    @pytest.mark.parametrize("reference", LIBRARIES)
    def test_float16(self, measured, embedder, reference):
        seen = measured(embedder, "--reference", reference, "--output", "float16")
        assert 1 - 1e-5 < seen["least_cosine"] < 1
        assert seen["compared"] == "float16 of 6 queries, 14 documents"

    @pytest.mark.parametrize("output", ["int8", "uint8"])
    def test_bytes(self, verify, measured, write_embedder, output):
        folder = write_embedder()
        missing = verify(folder, "--output", output)
        assert missing.exit_code == 2
        assert "lazuli calibrate" in missing.output
        calibrated(folder, rng=0.6)
        fine = measured(folder, "--output", output)
        assert fine["least_cosine"] > 0.9995
        assert 0 < fine["codes_overlap"] <= 1
        calibrated(folder, rng=12.0)  # so wide that few steps are used
        coarse = verify(folder, "--output", output)
        assert coarse.exit_code == 1
        assert "cosine, least" in coarse.output

    @pytest.mark.parametrize("output", ["binary", "ubinary"])
    def test_bits(self, measured, verify, embedder, write_embedder, output):
        limits = ("--min-overlap", "0.5", "--max-ndcg-drop", "1")
        seen = measured(embedder, "--output", output, *limits)
        assert "least_cosine" not in seen
        assert 0.5 < seen["rank_correlation"] < 1
        other = verify(embedder, "--output", output, "--checkpoint", write_embedder(seed=1), "--min-overlap", "0.9")
        assert other.exit_code == 1

    def test_bits_are_ranked_by_hamming_distance(self, measured, verify, embedder, tmp_path):
        """The same bits as a reference: what has equal distance is equal there, too."""
        file = tmp_path / "bits.npz"
        assert verify(embedder, "--output", "binary", "--reference", "none", "--save", file).exit_code == 0
        seen = measured(embedder, "--output", "ubinary", "--reference", file)
        assert (seen["overlap"], seen["rank_correlation"]) == (1, pytest.approx(1))


class TestNativeQuantiser:
    """Of a checkpoint that only its authors' own code loads, so the reference is a file."""

    @pytest.fixture
    def saved(self, write, verify, tmp_path):
        sizes = {"num_key_value_heads": 2, "head_dim": 16}
        folder, file = write("Qwen3Model", **sizes), tmp_path / "vectors.npz"
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"architectures": ["PPLXQwen3Model"]}))
        assert verify(folder, "--reference", "none", "--save", file).exit_code == 0
        return folder, file

    def test_bytes_and_bits(self, measured, saved):
        folder, file = saved
        seen = measured(folder, "--reference", file, "--output", "int8", "--min-overlap", "0.5")
        assert seen["least_cosine"] > 0.9999  # with tanh of the vectors
        assert "codes_overlap" not in seen  # they need no decoding
        measured(folder, "--reference", file, "--output", "binary", "--min-overlap", "0.3", "--max-ndcg-drop", "1")


def cross_encoder(write, **changes):
    return write("BertForSequenceClassification", num_labels=1, **changes)


class TestScores:
    @pytest.mark.parametrize("reference", LIBRARIES)
    @pytest.mark.parametrize("kind", ["Bert", "XLMRoberta"])
    def test_cross_encoders(self, measured, write, kind, reference):
        positions = {"max_position_embeddings": 130} if kind == "XLMRoberta" else {}
        folder = write(f"{kind}ForSequenceClassification", num_labels=1, **positions)
        seen = measured(folder, "--reference", reference, "--candidates", "12")
        assert seen["score_difference"] < 1e-5 < 0.01 < seen["score_spread"]
        assert seen["overlap"] == 1
        assert seen["compared"] == "scores of 72 pairs from 6 queries, 14 documents"

    @pytest.mark.parametrize("name", ["model", "bge-reranker-tiny"])
    def test_pairs_that_are_too_long(self, measured, write, tmp_path, name):
        """Each kind is cut as its reference cuts it."""
        texts = tmp_path / "long.json"
        words = [" ".join("abcdefghij"[(place * step) % 10] for place in range(80)) for step in (1, 3, 7)]
        queries = [{"text": "a b c"}, {"text": words[2] if name == "model" else words[2][:60]}]
        texts.write_text(json.dumps({"documents": words, "queries": queries}))
        seen = measured(cross_encoder(write, name=name), "--texts", texts, "--min-overlap", "0")
        assert seen["score_difference"] < 1e-5 < 0.001 < seen["score_spread"]

    def test_other_weights_are_seen(self, verify, write):
        other = verify(cross_encoder(write), "--checkpoint", cross_encoder(write, seed=1))
        assert other.exit_code == 1
        assert "score, largest difference by that" in other.output

    def test_language_models(self, measured, verify, write_qwen3_reranker):
        folder = write_qwen3_reranker()
        seen = measured(folder, "--candidates", "4")
        assert seen["score_difference"] < 1e-4 < 0.01 < seen["score_spread"]
        assert verify(folder, "--candidates", "4", "--checkpoint", write_qwen3_reranker(seed=1)).exit_code == 1
        refused = verify(folder, "--reference", "sentence-transformers", "--candidates", "4")
        assert refused.exit_code == 2
        assert "pass transformers" in refused.output

    @pytest.mark.parametrize("reference", LIBRARIES)
    def test_by_vectors(self, measured, embedder, reference):
        seen = measured(embedder, "--task", "rerank", "--reference", reference)
        assert seen["score_difference"] < 1e-5

    @pytest.mark.parametrize("kind", ["splade", "late_interaction"])
    def test_by_vectors_of_other_kinds(self, measured, request, kind):
        folder = request.getfixturevalue(f"write_{kind}")()
        seen = measured(folder, "--task", "rerank", "--reference", "sentence-transformers")
        assert seen["relative_difference"] < 1e-4

    def test_several_scores_need_a_file(self, measured, verify, write_bge_m3, tmp_path):
        folder, file = write_bge_m3(), tmp_path / "scores.npz"
        refused = verify(folder, "--task", "rerank", "--save", file)
        assert refused.exit_code == 2
        assert "transformers does not combine scores by dense, sparse, multi; pass a file" in refused.output
        assert measured(folder, "--task", "rerank", "--reference", file)["score_difference"] == 0

    def test_files_may_hold_more_pairs_and_not_fewer(self, measured, verify, write, tmp_path):
        folder, file = cross_encoder(write), tmp_path / "scores.npz"
        assert verify(folder, "--candidates", "99", "--reference", "none", "--save", file).exit_code == 0
        assert np.load(file)["scores"].shape == (6, 14)
        assert measured(folder, "--reference", file, "--candidates", "5")["score_difference"] < 1e-5
        assert verify(folder, "--candidates", "5", "--reference", "none", "--save", file).exit_code == 0
        fewer = verify(folder, "--candidates", "99", "--reference", file)
        assert fewer.exit_code == 2
        assert "scores[0]: the reference gave NaN" in fewer.output


@pytest.fixture(scope="module")
def classifier(write):
    names = {"x": 0, "y": 1, "z": 2}
    return write(
        "BertForSequenceClassification", id2label={place: name for name, place in names.items()}, label2id=names
    )


class TestLabels:
    @pytest.mark.parametrize("problem", ["single_label_classification", "multi_label_classification"])
    def test_against_transformers(self, measured, write, problem):
        seen = measured(write("BertForSequenceClassification", num_labels=3, problem_type=problem))
        assert seen["probability_difference"] < 1e-5
        assert seen["equal_labels"] == 1
        assert seen["compared"] == "labels of 20 texts"

    def test_a_file(self, measured, verify, classifier, tmp_path):
        file = tmp_path / "labels.npz"
        assert verify(classifier, "--reference", "none", "--save", file).exit_code == 0
        assert measured(classifier, "--reference", file)["probability_difference"] == 0
        content = dict(np.load(file))
        np.savez(file, probabilities=content["probabilities"][:, ::-1], labels=content["labels"])
        assert verify(classifier, "--reference", file).exit_code == 1
        np.savez(file, probabilities=content["probabilities"], labels=content["labels"][::-1])
        other = verify(classifier, "--reference", file)
        assert other.exit_code == 2
        assert "labels: x, y, z against z, y, x of the reference" in other.output

    def test_what_no_library_computes(self, verify, classifier):
        refused = verify(classifier, "--reference", "sentence-transformers")
        assert refused.exit_code == 2
        assert "sentence-transformers computes no labels of this checkpoint; pass a file" in refused.output

    def test_an_output_is_of_vectors_only(self, verify, classifier):
        refused = verify(classifier, "--output", "int8")
        assert refused.exit_code == 2
        assert "output: int8, but the model is for the task classify" in refused.output


class TestTokenOutputs:
    @pytest.mark.parametrize(("kind", "title"), [("splade", "sparse"), ("late_interaction", "multi")])
    def test_against_sentence_transformers(self, measured, verify, request, kind, title):
        write = request.getfixturevalue(f"write_{kind}")
        seen = measured(write(), "--reference", "sentence-transformers", "--min-cosine", "0.999999")
        assert seen["overlap"] == 1
        assert seen["compared"] == f"{title} of 6 queries, 14 documents"
        other = verify(write(), "--reference", "sentence-transformers", "--checkpoint", write(seed=1))
        assert other.exit_code == 1
        refused = verify(write())
        assert refused.exit_code == 2
        assert "transformers computes no" in refused.output

    def test_a_text_without_weights_is_equal_to_itself(self, measured, verify, write_bge_m3, tmp_path):
        folder, file, texts = write_bge_m3(), tmp_path / "reference.npz", tmp_path / "texts.json"
        texts.write_text(json.dumps({"documents": ["a b c", " ", "d e"], "queries": [{"text": "a"}, {"text": "d b"}]}))
        names = json.loads((folder / "tokenizer_config.json").read_text())
        (folder / "tokenizer_config.json").write_text(json.dumps(names | {"eos_token": "[SEP]"}))  # so it has no weight
        common = ("--output", "sparse", "--texts", texts)
        assert verify(folder, *common, "--reference", "none", "--save", file).exit_code == 0
        assert not np.load(file)["documents"][1].any()
        assert measured(folder, *common, "--reference", file)["least_cosine"] > 1 - 1e-9

    @pytest.mark.parametrize("output", ["sparse", "multi"])
    def test_bge_m3_needs_a_file(self, measured, verify, write_bge_m3, tmp_path, output):
        folder, file = write_bge_m3(), tmp_path / "reference.npz"
        refused = verify(folder, "--output", output, "--reference", "sentence-transformers")
        assert refused.exit_code == 2
        assert "sentence-transformers computes no" in refused.output
        assert verify(folder, "--output", output, "--reference", "none", "--save", file).exit_code == 0
        assert measured(folder, "--output", output, "--reference", file)["least_cosine"] > 1 - 1e-9
        other = verify(write_bge_m3(seed=1), "--output", output, "--reference", file)
        assert other.exit_code == 1


class TestContext:
    def test_against_transformers(self, measured, verify, embedder, write_embedder):
        seen = measured(embedder, "--task", "context", "--min-cosine", "0.999999")
        assert seen["compared"] == "float32 of 6 queries, 14 documents in context"
        assert verify(embedder, "--task", "context", "--checkpoint", write_embedder(seed=1)).exit_code == 1

    def test_context_counts(self, verify, embedder, tmp_path):
        file = tmp_path / "alone.npz"
        assert verify(embedder, "--reference", "none", "--save", file).exit_code == 0
        assert verify(embedder, "--task", "context", "--reference", file).exit_code == 1


def test_a_model_of_a_repository_brings_its_task(measured, verify, write, tmp_path, monkeypatch):
    from lazuli.repository.addition import Wish, add

    monkeypatch.setenv("LAZULI_MODEL_REPOSITORY", str(tmp_path / "models"))
    for name, count in (("judge", 1), ("moods", 3)):
        folder = write("BertForSequenceClassification", num_labels=count)
        add(Wish(name, str(folder), tmp_path / "models"), lambda text: None)
    assert measured("judge", "--candidates", "3")["compared"].startswith("scores of ")
    assert measured("moods")["compared"].startswith("labels of ")
    refused = verify("moods", "--task", "rerank")
    assert refused.exit_code == 2
    assert "task: rerank, but the model 'moods' is for the task classify" in refused.output
    with pytest.raises(ConfigError, match="this model is for the task rerank, not for vectors"):  # as `calibrate` asks
        Candidate("judge").configure()
