import asyncio
import itertools

import numpy as np
import pytest

from lazuli_client import (
    AsyncLazuliClient,
    ClosedError,
    ConnectionFailedError,
    InvalidInputError,
    UnavailableError,
    UnsupportedError,
)

TEXTS = [f"text {place}" for place in range(23)]


def client_of(transport, **settings):
    return AsyncLazuliClient(transport=transport, **{"rows_per_request": 4, "max_in_flight": 3, **settings})


def reference(fake, texts):
    return np.stack([fake.vector(text) for text in texts])


async def test_vectors_of_another_type(fake):
    transport = fake.AsyncTransport(fake.Transport())
    expected = (reference(fake, TEXTS) * 100).astype(np.uint8)
    async with client_of(transport) as client:
        result = await client.embed(TEXTS, output="uint8")
        parts = [part async for part in client.embed_iter(TEXTS, output="uint8")]
        await client.embed_tokens([[1]], output="float32", force_dimensions=True)
    assert np.array_equal(result.embeddings, expected)
    assert {part.embeddings.dtype for part in parts} == {np.dtype(np.uint8)}
    assert transport.inner.requests[-1].parameters == {"output": "float32", "force_dimensions": True}


async def test_all_requests_carry_the_workload(fake):
    transport = fake.AsyncTransport(fake.Transport())
    async with client_of(transport, workload="bulk") as client:
        await client.embed(TEXTS)
        [part async for part in client.embed_iter(TEXTS)]
    requests = transport.inner.requests
    assert len(requests) > 6
    assert all(request.parameters == {"workload": "bulk"} for request in requests)


def failing(error, times):
    seen = {}

    def hook(request):
        texts = tuple(request.tensors["text"][:, 0])
        seen[texts] = seen.get(texts, 0) + 1
        if seen[texts] <= times:
            raise error

    return hook


async def test_order_is_kept_when_answers_come_out_of_order(fake):
    third_answered = asyncio.Event()

    async def first_waits(request):
        if request.rows[0] == 0:
            await third_answered.wait()
        await asyncio.sleep(0)
        if request.rows[0] == 8:
            third_answered.set()

    transport = fake.AsyncTransport(fake.Transport(), first_waits)
    async with client_of(transport) as client:
        result = await client.embed(TEXTS)
    assert np.array_equal(result.embeddings, reference(fake, TEXTS))
    assert transport.most_in_flight == 3
    assert transport.inner.is_closed


async def test_the_bound_holds_for_all_calls_together(fake):
    async def pause(request):
        await asyncio.sleep(0)

    transport = fake.AsyncTransport(fake.Transport(), pause)
    async with client_of(transport) as client:
        results = await asyncio.gather(*(client.embed(TEXTS[place:]) for place in range(8)))
    assert transport.most_in_flight == 3
    for place, result in enumerate(results):
        assert np.array_equal(result.embeddings, reference(fake, TEXTS[place:]))


async def test_an_error_names_the_callers_row_and_the_client_works_on(fake):
    texts = [*TEXTS[:21], "word " * 99, "b"]
    async with client_of(fake.AsyncTransport(fake.Transport())) as client:
        with pytest.raises(InvalidInputError, match=r"^text\[21\]") as caught:
            await client.embed(texts)
        assert caught.value.row == 21
        assert (await client.embed(texts, truncate="end")).truncated.nonzero()[0].tolist() == [21]


async def test_bad_input_never_reaches_the_wire(fake):
    transport = fake.AsyncTransport(fake.Transport())
    async with client_of(transport) as client:
        for bad in ([], ["a", None]):
            with pytest.raises(InvalidInputError):
                await client.embed(bad)
    assert transport.inner.requests == []


async def test_retries(fake, no_sleep):
    async with client_of(fake.AsyncTransport(fake.Transport(failing(UnavailableError("full"), 2)))) as client:
        assert np.array_equal((await client.embed(TEXTS)).embeddings, reference(fake, TEXTS))
    assert len(no_sleep) == 12
    transport = fake.AsyncTransport(fake.Transport(failing(ConnectionFailedError("gone"), 99)))
    async with client_of(transport, retries=1) as client:
        with pytest.raises(ConnectionFailedError):
            await client.embed("one")
    assert len(transport.inner.requests) == 2
    assert transport.inner.deadlines_ms[0] == 59_000
    assert 58_000 < transport.inner.deadlines_ms[1] < 59_000


async def test_a_cancelled_call_leaves_no_task_behind(fake):
    async def forever(request):
        await asyncio.Event().wait()

    transport = fake.AsyncTransport(fake.Transport(), forever)
    async with client_of(transport) as client:
        call = asyncio.create_task(client.embed(TEXTS))
        while transport.in_flight < 3:
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert transport.in_flight == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_batches_and_tokens(fake):
    async with client_of(fake.AsyncTransport(fake.Transport())) as client:
        sizes = [len(batch) async for batch in client.embed_batches([TEXTS[:9], TEXTS[:1], TEXTS[:4]])]
        tokens = await client.embed_tokens([[1, 2, 3], [4]])
    assert sizes == [9, 1, 4]
    assert tokens.embeddings.tolist() == [[6, 3], [4, 1]]


async def test_health(fake):
    async with client_of(fake.AsyncTransport(fake.Transport())) as client:
        assert (await client.health()).is_ready
        assert (await client.health("context")).is_ready
        assert (await client.health("rerank")).is_ready
    async with client_of(fake.AsyncTransport(fake.Transport(failing(UnavailableError("no"), 99)))) as client:
        health = await client.health()
    assert not health.is_ready
    assert str(health.error) == "no"


async def collect(parts, count):
    vectors = np.full((count, 4), np.nan, np.float32)
    async for part in parts:
        assert np.isnan(vectors[part.indices]).all()
        vectors[part.indices] = part.embeddings
    return vectors


async def as_async(texts):
    for text in texts:
        await asyncio.sleep(0)
        yield text


@pytest.mark.parametrize("wrap", [iter, as_async])
@pytest.mark.parametrize("count", [1, 2, 4, 5, 23])
async def test_iter_gives_every_row_once(fake, wrap, count):
    transport = fake.AsyncTransport(fake.Transport())
    async with client_of(transport) as client:
        vectors = await collect(client.embed_iter(wrap(TEXTS[:count])), count)
    assert np.array_equal(vectors, reference(fake, TEXTS[:count]))
    assert transport.inner.most_in_flight <= 3
    assert transport.inner.streams[0].is_closed


async def test_iter_reads_lazily_and_stops_cleanly(fake):
    read = []
    transport = fake.AsyncTransport(fake.Transport())
    async with client_of(transport) as client:
        parts = client.embed_iter(read.append(place) or f"text {place}" for place in itertools.count())
        for _ in range(5):
            await anext(parts)
        await parts.aclose()
    assert len(read) <= 4 * (3 + 2)
    assert transport.inner.streams[0].is_closed


async def test_iter_errors(fake):
    transport = fake.AsyncTransport(fake.Transport())
    async with client_of(transport) as client:
        with pytest.raises(InvalidInputError, match=r"^text\[9\]"):
            [part async for part in client.embed_iter([*TEXTS[:9], "word " * 99])]
        with pytest.raises(InvalidInputError, match=r"text\[5\]: must be a string"):
            [part async for part in client.embed_iter(["a"] * 5 + [None])]
        with pytest.raises(InvalidInputError, match="not one string"):
            client.embed_iter("abc")
    assert all(stream.is_closed for stream in transport.inner.streams)
    async with client_of(fake.AsyncTransport(fake.Transport(has_streams=False))) as client:
        with pytest.raises(UnsupportedError):
            client.embed_iter(TEXTS)


async def test_iter_retries(fake, no_sleep):
    async with client_of(fake.AsyncTransport(fake.Transport(failing(UnavailableError("full"), 2)))) as client:
        assert np.array_equal(await collect(client.embed_iter(TEXTS), 23), reference(fake, TEXTS))
    assert len([delay_s for delay_s in no_sleep if delay_s]) >= 12


@pytest.mark.parametrize("after", [0, 1, 5])
async def test_iter_survives_a_broken_stream(fake, no_sleep, after):
    def make(transport):
        stream = fake.Stream(transport)
        receive, left = stream.receive, itertools.count(after if not transport.streams else 10**9, -1)

        def receive_or_break(timeout_s):
            if next(left) == 0:
                raise ConnectionFailedError("gone")
            return receive(timeout_s)

        stream.receive = receive_or_break
        return stream

    transport = fake.Transport(stream=make)
    async with client_of(fake.AsyncTransport(transport)) as client:
        assert np.array_equal(await collect(client.embed_iter(TEXTS), 23), reference(fake, TEXTS))
    assert len(transport.streams) == 2


async def test_a_closed_client_says_so(fake):
    transport = fake.AsyncTransport(fake.Transport())
    client = client_of(transport)
    await client.close()
    await client.close()
    for use in (
        lambda: client.embed("one"),
        lambda: client.embed(TEXTS),
        lambda: client.embed_tokens([[1]]),
        lambda: anext(client.embed_batches([TEXTS])),
        lambda: anext(client.embed_iter(TEXTS)),
    ):
        with pytest.raises(ClosedError, match="the client is closed"):
            await use()
    assert isinstance((await client.health()).error, ClosedError)
    assert transport.inner.is_closed
    assert transport.inner.requests == []


async def test_arguments_of_a_wrong_type(fake):
    async with client_of(fake.AsyncTransport(fake.Transport())) as client:
        with pytest.raises(TypeError, match="ordered sequence"):
            await client.embed({"a", "b"})
        with pytest.raises(TypeError, match="got NoneType"):
            await client.embed_tokens(None)
        with pytest.raises(TypeError, match="got NoneType"):
            client.embed_iter(None)
