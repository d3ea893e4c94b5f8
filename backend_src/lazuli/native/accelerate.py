"""Lets C++ compute a model where there is some for it, and says so in the log.

Takes a loaded model; afterwards it computes the same, quicker. Without a compiler, or if the results differ, everything
stays as it was.
"""

import ctypes
import logging
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from lazuli.attention.base import AttentionBackend, AttentionMetadata
from lazuli.attention.sdpa import SdpaAttention
from lazuli.layers.linear import Linear
from lazuli.layers.norm import LayerNorm
from lazuli.models.base import RaggedModel
from lazuli.models.bert import BertModel
from lazuli.native.bert import COLUMNS, NativeBert, NativeLayer, Pair
from lazuli.native.library import NativeError, load_library

_log = logging.getLogger(__name__)

MEASURED_ON = "AVX512"  # as torch calls it
_FOLDER = "native"
_PROBE_LENGTHS = (1, 3, 17, 70)
_MIN_COSINE = 1 - 1e-5


def accelerate(model: RaggedModel, attention: AttentionBackend, cache_folder: Path) -> bool:
    """Hand a BERT on a CPU in float32 over to C++.

    Args:
        model: Any model; others stay as they are.
        attention: Its own; only where all tokens see each other.
        cache_folder: Compiled libraries are kept below it.

    Returns:
        Whether that was done.
    """
    if not isinstance(model, BertModel) or not isinstance(attention, SdpaAttention):
        return False
    tokens = model.embedding.tokens
    plain = model.config.hidden_act == "gelu" and model.bias is None
    if tokens.device.type != "cpu" or tokens.dtype != torch.float32 or not plain:
        return False
    if torch.backends.cpu.get_cpu_capability() != MEASURED_ON:
        _log.info("the model runs in torch, as C++ was only measured to be quicker with %s", MEASURED_ON)
        return False
    sizes = (model.config.hidden_size, model.config.intermediate_size, model.shape.head_dim)
    if any(size % COLUMNS for size in sizes):
        _log.info("the model runs in torch, as C++ needs sizes that are multiples of %d, not %s", COLUMNS, sizes)
        return False
    try:
        native = make_native(model, load_library(cache_folder / _FOLDER))
        _check(model, native)
    except NativeError as error:
        _log.warning("the model runs in torch, as C++ for it cannot be had: %s", error)
        return False
    model.native = native
    # Their weights were copied.
    model.layers = []
    _log.info("the model runs in C++ compiled for this machine; attention: sdpa asks for torch")
    return True


def make_native(model: BertModel, library: ctypes.CDLL) -> NativeBert:
    """Pack the weights of a model whose sizes are multiples of `COLUMNS`.

    Raises:
        NativeError: If memory is short.
    """
    embedding = model.embedding
    assert embedding.positions is not None, "each BERT has a table of them"
    layers = [
        NativeLayer(
            _weights(layer.qkv),
            _weights(layer.project),
            _scale(layer.attention_norm),
            _weights(layer.mlp.up),
            _weights(layer.mlp.down),
            _scale(layer.mlp_norm),
        )
        for layer in model.layers
    ]
    tables = (embedding.tokens, embedding.positions)
    head_dim, eps = model.shape.head_dim, model.config.layer_norm_eps
    return NativeBert(library, tables, embedding.segment_length, _scale(model.embedding_norm), layers, head_dim, eps)


@torch.inference_mode()
def _check(model: BertModel, native: NativeBert) -> None:
    """Compare both on a probe.

    Raises:
        NativeError: If they differ.
    """
    lengths = [min(length, model.shape.max_positions) for length in _PROBE_LENGTHS]
    bounds = np.cumsum([0, *lengths], dtype=np.int32)
    cu_seqlens = torch.from_numpy(bounds)
    position_ids = torch.cat([torch.arange(end - begin, dtype=torch.int32) for begin, end in pairwise(bounds.tolist())])
    input_ids = (torch.arange(len(position_ids)) * 7919 % model.shape.vocab_size).int()
    exact = model.forward(input_ids, position_ids, AttentionMetadata(cu_seqlens, bounds, max(lengths)))
    cosines = torch.cosine_similarity(exact, native.forward(input_ids, position_ids, cu_seqlens), dim=1)
    if not bool((cosines >= _MIN_COSINE).all()):
        raise NativeError(f"its results differ from torch: least cosine {float(cosines.min()):.6f}")


def _weights(linear: Linear) -> Pair:
    assert linear.bias is not None, "each layer of BERT has one"
    return linear.weight, linear.bias


def _scale(norm: LayerNorm) -> Pair:
    return norm.weight, norm.bias
