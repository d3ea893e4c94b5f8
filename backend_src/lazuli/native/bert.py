"""A BERT encoder as one call of C++.

Takes the sizes and the weights, in torch, of a model on the CPU; returns packed hidden states. Knows nothing of
checkpoints.
"""

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch

from lazuli.native.library import NativeError
from lazuli.segments import SEGMENT_BIT


class _Sizes(ctypes.Structure):
    _fields_ = (*((name, ctypes.c_long) for name in ("hidden", "inner", "head", "layers")), ("eps", ctypes.c_float))


class _Embedding(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("tokens", "positions")),
        *((name, ctypes.c_long) for name in ("segment_length", "segment_bit")),
        *((name, ctypes.c_void_p) for name in ("scale", "shift")),
    )


class _Batch(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("ids", "positions", "starts")),
        ("sequences", ctypes.c_long),
    )


# Of a tile of the C++; hidden size, inner size and that of a head are multiples of it.
COLUMNS = 32
Pair = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class NativeLayer:
    """The weights of one layer, each with its bias; in the order in which the C++ has them.

    Attributes:
        qkv: [3 D, D].
        project: [D, D].
        attention_norm: [D].
        up: [I, D].
        down: [D, I].
        mlp_norm: [D].
    """

    qkv: Pair
    project: Pair
    attention_norm: Pair
    up: Pair
    down: Pair
    mlp_norm: Pair


class NativeBert:
    """The encoder, with packed copies of the weights of its products and threads of its own."""

    def __init__(
        self,
        library: ctypes.CDLL,
        tables: Pair,
        segment_length: int,
        norm: Pair,
        layers: Sequence[NativeLayer],
        head_dim: int,
        eps: float,
    ) -> None:
        """Pack the weights.

        Args:
            library: Of `load_library`.
            tables: [V, D] of tokens and [P, D] of positions, float32 on the CPU, as all that follows.
            segment_length: Rows of positions of each segment, or 0: see `TokenEmbedding`.
            norm: Scale and shift behind the embeddings.
            layers: All layers, of the same sizes.
            head_dim: Of the attention heads.
            eps: Of all norms.

        Raises:
            NativeError: If memory is short.
        """
        hidden, inner = tables[0].shape[1], len(layers[0].up[0])
        assert not any(size % COLUMNS for size in (hidden, inner, head_dim)), "its tiles would not fit"
        _declare(library)
        self._library = library
        self._hidden = hidden
        # What the C++ keeps pointing to; of products that is only the biases.
        kept = [*tables, *norm]
        pointers: list[int] = []
        weights: list[torch.Tensor] = []
        for layer in layers:
            for field in fields(NativeLayer):
                weight, bias = (part.contiguous() for part in getattr(layer, field.name))
                pointers += [weight.data_ptr(), bias.data_ptr()]
                weights.append(weight)
                kept += [bias] if weight.dim() == 2 else [weight, bias]
        self._kept = kept
        sizes = _Sizes(hidden, inner, head_dim, len(layers), eps)
        places = [part.data_ptr() for part in (*tables, *norm)]
        embedding = _Embedding(*places[:2], segment_length, SEGMENT_BIT, *places[2:])
        array = (ctypes.c_void_p * len(pointers))(*pointers)
        self._handle = library.bert_new(
            ctypes.byref(sizes), ctypes.byref(embedding), array, ctypes.c_int(torch.get_num_threads())
        )
        if not self._handle:
            raise NativeError("memory is short")
        weakref.finalize(self, library.bert_free, self._handle)

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor, cu_seqlens: torch.Tensor) -> torch.Tensor:
        """Compute hidden states.

        Args:
            input_ids: [T] int32.
            position_ids: [T] int32.
            cu_seqlens: [B + 1] int32, the last of which is T.

        Returns:
            [T, D] float32.

        Raises:
            MemoryError: If memory is short.
        """
        inputs = [part.contiguous() for part in (input_ids, position_ids, cu_seqlens)]
        assert all(part.dtype == torch.int32 for part in inputs), "as a ragged batch has them"
        batch = _Batch(*(part.data_ptr() for part in inputs), len(cu_seqlens) - 1)
        hidden = torch.empty(len(input_ids), self._hidden)
        if not self._library.bert_run(self._handle, ctypes.byref(batch), hidden.data_ptr()):
            raise MemoryError(f"no memory for {len(input_ids)} tokens")
        return hidden


def _declare(library: ctypes.CDLL) -> None:
    pointer = ctypes.c_void_p
    library.bert_new.restype = pointer
    library.bert_run.argtypes = [pointer, pointer, pointer]
    library.bert_run.restype = ctypes.c_bool
    library.bert_free.argtypes = [pointer]
    library.bert_free.restype = None
