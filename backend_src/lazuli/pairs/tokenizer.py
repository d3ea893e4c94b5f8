"""Pairs of a query and a document to token ids, as the reference of each model makes and cuts them.

Takes UTF-8 strings and request options, returns ragged ids. As with single texts, no text ever becomes special tokens.
Knows nothing of Triton or torch.
"""

import json
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from lazuli.checkpoint import Checkpoint, load_checkpoint
from lazuli.config import TokenizerConfig
from lazuli.errors import ConfigError
from lazuli.heads.task import scores_by_vectors
from lazuli.pairs.config import PAIR_TEMPLATES, PairTokenizerConfig
from lazuli.pairs.layout import PairLayout, TokenizedPair
from lazuli.pairs.prompt import DEFAULT_INSTRUCTION, MAX_SEQ_LENGTH, PromptTokenizer, read_frame
from lazuli.pairs.truncation import longest_first, only_second
from lazuli.pairs.two_segments import SegmentTokenizer
from lazuli.pairs.two_texts import TextPairTokenizer
from lazuli.reference_encoder import load_reference, use_threads
from lazuli.scoring.options import RerankOptions
from lazuli.text_encoders import choose_encoder
from lazuli.tokenizer import TextTokenizer
from lazuli.tokenizer_definition import read_definition

# The rerankers of FlagEmbedding cut in their own way, and at 512 tokens although their positions are more.
_FLAG = "bge-reranker"
_QWEN3 = "qwen3-reranker"
_FLAG_MAX_SEQ_LENGTH = 512


class PairTokenizer(Protocol):
    """Pairs to ids.

    Attributes:
        max_seq_length: Most tokens of a pair.
        threads: Threads that share the texts of one call, if they are many.
    """

    max_seq_length: int
    threads: int

    def tokenize(self, queries: Sequence[str], documents: Sequence[str], options: RerankOptions) -> list[TokenizedPair]:
        """Tokenise the pairs of one request.

        Args:
            queries: N strings.
            documents: N strings.
            options: `truncate` and `instruction` count here.

        Returns:
            N results in the order of the pairs.

        Raises:
            InputError: If a pair is too long and must not be truncated, or no token is left of it; names the row.
            OptionError: If the model cannot do what is asked for.
        """
        ...


def load_pair_tokenizer(config: PairTokenizerConfig) -> PairTokenizer:
    """Load the tokenizer of `config.checkpoint`.

    Raises:
        ConfigError: If the checkpoint or a parameter is unusable.
    """
    threads = use_threads(config.threads)
    checkpoint = load_checkpoint(config.checkpoint)
    template = choose_template(config, checkpoint)
    if template == "texts":
        names = ("checkpoint", "max_seq_length", "threads", "tokenizer_backend")
        texts = TokenizerConfig(**{name: getattr(config, name) for name in names})
        return TextPairTokenizer(TextTokenizer.from_config(texts), config.default_instruction)
    definition = read_definition(checkpoint.path)
    tokenizer = load_reference(definition)
    frame = read_frame(tokenizer)
    encoder = choose_encoder(config.tokenizer_backend, definition, tokenizer, threads)
    max_seq_length = find_limit(config, checkpoint)
    if template == "qwen3":
        instruction = DEFAULT_INSTRUCTION if config.default_instruction is None else config.default_instruction
        return PromptTokenizer(frame, tokenizer, encoder, max_seq_length, threads, instruction)
    if config.default_instruction is not None:
        raise ConfigError("default_instruction: pairs of segments have none; leave it at auto")
    cut = only_second(max_seq_length) if choose_truncation(config, checkpoint) == "only_second" else longest_first
    layout = PairLayout.of(tokenizer, has_segments=_has_segments(checkpoint))
    return SegmentTokenizer(layout, cut, encoder, max_seq_length, threads)


def choose_template(config: PairTokenizerConfig, checkpoint: Checkpoint) -> str:
    """One of `PAIR_TEMPLATES`: as the configuration says, else by the kind of model.

    Those that score by vectors read each text by itself; Qwen3-Reranker has its prompt, also where it was made a
    classifier.
    """
    if config.pair_template is not None:
        return config.pair_template
    if scores_by_vectors(checkpoint):
        return "texts"
    architecture = checkpoint.architecture
    is_classifier = architecture == "Qwen3ForSequenceClassification" and _is_named(checkpoint, _QWEN3)
    return "qwen3" if architecture == "Qwen3ForCausalLM" or is_classifier else "segments"


def check_template(config: PairTokenizerConfig, checkpoint: Checkpoint) -> None:
    """Check that a template is one for the kind of model: the engine takes two texts, or one that holds both.

    Raises:
        ConfigError: If it is not.
    """
    by_vectors = scores_by_vectors(checkpoint)
    if (choose_template(config, checkpoint) == "texts") != by_vectors:
        what = "each text by itself" if by_vectors else "both texts together"
        needed = "texts" if by_vectors else " or ".join(name for name in PAIR_TEMPLATES if name != "texts")
        raise ConfigError(
            f"pair_template: {config.pair_template!r}, but {checkpoint.path} reads {what}; it needs {needed}"
        )


def choose_truncation(config: PairTokenizerConfig, checkpoint: Checkpoint) -> str:
    """One of `PAIR_TRUNCATIONS`, likewise; for pairs of segments."""
    return config.pair_truncation or ("only_second" if _is_named(checkpoint, _FLAG) else "longest_first")


def pad_pairs(pairs: Sequence[TokenizedPair]) -> dict[str, np.ndarray]:
    """Lay ragged pairs out as rectangles, which is what Triton tensors can carry.

    Returns:
        `input_ids` [N, S] int32, `attention_mask` and `token_type_ids` [N, S] int8, S the longest of the N pairs;
        padding is 0 in all three.
    """
    lengths = np.fromiter((len(pair.input_ids) for pair in pairs), dtype=np.int64, count=len(pairs))
    mask = np.arange(lengths.max())[None, :] < lengths[:, None]
    tensors = {"attention_mask": mask.astype(np.int8)}
    for name, kind in (("input_ids", np.int32), ("token_type_ids", np.int8)):
        tensors[name] = np.zeros(mask.shape, dtype=kind)
        tensors[name][mask] = np.concatenate([np.array(getattr(pair, name), dtype=kind) for pair in pairs])
    return tensors


def _has_segments(checkpoint: Checkpoint) -> bool:
    """Whether the reference tells the model the segments: unless the tokenizer's file lists the inputs without them."""
    file = checkpoint.path / "tokenizer_config.json"
    try:
        names = json.loads(file.read_text(encoding="utf-8")).get("model_input_names") if file.is_file() else None
    except (ValueError, AttributeError):
        raise ConfigError(f"checkpoint: {file} is not a JSON object") from None
    return names is None or "token_type_ids" in names


def _is_named(checkpoint: Checkpoint, name: str) -> bool:
    """Whether its folder has this in its name, or its name on the hub: the files do not tell what it was trained as."""
    path = checkpoint.path.resolve()
    folder = path.parents[1].name if path.parent.name == "snapshots" else path.name
    names = (checkpoint.path.name, folder, str(checkpoint.model.get("_name_or_path", "")))
    return any(name in known.lower() for known in names)


def find_limit(config: PairTokenizerConfig, checkpoint: Checkpoint) -> int:
    """Most tokens of a pair: as the configuration says, else what the reference of the model takes.

    Raises:
        ConfigError: If the model takes fewer.
    """
    asked = config.max_seq_length
    if asked is not None and asked > checkpoint.max_positions:
        raise ConfigError(f"max_seq_length: {asked}, but the model takes {checkpoint.max_positions} tokens")
    if asked is not None:
        return asked
    if choose_template(config, checkpoint) == "qwen3":
        return min(checkpoint.max_seq_length, MAX_SEQ_LENGTH)
    if choose_truncation(config, checkpoint) == "only_second":
        return min(checkpoint.max_seq_length, _FLAG_MAX_SEQ_LENGTH)
    return checkpoint.max_seq_length
