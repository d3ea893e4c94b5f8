"""What of vLLM 0.22.0 and its packages goes to a Hopper machine that embeds texts, and what stays behind.

Nothing is put in the place of what is left out: vLLM looks for each of these itself and does without. What runs when
texts are embedded (FlashAttention 3, its own kernels, its compiled graphs, its server) is all there, and unchanged but
for the machine code of other GPUs and the names for debuggers.
"""

import fnmatch
import re
import subprocess
from pathlib import Path

from peers.gpu_code import keep_gpu

VERSION = "0.22.0"
# What its server says should be there for its embeddings to be fast.
ADVISED = ("orjson",)
# Hopper.
_GPU = 90
# On the machine already, with torch 2.11 and transformers 5 (perf/bundle_packages.txt says the same of some).
_THERE = (
    "torch triton nvidia-[a-z0-9-]* cuda-[a-z0-9-]* numpy transformers tokenizers safetensors huggingface-hub typer "
    "rich pyarrow aiohttp packaging setuptools sympy networkx jinja2 fsspec mpmath pillow hf-xet uvloop grpcio "
    "protobuf sentencepiece tiktoken pygments ninja tabulate"
)
# Never imported when texts are embedded: name patterns and why.
_NEEDLESS = {
    "torchaudio torchvision opencv-python-headless": "sound and pictures",
    "flashinfer-[a-z]*": "attention and sampling that the default for Hopper, FlashAttention 3, does not use",
    "tokenspeed-[a-z]* humming-kernels quack-kernels": "kernels for Blackwell, or for quantized weights",
    "nvidia-cutlass-dsl[a-z0-9-]* nvidia-cudnn-frontend torch-c-dlpack-ext": "what those build on",
    "tilelang z3-solver ml-dtypes": "a kernel language for DeepSeek's models",
    "numba llvmlite": "proposes tokens for speculative decoding",
    "outlines-core lm-format-enforcer lark interegular diskcache astor": "grammars for generated text",
    "depyf dill": "shows compiled code to people",
    "fastsafetensors": "another loader, on request",
    "anthropic docstring-parser mcp mcp-types sse-starlette": "other routes, and tools",
    "cryptography pyjwt cffi pycparser python-dotenv pydantic-settings": "what those build on",
    "opentelemetry-(?!api)[a-z-]* googleapis-common-protos": "traces, on request",
    "fastapi-cli fastapi-cloud-cli rich-toolkit rignore fastar sentry-sdk agent-detector detect-installer": "a command",
    "pyelftools supervisor": "a command",
    "dnspython": "looks up mail servers",
}
# Files of the packages that do come.
_NEEDLESS_FILES = {
    "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so": "FlashAttention 2; vLLM takes 3 on Hopper",
    "vllm/vllm_flash_attn/cute/*": "FlashAttention 4; vLLM takes 3 on Hopper",
    "vllm/_moe_C.abi3.so": "mixtures of experts",
    "vllm/_flashmla*": "DeepSeek's attention",
    "vllm/third_party/deep_gemm/*": "FP8 weights",
    "vllm/third_party/flashmla/*": "DeepSeek's attention",
    "vllm/vllm-rs": "another front of the server, on request",
    "vllm/entrypoints/serve/instrumentator/static/*": "pages for people",
    "*.jpg": "pictures",
    "xgrammar/lib/*.a": "for linking",
    "xgrammar/include/* tvm_ffi/include/* tvm_ffi/3rdparty/*": "for compiling",
    "mistral_common/data/*": "vocabularies of other models",
    "pycountry/locales/*": "translations",
    "pycountry/tests/*": "tests",
    "vllm-*.dist-info/RECORD": "for pip",
    "*.dist-info/licenses/*": "stay with the wheels",
    "*.pyi": "for type checkers",
}


def is_needed(package: str) -> bool:
    """Whether a package is to be packed, by its name."""
    name = re.sub(r"[-_.]+", "-", package).lower()
    # NVIDIA's that no torch brings.
    if name == "nvidia-ml-py":
        return True
    return not any(re.fullmatch(pattern, name) for pattern in " ".join([_THERE, *_NEEDLESS]).split())


def is_needed_file(name: str) -> bool:
    """Whether a file of a wheel is, by its path there."""
    return not any(fnmatch.fnmatchcase(name, pattern) for pattern in " ".join(_NEEDLESS_FILES).split())


def slim(site: Path) -> None:
    """Leave the machine code of one kind of GPU in vLLM's libraries, and no names for debuggers in xgrammar's."""
    for library in sorted((site / "vllm").rglob("*.so")):
        library.write_bytes(keep_gpu(library.read_bytes(), _GPU))
    for library in sorted((site / "xgrammar").rglob("*.so")):
        subprocess.run(["strip", "--strip-unneeded", str(library)], check=True)
