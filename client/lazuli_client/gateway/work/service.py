"""What the gateway does for every API: vectors, scores and labels of checked texts.

Takes a model, texts and options, returns the client's records. Does not know HTTP.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from typing import TypeVar

from lazuli_client.aio_dispatcher import AsyncDispatcher, as_async
from lazuli_client.embeddings import Embeddings
from lazuli_client.gateway.replicas.call import Call
from lazuli_client.gateway.replicas.pool import Pool
from lazuli_client.gateway.replicas.transport import PoolTransport
from lazuli_client.gateway.settings import GatewaySettings
from lazuli_client.gateway.work.models import ServedModel
from lazuli_client.gateway.work.requests import tokenized_requests
from lazuli_client.labels import LABELS, Labels
from lazuli_client.options import EmbedOptions
from lazuli_client.ranking import SCORES, Scores
from lazuli_client.reading import EMBEDDINGS, Answer, Reading
from lazuli_client.request import EmbedRequest, text_requests, token_requests
from lazuli_client.settings import Settings
from lazuli_client.task_options import ClassifyOptions, RerankOptions
from lazuli_client.task_requests import classify_requests, rerank_requests

Counted = TypeVar("Counted", Embeddings, Scores, Labels)
Requests = Iterator[EmbedRequest] | AsyncIterator[EmbedRequest]


class Service:
    """The servers, and how large requests are cut for them."""

    def __init__(self, settings: GatewaySettings, pool: Pool) -> None:
        self._settings = settings
        self._pool = pool

    async def embed(
        self, model: ServedModel, texts: Sequence[str], options: EmbedOptions, call: Call, workload: str | None = None
    ) -> Embeddings:
        """Vectors of N texts.

        Raises:
            LazuliError: With rows of `texts`.
        """
        size = _bytes(texts)
        settings = self._cut(model, _chars(texts), size, call, workload)
        if model.tokenizer is not None:
            tokens = self._settings.chunk_tokens
            requests: Requests = tokenized_requests(model.tokenizer, settings, texts, options, tokens, call)
        else:
            requests = text_requests(settings, [texts], options)
        answer = await self._run(model, settings, requests, EMBEDDINGS, call)
        return self._counted(model, size, answer, call)

    async def embed_tokens(
        self, model: ServedModel, rows: Sequence[Sequence[int]], options: EmbedOptions, call: Call, workload: str | None
    ) -> Embeddings:
        """Vectors of N rows of token ids."""
        tokens = sum(map(len, rows))
        chunk_tokens = self._settings.chunk_tokens if tokens > self._settings.chunk_tokens else None
        settings = model.settings_for(self._workload(tokens, call, workload), chunk_tokens)
        answer = await self._run(model, settings, token_requests(settings, rows, options), EMBEDDINGS, call)
        return self._counted(model, 0, answer, call)

    async def score(
        self, model: ServedModel, query: str, documents: Sequence[str], options: RerankOptions, call: Call
    ) -> Scores:
        """Scores of N documents."""
        size = _bytes(documents) + len(query.encode()) * len(documents)
        settings = self._cut(model, _chars(documents) + len(query) * len(documents), size, call, None)
        requests = rerank_requests(settings, query, documents, options)
        answer = await self._run(model, settings, requests, SCORES, call)
        return self._counted(model, size, answer, call)

    async def classify(self, model: ServedModel, texts: Sequence[str], options: ClassifyOptions, call: Call) -> Labels:
        """Labels of N texts."""
        size = _bytes(texts)
        settings = self._cut(model, _chars(texts), size, call, None)
        answer = await self._run(model, settings, classify_requests(settings, [texts], options), LABELS, call)
        return self._counted(model, size, answer, call)

    def _cut(self, model: ServedModel, chars: int, size: int, call: Call, workload: str | None) -> Settings:
        """The settings that cut texts of so many characters and bytes into chunks of `chunk_tokens`."""
        tokens = model.estimate.tokens_of_bytes(size)
        workload = self._workload(tokens, call, workload)
        if tokens <= self._settings.chunk_tokens:
            return model.settings_for(workload)
        return model.settings_for(workload, max(1, chars * self._settings.chunk_tokens // tokens))

    def _workload(self, tokens: int, call: Call, workload: str | None) -> str | None:
        call.is_bulk = workload == "bulk" or (workload is None and tokens > self._settings.query_tokens)
        return workload or ("bulk" if call.is_bulk else None)

    async def _run(
        self, model: ServedModel, settings: Settings, requests: Requests, reading: Reading[Answer], call: Call
    ) -> Answer:
        transport = PoolTransport(self._pool, model.name, call, model.estimate.tokens_of, self._settings.queue_s)
        if not call.is_bulk:
            first = await anext(requests) if isinstance(requests, AsyncIterator) else next(requests)
            if first.ends_batch:  # nearly always: spares the tasks and the order that several chunks need
                outputs = await transport.send(settings.mark(first), settings.timeout_s)
                return reading.read(outputs, len(first.rows))
            requests = _again(first, requests)
        async with aclosing(AsyncDispatcher(settings, transport).run(requests, reading)) as answers:
            return await anext(answers)

    def _counted(self, model: ServedModel, size: int, answer: Counted, call: Call) -> Counted:
        tokens = sum(answer.token_counts.tolist())  # of a few numbers quicker than numpy's own
        call.rows += len(answer.token_counts)
        call.tokens += tokens
        if size and not answer.truncated.any():
            model.estimate.learn(size, tokens)
        return answer


async def _again(first: EmbedRequest, others: Requests) -> AsyncIterator[EmbedRequest]:
    yield first
    async for other in as_async(others):
        yield other


def _chars(texts: Sequence[str]) -> int:
    return sum(map(len, texts))


def _bytes(texts: Sequence[str]) -> int:
    return sum(len(text) if text.isascii() else len(text.encode()) for text in texts)
