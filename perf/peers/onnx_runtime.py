"""ONNX Runtime in process: the model with pooling and scaling in one graph, on texts that are sorted and padded.

Takes rows; tokenises with Hugging Face's `tokenizers`, cuts batches of 32 as sentence-transformers does. float32 on
the CPU, with as many threads as it chooses. Serves one request at a time: its threads are shared by all anyway.
"""

import contextlib
import importlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from peers.contract import Answer, Peer
from peers.local import LocalEndpoint
from peers.onnx_export import exported_model
from peers.packages import installed_version
from peers.spec import Settings, TargetSpec
from texts.rows import Rows, load_tokenizer


@contextlib.contextmanager
def open_peer(spec: TargetSpec, settings: Settings) -> Iterator[Peer]:
    """A target of this kind; `batch` (32) and `threads` are its options.

    Raises:
        ValueError: If its package is missing.
    """
    spec.check_options("batch", "threads")
    system = f"onnxruntime {installed_version('onnxruntime', 'onnx onnxscript')}"
    from lazuli.checkpoint import resolve_checkpoint

    graph = exported_model(settings.checkpoint)
    tokenizer = resolve_checkpoint(settings.checkpoint) / "tokenizer.json"
    batch, threads = int(spec.options.get("batch", "32")), int(spec.options.get("threads", "0"))
    endpoint = LocalEndpoint(OnnxModel, (str(graph), str(tokenizer), batch, threads))
    yield Peer(system, endpoint, None, "float32", in_process=True, takes_ids=True)


class OnnxModel:
    """A session and a tokenizer."""

    def __init__(self, graph: str, tokenizer: str, batch: int, threads: int) -> None:
        """Load both."""
        onnxruntime: Any = importlib.import_module("onnxruntime")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads  # 0: one a core
        self._session: Any = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        self._tokenizer = load_tokenizer(str(Path(tokenizer)))
        self._batch = batch
        self._lock = threading.Lock()

    def embed(self, rows: Rows) -> Answer:
        """The longest first, as sentence-transformers has them."""
        ids = rows.ids
        if ids is None:
            ids = [np.array(text.ids, np.int64) for text in self._tokenizer.encode_batch(rows.texts)]
        order = sorted(range(len(ids)), key=lambda row: -len(ids[row]))
        parts = [order[start : start + self._batch] for start in range(0, len(order), self._batch)]
        with self._lock:
            answers = [self._run([ids[row] for row in part]) for part in parts]
        vectors = np.empty((len(ids), answers[0].shape[1]), np.float32)
        vectors[order] = np.concatenate(answers)
        return Answer(vectors, sum(map(len, ids)))

    def close(self) -> None:
        """The session ends with the process."""

    def _run(self, ids: list[np.ndarray]) -> np.ndarray:
        width = max(map(len, ids))
        padded, mask = np.zeros((len(ids), width), np.int64), np.zeros((len(ids), width), np.int64)
        for row, values in enumerate(ids):
            padded[row, : len(values)] = values
            mask[row, : len(values)] = 1
        vectors: np.ndarray = self._session.run(None, {"input_ids": padded, "attention_mask": mask})[0]
        return vectors
