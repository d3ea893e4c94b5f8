"""Writes a checkpoint as one ONNX graph: ids and mask in, scaled vectors out.

    .venv/bin/python -m peers.onnx_export all-MiniLM-L6-v2        (in perf/)

Takes a checkpoint of the kind BERT with mean pooling; keeps the graph in the cache folder, by the checkpoint's path.
"""

import hashlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from lazuli.checkpoint import load_checkpoint

_NEEDED = ("onnx", "onnxscript", "torch", "transformers")


def exported_model(checkpoint: str) -> Path:
    """The graph, exported if it is not in the cache.

    Raises:
        ValueError: If a package is missing, or the checkpoint is of another kind.
    """
    found = load_checkpoint(checkpoint)
    weights = found.path / "model.safetensors"
    key = hashlib.sha256(f"{weights.resolve()} {weights.stat().st_size}".encode()).hexdigest()[:16]
    path = cache_folder() / f"{found.path.name}-{key}.onnx"
    if not path.is_file():
        missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            raise ValueError(f"to export to ONNX once, {', '.join(missing)} must be installed")
        if found.pooling != "mean":
            raise ValueError(f"{checkpoint} pools by {found.pooling}; only mean pooling is exported to ONNX")
        path.parent.mkdir(parents=True, exist_ok=True)
        print(f"exporting {path} ...", flush=True)
        _export(found.path, path)
    return path


def cache_folder() -> Path:
    """Below the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lazuli" / "onnx"


def _export(folder: Path, path: Path) -> None:
    import torch
    from transformers import AutoModel

    class Embedder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            # Eager attention is plain operations, which ONNX Runtime fuses into its own.
            self.model = AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            hidden: Any = self.model(input_ids=input_ids, attention_mask=attention_mask)[0]
            weights = attention_mask.unsqueeze(-1).to(hidden.dtype)
            pooled = (hidden * weights).sum(1) / weights.sum(1)
            return torch.nn.functional.normalize(pooled, dim=1)

    # Two tensors: of one that is given twice, the exporter makes a single input.
    ids = torch.arange(1, 15).reshape(2, 7)
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=512)}
    unfinished = path.with_suffix(f".{os.getpid()}.onnx")
    program = torch.onnx.export(
        Embedder().eval(),
        (ids, mask),
        input_names=["input_ids", "attention_mask"],
        output_names=["vectors"],
        dynamic_shapes=(sizes, sizes),
        dynamo=True,
    )
    assert program is not None
    program.save(str(unfinished), external_data=False)
    unfinished.replace(path)


if __name__ == "__main__":
    print(exported_model(sys.argv[1]))
