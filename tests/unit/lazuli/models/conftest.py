"""Models against transformers: the same rows through both."""

import numpy as np
import pytest
import torch

from lazuli.attention.sdpa import SdpaAttention
from lazuli.batch import RaggedBatch
from lazuli.checkpoint import load_checkpoint
from lazuli.cpu import host_inputs
from lazuli.models.registry import load_model

LENGTHS = (1, 2, 7, 7, 33, 61)


@pytest.fixture
def assert_equals_reference():
    """Compare a checkpoint folder's ragged model with a reference that takes one row of ids."""

    def check(folder, reference, vocab_size, lengths=LENGTHS):
        rng = np.random.default_rng(1)
        rows = [rng.integers(vocab_size, size=length, dtype=np.int32) for length in lengths]
        model = load_model(load_checkpoint(str(folder)), SdpaAttention(), torch.device("cpu"), torch.float32)
        batch = RaggedBatch.pack(rows, [True] * len(rows))
        inputs = host_inputs(batch)
        with torch.inference_mode():
            hidden = model.forward(inputs.input_ids, inputs.position_ids, inputs.attention)
            for place, mine in enumerate(hidden.split(np.diff(batch.cu_seqlens).tolist())):
                expected = reference(torch.from_numpy(rows[batch.order[place]]).long().unsqueeze(0))[0]
                cosine = torch.nn.functional.cosine_similarity(mine.double(), expected.double(), dim=-1).min()
                assert cosine >= 1 - 1e-6
                assert (mine - expected).abs().max() < 1e-4 * expected.abs().max()
            wanted = inputs.attention.cu_seqlens[:-1].long()
            some = model.forward(inputs.input_ids, inputs.position_ids, inputs.attention, wanted)
            torch.testing.assert_close(some, hidden[wanted], rtol=1e-4, atol=1e-5)

    return check
