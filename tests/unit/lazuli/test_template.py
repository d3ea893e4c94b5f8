import pytest

from lazuli.errors import ConfigError, OptionError
from lazuli.options import RequestOptions
from lazuli.template import Template

PROMPTS = {"query": "q: ", "empty": "", "braces": "{text} {0} %s "}


def test_nothing_is_put_around_by_default():
    assert Template({}).around(RequestOptions()) == ("", "")
    assert Template(PROMPTS).around(RequestOptions()) == ("", "")


@pytest.mark.parametrize("name", PROMPTS)
def test_a_prompt_stands_before_the_text(name):
    assert Template(PROMPTS).around(RequestOptions(prompt_name=name)) == (PROMPTS[name], "")


def test_the_default_prompt_gives_way_to_a_prompt_and_to_an_instruction():
    template = Template(PROMPTS, default_prompt_name="query")
    assert template.around(RequestOptions()) == ("q: ", "")
    assert template.around(RequestOptions(prompt_name="empty")) == ("", "")
    assert template.around(RequestOptions(instruction="")) == ("", "")


def test_an_unknown_prompt_is_named_with_the_known_ones():
    with pytest.raises(OptionError, match="prompt_name: 'doc' is not known; this model has 'braces', 'empty', 'query'"):
        Template(PROMPTS).around(RequestOptions(prompt_name="doc"))
    many = Template({f"{number:02}{'x' * 100}": "" for number in range(30)})
    with pytest.raises(OptionError, match=r"and 10 more$") as caught:
        many.around(RequestOptions(prompt_name="y" * 100_000))
    assert len(str(caught.value)) < 2000  # gRPC drops what is longer than 8192
    with pytest.raises(OptionError, match="prompt_name: '' is not known; this model has no prompts"):
        Template({}).around(RequestOptions(prompt_name=""))


def test_an_unknown_default_prompt_is_refused_at_once():
    with pytest.raises(ConfigError, match="default_prompt_name: 'doc' is not among 'query'"):
        Template({"query": "q: "}, default_prompt_name="doc")


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{instruction}{text}", ("find", "")),
        ("Instruct: {instruction}\nQuery: {text}", ("Instruct: find\nQuery: ", "")),
        ("<{text}|{instruction}>", ("<", "|find>")),
    ],
)
def test_the_instruction_template(template, expected):
    assert Template({}, None, template).around(RequestOptions(instruction="find")) == expected


@pytest.mark.parametrize("instruction", ["{text}", "{instruction}", "{0} {} {x!r}", "}{", "%s \\1"])
def test_braces_in_an_instruction_are_no_format_fields(instruction):
    template = Template({}, None, "a {instruction} b {text} c")
    assert template.around(RequestOptions(instruction=instruction)) == (f"a {instruction} b ", " c")


@pytest.mark.parametrize(
    ("prompts", "query", "document"),
    [
        ({"query": "q: ", "document": "d: "}, "q: ", "d: "),
        ({"query": "q: ", "passage": "p: "}, "q: ", "p: "),
        ({"query": "q: ", "other": "o: "}, "q: ", ""),
        ({}, "", ""),
    ],
)
def test_an_input_type_takes_the_prompt_that_there_is(prompts, query, document):
    template = Template(prompts, default_prompt_name=next(iter(prompts), None))
    assert template.around(RequestOptions(input_type="query")) == (query, "")
    assert template.around(RequestOptions(input_type="document")) == (document, "")
