"""Where the time of one request at concurrency 1 goes, part by part.

Takes a running server and what engine and tokenizer need alone; returns parts with their samples. Each says how it was
had: timed as it is, from Triton's timestamps of the same requests, or as a difference of medians.
"""

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tokenizers

from breakdown.alone import Alone, Samples, timed
from breakdown.triton_trace import Intervals, read_trace
from clients.senders import Sender, connect, embed_request
from lazuli_client.request import EmbedRequest, text_request, token_request

_TRACED = "Triton's timestamps"
_DIFFERENCE = "difference of medians"


@dataclass(frozen=True)
class Part:
    """One part, or a sum that parts are of.

    Attributes:
        name: What takes the time.
        how: How that is known.
        samples_ms: Of each request; a difference of medians is a single one.
    """

    name: str
    how: str
    samples_ms: Samples


def measure_parts(
    protocol: str,
    address: str,
    length: int,
    texts: Sequence[str],
    tokenizer: tokenizers.Tokenizer,
    alone: Alone,
    repeats: int,
    trace: Callable[[], AbstractContextManager[Path]] | None,
) -> list[Part]:
    """Measure one protocol and one length.

    Args:
        protocol: `grpc` or `http`.
        address: host:port.
        length: Tokens of each of `texts`, used in turn.
        texts: Several.
        tokenizer: To make their ids.
        alone: The measurements without the server.
        repeats: Requests of each kind.
        trace: Makes a block within which Triton writes its timestamps to a file; None if that cannot be had.
    """
    ids = [np.array(tokenizer.encode(text).ids, dtype=np.int32) for text in texts]
    whole = [embed_request([text]) for text in texts]
    first = [text_request("tokenizer", [text], {}, [0]) for text in texts]
    second = [token_request("embedding", [row], {}, [0]) for row in ids]
    with contextlib.closing(connect(protocol, address)) as sender:
        ping = timed(lambda number: sender.ping(), repeats)
        total, tokenizer_step, embedding_step = (_sent(sender, kind, repeats) for kind in (whole, first, second))
        client = _client_work(sender, whole, repeats)
        intervals, traced_total = _traced(sender, whole, repeats, trace) if trace else ([], [])
    engine, service, tokenise = (kind[length] for kind in (alone.engine, alone.service, alone.tokenizer))
    parts = [
        Part("request to embed", "timed at the client", total),
        Part("the engine alone", "timed in process", engine),
        _difference("added by the server", [total], [engine]),
        Part("client: message made and read", "timed in process", client),
        Part("client, network and front without a model", "health, timed at the client", ping),
        Part("tokenising", "timed in process", tokenise),
        _difference("scheduler, runner and reply threads", [service], [engine]),
        _difference("tokenizer step: queue, IPC, tokenising", [tokenizer_step], [ping]),
        _difference("embedding step: queue, IPC, engine, reply", [embedding_step], [ping]),
        _difference("ensemble: both steps at once against each alone", [total, ping], [tokenizer_step, embedding_step]),
    ]
    return parts + (_traced_parts(intervals, traced_total, engine, tokenise) if intervals else [])


def _traced_parts(intervals: list[Intervals], total: Samples, engine: Samples, tokenise: Samples) -> list[Part]:
    """Parts that add up to the request, but for the medians."""

    def sums(*names: str) -> Samples:
        return [sum(getattr(request, name) for name in names) for request in intervals]

    outside = [whole - request.total for whole, request in zip(total, intervals, strict=True)]
    tokenizer, embedding = sums("tokenizer"), sums("embedding_accept", "embedding")
    return [
        Part("traced: request to embed", "timed at the client while traced", total),
        Part("traced: client and network", "the request less what Triton saw of it", outside),
        Part("traced: front, in", _TRACED, sums("front_in")),
        Part("traced: ensemble", f"{_TRACED}, both steps", sums("to_tokenizer", "to_embedding")),
        Part("traced: queues", f"{_TRACED}, both steps", sums("tokenizer_queue", "embedding_queue")),
        Part("traced: tokenizer, IPC and tokenising", _TRACED, tokenizer),
        _difference("traced: IPC of the tokenizer", [tokenizer], [tokenise]),
        Part("traced: embedding, IPC in until queued", _TRACED, sums("embedding_accept")),
        Part("traced: embedding, IPC, engine and reply", _TRACED, embedding),
        _difference("traced: IPC, threads and reply of the embedding", [embedding], [engine]),
        Part("traced: front, out", _TRACED, sums("front_out")),
    ]


def _difference(name: str, plus: list[Samples], minus: list[Samples]) -> Part:
    value = sum(map(np.median, plus)) - sum(map(np.median, minus))
    return Part(name, _DIFFERENCE, [float(value)])


def _sent(sender: Sender, requests: Sequence[EmbedRequest], repeats: int) -> Samples:
    prepared = [sender.prepare(request) for request in requests]
    return timed(lambda number: sender.send(prepared[number % len(prepared)]), repeats)


def _client_work(sender: Sender, requests: Sequence[EmbedRequest], repeats: int) -> Samples:
    work = [sender.replay(request) for request in requests]
    return timed(lambda number: work[number % len(work)](), repeats)


def _traced(
    sender: Sender,
    requests: Sequence[EmbedRequest],
    repeats: int,
    trace: Callable[[], AbstractContextManager[Path]],
) -> tuple[list[Intervals], Samples]:
    """Triton's timestamps and the client's times of the same requests."""
    with trace() as file:
        total = _sent(sender, requests, repeats)
    intervals = read_trace(file)[-repeats:]
    if len(intervals) != repeats:
        raise RuntimeError(f"{file} has {len(intervals)} of {repeats} requests")
    return intervals, total
