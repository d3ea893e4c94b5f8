"""Texts out of files, and which of them a model takes."""

import pytest
import tokenizers

from texts.files import PASSAGES, QUERIES, choose_fitting, read_texts


@pytest.fixture
def tokenizer():
    vocabulary = {"[UNK]": 0, "a": 1, "b": 2}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return tokenizer


def test_plain_files_hold_a_text_a_line_and_others_an_object(tmp_path):
    plain, objects = tmp_path / "a.txt", tmp_path / "b.jsonl"
    plain.write_text("one\n\n  two \n", encoding="utf-8")
    objects.write_text('{"text": "drei", "id": 1}\n\n{"text": "\\u56db"}\n', encoding="utf-8")
    assert read_texts([plain, str(objects)]) == ["one", "two", "drei", "四"]


@pytest.mark.parametrize("line", ["no json", "[1]", '{"title": "x"}', '{"text": ""}', '{"text": 5}'])
def test_a_line_without_a_text_is_named(tmp_path, line):
    file = tmp_path / "b.jsonl"
    file.write_text(f'{{"text": "x"}}\n{line}\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"b\.jsonl:2: not a JSON object"):
        read_texts([file])


def test_files_without_texts_are_refused(tmp_path):
    file = tmp_path / "empty.txt"
    file.write_text("\n\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no text"):
        read_texts([file])


def test_the_usual_files_are_there():
    assert len(read_texts([PASSAGES])) > 300
    assert len(read_texts([QUERIES])) > 100


def test_long_texts_are_left_out_and_counted(tokenizer):
    tokenizer.enable_truncation(2)  # or else nothing would be too long
    fitting = choose_fitting(["a b", "a b a b", "a"], tokenizer, 3)
    assert (fitting.texts, fitting.tokens, fitting.left_out) == (["a b", "a"], [2, 1], 1)
    assert fitting.label == "1-2"


def test_texts_of_one_length_have_it_as_their_label(tokenizer):
    assert choose_fitting(["a b", "b a"], tokenizer, 2).label == 2


def test_there_must_be_a_text_that_fits(tokenizer):
    with pytest.raises(ValueError, match="none of 1 texts has at most 1 tokens"):
        choose_fitting(["a b"], tokenizer, 1)
