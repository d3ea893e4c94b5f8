"""What of vLLM is packed for a GPU machine."""

import struct

import pytest

from peers.gpu_code import keep_gpu
from peers.vllm_parts import is_needed, is_needed_file

ASSEMBLY, MACHINE_CODE = 1, 2


@pytest.mark.parametrize(
    ("package", "needed"),
    [
        ("vllm", True),
        ("torch", False),
        ("torch_c_dlpack_ext", False),
        ("nvidia-cublas", False),
        ("nvidia-cutlass-dsl-libs-cu13", False),
        ("nvidia-ml-py", True),
        ("apache_tvm_ffi", True),
        ("einops", True),
        ("opentelemetry-api", True),
        ("opentelemetry_sdk", False),
        ("opencv-python-headless", False),
    ],
)
def test_what_the_machine_has_or_nobody_imports_is_not_packed(package, needed):
    assert is_needed(package) is needed


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so", False),
        ("vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so", True),
        ("vllm/third_party/deep_gemm/include/a/b.hpp", False),
        ("vllm/_C.abi3.so", True),
        ("vllm-0.22.0.dist-info/RECORD", False),
        # xgrammar finds its library through it.
        ("xgrammar-0.2.5.dist-info/RECORD", True),
        ("tvm_ffi/include/dlpack/dlpack.h", False),
    ],
)
def test_needless_files_are_left_out(name, needed):
    assert is_needed_file(name) is needed


def entry(kind, architecture, code):
    return struct.pack("<HHIQ12xI32x", kind, 257, 64, len(code), architecture) + code


def container(*entries):
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def test_code_of_other_gpus_becomes_zeros_in_its_place():
    old, hopper, assembly = (letter * 24 for letter in (b"o", b"h", b"a"))
    several = container(entry(MACHINE_CODE, 80, old), entry(MACHINE_CODE, 90, hopper), entry(ASSEMBLY, 90, assembly))
    only_assembly = container(entry(ASSEMBLY, 80, assembly), entry(MACHINE_CODE, 100, old), entry(ASSEMBLY, 100, old))
    chance = struct.pack("<IHHQ", 0xBA55ED50, 7, 16, 8)
    library = b"ELF" + several + chance + only_assembly + b"end"
    kept = keep_gpu(library, 90)
    nothing = bytes(24)
    expected = container(
        entry(MACHINE_CODE, 80, nothing), entry(MACHINE_CODE, 90, hopper), entry(ASSEMBLY, 90, nothing)
    )
    assembled = [entry(ASSEMBLY, 80, assembly), entry(MACHINE_CODE, 100, nothing), entry(ASSEMBLY, 100, nothing)]
    assert kept == b"ELF" + expected + chance + container(*assembled) + b"end"


def test_a_container_that_is_not_as_expected_is_refused():
    damaged = container(entry(MACHINE_CODE, 80, b"o" * 24))[:-8]
    with pytest.raises(ValueError, match="a container of GPU code ends at byte"):
        keep_gpu(damaged, 90)
