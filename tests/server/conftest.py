"""A real server with both doors, shared by the tests of this folder, and reference vectors for real sentences."""

import json
from pathlib import Path

import numpy as np
import pytest

from lazuli.launch.running import running_server

# Read as special tokens by the reference, as text by Lazuli, on purpose.
SPECIAL_TOKENS = ("[CLS]", "[SEP]", "[MASK]", "[PAD]", "[UNK]")
DATA = Path(__file__).parent.parent / "data"
# The checkpoint's own limit, which the server keeps to by default.
MAX_SEQ_LENGTH = 256


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.server)


@pytest.fixture(scope="session", autouse=True)
def own_models(tmp_path_factory):
    """No test serves what the user has added."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="session")
def server():
    with running_server() as running:
        yield running


@pytest.fixture(scope="session")
def sentence_transformer():
    from sentence_transformers import SentenceTransformer

    from lazuli.checkpoint import resolve_checkpoint

    return SentenceTransformer(str(resolve_checkpoint("all-MiniLM-L6-v2")), device="cpu")


@pytest.fixture(scope="session")
def reference(sentence_transformer):
    """Sentences that fit the limit, with the vectors of sentence-transformers: (list of N texts, [N, 384])."""
    lines = (DATA / "sentences.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    texts = [text for text in texts if not any(token in text for token in SPECIAL_TOKENS)]
    lengths = [len(ids) for ids in sentence_transformer.tokenizer(texts, truncation=False, verbose=False)["input_ids"]]
    texts = [text for text, length in zip(texts, lengths, strict=True) if length <= MAX_SEQ_LENGTH]
    return texts, sentence_transformer.encode(texts, show_progress_bar=False)


def assert_same_vectors(actual, expected):
    """Rows of unit length that point where they should."""
    assert actual.shape == expected.shape
    cosines = (actual * expected).sum(axis=1) / np.linalg.norm(expected, axis=1)
    assert cosines.min() >= 1 - 1e-5, f"row {cosines.argmin()}: cosine {cosines.min()}"
    assert np.abs(actual - expected).max() < 1e-4
