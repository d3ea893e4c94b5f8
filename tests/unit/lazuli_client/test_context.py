import numpy as np
import pytest

from lazuli_client import AsyncLazuliClient, InputTypeError, InvalidInputError, LazuliClient, UnavailableError

DOCUMENTS = [["a b", "c"], ["d e f"], ["g", "h", "i", "j", "k"], ["l", "m"], ["n"]]
CHUNKS = [chunk for chunks in DOCUMENTS for chunk in chunks]


def client_of(transport, **settings):
    return LazuliClient(transport=transport, **{"rows_per_request": 4, **settings})


def assert_expected(fake, results):
    assert [len(result) for result in results] == list(map(len, DOCUMENTS))
    for result, chunks in zip(results, DOCUMENTS, strict=True):
        assert np.array_equal(result.embeddings, np.stack([fake.vector(chunk) for chunk in chunks]))
        assert result.token_counts.tolist() == [len(chunk.split()) for chunk in chunks]
        assert result.truncated.tolist() == [False] * len(chunks)


def test_each_document_gets_the_vectors_of_its_chunks(fake):
    with client_of(fake.Transport()) as client:
        assert_expected(fake, client.embed_context(DOCUMENTS))


async def test_from_asyncio_too(fake):
    async with AsyncLazuliClient(transport=fake.AsyncTransport(fake.Transport()), rows_per_request=4) as client:
        assert_expected(fake, await client.embed_context(DOCUMENTS))


def test_a_request_holds_whole_documents(fake):
    transport = fake.Transport()
    with client_of(transport, max_in_flight=1) as client:
        client.embed_context(DOCUMENTS, prompt_name="p")
    sent = [request.tensors["text"][:, 0].tolist() for request in transport.requests]
    assert sent == [[b"a b", b"c", b"d e f"], [b"g", b"h", b"i", b"j", b"k"], [b"l", b"m", b"n"]]
    numbers = [request.tensors["document"] for request in transport.requests]
    assert [values[:, 0].tolist() for values in numbers] == [[0, 0, 1], [0, 0, 0, 0, 0], [0, 0, 1]]
    assert {values.dtype for values in numbers} == {np.dtype(np.int32)}
    assert [request.parameters for request in transport.requests] == [{"prompt_name": "p"}] * 3
    assert {request.model for request in transport.requests} == {"embed_context"}


def test_and_at_most_so_many_characters(fake):
    transport = fake.Transport()
    with client_of(transport, rows_per_request=100, chars_per_request=6, max_in_flight=1) as client:
        client.embed_context(DOCUMENTS)
    assert [len(request.rows) for request in transport.requests] == [2, 1, 5, 3]


def test_the_model_of_the_client_is_called(fake):
    transport = fake.Transport()
    with client_of(transport, model="docs") as client:
        client.embed_context([["one"]])
    assert transport.requests[0].model == "docs"


def test_an_error_names_the_document_and_the_chunk(fake):
    def refuse(request):
        if b"j" in request.tensors["text"]:
            raise InvalidInputError("text[3]: no token is left of it")

    with client_of(fake.Transport(refuse)) as client, pytest.raises(InvalidInputError) as caught:
        client.embed_context(DOCUMENTS)
    assert str(caught.value) == "text[6]: no token is left of it (documents[2], chunk 3)"
    assert caught.value.row == 6


def test_one_that_names_no_row_stays_as_it_is(fake):
    def refuse(request):
        raise UnavailableError("no")

    with client_of(fake.Transport(refuse), retries=0) as client, pytest.raises(UnavailableError) as caught:
        client.embed_context(DOCUMENTS)
    assert str(caught.value) == "no"


@pytest.mark.parametrize(
    ("documents", "kind", "match"),
    [
        ([], InvalidInputError, "documents: there is no document"),
        ([["a"], []], InvalidInputError, r"documents\[1\]: text: there is no text"),
        ([["a"], ["b", 3]], InvalidInputError, r"documents\[1\]: text\[1\]: must be a string, got int"),
        ([["a"] * 1025], InvalidInputError, r"documents\[0\]: 1025 chunks, but the server takes at most 1024"),
        ("text", InputTypeError, "documents: must be a sequence of lists of chunks, got str"),
        (None, InputTypeError, "documents: must be a sequence of lists of chunks, got NoneType"),
        (["text"], InputTypeError, r"documents\[0\]: must be a sequence of chunks, not one string"),
        ([None], InputTypeError, r"documents\[0\]: text: must be a string or a sequence of strings"),
    ],
)
def test_what_are_no_documents_is_told(fake, documents, kind, match):
    with client_of(fake.Transport()) as client, pytest.raises(kind, match=match):
        client.embed_context(documents)
