"""A request as plain values, right for one of the models or made wrong later; and how it looks on each wire."""

import json
import struct
from dataclasses import dataclass, field

import numpy as np
from tritonclient.grpc import service_pb2

DIMENSIONS = 384
# In place of what no string can hold: bytes that are not UTF-8, put in once the message is bytes.
NOT_UTF8, NOT_UTF8_BYTES = "\ue000", b"\xff\xfe\xfd"
# Of `InferTensorContents`: the field for each datatype.
CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


@dataclass
class Tensor:
    """An input: its bytes, or the values for a typed field."""

    name: str
    datatype: str
    shape: list[int]
    data: bytes
    contents: tuple[str, list] | None = None
    parameters: dict = field(default_factory=dict)


@dataclass
class Ask:
    """A request.

    `words` are what an error must name one of: whatever was made wrong. None: it was broken where only Triton looks.
    """

    model: str
    inputs: list[Tensor]
    rows: int
    parameters: dict = field(default_factory=dict)
    outputs: list[tuple[str, dict]] = field(default_factory=list)
    version: str = ""
    id: str = ""
    words: set[str] | None = field(default_factory=set)

    def to_grpc(self, *, readable=False):
        """The serialised `ModelInferRequest`; a readable one is UTF-8 throughout."""
        message = service_pb2.ModelInferRequest(model_name=self.model, model_version=self.version, id=self.id)
        _fill(message.parameters, self.parameters)
        for tensor in self.inputs:
            entry = message.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
            _fill(entry.parameters, tensor.parameters)
            if tensor.contents is None:
                message.raw_input_contents.append(tensor.data)
            else:
                getattr(entry.contents, tensor.contents[0]).extend(tensor.contents[1])
        for name, parameters in self.outputs:
            _fill(message.outputs.add(name=name).parameters, parameters)
        data = message.SerializeToString()
        return data if readable else data.replace(NOT_UTF8.encode(), NOT_UTF8_BYTES)

    def to_http(self):
        """Path, the JSON object and the bytes behind it of an HTTP `infer`."""
        head = {"inputs": [_entry(tensor) for tensor in self.inputs], "parameters": _for_json(self.parameters)}
        if self.outputs:
            head["outputs"] = [{"name": name, "parameters": _for_json(given)} for name, given in self.outputs]
        if self.id:
            head["id"] = self.id
        version = f"/versions/{self.version}" if self.version else ""
        binary = b"".join(tensor.data for tensor in self.inputs if tensor.contents is None)
        return f"/v2/models/{self.model}{version}/infer", head, binary

    def to_generate(self):
        """Path and JSON object of `generate`, as far as that can say the same."""
        content = {tensor.name: _values(tensor) for tensor in self.inputs} | _for_json(self.parameters)
        return f"/v2/models/{self.model}/generate", content


def dump(content):
    """JSON as bytes, NaN and all, with what is not UTF-8 put in."""
    return (
        json.dumps(content, ensure_ascii=False)
        .encode(errors="surrogatepass")
        .replace(NOT_UTF8.encode(), NOT_UTF8_BYTES)
    )


def text_tensor(texts, name="text"):
    return Tensor(name, "BYTES", [len(texts), 1], b"".join(struct.pack("<I", len(text)) + text for text in texts))


def number_tensor(name, datatype, values):
    return Tensor(name, datatype, list(values.shape), values.tobytes())


def _entry(tensor):
    entry = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
    parameters = _for_json(tensor.parameters)
    if tensor.contents is None:
        parameters.setdefault("binary_data_size", len(tensor.data))
    else:
        entry["data"] = _for_json(dict(enumerate(tensor.contents[1])))
        entry["data"] = list(entry["data"].values())
    return {**entry, "parameters": parameters}


def _values(tensor):
    if tensor.contents is not None:
        return list(_for_json(dict(enumerate(tensor.contents[1]))).values())
    types = {"INT32": np.int32, "INT8": np.int8}
    if tensor.datatype in types and len(tensor.data) % np.dtype(types[tensor.datatype]).itemsize == 0:
        return np.frombuffer(tensor.data, types[tensor.datatype]).tolist()
    texts, place = [], 0
    while place + 4 <= len(tensor.data) and len(texts) < 2000:
        (size,) = struct.unpack_from("<I", tensor.data, place)
        texts.append(tensor.data[place + 4 : place + 4 + size].decode("latin-1"))
        place += 4 + size
    return texts


def _for_json(values):
    """JSON has one kind of number, and no bytes."""
    return {
        name: value[1] if isinstance(value, tuple) else value.decode("latin-1") if isinstance(value, bytes) else value
        for name, value in values.items()
    }


def _fill(parameters, values):
    """A pair names the kind of a number: ("uint64_param", 3)."""
    for name, value in values.items():
        if isinstance(value, tuple):
            setattr(parameters[name], *value)
        elif isinstance(value, bool):
            parameters[name].bool_param = value
        elif isinstance(value, int):
            parameters[name].int64_param = value
        elif isinstance(value, float):
            parameters[name].double_param = value
        elif isinstance(value, str):
            parameters[name].string_param = value
        else:
            parameters[name].SetInParent()  # a parameter without a value
