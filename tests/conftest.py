"""Without a GPU, kernels in the Triton language run in its interpreter, which must be known before it is imported."""

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
