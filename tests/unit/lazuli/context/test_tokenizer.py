import json

import numpy as np
import pytest
import tokenizers

from lazuli.checkpoint import load_checkpoint, resolve_checkpoint
from lazuli.context.config import ContextTokenizerConfig
from lazuli.context.options import ContextOptions
from lazuli.context.tokenizer import ContextTokenizer, find_separator
from lazuli.errors import ConfigError, InputError, OptionError
from lazuli.template import Template
from lazuli.tokenizer import TextTokenizer

WORDS = ("one", "two", "three", "four", "five", "?", "[S]", "[E]", "[X]")
IDS = {word: number for number, word in enumerate(WORDS)}
START, END, SEPARATOR = IDS["[S]"], IDS["[E]"], IDS["[X]"]


def make(separator=(), *, special=True, limit=10, template=None):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(dict(IDS), unk_token="?"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["[S]", "[E]", "[X]"])
    if special:
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            single="[S] $A [E]", special_tokens=[("[S]", START), ("[E]", END)]
        )
    return ContextTokenizer(TextTokenizer(tokenizer, template or Template({}), limit), separator)


def tokenize(tokenizer, texts, document, **options):
    column = np.array(document, dtype=np.int32).reshape(-1, 1)
    ids, mask = tokenizer.tokenize(texts, column, ContextOptions(**options))
    assert (ids.dtype, mask.dtype) == (np.int32, np.int8)
    assert not (ids * (mask == 0)).any()
    return [
        [(WORDS[number], mark) for number, mark in zip(row, marks, strict=True) if mark]
        for row, marks in zip(ids.tolist(), mask.tolist(), strict=True)
    ]


def refusal(tokenizer, texts, document, **options):
    with pytest.raises(InputError) as caught:
        tokenize(tokenizer, texts, document, **options)
    return str(caught.value)


def test_special_tokens_stand_once_around_a_document():
    rows = tokenize(make(), ["one two", "three", "four", "five"], [3, 3, 3, 1])
    assert rows[0] == [("[S]", 1), ("one", 1), ("two", 1)]
    assert rows[1] == [("three", 1)]
    assert rows[2] == [("four", 1), ("[E]", 1)]
    assert rows[3] == [("[S]", 1), ("five", 1), ("[E]", 1)]


def test_separators_stand_between_and_belong_to_no_chunk():
    rows = tokenize(make([SEPARATOR], special=False), ["one two", "three", "four"], [0, 0, 1])
    assert rows == [[("one", 1), ("two", 1)], [("[X]", 3), ("three", 1)], [("four", 1)]]


def test_a_prompt_stands_once_before_a_document():
    template = Template({"p": "five "}, None, "{instruction} {text} three")
    rows = tokenize(make(template=template, special=False), ["one", "two", "four"], [0, 0, 1], prompt_name="p")
    assert rows == [[("five", 1), ("one", 1)], [("two", 1)], [("five", 1), ("four", 1)]]
    rows = tokenize(make(template=template, special=False), ["one", "two", "four"], [0, 0, 1], instruction="four")
    assert [[word for word, _ in row] for row in rows] == [["four", "one"], ["two", "three"], ["four", "four", "three"]]


def test_the_limit_is_that_of_a_document():
    texts, document = ["one two three", "four five", "one"], [0, 0, 1]
    assert tokenize(make([SEPARATOR], limit=8), texts, document)
    assert refusal(make([SEPARATOR], limit=7), texts, document) == (
        "text[0] to text[1]: 8 or more tokens in one document, but at most 7 are allowed; send it as several documents"
    )
    message = refusal(make(limit=7), ["one", "one " * 6], [0, 1])
    assert message.startswith("text[1]: 8 or more tokens in one document, but at most 7")


def test_only_a_part_is_read_of_a_chunk_that_is_much_too_long():
    message = refusal(make(limit=7), ["one " * 1_000_000], [0])
    assert int(message.split()[1]) < 200_000


@pytest.mark.parametrize("text", ["", " ", "\n"])
def test_a_chunk_without_a_token_is_named(text):
    message = refusal(make(), ["one", text, "two"], [0, 0, 0])
    assert message == "text[1]: no token is left of it, so there is nothing to embed"


@pytest.mark.parametrize("token", ["[X]", "[S]", "[E]"])
def test_a_text_never_becomes_a_separator_or_a_special_token(token):
    rows = tokenize(make([SEPARATOR]), [f"one {token}", token], [0, 0])
    words = [word for row in rows for word, _ in row]
    assert (words.count("[X]"), words.count("[S]"), words.count("[E]")) == (1, 1, 1)


@pytest.mark.parametrize("truncate", ["end", "start", "split"])
def test_nothing_is_cut(truncate):
    with pytest.raises(OptionError, match=f'truncate: must be "none" for chunks, got "{truncate}"'):
        ContextOptions.from_json(json.dumps({"truncate": truncate}))


def test_the_documents_are_checked():
    assert refusal(make(), ["one"] * 3, [0, 1, 0]).startswith("document[2]: 0 again")
    assert refusal(make(), ["one"] * 3, [0, 1]).startswith("document: the shape must be [3, 1]")


class TestFromConfig:
    @pytest.fixture
    def checkpoint(self, tmp_path):
        """The packaged one, with another `config.json`."""
        source = resolve_checkpoint("all-MiniLM-L6-v2")
        for file in source.iterdir():
            if file.name != "config.json":
                (tmp_path / file.name).symlink_to(file)

        def change(**changes):
            config = json.loads((source / "config.json").read_text())
            (tmp_path / "config.json").write_text(json.dumps(config | changes))
            return str(tmp_path)

        return change

    def separator_of(self, **parameters):
        return ContextTokenizer.from_config(ContextTokenizerConfig.from_parameters(parameters))._separator

    def test_most_checkpoints_have_no_separator(self, checkpoint):
        assert self.separator_of() == []
        assert find_separator(load_checkpoint(checkpoint(auto_map={"AutoModel": "modeling.PPLXQwen3Model"}))) == ""

    def test_that_of_perplexitys_contextual_models(self, checkpoint):
        folder = checkpoint(auto_map={"AutoModel": "modeling.PPLXQwen3ContextualModel"})
        assert find_separator(load_checkpoint(folder)) == "<|endoftext|>"
        with pytest.raises(
            ConfigError, match=r"separator: '<\|endoftext\|>' is not a special token of this checkpoint"
        ):
            self.separator_of(checkpoint=folder)

    def test_a_parameter_decides(self):
        assert self.separator_of(separator="[SEP]") == [102]
        assert self.separator_of(separator="") == []
        with pytest.raises(ConfigError, match="separator: '<s>' is not a special token of this checkpoint"):
            self.separator_of(separator="<s>")
        with pytest.raises(ConfigError, match="separator: 'the' is not a special token of this checkpoint"):
            self.separator_of(separator="the")

    def test_special_tokens_that_are_hidden_from_texts(self, checkpoint, tmp_path):
        """Of a Unigram vocabulary no text can spell them, and the tokenizer itself no longer knows their names."""
        vocabulary = [("<s>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁a", -1.0), ("a", -2.0), ("▁", -2.0)]
        tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(vocabulary, unk_id=2))
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
        tokenizer.add_special_tokens(["<s>", "</s>"])
        folder = checkpoint()
        (tmp_path / "tokenizer.json").unlink()
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        assert self.separator_of(checkpoint=folder, separator="</s>") == [1]
