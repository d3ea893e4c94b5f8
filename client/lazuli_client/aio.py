"""The asyncio client.

Takes texts or token lists, returns numpy, as `client.py` does. Only decides what is awaited when; requests,
retries, messages and the books of a stream are made by the modules that both share.
"""

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from types import TracebackType
from typing import Self

from lazuli_client.aio_dispatcher import AsyncDispatcher, as_async
from lazuli_client.context import as_documents, by_document, context_requests, located
from lazuli_client.embeddings import Embeddings, Part
from lazuli_client.errors import LazuliError
from lazuli_client.health import Health, Task, probe
from lazuli_client.ledger import Ledger, StreamRequest
from lazuli_client.options import EmbedOptions
from lazuli_client.reading import EMBEDDINGS
from lazuli_client.request import text_requests, token_requests
from lazuli_client.retry import DEFAULT_RETRIES
from lazuli_client.settings import Protocol, Settings
from lazuli_client.splitting import Chunk, Splitter
from lazuli_client.task_calls import AsyncTaskCalls
from lazuli_client.texts import Texts, TokenLists, as_text, check_stream
from lazuli_client.tls import Tls
from lazuli_client.transport import AsyncTransport, no_streams_over_http


class AsyncLazuliClient(AsyncTaskCalls):
    """Embeds texts on a Lazuli server from asyncio.

    Use it as an asynchronous context manager, in one event loop.

        async with AsyncLazuliClient() as client:
            (await client.embed(["one text", "another"])).embeddings      # float32 [2, D]

    The arguments are those of `LazuliClient`, but `transport` is an `AsyncTransport`, and `max_in_flight`
    holds for all calls of the client together.

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
        transport: AsyncTransport | None = None,
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
        self._dispatcher = AsyncDispatcher(self._settings, transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; calls that are under way end with `ClosedError`."""
        await self._dispatcher.close()

    async def embed(
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
        """Embed a text or many; as `LazuliClient.embed`."""
        options = EmbedOptions(
            prompt_name, instruction, truncate, dimensions, normalize, input_type, overlap, output, force_dimensions
        )
        return await anext(self.embed_batches([texts], options))

    def embed_batches(
        self, batches: Iterable[Texts], options: EmbedOptions | None = None, *, first_row: int = 0
    ) -> AsyncIterator[Embeddings]:
        """Embed batch after batch, in order; as `LazuliClient.embed_batches`."""
        return self._dispatcher.run(
            text_requests(self._settings, batches, options or EmbedOptions(), first_row), EMBEDDINGS
        )

    async def embed_tokens(
        self,
        input_ids: TokenLists,
        *,
        dimensions: int | None = None,
        normalize: bool | None = None,
        output: str | Sequence[str] | None = None,
        force_dimensions: bool | None = None,
    ) -> Embeddings:
        """Embed token ids; as `LazuliClient.embed_tokens`."""
        options = EmbedOptions(
            dimensions=dimensions, normalize=normalize, output=output, force_dimensions=force_dimensions
        )
        return await anext(self._dispatcher.run(token_requests(self._settings, input_ids, options), EMBEDDINGS))

    async def embed_context(
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
        """Embed the chunks of documents; as `LazuliClient.embed_context`."""
        options = EmbedOptions(
            prompt_name, instruction, None, dimensions, normalize, input_type, None, output, force_dimensions
        )
        checked = as_documents(documents)
        try:
            return by_document(
                await anext(self._dispatcher.run(context_requests(self._settings, checked, options), EMBEDDINGS)),
                checked,
            )
        except LazuliError as error:
            raise located(error, checked) from error

    def embed_iter(
        self,
        texts: Iterable[str] | AsyncIterable[str],
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
    ) -> AsyncIterator[Part]:
        """Embed a stream of texts, which may be asynchronous; as `LazuliClient.embed_iter`."""
        check_stream(texts, may_be_async=True)
        options = EmbedOptions(
            prompt_name, instruction, truncate, dimensions, normalize, input_type, overlap, output, force_dimensions
        )
        if not self._dispatcher.transport().has_streams:
            raise no_streams_over_http()
        return self._stream(self._chunks(texts), Ledger(self._settings, options.parameters()))

    async def health(self, task: Task = "embed") -> Health:
        """Whether the client's model for a task, or the usual one, answers one short text, without retries."""
        request, reading = probe(self._settings, task)
        start = time.monotonic()
        try:
            await self._dispatcher.send(request, reading, retries=False)
        except LazuliError as error:
            return Health(time.monotonic() - start, error)
        return Health(time.monotonic() - start)

    async def _chunks(self, texts: Iterable[str] | AsyncIterable[str]) -> AsyncIterator[Chunk[str]]:
        splitter: Splitter[str] = Splitter(self._settings.rows_per_request, self._settings.chars_per_request)
        row = 0
        async for text in as_async(texts):
            for chunk in splitter.add(as_text(text, row), len(text)):
                yield chunk
            row += 1
        for chunk in splitter.flush():
            yield chunk

    async def _stream(self, chunks: AsyncIterator[Chunk[str]], ledger: Ledger) -> AsyncIterator[Part]:
        stream = self._dispatcher.transport().open_stream()
        try:
            while True:
                async for item in _due(ledger, chunks):
                    await asyncio.sleep(item.delay_s)
                    await stream.send(item.request_id, item.request)
                if ledger.is_idle:
                    return
                try:
                    answer = await stream.receive(self._settings.timeout_s)
                except (LazuliError, asyncio.CancelledError) as raised:
                    error = self._dispatcher.failure(raised)
                    await stream.close()
                    ledger.broken(error)
                    stream = self._dispatcher.transport().open_stream()
                    continue
                part = ledger.take(answer)
                if part is not None:
                    yield part
        finally:
            await stream.close()


async def _due(ledger: Ledger, chunks: AsyncIterator[Chunk[str]]) -> AsyncIterator[StreamRequest]:
    """What is to be sent now: first again what failed, then new chunks while there is room."""
    while (again := ledger.resend()) is not None:
        yield again
    while ledger.has_room and (chunk := await anext(chunks, None)) is not None:
        yield ledger.admit(chunk)
