"""The gateway from LangChain and LlamaIndex, where they are installed: they ask in ways of their own."""

import numpy as np
import pytest

from .conftest import assert_same_vectors
from .gateways import running_gateway

COUNT = 9


@pytest.fixture(scope="module")
def url(server, tmp_path_factory):
    with running_gateway(tmp_path_factory.mktemp("frameworks") / "log", [server.grpc]) as gateway:
        yield f"{gateway.url}/v1"


def test_langchain(url, reference):
    langchain = pytest.importorskip("langchain_openai", reason="needs langchain-openai")
    embeddings = langchain.OpenAIEmbeddings(
        model="embed", base_url=url, api_key="none", check_embedding_ctx_length=False, chunk_size=4
    )
    vectors = embeddings.embed_documents(reference[0][:COUNT])
    assert_same_vectors(np.array(vectors, np.float32), reference[1][:COUNT])
    assert_same_vectors(np.array([embeddings.embed_query(reference[0][0])], np.float32), reference[1][:1])


def test_llama_index(url, reference):
    llama = pytest.importorskip("llama_index.embeddings.openai_like", reason="needs llama-index-embeddings-openai-like")
    embeddings = llama.OpenAILikeEmbedding(model_name="embed", api_base=url, api_key="none", embed_batch_size=4)
    vectors = embeddings.get_text_embedding_batch(reference[0][:COUNT])
    assert_same_vectors(np.array(vectors, np.float32), reference[1][:COUNT])
    assert_same_vectors(np.array([embeddings.get_query_embedding(reference[0][0])], np.float32), reference[1][:1])
