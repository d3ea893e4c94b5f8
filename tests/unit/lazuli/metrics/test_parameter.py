import pytest

from lazuli.config import EngineConfig, TokenizerConfig
from lazuli.context.config import ContextTokenizerConfig
from lazuli.errors import ConfigError
from lazuli.pairs.config import PairTokenizerConfig


@pytest.mark.parametrize("kind", [EngineConfig, TokenizerConfig, PairTokenizerConfig, ContextTokenizerConfig])
def test_metrics_are_on_or_off(kind):
    assert kind().metrics == "on"
    assert kind.from_parameters({"metrics": "off"}).metrics == "off"
    with pytest.raises(ConfigError, match="metrics: 'yes' is not one of on, off"):
        kind.from_parameters({"metrics": "yes"})
