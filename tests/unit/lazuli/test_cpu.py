import subprocess
import sys
import threading

import numpy as np
import pytest
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


class SpoiltEncoder:
    """As oneDNN is: a thread that has failed once fails always."""

    def __init__(self):
        self.short_of_memory = False
        self.spoilt = threading.local()
        self.threads = []

    def encode(self, inputs):
        self.threads.append(threading.current_thread())
        if self.short_of_memory or hasattr(self.spoilt, "error"):
            self.spoilt.error = True
            raise RuntimeError("could not create a primitive")
        return inputs.input_ids[:2, None].float()


def test_a_thread_that_failed_is_not_used_again():
    encoder = SpoiltEncoder()
    stepper = CpuStepper(encoder)
    stepper.step(BATCH)
    for _ in range(2):
        encoder.short_of_memory = True
        with pytest.raises(RuntimeError, match="primitive"):
            stepper.step(BATCH)
        encoder.short_of_memory = False
        for _ in range(2):
            assert stepper.step(BATCH).result().tolist() == [[8], [5]]
    main, first, second = dict.fromkeys(encoder.threads)
    assert main is threading.current_thread()
    assert first is not second


def test_a_program_runs_in_inference_mode_in_either_thread():
    encoder = SpoiltEncoder()
    stepper = CpuStepper(encoder)

    def compute(inputs):
        assert torch.is_inference_mode_enabled()
        return encoder.encode(inputs)

    assert stepper.run(BATCH, compute) is not None
    encoder.short_of_memory = True
    with pytest.raises(RuntimeError):
        stepper.run(BATCH, compute)
    encoder.short_of_memory = False
    assert stepper.run(BATCH, compute) is not None


SHORT_OF_MEMORY = """
import re, resource
import torch
from lazuli.cpu import CpuStepper

class Encoder:
    def encode(self, inputs):
        return torch.nn.functional.gelu(torch.ones(len(inputs.input_ids), 1536))

def batch(length):
    import numpy as np
    from lazuli.batch import RaggedBatch
    return RaggedBatch.pack([np.ones(length, np.int32)], [True])

def may_have(num_bytes):
    resource.setrlimit(resource.RLIMIT_AS, (num_bytes, resource.RLIM_INFINITY))

stepper = CpuStepper(Encoder())
stepper.step(batch(64))
lengths, failed = range(2, 60), 0
may_have(1024 * int(re.search(r"VmSize:\\s+(\\d+)", open("/proc/self/status").read())[1]))
for length in lengths:
    try:
        stepper.step(batch(length))
    except RuntimeError:
        failed += 1
may_have(resource.RLIM_INFINITY)
for length in lengths:
    stepper.step(batch(length))
print("failed", failed)
"""


def test_a_process_that_was_short_of_memory_computes_again():
    """With the library itself: what could not be made then can be made later."""
    done = subprocess.run([sys.executable, "-c", SHORT_OF_MEMORY], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[1]) > 0
