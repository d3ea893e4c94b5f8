"""all-MiniLM-L6-v2 with its real weights, against sentence-transformers and transformers."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import BertModel

from lazuli.checkpoint import resolve_checkpoint
from lazuli.config import EngineConfig, TokenizerConfig
from lazuli.engine import Engine
from lazuli.options import RequestOptions
from lazuli.tokenizer import TextTokenizer

NAME = "all-MiniLM-L6-v2"
CPU = torch.device("cpu")
MIN_COSINE = 1 - 1e-5
MAX_DIFFERENCE = 1e-4
LENGTHS = (1, 2, 3, 4, 5, 8, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 384, 500, 511, 512)
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
BATCH = 32


@pytest.fixture(scope="module", autouse=True)
def environment():
    """`TextTokenizer.from_config` sets this; put it back."""
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    yield
    if before is None:
        os.environ.pop("TOKENIZERS_PARALLELISM", None)
    else:
        os.environ["TOKENIZERS_PARALLELISM"] = before


@pytest.fixture(scope="module")
def texts():
    """Without the few that spell a special token: there sentence-transformers differs, as tested below."""
    return [text for text in read_texts() if not spells_special_token(text)]


@pytest.fixture(scope="module")
def engine():
    return Engine(EngineConfig(checkpoint=NAME, dtype="float32"), CPU)


@pytest.fixture(scope="module")
def bfloat16_engine():
    return Engine(EngineConfig(checkpoint=NAME, dtype="bfloat16"), CPU)


@pytest.fixture(scope="module")
def sentence_transformer():
    return SentenceTransformer(str(resolve_checkpoint(NAME)), device="cpu")


@pytest.fixture(scope="module")
def rows(texts):
    """The ids of every text, of up to 512 tokens."""
    return tokenize(texts, max_seq_length=512)


@pytest.fixture(scope="module")
def vectors(engine, rows):
    return embed(engine, rows)


def read_texts():
    file = Path(__file__).resolve().parents[1] / "data" / "sentences.jsonl"
    return [json.loads(line)["text"] for line in file.read_text(encoding="utf-8").splitlines()]


def spells_special_token(text):
    return any(token in text for token in SPECIAL_TOKENS)


def tokenize(texts, max_seq_length=None, **options):
    tokenizer = TextTokenizer.from_config(TokenizerConfig(checkpoint=NAME, max_seq_length=max_seq_length))
    return [np.array(text.input_ids, np.int32) for text in tokenizer.tokenize(texts, RequestOptions(**options))]


def embed(engine, rows):
    """In batches of mixed lengths, as they come."""
    return np.concatenate([engine.embed_ids(rows[first : first + BATCH]) for first in range(0, len(rows), BATCH)])


def check(show, mine, reference, min_cosine, max_difference):
    """Compare vectors row by row; shows the worst of each measure."""
    assert mine.shape == reference.shape
    assert mine.dtype == np.float32
    a, b = mine.astype(np.float64), reference.astype(np.float64)
    cosines = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    difference = float(np.abs(a - b).max())
    show(f"{len(a)} vectors, least cosine 1 - {1 - cosines.min():.1e}, max-abs {difference:.1e}")
    assert cosines.min() >= min_cosine, f"row {int(cosines.argmin())}"
    assert difference <= max_difference


def test_the_sentences_cover_languages_and_lengths(texts, rows):
    assert len(texts) >= 300
    lengths = sorted(map(len, rows))
    assert lengths[0] <= 4
    assert lengths[-1] > 384
    assert sum(length > 256 for length in lengths) >= 20


def test_sentences(show, sentence_transformer, texts, vectors, monkeypatch):
    monkeypatch.setattr(sentence_transformer, "max_seq_length", 512)
    reference = sentence_transformer.encode(texts, batch_size=BATCH, show_progress_bar=False)
    check(show, vectors, reference, MIN_COSINE, MAX_DIFFERENCE)


def test_sentences_that_spell_special_tokens(show, sentence_transformer, engine, monkeypatch):
    """sentence-transformers makes special tokens of them unless told not to; ours never does."""
    texts = [text for text in read_texts() if spells_special_token(text)]
    assert 1 <= len(texts) <= 5
    mine = embed(engine, tokenize(texts))
    parsed = sentence_transformer.encode(texts, show_progress_bar=False)
    assert ((mine * parsed).sum(axis=1) < 0.99).all()
    monkeypatch.setattr(sentence_transformer.tokenizer, "split_special_tokens", True)
    check(show, mine, sentence_transformer.encode(texts, show_progress_bar=False), MIN_COSINE, MAX_DIFFERENCE)


def test_sentences_as_the_checkpoint_limits_them(show, sentence_transformer, texts, engine):
    """sentence-transformers cuts at 256 tokens by itself; ours does if it is asked."""
    assert sentence_transformer.max_seq_length == 256
    rows = tokenize(texts, truncate="end")
    assert max(map(len, rows)) == 256
    reference = sentence_transformer.encode(texts, batch_size=BATCH, show_progress_bar=False)
    check(show, embed(engine, rows), reference, MIN_COSINE, MAX_DIFFERENCE)


@pytest.fixture(scope="module")
def passage(rows):
    """More than 512 real ids, without special tokens."""
    return np.concatenate([row[1:-1] for row in sorted(rows, key=len)[-3:]])


@pytest.fixture(scope="module")
def cut_rows(passage):
    """One row of each length; from 3 tokens on between [CLS] and [SEP]."""
    rows = [passage[:length] if length < 3 else np.r_[101, passage[: length - 2], 102] for length in LENGTHS]
    return [row.astype(np.int32) for row in rows]


@pytest.fixture(scope="module")
def cut_reference(cut_rows):
    """`transformers` one row at a time, then the mean over its tokens, of unit length."""
    model = BertModel.from_pretrained(resolve_checkpoint(NAME)).eval()
    references = []
    with torch.inference_mode():
        for row in cut_rows:
            hidden = model(input_ids=torch.from_numpy(row).long()[None]).last_hidden_state[0]
            references.append(torch.nn.functional.normalize(hidden.mean(dim=0), dim=0).numpy())
    return np.stack(references)


def test_exact_lengths(show, engine, cut_rows, cut_reference):
    assert tuple(map(len, cut_rows)) == LENGTHS
    alone = np.concatenate([engine.embed_ids([row]) for row in cut_rows])
    check(show, alone, cut_reference, MIN_COSINE, MAX_DIFFERENCE)


def test_exact_lengths_in_one_batch(show, engine, cut_rows, cut_reference):
    check(show, engine.embed_ids(cut_rows), cut_reference, MIN_COSINE, MAX_DIFFERENCE)


def test_alone_is_equal_to_batched(show, engine, rows, vectors):
    sample = range(0, len(rows), 5)
    alone = np.concatenate([engine.embed_ids([rows[row]]) for row in sample])
    check(show, alone, vectors[list(sample)], 1 - 1e-6, 1e-5)


def test_a_text_at_two_places_of_a_batch(show, engine, rows):
    for row in (rows[0], max(rows, key=len)):
        first, _, _, last = engine.embed_ids([row, rows[7], rows[11], row])
        check(show, first[None], last[None], 1 - 1e-6, 1e-5)


def test_bfloat16(show, bfloat16_engine, rows, vectors):
    sample = range(0, len(rows), 15)
    quick = embed(bfloat16_engine, [rows[row] for row in sample])
    check(show, quick, vectors[list(sample)], 0.999, 0.02)


def test_exact_lengths_in_bfloat16(show, bfloat16_engine, cut_rows, cut_reference):
    check(show, embed(bfloat16_engine, cut_rows), cut_reference, 0.999, 0.02)


def test_bfloat16_alone_is_equal_to_batched(show, bfloat16_engine, rows):
    sample = rows[::30]
    alone = np.concatenate([bfloat16_engine.embed_ids([row]) for row in sample])
    check(show, bfloat16_engine.embed_ids(sample), alone, 0.9999, 0.01)
