"""MPNet (Song et al., 2020): BERT whose scores also depend on how far apart two tokens are, the same in all layers.

Its positions are numbered from the padding id on, and it has no token types. Takes packed ids, returns packed hidden
states. The checkpoint is read under the names that `transformers` gives.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch

from lazuli.attention.base import AttentionBackend
from lazuli.models.base import require
from lazuli.models.bert import BertConfig, BertModel, LayerNames
from lazuli.weights import WeightReader

PREFIXES = ("mpnet.",)
_NAMES = LayerNames(
    qkv=("attention.attn.q", "attention.attn.k", "attention.attn.v"),
    project="attention.attn.o",
    attention_norm="attention.LayerNorm",
)
# These are not in the file: `transformers` has no others.
_POSITION_OFFSET = 2
_NUM_BUCKETS = 32
_MOST_DISTANCE = 128  # from there on, all are in the last bucket


def read_config(model: Mapping[str, Any]) -> BertConfig:
    """Read `config.json`.

    Raises:
        ConfigError: If a value is missing or asks for something that is not supported.
    """
    require(model, {"relative_attention_num_buckets": _NUM_BUCKETS})
    return BertConfig.from_json({**model, "type_vocab_size": 0}, position_offset=_POSITION_OFFSET, biased=True)


def load(config: BertConfig, weights: WeightReader, attention: AttentionBackend) -> BertModel:
    """Read all weights.

    Raises:
        ConfigError: If a tensor is missing, left over or of another shape.
    """
    buckets = weights.take("encoder.relative_attention_bias.weight", _NUM_BUCKETS, config.num_attention_heads).float()
    distances = torch.arange(-_MOST_DISTANCE, _MOST_DISTANCE + 1, device=buckets.device)
    bias = buckets[find_buckets(distances)].t().contiguous()
    return BertModel(config, weights, attention, names=_NAMES, bias=bias)


def find_buckets(distances: torch.Tensor) -> torch.Tensor:
    """The bucket of each distance, of a key from the query that it lies behind.

    One half of the buckets is for keys before the query and one for those behind. Of each half, one half is for single
    distances, and the other for ranges that grow with the distance's logarithm.

    Args:
        distances: Of any shape.

    Returns:
        The same shape, int64.
    """
    half = _NUM_BUCKETS // 2
    single = half // 2
    absolute = distances.abs()
    place = torch.log(absolute.float() / single) / math.log(_MOST_DISTANCE / single)
    ranges = single + (place * (half - single)).clamp(min=0).long()
    return torch.where(absolute < single, absolute, ranges.clamp(max=half - 1)) + (distances > 0) * half
