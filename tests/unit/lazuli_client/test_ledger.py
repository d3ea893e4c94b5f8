import numpy as np
import pytest

from lazuli_client import DeadlineError, InvalidInputError, ServerError, UnavailableError
from lazuli_client.ledger import Ledger, StreamAnswer
from lazuli_client.settings import Settings
from lazuli_client.splitting import Chunk


def rows(request_id, *index, final=False):
    outputs = {
        "embedding": np.array([[10.0 + row] for row in index], np.float32),
        "index": np.array([[row] for row in index], np.int32),
        "token_count": np.array([[row] for row in index], np.int32),
    }
    return StreamAnswer(request_id, outputs if index else {}, final)


def failed(request_id, error):
    return StreamAnswer(request_id, {}, True, error)


@pytest.fixture
def ledger():
    return Ledger(Settings(max_in_flight=2, retries=1), {})


CHUNK = Chunk(100, ["a", "b", "c"])


def test_parts_carry_rows_of_the_whole_input(ledger):
    sent = ledger.admit(CHUNK)
    assert sent.request.model == "embed_stream"
    part = ledger.take(rows(sent.request_id, 2, 0))
    assert part.indices.tolist() == [102, 100]
    assert part.embeddings.tolist() == [[12.0], [10.0]]
    assert part.token_counts.tolist() == [2, 0]
    assert not ledger.is_idle
    assert ledger.take(rows(sent.request_id, 1, final=True)).indices.tolist() == [101]
    assert ledger.is_idle


def test_the_end_may_come_alone(ledger):
    sent = ledger.admit(CHUNK)
    ledger.take(rows(sent.request_id, 0, 1, 2))
    assert ledger.take(rows(sent.request_id, final=True)) is None
    assert ledger.is_idle


def test_room(ledger):
    assert ledger.has_room
    ledger.admit(CHUNK)
    assert ledger.has_room
    ledger.admit(CHUNK)
    assert not ledger.has_room


def test_due_reads_no_further_than_there_is_room(ledger):
    read = []
    chunks = (read.append(place) or Chunk(place, ["x"]) for place in range(10))
    assert len(list(ledger.due(chunks))) == 2
    assert read == [0, 1]


@pytest.mark.parametrize("index", [(0, 0), (3,), (-1,)])
def test_a_row_twice_or_out_of_range_is_the_servers_fault(ledger, index):
    sent = ledger.admit(CHUNK)
    with pytest.raises(ServerError, match="index"):
        ledger.take(rows(sent.request_id, *index))


def test_a_row_twice_in_two_parts(ledger):
    sent = ledger.admit(CHUNK)
    ledger.take(rows(sent.request_id, 1))
    with pytest.raises(ServerError, match=r"a row twice, rows \[101\]"):
        ledger.take(rows(sent.request_id, 1))


def test_an_early_end_names_the_rows(ledger):
    sent = ledger.admit(CHUNK)
    ledger.take(rows(sent.request_id, 1))
    with pytest.raises(ServerError, match=r"without its rows \[100, 102\]") as caught:
        ledger.take(rows(sent.request_id, final=True))
    assert caught.value.row == 100


def test_a_missing_output_is_named(ledger):
    sent = ledger.admit(CHUNK)
    outputs = {"embedding": np.ones((1, 1), np.float32), "token_count": np.ones((1, 1), np.int32)}
    with pytest.raises(ServerError, match="'index'"):
        ledger.take(StreamAnswer(sent.request_id, outputs, False))


def test_an_error_gets_the_callers_row(ledger):
    sent = ledger.admit(CHUNK)
    with pytest.raises(InvalidInputError, match=r"text\[101\]: bad") as caught:
        ledger.take(failed(sent.request_id, InvalidInputError("text[1]: bad")))
    assert caught.value.row == 101


def test_an_error_without_a_row_names_the_request(ledger):
    sent = ledger.admit(CHUNK)
    with pytest.raises(ServerError, match=r"broke \(request of rows 100 to 102\)"):
        ledger.take(failed(sent.request_id, ServerError("broke")))


def test_a_refused_request_is_sent_again_with_the_rows_that_are_missing(ledger):
    first = ledger.admit(CHUNK)
    ledger.take(rows(first.request_id, 1))
    assert ledger.take(failed(first.request_id, UnavailableError("full"))) is None
    again = ledger.resend()
    assert again.delay_s > 0
    assert again.request_id != first.request_id
    assert again.request.tensors["text"].tolist() == [[b"a"], [b"c"]]
    assert ledger.take(rows(first.request_id, final=True)) is None  # the end of the failed one: nothing
    part = ledger.take(rows(again.request_id, 1, 0, final=True))
    assert part.indices.tolist() == [102, 100]
    assert ledger.is_idle
    assert ledger.resend() is None


def test_retries_are_bounded(ledger):
    first = ledger.admit(CHUNK)
    ledger.take(failed(first.request_id, UnavailableError("full")))
    with pytest.raises(UnavailableError, match=r"full \(request of rows 100 to 102\)"):
        ledger.take(failed(ledger.resend().request_id, UnavailableError("full")))


def test_a_broken_stream_sends_everything_again_after_one_pause(ledger):
    ledger.admit(CHUNK)
    second = ledger.admit(Chunk(200, ["d"]))
    ledger.take(rows(second.request_id, 0))
    ledger.broken(UnavailableError("gone"))
    again = list(ledger.due(iter([])))
    assert [item.request.tensors["text"].tolist() for item in again] == [[[b"a"], [b"b"], [b"c"]]]
    with pytest.raises(UnavailableError, match="gone"):
        ledger.broken(UnavailableError("gone"))


def test_the_pause_is_made_once(ledger):
    ledger.admit(CHUNK)
    ledger.admit(CHUNK)
    ledger.broken(UnavailableError("gone"))
    first, second = ledger.due(iter([]))
    assert first.delay_s > 0
    assert second.delay_s == 0


def test_a_broken_stream_with_a_final_error(ledger):
    ledger.admit(CHUNK)
    with pytest.raises(DeadlineError, match="rows 100 to 102"):
        ledger.broken(DeadlineError("late"))


def test_strays(ledger):
    with pytest.raises(ServerError, match="request '99', which is not open"):
        ledger.take(rows("99", 0))
    with pytest.raises(ServerError, match="no id"):
        ledger.take(failed("", ServerError("no id")))
