"""BERT over a ragged batch (Devlin et al., 2018): bidirectional, absolute positions, normalisation after each branch.

Takes packed ids, returns packed hidden states. The checkpoint is read under the names that `transformers` gives.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from lazuli.attention.base import AttentionBackend, AttentionMetadata
from lazuli.errors import ConfigError
from lazuli.layers.embedding import TokenEmbedding
from lazuli.layers.linear import Linear
from lazuli.layers.mlp import Mlp
from lazuli.layers.norm import LayerNorm, NormThenLinear
from lazuli.layers.stream import Stream
from lazuli.models.base import ModelShape, make_workspace, read_fields, use_fused
from lazuli.weights import WeightReader

if TYPE_CHECKING:
    from lazuli.fused_linear import Workspace
    from lazuli.native.bert import NativeBert

PREFIXES = ("bert.",)
# A constant table that old checkpoints store, and heads, which `lazuli.heads` reads where they are wanted.
IGNORED = ("embeddings.position_ids", "pooler.dense.*", "cls.*", "lm_head.*", "classifier.*")


@dataclass(frozen=True)
class BertConfig:
    """The part of `config.json` that decides the computation; names as there.

    Attributes:
        type_vocab_size: 0 in a family without token types.
        position_offset: The first rows of the position table that no token uses; not in the file, but in the family.
        biased: Whether scores depend on how far apart two tokens are; not in the file either.
    """

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    type_vocab_size: int
    hidden_act: str
    layer_norm_eps: float
    position_offset: int = 0
    biased: bool = False

    @classmethod
    def from_json(cls, model: Mapping[str, Any], *, position_offset: int = 0, biased: bool = False) -> "BertConfig":
        """Read `config.json`.

        Args:
            model: Its content.
            position_offset: Of the family.
            biased: Of the family.

        Raises:
            ConfigError: If a value is missing or asks for something that is not supported.
        """
        positions = model.get("position_embedding_type", "absolute")
        if positions != "absolute":
            raise ConfigError(f"position_embedding_type: {positions!r} is not supported, only 'absolute' is")
        if model.get("is_decoder"):
            raise ConfigError("is_decoder: a BERT decoder is not supported")
        values = read_fields(cls, model, optional=("position_offset", "biased"))
        return cls(**values, position_offset=position_offset, biased=biased)

    @property
    def shape(self) -> ModelShape:
        """The sizes that others need."""
        return ModelShape(
            hidden_size=self.hidden_size,
            head_dim=self.hidden_size // self.num_attention_heads,
            vocab_size=self.vocab_size,
            max_positions=self.max_position_embeddings - self.position_offset,
            num_segments=min(2, max(1, self.type_vocab_size)),
        )


@dataclass(frozen=True)
class LayerNames:
    """The tensors of attention, which families of the same layers name differently."""

    qkv: tuple[str, str, str]
    project: str
    attention_norm: str


_NAMES = LayerNames(
    qkv=("attention.self.query", "attention.self.key", "attention.self.value"),
    project="attention.output.dense",
    attention_norm="attention.output.LayerNorm",
)


class BertModel:
    """The encoder, without a pooling head.

    Attributes:
        layers: All of them; none once `native` has their weights.
        native: Computes it on a CPU, if not None: see `lazuli.native.accelerate`.
    """

    def __init__(
        self,
        config: BertConfig,
        weights: WeightReader,
        attention: AttentionBackend,
        *,
        names: LayerNames = _NAMES,
        bias: torch.Tensor | None = None,
    ) -> None:
        """Read all weights.

        Args:
            config: The sizes.
            weights: Where from.
            attention: What attends.
            names: Of the family's tensors.
            bias: Of the scores in all layers, see `AttentionBackend.forward`.

        Raises:
            ConfigError: If a tensor is missing, left over or of another shape.
        """
        self.config, self.bias = config, bias
        self.shape = config.shape
        self.native: NativeBert | None = None
        self.embedding = _read_embedding(config, weights)
        self.embedding_norm = LayerNorm.read(weights, "embeddings.LayerNorm", config.hidden_size, config.layer_norm_eps)
        self.layers = [
            BertLayer(config, weights, attention, f"encoder.layer.{index}", names, bias)
            for index in range(config.num_hidden_layers)
        ]
        weights.finish(IGNORED)
        sizes = (3 * config.hidden_size, config.intermediate_size, config.hidden_size)
        self._workspace = make_workspace(self.embedding.tokens, sizes) if config.hidden_act == "gelu" else None
        self._fused_layers = []
        if self._workspace is not None:
            norms = [self.embedding_norm, *(layer.mlp_norm for layer in self.layers)]
            self._fused_layers = [FusedLayer(layer, norm) for layer, norm in zip(self.layers, norms, strict=False)]

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        metadata: AttentionMetadata,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See `RaggedModel`."""
        if use_fused(self._workspace, len(input_ids)):
            hidden = self._fused(input_ids, position_ids, metadata)
            return hidden if wanted is None else hidden[wanted]
        if self.native is not None:
            hidden = self.native.forward(input_ids, position_ids, metadata.cu_seqlens)
            return hidden if wanted is None else hidden[wanted]
        hidden = self.embedding_norm(self.embedding(input_ids, position_ids))
        for layer in self.layers[:-1]:
            hidden = layer(hidden, metadata)
        return self.layers[-1](hidden, metadata, wanted)

    def _fused(self, input_ids: torch.Tensor, position_ids: torch.Tensor, metadata: AttentionMetadata) -> torch.Tensor:
        """The same for few tokens on a GPU: each layer leaves its last norm to the next one."""
        from lazuli.triton_kernels.rows import finish_layer_norm

        assert self._workspace is not None, "the caller has looked"
        stream = self.embedding.stream(input_ids, position_ids, self.embedding_norm.weight)
        for layer in self._fused_layers:
            stream = layer(stream, metadata, self._workspace)
        norm = self.layers[-1].mlp_norm
        return finish_layer_norm(stream.values, stream.sums, norm.weight, norm.bias, norm.eps)


class BertLayer:
    """Attention and perceptron, each with its residual and norm."""

    def __init__(
        self,
        config: BertConfig,
        weights: WeightReader,
        attention: AttentionBackend,
        name: str,
        names: LayerNames,
        bias: torch.Tensor | None,
    ) -> None:
        """Read the weights under `name`."""
        size, inner, eps = config.hidden_size, config.intermediate_size, config.layer_norm_eps
        self._attention = attention
        self._bias = bias
        self._head_dim = config.shape.head_dim
        # One product instead of three: they share their input.
        self.qkv = Linear.read(weights, {f"{name}.{part}": size for part in names.qkv}, size)
        self.project = Linear.read(weights, {f"{name}.{names.project}": size}, size)
        self.attention_norm = LayerNorm.read(weights, f"{name}.{names.attention_norm}", size, eps)
        up = Linear.read(weights, {f"{name}.intermediate.dense": inner}, size)
        down = Linear.read(weights, {f"{name}.output.dense": size}, inner)
        self.mlp = Mlp(up, down, config.hidden_act)
        self.mlp_norm = LayerNorm.read(weights, f"{name}.output.LayerNorm", size, eps)

    def __call__(
        self, hidden: torch.Tensor, metadata: AttentionMetadata, wanted: torch.Tensor | None = None
    ) -> torch.Tensor:
        """[T, D] to [T, D], or only to the wanted rows of it: once attention is done, tokens do not mix."""
        attended = self.attend(self.qkv(hidden), metadata)
        if wanted is not None:
            attended, hidden = attended[wanted], hidden[wanted]
        hidden = self.attention_norm.after_adding(self.project, attended, hidden)
        return self.mlp_norm.after_adding(self.mlp.down, self.mlp.inner(hidden), hidden)

    def attend(self, projected: torch.Tensor, metadata: AttentionMetadata) -> torch.Tensor:
        """[T, 3 D] of queries, keys and values to [T, D]."""
        query, key, value = projected.unflatten(1, (3, -1, self._head_dim)).unbind(1)  # [T, H, head_dim] each
        return self._attention.forward(query, key, value, metadata, bias=self._bias).flatten(1)


class FusedLayer:
    """The same layer for few tokens on a GPU, in five kernels; begins with the norm of the layer before."""

    def __init__(self, layer: BertLayer, norm: LayerNorm) -> None:
        """Wrap a layer and the norm before it."""
        self._layer = layer
        self._norm = norm
        self._qkv = NormThenLinear(norm, layer.qkv)
        self._up = NormThenLinear(layer.attention_norm, layer.mlp.up, gelu=True)

    def __call__(self, stream: Stream, metadata: AttentionMetadata, workspace: "Workspace") -> Stream:
        """[T, D] to [T, D], each before a norm but multiplied by its scale."""
        layer = self._layer
        attended = layer.attend(self._qkv(stream, workspace), metadata)
        stream = self._add(layer.project, attended, self._norm, stream, layer.attention_norm, workspace)
        inner = self._up(stream, workspace)
        return self._add(layer.mlp.down, inner, layer.attention_norm, stream, layer.mlp_norm, workspace)

    @staticmethod
    def _add(
        linear: Linear, tokens: torch.Tensor, norm: LayerNorm, stream: Stream, following: LayerNorm, work: "Workspace"
    ) -> Stream:
        from lazuli.fused_linear import linear_add_layer_norm

        assert linear.bias is not None, "each layer of BERT has one"
        before = (stream, norm.weight, norm.bias, norm.eps)
        return linear_add_layer_norm(tokens, linear.weight, linear.bias, *before, following.weight, work)


def _read_embedding(config: BertConfig, weights: WeightReader) -> TokenEmbedding:
    size = config.hidden_size
    positions = weights.take("embeddings.position_embeddings.weight", config.max_position_embeddings, size)
    positions = positions[config.position_offset :]
    segments = config.shape.num_segments
    if config.type_vocab_size:
        # A table of positions for each segment saves a second look-up.
        types = weights.take("embeddings.token_type_embeddings.weight", config.type_vocab_size, size)[:segments]
        positions = (positions + types.unsqueeze(1)).flatten(0, 1)
    tokens = weights.take("embeddings.word_embeddings.weight", config.vocab_size, size)
    return TokenEmbedding(tokens, positions, segments)
