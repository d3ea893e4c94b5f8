"""The engine: a checkpoint on a device, stepped one ragged batch at a time.

Takes batches of token ids, returns lazy vectors; other programs take sequences with what their requests want of them.
Knows nothing of queues or Triton.
"""

import logging
import threading
import zlib
from collections.abc import Sequence as SequenceOf
from importlib.resources import files

import numpy as np
import torch

from lazuli import __version__
from lazuli.batch import RaggedBatch
from lazuli.buckets import BucketTable
from lazuli.cache_folder import find_cache_folder, keep_compiled_kernels
from lazuli.checkpoint import load_checkpoint
from lazuli.config import EngineConfig
from lazuli.context.stepper import SpanStepper
from lazuli.cpu import CpuStepper
from lazuli.cuda import CudaStepper
from lazuli.device import wake_gpu
from lazuli.engine_parts import choose_program, load_parts
from lazuli.graph import GraphCache, GraphCounters
from lazuli.graph_keeper import GraphKeeper
from lazuli.graph_profile import ProfileFile
from lazuli.heads.task import CONTEXT
from lazuli.lazy_tensor import LazyTensor
from lazuli.outputs.dense import DenseForm
from lazuli.outputs.finish import Finish
from lazuli.precision import check_finite
from lazuli.recorder import CapturedGraph
from lazuli.reply import LazyRows
from lazuli.request import VECTORS, Sequence
from lazuli.token_input import TokenLimits
from lazuli.tokenwise.answer_model import AnswerModel
from lazuli.tokenwise.answer_size import AnswerLimit
from lazuli.tokenwise.form import TokenForm
from lazuli.tokenwise.pair_program import PairProgram
from lazuli.tokenwise.probe import run_pairs, run_tokens
from lazuli.tokenwise.request import PAIRS, TOKENS
from lazuli.tokenwise.token_program import TokenProgram

_log = logging.getLogger(__name__)

_GPU_TOKEN_BUDGET = 16384
_CPU_TOKEN_BUDGET = 2048  # more does not fit the caches, and was slower
# What decides which kernels run, beside the sizes of a batch.
_TABLES = ("linear_tilings.json", "attention/table.json")
_WARM_UP_LENGTHS = ((1,), (16,), (128,), (8, 16, 16, 64), (16,) * 8)
# Full batches of texts of these lengths: too large for graphs, and each length may have kernels of its own.
_FULL_WARM_UP = (16, 32, 64, 128, 512, 4096)


class Engine:
    """Loads a checkpoint; `step` queues one forward pass, and several threads may call it."""

    def __init__(self, config: EngineConfig, device: torch.device) -> None:
        """Load the model.

        Args:
            config: The parameters.
            device: Where to; `config.device` has been looked at already.

        Raises:
            ConfigError: If the checkpoint or a parameter is unusable.
        """
        self.checkpoint = load_checkpoint(config.checkpoint)
        self.device = device
        self._is_float16 = config.dtype == "float16"
        if device.type == "cuda":
            keep_compiled_kernels(find_cache_folder(config.cache_dir))
            wake_gpu(device)  # attention packages take seconds to import
        self.token_budget = config.token_budget or _default_budget(device)
        self._max_batch_sequences = config.max_batch_sequences
        parts = load_parts(config, self.checkpoint, device)
        self.head, self._encoder, self._heads = parts.head, parts.encoder, parts.token_heads
        self.dense_model = parts.dense_model
        self.dimension, shape = self._encoder.dimension, self._encoder.shape
        self.num_segments = shape.num_segments
        self.limits = TokenLimits(shape.vocab_size, min(shape.max_positions, self.checkpoint.max_positions))
        # Whoever uses the stepper holds the turn. A capture lets it go, so only one may, who took the idle turn before.
        self._idle_turn = threading.Lock()
        self._turn = threading.Lock()
        self._keeper: GraphKeeper | None = None
        multi_size = self._heads.multi.num_out if self._heads.multi is not None else 0
        limit = AnswerLimit(config.max_answer_mb, self._heads.facts, multi_size)
        self.answers = AnswerModel(self._heads.facts, self.dense_model, limit)
        # What most of its batches are run by.
        self.program = choose_program(config, self.head, self._heads)
        self._programs: dict[str, TokenProgram | PairProgram] = {
            TOKENS: TokenProgram(self._encoder, self._heads),
            PAIRS: PairProgram(self._encoder, self._heads),
        }
        self._stepper = self._make_stepper(config)

    @property
    def needs_torch_threads(self) -> bool:
        """Whether torch computes so much on the CPU that its threads are worth having."""
        return self.device.type == "cpu" and (not self._encoder.native or bool(self._heads))

    def step(self, batch: RaggedBatch) -> LazyTensor:
        """Queue the forward pass of a batch.

        Returns:
            [B, D] float32 in the order of the batch; on a GPU it may still be on its way.
        """
        with self._turn:
            return self._stepper.step(batch)

    def run(self, program: str, sequences: SequenceOf[Sequence]) -> tuple[LazyRows, SequenceOf[Sequence]]:
        """Queue the forward pass of another program than that of vectors.

        Args:
            program: `tokens` or `pairs`.
            sequences: One batch.

        Returns:
            What it computes, which may still be on its way, and the sequences in its order.
        """
        assert not isinstance(self._stepper, SpanStepper), "a task of its own, which has no such requests"
        with self._turn:
            return self._programs[program].step(sequences, self._stepper)

    def warm_up(self) -> None:
        """Run batches of several sizes, so that the first request finds kernels, graphs and buffers ready.

        Raises:
            ConfigError: If the model overflows in float16.
        """
        if self._keeper is not None:
            with self._idle_turn, self._turn:
                self._keeper.start()
        full = [(length,) * (self.token_budget // length) for length in _FULL_WARM_UP]
        # Where batches would run as graphs, a large one still runs eagerly; documents always do.
        eager = self._keeper is not None or (self.device.type == "cuda" and isinstance(self._stepper, SpanStepper))
        for lengths in (*_WARM_UP_LENGTHS, *(full if eager else ())):
            chosen = lengths[: self._max_batch_sequences]
            fitting = [min(length, self.limits.max_positions) for length in chosen]
            if fitting:
                self._run_dummy(fitting)
        if self._is_float16 and self.program == VECTORS:
            check_finite(self.embed_ids, self._encoder.shape)
        if isinstance(self._stepper, CudaStepper):
            self._stepper.graphs.hits.clear()  # nobody asked for these

    def _run_dummy(self, lengths: SequenceOf[int]) -> None:
        """Run a batch of texts of these lengths, and wait."""
        rows = [np.ones(length, dtype=np.int32) for length in lengths]
        if self.program == PAIRS:
            run_pairs(self.run, [(rows[0], row) for row in rows])
        elif self.program == TOKENS or self._heads:
            finish = Finish(normalize=True)
            dense = DenseForm(finish, self.dimension, packed=False) if self._heads.facts.dense else None
            run_tokens(self.run, rows, TokenForm(self._heads.facts.outputs, dense, is_query=False))
        if self.program == VECTORS:
            self.embed_ids(rows)

    def use_idle_time(self, *, quiet: bool) -> bool:
        """Capture a graph that was asked for, if this is the time for it.

        Args:
            quiet: Whether no request came for a while.

        Returns:
            Whether there is more to do.
        """
        if self._keeper is None:
            return False
        with self._idle_turn, self._turn:
            return self._keeper.use_idle_time(quiet=quiet)

    @property
    def graph_counters(self) -> GraphCounters:
        """What happened to batches and graphs so far; all zero on a CPU."""
        return self._stepper.graphs.snapshot() if isinstance(self._stepper, CudaStepper) else GraphCounters()

    def close(self) -> None:
        """Remember which graphs were used, for the next start."""
        if self._keeper is not None:
            with self._idle_turn, self._turn:
                self._keeper.close()

    def embed_ids(self, rows: SequenceOf[np.ndarray], normalize: bool = True) -> np.ndarray:
        """Run one batch and wait for it; for tests and benchmarks of the engine alone.

        Args:
            rows: Ids of each text, [L] int32.
            normalize: Whether vectors are scaled to unit length.

        Returns:
            [N, D] float32, in the order of `rows`.
        """
        batch = RaggedBatch.pack(rows, [Finish(normalize).code] * len(rows))
        vectors = self.step(batch).result()
        self.use_idle_time(quiet=True)
        ordered = np.empty_like(vectors)
        ordered[batch.order] = vectors
        return ordered

    def _make_stepper(self, config: EngineConfig) -> CpuStepper | CudaStepper | SpanStepper:
        if config.task == CONTEXT:
            return SpanStepper(self._encoder, self.device)
        if self.device.type == "cpu":
            return CpuStepper(self._encoder)
        max_positions = self.limits.max_positions
        attention = self._encoder.attention
        table = BucketTable(
            max_tokens=config.graph_max_tokens or self.token_budget,
            max_sequences=config.max_batch_sequences,
            max_seqlen=max_positions,
            by_longest=attention is not None and attention.grid_by_longest,
        )
        capture = config.graph_capture if self._encoder.capturable and self.program == VECTORS else "off"
        graphs: GraphCache[CapturedGraph] = GraphCache(
            table, capture=capture, max_graphs=config.max_graphs, max_bytes=config.graph_memory_mb << 20
        )
        # A pair that is longer than the budget runs alone, and has two texts.
        longest = 2 * max_positions if self.program == PAIRS else max_positions
        max_tokens = max(self.token_budget, longest, table.max_tokens)
        multi = self._heads.facts.multi
        if multi is not None and multi.expansion is not None:  # which the budget does not count
            max_tokens += config.max_batch_sequences * multi.expansion.length
        max_sequences = max(config.max_batch_sequences, 2 if self.program == PAIRS else 1)
        stepper = CudaStepper(self._encoder, self.device, graphs, max_tokens, max_sequences, self._turn)
        if capture != "off":
            self._keeper = GraphKeeper(
                stepper,
                ProfileFile(find_cache_folder(config.cache_dir), *self._identity(config)),
                max_tokens=config.graph_max_tokens,
                start_s=config.graph_start_s,
                busy_share=config.graph_busy_ms / 1e3,
            )
        return stepper

    def _identity(self, config: EngineConfig) -> tuple[str, dict[str, object]]:
        """A readable name, and all that a profile of graphs depends on."""
        attention = self._encoder.attention
        return self.checkpoint.path.name, {
            "checkpoint": self.checkpoint.model,
            "task": config.task,
            "pooling": config.pooling or self.checkpoint.pooling,
            "dtype": config.dtype,
            "attention": attention.describe() if attention is not None else None,
            "device": torch.cuda.get_device_name(self.device),
            "token_budget": self.token_budget,
            "inflection": "launch",  # how that of the profile was measured
            "max_batch_sequences": config.max_batch_sequences,
            "versions": [__version__, torch.__version__, torch.version.cuda],
            "tables": [zlib.crc32(files("lazuli").joinpath(table).read_bytes()) for table in _TABLES],
        }


def _default_budget(device: torch.device) -> int:
    return _CPU_TOKEN_BUDGET if device.type == "cpu" else _GPU_TOKEN_BUDGET
