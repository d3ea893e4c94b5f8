"""The texts of a soak, and what is right for each: the answer of the same server to that text alone, before the load.

Takes the address of a server and a checkpoint; makes requests, and compares what is answered. Knows nothing of loads.
"""

from dataclasses import dataclass

import grpc  # type: ignore[import-untyped, unused-ignore]
import numpy as np

from clients.senders import Sender, connect
from lazuli.checkpoint import resolve_checkpoint
from lazuli_client import codec
from lazuli_client.embeddings import Outputs
from lazuli_client.request import EmbedRequest, text_request, token_request
from soaking.kinds import KINDS, RERANK_KINDS, Kind
from texts.files import PASSAGES, QUERIES, read_texts
from texts.lengths import Lengths
from texts.rows import load_tokenizer, row_spec

# What float16 leaves of a value.
_FLOAT16 = 2.0**-10
_TOO_LONG = "word " * 40_000
# Real texts, and as many of words.
_TEXTS = 200
_OF_WORDS = Lengths(4, 64)


@dataclass
class Pool:
    """Texts, and what is right for each.

    Attributes:
        texts: N texts, no two with the same ids.
        ids: Of each.
        vectors: [N, D], of each text alone.
        scores: [N, 1], of each text as document of the query `texts[0]`; None where nothing reranks.
        tolerance: Most that an answer may differ, as a share of the length of what is right.
    """

    texts: list[str]
    ids: list[np.ndarray]
    vectors: np.ndarray
    scores: np.ndarray | None
    tolerance: float

    def request(self, kind: Kind, rows: np.ndarray) -> EmbedRequest:
        """A request for some of the texts, no text twice."""
        texts, numbers = [self.texts[row] for row in rows], range(len(rows))
        if kind.sends == "ids":
            return token_request(kind.model, [self.ids[row] for row in rows], kind.parameters, numbers)
        if kind.sends == "pairs":
            columns = {"query": [self.texts[0]] * len(rows), "document": texts}
            tensors = {name: np.array([[each.encode()] for each in column]) for name, column in columns.items()}
            tensors = {name: values.astype(np.object_) for name, values in tensors.items()}
            return EmbedRequest(kind.model, tensors, kind.parameters, numbers)
        if kind.sends == "mistake":
            texts[-1] = _TOO_LONG
        return text_request(kind.model, texts, kind.parameters, numbers)

    def compare(self, kind: Kind, rows: np.ndarray, outputs: Outputs) -> bool:
        """Whether an answer is right to the bit.

        Raises:
            ValueError: If it is not even near.
        """
        values = outputs[kind.output]
        right = (self.scores if kind.sends == "pairs" else self.vectors)[rows]  # type: ignore[index]
        if values.shape != right.shape:
            raise ValueError(f"{kind.output}: {list(values.shape)} in place of {list(right.shape)}")
        if np.array_equal(values, right.astype(values.dtype)):
            return True
        allowed = self.tolerance + (_FLOAT16 if values.dtype == np.float16 else 0.0)
        apart = np.linalg.norm(values.astype(np.float64) - right, axis=1) / np.linalg.norm(right, axis=1)
        if not apart.max() <= allowed:  # so that NaN is not near
            worst = int(np.argmax(np.nan_to_num(apart, nan=np.inf)))
            raise ValueError(
                f"{kind.output}[{worst}] of text {rows[worst]}: {apart[worst]:.2e} away, more than {allowed:g}"
            )
        return False


def make_pool(address: str, checkpoint: str, tolerance: float) -> tuple[Pool, tuple[Kind, ...]]:
    """Texts with what is right for each, asked for one by one; and the kinds of requests that the server answers.

    Raises:
        LazuliError: If a text is answered with an error; its message is one line.
    """
    texts, ids = _make_texts(checkpoint)
    pool = Pool(texts, ids, np.zeros((len(texts), 0)), None, tolerance)
    sender = connect("grpc", address)
    try:
        pool.vectors = _ask_alone(sender, pool, KINDS[0])
        kept = keep_apart(pool.vectors, tolerance)
        pool = Pool([texts[row] for row in kept], [ids[row] for row in kept], pool.vectors[kept], None, tolerance)
        if not _has_model(sender, pool, RERANK_KINDS[0]):
            return pool, KINDS
        pool.scores = _ask_alone(sender, pool, RERANK_KINDS[0])
        return pool, KINDS + RERANK_KINDS
    finally:
        sender.close()


def _make_texts(checkpoint: str) -> tuple[list[str], list[np.ndarray]]:
    """Real texts and texts of words, of up to 64 tokens; no two with the same ids."""
    file = str(resolve_checkpoint(checkpoint) / "tokenizer.json")
    spec, tokenizer, rng = row_spec(file), load_tokenizer(file), np.random.default_rng(0)
    texts = [*rng.permutation(read_texts([PASSAGES, QUERIES]))[:_TEXTS], *spec.open(0).rows(_TEXTS, _OF_WORDS).texts]
    by_ids = {tuple(encoding.ids): text for text, encoding in zip(texts, tokenizer.encode_batch(texts), strict=True)}
    fitting = {ids: str(text) for ids, text in by_ids.items() if spec.num_special < len(ids) <= _OF_WORDS.high}
    return list(fitting.values()), [np.array(ids, np.int32) for ids in fitting]


def _ask_alone(sender: Sender, pool: Pool, kind: Kind) -> np.ndarray:
    rows = (np.array([row]) for row in range(len(pool.texts)))
    try:
        return np.concatenate([sender.send(sender.prepare(pool.request(kind, row)))[kind.output] for row in rows])
    except grpc.RpcError as error:
        raise codec.from_grpc_error(error) from error


def _has_model(sender: Sender, pool: Pool, kind: Kind) -> bool:
    try:
        sender.send(sender.prepare(pool.request(kind, np.array([0]))))
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.NOT_FOUND:
            return False
        raise
    return True


def keep_apart(vectors: np.ndarray, tolerance: float) -> list[int]:
    """Which vectors to keep so that none could be taken for another one."""
    kept: list[int] = []
    for row, vector in enumerate(vectors):
        apart = np.linalg.norm(vectors[kept] - vector, axis=1)
        if not kept or apart.min() > 10 * tolerance * np.linalg.norm(vector):
            kept.append(row)
    return kept
