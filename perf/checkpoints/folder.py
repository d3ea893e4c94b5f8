"""The checkpoint that a benchmark uses: a folder, a packaged one, or a shape that is made with random weights.

Takes its name; returns what Lazuli loads. sentence-transformers and infinity load the shapes of BGE-M3 and
Qwen3-Embedding as well; others have a tokenizer of another kind there.
"""

import tempfile
from pathlib import Path

from checkpoints.synthetic_tokenizer import ensure_tokenizer


def find_checkpoint(name: str) -> str:
    """The checkpoint, made if it is the name of a shape; one without a tokenizer gets one."""
    folder = Path(name)
    if not folder.is_dir():
        # Here, as torch is of no use to those who name a checkpoint.
        from random_checkpoint import SHAPES, write_checkpoint

        if name not in SHAPES:
            return name
        folder = Path(tempfile.gettempdir()) / "lazuli-shapes" / name
        if not (folder / "model.safetensors").is_file():
            print(f"writing {folder} ...", flush=True)
            write_checkpoint(name, folder)
    ensure_tokenizer(folder)
    return str(folder)
