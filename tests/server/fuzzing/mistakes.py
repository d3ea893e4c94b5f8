"""Hypothesis strategies: a right request for a model, and up to three things made wrong in it.

Each mistake adds to `Ask.words` what an error must name.
"""

import numpy as np
from hypothesis import strategies as st

from .asks import CONTENTS, NOT_UTF8, Ask, number_tensor, text_tensor
from .values import INT64, NAMES, OPTIONS, RESERVED, STRINGS, TENSOR_PARAMETERS, scalars


@st.composite
def right_asks(draw, model):
    """A request that is answered."""
    rows = draw(st.integers(1, 3))
    step = model.rpartition(".")[2]
    if step in ("embedding", "embedding_stream", "reranking"):
        width = draw(st.integers(1, 6))
        ids = np.array(draw(st.lists(st.integers(4, 50), min_size=rows * width, max_size=rows * width)), np.int32)
        inputs = [
            number_tensor("input_ids", "INT32", ids.reshape(rows, width)),
            number_tensor("attention_mask", "INT8", np.ones((rows, width), np.int8)),
        ]
        if step == "reranking" and draw(st.booleans()):
            inputs.append(number_tensor("token_type_ids", "INT8", np.zeros((rows, width), np.int8)))
        return Ask(model, inputs, rows)
    names = ("query", "document") if "rerank" in model else ("text",)
    return Ask(model, [text_tensor([b"some words"] * rows, name) for name in names], rows)


@st.composite
def asks(draw, models, without=()):
    """A request with up to three mistakes; with none at times."""
    ask = draw(st.sampled_from(models).flatmap(right_asks))
    for mistake in draw(st.lists(st.sampled_from([one for one in MISTAKES if one not in without]), max_size=3)):
        mistake(draw, ask)
    return ask


def option(draw, ask):
    name = draw(st.sampled_from(sorted(OPTIONS)))
    ask.parameters[name] = draw(st.one_of(st.sampled_from(OPTIONS[name]), scalars()))
    ask.words.add(name)
    if name in ("prompt_name", "instruction", "input_type"):
        ask.words.add("text[")  # too long with what is put before it
    if name == "deadline_ms":
        ask.words.add("timed out: the deadline")


def reserved_parameter(draw, ask):
    name = draw(st.sampled_from(RESERVED))
    ask.parameters[name] = draw(scalars())
    ask.words |= {name, name.replace("_", " "), "timed out", "correlation", "sequence", "triton_"}


def unknown_parameter(draw, ask):
    name = draw(st.one_of(NAMES, STRINGS))
    ask.parameters[name] = draw(scalars())
    ask.words |= {"parameter", "invalid value type", name[:20] or "parameter"}


def datatype(draw, ask):
    tensor = draw(st.sampled_from(ask.inputs))
    tensor.datatype = draw(
        st.sampled_from([*CONTENTS, "FP16", "BF16", "UINT64", "INVALID", "", "bytes", "\0", NOT_UTF8])
    )
    ask.words |= {tensor.name, "datatype", "data-type", "data type"}


def shape(draw, ask):
    tensor = draw(st.sampled_from(ask.inputs))
    sizes = st.one_of(st.integers(-2, 5), st.sampled_from([1024, 1025, *INT64]))
    tensor.shape = draw(st.lists(sizes, max_size=5))
    ask.words |= {tensor.name, "shape", "batch"}


def rows(draw, ask):
    """Another number of rows in all inputs, with their data: none, as many as may be, more than that."""
    count = draw(st.sampled_from([0, 0, 64, 1025]))
    for tensor in ask.inputs:
        tensor.data = tensor.data[: len(tensor.data) // max(1, tensor.shape[0])] * count if tensor.shape else b""
        tensor.shape = [count, *tensor.shape[1:]]
    ask.rows = count
    ask.words |= {"batch", "1024", "shape", *(tensor.name for tensor in ask.inputs)}


def data(draw, ask):
    """Too few bytes, too many, or others."""
    tensor = draw(st.sampled_from(ask.inputs))
    kind = draw(st.sampled_from(["cut", "more", "other", "flip"]))
    if kind == "cut":
        tensor.data = tensor.data[: draw(st.integers(0, max(0, len(tensor.data) - 1)))]
    elif kind == "more":
        tensor.data += draw(st.binary(min_size=1, max_size=9))
    elif kind == "other":
        tensor.data = draw(st.binary(max_size=2 * len(tensor.data) + 8))
    elif tensor.data:
        place = draw(st.integers(0, len(tensor.data) - 1))
        tensor.data = tensor.data[:place] + bytes([draw(st.integers(0, 255))]) + tensor.data[place + 1 :]
    ask.words |= {tensor.name, "attention_mask", "input_ids", "batch"}


def texts(draw, ask):
    """Texts of any bytes."""
    names = [tensor.name for tensor in ask.inputs if tensor.datatype == "BYTES" and tensor.contents is None]
    if not names:
        return
    name = draw(st.sampled_from(names))
    choices = st.one_of(STRINGS.map(lambda text: text.encode()), st.binary(max_size=12))
    values = draw(st.lists(choices, min_size=1, max_size=3))
    place = [tensor.name for tensor in ask.inputs].index(name)
    ask.inputs[place] = text_tensor(values, name)
    ask.rows = len(values)
    ask.words |= {name, "batch", "document", "query"}


def numbers(draw, ask):
    """Ids and masks of any values."""
    kinds = [place for place, tensor in enumerate(ask.inputs) if tensor.datatype in ("INT32", "INT8")]
    if not kinds:
        return
    place = draw(st.sampled_from(kinds))
    tensor = ask.inputs[place]
    low, high, dtype = (-(2**31), 2**31 - 1, np.int32) if tensor.datatype == "INT32" else (-128, 127, np.int8)
    count = len(tensor.data) // np.dtype(dtype).itemsize
    value = st.one_of(st.integers(low, high), st.integers(-1, 3))
    values = draw(st.lists(value, min_size=count, max_size=count))
    tensor.data = np.array(values, dtype).tobytes()
    ask.words |= {"input_ids", "attention_mask", "token_type_ids"}


def missing_input(draw, ask):
    tensor = ask.inputs.pop(draw(st.integers(0, len(ask.inputs) - 1)))
    if not ask.inputs:  # others make mistakes in one that is there
        ask.inputs.append(text_tensor([b"x"], draw(NAMES)))
    ask.words |= {tensor.name, "input", "parameter"}


def another_input(draw, ask):
    tensor = text_tensor([b"x"] * ask.rows, draw(st.one_of(NAMES, STRINGS)))
    ask.inputs.insert(draw(st.integers(0, len(ask.inputs))), tensor)
    # What `generate` does not know as an input is a parameter.
    ask.words |= {tensor.name[:20] or "input", "input", "batch", "parameter"}


def typed_contents(draw, ask):
    """The typed field in place of bytes, or the one of another type, or both ways in one request."""
    tensor = draw(st.sampled_from(ask.inputs))
    kind = draw(st.sampled_from(sorted(CONTENTS)))
    values = {"BYTES": st.binary(max_size=5), "BOOL": st.booleans(), "FP32": st.floats(width=32), "FP64": st.floats()}
    low, high = {"INT64": (-(2**63), 2**63 - 1), "UINT8": (0, 2**32 - 1)}.get(kind, (-(2**31), 2**31 - 1))
    value = values.get(kind, st.integers(low, high))
    every = draw(st.booleans())
    for one in ask.inputs if every else [tensor]:
        one.contents = (CONTENTS[kind], draw(st.lists(value, max_size=6)))
    ask.words |= {tensor.name, "contents", "data", *(one.name for one in ask.inputs)}


def tensor_parameter(draw, ask):
    tensor, name = draw(st.sampled_from(ask.inputs)), draw(st.sampled_from(TENSOR_PARAMETERS))
    tensor.parameters[name] = draw(scalars())
    ask.words |= {name, tensor.name, "shared memory", "shared_memory", "additional input data"}


def asked_output(draw, ask):
    name = draw(st.one_of(NAMES, st.sampled_from(["embedding", "token_count", "truncated", "score", "embedding_int8"])))
    parameters = draw(st.dictionaries(st.sampled_from(TENSOR_PARAMETERS), scalars(), max_size=2))
    ask.outputs.append((name, parameters))
    ask.words |= {name[:20] or "output", "output", "shared memory", "shared_memory", *parameters}


def model_name(draw, ask):
    ask.model = draw(
        st.sampled_from(["", "nope", "embed ", "EMBED", "..", "a" * 5000, NOT_UTF8, "\0", "embed/../embed"])
    )
    ask.words |= {"model", ask.model[:20] or "model"}


def version(draw, ask):
    ask.version = draw(st.sampled_from(["1", "2", "-1", "x", "0", "9" * 30, NOT_UTF8, "1.5", " 1"]))
    ask.words |= {"version", "model"}


def request_id(draw, ask):
    ask.id = draw(STRINGS)


MISTAKES = [
    option,
    option,
    option,
    reserved_parameter,
    unknown_parameter,
    datatype,
    shape,
    rows,
    data,
    texts,
    texts,
    numbers,
    numbers,
    missing_input,
    another_input,
    typed_contents,
    tensor_parameter,
    asked_output,
    model_name,
    version,
    request_id,
]
