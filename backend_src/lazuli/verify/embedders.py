"""Ways to get vectors of texts: our engine in process, a running server, transformers, sentence-transformers, a file.

Each takes texts and the name of a prompt, returns [N, D] float32.
"""

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lazuli.checkpoint import Checkpoint, load_checkpoint
from lazuli.config import EngineConfig, TokenizerConfig
from lazuli.errors import ConfigError
from lazuli.options import RequestOptions
from lazuli.template import INPUT_TYPE_PROMPTS
from lazuli.verify.sample import Sample
from lazuli.verify.verdict import Vectors

Embed = Callable[[Sequence[str], str | None], np.ndarray]
_BATCH = 16


def embed_sample(embed: Embed, sample: Sample, prompts: Sequence[str]) -> Vectors:
    """Vectors of a sample, queries and documents with their prompts if the model has such.

    Args:
        embed: The model.
        sample: The texts.
        prompts: Names of the model's prompts.
    """
    query, document = (
        next((name for name in INPUT_TYPE_PROMPTS[kind] if name in prompts), None) for kind in ("query", "document")
    )
    return Vectors(embed(sample.queries, query), embed(sample.documents, document))


def engine_embedder(config: EngineConfig, tokenizer_config: TokenizerConfig) -> Embed:
    """Our engine and tokenizer, in this process."""
    from lazuli.engine import Engine, choose_device
    from lazuli.tokenizer import TextTokenizer

    tokenizer = TextTokenizer.from_config(tokenizer_config)
    engine = Engine(config, choose_device(config.device, None))

    def embed(texts: Sequence[str], prompt_name: str | None) -> np.ndarray:
        options = RequestOptions(prompt_name=prompt_name, truncate="end")
        rows = [np.array(text.input_ids, dtype=np.int32) for text in tokenizer.tokenize(texts, options)]
        normalize = engine.checkpoint.normalize
        parts = [engine.embed_ids(rows[at : at + _BATCH], normalize) for at in range(0, len(rows), _BATCH)]
        return np.concatenate(parts)

    return embed


def server_embedder(url: str, protocol: Any, model: str) -> Embed:
    """A running server."""
    from lazuli_client import LazuliClient

    client = LazuliClient(url, protocol=protocol, model=model)

    def embed(texts: Sequence[str], prompt_name: str | None) -> np.ndarray:
        vectors: np.ndarray = client.embed(list(texts), prompt_name=prompt_name, truncate="end").embeddings
        return vectors

    return embed


def transformers_embedder(checkpoint: Checkpoint) -> Embed:
    """`transformers` in float32 on the CPU, one text at a time: no padding, nothing of ours but pooling.

    Raises:
        ConfigError: If it is not installed or cannot load the checkpoint.
    """
    _need("transformers")
    import torch
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging as transformers_logging

    quiet: Any = transformers_logging
    quiet.disable_progress_bar()
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(checkpoint.path)
        model: Any = AutoModel.from_pretrained(checkpoint.path, dtype=torch.float32).eval()
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{checkpoint.path}: transformers cannot load it ({error})") from None

    @torch.inference_mode()
    def embed(texts: Sequence[str], prompt_name: str | None) -> np.ndarray:
        prompt = checkpoint.prompts[prompt_name] if prompt_name is not None else ""
        rows = []
        for text in texts:
            inputs = tokenizer(
                prompt + text, return_tensors="pt", truncation=True, max_length=checkpoint.max_seq_length
            )
            rows.append(_pool(model(**inputs).last_hidden_state[0].numpy(), checkpoint.pooling))
        vectors: np.ndarray = np.stack(rows)
        if checkpoint.normalize:
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors

    return embed


def sentence_transformers_embedder(checkpoint: Checkpoint) -> Embed:
    """`sentence-transformers` in float32 on the CPU.

    Raises:
        ConfigError: If it is not installed or cannot load the checkpoint.
    """
    _need("sentence-transformers")
    from sentence_transformers import SentenceTransformer

    try:
        model: Any = SentenceTransformer(str(checkpoint.path), device="cpu")
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{checkpoint.path}: sentence-transformers cannot load it ({error})") from None

    def embed(texts: Sequence[str], prompt_name: str | None) -> np.ndarray:
        vectors: np.ndarray = model.encode(list(texts), prompt_name=prompt_name, show_progress_bar=False)
        return vectors

    return embed


LIBRARIES: dict[str, Callable[[Checkpoint], Embed]] = {
    "transformers": transformers_embedder,
    "sentence-transformers": sentence_transformers_embedder,
}


def reference_vectors(reference: str, checkpoint: str, sample: Sample) -> Vectors:
    """The vectors that others are held against.

    Args:
        reference: `transformers`, `sentence-transformers`, or a file that `save_vectors` wrote.
        checkpoint: For a library.
        sample: The texts.

    Raises:
        ConfigError: If the reference is neither, or cannot be had.
    """
    if reference not in LIBRARIES:
        return load_vectors(Path(reference))
    loaded = load_checkpoint(checkpoint)
    return embed_sample(LIBRARIES[reference](loaded), sample, list(loaded.prompts))


def save_vectors(path: Path, vectors: Vectors) -> None:
    """Write vectors to an `.npz` file, as a reference for later.

    Raises:
        ConfigError: If it cannot be written.
    """
    try:
        with path.open("wb") as file:
            np.savez(file, queries=vectors.queries, documents=vectors.documents)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from None


def load_vectors(path: Path) -> Vectors:
    """Read what `save_vectors` wrote.

    Raises:
        ConfigError: If it is no such file.
    """
    if not path.is_file():
        raise ConfigError(f"reference: {str(path)!r} is neither a file nor one of {', '.join(LIBRARIES)}")
    try:
        with np.load(path) as content:
            return Vectors(content["queries"], content["documents"])
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise ConfigError(f"reference: {path} does not hold queries and documents ({error})") from None


def _pool(hidden: np.ndarray, pooling: str) -> np.ndarray:
    if pooling == "mean":
        mean: np.ndarray = hidden.mean(axis=0)
        return mean
    row: np.ndarray = hidden[0 if pooling == "cls" else -1]
    return row


def _need(package: str) -> None:
    if importlib.util.find_spec(package.replace("-", "_")) is None:
        raise ConfigError(f"reference: {package} is not installed; pip install {package}")
