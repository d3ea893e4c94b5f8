import pytest

from texts.hard import hard_texts


@pytest.fixture(scope="module")
def texts():
    return hard_texts(["<|end|>"], small=True)


def test_the_same_arguments_give_the_same_texts(texts):
    assert hard_texts(["<|end|>"], small=True) == texts
    assert hard_texts(["<|end|>"], seed=1, small=True)["random words"] != texts["random words"]


def test_every_text_can_be_sent(texts):
    for members in texts.values():
        assert members
        for text in members:
            text.encode("utf-8")


def test_special_tokens_are_in_it(texts):
    assert any("<|end|>" in text for text in texts["special tokens"])


def test_whole_it_has_every_character_of_the_planes_with_characters():
    alone = set(hard_texts([])["character alone"])
    assert len(alone) == 5 * 65536 - 2048
    assert {"\x00", "é", "語", "😀", "\U000e0041"} <= alone
