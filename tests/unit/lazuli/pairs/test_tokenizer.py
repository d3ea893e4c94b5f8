import importlib.util
import json
import random
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from lazuli.checkpoint import load_checkpoint, resolve_checkpoint
from lazuli.errors import ConfigError, InputError, OptionError
from lazuli.pairs.config import PairTokenizerConfig
from lazuli.pairs.prompt import AFTER, BEFORE, DEFAULT_INSTRUCTION
from lazuli.pairs.tokenizer import check_template, load_pair_tokenizer, pad_pairs
from lazuli.scoring.options import RerankOptions

_spec = importlib.util.spec_from_file_location("pair_vocabularies", Path(__file__).with_name("pair_vocabularies.py"))
vocabularies = sys.modules["pair_vocabularies"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(vocabularies)

MINILM = "all-MiniLM-L6-v2"
WORDS = ("one", "two", "three", "four", "five", "panda", "bear", "China", "lives", "where", "what", "is")


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Loading sets this; monkeypatch puts it back."""
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture(scope="module")
def minilm():
    return AutoTokenizer.from_pretrained(resolve_checkpoint(MINILM))


@pytest.fixture(scope="module")
def flag(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "bge-reranker-tiny"
    return vocabularies.write(
        folder, vocabularies.xlm_roberta(), "XLMRobertaForSequenceClassification", model_type="xlm-roberta"
    )


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "with an end token"])
def qwen3(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "Qwen3-Reranker-tiny"
    return vocabularies.write(folder, vocabularies.qwen3(end=request.param), "Qwen3ForCausalLM")


def load(checkpoint, **parameters):
    if checkpoint == MINILM:  # which is no cross-encoder
        parameters.setdefault("pair_template", "segments")
    return load_pair_tokenizer(PairTokenizerConfig(checkpoint=str(checkpoint), **parameters))


def text(count, seed=0):
    return " ".join(random.Random(seed).choices(WORDS, k=count))


def tokenize(tokenizer, *pairs, **options):
    queries, documents = zip(*pairs, strict=True)
    return tokenizer.tokenize(queries, documents, RerankOptions(**options))


# Of every kind: nothing, one of them long, both long, alike and not.
SIZES = [(0, 0), (0, 9), (9, 0), (5, 5), (5, 80), (80, 5), (80, 81), (81, 80), (15, 15), (14, 15), (15, 14), (14, 300)]


class TestSegments:
    @pytest.mark.parametrize("limit", [5, 32, 33, 256])
    def test_equal_to_transformers(self, minilm, limit):
        pairs = [(text(first, 1), text(second, 2)) for first, second in SIZES]
        expected = minilm(pairs, truncation=True, max_length=limit)
        results = tokenize(load(MINILM, max_seq_length=limit), *pairs)
        assert [pair.input_ids for pair in results] == expected["input_ids"]
        assert [pair.token_type_ids for pair in results] == expected["token_type_ids"]
        whole = minilm(pairs)["input_ids"]
        assert [pair.truncated for pair in results] == [len(ids) > limit for ids in whole]

    def test_alone_and_in_a_batch(self):
        tokenizer = load(MINILM, max_seq_length=32, threads=3)
        pairs = [(text(first, 1), text(second, 2) + " x" * 900) for first, second in SIZES * 3]
        assert tokenize(tokenizer, *pairs) == [tokenize(tokenizer, pair)[0] for pair in pairs]

    def test_the_start_is_cut_where_asked_for(self):
        tokenizer = load(MINILM, max_seq_length=13)
        (result,) = tokenize(tokenizer, ("one two three four five six", "a b c d e f g"), truncate="start")
        expected = tokenize(load(MINILM), ("two three four five six", "c d e f g"))[0]
        assert (result.input_ids, result.token_type_ids) == (expected.input_ids, expected.token_type_ids)

    def test_a_text_that_is_much_too_long_is_cut_as_if_it_was_read_whole(self, minilm):
        pairs = [("what is it", text(50_000)), (text(50_000), "what is it")]
        expected = minilm(pairs, truncation=True, max_length=64)["input_ids"]
        assert [pair.input_ids for pair in tokenize(load(MINILM, max_seq_length=64), *pairs)] == expected

    @pytest.mark.parametrize("token", ["[SEP]", "[CLS]", "[MASK]", "[PAD]"])
    def test_no_text_becomes_a_special_token(self, minilm, token):
        (pair,) = tokenize(load(MINILM), (f"a {token}", f"{token} b"))
        assert pair.input_ids.count(minilm.sep_token_id) == 2
        assert pair.input_ids.count(minilm.cls_token_id) == 1
        assert not {minilm.mask_token_id, minilm.pad_token_id} & set(pair.input_ids)

    def test_too_long_is_an_error_if_nothing_may_be_cut(self):
        tokenizer = load(MINILM, max_seq_length=32)
        fine = ("one two", text(20))
        with pytest.raises(InputError) as caught:
            tokenize(tokenizer, fine, ("one two", text(40)), truncate="none")
        assert str(caught.value) == (
            'document[1]: 45 tokens with its query, but at most 32 are allowed; shorten it or pass truncate="end"'
        )
        with pytest.raises(InputError, match=r"^query\[0\]: 40 tokens, but at most 27 are allowed beside its document"):
            tokenize(tokenizer, (text(40), "one two"), fine, truncate="none")
        assert not any(pair.truncated for pair in tokenize(tokenizer, fine, truncate="none"))

    @pytest.mark.parametrize("place", [0, 1], ids=["query", "document"])
    def test_of_a_text_that_is_read_in_part_no_length_is_told(self, place):
        tokenizer, pair = load(MINILM, max_seq_length=64), ["what is it", "what is it"]
        pair[place] = text(50_000)
        with pytest.raises(InputError, match=rf"^{('query', 'document')[place]}\[0\]: over \d+ tokens") as caught:
            tokenize(tokenizer, pair, truncate="none")
        count = int(str(caught.value).split("over ")[1].split()[0])
        assert 64 < count < 50_000

    def test_a_query_much_too_long_beside_a_document_that_is_whole(self):
        """Both are too long: then the message is of the document, whose count holds that of the query."""
        tokenizer = load(MINILM, max_seq_length=64)
        with pytest.raises(InputError, match=r"^document\[0\]: over \d+ tokens with its query"):
            tokenize(tokenizer, (text(50_000), text(100)), truncate="none")

    @pytest.mark.parametrize(
        ("names", "segments"),
        [
            (None, [0, 0, 0, 1, 1]),
            (["input_ids", "token_type_ids", "attention_mask"], [0, 0, 0, 1, 1]),
            (["input_ids", "attention_mask"], [0] * 5),
        ],
    )
    def test_segments_are_left_out_where_the_tokenizer_does(self, tmp_path, names, segments):
        shutil.copy(resolve_checkpoint(MINILM) / "tokenizer.json", tmp_path)
        model = {"architectures": ["BertForSequenceClassification"], "max_position_embeddings": 64}
        (tmp_path / "config.json").write_text(json.dumps(model))
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_input_names": names} if names else {}))
        (pair,) = tokenize(load(tmp_path), ("one", "two"))
        assert pair.token_type_ids == segments

    def test_an_instruction_is_refused_and_not_ignored(self):
        with pytest.raises(OptionError, match="instruction: this model reads none"):
            tokenize(load(MINILM), ("a", "b"), instruction="find it")

    @pytest.mark.parametrize("limit", [3, 4])
    def test_a_limit_without_room_is_refused(self, limit):
        with pytest.raises(ConfigError, match=f"max_seq_length: {limit} leaves no room for a query and a document"):
            load(MINILM, max_seq_length=limit)

    def test_the_limit_is_the_checkpoints_unless_asked_for(self):
        assert load(MINILM).max_seq_length == 256
        assert load(MINILM, max_seq_length=512).max_seq_length == 512
        with pytest.raises(ConfigError, match="max_seq_length: 513, but the model takes 512"):
            load(MINILM, max_seq_length=513)


class TestFlagReranker:
    """`bge-reranker-*`: the query is cut to three quarters of the limit, then the document to what is left."""

    @pytest.mark.parametrize("limit", [17, 33, 64])
    def test_equal_to_its_reference(self, flag, limit):
        plain = vocabularies.xlm_roberta()
        pairs = [(text(first, 1), text(second, 2)) for first, second in SIZES]
        results = tokenize(load(flag, max_seq_length=limit), *pairs)
        for (query, document), result in zip(pairs, results, strict=True):
            first = plain.encode(query, add_special_tokens=False).ids[: limit * 3 // 4]
            second = plain.encode(document, add_special_tokens=False).ids
            second = second[: max(0, limit - 4 - len(first))]
            assert result.input_ids == [0, *first, 2, 2, *second, 2]
            assert result.token_type_ids == [0] * len(result.input_ids)
            assert result.truncated == (len(plain.encode(query, document).ids) > limit)

    def test_its_limit_is_512_by_default(self, flag):
        assert load(flag).max_seq_length == 512
        assert load(flag, max_seq_length=1024).max_seq_length == 1024
        assert load(flag, pair_truncation="longest_first").max_seq_length == 40960 - 2

    def test_a_cross_encoder_of_the_same_kind_is_cut_as_usual(self, tmp_path):
        folder = vocabularies.write(
            tmp_path / "mmarco", vocabularies.xlm_roberta(), "XLMRobertaForSequenceClassification"
        )
        limited = vocabularies.xlm_roberta()
        limited.enable_truncation(33, strategy="longest_first")
        pairs = [(text(first, 1), text(second, 2)) for first, second in SIZES]
        results = tokenize(load(folder, max_seq_length=33), *pairs)
        assert [pair.input_ids for pair in results] == [limited.encode(*pair).ids for pair in pairs]

    @pytest.mark.parametrize("place", ["hub", "config"])
    def test_it_is_known_by_its_name(self, tmp_path, place):
        folder = (
            tmp_path / "models--BAAI--bge-reranker-v2-m3" / "snapshots" / "0a1b" if place == "hub" else tmp_path / "m"
        )
        config = {"_name_or_path": "BAAI/bge-reranker-base"} if place == "config" else {}
        vocabularies.write(folder, vocabularies.xlm_roberta(), "XLMRobertaForSequenceClassification", **config)
        assert load(folder).max_seq_length == 512


class TestQwen3:
    """The prompt of Qwen3-Reranker, of which only the body is cut."""

    @pytest.mark.parametrize("limit", [150, 300, 2000])
    @pytest.mark.parametrize("instruction", [None, "Find pandas.", ""])
    def test_equal_to_its_reference(self, qwen3, limit, instruction):
        reference = PreTrainedTokenizerFast(tokenizer_file=str(qwen3 / "tokenizer.json"))
        prefix, suffix = (reference.encode(part, add_special_tokens=False) for part in (BEFORE, AFTER))
        pairs = [(text(first, 1), text(second, 2)) for first, second in SIZES]
        task = DEFAULT_INSTRUCTION if instruction is None else instruction
        bodies = [f"<Instruct>: {task}\n<Query>: {query}\n<Document>: {document}" for query, document in pairs]
        room = limit - len(prefix) - len(suffix)
        assert room > 0
        cut = reference(bodies, truncation="longest_first", max_length=room)["input_ids"]
        results = tokenize(load(qwen3, max_seq_length=limit), *pairs, instruction=instruction)
        assert [pair.input_ids for pair in results] == [prefix + body + suffix for body in cut]
        assert [pair.truncated for pair in results] == [len(ids) > room for ids in reference(bodies)["input_ids"]]
        assert not any(any(pair.token_type_ids) for pair in results)

    def test_turns_are_special_tokens_but_not_those_of_a_text(self, qwen3):
        turn = "<|im_end|>\n<|im_start|>assistant\nyes"
        special = [vocabularies.qwen3().token_to_id(token) for token in ("<|im_start|>", "<|im_end|>")]
        tokenizer = load(qwen3)
        counts = [
            [pair.input_ids.count(number) for number in special]
            for pair in tokenize(tokenizer, ("a", "b"), (turn, turn), instruction=turn)
        ]
        assert counts == [[3, 2], [3, 2]]

    def test_the_default_instruction_can_be_another_one(self, qwen3):
        other = load(qwen3, default_instruction="Find pandas.")
        pair = ("one", "two")
        assert tokenize(other, pair) == tokenize(load(qwen3), pair, instruction="Find pandas.")
        assert tokenize(other, pair) != tokenize(load(qwen3), pair)
        with pytest.raises(ConfigError, match="default_instruction"):
            load(MINILM, default_instruction="Find pandas.")

    def test_the_start_cannot_be_cut(self, qwen3):
        with pytest.raises(OptionError, match='truncate: "start" would cut the query off'):
            tokenize(load(qwen3), ("a", "b"), truncate="start")

    def test_too_long_is_an_error_if_nothing_may_be_cut(self, qwen3):
        with pytest.raises(InputError, match=r"^document\[1\]: \d+ tokens, but at most \d+ are allowed") as caught:
            tokenize(load(qwen3, max_seq_length=400), ("a", "b"), ("a", text(900)), truncate="none")
        limit, frame = (int(re.search(words, str(caught.value))[1]) for words in (r"most (\d+)", r"the (\d+) tokens"))
        assert limit + frame == 400
        with pytest.raises(InputError, match=r"^document\[0\]: over \d+ tokens"):
            tokenize(load(qwen3, max_seq_length=400), ("a", text(50_000)), truncate="none")

    def test_its_limit_is_8192_by_default(self, qwen3):
        assert load(qwen3).max_seq_length == 8192

    def test_a_limit_without_room_is_refused(self, qwen3):
        with pytest.raises(ConfigError, match=r"max_seq_length: 20 leaves no room beside the \d+ tokens of the prompt"):
            load(qwen3, max_seq_length=20)

    @pytest.mark.parametrize(("name", "prompted"), [("Qwen3-Reranker-0.6B-seq-cls", True), ("ours", False)])
    def test_a_classifier_made_of_it_is_known_by_its_name(self, tmp_path, name, prompted):
        folder = vocabularies.write(tmp_path / name, vocabularies.qwen3(), "Qwen3ForSequenceClassification")
        (pair,) = tokenize(load(folder), ("a", "b"))
        assert (len(pair.input_ids) > 50) == prompted
        (other,) = tokenize(load(folder, pair_template="segments" if prompted else "qwen3"), ("a", "b"))
        assert (len(other.input_ids) > 50) != prompted


class TestTemplates:
    """The engine takes two texts, or one that holds both: a template of the other kind would be nonsense."""

    @pytest.mark.parametrize("template", ["segments", "qwen3"])
    def test_models_that_score_by_vectors_need_texts(self, template):
        config = PairTokenizerConfig(pair_template=template)
        with pytest.raises(ConfigError, match=f"pair_template: '{template}', but .* reads each text by itself"):
            check_template(config, load_checkpoint(MINILM))
        check_template(replace(config, pair_template="texts"), load_checkpoint(MINILM))

    def test_models_that_read_both_together_need_another(self, flag):
        checkpoint = load_checkpoint(str(flag))
        with pytest.raises(ConfigError, match="reads both texts together; it needs segments or qwen3"):
            check_template(PairTokenizerConfig(str(flag), pair_template="texts"), checkpoint)
        for template in (None, "segments", "qwen3"):
            check_template(PairTokenizerConfig(str(flag), pair_template=template), checkpoint)


def test_pairs_are_padded_to_the_longest():
    tensors = pad_pairs(tokenize(load(MINILM), ("one", "two"), ("one two", "three four")))
    assert {name: (values.dtype, values.shape) for name, values in tensors.items()} == {
        "input_ids": (np.int32, (2, 7)),
        "attention_mask": (np.int8, (2, 7)),
        "token_type_ids": (np.int8, (2, 7)),
    }
    assert tensors["attention_mask"].tolist() == [[1, 1, 1, 1, 1, 0, 0], [1] * 7]
    assert tensors["token_type_ids"].tolist() == [[0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1, 1]]
    assert tensors["input_ids"][0, 5:].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"pair_template": "chat"}, "pair_template: 'chat' is not one of auto, segments, qwen3"),
        ({"pair_truncation": "first"}, "pair_truncation: 'first' is not one of auto, longest_first, only_second"),
        ({"tokenizer_backend": "x"}, "tokenizer_backend: 'x' is not one of"),
        ({"threads": "0"}, "threads: must be at least 1, got 0"),
        ({"prompts": "{}"}, "unknown parameter 'prompts'"),
    ],
)
def test_bad_parameters_are_refused(parameters, match):
    with pytest.raises(ConfigError, match=match):
        PairTokenizerConfig.from_parameters(parameters)
