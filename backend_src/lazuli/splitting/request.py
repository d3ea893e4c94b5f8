"""A request some of whose texts are cut into chunks, and how the vectors of chunks become those of texts.

Takes rows of chunks, and later their vectors in any order from any thread. To the engine each chunk is a sequence like
any other, whose vector comes as the model made it. A text's vector is the mean of those, each counted as often as its
chunk has tokens; then the request of whole texts gets it in the form that it asked the device for.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from lazuli.errors import LazuliError
from lazuli.outputs.finish import Finish, finish
from lazuli.outputs.quantize import Quantizer
from lazuli.request import Part, Request
from lazuli.token_input import ChunkedRows

_VECTORS = "vectors"


class ChunkForm:
    """The vectors of chunks: of full length, not scaled, in float32."""

    finish = Finish(normalize=False).code

    def lay_out(self, token_count: np.ndarray) -> dict[str, np.ndarray]:
        """Never asked for: chunks are not answered by themselves."""
        raise NotImplementedError

    def read(self, rows: np.ndarray, values: np.ndarray) -> dict[str, np.ndarray]:
        """The vectors as they are; whether they are finite shows in their mean."""
        del rows
        return {_VECTORS: values}


class ChunkedRequest(Request):
    """The chunks of a request's texts. Answered by that request."""

    def __init__(self, chunked: ChunkedRows, texts: Request, quantizer: Quantizer) -> None:
        """Cut the rows of a request.

        Args:
            chunked: Its rows, and where their chunks begin.
            texts: The request, which is made of the same rows.
            quantizer: Of the model, on the CPU.
        """
        assert chunked.starts is not None, "without chunks the request itself is to be submitted"
        rows = zip(chunked.rows, chunked.starts, strict=True)
        cut = [[ids[begin:end] for begin, end in pairwise([0, *starts, len(ids)])] for ids, starts in rows]
        super().__init__([chunk for chunks in cut for chunk in chunks], ChunkForm(), _NoSender(texts))
        self._texts = texts
        self._quantizer = quantizer
        self._owners = np.repeat(np.arange(len(cut), dtype=np.int32), [len(chunks) for chunks in cut])
        self._missing = np.array([len(chunks) for chunks in cut])
        self._sums: dict[int, np.ndarray] = {}

    @property
    def done(self) -> bool:
        """Whether the last word was sent."""
        return self._done or self._texts.done

    def fail_if_cancelled(self) -> bool:
        """See `Request`."""
        return self._texts.fail_if_cancelled()

    def prepare(self) -> None:
        """Prepare the answer of the texts."""
        self._texts.prepare()

    def _answer(self, rows: np.ndarray, outputs: Mapping[str, np.ndarray]) -> None:
        complete = []
        for chunk, vector in zip(rows.tolist(), outputs[_VECTORS], strict=True):
            text = int(self._owners[chunk])
            # In float64, so that it does not show in which order the chunks came.
            self._sums[text] = self._sums.get(text, 0.0) + len(self.sequences[chunk]) * vector.astype(np.float64)
            self._missing[text] -= 1
            if not self._missing[text]:
                complete.append(text)
        if complete:
            complete.sort()
            self._texts.deliver(
                np.array(complete, dtype=np.int32), self._finish([self._mean(text) for text in complete])
            )

    def _mean(self, text: int) -> np.ndarray:
        mean: np.ndarray = (self._sums.pop(text) / len(self._texts.sequences[text])).astype(np.float32)
        return mean

    def _finish(self, vectors: list[np.ndarray]) -> np.ndarray:
        """As the device would have done it."""
        codes = torch.full((len(vectors),), self._texts.finish, dtype=torch.int32)
        finished: np.ndarray = finish(torch.from_numpy(np.stack(vectors)), codes, self._quantizer).numpy()
        return finished


class _NoSender:
    """Tells the request of texts when its chunks fail; that has a sender of its own for all else."""

    def __init__(self, texts: Request) -> None:
        self._texts = texts

    def prepare(self, part: Part) -> None:
        raise NotImplementedError

    def send(self, part: Part, *, final: bool) -> Any:
        raise NotImplementedError

    def send_error(self, error: LazuliError) -> None:
        self._texts.fail(error)

    def is_cancelled(self) -> bool:
        raise NotImplementedError
