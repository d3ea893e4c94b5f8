from dataclasses import dataclass

import pytest

from lazuli.errors import ConfigError
from lazuli.parameters import TRITON_PARAMETERS, expand, parse


@dataclass(frozen=True)
class Sample:
    count: int = 1
    limit: int | None = 2
    ratio: float = 0.5
    flag: bool = False
    name: str = "x"
    label: str | None = None


class TestExpand:
    @pytest.mark.parametrize(
        ("text", "environ", "expected"),
        [
            ("plain", {}, "plain"),
            ("${A}", {"A": "1"}, "1"),
            ("${A:-2}", {"A": "1"}, "1"),
            ("${A:-2}", {}, "2"),
            ("${A:-2}", {"A": ""}, "2"),
            ("${A:-}", {}, ""),
            ("x${A}y${B:-b}z", {"A": "a"}, "xaybz"),
            ("${A:-/a/b c:-d}", {}, "/a/b c:-d"),
            ("$A {A} ${1A}", {"A": "1", "1A": "2"}, "$A {A} ${1A}"),
            ("{instruction}{text}", {"instruction": "no", "text": "no"}, "{instruction}{text}"),
        ],
    )
    def test_as_a_shell_does(self, text, environ, expected):
        assert expand(text, environ) == expected

    def test_a_value_is_not_expanded_again(self):
        assert expand("${A}", {"A": "${B}", "B": "no"}) == "${B}"

    @pytest.mark.parametrize("environ", [{}, {"A": ""}])
    def test_an_unset_variable_without_default_is_named(self, environ):
        with pytest.raises(ConfigError, match="variable A is not set"):
            expand("${A}", environ)

    def test_the_process_environment_is_the_default(self, monkeypatch):
        monkeypatch.setenv("LAZULI_SOME_TEST", "7")
        assert expand("${LAZULI_SOME_TEST}") == "7"


class TestParse:
    def test_nothing_gives_the_defaults(self):
        assert parse(Sample, {}) == Sample()

    def test_every_kind(self):
        values = {"count": " 7 ", "limit": "8", "ratio": "1e-3", "flag": "true", "name": "n", "label": "l"}
        assert parse(Sample, values) == Sample(count=7, limit=8, ratio=1e-3, flag=True, name="n", label="l")

    @pytest.mark.parametrize(
        ("text", "value"), [("true", True), ("True", True), ("1", True), ("false", False), ("0", False)]
    )
    def test_bool(self, text, value):
        assert parse(Sample, {"flag": text}).flag is value

    def test_auto_is_none_where_none_is_allowed(self):
        parsed = parse(Sample, {"limit": "auto", "label": "auto", "name": "auto"})
        assert (parsed.limit, parsed.label, parsed.name) == (None, None, "auto")

    def test_variables_come_from_the_environment(self):
        assert parse(Sample, {"count": "${N:-3}"}, {}).count == 3
        assert parse(Sample, {"count": "${N:-3}"}, {"N": "4"}).count == 4

    def test_an_unset_variable_names_the_parameter(self):
        with pytest.raises(ConfigError, match=r"'count'.*\$\{N\}.*variable N is not set"):
            parse(Sample, {"count": "${N}"}, {})

    @pytest.mark.parametrize("key", ["counts", "COUNT", "", "__class__"])
    def test_an_unknown_key_is_named_with_the_known_ones(self, key):
        with pytest.raises(ConfigError, match=rf"unknown parameter '{key}'.*count, flag, label, limit, name, ratio"):
            parse(Sample, {key: "1"})

    @pytest.mark.parametrize(
        ("key", "text", "kind"),
        [
            ("count", "seven", "int"),
            ("count", "1.5", "int"),
            ("count", "", "int"),
            ("count", "auto", "int"),
            ("limit", "Auto", "int"),
            ("limit", "none", "int"),
            ("ratio", "half", "float"),
            ("flag", "yes", "bool"),
            ("flag", "", "bool"),
        ],
    )
    def test_a_malformed_value_is_named_with_its_key(self, key, text, kind):
        with pytest.raises(ConfigError, match=f"parameter '{key}': '{text}' is not a valid {kind}"):
            parse(Sample, {key: text})

    @pytest.mark.parametrize("key", sorted(TRITON_PARAMETERS))
    def test_parameters_of_triton_itself_are_passed_over(self, key):
        assert parse(Sample, {key: "${UNSET_AND_NOT_READ}"}) == Sample()
