import pytest

from lazuli.errors import ConfigError
from lazuli.verify.answers import KINDS
from lazuli.verify.limits import USUAL, Limits


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("min_cosine", 1.1),
        ("min_cosine", float("nan")),
        ("min_overlap", -0.1),
        ("max_ndcg_drop", 2),
        ("max_score_difference", -1),
        ("max_probability_difference", 1.5),
        ("min_equal_labels", -0.5),
    ],
)
def test_limits_beyond_reason(field, value):
    with pytest.raises(ConfigError, match=f"{field}: {value}"):
        Limits(**{field: value})


def test_every_kind_has_its_own():
    assert set(USUAL) == set(KINDS)
    assert Limits().of("int8")["min_cosine"] < Limits().of("float32")["min_cosine"]
    assert Limits(min_cosine=0.5).of("int8") == {"min_cosine": 0.5, "min_overlap": 0.9, "max_ndcg_drop": 0.02}


@pytest.mark.parametrize(
    ("limits", "kind"),
    [({"min_cosine": 0.9}, "binary"), ({"min_overlap": 0}, "labels"), ({"min_equal_labels": 0}, "int8")],
)
def test_a_limit_that_a_kind_does_not_have(limits, kind):
    with pytest.raises(ConfigError, match=f"{next(iter(limits))}: not a limit of {kind}"):
        Limits(**limits).of(kind)
