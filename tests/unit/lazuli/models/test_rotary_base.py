import pytest

from lazuli.errors import ConfigError
from lazuli.models.rotary_base import GLOBAL, LOCAL, read_theta

BOTH = {"rope_parameters": {GLOBAL: {"rope_type": "default", "rope_theta": 5.0}, LOCAL: {"rope_theta": 3.0}}}


def test_of_new_and_old_files():
    assert read_theta({"rope_parameters": {"rope_theta": 5.0, "rope_type": "default"}, "rope_theta": 6.0}) == 5.0
    assert read_theta({"rope_theta": 6.0, "rope_scaling": None}) == 6.0


@pytest.mark.parametrize(("kind", "expected"), [(GLOBAL, 5.0), (LOCAL, 3.0)])
def test_of_each_kind_of_layers(kind, expected):
    assert read_theta(BOTH, kind, "old") == expected


def test_of_each_kind_in_old_files():
    assert read_theta({"rope_theta": 6.0, "local": 7.0}, LOCAL, "local") == 7.0
    assert read_theta({"rope_parameters": {GLOBAL: {"rope_type": "default"}}, "local": 7.0}, LOCAL, "local") == 7.0


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({}, "rope_theta is missing"),
        ({"rope_theta": 1.0, "rope_scaling": {"type": "linear"}}, "rope_scaling: rope_type: 'linear' is not supported"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_parameters: rope_type: 'yarn' is not supported"),
        ({"rope_theta": 1.0, "partial_rotary_factor": 0.5}, "partial_rotary_factor: 0.5 is not supported"),
    ],
)
def test_what_is_refused(model, message):
    with pytest.raises(ConfigError, match=message):
        read_theta(model)


def test_angles_of_one_kind_that_are_scaled_do_not_concern_the_other():
    scaled = {"rope_parameters": {**BOTH["rope_parameters"], GLOBAL: {"rope_type": "linear", "rope_theta": 5.0}}}
    assert read_theta(scaled, LOCAL) == 3.0
    with pytest.raises(ConfigError, match="'linear' is not supported"):
        read_theta(scaled, GLOBAL)
