"""The calls for scores and labels, of both clients.

Takes texts, returns records; requests, sending and reading are left to the modules that know them.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

from lazuli_client.aio_dispatcher import AsyncDispatcher
from lazuli_client.dispatcher import Dispatcher
from lazuli_client.errors import InputTypeError
from lazuli_client.labels import LABELS, Labels
from lazuli_client.ranking import SCORES, Ranking, check_top_k, rank
from lazuli_client.settings import Settings
from lazuli_client.task_options import ClassifyOptions, RerankOptions
from lazuli_client.task_requests import classify_requests, rerank_requests
from lazuli_client.texts import Texts, as_text, as_texts


class TaskCalls:
    """Base of `LazuliClient`."""

    _settings: Settings
    _dispatcher: Dispatcher

    def rerank(
        self,
        query: str,
        documents: Texts,
        *,
        top_k: int | None = None,
        return_documents: bool = False,
        instruction: str | None = None,
        truncate: str | None = None,
        activation: str | None = None,
        method: str | None = None,
        weights: Sequence[float] | None = None,
    ) -> Ranking:
        """Order documents by how well they answer a query; the model is `rerank` unless the client was told another.

        Args:
            query: The query.
            documents: A text or many.
            top_k: How many of the best; None for all.
            return_documents: Whether the answer holds the texts.
            instruction: What makes a document relevant, for models that read it.
            truncate: As `RerankOptions` describes it, like the others.
            activation: `sigmoid` or `none`.
            method: For models that read query and document each by itself.
            weights: For the method `hybrid`.

        Raises:
            InvalidInputError: If there is no document, or one cannot be scored; `row` tells which.
            LazuliError: One of the others of `errors.py`.
        """
        options = RerankOptions(instruction, truncate, activation, method, weights)
        checked = _check(query, documents, top_k)
        scores = self._dispatcher.gather(rerank_requests(self._settings, query, checked, options), SCORES)
        return rank(scores, checked, top_k, return_documents)

    def classify(
        self,
        texts: Texts,
        *,
        truncate: str | None = None,
        prompt_name: str | None = None,
        instruction: str | None = None,
        input_type: str | None = None,
    ) -> Labels:
        """Label a text or many; the model is `classify` unless the client was told another.

        `ClassifyOptions` describes the options.

        Raises:
            InvalidInputError: If there is no text, or one cannot be labelled; `row` tells which.
            LazuliError: One of the others of `errors.py`.
        """
        options = ClassifyOptions(truncate, prompt_name, instruction, input_type)
        return self._dispatcher.gather(classify_requests(self._settings, [texts], options), LABELS)

    def classify_batches(
        self, batches: Iterable[Texts], options: ClassifyOptions | None = None, *, first_row: int = 0
    ) -> Iterator[Labels]:
        """Label batch after batch, in order, as `embed_batches` does."""
        requests = classify_requests(self._settings, batches, options or ClassifyOptions(), first_row)
        return self._dispatcher.run(requests, LABELS)


class AsyncTaskCalls:
    """Base of `AsyncLazuliClient`."""

    _settings: Settings
    _dispatcher: AsyncDispatcher

    async def rerank(
        self,
        query: str,
        documents: Texts,
        *,
        top_k: int | None = None,
        return_documents: bool = False,
        instruction: str | None = None,
        truncate: str | None = None,
        activation: str | None = None,
        method: str | None = None,
        weights: Sequence[float] | None = None,
    ) -> Ranking:
        """Order documents by how well they answer a query; as `LazuliClient.rerank`."""
        options = RerankOptions(instruction, truncate, activation, method, weights)
        checked = _check(query, documents, top_k)
        requests = rerank_requests(self._settings, query, checked, options)
        return rank(await anext(self._dispatcher.run(requests, SCORES)), checked, top_k, return_documents)

    async def classify(
        self,
        texts: Texts,
        *,
        truncate: str | None = None,
        prompt_name: str | None = None,
        instruction: str | None = None,
        input_type: str | None = None,
    ) -> Labels:
        """Label a text or many; as `LazuliClient.classify`."""
        options = ClassifyOptions(truncate, prompt_name, instruction, input_type)
        return await anext(self.classify_batches([texts], options))

    def classify_batches(
        self, batches: Iterable[Texts], options: ClassifyOptions | None = None, *, first_row: int = 0
    ) -> AsyncIterator[Labels]:
        """Label batch after batch, in order; as `LazuliClient.classify_batches`."""
        requests = classify_requests(self._settings, batches, options or ClassifyOptions(), first_row)
        return self._dispatcher.run(requests, LABELS)


def _check(query: str, documents: Texts, top_k: int | None) -> list[str]:
    """The documents as a list; raises if anything is wrong with the arguments."""
    check_top_k(top_k)
    if not isinstance(query, str):
        raise InputTypeError(f"query: must be a string, got {type(query).__name__}")
    as_text(query, 0, "query")
    return as_texts(documents, name="document")
