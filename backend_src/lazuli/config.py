"""What can be tuned: the parameters of the `embedding*` and `tokenizer` models, checked once at start.

Takes the string parameters of a `config.pbtxt`, returns frozen dataclasses. Knows nothing of checkpoints or devices:
`None` (written `auto`) means that the engine decides once it knows both.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from lazuli import parameters
from lazuli.errors import ConfigError

DEFAULT_CHECKPOINT = "all-MiniLM-L6-v2"
DTYPES = ("float32", "bfloat16", "float16")
POOLINGS = ("mean", "cls", "last")
TASKS = ("embed", "rerank", "classify", "context")
MATRYOSHKA = ("yes", "no")
METRICS = ("on", "off")
GRAPH_CAPTURES = ("idle", "lazy", "off")
TOKENIZER_BACKENDS = ("huggingface", "kitoken", "nanotoken")
DEFAULT_INSTRUCTION_TEMPLATE = "{instruction}{text}"

_POSITIVE = (
    "token_budget",
    "max_queued_tokens",
    "max_waiting_tokens",
    "bulk_tokens",
    "max_queue_ms",
    "max_answer_mb",
    "threads",
    "max_batch_sequences",
    "max_in_flight",
    "graph_max_tokens",
    "graph_memory_mb",
    "max_graphs",
)


@dataclass(frozen=True)
class EngineConfig:
    """Parameters of `embedding` and `embedding_stream`, and of the other models that an engine runs in.

    Attributes:
        checkpoint: Folder of a Hugging Face checkpoint, or the name of one that an installed package carries.
        task: `embed` for vectors, `rerank` for scores of pairs, `classify` for labels, or `context` for
            vectors of chunks that are read together with the rest of their documents.
        device: `cpu`, `cuda` or `cuda:N`; auto takes the GPU that Triton assigns to the instance, else the CPU.
        dtype: `float32`, `bfloat16` or `float16`; auto is bfloat16 on a GPU, and on a CPU with AMX if its vectors hold.
            With float16 the engine does not start if a probe overflows.
        pooling: `mean`, `cls` or `last`; auto follows the checkpoint.
        matryoshka: `yes` or `no`: whether requests may cut vectors; auto follows the checkpoint.
        calibration: File of `lazuli calibrate`, for int8 and uint8; auto takes the one in the checkpoint's folder, if
            any.
        attention: Name of an attention backend; auto takes the best one for the device.
        token_budget: Most tokens in one batch; auto is 16384 on a GPU, 2048 on a CPU. A longer text runs alone.
        max_batch_sequences: Most sequences in one batch.
        max_queued_tokens: Tokens waiting in the engine above which `execute()` blocks if the model has several
            instances; auto is 16 budgets.
        max_waiting_tokens: Tokens waiting in the engine above which requests are refused, of queries and of bulk each;
            auto is 256 budgets.
        bulk_tokens: Most tokens of bulk in a batch while queries come. A request of no more counts as a query unless it
            says otherwise. auto is a sixteenth of the budget, at least 256.
        max_queue_ms: Requests that were not begun after so many milliseconds are refused; auto is no limit.
        max_answer_mb: Most MB of 2^20 bytes of the outputs of single tokens, in which each row is filled up to the
            longest, in one answer, or one part of a stream's; more is refused. gRPC carries less than 2048.
        max_in_flight: Batches on the device or on their way back at the same time.
        graph_capture: When CUDA graphs are captured. `idle`: before the engine is ready, in idle gaps, and for a small
            share of the time, while a larger graph stands in; `lazy`: when a size is asked for again; `off`: never.
        graph_max_tokens: Larger batches always run eagerly; auto measures where launching takes a small part of their
            time, at most the token budget.
        graph_memory_mb: Most device memory of all graphs, in MB of 2^20 bytes; the least recently used goes first.
        max_graphs: Most CUDA graphs kept.
        graph_start_s: Most seconds of captures before the engine is ready; the others follow in idle gaps.
        graph_busy_ms: Most milliseconds of captures a second while requests come in.
        cache_dir: Folder of compiled kernels and of profiles of the graphs that were used; auto is `lazuli` in the
            user's cache folder.
        threads: CPU threads of the engine; auto is one per core that the process may use.
        reply_threads: Threads that wait for results and send answers.
        metrics: `on` or `off`: whether figures of the engine join those of Triton's metrics endpoint.
    """

    checkpoint: str = DEFAULT_CHECKPOINT
    task: str = "embed"
    device: str | None = None
    dtype: str | None = None
    pooling: str | None = None
    matryoshka: str | None = None
    calibration: str | None = None
    attention: str | None = None
    token_budget: int | None = None
    max_batch_sequences: int = 512
    max_queued_tokens: int | None = None
    max_waiting_tokens: int | None = None
    bulk_tokens: int | None = None
    max_queue_ms: int | None = None
    max_answer_mb: int = 512
    max_in_flight: int = 2
    graph_capture: str = "idle"
    graph_max_tokens: int | None = None
    graph_memory_mb: int = 2048
    max_graphs: int = 128
    graph_start_s: float = 4.0
    graph_busy_ms: int = 10
    cache_dir: str | None = None
    threads: int | None = None
    reply_threads: int = 4
    metrics: str = "on"

    def __post_init__(self) -> None:
        _check_choice("dtype", self.dtype, DTYPES)
        _check_choice("pooling", self.pooling, POOLINGS)
        _check_choice("matryoshka", self.matryoshka, MATRYOSHKA)
        if self.task not in TASKS:
            raise ConfigError(f"task: {self.task!r} is not one of {', '.join(TASKS)}")
        if self.graph_capture not in GRAPH_CAPTURES:
            raise ConfigError(f"graph_capture: {self.graph_capture!r} is not one of {', '.join(GRAPH_CAPTURES)}")
        check_metrics(self.metrics)
        for name in _POSITIVE:
            _check_at_least(name, getattr(self, name), 1)
        for name in ("graph_start_s", "graph_busy_ms"):
            _check_at_least(name, getattr(self, name), 0)
        # One thread may wait for each batch in flight, and one more must be free to send.
        _check_at_least("reply_threads", self.reply_threads, self.max_in_flight + 1)

    @classmethod
    def from_parameters(cls, values: Mapping[str, str]) -> "EngineConfig":
        """Parse the parameters of a `config.pbtxt`.

        Raises:
            ConfigError: If one is unknown, malformed or out of range.
        """
        return parameters.parse(cls, values)


@dataclass(frozen=True)
class TokenizerConfig:
    """Parameters of `tokenizer`.

    Attributes:
        checkpoint: As in `EngineConfig`; the two must agree.
        max_seq_length: Most tokens of a text, special tokens included; auto follows the checkpoint.
        prompts: JSON object of prompt name to prompt, added to those of the checkpoint; empty for none.
        default_prompt_name: The prompt for requests that name none; auto follows the checkpoint.
        instruction_template: How `instruction` and the text make the input; holds `{instruction}` and `{text}`.
        threads: Threads that tokenise one request; auto is one per core that the process may use, of four and more
            three of four.
        tokenizer_backend: `huggingface`, `kitoken` or `nanotoken`; auto is the quickest that equals the first.
        metrics: As in `EngineConfig`.
    """

    checkpoint: str = DEFAULT_CHECKPOINT
    max_seq_length: int | None = None
    prompts: str = ""
    default_prompt_name: str | None = None
    instruction_template: str = DEFAULT_INSTRUCTION_TEMPLATE
    threads: int | None = None
    tokenizer_backend: str | None = None
    metrics: str = "on"

    def __post_init__(self) -> None:
        _check_choice("tokenizer_backend", self.tokenizer_backend, TOKENIZER_BACKENDS)
        check_metrics(self.metrics)
        _check_at_least("max_seq_length", self.max_seq_length, 1)
        _check_at_least("threads", self.threads, 1)
        for placeholder in ("{instruction}", "{text}"):
            if self.instruction_template.count(placeholder) != 1:
                raise ConfigError(
                    f"instruction_template: must hold {placeholder} once, got {self.instruction_template!r}"
                )
        self.parsed_prompts()

    def parsed_prompts(self) -> dict[str, str]:
        """The JSON of `prompts` as a dictionary.

        Raises:
            ConfigError: If it is not a JSON object of strings.
        """
        try:
            prompts = json.loads(self.prompts or "{}")
        except json.JSONDecodeError as error:
            raise ConfigError(f"prompts: not valid JSON ({error})") from None
        if not isinstance(prompts, dict) or not all(isinstance(value, str) for value in prompts.values()):
            raise ConfigError(f"prompts: must be a JSON object of strings, got {self.prompts!r}")
        return prompts

    @classmethod
    def from_parameters(cls, values: Mapping[str, str]) -> Self:
        """Parse the parameters of a `config.pbtxt`.

        Raises:
            ConfigError: If one is unknown, malformed or out of range.
        """
        return parameters.parse(cls, values)


def check_metrics(value: str) -> None:
    """Refuse anything but `on` and `off`.

    Raises:
        ConfigError: If it is something else.
    """
    if value not in METRICS:
        raise ConfigError(f"metrics: {value!r} is not one of {', '.join(METRICS)}")


def _check_choice(name: str, value: str | None, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        raise ConfigError(f"{name}: {value!r} is not one of auto, {', '.join(choices)}")


def _check_at_least(name: str, value: float | None, least: int) -> None:
    if value is not None and value < least:
        raise ConfigError(f"{name}: must be at least {least}, got {value}")
