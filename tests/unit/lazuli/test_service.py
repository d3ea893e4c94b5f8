import threading

import numpy as np
import pytest

from lazuli import service as service_module
from lazuli.config import EngineConfig
from lazuli.errors import ConfigError, InputError, OptionError, OverloadedError, ShuttingDownError
from lazuli.options import RequestOptions
from lazuli.request import StreamRequest, UnaryRequest
from lazuli.service import EmbeddingService


@pytest.fixture(scope="module")
def start(tmp_path_factory, write_bert):
    """Services on one small checkpoint, of enough positions for the engine's warm-up."""
    folder = write_bert(tmp_path_factory.mktemp("service") / "bert", max_position_embeddings=128)
    services = []

    def start(streaming=False, **parameters):
        config = EngineConfig(checkpoint=str(folder), device="cpu", dtype="float32", **parameters)
        services.append(EmbeddingService(config, streaming=streaming))
        return services[-1]

    yield start
    for service in services:
        if service._runner._thread.is_alive():
            service.close()


@pytest.fixture(scope="module", params=[False, True], ids=["unary", "stream"])
def service(request, start):
    return start(streaming=request.param, token_budget=300, max_queued_tokens=600)


def arrays(rows):
    """Padded arrays, at the left or the right in turn."""
    width = max(map(len, rows))
    input_ids = np.full((len(rows), width), -9, dtype=np.int32)
    mask = np.zeros((len(rows), width), dtype=np.int8)
    for number, row in enumerate(rows):
        place = slice(0, len(row)) if number % 2 else slice(width - len(row), width)
        input_ids[number, place] = row
        mask[number, place] = 1
    return input_ids, mask


def rows_of(seed, most_rows=9, longest=128):
    rng = np.random.default_rng(seed)
    return [
        rng.integers(100, size=rng.integers(1, longest + 1), dtype=np.int32) for _ in range(rng.integers(1, most_rows))
    ]


def test_64_threads_of_mixed_lengths_get_what_they_would_get_alone(service, make_sender):
    cases = [[rows_of(64 * thread + number) for number in range(3)] for thread in range(64)]
    answers = [[make_sender() for _ in own] for own in cases]
    barrier = threading.Barrier(64)

    def client(thread):
        barrier.wait()
        for rows, sender in zip(cases[thread], answers[thread], strict=True):
            service.submit(*arrays(rows), RequestOptions(), sender)
            sender.wait()

    threads = [threading.Thread(target=client, args=(thread,)) for thread in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # A second engine, since `step` is for one thread: the reference of each row is that row alone.
    reference = service_module.Engine(
        EngineConfig(checkpoint=str(service.engine.checkpoint.path), dtype="float32"), service.engine.device
    )
    worst = 1.0
    for own, senders in zip(cases, answers, strict=True):
        for rows, sender in zip(own, senders, strict=True):
            vectors = sender.embedding()
            expected = np.concatenate([reference.embed_ids([row]) for row in rows])
            worst = min(worst, float((vectors * expected).sum(axis=1).min()))
            counts = np.concatenate([part.token_count for part in sender.parts])
            index = np.concatenate([part.index for part in sender.parts])
            assert counts.tolist() == [len(rows[row]) for row in index]
    assert worst >= 1 - 1e-6


def test_options(service, make_sender):
    rows = rows_of(1)
    senders = [make_sender() for _ in range(4)]
    options = [
        RequestOptions(),
        RequestOptions(normalize=False),
        RequestOptions(dimensions=8, force_dimensions=True),
        RequestOptions(dimensions=8, force_dimensions=True, normalize=False),
    ]
    for option, sender in zip(options, senders, strict=True):
        service.submit(*arrays(rows), option, sender)
    plain, raw, cut, raw_cut = (sender.wait().embedding() for sender in senders)
    np.testing.assert_allclose(np.linalg.norm(plain, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(cut, axis=1), 1, atol=1e-6)
    assert (np.abs(np.linalg.norm(raw, axis=1) - 1) > 0.01).all()
    np.testing.assert_allclose(raw / np.linalg.norm(raw, axis=1, keepdims=True), plain, atol=1e-5)
    np.testing.assert_allclose(raw_cut, raw[:, :8], atol=1e-5)
    np.testing.assert_allclose(raw_cut / np.linalg.norm(raw_cut, axis=1, keepdims=True), cut, atol=1e-5)


@pytest.mark.parametrize("order", [(3, 129), (129, 3)])
def test_a_row_that_is_too_long_is_named_in_either_order(service, make_sender, order):
    sender = make_sender()
    rows = [np.ones(length, dtype=np.int32) for length in order]
    with pytest.raises(
        InputError, match=rf"input_ids\[{order.index(129)}\]: 129 tokens, but the model takes at most 128"
    ):
        service.submit(*arrays(rows), RequestOptions(), sender)
    assert not sender.ended


@pytest.mark.parametrize("length", [127, 128])
def test_up_to_the_limit_rows_are_embedded(service, make_sender, length):
    sender = make_sender()
    service.submit(*arrays([np.ones(length, dtype=np.int32)]), RequestOptions(), sender)
    assert sender.wait().embedding().shape == (1, 32)


def test_bad_input_is_refused_and_the_next_request_works(service, make_sender):
    good = arrays([np.ones(3, dtype=np.int32)])
    unused = make_sender()
    with pytest.raises(InputError, match=r"input_ids\[0\]\[1\]: 100, but the vocabulary"):
        service.submit(np.array([[1, 100]], np.int32), np.ones((1, 2), np.int8), RequestOptions(), unused)
    with pytest.raises(OptionError, match="dimensions: 33, but the model's vectors have 32"):
        service.submit(*good, RequestOptions(dimensions=33), unused)
    sender = make_sender()
    service.submit(*good, RequestOptions(dimensions=32), sender)
    assert sender.wait().embedding().shape == (1, 32)
    assert not unused.ended


def test_a_request_of_more_tokens_than_budget_and_queue(service, make_sender):
    sender = make_sender()
    service.submit(*arrays([np.ones(100, dtype=np.int32)] * 40), RequestOptions(), sender)
    assert sender.wait().embedding().shape == (40, 32)


def test_close_answers_what_was_accepted_and_refuses_the_rest(start, make_sender):
    service = start(token_budget=64)
    senders = [make_sender() for _ in range(20)]
    for sender in senders:
        service.submit(*arrays([np.ones(5, dtype=np.int32)]), RequestOptions(), sender)
    service.close()
    assert all(sender.embedding().shape == (1, 32) for sender in senders)
    late = make_sender()
    with pytest.raises(ShuttingDownError):
        service.submit(*arrays([np.ones(5, dtype=np.int32)]), RequestOptions(), late)
    assert not late.ended


def test_close_closes_the_engine_once_nothing_steps_it(start, monkeypatch):
    service = start()
    seen = []
    monkeypatch.setattr(service.engine, "close", lambda: seen.append(service._runner._thread.is_alive()))
    service.close()
    assert seen == [False]


def test_a_model_that_overflows_gives_an_error_and_no_nulls(tmp_path, write_bert, make_bert_tensors, make_sender):
    sizes = {"max_position_embeddings": 128}
    tensors = make_bert_tensors(**sizes)
    tensors["embeddings.word_embeddings.weight"][66] = float("inf")
    folder = write_bert(tmp_path, tensors=tensors, **sizes)
    config = EngineConfig(checkpoint=str(folder), device="cpu", dtype="float32")
    service = EmbeddingService(config, streaming=False)
    bad, good = make_sender(), make_sender()
    service.submit(*arrays([np.ones(3, np.int32), np.full(3, 66, np.int32)]), RequestOptions(), bad)
    service.submit(*arrays([np.ones(3, np.int32)]), RequestOptions(), good)
    service.close()
    assert str(bad.error()).startswith("embedding[1]: the model computed NaN or Inf")
    assert good.embedding().shape == (1, 32)


class TestWiring:
    @pytest.mark.parametrize(("streaming", "cls"), [(False, UnaryRequest), (True, StreamRequest)])
    def test_the_kind_of_request(self, start, streaming, cls):
        assert start(streaming=streaming)._request_type is cls

    @pytest.mark.parametrize(
        ("parameters", "budget", "queued"),
        [
            ({}, 2048, 32768),
            ({"token_budget": 10}, 10, 160),
            ({"token_budget": 10, "max_queued_tokens": 7}, 10, 7),
        ],
    )
    def test_the_limits(self, start, parameters, budget, queued):
        scheduler = start(**parameters)._scheduler
        assert (scheduler._token_budget, scheduler._max_queued_tokens) == (budget, queued)
        assert scheduler._enough_tokens == budget  # a CPU computes nothing beside the runner

    def test_queues(self, start):
        scheduler = start(token_budget=900, bulk_tokens=300, max_queue_ms=5000)._scheduler
        assert (scheduler._bulk_tokens, scheduler._max_queue_s) == (300, 5)
        assert start(token_budget=900)._scheduler._bulk_tokens == 256

    def test_what_is_refused_is_answered_by_another_thread(self, start, make_sender):
        """The runner must not wait for a sender, least of all with the scheduler's lock held."""
        service = start()
        sender, threads = make_sender(), []
        send_error = sender.send_error
        sender.send_error = lambda error: threads.append(threading.current_thread().name) or send_error(error)
        request = UnaryRequest([np.ones(3, np.int32)], service.engine.answers.choose(RequestOptions()), sender)
        service._scheduler._refuse(request, OverloadedError("late"))
        assert isinstance(sender.wait().error(), OverloadedError)
        assert threads[0].startswith("lazuli-reply")

    @pytest.mark.parametrize("rows", [[3], [4, 5]])
    def test_options_reach_the_queue(self, start, make_sender, monkeypatch, rows):
        service, seen = start(), []
        monkeypatch.setattr(service._runner, "submit", lambda request, **permissions: seen.append(request))
        options = RequestOptions(workload="bulk", deadline_ms=70)
        service.submit(*arrays([np.ones(length, np.int32) for length in rows]), options, make_sender())
        assert (seen[0].workload, seen[0].deadline_ms) == ("bulk", 70)

    def test_threads(self, start):
        import torch

        before = torch.get_num_threads()
        start(threads=1)
        assert torch.get_num_threads() == 1
        torch.set_num_threads(before)

    def test_a_bad_device_is_refused(self):
        with pytest.raises(ConfigError, match="device: 'tpu'"):
            EmbeddingService(EngineConfig(device="tpu"), streaming=False)


class TestChunks:
    """Texts that come as chunks, marked in the mask: the mean of the chunks' vectors by tokens."""

    LENGTHS = ([128, 100, 3], [7], [60, 128], [1, 1, 1])

    def arrays(self, seed=0):
        rng = np.random.default_rng(seed)
        rows = [rng.integers(100, size=sum(lengths), dtype=np.int32) for lengths in self.LENGTHS]
        input_ids, mask = arrays(rows)
        for row, lengths in enumerate(self.LENGTHS):
            first = int(np.argmax(mask[row]))
            mask[row, first + np.cumsum(lengths)[:-1]] = 2
        return (
            input_ids,
            mask,
            [np.split(ids, np.cumsum(lengths)[:-1]) for ids, lengths in zip(rows, self.LENGTHS, strict=True)],
        )

    @pytest.mark.parametrize("normalize", [None, True, False])
    def test_the_vector_is_the_mean_by_tokens(self, service, make_sender, normalize):
        input_ids, mask, chunks = self.arrays()
        sender = make_sender()
        service.submit(input_ids, mask, RequestOptions(normalize=normalize), sender)
        means = []
        for pieces in chunks:
            vectors = np.concatenate([service.engine.embed_ids([piece], normalize=False) for piece in pieces])
            means.append(np.average(vectors.astype(np.float64), axis=0, weights=list(map(len, pieces))))
        expected = np.stack(means)
        if normalize is not False:
            expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(sender.wait().embedding(), expected, atol=2e-5)
        counts = np.concatenate([part.token_count[np.argsort(part.index)] for part in sender.parts])
        assert sorted(counts.tolist()) == sorted(map(sum, self.LENGTHS))

    def test_chunks_do_not_see_each_other(self, service, make_sender):
        ids = np.arange(20, dtype=np.int32)[None]
        one, two = make_sender(), make_sender()
        mask = np.ones((1, 20), dtype=np.int8)
        service.submit(ids, mask, RequestOptions(), one)
        mask = mask.copy()
        mask[0, 10] = 2
        service.submit(ids, mask, RequestOptions(), two)
        assert np.abs(one.wait().embedding() - two.wait().embedding()).max() > 1e-4

    def test_it_is_cut_and_encoded_like_any(self, service, make_sender):
        input_ids, mask, _ = self.arrays()
        plain, encoded = make_sender(), make_sender()
        service.submit(input_ids, mask, RequestOptions(dimensions=16, force_dimensions=True), plain)
        options = RequestOptions(dimensions=16, force_dimensions=True, output=("ubinary",))
        service.submit(input_ids, mask, options, encoded)
        bits = np.unpackbits(encoded.wait().embedding("embedding_ubinary"), axis=1)
        assert bits.tolist() == (plain.wait().embedding() > 0).astype(int).tolist()

    def test_a_chunk_over_the_limit(self, service, make_sender):
        mask = np.ones((1, 200), dtype=np.int8)
        mask[0, 150] = 2
        with pytest.raises(InputError, match=r"input_ids\[0\]: a chunk of 150 tokens, but the model takes at most 128"):
            service.submit(np.ones((1, 200), np.int32), mask, RequestOptions(), make_sender())
