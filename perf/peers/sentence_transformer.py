"""sentence-transformers in process, used as its documentation says.

Its model serves one thread at a time: clients wait for each other.
"""

import contextlib
import threading
from collections.abc import Iterator

from peers.contract import Answer, Peer
from peers.local import LocalEndpoint
from peers.packages import installed_version
from peers.spec import Settings, TargetSpec
from texts.rows import Rows

_PACKAGE = "sentence-transformers"


@contextlib.contextmanager
def open_peer(spec: TargetSpec, settings: Settings) -> Iterator[Peer]:
    """A target of this kind; `dtype` (float32 unless set), `device` and `batch` (32) are its options."""
    spec.check_options("dtype", "device", "batch")
    dtype = spec.options.get("dtype", settings.dtype or "float32")
    device = spec.options.get("device", settings.device)
    batch = int(spec.options.get("batch", "32"))
    arguments = (settings.checkpoint, device, dtype, settings.max_seq_length, batch)
    endpoint = LocalEndpoint(SentenceTransformersModel, arguments)
    yield Peer(f"{_PACKAGE} {installed_version(_PACKAGE)}", endpoint, None, dtype, in_process=True)


class SentenceTransformersModel:
    """`SentenceTransformer.encode`."""

    def __init__(self, checkpoint: str, device: str | None, dtype: str, max_seq_length: int | None, batch: int) -> None:
        """Load it."""
        # Here, as torch is of no use to the process that only asks for this.
        import torch
        from sentence_transformers import SentenceTransformer

        from lazuli.checkpoint import load_checkpoint

        found = load_checkpoint(checkpoint)
        self._batch = batch
        self._lock = threading.Lock()
        self._model = SentenceTransformer(str(found.path), device=device, model_kwargs={"dtype": getattr(torch, dtype)})
        self._model.max_seq_length = max_seq_length or found.max_seq_length

    def embed(self, rows: Rows) -> Answer:
        """Sorts by length and pads batches."""
        with self._lock:
            vectors = self._model.encode(rows.texts, batch_size=self._batch, show_progress_bar=False)
        return Answer(vectors.astype("float32", copy=False))

    def close(self) -> None:
        """It has no threads of its own."""
