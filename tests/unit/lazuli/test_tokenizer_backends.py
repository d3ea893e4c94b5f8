import json
import logging
import pydoc_data.topics
import random
import sys
from pathlib import Path

import pytest
import tokenizers
from tokenizers import Regex, models, normalizers, pre_tokenizers, processors, trainers

from lazuli import text_encoders
from lazuli.checkpoint import resolve_checkpoint
from lazuli.encoder_check import first_difference
from lazuli.errors import ConfigError
from lazuli.many_texts import ManyTexts
from lazuli.options import RequestOptions
from lazuli.reference_encoder import HuggingFaceEncoder, load_reference
from lazuli.template import Template
from lazuli.text_cuts import cut
from lazuli.text_encoders import KitokenEncoder, NanotokenEncoder, choose_encoder
from lazuli.tokenizer import TextTokenizer
from lazuli.tokenizer_definition import common_words, read_definition, seal, text_only

sys.path.insert(0, str(Path(__file__).parents[3] / "perf"))
from texts.hard import hard_texts
from texts.vocabularies import nmt_nfkc

QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
KINDS = ("wordpiece", "bpe", "unigram")


def training_texts():
    topics = pydoc_data.topics.topics
    texts = hard_texts([], small=True)
    return [*(topics[name] for name in sorted(topics)[:20]), *texts["prose"], *texts["random words"][:50]]


def wordpiece():
    return read_definition(resolve_checkpoint("all-MiniLM-L6-v2"))


def bpe(normalizer=None):
    """As Qwen's: special and other added tokens, NFC, a pattern, bytes."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizer or normalizers.NFC()
    split = pre_tokenizers.Split(Regex(QWEN_PATTERN), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=2000, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(training_texts(), trainer)
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>"])
    tokenizer.add_tokens([tokenizers.AddedToken("<think>", normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A <|endoftext|>", special_tokens=[("<|endoftext|>", tokenizer.token_to_id("<|endoftext|>"))]
    )
    return json.loads(tokenizer.to_str())


def unigram(normalizer=None):
    """As XLM-RoBERTa's: SentencePiece's table, a space before the first word, special tokens among the pieces."""
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer or normalizers.Precompiled(nmt_nfkc())
    metaspace = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=2000, show_progress=False, special_tokens=special, unk_token="<unk>", initial_alphabet=["▁"]
    )
    tokenizer.train_from_iterator(training_texts(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return json.loads(tokenizer.to_str())


@pytest.fixture(scope="module")
def definitions():
    return {"wordpiece": wordpiece(), "bpe": bpe(), "unigram": unigram()}


@pytest.fixture(scope="module")
def encoders(definitions):
    """For each kind the reference and what is chosen, or may be asked for."""
    result = {}
    for kind, definition in definitions.items():
        reference = load_reference(definition)
        backend = "kitoken" if kind == "unigram" else None
        result[kind] = HuggingFaceEncoder(reference), choose_encoder(backend, definition, reference)
    return result


class TestEqualToTheReference:
    @pytest.mark.parametrize("kind", KINDS)
    def test_on_a_sample_of_the_hard_texts(self, definitions, encoders, kind):
        reference, quick = encoders[kind]
        assert quick.name != "huggingface"
        added = [token["content"] for token in definitions[kind]["added_tokens"]]
        for name, texts in hard_texts(added, small=True).items():
            if kind == "unigram" and name in ("long words", "random words of few letters"):
                continue  # some can be cut in two ways that cost the same
            some = texts[::5] if len(texts) > 2000 else texts
            pairs = zip(some, quick.encode(some), reference.encode(some), strict=True)
            wrong = [(text, ids, expected) for text, ids, expected in pairs if ids != expected]
            assert not wrong, f"{name}: {len(wrong)} differ, such as {min(wrong, key=lambda item: len(item[0]))}"

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize(
        "text", ["", " ", "\x01", "º\u1ad7", "a\u05b7\u0591", "\u0323\u08cb", "<think>\u0338", "\u1ad7 "]
    )
    def test_where_libraries_are_known_to_differ(self, encoders, kind, text):
        reference, quick = encoders[kind]
        assert quick.encode([text, f"one {text} two"]) == reference.encode([text, f"one {text} two"])

    @pytest.mark.parametrize("kind", KINDS)
    def test_no_text_at_all(self, encoders, kind):
        assert encoders[kind][1].encode([]) == []

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_batch_keeps_its_order(self, encoders, kind):
        texts = [f"{number} e\u0301 \u1ad7"[: 1 + number % 8] for number in range(50)]
        quick = encoders[kind][1]
        assert quick.encode(texts) == [quick.encode([text])[0] for text in texts]


class TestSpecialTokens:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("frame", ["{}", "a{}b", " {} ", "{0}{0}", "<{}>"])
    def test_no_text_becomes_one(self, definitions, encoders, kind, frame):
        special = {token["content"]: token["id"] for token in definitions[kind]["added_tokens"] if token["special"]}
        unknown = {special.get("<unk>"), special.get("[UNK]")}
        texts = [frame.format(token) for token in special]
        for encoder in encoders[kind]:
            for ids in encoder.encode(texts):
                assert not set(ids) & (set(special.values()) - unknown)

    def test_a_unigram_vocabulary_would_let_them_without_the_seal(self, definitions):
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(definitions["unigram"]))
        tokenizer.encode_special_tokens = True
        assert 2 in tokenizer.encode("</s>", add_special_tokens=False).ids
        assert 3 not in load_reference(definitions["unigram"]).encode("a <unk> b", add_special_tokens=False).ids

    @pytest.mark.parametrize(("kind", "before", "after"), [("wordpiece", 1, 1), ("bpe", 0, 1), ("unigram", 1, 1)])
    def test_those_around_a_text_stay(self, definitions, kind, before, after):
        tokenizer = TextTokenizer(load_reference(definitions[kind]), Template({}), 64)
        assert (len(tokenizer.special.before), len(tokenizer.special.after)) == (before, after)

    def test_other_added_tokens_are_still_read(self, definitions, encoders):
        think = next(token["id"] for token in definitions["bpe"]["added_tokens"] if token["content"] == "<think>")
        for encoder in encoders["bpe"]:
            assert think in encoder.encode(["a <think> b"])[0]


class TestSeal:
    def test_ids_and_scores_stay(self, definitions):
        before, after = definitions["unigram"]["model"]["vocab"], seal(definitions["unigram"])["model"]["vocab"]
        assert [score for _, score in before] == [score for _, score in after]
        assert [piece for piece, _ in before[4:]] == [piece for piece, _ in after[4:]]
        assert [piece for piece, _ in after[:4]] == [" \0<s>", " \0<pad>", " \0</s>", " \0<unk>"]

    @pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
    def test_others_are_left_alone(self, definitions, kind):
        assert seal(definitions[kind]) is definitions[kind]

    @pytest.mark.parametrize("kind", KINDS)
    def test_text_only_puts_nothing_around_a_text(self, definitions, kind):
        result = text_only(definitions[kind])
        assert not any(token["special"] for token in result["added_tokens"])
        assert result["post_processor"] is result["padding"] is result["truncation"] is None


class TestReadDefinition:
    def test_missing(self, tmp_path):
        with pytest.raises(ConfigError, match=r"tokenizer\.json is missing"):
            read_definition(tmp_path)

    @pytest.mark.parametrize(
        ("text", "message"), [("{", "not valid JSON"), ("[]", "no tokenizer"), ("{}", "no tokenizer")]
    )
    def test_broken(self, tmp_path, text, message):
        (tmp_path / "tokenizer.json").write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=message):
            read_definition(tmp_path)

    def test_what_the_library_refuses(self):
        with pytest.raises(ConfigError, match=r"tokenizer\.json cannot be read"):
            load_reference({"model": {"type": "Telepathy"}})


class TestChoice:
    @pytest.mark.parametrize(
        ("kind", "name"), [("wordpiece", "nanotoken"), ("bpe", "kitoken"), ("unigram", "huggingface")]
    )
    def test_by_kind(self, definitions, kind, name):
        assert choose_encoder(None, definitions[kind], load_reference(definitions[kind])).name == name

    def test_other_normalizers_are_left_to_the_reference(self, caplog):
        definition = bpe(normalizers.NFKC())
        with caplog.at_level(logging.INFO):
            assert choose_encoder(None, definition, load_reference(definition)).name == "huggingface"
        assert "not kitoken: it is for SentencePiece's Unigram" in caplog.text
        with pytest.raises(ConfigError, match="it is for SentencePiece's Unigram"):
            choose_encoder("kitoken", definition, load_reference(definition))

    @pytest.mark.parametrize(
        ("backend", "kind"), [("kitoken", "wordpiece"), ("nanotoken", "bpe"), ("nanotoken", "unigram")]
    )
    def test_a_named_one_that_does_not_fit_is_an_error(self, definitions, backend, kind):
        with pytest.raises(ConfigError, match=f"tokenizer_backend: {backend} cannot be used for this checkpoint"):
            choose_encoder(backend, definitions[kind], load_reference(definitions[kind]))

    @pytest.mark.parametrize("kind", KINDS)
    def test_without_the_package_it_is_the_reference(self, definitions, kind, monkeypatch):
        monkeypatch.setitem(sys.modules, "kitoken", None)
        monkeypatch.setitem(sys.modules, "nanotoken", None)
        reference = load_reference(definitions[kind])
        assert choose_encoder(None, definitions[kind], reference).name == "huggingface"
        assert choose_encoder("huggingface", definitions[kind], reference).name == "huggingface"
        with pytest.raises(ConfigError, match="cannot be used for this checkpoint"):
            choose_encoder("nanotoken" if kind == "wordpiece" else "kitoken", definitions[kind], reference)

    @pytest.mark.parametrize(("kind", "encoder"), [("wordpiece", NanotokenEncoder), ("bpe", KitokenEncoder)])
    def test_one_that_differs_is_not_used(self, definitions, kind, encoder, monkeypatch, caplog):
        right = encoder.encode
        monkeypatch.setattr(encoder, "encode", lambda self, texts: [ids[:40] for ids in right(self, texts)])
        with caplog.at_level(logging.INFO, logger=text_encoders.__name__):
            chosen = choose_encoder(None, definitions[kind], load_reference(definitions[kind]))
        assert chosen.name == "huggingface"
        assert "it differs from the reference on" in caplog.text


class TestNothingIsRemembered:
    def test_nanotoken_keeps_one_word_which_is_the_least(self, encoders):
        import nanotoken

        assert nanotoken.get_cache_entries() <= 1

    @pytest.mark.parametrize("kind", ["bpe", "unigram"])
    def test_the_reference_fills_its_memory_before_the_first_request(self, definitions, kind):
        words = common_words(definitions[kind])
        assert len(words) > 100
        calls = []

        class Model:
            def _resize_cache(self, capacity):
                calls.append(capacity)

        class Spy:
            model = Model()
            no_padding = no_truncation = staticmethod(lambda: None)

            def encode_batch_fast(self, texts, add_special_tokens):
                calls.extend(text.split() for text in texts)
                return []

        encoder = HuggingFaceEncoder(Spy())
        assert calls == [0]
        encoder.remember(words)
        assert calls[1] == len(words) // 2
        assert [word for batch in calls[2:] for word in batch] == words

    @pytest.mark.parametrize("kind", ["bpe", "unigram"])
    def test_the_library_has_the_switch(self, definitions, kind):
        assert hasattr(load_reference(definitions[kind]).model, "_resize_cache")


class TestFirstDifference:
    def test_none(self):
        assert first_difference(lambda texts: [[1]] * len(texts), lambda texts: [[1]] * len(texts), ["a", "b"]) is None

    def test_the_text_that_differs(self):
        def encode(texts):
            return [[len(text)] for text in texts]

        def wrong(texts):
            return [[0 if "token7" in text else len(text)] for text in texts]

        assert "token7" in first_difference(wrong, encode, [f"token{number}" for number in range(20)])

    def test_a_large_vocabulary_is_sampled(self):
        sizes = []

        def encode(texts):
            sizes.append(sum(map(len, texts)))
            return [[] for _ in texts]

        first_difference(encode, encode, ["token"] * 300_000)
        assert max(sizes) < 100_000


def _of_byte_level():
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(["it's we're they've I'm you'll he'd can't"] * 9, trainer)
    return json.loads(tokenizer.to_str())


class TestPatternOfByteLevel:
    """GPT-2's, for tokenizers that bring none of their own, such as ModernBERT's."""

    def test_contractions_behind_any_white_space(self):
        definition = _of_byte_level()
        reference = load_reference(definition)
        encoder = choose_encoder(None, definition, reference)
        assert encoder.name == "kitoken"
        pieces = [
            "a",
            "'",
            "s",
            "t",
            "'s",
            "'re",
            "'S",
            " ",
            "\n",
            "\t",
            "\u00a0",
            "\u2028",
            "\r\n",
            "\x85",
            "1",
            "!",
            "é",
        ]
        choose = random.Random(0)
        texts = ["".join(choose.choices(pieces, k=choose.randint(1, 6))) for _ in range(20_000)]
        assert encoder.encode(texts) == HuggingFaceEncoder(reference).encode(texts)


class TestLongTexts:
    """Cut where that makes no difference, and read by several threads."""

    @pytest.mark.parametrize("size", [1, 4, 16, 64])
    @pytest.mark.parametrize("between", [" ", "", "a b", "  "])
    def test_parts_have_the_ids_of_the_whole(self, definitions, size, between):
        encoder = choose_encoder(None, definitions["unigram"], load_reference(definitions["unigram"]))
        some = [text for group in hard_texts([], small=True).values() for text in group[::7] if len(text) < 2000]
        texts = [between.join(some[start : start + 5]) for start in range(0, len(some), 5)]
        cuts = 0
        for text, whole in zip(texts, encoder.encode(texts), strict=True):
            parts = list(cut(text, size, encoder.boundary))
            cuts += len(parts) - 1
            assert [number for ids in encoder.encode(parts) for number in ids] == whole, text
        assert cuts > 20

    def test_a_text_alone_is_shared(self, definitions):
        reference = load_reference(definitions["unigram"])
        encoder = choose_encoder(None, definitions["unigram"], reference)
        tokenizer = TextTokenizer(reference, Template({}), 100_000, 3, encoder)
        text = " ".join(hard_texts([], small=True)["prose"])
        whole, pieces = encoder.encode([text]), []
        encoder.encode = lambda texts: pieces.append(len(texts)) or HuggingFaceEncoder.encode(encoder, texts)
        assert tokenizer.read([text]) == whole
        assert sum(pieces) > 3

    def test_only_those_of_the_reference(self, definitions):
        for kind in ("wordpiece", "bpe"):
            assert choose_encoder(None, definitions[kind], load_reference(definitions[kind])).boundary is None
        named = choose_encoder("kitoken", definitions["unigram"], load_reference(definitions["unigram"]))
        assert named.boundary is None


class TestManyTexts:
    """Those of one request, read by the reference on several threads."""

    @pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
    @pytest.mark.parametrize("truncate", ["end", "start", "split"])
    def test_they_are_equal_to_single_ones(self, definitions, kind, truncate, monkeypatch):
        calls = []

        def measure(quick, reference, words, threads):
            assert len(words) > 100
            return ManyTexts(lambda texts: calls.append(len(texts)) or reference(texts), threads, 0.0, 0.0)

        monkeypatch.setattr(text_encoders, "measure", measure)
        reference = load_reference(definitions[kind])
        encoder = choose_encoder(None, definitions[kind], reference, threads=3)
        tokenizer = TextTokenizer(reference, Template({}), 64, 3, encoder)
        texts = [text for group in hard_texts([], small=True).values() for text in group[::20]]
        options = RequestOptions(truncate=truncate)
        alone = [tokenizer.tokenize([f"{text}."], options)[0] for text in texts]
        assert not calls
        assert tokenizer.tokenize([f"{text}." for text in texts], options) == alone
        assert sum(calls) >= len(texts)

    def test_not_where_an_encoder_is_named(self, definitions, monkeypatch):
        monkeypatch.setattr(text_encoders, "measure", lambda *_: pytest.fail("it was measured"))
        for kind, backend in (("wordpiece", "nanotoken"), ("unigram", "kitoken"), ("bpe", "huggingface")):
            reference = load_reference(definitions[kind])
            assert choose_encoder(backend, definitions[kind], reference, threads=16).many is None
        assert choose_encoder(None, definitions["unigram"], load_reference(definitions["unigram"]), 16).many is None

    def test_it_is_measured_on_words_of_the_vocabulary(self, definitions):
        reference = load_reference(definitions["bpe"])
        assert choose_encoder(None, definitions["bpe"], reference, threads=2).many is None  # too few to try
        many = choose_encoder(None, definitions["bpe"], reference, threads=4).many
        assert many is None or (0 < many.together < 1 < many.alone and many.threads == 4)
