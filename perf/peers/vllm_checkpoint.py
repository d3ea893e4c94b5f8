"""A checkpoint as vLLM 0.22 reads it, where it would not take it as it is.

Takes what Lazuli knows of a checkpoint; returns its folder, or one beside it with the same weights and a configuration
in words that vLLM knows: the kind of model, its architecture, whether it looks ahead, how it pools.
"""

import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lazuli.checkpoint import Checkpoint
from random_checkpoint import POOLING_FLAGS

# Of architectures that vLLM has under another name, or whose configuration may not say what they are.
_SETTINGS: dict[str, dict[str, Any]] = {
    "PPLXQwen3Model": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "is_causal": False},
    "Qwen3Model": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]},
    "BertModel": {"model_type": "bert"},
    # As published ones say; transformers 5 does not add it any more, and vLLM asks for it.
    "XLMRobertaModel": {"position_embedding_type": "absolute"},
}
_WEIGHTS_AND_WORDS = ("*.safetensors", "*.safetensors.index.json", "tokenizer*", "vocab*", "special_tokens_map.json")


def vllm_checkpoint(found: Checkpoint) -> Path:
    """The folder for vLLM.

    Raises:
        ValueError: If the checkpoint has layers behind its pooling, which would be lost.
    """
    config = {**found.model, **_SETTINGS.get(found.architecture, {})}
    if config == dict(found.model) and _pooling_is_told(found):
        return found.path
    if found.dense:
        raise ValueError(f"{found.path} has layers behind its pooling; it cannot be rewritten for vLLM")
    key = hashlib.sha256(str(found.path.resolve()).encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / "lazuli-vllm" / f"{found.path.name}-{key}"
    (folder / "1_Pooling").mkdir(parents=True, exist_ok=True)
    for pattern in _WEIGHTS_AND_WORDS:
        for file in found.path.glob(pattern):
            (folder / file.name).unlink(missing_ok=True)
            (folder / file.name).symlink_to(file.resolve())
    kinds = {"Transformer": "", "Pooling": "1_Pooling"} | ({"Normalize": "2_Normalize"} if found.normalize else {})
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in kinds.items()]
    _write(folder / "config.json", config)
    _write(folder / "modules.json", modules)
    _write(folder / "1_Pooling" / "config.json", {POOLING_FLAGS[found.pooling]: True})
    return folder


def _pooling_is_told(found: Checkpoint) -> bool:
    """Whether it is there in the older words, which vLLM looks for."""
    folders = [folder for kind, folder in found.modules if kind == "Pooling"]
    file = found.path / folders[0] / "config.json" if folders else None
    told: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file and file.is_file() else {}
    return told.get(POOLING_FLAGS[found.pooling]) is True


def _write(file: Path, content: object) -> None:
    file.write_text(json.dumps(content, indent=1), encoding="utf-8")
