"""Pairs for embedding models: what the tokenizer of single texts makes of each text."""

import json
import shutil

import pytest

from lazuli.checkpoint import resolve_checkpoint
from lazuli.config import TokenizerConfig
from lazuli.errors import InputError
from lazuli.options import RequestOptions
from lazuli.pairs.config import PairTokenizerConfig
from lazuli.pairs.tokenizer import load_pair_tokenizer
from lazuli.scoring.options import RerankOptions
from lazuli.tokenizer import TextTokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "prompted"
    shutil.copytree(resolve_checkpoint("all-MiniLM-L6-v2"), folder)
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {"query": "query: "}}))
    return folder


@pytest.fixture
def load(folder, monkeypatch):
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    return lambda **parameters: load_pair_tokenizer(PairTokenizerConfig(checkpoint=str(folder), **parameters))


@pytest.fixture
def ids_of(folder, monkeypatch):
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    tokenizer = TextTokenizer.from_config(TokenizerConfig(checkpoint=str(folder)))
    return lambda text, **options: tokenizer.tokenize([text], RequestOptions(**options))[0].input_ids


def test_each_text_has_its_own_special_tokens_and_prompt(load, ids_of):
    queries, documents = ["one", "two", "one"], ["one two", "three", "four five"]
    pairs = load().tokenize(queries, documents, RerankOptions())
    for query, document, pair in zip(queries, documents, pairs, strict=True):
        first, second = ids_of(query, input_type="query"), ids_of(document, input_type="document")
        assert pair.input_ids == [*first, *second]
        assert pair.token_type_ids == [0] * len(first) + [1] * len(second)
        assert not pair.truncated


@pytest.mark.parametrize("parameters", [{}, {"default_instruction": "Find: "}])
def test_an_instruction_is_for_the_query(load, ids_of, parameters):
    options = RerankOptions() if parameters else RerankOptions(instruction="Find: ")
    (pair,) = load(**parameters).tokenize(["one"], ["two"], options)
    assert pair.input_ids == [*ids_of("one", instruction="Find: "), *ids_of("two")]


def test_each_text_is_cut_for_itself(load):
    pairs = load(max_seq_length=8).tokenize(["one " * 20, "one"], ["two", "two " * 20], RerankOptions())
    assert [pair.token_type_ids.count(0) for pair in pairs] == [8, 5]
    assert [pair.token_type_ids.count(1) for pair in pairs] == [3, 8]
    assert all(pair.truncated for pair in pairs)


@pytest.mark.parametrize(
    ("query", "document", "name"), [("one " * 20, "two", "query"), ("one", "two " * 20, "document")]
)
def test_too_long_is_an_error_if_nothing_may_be_cut(load, query, document, name):
    with pytest.raises(InputError, match=rf"{name}\[0\]: 2\d tokens, but at most 8 are allowed"):
        load(max_seq_length=8).tokenize([query], [document], RerankOptions(truncate="none"))


def test_an_error_names_the_row_also_where_queries_come_again(load):
    with pytest.raises(InputError, match=r"query\[2\]: 2\d tokens"):
        load(max_seq_length=8).tokenize(["a", "a", "one " * 20], ["b"] * 3, RerankOptions(truncate="none"))
