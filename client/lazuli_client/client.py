"""The synchronous client.

Takes texts or token lists, returns numpy. Only decides what runs in which thread and when to sleep; requests,
retries, messages and the books of a stream are made by modules that `aio.py` shares.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self

from lazuli_client.context import as_documents, by_document, context_requests, located
from lazuli_client.dispatcher import Dispatcher
from lazuli_client.embeddings import Embeddings, Part
from lazuli_client.errors import LazuliError
from lazuli_client.health import Health, Task, probe
from lazuli_client.ledger import Ledger
from lazuli_client.options import EmbedOptions
from lazuli_client.reading import EMBEDDINGS
from lazuli_client.request import text_requests, token_requests
from lazuli_client.retry import DEFAULT_RETRIES
from lazuli_client.settings import Protocol, Settings
from lazuli_client.splitting import Chunk, Splitter, split
from lazuli_client.task_calls import TaskCalls
from lazuli_client.texts import Texts, TokenLists, as_text, check_stream
from lazuli_client.tls import Tls
from lazuli_client.transport import Transport, connect, no_streams_over_http


class LazuliClient(TaskCalls):
    """Embeds texts on a Lazuli server. Use it as a context manager; threads, and over HTTP forks, may share it.

        with LazuliClient() as client:
            client.embed(["one text", "another"]).embeddings      # float32 [2, D]

    Args:
        url: host:port; by default localhost, port 8001 for gRPC and 8000 for HTTP.
        protocol: `grpc` or `http`.
        timeout_s: Limit of one request with its retries, at least 0.1; shortly before it the server drops what it has
            not begun (`deadline_ms`). In a stream, limit of the wait for the next answer, and nothing is dropped.
        retries: Attempts after the first one when the server is overloaded or unreachable; 24 span about half a minute.
        max_in_flight: Requests of one call under way at once.
        rows_per_request: Texts in one request at most; not above 1024, the server's limit.
        chars_per_request: Characters (`embed_tokens`: tokens) in one request at most; a longer text goes alone.
        model: The model for texts: the name under which one was added, or by default `embed`, and for their tasks
            `rerank` and `classify`.
        token_model: The model for token lists; by default the one that belongs to `model`.
        stream_model: The decoupled model for `embed_iter`; likewise.
        workload: `query`: somebody waits for each answer; `bulk`: nobody does, so queries go first. By default the
            server tells by the size of each request.
        tls: Encrypts; `Tls()`, or `grpcs://` or `https://` before the address, where the certificate is a public one.
        transport: In place of the one that `protocol` names; closed with the client.

    Raises:
        ValueError: If a setting is out of range.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        protocol: Protocol = "grpc",
        timeout_s: float = 60.0,
        retries: int = DEFAULT_RETRIES,
        max_in_flight: int = 4,
        rows_per_request: int = 64,
        chars_per_request: int = 200_000,
        model: str = "embed",
        token_model: str = "",
        stream_model: str = "",
        workload: str | None = None,
        tls: Tls | None = None,
        transport: Transport | None = None,
    ) -> None:
        self._settings = Settings(
            url=url,
            protocol=protocol,
            timeout_s=timeout_s,
            retries=retries,
            max_in_flight=max_in_flight,
            rows_per_request=rows_per_request,
            chars_per_request=chars_per_request,
            model=model,
            token_model=token_model,
            stream_model=stream_model,
            workload=workload,
            tls=tls,
        )
        self._dispatcher = Dispatcher(self._settings, transport or connect(self._settings))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; calls that are under way end with `ClosedError`."""
        self._dispatcher.close()

    def embed(
        self,
        texts: Texts,
        *,
        prompt_name: str | None = None,
        instruction: str | None = None,
        truncate: str | None = None,
        dimensions: int | None = None,
        normalize: bool | None = None,
        input_type: str | None = None,
        overlap: int | None = None,
        output: str | Sequence[str] | None = None,
        force_dimensions: bool | None = None,
    ) -> Embeddings:
        """Embed a text or many; the order is kept. `EmbedOptions` describes the options.

        Raises:
            InvalidInputError: If there is no text, or one cannot be embedded; `row` tells which.
            LazuliError: One of the others of `errors.py`.
        """
        options = EmbedOptions(
            prompt_name, instruction, truncate, dimensions, normalize, input_type, overlap, output, force_dimensions
        )
        return self._dispatcher.gather(text_requests(self._settings, [texts], options), EMBEDDINGS)

    def embed_batches(
        self, batches: Iterable[Texts], options: EmbedOptions | None = None, *, first_row: int = 0
    ) -> Iterator[Embeddings]:
        """Embed batch after batch, in order, with requests of the next batches under way meanwhile.

        Args:
            batches: Read as far ahead as requests may wait, in the caller's thread; may be unbounded.
            options: Of all batches.
            first_row: Row number of the first text, for error messages.

        Yields: One `Embeddings` a batch.
        """
        return self._dispatcher.run(
            text_requests(self._settings, batches, options or EmbedOptions(), first_row), EMBEDDINGS
        )

    def embed_tokens(
        self,
        input_ids: TokenLists,
        *,
        dimensions: int | None = None,
        normalize: bool | None = None,
        output: str | Sequence[str] | None = None,
        force_dimensions: bool | None = None,
    ) -> Embeddings:
        """Embed token ids of any lengths, special tokens included; nothing is added or cut.

        Raises:
            InvalidInputError: If there is no row, or one cannot be embedded; `row` tells which.
            LazuliError: One of the others of `errors.py`.
        """
        options = EmbedOptions(
            dimensions=dimensions, normalize=normalize, output=output, force_dimensions=force_dimensions
        )
        return self._dispatcher.gather(token_requests(self._settings, input_ids, options), EMBEDDINGS)

    def embed_context(
        self,
        documents: Sequence[Texts],
        *,
        prompt_name: str | None = None,
        instruction: str | None = None,
        dimensions: int | None = None,
        normalize: bool | None = None,
        input_type: str | None = None,
        output: str | Sequence[str] | None = None,
        force_dimensions: bool | None = None,
    ) -> list[Embeddings]:
        """Embed the chunks of documents, each read with the rest of its document; needs a model for that task.

        Each document is a sequence of chunks. Options as of `embed`; a prompt stands once before each document.

        Returns: For each document the vectors of its chunks.

        Raises:
            InvalidInputError: If a document or a chunk cannot be embedded; `row` counts the chunks of all documents.
            LazuliError: One of the others of `errors.py`.
        """
        options = EmbedOptions(
            prompt_name, instruction, None, dimensions, normalize, input_type, None, output, force_dimensions
        )
        checked = as_documents(documents)
        try:
            return by_document(
                self._dispatcher.gather(context_requests(self._settings, checked, options), EMBEDDINGS), checked
            )
        except LazuliError as error:
            raise located(error, checked) from error

    def embed_iter(
        self,
        texts: Iterable[str],
        *,
        prompt_name: str | None = None,
        instruction: str | None = None,
        truncate: str | None = None,
        dimensions: int | None = None,
        normalize: bool | None = None,
        input_type: str | None = None,
        overlap: int | None = None,
        output: str | Sequence[str] | None = None,
        force_dimensions: bool | None = None,
    ) -> Iterator[Part]:
        """Embed a stream of texts; yields parts as the server finishes them, each row exactly once.

        In any order. `texts` may be unbounded. It is read in the caller's thread, as far as requests may be in flight,
        so a slow source needs a small `rows_per_request`. Stopping early cancels the rest.

        Raises:
            UnsupportedError: Over HTTP.
            LazuliError: What failed, with the rows of the failed request.
        """
        check_stream(texts)
        options = EmbedOptions(
            prompt_name, instruction, truncate, dimensions, normalize, input_type, overlap, output, force_dimensions
        )
        if not self._dispatcher.transport.has_streams:
            raise no_streams_over_http()
        splitter: Splitter[str] = Splitter(self._settings.rows_per_request, self._settings.chars_per_request)
        chunks = split(((text, len(as_text(text, row))) for row, text in enumerate(texts)), splitter)
        return self._stream(chunks, Ledger(self._settings, options.parameters()))

    def health(self, task: Task = "embed") -> Health:
        """Whether the client's model for a task, or the usual one, answers one short text, without retries."""
        request, reading = probe(self._settings, task)
        start = time.monotonic()
        try:
            self._dispatcher.submit(request, reading, retries=False).result()
        except LazuliError as error:
            return Health(time.monotonic() - start, error)
        return Health(time.monotonic() - start)

    def _stream(self, chunks: Iterator[Chunk[str]], ledger: Ledger) -> Iterator[Part]:
        stream = self._dispatcher.transport.open_stream()
        try:
            while True:
                for item in ledger.due(chunks):
                    time.sleep(item.delay_s)
                    stream.send(item.request_id, item.request)
                if ledger.is_idle:
                    return
                try:
                    answer = stream.receive(self._settings.timeout_s)
                except LazuliError as error:
                    self._dispatcher.check_open(error)
                    stream.close()
                    ledger.broken(error)
                    stream = self._dispatcher.transport.open_stream()
                    continue
                if (part := ledger.take(answer)) is not None:
                    yield part
        finally:
            stream.close()
