import numpy as np
import torch

from lazuli.batch import RaggedBatch
from lazuli.cpu import CpuStepper, host_inputs

BATCH = RaggedBatch.pack([np.array(ids, dtype=np.int32) for ids in ([5, 6, 7], [8])], [True, False])


def test_the_inputs_are_those_of_the_batch_without_a_copy():
    inputs = host_inputs(BATCH)
    assert inputs.input_ids.data_ptr() == BATCH.input_ids.ctypes.data
    assert inputs.input_ids.tolist() == [8, 5, 6, 7]
    assert inputs.position_ids.tolist() == [0, 0, 1, 2]
    assert inputs.attention.cu_seqlens.tolist() == inputs.attention.cu_seqlens_cpu.tolist() == [0, 1, 4]
    assert inputs.attention.max_seqlen == 3
    assert inputs.finish.tolist() == [0, 1]


def test_a_step_is_finished_when_it_returns():
    class FakeEncoder:
        def encode(self, inputs):
            return inputs.input_ids[:2, None].float()

    result = CpuStepper(FakeEncoder()).step(BATCH)
    assert result.is_ready()
    assert result.result().tolist() == [[8], [5]]
    assert isinstance(result._values, torch.Tensor)
