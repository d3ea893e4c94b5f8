import itertools
import threading

import numpy as np
import pytest

from lazuli_client import (
    ClosedError,
    ConnectionFailedError,
    DeadlineError,
    EmbedOptions,
    InvalidInputError,
    LazuliClient,
    UnavailableError,
    UnsupportedError,
)

TEXTS = [f"text {place}" for place in range(23)]


def client_of(transport, **settings):
    return LazuliClient(transport=transport, **{"rows_per_request": 4, "max_in_flight": 3, **settings})


def reference(fake, texts):
    return np.stack([fake.vector(text) for text in texts])


class Failing:
    """A hook that fails the first `times` attempts of each request, or of those with a marked text."""

    def __init__(self, error, times, marked=b""):
        self.error, self.times, self.marked = error, times, marked
        self.failures = {}
        self.lock = threading.Lock()

    def __call__(self, request):
        texts = tuple(request.tensors["text"][:, 0])
        if self.marked and self.marked not in texts:
            return
        with self.lock:
            seen = self.failures[texts] = self.failures.get(texts, 0) + 1
        if seen <= self.times:
            raise self.error


@pytest.mark.parametrize("count", [1, 3, 4, 5, 23])
def test_order_is_kept(fake, count):
    with client_of(fake.Transport()) as client:
        result = client.embed(TEXTS[:count])
    assert np.array_equal(result.embeddings, reference(fake, TEXTS[:count]))
    assert result.token_counts.tolist() == [2] * count
    assert not result.truncated.any()


def test_order_is_kept_when_answers_come_out_of_order(fake):
    later_answered = threading.Event()

    def first_waits_for_the_third(request):
        if request.rows[0] == 0:
            assert later_answered.wait(5)
        if request.rows[0] == 8:
            later_answered.set()

    with client_of(fake.Transport(first_waits_for_the_third)) as client:
        result = client.embed(TEXTS)
    assert np.array_equal(result.embeddings, reference(fake, TEXTS))


def test_no_more_in_flight_than_allowed_but_as_many(fake):
    three_at_once = threading.Barrier(3)

    def meet(request):
        if request.rows[0] < 12:
            three_at_once.wait(5)  # passes only if three are in flight together

    transport = fake.Transport(meet)
    with client_of(transport) as client:
        client.embed(TEXTS)
    assert transport.most_in_flight == 3


def test_a_single_request_goes_straight(fake):
    transport = fake.Transport()
    with client_of(transport) as client:
        client.embed("one")
    assert transport.threads == {threading.get_ident()}


@pytest.mark.parametrize("count", [2, 9])
def test_arrays_can_be_written_to_however_many_requests_they_are_of(fake, count):
    transport = fake.Transport()
    send = transport.send

    def read_only(request, timeout_s):
        outputs = send(request, timeout_s)
        for values in outputs.values():
            values.flags.writeable = False  # as those that look into a message are
        return outputs

    transport.send = read_only
    with client_of(transport) as client:
        result = client.embed(TEXTS[:count])
    for values in (result.embeddings, result.token_counts, result.truncated):
        values[:] = 0


def test_options_that_are_a_dict(fake):
    with client_of(fake.Transport()) as client, pytest.raises(InvalidInputError, match="options: must be EmbedOptions"):
        next(client.embed_batches([["a"]], {"truncate": "end"}))


def test_options_go_with_every_request(fake):
    transport = fake.Transport()
    with client_of(transport) as client:
        result = client.embed(TEXTS, truncate="end", dimensions=2)
    assert result.embeddings.shape == (23, 2)
    assert {tuple(request.parameters.items()) for request in transport.requests} == {
        (("truncate", "end"), ("dimensions", 2))
    }


def test_a_client_is_shared_by_threads(fake):
    with client_of(fake.Transport()) as client:
        results = [None] * 8

        def work(place):
            results[place] = client.embed(TEXTS[place:]).embeddings

        threads = [threading.Thread(target=work, args=(place,)) for place in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for place, vectors in enumerate(results):
        assert np.array_equal(vectors, reference(fake, TEXTS[place:]))


def test_bad_input_never_reaches_the_wire(fake):
    transport = fake.Transport()
    with client_of(transport) as client:
        for bad in ([], ["a", None], ["\ud800"]):
            with pytest.raises(InvalidInputError):
                client.embed(bad)
        with pytest.raises(InvalidInputError):
            client.embed("a", truncate="middle")
    assert transport.requests == []


@pytest.mark.parametrize("row", [0, 3, 4, 22])
def test_an_error_names_the_callers_row(fake, row):
    texts = list(TEXTS)
    texts[row] = "word " * (fake.limit + 1)
    with client_of(fake.Transport()) as client:
        with pytest.raises(InvalidInputError, match=rf"^text\[{row}\]: 51 tokens, but at most 50") as caught:
            client.embed(texts)
        assert caught.value.row == row
        assert len(client.embed(texts, truncate="end")) == 23
        assert client.embed(texts, truncate="end").truncated.nonzero()[0].tolist() == [row]


def test_retry_until_it_works(fake, no_sleep):
    hook = Failing(UnavailableError("full"), 2)
    with client_of(fake.Transport(hook), retries=2) as client:
        result = client.embed(TEXTS)
    assert np.array_equal(result.embeddings, reference(fake, TEXTS))
    assert set(hook.failures.values()) == {3}
    assert len(no_sleep) == 12
    assert all(delay_s > 0 for delay_s in no_sleep)


@pytest.mark.parametrize("kind", [UnavailableError, ConnectionFailedError])
def test_retries_are_bounded(fake, no_sleep, kind):
    transport = fake.Transport(Failing(kind("no"), 99))
    with client_of(transport, retries=3) as client, pytest.raises(kind, match="no"):
        client.embed("one")
    assert len(transport.requests) == 4


@pytest.mark.parametrize("error", [InvalidInputError("text[0]: x"), DeadlineError("late")])
def test_other_errors_are_not_retried(fake, no_sleep, error):
    transport = fake.Transport(Failing(error, 99))
    with client_of(transport) as client, pytest.raises(type(error)):
        client.embed("one")
    assert len(transport.requests) == 1
    assert no_sleep == []


def test_the_timeout_covers_the_retries(fake, no_sleep):
    transport = fake.Transport(Failing(UnavailableError("full"), 3))
    with client_of(transport, timeout_s=2.0) as client:
        client.embed("one")
    assert transport.timeouts[0] == 2.0
    assert transport.timeouts == sorted(transport.timeouts, reverse=True)
    for timeout_s, delay_s in zip(transport.timeouts[1:], no_sleep, strict=True):
        assert 0.1 <= timeout_s <= 2.0 - delay_s
    # The server gives each attempt up a little before the client does.
    assert transport.deadlines_ms == pytest.approx([900 * timeout_s for timeout_s in transport.timeouts], abs=1)
    assert len(set(transport.deadlines_ms)) == 4


def test_a_stream_has_no_deadline(fake):
    """As long as some answer comes in time, it goes on."""
    transport = fake.Transport()
    with client_of(transport, timeout_s=2.0) as client:
        list(client.embed_iter(TEXTS))
    assert transport.requests
    assert not any("deadline_ms" in request.parameters for request in transport.requests)


def test_after_an_error_what_was_not_sent_is_not_sent(fake):
    released = threading.Event()

    def first_fails_and_two_wait(request):
        if request.rows[0] == 0:
            raise InvalidInputError("text[0]: x")
        released.wait(5)

    transport = fake.Transport(first_fails_and_two_wait)
    with client_of(transport, rows_per_request=1, max_in_flight=2) as client:
        with pytest.raises(InvalidInputError):
            client.embed(TEXTS)
        released.set()
        client.health()  # queued behind whatever was left
    assert {request.rows[0] for request in transport.requests} <= {0, 1, 2}


def test_after_an_error_the_client_works_on(fake):
    with client_of(fake.Transport(Failing(InvalidInputError("text[0]: x"), 1, marked=b"text 5"))) as client:
        with pytest.raises(InvalidInputError):
            client.embed(TEXTS)
        assert len(client.embed(TEXTS)) == 23


def test_closing_closes_the_transport(fake):
    transport = fake.Transport()
    with client_of(transport):
        pass
    assert transport.is_closed


def test_a_closed_client_says_so(fake):
    transport = fake.Transport()
    client = client_of(transport)
    client.close()
    client.close()
    for use in (
        lambda: client.embed("one"),
        lambda: client.embed(TEXTS),
        lambda: client.embed_tokens([[1]]),
        lambda: next(client.embed_batches([TEXTS])),
        lambda: next(client.embed_iter(TEXTS)),
    ):
        with pytest.raises(ClosedError, match="the client is closed"):
            use()
    assert isinstance(client.health().error, ClosedError)
    assert transport.requests == []


def test_closing_ends_what_waits_in_another_thread(fake):
    under_way, released, caught = threading.Event(), threading.Event(), []

    def wait(request):
        under_way.set()
        released.wait(5)

    def work():
        try:
            client.embed(TEXTS)
        except ClosedError as error:
            caught.append(error)

    client = client_of(fake.Transport(wait), max_in_flight=1)
    worker = threading.Thread(target=work)
    worker.start()
    assert under_way.wait(5)
    closer = threading.Thread(target=client.close)
    closer.start()
    while not client._dispatcher._pool._shutdown:
        closer.join(0.001)
    released.set()
    closer.join()
    worker.join()
    assert len(caught) == 1


def test_retries_end_when_the_client_is_closed(fake, monkeypatch):
    transport = fake.Transport(Failing(UnavailableError("full"), 99))
    client = client_of(transport)
    monkeypatch.setattr("lazuli_client.client.time.sleep", lambda delay_s: client.close())
    with pytest.raises(ClosedError):
        client.embed("one")
    assert len(transport.requests) == 1


def test_arguments_of_a_wrong_type(fake):
    with client_of(fake.Transport()) as client:
        for use in (lambda: client.embed({"a", "b"}), lambda: client.embed({"a": 1})):
            with pytest.raises(TypeError, match="ordered sequence"):
                use()
        for use in (lambda: client.embed_tokens(None), lambda: client.embed_iter(None)):
            with pytest.raises(TypeError, match="got NoneType"):
                use()


def test_batches_come_in_order_and_are_read_lazily(fake):
    read = []

    def endless():
        for place in itertools.count():
            read.append(place)
            yield TEXTS[place % 20 : place % 20 + 3]

    with client_of(fake.Transport()) as client:
        batches = client.embed_batches(endless(), EmbedOptions(truncate="end"))
        for place in range(10):
            assert np.array_equal(next(batches).embeddings, reference(fake, TEXTS[place : place + 3]))
        batches.close()
    assert len(read) <= 10 + 2 * 3


def test_batches_count_rows_from_the_first(fake):
    with client_of(fake.Transport()) as client:
        batches = client.embed_batches([["a"] * 5, ["b", "word " * 99]], first_row=1000)
        assert len(next(batches)) == 5
        with pytest.raises(InvalidInputError, match=r"text\[1006\]"):
            next(batches)


def test_tokens(fake):
    transport = fake.Transport()
    with client_of(transport, rows_per_request=2) as client:
        result = client.embed_tokens([[1, 2, 3], np.array([4]), [5, 5]], normalize=False)
    assert result.embeddings.tolist() == [[6, 3], [4, 1], [10, 2]]
    assert result.token_counts.tolist() == [3, 1, 2]
    assert not result.truncated.any()
    assert [request.model for request in transport.requests] == ["embedding"] * 2
    assert transport.requests[0].parameters == {"normalize": False}


def test_vectors_of_another_type(fake):
    transport = fake.Transport()
    expected = (reference(fake, TEXTS) * 100).astype(np.int8)
    with client_of(transport) as client:
        result = client.embed(TEXTS, output="int8", force_dimensions=True)
        assert result.embeddings.dtype == np.int8
        assert np.array_equal(result.embeddings, expected)
        parts = list(client.embed_iter(TEXTS, output="int8", force_dimensions=True))
        client.embed_tokens([[1]], output="dense", force_dimensions=False)
    assert {part.embeddings.dtype for part in parts} == {np.dtype(np.int8)}
    rows = np.concatenate([part.indices for part in parts])
    assert np.array_equal(np.concatenate([part.embeddings for part in parts]), expected[rows])
    *others, last = (request.parameters for request in transport.requests)
    assert all(parameters == {"output": "int8", "force_dimensions": True} for parameters in others)
    assert last == {"output": "dense", "force_dimensions": False}


@pytest.mark.parametrize("workload", ["query", "bulk"])
def test_all_requests_carry_the_workload(fake, workload):
    transport = fake.Transport()
    with client_of(transport, workload=workload) as client:
        client.embed(TEXTS, truncate="end")
        list(client.embed_iter(TEXTS, truncate="end"))
        client.embed_tokens([[1]])
    *others, last = (request.parameters for request in transport.requests)
    assert len(others) >= 2
    assert all(parameters == {"truncate": "end", "workload": workload} for parameters in others)
    assert last == {"workload": workload}


def test_health_is_a_real_inference_without_retries(fake):
    transport = fake.Transport()
    with client_of(transport) as client:
        assert client.health().is_ready
    assert transport.requests[0].model == "embed"
    transport = fake.Transport(Failing(UnavailableError("starting"), 99))
    with client_of(transport) as client:
        health = client.health()
    assert not health.is_ready
    assert isinstance(health.error, UnavailableError)
    assert health.latency_s >= 0
    assert len(transport.requests) == 1


@pytest.mark.parametrize(
    ("task", "model", "inputs"),
    [
        ("embed", "embed", {"text"}),
        ("context", "embed_context", {"text", "document"}),
        ("rerank", "rerank", {"query", "document"}),
        ("classify", "classify", {"text"}),
    ],
)
def test_health_of_models_for_every_task(fake, task, model, inputs):
    transport = fake.Transport()
    with client_of(transport) as client:
        assert client.health(task).is_ready
        with pytest.raises(ValueError, match="task: must be one of embed, rerank, classify, context, got 'sing'"):
            client.health("sing")
    (request,) = transport.requests
    assert (request.model, set(request.tensors)) == (model, inputs)
    assert {len(values) for values in request.tensors.values()} == {1}
    with client_of(fake.Transport(), model="moods" if task == "classify" else "own") as client:
        assert client.health(task).is_ready


# embed_iter


def collect(parts, count, width=4):
    """Rows put in place; fails if one comes twice."""
    vectors = np.full((count, width), np.nan, np.float32)
    for part in parts:
        assert np.isnan(vectors[part.indices]).all()
        vectors[part.indices] = part.embeddings
    return vectors


@pytest.mark.parametrize("count", [1, 2, 4, 5, 23])
def test_iter_gives_every_row_once(fake, count):
    transport = fake.Transport()
    with client_of(transport) as client:
        vectors = collect(client.embed_iter(iter(TEXTS[:count])), count)
    assert np.array_equal(vectors, reference(fake, TEXTS[:count]))
    assert transport.most_in_flight <= 3
    assert transport.streams[0].is_closed


def test_iter_of_nothing_yields_nothing(fake):
    with client_of(fake.Transport()) as client:
        assert list(client.embed_iter([])) == []


def test_iter_reads_lazily_and_stops_cleanly(fake):
    read = []
    transport = fake.Transport()
    with client_of(transport) as client:
        parts = client.embed_iter(
            (read.append(place) or f"text {place}" for place in itertools.count()), truncate="end"
        )
        assert read == []
        for _ in range(5):
            next(parts)
        assert len(read) <= 4 * (3 + 2)
        parts.close()
    assert transport.streams[0].is_closed
    assert transport.requests[0].parameters == {"truncate": "end"}


def test_iter_of_an_unused_generator_opens_nothing(fake):
    transport = fake.Transport()
    with client_of(transport) as client:
        client.embed_iter(TEXTS)
    assert transport.streams == []


def test_iter_over_http_says_that_grpc_is_needed(fake):
    with (
        client_of(fake.Transport(has_streams=False)) as client,
        pytest.raises(UnsupportedError, match='protocol="grpc"'),
    ):
        client.embed_iter(TEXTS)


def test_iter_of_a_string_is_refused(fake):
    with client_of(fake.Transport()) as client, pytest.raises(InvalidInputError, match="not one string"):
        client.embed_iter("abc")


def test_iter_names_the_row(fake):
    texts = [*TEXTS[:9], "word " * 99, *TEXTS[9:]]
    transport = fake.Transport()
    with client_of(transport) as client:
        with pytest.raises(InvalidInputError, match=r"^text\[9\]") as caught:
            list(client.embed_iter(texts))
        assert caught.value.row == 9
        with pytest.raises(InvalidInputError, match=r"text\[5\]: must be a string"):
            list(client.embed_iter(["a"] * 5 + [None]))
    assert all(stream.is_closed for stream in transport.streams)


def test_iter_passes_on_errors_of_the_source(fake):
    def source():
        yield from TEXTS[:6]
        raise KeyError("mine")

    transport = fake.Transport()
    with client_of(transport) as client, pytest.raises(KeyError, match="mine"):
        list(client.embed_iter(source()))
    assert transport.streams[0].is_closed


def test_iter_retries_refused_requests(fake, no_sleep):
    with client_of(fake.Transport(Failing(UnavailableError("full"), 2)), retries=2) as client:
        vectors = collect(client.embed_iter(TEXTS), 23)
    assert np.array_equal(vectors, reference(fake, TEXTS))
    assert len([delay_s for delay_s in no_sleep if delay_s]) == 12


def test_iter_retries_are_bounded(fake, no_sleep):
    with (
        client_of(fake.Transport(Failing(UnavailableError("full"), 99)), retries=2) as client,
        pytest.raises(UnavailableError, match="full"),
    ):
        list(client.embed_iter(TEXTS))


def breaking_stream(fake, after, error):
    """Streams that break after some answers, with others on their way; the last ones hold."""

    def make(transport):
        stream = fake.Stream(transport)
        stream.left = after if len(transport.streams) < 2 else 10**9
        receive = stream.receive

        def receive_or_break(timeout_s):
            if stream.left == 0:
                raise error
            stream.left -= 1
            return receive(timeout_s)

        stream.receive = receive_or_break
        return stream

    return make


@pytest.mark.parametrize("after", [0, 1, 2, 5, 7])
def test_iter_survives_a_broken_stream_without_a_row_twice(fake, no_sleep, after):
    transport = fake.Transport(stream=breaking_stream(fake, after, ConnectionFailedError("gone")))
    with client_of(transport) as client:
        vectors = collect(client.embed_iter(TEXTS), 23)
    assert np.array_equal(vectors, reference(fake, TEXTS))
    assert len(transport.streams) == 3
    assert all(stream.is_closed for stream in transport.streams)


def test_iter_gives_up_on_a_deadline(fake, no_sleep):
    transport = fake.Transport(stream=breaking_stream(fake, 3, DeadlineError("late")))
    with client_of(transport) as client, pytest.raises(DeadlineError, match=r"late \(request of rows"):
        list(client.embed_iter(TEXTS))
    assert len(transport.streams) == 1
