"""Cuts the texts of a request into requests for the servers, by tokens.

Takes checked texts, yields `EmbedRequest` objects. Tokenises here if the model's tokenizer is here; long work is done
in slices, so that small requests need not wait for it.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from lazuli_client.gateway.replicas.call import Call
from lazuli_client.options import EmbedOptions
from lazuli_client.request import EmbedRequest
from lazuli_client.settings import Settings
from lazuli_client.splitting import Splitter

if TYPE_CHECKING:
    from lazuli_client.gateway.work.tokens import LocalTokenizer, TokenizedText

# Texts and characters that are tokenised at a time: about a millisecond.
_SLICE_TEXTS, _SLICE_CHARS = 64, 16_384


async def tokenized_requests(
    tokenizer: "LocalTokenizer",
    settings: Settings,
    texts: Sequence[str],
    options: EmbedOptions,
    chunk_tokens: int,
    call: Call,
) -> AsyncIterator[EmbedRequest]:
    """Requests for the ids of texts, each of at most so many tokens, or of one text.

    Raises:
        InvalidInputError: If a text cannot be tokenised as asked.
    """
    parameters = options.parameters()
    splitter: Splitter[TokenizedText] = Splitter(settings.rows_per_request, chunk_tokens)
    async for done in _tokenized(tokenizer, texts, options, call):
        for chunk in (chunk for text in done for chunk in splitter.add(text, len(text.input_ids))):
            ends = chunk.rows.stop == len(texts)
            yield tokenizer.request(settings.token_model, chunk.items, parameters, chunk.rows, ends)
    for chunk in splitter.flush():
        yield tokenizer.request(settings.token_model, chunk.items, parameters, chunk.rows, ends_batch=True)


async def _tokenized(
    tokenizer: "LocalTokenizer", texts: Sequence[str], options: EmbedOptions, call: Call
) -> "AsyncIterator[list[TokenizedText]]":
    """The texts in slices; few of them are one."""
    slices: Splitter[str] = Splitter(_SLICE_TEXTS, _SLICE_CHARS)
    for number, text in enumerate(texts, 1):
        full = slices.add(text, len(text))
        for one in [*full, *(slices.flush() if number == len(texts) else ())]:
            with call.timings.stage("tokenize"):
                done = tokenizer.tokenize(one.items, options, one.rows)
            yield done
            if number < len(texts):
                await asyncio.sleep(0)
