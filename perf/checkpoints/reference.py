"""What a model of `transformers` and plain torch make of rows of token ids, one row at a time.

Takes a model that `checkpoints.families` or `transformers` loaded and its checkpoint, returns each output by name. Uses
nothing of the engine's but the checkpoint's settings.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from lazuli.checkpoint import Checkpoint

# The ids of "yes" and "no" in Qwen3's vocabulary.
YES, NO = 9693, 2152
Outputs = dict[str, list[np.ndarray]]


@torch.inference_mode()
def reference_outputs(model: Any, checkpoint: Checkpoint, rows: Sequence[np.ndarray]) -> Outputs:
    """Run each row alone.

    Args:
        model: In float32.
        checkpoint: What it was loaded from.
        rows: Ids of each text, [L].

    Returns:
        `vectors` [D], not scaled; `sparse` [V]; `multi` [S, D]; or `score` [1], for each row, as far as the model has
        them.
    """
    outputs: Outputs = {}
    for row in rows:
        for name, values in _outputs(model, checkpoint, torch.from_numpy(row).long()[None]).items():
            outputs.setdefault(name, []).append(values.float().numpy())
    return outputs


def _outputs(model: Any, checkpoint: Checkpoint, ids: Tensor) -> dict[str, Tensor]:
    kind = type(model).__name__
    if kind.endswith("ForSequenceClassification"):
        return {"score": model(ids).logits[0]}
    if kind.endswith("ForCausalLM"):
        logits = model(ids).logits[0, -1]
        return {"score": (logits[YES] - logits[NO])[None]}
    if kind.endswith("ForMaskedLM"):
        return {"sparse": model(ids).logits[0].relu().log1p().amax(dim=0)}
    hidden = model(ids, **_mask(checkpoint, ids.shape[1])).last_hidden_state[0]
    vector = hidden.mean(dim=0) if checkpoint.pooling == "mean" else hidden[0 if checkpoint.pooling == "cls" else -1]
    for layer in checkpoint.dense:
        vector = load_file(layer.path / "model.safetensors")["linear.weight"] @ vector
    return {"vectors": vector, **_token_outputs(checkpoint.path, hidden, ids[0])}


def _mask(checkpoint: Checkpoint, length: int) -> dict[str, Any]:
    """Perplexity's models are Qwen3 that looks at both sides."""
    nothing_masked = torch.zeros(1, 1, length, length)
    return {"attention_mask": {"full_attention": nothing_masked}} if checkpoint.has_quantizer else {}


def _token_outputs(folder: Path, hidden: Tensor, ids: Tensor) -> dict[str, Tensor]:
    """Those of bge-m3; no id of the rows is a special one."""
    if not (folder / "sparse_linear.safetensors").is_file():
        return {}
    sparse, multi = (load_file(folder / f"{name}_linear.safetensors") for name in ("sparse", "colbert"))
    weights = torch.nn.functional.linear(hidden, sparse["weight"], sparse["bias"]).relu()[:, 0]
    vectors = torch.nn.functional.linear(hidden[1:], multi["weight"], multi["bias"])
    spread = torch.zeros(int(ids.max()) + 1).scatter_reduce(0, ids, weights, "amax")
    return {"sparse": spread, "multi": torch.nn.functional.normalize(vectors, dim=1)}
