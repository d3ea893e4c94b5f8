"""Values that are odd for one field or another: what parameters, names and texts are drawn from."""

from hypothesis import strategies as st

from .asks import NOT_UTF8

TEXTS = [
    "a blue gem",
    "",
    "\0",
    "a line\r\nand another",
    "word " * 300,
    "日本語 ẞ ﬃ 𝔘",
    "\u202ertl\ufeff",
    "[SEP] <|endoftext|>",
]
INT64 = [0, 1, -1, 2, 383, 385, 2**31, 2**32, 2**53 + 1, -(2**63), 2**63 - 1]
FLOATS = [0.0, -0.0, 0.5, -1.5, 1e308, float("nan"), float("inf"), float("-inf")]
OPTIONS = {
    "truncate": ["none", "end", "start", "split", "END"],
    "overlap": [0, 1, 10**6],
    "prompt_name": ["query", ""],
    "instruction": ["find: ", "x " * 600],
    "input_type": ["query", "document", "passage"],
    "dimensions": [1, 8, 384, 385],
    "force_dimensions": [True, False],
    "normalize": [True, False],
    "workload": ["query", "bulk", "urgent"],
    "deadline_ms": [1, 60_000],
    "traceparent": ["00-" + 32 * "1" + "-" + 16 * "2" + "-01", "00-x"],
    "tracestate": ["a=b", "=", ","],
    "output": ["float32", "dense", "float16", "int8", "binary", "ubinary", "sparse", "multi", "float16,sparse", ","],
    "activation": ["none", "sigmoid", "tanh"],
    "method": ["dense", "hybrid"],
    "weights": ["1,2", "nan"],
    "labels": [True],
}
# Triton's own.
RESERVED = [
    "timeout",
    "priority",
    "sequence_id",
    "sequence_start",
    "sequence_end",
    "binary_data_output",
    "triton_enable_empty_final_response",
    "triton_x",
    "headers",
]
TENSOR_PARAMETERS = [
    "shared_memory_region",
    "shared_memory_offset",
    "shared_memory_byte_size",
    "binary_data_size",
    "binary_data",
    "classification",
    "x",
]
NAMES = st.sampled_from(
    ["", "x", "text", "input_ids", "attention_mask", "embedding", "index", "\0", "a" * 5000, NOT_UTF8]
)
# protobuf and JSON hold no lone surrogates.
STRINGS = st.one_of(
    st.sampled_from([*TEXTS, NOT_UTF8, "nan", "-1", "true", "x" * 100_000]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)


def scalars():
    """Any value that a parameter can have, and none at all; a pair names the kind of a number."""
    return st.one_of(
        st.booleans(),
        st.sampled_from(INT64),
        st.integers(-(2**63), 2**63 - 1),
        st.sampled_from(FLOATS),
        st.floats(),
        STRINGS,
        st.sampled_from([0, 7, 2**63, 2**64 - 1]).map(lambda value: ("uint64_param", value)),
        st.none(),
    )
