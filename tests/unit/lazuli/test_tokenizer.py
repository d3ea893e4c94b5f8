import itertools
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import tokenizers

from lazuli import tokenizer as tokenizer_module
from lazuli.checkpoint import resolve_checkpoint
from lazuli.config import TokenizerConfig
from lazuli.errors import ConfigError, InputError, OptionError
from lazuli.options import RequestOptions
from lazuli.reference_encoder import HuggingFaceEncoder, use_threads
from lazuli.template import Template
from lazuli.tokenizer import TextTokenizer, TokenizedText, pad

PATH = resolve_checkpoint("all-MiniLM-L6-v2")
CLS, SEP = 101, 102
SPECIAL_TOKENS = {"[PAD]": 0, "[UNK]": 100, "[CLS]": CLS, "[SEP]": SEP, "[MASK]": 103}
PLAIN_TEXTS = [
    "",
    " ",
    "hello world",
    "Hello,   World!\r\nsecond line\tand a tab",
    "NUL \x00 inside \ufffd and \u200b zero width",
    "Ünïcödé café naïve ß \u017f İ",
    "日本語の文章です。中文句子",
    "안녕하세요 세계",
    "مرحبا بالعالم שלום עולם",
    "Привет, мир! Ελληνικά",
    "नमस्ते दुनिया ไทย",
    "emoji 👩‍👩‍👧 🎉 x²",
    "{text} {0} %s </s> <|endoftext|> <s>",
    "a" * 150,
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
    "1,234.5e-6 x=y; print('hi')  # don't",
]


@pytest.fixture(scope="module", autouse=True)
def environment():
    """`from_config` sets variables for the tokenizers library; put them back."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def load():
    return tokenizers.Tokenizer.from_file(str(PATH / "tokenizer.json"))


class Counting:
    """A tokenizer that notes what it is called with."""

    def __init__(self, tokenizer):
        self._tokenizer, self.batches = tokenizer, []

    def __getattr__(self, name):
        return getattr(self._tokenizer, name)

    def encode_batch_fast(self, texts, **options):
        self.batches.append(texts)
        return self._tokenizer.encode_batch_fast(texts, **options)


def make(max_seq_length=256, template=None):
    return TextTokenizer(load(), template or Template({}), max_seq_length)


@pytest.fixture(scope="module")
def tokenizer():
    return make()


@pytest.fixture(scope="module")
def hugging_face():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(PATH)


def ids_of(tokenizer, text, **options):
    (result,) = tokenizer.tokenize([text], RequestOptions(**options))
    return result.input_ids


def words(count):
    """A text of exactly `count` tokens, each of them different from its neighbours."""
    numbers = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    return " ".join(numbers[place % 10] for place in range(count))


class TestSpecialTokens:
    def test_the_list_is_that_of_the_vocabulary(self):
        added = tokenizers.Tokenizer.from_file(str(PATH / "tokenizer.json")).get_added_tokens_decoder()
        assert {token.content: number for number, token in added.items() if token.special} == SPECIAL_TOKENS

    @pytest.mark.parametrize("token", SPECIAL_TOKENS)
    @pytest.mark.parametrize("case", [str, str.lower, str.title])
    @pytest.mark.parametrize("frame", ["{}", "hello {} world", "hello{}world", "{0}{0}", " {} \n", "[[{}]]"])
    def test_a_text_never_becomes_one(self, tokenizer, token, case, frame):
        ids = ids_of(tokenizer, frame.format(case(token)))
        assert (ids[0], ids[-1]) == (CLS, SEP)
        assert len(ids) > 2
        assert not set(ids[1:-1]) & set(SPECIAL_TOKENS.values())

    @pytest.mark.parametrize("token", SPECIAL_TOKENS)
    @pytest.mark.parametrize("truncate", ["end", "start"])
    def test_nor_when_it_is_cut(self, token, truncate):
        ids = ids_of(make(16), f"{token} " * 30, truncate=truncate)
        assert (len(ids), ids[0], ids[-1]) == (16, CLS, SEP)
        assert not set(ids[1:-1]) & set(SPECIAL_TOKENS.values())

    @pytest.mark.parametrize("token", SPECIAL_TOKENS)
    def test_nor_does_an_instruction(self, tokenizer, token):
        assert not set(ids_of(tokenizer, "x", instruction=f"a {token} b")[1:-1]) & set(SPECIAL_TOKENS.values())


class TestAgainstHuggingFace:
    @pytest.mark.parametrize("text", PLAIN_TEXTS)
    def test_plain_texts_are_equal(self, tokenizer, hugging_face, text):
        assert ids_of(tokenizer, text) == hugging_face(text)["input_ids"]

    def test_a_batch_is_equal_to_its_texts(self, tokenizer):
        together = tokenizer.tokenize(PLAIN_TEXTS, RequestOptions())
        assert [result.input_ids for result in together] == [ids_of(tokenizer, text) for text in PLAIN_TEXTS]

    @pytest.mark.parametrize("length", [3, 17, 64])
    def test_truncation_at_the_end_is_equal(self, hugging_face, length):
        expected = hugging_face(words(100), truncation=True, max_length=length)["input_ids"]
        assert ids_of(make(length), words(100), truncate="end") == expected


class TestThreads:
    @pytest.mark.parametrize("threads", [1, 2, 3, 16])
    @pytest.mark.parametrize("count", [1, 2, 5, 97])
    def test_many_texts_are_shared_and_stay_in_order(self, tokenizer, threads, count):
        texts = [f"{number} {words(number % 40)} {'x' * (8000 // count)}" for number in range(count)]
        shared = TextTokenizer(load(), Template({}), 256, threads)
        results = shared.tokenize(texts, RequestOptions(truncate="end"))
        assert [result.input_ids for result in results] == [ids_of(tokenizer, text, truncate="end") for text in texts]

    @pytest.mark.parametrize(("texts", "calls"), [(["short"] * 50, 50), (["x" * 3000, "y"], 1)])
    def test_few_characters_stay_in_the_thread_that_calls(self, texts, calls):
        library = Counting(load())
        encoder = HuggingFaceEncoder(library)
        assert len(encoder.encode(texts)) == len(texts)
        assert [len(batch) for batch in library.batches] == [len(texts) // calls] * calls

    @pytest.mark.parametrize(
        ("cores", "asked", "expected"),
        [(1, None, 1), (2, None, 2), (3, None, 3), (4, None, 3), (16, None, 12), (16, 16, 16)],
    )
    def test_of_many_cores_some_are_left_to_others(self, monkeypatch, cores, asked, expected):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
        assert use_threads(asked) == expected
        assert os.environ["RAYON_NUM_THREADS"] == str(expected)
        assert os.environ.get("TOKENIZERS_PARALLELISM") == ("false" if expected == 1 else None)

    def test_the_library_has_so_many_threads(self):
        """In a process of its own, as they are counted at the first use."""
        script = (
            "import os, sys; from lazuli.config import TokenizerConfig; from lazuli.options import RequestOptions\n"
            "from lazuli.tokenizer import TextTokenizer\n"
            "tokenizer = TextTokenizer.from_config(TokenizerConfig(tokenizer_backend='huggingface', threads=3))\n"
            "count = lambda: len(os.listdir('/proc/self/task'))\n"
            "before = count(); tokenizer.tokenize(['long text ' * 40] * 20, RequestOptions()); print(count() - before)"
        )
        result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert result.stdout.split() == ["3"]

    def test_a_child_after_a_fork_reads_too(self):
        """The library's threads are not there; it must not wait for them."""
        script = (
            "import os; from lazuli.config import TokenizerConfig; from lazuli.options import RequestOptions\n"
            "from lazuli.tokenizer import TextTokenizer\n"
            "tokenizer = TextTokenizer.from_config(TokenizerConfig(tokenizer_backend='huggingface', threads=3))\n"
            "read = lambda: tokenizer.tokenize(['long text ' * 40] * 20, RequestOptions())\n"
            "expected = read(); child = os.fork()\n"
            "if child: raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
            "raise SystemExit(7 if read() == expected else 8)"
        )
        result = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60)
        assert result.returncode == 7, result.stderr


class TestLimit:
    @pytest.mark.parametrize("truncate", ["none", "end", "start"])
    @pytest.mark.parametrize("missing", [1, 0])
    def test_up_to_it_nothing_happens(self, truncate, missing):
        (result,) = make(20).tokenize([words(18 - missing)], RequestOptions(truncate=truncate))
        assert (len(result.input_ids), result.truncated) == (20 - missing, False)

    def test_beyond_it_is_an_error_by_default_that_names_row_value_and_limit(self):
        with pytest.raises(InputError) as caught:
            make(20).tokenize(["short", words(19), words(40)], RequestOptions())
        assert str(caught.value) == (
            'text[1]: 21 tokens, but at most 20 are allowed; shorten it or pass truncate="end"'
        )

    def test_the_name_of_the_field_is_the_callers(self):
        with pytest.raises(InputError, match=r"^query\[0\]: 21 tokens"):
            make(20).tokenize([words(19)], RequestOptions(), name="query")

    @pytest.mark.parametrize("count", [19, 50, 500])
    def test_cut_at_the_end(self, count):
        whole = ids_of(make(1000), words(count))
        (result,) = make(20).tokenize([words(count)], RequestOptions(truncate="end"))
        assert result == TokenizedText([CLS, *whole[1:19], SEP], truncated=True)

    @pytest.mark.parametrize("count", [19, 50, 500])
    def test_cut_at_the_start(self, count):
        whole = ids_of(make(1000), words(count))
        (result,) = make(20).tokenize([words(count)], RequestOptions(truncate="start"))
        assert result == TokenizedText([CLS, *whole[-19:-1], SEP], truncated=True)

    @pytest.mark.parametrize("truncate", ["end", "start"])
    def test_every_row_is_treated_alike(self, truncate):
        results = make(8).tokenize([words(30), "short", words(30)], RequestOptions(truncate=truncate))
        assert [result.truncated for result in results] == [True, False, True]
        assert results[0] == results[2]
        assert [len(result.input_ids) for result in results] == [8, 3, 8]

    def test_one_token_of_text_is_the_least(self):
        assert ids_of(make(3), words(9), truncate="end") == ids_of(make(), "one")
        for length in (1, 2):
            with pytest.raises(ConfigError, match=f"max_seq_length: {length} leaves no room beside 2 special tokens"):
                make(length)

    def test_the_prompt_counts(self):
        tokenizer = make(20, Template({"p": "one two "}))
        assert len(ids_of(tokenizer, words(16), prompt_name="p")) == 20
        with pytest.raises(InputError, match=r"text\[0\]: 21 tokens"):
            tokenizer.tokenize([words(17)], RequestOptions(prompt_name="p"))

    def test_the_files_own_truncation_and_padding_are_off(self):
        loaded = tokenizers.Tokenizer.from_file(str(PATH / "tokenizer.json"))
        loaded.enable_truncation(8)
        loaded.enable_padding(length=64)
        results = TextTokenizer(loaded, Template({}), 256).tokenize(["hello", words(100)], RequestOptions())
        assert [len(result.input_ids) for result in results] == [3, 102]


LONG_TEXTS = {
    "words": " ".join(f"word{number}" for number in range(20_000)),
    "blanks first": " " * 50_000 + words(5_000),
    "blanks between": (" " * 20_000).join(["one", "two", "three", *["four"] * 300]),
    "one word": "a" * 60_000,
    "chinese": "日本語の文章です。" * 5_000,
    "emoji": "👩‍👩‍👧 🎉" * 5_000,
    "no blanks": "one,two;three." * 5_000,
}


class TestMuchTooLongTexts:
    """They are looked at in part; what comes out is as if they were read whole."""

    @pytest.mark.parametrize("text", LONG_TEXTS.values(), ids=LONG_TEXTS.keys())
    @pytest.mark.parametrize("truncate", ["end", "start"])
    def test_equal_to_reading_it_whole(self, tokenizer, text, truncate):
        reader = tokenizers.Tokenizer.from_file(str(PATH / "tokenizer.json"))
        reader.no_padding()
        reader.no_truncation()
        whole = reader.encode(text, add_special_tokens=False).ids
        cut = whole[:254] if truncate == "end" else whole[-254:]
        assert ids_of(tokenizer, text, truncate=truncate) == [CLS, *cut, SEP]

    def test_blanks_do_not_make_a_text_long(self, tokenizer):
        text = " " * 50_000 + "one two" + " " * 50_000
        assert ids_of(tokenizer, text) == ids_of(tokenizer, "one two")

    def test_the_error_says_that_it_did_not_count_to_the_end(self, tokenizer):
        with pytest.raises(InputError, match=r"text\[0\]: over \d+ tokens, but at most 256"):
            ids_of(tokenizer, words(100_000))

    def test_only_a_part_is_read(self, tokenizer):
        seen = []

        class Spy:
            def encode(self, texts):
                seen.extend(map(len, texts))
                return tokenizer.encoder.encode(texts)

        spied = TextTokenizer.__new__(TextTokenizer)
        spied.__dict__.update(tokenizer.__dict__, encoder=Spy())
        assert len(spied.near_end(words(1_000_000), "end")) < 50_000
        assert max(seen) < 50_000


class TestSplit:
    def chunks(self, tokenizer, text, **options):
        (result,) = tokenizer.tokenize([text], RequestOptions(truncate="split", **options))
        assert not result.truncated
        edges = [0, *result.chunk_starts, len(result.input_ids)]
        return [result.input_ids[begin:end] for begin, end in itertools.pairwise(edges)]

    @pytest.mark.parametrize("count", [1, 17, 18])
    def test_a_text_that_fits_is_left_as_it_is(self, count):
        tokenizer = make(20)
        assert self.chunks(tokenizer, words(count)) == [ids_of(tokenizer, words(count))]

    @pytest.mark.parametrize("overlap", [0, 5])
    def test_each_chunk_has_the_special_tokens(self, tokenizer, overlap):
        body = ids_of(tokenizer, words(50))[1:-1]
        chunks = self.chunks(make(20), words(50), overlap=overlap)
        pieces = [body[start : start + 18] for start in range(0, 50 - overlap, 18 - overlap)]
        assert chunks == [[CLS, *piece, SEP] for piece in pieces]

    def test_and_the_prompt(self, tokenizer):
        template = Template({"q": "query: "}, None, "{instruction}: {text} end")
        prompt, body = ids_of(tokenizer, "query:")[1:-1], ids_of(tokenizer, words(30))[1:-1]
        chunks = self.chunks(make(20, template), words(30), prompt_name="q", overlap=0)
        assert chunks == [[CLS, *prompt, *body[start : start + 16], SEP] for start in (0, 16)]
        chunks = self.chunks(make(20, template), words(30), instruction="query", overlap=0)
        (end,) = ids_of(tokenizer, "end")[1:-1]
        assert chunks == [[CLS, *prompt, *body[start : start + 15], end, SEP] for start in (0, 15)]

    def test_the_default_overlap_is_a_tenth_of_the_limit(self):
        first, second, *_ = self.chunks(make(40), words(100))
        assert first[-5:-1] == second[1:5]
        assert len(second) == 40

    def test_only_texts_that_are_too_long_are_cut(self):
        results = make(20).tokenize([words(5), words(40), ""], RequestOptions(truncate="split"))
        assert [bool(result.chunk_starts) for result in results] == [False, True, False]

    def test_a_prompt_that_leaves_no_room(self):
        tokenizer = make(20, Template({"long": f"{words(20)} "}))
        with pytest.raises(InputError, match=r"text\[0\]: its prompt leaves no room for text: 22 of at most 20 tokens"):
            tokenizer.tokenize(["one"], RequestOptions(truncate="split", prompt_name="long"))

    def test_a_text_without_end(self, monkeypatch):
        monkeypatch.setattr(tokenizer_module, "_MOST_TOKENS", 1000)
        tokenizer = make(20)
        assert len(self.chunks(tokenizer, words(1000), overlap=0)) == 56
        for text in (words(1001), words(1_000_000)):
            with pytest.raises(InputError, match=r"text\[0\]: over 1000 tokens are too many for one text, even in"):
                self.chunks(tokenizer, text)


class TestTemplates:
    def test_a_prompt_stands_before_each_text(self):
        tokenizer = make(template=Template({"query": "query: "}))
        assert ids_of(tokenizer, "find me", prompt_name="query") == ids_of(tokenizer, "query: find me")

    def test_an_instruction_fills_its_template(self):
        tokenizer = make(template=Template({}, None, "Instruct: {instruction}\nQuery: {text} !"))
        expected = ids_of(tokenizer, "Instruct: be quick\nQuery: find me !")
        assert ids_of(tokenizer, "find me", instruction="be quick") == expected

    @pytest.mark.parametrize("text", ["{text}", "{instruction}", "{} {0} {", "}}", "%s %(a)s \\1 $1"])
    def test_braces_in_texts_are_no_format_fields(self, text):
        tokenizer = make(template=Template({"p": "{text}: "}, None, "{instruction} | {text}"))
        assert ids_of(tokenizer, text, instruction="go") == ids_of(tokenizer, f"go | {text}")
        assert ids_of(tokenizer, "go", instruction=text) == ids_of(tokenizer, f"{text} | go")
        assert ids_of(tokenizer, text, prompt_name="p") == ids_of(tokenizer, f"{{text}}: {text}")

    def test_an_unknown_prompt(self, tokenizer):
        with pytest.raises(OptionError, match="prompt_name: 'q' is not known"):
            tokenizer.tokenize(["x"], RequestOptions(prompt_name="q"))


class TestOddTexts:
    @pytest.mark.parametrize("text", ["", " ", "\x00", "\r\n"])
    def test_nothing_to_read_is_embedded_by_its_special_tokens(self, tokenizer, text):
        assert ids_of(tokenizer, text) == [CLS, SEP]

    def test_nul_and_crlf_inside(self, tokenizer):
        assert ids_of(tokenizer, "hello\x00 world\r\n") == ids_of(tokenizer, "hello world")


class TestWithoutSpecialTokens:
    @pytest.fixture
    def tokenizer(self):
        model = tokenizers.models.WordLevel({"one": 0, "two": 1, "three": 2, "?": 3}, unk_token="?")
        tokenizer = tokenizers.Tokenizer(model)
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        return TextTokenizer(tokenizer, Template({"p": "one "}), 3)

    def test_ids(self, tokenizer):
        assert ids_of(tokenizer, "two one") == [1, 0]

    @pytest.mark.parametrize("texts", [["", "one"], [" ", ""], ["one", "two", "\n"]])
    def test_a_text_without_a_token_is_an_error_that_names_the_row(self, tokenizer, texts):
        row = next(row for row, text in enumerate(texts) if not text.strip())
        with pytest.raises(InputError, match=rf"text\[{row}\]: no token is left of it"):
            tokenizer.tokenize(texts, RequestOptions())

    def test_a_prompt_makes_it_a_text(self, tokenizer):
        assert ids_of(tokenizer, "", prompt_name="p") == [0]

    def test_truncation(self, tokenizer):
        assert ids_of(tokenizer, "one two three one", truncate="end") == [0, 1, 2]
        assert ids_of(tokenizer, "one two three one", truncate="start") == [1, 2, 0]


class TestFromConfig:
    def test_the_checkpoint_decides(self):
        assert TextTokenizer.from_config(TokenizerConfig()).max_seq_length == 256

    def test_max_seq_length_up_to_the_positions(self):
        assert TextTokenizer.from_config(TokenizerConfig(max_seq_length=512)).max_seq_length == 512
        with pytest.raises(ConfigError, match="max_seq_length: 513, but the model takes 512 tokens"):
            TextTokenizer.from_config(TokenizerConfig(max_seq_length=513))

    def test_prompts_and_their_default(self):
        config = TokenizerConfig(prompts='{"query": "q: "}', default_prompt_name="query")
        tokenizer = TextTokenizer.from_config(config)
        assert ids_of(tokenizer, "x") == ids_of(make(), "q: x")

    def test_an_unknown_default_prompt(self):
        with pytest.raises(ConfigError, match="default_prompt_name: 'query'"):
            TextTokenizer.from_config(TokenizerConfig(default_prompt_name="query"))

    def test_threads(self):
        assert TextTokenizer.from_config(TokenizerConfig(threads=3, tokenizer_backend="huggingface")).threads == 3
        cores = len(os.sched_getaffinity(0))
        assert TextTokenizer.from_config(TokenizerConfig(tokenizer_backend="huggingface")).threads == cores

    def test_one_thread_for_a_library_that_keeps_the_interpreter(self):
        assert TextTokenizer.from_config(TokenizerConfig(threads=3, tokenizer_backend="nanotoken")).threads == 1

    def test_the_library_starts_no_threads(self):
        before = threading.active_count(), set(os.listdir("/proc/self/task"))
        tokenizer = TextTokenizer.from_config(TokenizerConfig())
        tokenizer.tokenize(["one text"], RequestOptions())
        tokenizer.tokenize(["two", "texts"], RequestOptions())
        assert (threading.active_count(), set(os.listdir("/proc/self/task"))) == before

    def test_the_backend(self):
        assert TextTokenizer.from_config(TokenizerConfig()).encoder.name == "nanotoken"
        reference = TextTokenizer.from_config(TokenizerConfig(tokenizer_backend="huggingface"))
        assert reference.encoder.name == "huggingface"
        with pytest.raises(
            ConfigError, match="tokenizer_backend: kitoken cannot be used for this checkpoint: it is for"
        ):
            TextTokenizer.from_config(TokenizerConfig(tokenizer_backend="kitoken"))
        with pytest.raises(ConfigError, match="tokenizer_backend: 'quick' is not one of auto, huggingface, kitoken"):
            TokenizerConfig(tokenizer_backend="quick")

    def test_a_checkpoint_without_tokenizer_json(self, tiny_checkpoint):
        with pytest.raises(ConfigError, match=r"tokenizer\.json is missing"):
            TextTokenizer.from_config(TokenizerConfig(checkpoint=str(tiny_checkpoint)))


class TestSpecialTokensAround:
    def around(self, single):
        tokenizer = load()
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            single=single, special_tokens=[("[CLS]", CLS), ("[SEP]", SEP), ("[MASK]", 103)]
        )
        return ids_of(TextTokenizer(tokenizer, Template({}), 6), "one two three four five six", truncate="end")

    def test_both_sides(self):
        assert self.around("[MASK] [CLS] $A [SEP]") == [103, CLS, 2028, 2048, 2093, SEP]

    def test_one_side(self):
        assert self.around("$A [SEP]") == [2028, 2048, 2093, 2176, 2274, SEP]
        assert self.around("[CLS] $A") == [CLS, 2028, 2048, 2093, 2176, 2274]


class TestPad:
    def test_one_text(self):
        ids, mask = pad([TokenizedText([5, 0, 7], False)])
        assert (ids.tolist(), mask.tolist()) == ([[5, 0, 7]], [[1, 1, 1]])
        assert (ids.dtype, mask.dtype) == (np.int32, np.int8)

    def test_to_the_longest(self):
        ids, mask = pad([TokenizedText([5, 6, 7], False), TokenizedText([8], True), TokenizedText([9, 1], False)])
        assert ids.tolist() == [[5, 6, 7], [8, 0, 0], [9, 1, 0]]
        assert mask.tolist() == [[1, 1, 1], [1, 0, 0], [1, 1, 0]]
        assert (ids.dtype, mask.dtype) == (np.int32, np.int8)

    def test_further_chunks_are_marked(self):
        ids, mask = pad([TokenizedText([5, 6, 7], False), TokenizedText([8, 9, 1, 2], False, (1, 3))])
        assert ids.tolist() == [[5, 6, 7, 0], [8, 9, 1, 2]]
        assert mask.tolist() == [[1, 1, 1, 0], [1, 2, 1, 2]]

    def test_and_leave_no_mark_on_the_next_text(self):
        assert pad([TokenizedText([5, 6], False, (1,))])[1].tolist() == [[1, 2]]
        assert pad([TokenizedText([5, 6], False)])[1].tolist() == [[1, 1]]

    def test_one_that_makes_the_table_too_large(self, monkeypatch):
        monkeypatch.setattr(tokenizer_module, "_MOST_PLACES", 8)
        assert pad([TokenizedText([1] * 4, False), TokenizedText([1], False)])[0].shape == (2, 4)
        assert pad([TokenizedText([1] * 9, False)])[0].shape == (1, 9)
        with pytest.raises(InputError, match=r"text\[1\]: 5 tokens make the table of all 2 texts too large"):
            pad([TokenizedText([1], False), TokenizedText([1] * 5, False)])

    def test_id_zero_is_a_token_like_any(self):
        ids, mask = pad([TokenizedText([0, 0], False), TokenizedText([0], False)])
        assert (ids.tolist(), mask.tolist()) == ([[0, 0], [0, 0]], [[1, 1], [1, 0]])
