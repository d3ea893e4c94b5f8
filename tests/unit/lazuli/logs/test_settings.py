import pytest

from lazuli.errors import ConfigError
from lazuli.logs.settings import LogSettings


def test_by_default_json_of_faults_without_what_requests_hold():
    assert LogSettings.from_environment({}) == LogSettings("json", "faults", False)
    assert LogSettings.from_environment({"LAZULI_LOG_FORMAT": ""}) == LogSettings()


def test_every_choice():
    environ = {"LAZULI_LOG_FORMAT": "text", "LAZULI_LOG_REQUESTS": "all", "LAZULI_LOG_CONTENT": "on"}
    assert LogSettings.from_environment(environ) == LogSettings("text", "all", True)


@pytest.mark.parametrize("name", ["LAZULI_LOG_FORMAT", "LAZULI_LOG_REQUESTS", "LAZULI_LOG_CONTENT"])
def test_another_value_is_refused_by_name(name):
    with pytest.raises(ConfigError, match=f"{name}: 'yes', but it must be one of "):
        LogSettings.from_environment({name: "yes"})
