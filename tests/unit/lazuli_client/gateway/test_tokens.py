"""Tokenising in the gateway: the ids of the server's tokenizer, however a request is cut."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from lazuli.config import TokenizerConfig
from lazuli.options import RequestOptions
from lazuli.tokenizer import TextTokenizer
from lazuli_client.errors import InvalidInputError
from lazuli_client.gateway.replicas.call import Call
from lazuli_client.gateway.settings import GatewaySettings
from lazuli_client.gateway.work.requests import tokenized_requests
from lazuli_client.gateway.work.tokens import CHECK_TEXTS, LocalTokenizer
from lazuli_client.options import EmbedOptions

CHECKPOINT = "all-MiniLM-L6-v2"
TEXTS = [f"text {number} of naïve 東京 " + "word " * (number % 60) for number in range(400)]


@pytest.fixture(scope="module")
def tokenizer():
    return LocalTokenizer(CHECKPOINT)


@pytest.fixture(scope="module")
def reference():
    return TextTokenizer.from_config(TokenizerConfig(checkpoint=CHECKPOINT))


async def requests_of(tokenizer, texts, options=EmbedOptions(), chunk_tokens=500):  # noqa: B008
    settings = GatewaySettings().client_settings("embed", 4)
    call = Call("id", asyncio.get_running_loop().time() + 60)
    return [one async for one in tokenized_requests(tokenizer, settings, texts, options, chunk_tokens, call)]


def ids_of(request):
    ids, mask = request.tensors["input_ids"], request.tensors["attention_mask"]
    return [row[: np.count_nonzero(used)].tolist() for row, used in zip(ids, mask, strict=True)]


async def test_chunks_have_the_ids_of_the_server_in_order(tokenizer, reference):
    requests = await requests_of(tokenizer, TEXTS)
    expected = [one.input_ids for one in reference.tokenize(TEXTS, RequestOptions())]
    assert [ids for one in requests for ids in ids_of(one)] == expected
    assert [row for one in requests for row in one.rows] == list(range(400))
    assert max(np.count_nonzero(one.tensors["attention_mask"]) for one in requests) <= 500
    assert [one.ends_batch for one in requests] == [False] * (len(requests) - 1) + [True]
    assert {one.model for one in requests} == {"embedding"}


@pytest.mark.parametrize("count", [1, 63, 64, 65, 128])
async def test_every_number_of_texts_ends_once(tokenizer, count):
    requests = await requests_of(tokenizer, ["a"] * count, chunk_tokens=64 * 3)
    assert sum(len(one.rows) for one in requests) == count
    assert [one.ends_batch for one in requests] == [False] * (len(requests) - 1) + [True]


async def test_long_texts_become_chunks_that_are_marked(tokenizer, reference):
    options = EmbedOptions(truncate="split", overlap=10)
    request = (await requests_of(tokenizer, ["word " * 600], options, 5000))[0]
    expected = reference.tokenize(["word " * 600], RequestOptions(truncate="split", overlap=10))[0]
    mask = request.tensors["attention_mask"][0]
    assert np.flatnonzero(mask == 2).tolist() == list(expected.chunk_starts)
    assert request.tensors["input_ids"][0].tolist() == expected.input_ids


@pytest.mark.parametrize("row", [0, 70, 399])
async def test_an_error_names_the_callers_row(tokenizer, row):
    texts = [*TEXTS]
    texts[row] = "word " * 300
    with pytest.raises(InvalidInputError, match=rf"text\[{row}\]: 302 tokens"):
        await requests_of(tokenizer, texts)


async def test_an_unknown_prompt(tokenizer):
    with pytest.raises(InvalidInputError, match="prompt_name: 'nope' is not known"):
        await requests_of(tokenizer, ["a"], EmbedOptions(prompt_name="nope"))


def test_pieces_tell_where_tokens_are(tokenizer):
    pieces = tokenizer.pieces("unbelievable [SEP]", add_special_tokens=True)
    assert [one.is_special for one in pieces] == [True] + [False] * (len(pieces) - 2) + [True]
    assert [piece.token_id for piece in pieces].count(102) == 1  # what is written there is no special token
    assert "".join("unbelievable [SEP]"[one.start : one.stop] for one in pieces[1:-1]) == "unbelievable[SEP]"


async def test_tokenize_answers_slices_in_order_and_lets_others_run(gateway, tokenizer):
    texts = ["of a blue gem " * count for count in (3, 4000, 1, 2000, 0, 5)]
    async with gateway() as app:
        models = app.gateway.models._models
        models["embed"] = replace(models["embed"], tokenizer=tokenizer)
        slow, ticks = asyncio.create_task(app.post("/tokenize", {"inputs": texts})), 0
        while not slow.done():
            await asyncio.sleep(0)
            ticks += 1
        found = (await slow).json()
        assert ticks > 100  # the loop has turned many times
        assert [[one["text"] for one in row] for row in found] == [["[CLS]", *text.split(), "[SEP]"] for text in texts]


def test_the_check_sees_another_limit():
    short, long = LocalTokenizer(CHECKPOINT, 64), LocalTokenizer(CHECKPOINT)
    ids = [np.array(long.tokenize([text], EmbedOptions(truncate="end"), range(1))[0].input_ids) for text in CHECK_TEXTS]
    assert [long.equals(row, one) for row, one in enumerate(ids)] == [True] * len(ids)
    assert not all(short.equals(row, one) for row, one in enumerate(ids))


def test_a_checkpoint_that_is_not_there():
    with pytest.raises(ValueError, match="tokenizer: checkpoint"):
        LocalTokenizer("/nowhere/at/all")
