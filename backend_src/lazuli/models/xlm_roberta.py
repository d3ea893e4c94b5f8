"""XLM-RoBERTa (Conneau et al., 2019): BERT whose positions are numbered from the padding id on.

Takes packed ids, returns packed hidden states.
"""

from collections.abc import Mapping
from typing import Any

from lazuli.models.bert import BertConfig

PREFIXES = ("roberta.",)


def read_config(model: Mapping[str, Any]) -> BertConfig:
    """Read `config.json`.

    Raises:
        ConfigError: If a value is missing or asks for something that is not supported.
    """
    return BertConfig.from_json(model, position_offset=model.get("pad_token_id", 1) + 1)
