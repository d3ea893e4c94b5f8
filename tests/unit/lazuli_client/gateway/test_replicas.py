"""The choice of a server, attempts elsewhere, and the watch, against servers that are objects."""

import asyncio

import pytest

from lazuli_client.errors import (
    ConnectionFailedError,
    DeadlineError,
    InvalidInputError,
    ServerError,
    UnavailableError,
)
from lazuli_client.gateway.replicas.call import Call
from lazuli_client.gateway.replicas.patience import Patience
from lazuli_client.gateway.replicas.pool import Pool
from lazuli_client.gateway.replicas.replica import Replica, State
from lazuli_client.gateway.replicas.transport import PoolTransport
from lazuli_client.gateway.replicas.watch import Watch
from lazuli_client.request import text_request

FULL = "Exceeds maximum queue size"
MODELS = ("embed", "rerank")
HANG_S = 0.1


def make_pool(fake, hooks, bulk_tokens=100):
    """Servers that are up, each with its hook."""
    pool = Pool(bulk_tokens)
    for number, hook in enumerate(hooks):
        replica = Replica(f"server{number}:1", fake.Wire(f"server{number}:1", hook), pool.changed)
        for model in MODELS:
            replica.take_back(model)
        pool.replicas.append(replica)
    return pool


def make_call(seconds=5.0, **fields):
    return Call("id", asyncio.get_running_loop().time() + seconds, **fields)


def make_transport(pool, call, queue_s=1.0):
    return PoolTransport(pool, "embed", call, lambda request: 10, queue_s)


def request(*texts):
    return text_request("embed", list(texts or ("a",)), {}, range(len(texts) or 1))


async def acquire(pool, tokens=10, *, model="embed", is_bulk=False, avoid=(), wait_s=0.05, deadline_s=None):
    now = asyncio.get_running_loop().time()
    patience = Patience(wait_s, now + (wait_s if deadline_s is None else deadline_s))
    return await pool.acquire(model, tokens, is_bulk=is_bulk, avoid=avoid, patience=patience)


def raising(error):
    async def hook(wire, request, is_probe):
        raise error

    return hook


async def for_ever(wire, request, is_probe):
    await asyncio.Event().wait()


async def test_the_server_with_the_fewest_tokens_is_chosen(fake):
    pool = make_pool(fake, [None] * 3)
    for replica, tokens in zip(pool.replicas, (50, 20, 30), strict=True):
        replica.outstanding_tokens = tokens
    assert await acquire(pool) is pool.replicas[1]
    assert await acquire(pool, avoid=[pool.replicas[1]]) is pool.replicas[2]


async def test_among_equals_each_gets_its_turn(fake):
    pool = make_pool(fake, [None] * 3)
    assert {(await acquire(pool)).address for _ in range(100)} == {"server0:1", "server1:1", "server2:1"}


async def test_one_that_failed_is_asked_again_where_there_is_no_other(fake):
    pool = make_pool(fake, [None])
    assert await acquire(pool, avoid=pool.replicas) is pool.replicas[0]


async def test_bulk_waits_for_room_and_queries_do_not(fake):
    pool = make_pool(fake, [None])
    replica = pool.replicas[0]
    replica.outstanding_bulk = replica.outstanding_tokens = 95
    with pytest.raises(UnavailableError, match="too much to do"):
        await acquire(pool, is_bulk=True)
    assert await acquire(pool) is replica
    waiting = asyncio.create_task(acquire(pool, is_bulk=True, wait_s=5.0))
    await asyncio.sleep(0)
    replica.outstanding_bulk = 90
    pool.changed()
    assert await waiting is replica


async def test_bulk_waits_for_room_until_its_deadline_but_not_for_servers_that_are_out(fake):
    pool = make_pool(fake, [None])
    replica = pool.replicas[0]
    replica.outstanding_bulk = 95
    waiting = asyncio.create_task(acquire(pool, is_bulk=True, wait_s=0.05, deadline_s=5.0))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    replica.take_out("it burns")
    with pytest.raises(ConnectionFailedError, match="it burns"):
        await waiting


async def test_a_chunk_larger_than_all_room_goes_alone(fake):
    pool = make_pool(fake, [None])
    assert await acquire(pool, 1000, is_bulk=True) is pool.replicas[0]


async def test_without_a_server_the_error_says_why(fake):
    pool = make_pool(fake, [None])
    pool.replicas[0].take_out("it burns")
    with pytest.raises(ConnectionFailedError, match="server0:1: it burns"):
        await acquire(pool)


async def test_a_refused_chunk_goes_elsewhere_and_the_server_rests(fake):
    pool = make_pool(fake, [raising(UnavailableError(FULL)), None])
    pool.replicas[1].outstanding_tokens = 1000  # so that the first is asked first
    outputs = await make_transport(pool, make_call()).send(request("abc"), 1.0)
    assert outputs["embedding"].tolist() == [fake.vector("abc").tolist()]
    assert not pool.replicas[0].is_ready("embed", asyncio.get_running_loop().time())
    assert pool.replicas[0].state is State.UP


async def test_a_chunk_that_all_refuse_is_given_up_after_its_time_in_the_queue(fake):
    pool = make_pool(fake, [raising(UnavailableError(FULL))] * 2)
    with pytest.raises(UnavailableError, match=FULL):
        await make_transport(pool, make_call(), queue_s=0.3).send(request(), 1.0)


async def test_a_model_that_refuses_does_not_keep_the_others_from_work(fake):
    pool = make_pool(fake, [None])
    for _ in range(6):
        pool.replicas[0].rest("rerank")
    assert not pool.replicas[0].is_ready("rerank", asyncio.get_running_loop().time())
    assert await acquire(pool) is pool.replicas[0]


async def test_a_server_that_refused_is_asked_again_after_its_rest(fake):
    asked = []

    async def refuse_twice(wire, request, is_probe):
        asked.append(request)
        if len(asked) < 3:
            raise UnavailableError(FULL)

    pool = make_pool(fake, [refuse_twice])
    await make_transport(pool, make_call()).send(request(), 1.0)
    assert len(asked) == 3


async def test_a_broken_connection_takes_the_server_out_and_the_chunk_elsewhere(fake):
    pool = make_pool(fake, [raising(ConnectionFailedError("Socket closed")), None])
    pool.replicas[1].outstanding_tokens = 1000
    await make_transport(pool, make_call()).send(request(), 1.0)
    assert [replica.state for replica in pool.replicas] == [State.DOWN, State.UP]
    assert len(pool.replicas[1].wire.requests) == 1


async def test_a_chunk_that_breaks_three_servers_is_not_given_to_the_fourth(fake):
    pool = make_pool(fake, [raising(ConnectionFailedError("Socket closed"))] * 4)
    with pytest.raises(ConnectionFailedError, match="Socket closed"):
        await make_transport(pool, make_call()).send(request(), 1.0)
    assert len(pool.fit()) == 1


@pytest.mark.parametrize("error", [InvalidInputError("text[0]: no"), ServerError("NaN"), DeadlineError("timed out")])
async def test_other_errors_are_final(fake, error):
    pool = make_pool(fake, [raising(error)] * 2)
    with pytest.raises(type(error), match=str(error).replace("[", r"\[")):
        await make_transport(pool, make_call()).send(request(), 1.0)
    assert len(pool.fit()) == 2
    assert sum(replica.answers.total() for replica in pool.replicas) == 1


async def test_what_a_hung_server_has_goes_elsewhere_and_its_late_answer_is_dropped(fake):
    go_on = asyncio.Event()

    async def late(wire, request, is_probe):
        await go_on.wait()

    pool = make_pool(fake, [late, None])
    pool.replicas[1].outstanding_tokens = 1000
    sending = asyncio.create_task(make_transport(pool, make_call()).send(request("abc"), 1.0))
    await asyncio.sleep(0.01)
    assert pool.replicas[0].outstanding_tokens == 10
    pool.replicas[0].take_out("no answer to a probe")
    outputs = await sending
    assert outputs["embedding"].shape == (1, 4)
    assert pool.replicas[0].outstanding_tokens == 10  # it still has it to do
    go_on.set()
    await asyncio.sleep(0.01)
    assert pool.replicas[0].outstanding_tokens == 0


async def test_the_deadline_ends_the_wait_but_not_the_attempt(fake):
    pool = make_pool(fake, [for_ever])
    with pytest.raises(DeadlineError):
        await make_transport(pool, make_call(0.05)).send(request(), 1.0)
    assert pool.replicas[0].outstanding_tokens == 10
    assert pool.replicas[0].state is State.UP


async def test_a_caller_who_goes_away_leaves_no_trace(fake):
    pool = make_pool(fake, [for_ever])
    sending = asyncio.create_task(make_transport(pool, make_call()).send(request(), 1.0))
    await asyncio.sleep(0.01)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert not pool.replicas[0]._pending


async def test_only_a_deadline_of_the_client_goes_to_the_engine(fake):
    pool = make_pool(fake, [None])
    await make_transport(pool, make_call(5.0, has_deadline=True, context={"traceparent": "x"})).send(request(), 1.0)
    await make_transport(pool, make_call(5.0)).send(request(), 1.0)
    marked, plain = pool.replicas[0].wire.requests
    assert 4000 < marked.parameters["deadline_ms"] <= 5000
    assert marked.context == {"traceparent": "x"}
    assert plain.parameters == {}


class Questions:
    """What a watch asks: of models that are there, each answers as `ask` has it."""

    def __init__(self, ask, models=MODELS):
        self.answer = ask
        self.models = models
        self.asked = 0

    async def discover(self, replica):
        if not self.models:
            raise ConnectionFailedError("refused")
        replica.offer(self.models)

    async def ask(self, replica, model):
        self.asked += 1
        await self.answer(replica, model)


async def watched(replica, pool, questions, until, timeout_s=10.0):
    """Watch until something is so; probes that must hang have a short `timeout_s`."""
    watcher = asyncio.create_task(Watch(replica, pool, questions, 0.02, timeout_s).run())
    async with asyncio.timeout(30):
        while not until():
            await asyncio.sleep(0.01)
    watcher.cancel()
    await asyncio.gather(watcher, return_exceptions=True)


async def hang(replica, model):
    await asyncio.Event().wait()


async def answer_at_once(replica, model):
    pass


async def test_a_probe_that_hangs_takes_the_server_out_and_one_that_answers_brings_it_back(fake):
    pool = make_pool(fake, [None])
    replica = pool.replicas[0]
    await watched(replica, pool, Questions(hang), lambda: replica.state is State.DOWN, HANG_S)
    assert "no answer to a probe" in replica.problem("embed")
    await watched(replica, pool, Questions(answer_at_once), lambda: replica.state is State.UP)


async def test_a_broken_model_gets_no_work_and_the_others_of_its_server_do(fake):
    pool = make_pool(fake, [None, None])
    replica, other = pool.replicas
    other.outstanding_tokens = 1000

    async def rerank_is_broken(replica, model):
        if model == "rerank":
            raise ServerError("the device failed")

    await watched(replica, pool, Questions(rerank_is_broken), lambda: not replica.is_fit("rerank"))
    assert (replica.state, replica.problem("rerank")) == (State.UP, "the device failed")
    assert await acquire(pool) is replica
    assert await acquire(pool, model="rerank") is other
    await watched(replica, pool, Questions(answer_at_once), lambda: replica.is_fit("rerank"))
    assert await acquire(pool, model="rerank") is replica


async def test_a_model_that_hangs_beside_a_busy_one_is_found(fake):
    pool = make_pool(fake, [None])
    replica = pool.replicas[0]

    async def rerank_hangs(replica, model):
        replica.answers["embed"] += 1
        if model == "rerank":
            await asyncio.Event().wait()

    await watched(replica, pool, Questions(rerank_hangs), lambda: not replica.is_fit("rerank"), HANG_S)
    assert [replica.is_fit(model) for model in MODELS] == [True, False]


async def test_what_a_model_has_is_given_up_with_it_and_nothing_else(fake):
    pool = make_pool(fake, [for_ever])
    sending = {
        model: asyncio.create_task(
            PoolTransport(pool, model, make_call(), lambda request: 10, 0.05).send(request(), 1.0)
        )
        for model in MODELS
    }
    await asyncio.sleep(0.01)
    pool.replicas[0].take_out("it burns", "rerank")
    with pytest.raises(ConnectionFailedError, match=r"no server is ready for rerank .*it burns"):
        await sending["rerank"]
    assert not sending["embed"].done()
    sending["embed"].cancel()


async def test_a_server_without_a_model_gets_no_work_for_it(fake):
    pool = make_pool(fake, [None, None])
    replica = pool.replicas[0]
    await watched(replica, pool, Questions(answer_at_once, ["embed"]), lambda: len(replica.problems) == 1)
    assert pool.fit("rerank") == [pool.replicas[1]]
    pool.replicas[1].take_out("it burns")
    with pytest.raises(ConnectionFailedError, match="does not have the model; server1:1: it burns"):
        await acquire(pool, model="rerank")


async def test_a_server_that_does_not_tell_its_models_is_out(fake):
    pool = make_pool(fake, [None])
    pool.replicas[0].take_out("it burns", "rerank")
    replica = pool.replicas[0]
    await watched(replica, pool, Questions(answer_at_once, []), lambda: replica.state is State.DOWN)
    assert (replica.problem("embed"), replica.problem("rerank")) == ("refused", "refused")


async def test_a_busy_server_is_not_a_hung_one(fake):
    pool = make_pool(fake, [None])
    replica = pool.replicas[0]

    async def slow_probe(replica, model):
        replica.answers[model] += 1  # somebody else's
        await asyncio.Event().wait()

    questions = Questions(slow_probe)
    await watched(replica, pool, questions, lambda: questions.asked > 2 * len(MODELS), HANG_S)
    assert replica.state is State.UP


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (UnavailableError(FULL), State.UP),
        (UnavailableError("Stub process is not healthy"), State.DOWN),
        (UnavailableError("model has no available versions"), State.DOWN),
        (ConnectionFailedError("refused"), State.DOWN),
        (ServerError("NaN"), State.DOWN),
        (ZeroDivisionError("a fault of ours"), State.DOWN),
    ],
)
async def test_what_a_probe_is_told(fake, error, state):
    pool = make_pool(fake, [None])

    async def ask(replica, model):
        raise error

    questions = Questions(ask)
    await watched(pool.replicas[0], pool, questions, lambda: questions.asked > 2 * len(MODELS))
    assert pool.replicas[0].state is state


async def test_the_only_server_keeps_what_it_has_when_it_is_slow(fake):
    go_on = asyncio.Event()

    async def late(wire, request, is_probe):
        await go_on.wait()

    pool = make_pool(fake, [late])
    sending = asyncio.create_task(make_transport(pool, make_call()).send(request("abc"), 1.0))
    await asyncio.sleep(0)
    await watched(pool.replicas[0], pool, Questions(hang), lambda: pool.replicas[0].state is State.DOWN, HANG_S)
    go_on.set()
    assert (await sending)["embedding"].shape == (1, 4)
