"""Heads of any size, at a real socket of this process."""

import asyncio
import contextlib
import json

import pytest
import uvicorn

from lazuli_client.gateway.guard.protocol import MOST_HEAD_BYTES, LimitedHttp

LINE = b"POST /v1/embeddings HTTP/1.1\r\nhost: gateway\r\n"


async def answer_ok(scope, receive, send):
    """Reads the body and tells how long it was."""
    size = 0
    while (message := await receive())["type"] == "http.request":
        size += len(message["body"])
        if not message["more_body"]:
            break
    body = b"%d" % size
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@contextlib.asynccontextmanager
async def listening(app, arrival_timeout_s, keep_alive_s):
    """The port of a server."""
    config = uvicorn.Config(
        app,
        timeout_keep_alive=keep_alive_s,
        http=LimitedHttp,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
    )
    config.load()
    state = uvicorn.Server(config).server_state
    server = await asyncio.get_running_loop().create_server(
        lambda: LimitedHttp(config, state, {}, arrival_timeout_s=arrival_timeout_s), "127.0.0.1", 0
    )
    async with server:
        yield server.sockets[0].getsockname()[1]
        while state.connections:  # the clients have closed theirs
            await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def connected(app=answer_ok, arrival_timeout_s=60.0, keep_alive_s=60):
    """Reader and writer of a connection."""
    async with asyncio.timeout(30), listening(app, arrival_timeout_s, keep_alive_s) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield reader, writer
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def ask(pieces, pause_s=0.0):
    """(status line, body) of the answer to pieces of a request."""
    async with connected() as (reader, writer):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause_s)
        head = await reader.readuntil(b"\r\n\r\n")
        size = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length"))
        return head.split(b"\r\n")[0], await reader.readexactly(size)


def headers(count, size):
    return b"".join(b"x-%d: %b\r\n" % (number, b"a" * size) for number in range(count))


# The last piece is too much by itself, whatever arrives together.
ENDLESS = [b"a" * 10_000] * 5 + [b"a" * 2 * MOST_HEAD_BYTES]
TOO_LARGE = {
    "one header": [LINE + headers(1, MOST_HEAD_BYTES) + b"\r\n"],
    "many headers": [LINE + headers(100, 1000) + b"\r\n"],
    "path": [b"POST /v1/" + b"a" * MOST_HEAD_BYTES + b" HTTP/1.1\r\n\r\n"],
    "a header without an end": [LINE + b"x-a: ", *ENDLESS],
    "empty lines": [b"\r\n" * 10_000] * 4,
    "headers in pieces": [LINE, *[headers(1, 10_000)] * 8],
    "a name without an end": [LINE, *ENDLESS],
    "after the body": [LINE + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx-a: ", *ENDLESS],
}


@pytest.mark.parametrize("case", TOO_LARGE)
async def test_a_head_that_is_too_large(case):
    status, body = await ask(TOO_LARGE[case], pause_s=0.005)
    assert status == b"HTTP/1.1 431 Request Header Fields Too Large"
    assert f"the {MOST_HEAD_BYTES} bytes" in str(json.loads(body)["error"])


BODY = b"b" * 300_000
FINE = {
    "large head": ([LINE + headers(60, 1000) + b"content-length: 1\r\n\r\nb"], 1),
    "large body": ([LINE + b"content-length: 300000\r\n\r\n" + BODY], 300_000),
    "large body later": ([LINE + b"content-length: 300000\r\n\r\n", BODY[:150_000], BODY[150_000:]], 300_000),
    "chunks": ([LINE + b"transfer-encoding: chunked\r\n\r\n", *[b"2710\r\n%b\r\n" % BODY[:10_000]] * 9, b"0\r\n\r\n"],
               90_000),
}  # fmt: skip


@pytest.mark.parametrize("case", FINE)
async def test_a_head_within_the_limit_and_any_body(case):
    pieces, size = FINE[case]
    assert await ask(pieces) == (b"HTTP/1.1 200 OK", b"%d" % size)


async def test_every_request_of_a_connection_has_the_whole_limit():
    one = LINE + headers(40, 1000) + b"content-length: 0\r\n\r\n"
    async with connected() as (reader, writer):
        for _ in range(4):
            writer.write(one)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            await reader.readexactly(1)


async def test_what_is_no_http_is_still_400():
    assert (await ask([b"nonsense\r\n\r\n"]))[0] == b"HTTP/1.1 400 Bad Request"


async def refuse(scope, receive, send):
    """Answers without a look at the body."""
    await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("half", [b"P", LINE, LINE + b"x-a: b", b"\r\n"], ids=["method", "line", "header", "empty"])
@pytest.mark.parametrize("before", [b"", LINE + b"content-length: 1\r\n\r\nb"], ids=["first", "second"])
async def test_half_a_head_is_not_waited_for_long(half, before):
    async with connected(arrival_timeout_s=0.2) as (reader, writer):
        if before:
            writer.write(before)
            await reader.readuntil(b"\r\n\r\n1")
        elif half == b"\r\n":
            half = b"\r\nP"
        writer.write(half)
        answer = await reader.read()  # until the connection is closed
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert answer.lower().count(b"connection: close") == 1
        assert "0.2 seconds" in str(json.loads(answer.partition(b"\r\n\r\n")[2])["error"])


async def test_a_connection_without_a_byte_is_closed():
    async with connected(keep_alive_s=0.1) as (reader, _):
        assert await reader.read() == b""


async def test_an_answer_to_the_request_before_comes_whole_before_the_408():
    async def slow(scope, receive, send):
        await asyncio.sleep(0.3)
        await refuse(scope, receive, send)

    async with connected(slow, arrival_timeout_s=0.1) as (reader, writer):
        writer.write(LINE + b"content-length: 0\r\n\r\n" + LINE)
        first, second = (await reader.read()).split(b"HTTP/1.1 ")[1:]
        assert (first[:3], second[:3]) == (b"401", b"408")


@pytest.mark.parametrize("trickle", [False, True])
async def test_a_body_that_was_answered_before_it_came_is_not_waited_for_long(trickle):
    async with connected(refuse, arrival_timeout_s=0.2) as (reader, writer):
        writer.write(LINE + b"content-length: 1000000\r\n\r\nb")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 401")
        closed = asyncio.create_task(reader.read())
        while trickle and not closed.done():
            with contextlib.suppress(ConnectionError):
                writer.write(b"b")
            await asyncio.sleep(0.02)
        with contextlib.suppress(ConnectionError):
            assert await closed == b""


async def test_after_a_body_that_came_late_the_connection_goes_on():
    async with connected(refuse, arrival_timeout_s=1.0) as (reader, writer):
        for _ in range(2):
            writer.write(LINE + b"content-length: 2\r\n\r\nb")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 401")
            writer.write(b"b")
        closed = asyncio.create_task(reader.read())
        await asyncio.sleep(1.3)
        assert not closed.done()
        closed.cancel()
