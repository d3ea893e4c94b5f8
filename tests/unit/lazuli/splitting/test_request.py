import numpy as np
import pytest

from lazuli.errors import DeviceError, NonFiniteError, RequestCancelledError
from lazuli.options import RequestOptions
from lazuli.outputs.dense import DenseModel
from lazuli.outputs.quantize import Quantizer
from lazuli.request import StreamRequest, UnaryRequest
from lazuli.splitting.request import ChunkedRequest
from lazuli.token_input import ChunkedRows

SIZE = 8
# Three texts: of chunks of 4, 4 and 2 tokens, of one chunk of 3, and of chunks of 4 and 1.
LENGTHS = ([4, 4, 2], [3], [4, 1])
RNG = np.random.default_rng(5)
VECTORS = RNG.normal(size=(6, SIZE)).astype(np.float32)
MEANS = np.stack(
    [(4 * VECTORS[0] + 4 * VECTORS[1] + 2 * VECTORS[2]) / 10, VECTORS[3], (4 * VECTORS[4] + VECTORS[5]) / 5]
)


@pytest.fixture
def sender(make_sender):
    return make_sender()


def make(sender, cls=UnaryRequest, native=False, **options):
    rows = [np.arange(sum(lengths), dtype=np.int32) for lengths in LENGTHS]
    starts = [np.cumsum(lengths)[:-1] for lengths in LENGTHS]
    form = DenseModel(SIZE, normalize=False, native=native).choose(RequestOptions(**options))
    return ChunkedRequest(ChunkedRows(rows, starts), cls(rows, form, sender), Quantizer(native=native))


def deliver(request, *chunks):
    request.deliver(np.array(chunks, dtype=np.int32), VECTORS[list(chunks)])


def test_each_chunk_is_a_sequence_whose_vector_comes_as_it_is(sender):
    request = make(sender, normalize=True)
    assert [len(sequence) for sequence in request.sequences] == [4, 4, 2, 3, 4, 1]
    assert request.sequences[2].input_ids.tolist() == [8, 9]
    assert [sequence.row for sequence in request.sequences] == list(range(6))
    assert all(sequence.request is request for sequence in request.sequences)
    assert request.num_tokens == 18
    assert request.finish == 0


def test_the_vector_of_a_text_is_the_mean_by_tokens(sender):
    request = make(sender)
    deliver(request, 0, 1, 2, 3, 4, 5)
    assert request.done
    np.testing.assert_allclose(sender.embedding(), MEANS, rtol=1e-6)
    assert sender.parts[0].token_count.tolist() == [10, 3, 5]


@pytest.mark.parametrize("cls", [UnaryRequest, StreamRequest])
def test_the_order_in_which_chunks_come_does_not_show(make_sender, cls):
    answers = []
    for pieces in ([[0, 1, 2, 3, 4, 5]], [[5], [1], [0, 3], [4], [2]], [[2, 4], [1, 5], [0, 3]]):
        sender = make_sender()
        request = make(sender, cls)
        for piece in pieces:
            assert not request.done
            deliver(request, *piece)
        answers.append(sender.embedding())
    assert answers[0].tobytes() == answers[1].tobytes() == answers[2].tobytes()


def test_a_stream_gets_each_text_once_its_chunks_are_there(sender):
    request = make(sender, StreamRequest)
    deliver(request, 0, 1, 3)
    deliver(request, 2, 4)
    deliver(request, 5)
    assert [part.index.tolist() for part in sender.parts] == [[1], [0], [2]]
    assert [part.token_count.tolist() for part in sender.parts] == [[3], [10], [5]]


def test_the_mean_is_cut_and_scaled(sender):
    deliver(make(sender, dimensions=4, normalize=True), *range(6))
    cut = MEANS[:, :4]
    expected = cut / np.linalg.norm(cut, axis=1, keepdims=True)
    np.testing.assert_allclose(sender.embedding(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("float16", MEANS.astype(np.float16)),
        ("int8", np.round(127 * np.tanh(MEANS)).astype(np.int8)),
        ("ubinary", np.packbits(MEANS >= 0, axis=1)),
    ],
)
def test_and_encoded(sender, output, expected):
    deliver(make(sender, native=True, output=(output,)), *range(6))
    assert sender.embedding(f"embedding_{output}").tolist() == expected.tolist()


def test_nan_in_a_chunk_names_the_text(sender):
    request = make(sender)
    vectors = VECTORS.copy()
    vectors[5, 3] = np.nan
    request.deliver(np.arange(6, dtype=np.int32), vectors)
    error = sender.error()
    assert isinstance(error, NonFiniteError)
    assert str(error).startswith("embedding[2]: ")
    assert request.done


def test_a_failure_is_the_last_word(sender):
    request = make(sender)
    deliver(request, 0)
    request.fail(DeviceError("why"))
    deliver(request, 1, 2, 3, 4, 5)
    request.fail(DeviceError("again"))
    assert str(sender.error()) == "why"
    assert request.done


def test_one_of_the_texts_ends_the_chunks(sender):
    request = make(sender)
    request._texts.fail(DeviceError("why"))
    assert request.done
    deliver(request, *range(6))
    assert len(sender.errors) == 1


def test_the_answer_can_be_prepared(sender):
    request = make(sender)
    request.prepare()
    deliver(request, *range(6))
    assert sender.parts[0] is sender.prepared[0]
    np.testing.assert_allclose(sender.embedding(), MEANS, rtol=1e-6)


@pytest.mark.parametrize("cls", [UnaryRequest, StreamRequest])
def test_one_that_was_cancelled_ends(sender, cls):
    request = make(sender, cls)
    assert not request.fail_if_cancelled()
    sender.cancelled = True
    assert request.fail_if_cancelled()
    assert request.done
    assert not request.fail_if_cancelled()
    deliver(request, 0, 1, 2, 3, 4, 5)
    assert isinstance(sender.error(), RequestCancelledError)
