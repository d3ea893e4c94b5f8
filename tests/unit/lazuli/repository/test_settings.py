import pytest

from lazuli.repository.errors import RepositoryError
from lazuli.repository.settings import settle

BUILT_IN = {
    "checkpoint": "${LAZULI_CHECKPOINT:-all-MiniLM-L6-v2}",
    "dtype": "${LAZULI_DTYPE:-auto}",
    "max_seq_length": "${LAZULI_MAX_SEQ_LENGTH:-auto}",
    "prompts": "${LAZULI_PROMPTS:-}",
    "token_budget": "auto",
}


def test_the_models_own_matters_are_fixed_and_those_of_the_machine_left_open(monkeypatch):
    monkeypatch.setenv("LAZULI_MAX_SEQ_LENGTH", "8")
    settled = settle(BUILT_IN, {"checkpoint": "/x"})
    assert settled == {"checkpoint": "/x", "max_seq_length": "auto", "prompts": "", "token_budget": "auto"}


def test_a_wish_fixes_a_matter_of_the_machine_too():
    assert settle(BUILT_IN, {"dtype": "float32"})["dtype"] == "float32"


@pytest.mark.parametrize(
    ("wish", "match"),
    [
        ({"speed": "9"}, "speed: not a parameter of this model; known are checkpoint, dtype, max_seq_length"),
        ({"checkpoint": "/a/${HOME}"}, r"checkpoint: '/a/\$\{HOME\}' holds \$\{, which would be read as a variable"),
        ({"prompts": "a\0b"}, r"prompts: .* holds the character U\+0000"),
        ({"checkpoint": "/a/\udcff"}, r"checkpoint: .* holds the character U\+DCFF"),
    ],
)
def test_what_cannot_be_written_is_refused(wish, match):
    with pytest.raises(RepositoryError, match=match):
        settle(BUILT_IN, wish)


def test_blanks_of_any_script_can_be_written():
    assert settle(BUILT_IN, {"prompts": '{"q": "查询\u3000\u00a0"}'})["prompts"] == '{"q": "查询\u3000\u00a0"}'
