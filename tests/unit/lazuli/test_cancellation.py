import gc
import logging
import threading

import pytest

from lazuli.cancellation import CancellationWatch
from lazuli.errors import DeviceError, RequestCancelledError

PATIENCE_S = 10.0


@pytest.fixture
def let_go():
    """Called so many times."""
    return []


@pytest.fixture
def watch(let_go):
    """Looks only when it is told to."""
    watch = CancellationWatch(lambda: let_go.append(True), interval_s=3600, most_asked=3)
    yield watch
    watch.close()


def ask(watch, make_request, *senders):
    requests = [make_request(1, 1, sender=sender) for sender in senders]
    for request in requests:
        watch.add(request)
    return requests


def test_what_was_cancelled_is_failed_and_the_rest_left_alone(watch, let_go, make_request, make_sender):
    senders = [make_sender() for _ in range(3)]
    requests = ask(watch, make_request, *senders)
    watch.look()
    assert not let_go
    senders[1].cancelled = True
    watch.look()
    assert len(let_go) == 1
    assert [request.done for request in requests] == [False, True, False]
    assert isinstance(senders[1].error(), RequestCancelledError)
    assert not senders[0].ended
    watch.look()
    assert len(let_go) == 1


def test_what_has_ended_is_never_asked(watch, make_request, make_sender):
    """Triton has freed what the question would be about."""
    sender = make_sender()
    (request,) = ask(watch, make_request, sender)
    request.fail(DeviceError("no"))
    sender.cancelled = True
    watch.look()
    assert not sender.after_end
    assert isinstance(sender.error(), DeviceError)


def test_of_many_some_are_asked_each_time_in_turns(watch, make_request, make_sender):
    asked = []

    class Sender(make_sender):
        def is_cancelled(self):
            asked.append(self)
            return False

    senders = [Sender() for _ in range(7)]
    requests = ask(watch, make_request, *senders)
    for _ in range(4):
        watch.look()
    assert asked == [senders[number % 7] for number in range(12)]
    requests[5].fail(DeviceError("no"))
    watch.look()
    assert asked[12:] == [senders[6], senders[0], senders[1]]


def test_answered_requests_do_not_stay(watch, make_request, make_sender):
    requests = ask(watch, make_request, *[make_sender() for _ in range(10)])
    for request in requests[2:]:
        request.fail(DeviceError("no"))
    watch.look()
    assert len(watch._watched) == 2
    del request, requests
    gc.collect()
    watch.look()
    assert not watch._watched


def test_it_looks_by_itself_and_survives_a_sender_that_cannot_be_asked(make_request, make_sender, caplog):
    class Broken(make_sender):
        def is_cancelled(self):
            raise RuntimeError("no such request")

    found = threading.Event()
    cancelled = make_sender()
    cancelled.cancelled = True
    watch = CancellationWatch(found.set, interval_s=0.001)
    with caplog.at_level(logging.ERROR, logger="lazuli.cancellation"):
        requests = ask(watch, make_request, Broken(), cancelled)
        assert found.wait(PATIENCE_S)
        watch.close()
    assert [request.done for request in requests] == [False, True]
    assert "could not be asked" in caplog.text
