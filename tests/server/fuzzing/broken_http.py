"""Hypothesis strategies: HTTP requests that are wrong in their JSON, their bytes, their headers or their framing."""

from urllib.parse import quote

from hypothesis import strategies as st

from .asks import dump
from .mistakes import asks
from .values import FLOATS, INT64, STRINGS

LENGTH_HEADER = "Inference-Header-Content-Length"
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.sampled_from([*INT64, *FLOATS]), STRINGS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)
NUMBERS = st.sampled_from(["", "-1", "x", "0", "1", "9" * 30, "1e3", " 5 ", "0x10", "+3", "nan"])
LINES = [
    "POST /v2/models/embed/infer",
    "POST  HTTP/1.1",
    "PUT /v2/models/embed/infer HTTP/1.1",
    "DELETE /v2/models/embed HTTP/1.1",
    "\x00\xff / HTTP/1.1",
    "POST /v2/models/embed/infer HTTP/9.9",
    "POST /v2/models/%00/infer HTTP/1.1",
    "POST /v2/models/%ff%zz/generate HTTP/1.1",
    "POST /v2/models/../../embed/generate HTTP/1.1",
    "POST /v2/models/embed/versions/-1/infer HTTP/1.1",
    "POST /v2/models/embed/generate?" + "a=b&" * 2000 + " HTTP/1.1",
    "POST /" + "a" * 20_000 + " HTTP/1.1",
    "GET /v2/models/embed/config/x HTTP/1.1",
    "OPTIONS * HTTP/1.1",
    "",
]
HEADERS = [
    "Content-Length: -1",
    "Content-Length: x",
    "Content-Length: 99999999999999999999",
    "Content-Length: 5\r\nContent-Length: 7",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nContent-Length: 4",
    "Transfer-Encoding: nonsense",
    "Content-Encoding: gzip",
    "Content-Encoding: deflate",
    "Accept-Encoding: gzip",
    "Content-Type: \xff",
    "Content-Type: application/x-www-form-urlencoded",
    "Connection: close",
    "Expect: 100-continue",
    "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: x",
    "no colon",
    ": no name",
    "X: " + "a" * 20_000,
    "X: a\x00b",
    "\r\nX: y",
    "traceparent: " + "0" * 300,
    "triton-x: y",
]


@st.composite
def broken_json(draw, models):
    """Path, body and headers of an `infer` or `generate` that is wrong somewhere; and the words as in `Ask`."""
    ask = draw(asks(models))
    if draw(st.booleans()):
        path, content = ask.to_generate()
        binary, headers = b"", {"Content-Type": "application/json"}
    else:
        path, content, binary = ask.to_http()
        headers = {}
    words = ask.words
    if draw(st.booleans()):
        content, words = _with_another_value(draw, content), None
    body = dump(content)
    kind = draw(st.sampled_from([*["as it is"] * 5, "cut", "flip", "more"]))
    place = draw(st.integers(0, max(0, len(body) - 1)))
    if kind == "cut":
        body = body[:place]
    elif kind == "flip":
        body = body[:place] + draw(st.binary(min_size=1, max_size=2)) + body[place + 1 :]
    elif kind == "more":
        body += draw(st.binary(min_size=1, max_size=4))
    if not headers:
        headers = {LENGTH_HEADER: str(len(body))}
        if not draw(st.integers(0, 5)):
            headers, words = draw(st.sampled_from([{}, {LENGTH_HEADER: draw(NUMBERS)}])), None
    return quote(path), body + binary, headers, words if kind == "as it is" else None


def _with_another_value(draw, content):
    """A copy in which something, somewhere, is another value, or is not there."""
    if not isinstance(content, dict | list) or not content or not draw(st.integers(0, 3)):
        return draw(VALUES)
    keys = sorted(content) if isinstance(content, dict) else range(len(content))
    key = draw(st.sampled_from(keys))
    copy = content.copy()
    if draw(st.integers(0, 4)):
        copy[key] = _with_another_value(draw, content[key])
    else:
        del copy[key]
    return copy


@st.composite
def broken_framing(draw, models):
    """Bytes of a whole request; and whether the client then waits for an answer, or goes away."""
    path, body, headers, _ = draw(broken_json(models))
    line = draw(st.one_of(st.just(f"POST {path} HTTP/1.1"), st.sampled_from(LINES)))
    fields = [f"{name}: {value}" for name, value in headers.items()]
    length = draw(st.one_of(st.just(len(body)), st.just(len(body)), st.integers(0, 2 * len(body)), st.none()))
    if length is not None:
        fields.append(f"Content-Length: {length}")
    fields += draw(st.lists(st.sampled_from(HEADERS), max_size=2))
    head = "\r\n".join([line, "Host: x", *fields, "", ""]).encode("latin-1", "replace")
    if any("chunked" in each for each in fields):
        body = draw(st.sampled_from([b"%x\r\n" % len(body), b"-5\r\n", b"zz\r\n", b"ffffffffffffffff\r\n"])) + body
        body += draw(st.sampled_from([b"\r\n0\r\n\r\n", b"", b"\r\n"]))
    data = head + body
    end = draw(st.integers(0, 3)) > 0
    if not end:
        data = data[: draw(st.integers(1, len(data)))]
    return data, end
