"""The service for vectors of chunks that are read together with the rest of their documents.

Takes unchecked token arrays with a `Sender`; answers come later, from other threads. Knows nothing of Triton.
"""

from typing import Any

import numpy as np

from lazuli.context.input import read_documents
from lazuli.context.options import ContextOptions
from lazuli.context.request import ContextRequest
from lazuli.heads.task import CONTEXT
from lazuli.request import Sender
from lazuli.service import EngineService


class ContextService(EngineService):
    """Vectors of chunks."""

    task = CONTEXT

    def submit(
        self,
        input_ids: np.ndarray,
        attention_mask: np.ndarray,
        document: np.ndarray,
        options: ContextOptions,
        sender: Sender,
        **more: Any,
    ) -> None:
        """Queue one request. The answer goes to `sender`.

        Args:
            input_ids: [N, S] int32, a chunk a row.
            attention_mask: [N, S] int8; see `lazuli.context.input`.
            document: [N, 1] int32; equal for the chunks of a document.
            options: Of these, `output`, `dimensions`, `force_dimensions` and `normalize` count here.
            sender: Gets the answer, perhaps before this returns; not called if it raises.
            more: `may_step`, `may_wait` and `trace` of `_queue`.

        Raises:
            InputError: If the arrays or the options are unusable.
            OverloadedError: If too much waits already.
            ShuttingDownError: If the service is closed.
        """
        form = self.engine.dense_model.choose(options)
        documents = read_documents(input_ids, attention_mask, document, self.engine.limits)
        chunks = self._request_type([ids for one in documents for ids in one.chunks], form, sender)
        self._queue(ContextRequest(documents, chunks), options, **more)
