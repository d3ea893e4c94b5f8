import numpy as np
import pytest

from lazuli.context.input import NO_ROW, Document
from lazuli.context.request import ContextRequest
from lazuli.errors import DeviceError, NonFiniteError, RequestCancelledError
from lazuli.options import RequestOptions
from lazuli.outputs.dense import DenseModel
from lazuli.request import StreamRequest, UnaryRequest


def int32(*numbers):
    return np.array(numbers, dtype=np.int32)


DOCUMENTS = [
    Document(int32(1, 2, 99, 3), int32(2, 1, 1), int32(0, NO_ROW, 1)),
    Document(int32(4, 5), int32(2), int32(2)),
    Document(int32(99, 6, 7, 8), int32(1, 1, 2), int32(NO_ROW, 3, 4)),
]


@pytest.fixture
def sender(make_sender):
    return make_sender()


def make(sender, cls=UnaryRequest):
    rows = [ids for document in DOCUMENTS for ids in document.chunks]
    form = DenseModel(2, normalize=True).choose(RequestOptions())
    return ContextRequest(DOCUMENTS, cls(rows, form, sender))


def deliver(request, *places, between=np.nan):
    """Row r gets the vector (r, -r), and what is between chunks something that nobody may see."""
    values = np.empty(len(places), dtype=np.object_)
    for number, place in enumerate(places):
        rows = DOCUMENTS[place].rows.astype(np.float32)
        rows[rows == NO_ROW] = between
        values[number] = np.stack([rows, -rows], axis=1)
    request.deliver(int32(*places), values)


def test_each_document_is_a_sequence_with_spans(sender):
    request = make(sender)
    assert [sequence.input_ids.tolist() for sequence in request.sequences] == [[1, 2, 99, 3], [4, 5], [99, 6, 7, 8]]
    assert [sequence.spans.tolist() for sequence in request.sequences] == [[2, 1, 1], [2], [1, 1, 2]]
    assert request.num_tokens == 10
    assert request.finish == 1


@pytest.mark.parametrize("pieces", [[[0, 1, 2]], [[2], [0], [1]], [[1, 2], [0]]])
@pytest.mark.parametrize("cls", [UnaryRequest, StreamRequest])
def test_chunks_get_their_vectors(sender, cls, pieces):
    request = make(sender, cls)
    for piece in pieces:
        assert not request.done
        deliver(request, *piece)
    assert request.done
    assert sender.embedding().tolist() == [[row, -row] for row in range(5)]


def test_the_tokens_of_a_chunk_are_its_own(sender):
    deliver(make(sender), 0, 1, 2)
    assert sender.parts[0].token_count.tolist() == [2, 1, 2, 1, 2]


def test_nan_names_the_chunk(sender):
    request = make(sender)
    values = np.empty(1, dtype=np.object_)
    values[0] = np.array([[0, 0], [0, 0], [np.nan, 0]], dtype=np.float32)
    request.deliver(int32(2), values)
    assert isinstance(sender.error(), NonFiniteError)
    assert str(sender.error()).startswith("embedding[4]: ")


def test_a_failure_is_the_last_word(sender):
    request = make(sender)
    deliver(request, 1)
    request.fail(DeviceError("why"))
    deliver(request, 0, 2)
    assert str(sender.error()) == "why"
    assert request.done


def test_the_answer_can_be_prepared(sender):
    request = make(sender)
    request.prepare()
    deliver(request, 0, 1, 2)
    assert sender.parts[0] is sender.prepared[0]


@pytest.mark.parametrize("cls", [UnaryRequest, StreamRequest])
def test_one_that_was_cancelled_ends(sender, cls):
    request = make(sender, cls)
    assert not request.fail_if_cancelled()
    sender.cancelled = True
    assert request.fail_if_cancelled()
    assert request.done
    assert not request.fail_if_cancelled()
    deliver(request, 0, 1, 2)
    assert isinstance(sender.error(), RequestCancelledError)
