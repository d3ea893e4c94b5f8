"""What can be tuned of the `rerank_tokenizer` models, checked once at start.

Takes the string parameters of a `config.pbtxt`, returns a frozen dataclass. `None` (written `auto`) means that the
checkpoint decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from lazuli import parameters
from lazuli.config import DEFAULT_CHECKPOINT, TOKENIZER_BACKENDS, check_metrics
from lazuli.errors import ConfigError

PAIR_TEMPLATES = ("segments", "qwen3", "texts")
PAIR_TRUNCATIONS = ("longest_first", "only_second")


@dataclass(frozen=True)
class PairTokenizerConfig:
    """Parameters of `rerank_tokenizer`.

    Attributes:
        checkpoint: A folder, or the name of a checkpoint that a package carries; the engine's.
        max_seq_length: Most tokens of a pair, special tokens and prompt included; auto follows the model's reference.
        pair_template: How a query and a document make one input: `segments`, with the special tokens that the
            tokenizer puts around and between them, `qwen3`, the prompt of Qwen3-Reranker, or `texts`, one behind the
            other, for embedding models.
        pair_truncation: What of a pair of segments is cut: `longest_first`, or `only_second`, which leaves a query of
            up to three quarters of the limit as it is.
        default_instruction: For requests that give none; auto is the template's own.
        threads: Threads that tokenise one request; auto is one per core that the process may use, of four and more
            three of four.
        tokenizer_backend: `huggingface`, `kitoken` or `nanotoken`; auto is the quickest that equals the first.
        metrics: `on` or `off`: whether figures of the tokenizer join those of Triton's metrics endpoint.
    """

    checkpoint: str = DEFAULT_CHECKPOINT
    max_seq_length: int | None = None
    pair_template: str | None = None
    pair_truncation: str | None = None
    default_instruction: str | None = None
    threads: int | None = None
    tokenizer_backend: str | None = None
    metrics: str = "on"

    def __post_init__(self) -> None:
        for name, choices in (
            ("pair_template", PAIR_TEMPLATES),
            ("pair_truncation", PAIR_TRUNCATIONS),
            ("tokenizer_backend", TOKENIZER_BACKENDS),
        ):
            value = getattr(self, name)
            if value is not None and value not in choices:
                raise ConfigError(f"{name}: {value!r} is not one of auto, {', '.join(choices)}")
        check_metrics(self.metrics)
        for name in ("max_seq_length", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}: must be at least 1, got {value}")

    @classmethod
    def from_parameters(cls, values: Mapping[str, str]) -> "PairTokenizerConfig":
        """Parse the parameters of a `config.pbtxt`.

        Raises:
            ConfigError: If one is unknown, malformed or out of range.
        """
        return parameters.parse(cls, values)
