"""What an engine is made of: the model with what its task puts behind it, read from a checkpoint.

Takes parameters and a checkpoint, returns encoders and heads on a device. On the device `meta`, tensors have shapes
only: so `lazuli model add` finds out, before anything is written, whether an engine would start. Knows nothing of
batches.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from lazuli.attention.base import AttentionBackend
from lazuli.attention.expanding import ExpandingAttention
from lazuli.attention.select import check_attention, select_attention
from lazuli.cache_folder import find_cache_folder
from lazuli.checkpoint import Checkpoint
from lazuli.config import EngineConfig
from lazuli.context.config import check_pooling
from lazuli.dense import load_dense
from lazuli.encoder import Encoder
from lazuli.errors import ConfigError
from lazuli.heads.head_config import HeadConfig, read_head_config
from lazuli.heads.load import load_head
from lazuli.heads.task import CONTEXT, EMBED, RERANK, check_task, scores_by_vectors
from lazuli.models.base import ModelShape
from lazuli.models.registry import load_model, read_attention_shape, read_shape
from lazuli.native.accelerate import accelerate
from lazuli.outputs.dense import DenseModel
from lazuli.precision import check_float16, choose_cpu_dtype
from lazuli.request import VECTORS
from lazuli.tokenwise.facts import TokenFacts, hides_tokens
from lazuli.tokenwise.heads import TokenHeads, load_token_heads
from lazuli.tokenwise.request import PAIRS, TOKENS


@dataclass(frozen=True)
class EngineParts:
    """What an engine is made of.

    Attributes:
        head: What its task has behind the model, or None.
        encoder: The model, with its pooling and all that follows.
        token_heads: What the checkpoint has for single tokens.
        dense_model: What its vectors are like.
    """

    head: HeadConfig | None
    encoder: Encoder
    token_heads: TokenHeads
    dense_model: DenseModel


def load_parts(config: EngineConfig, checkpoint: Checkpoint, device: torch.device) -> EngineParts:
    """Read everything that the task of an engine needs of a checkpoint.

    Args:
        config: The parameters.
        checkpoint: What they name.
        device: Where to; `meta` checks all but the machine, and reads no weights.

    Raises:
        ConfigError: If the checkpoint or a parameter is unusable.
    """
    if config.dtype == "float16":
        check_float16(checkpoint.architecture)
    head = read_head(config, checkpoint)
    encoder = load_encoder(config, checkpoint, head, device)
    token_heads = read_token_heads(config, checkpoint, head, encoder.shape, device)
    dense_model = read_dense_model(config, checkpoint, head, encoder.dimension)
    encoder.quantizer = dense_model.quantizer(device)
    return EngineParts(head, encoder, token_heads, dense_model)


def read_head(config: EngineConfig, checkpoint: Checkpoint) -> HeadConfig | None:
    """What comes behind the model for the task, or None: then its vectors are what counts.

    Raises:
        ConfigError: If the checkpoint is not for the task, or the pooling not for the head.
    """
    if config.task in (EMBED, CONTEXT):
        check_task(checkpoint, config.task)
        return None
    if config.task == RERANK and scores_by_vectors(checkpoint):
        return None
    head = read_head_config(checkpoint, config.task)
    if config.pooling not in (None, head.pooling):
        raise ConfigError(f"pooling: {config.pooling!r}, but the head of {checkpoint.path} needs {head.pooling!r}")
    return head


def load_encoder(
    config: EngineConfig, checkpoint: Checkpoint, head: HeadConfig | None, device: torch.device
) -> Encoder:
    """Read the model, with its head if there is one.

    Raises:
        ConfigError: If the checkpoint or a parameter is unusable.
    """
    pooling = head.pooling if head is not None else config.pooling or checkpoint.pooling
    if config.task == CONTEXT:
        check_pooling(pooling)

    def load(dtype: torch.dtype) -> Encoder:
        attention = _make_attention(config, checkpoint, device, dtype)
        model = load_model(checkpoint, attention, device, dtype)
        # What is asked for by name is not replaced.
        native = config.attention is None and accelerate(model, attention, find_cache_folder(config.cache_dir))
        dense = load_dense(checkpoint, model.shape.hidden_size, device)
        options = {"capturable": attention.capturable, "native": native}
        return Encoder(model, pooling, attention=attention, dense=dense, **options)

    # What a head makes of vectors says less about a dtype than they do, so it is attached afterwards.
    encoder = _choose_dtype(config, device, load)
    if head is not None:
        encoder.attach(load_head(checkpoint, head, device))
    return encoder


def read_dense_model(
    config: EngineConfig, checkpoint: Checkpoint, head: HeadConfig | None, dimension: int
) -> DenseModel:
    """What the vectors are like; of a model with a head, nothing but how many values it gives."""
    if head is not None:
        return DenseModel(dimension, normalize=False)
    return DenseModel.read(checkpoint, config, dimension)


def read_token_heads(
    config: EngineConfig, checkpoint: Checkpoint, head: HeadConfig | None, shape: ModelShape, device: torch.device
) -> TokenHeads:
    """The heads for single tokens, if the task has a use for them and the checkpoint has any.

    Raises:
        ConfigError: If one cannot be read.
    """
    if head is not None or config.task not in (EMBED, RERANK):
        return TokenHeads(TokenFacts())
    usual = "bfloat16" if device.type == "cuda" else "float32"
    return load_token_heads(checkpoint, shape, device, getattr(torch, config.dtype or usual))


def choose_program(config: EngineConfig, head: HeadConfig | None, heads: TokenHeads) -> str:
    """What most batches are run by."""
    if config.task == RERANK and head is None:
        return PAIRS
    return VECTORS if heads.facts.dense else TOKENS


def _make_attention(
    config: EngineConfig, checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype
) -> AttentionBackend:
    name, shape = config.attention, read_attention_shape(checkpoint)
    if name is not None and device.type == "meta":
        check_attention(name, shape)  # whether it runs on the server's machine shows there
        name = None
    longest = min(read_shape(checkpoint).max_positions, checkpoint.max_positions)
    chosen = select_attention(name, device, dtype, shape, longest)
    hides = config.task in (EMBED, RERANK) and hides_tokens(checkpoint)
    return ExpandingAttention(chosen) if hides else chosen


def _choose_dtype(config: EngineConfig, device: torch.device, load: Callable[[torch.dtype], Encoder]) -> Encoder:
    if device.type == "cuda":
        with torch.cuda.device(device):  # libraries ask for the current one
            return load(getattr(torch, config.dtype or "bfloat16"))
    if config.dtype is not None or device.type == "meta":
        return load(getattr(torch, config.dtype or "float32"))
    return choose_cpu_dtype(load)
