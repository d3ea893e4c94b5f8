"""A stand-in for `triton_python_backend_utils`, which exists inside tritonserver alone."""

import importlib
import json
import sys
import threading
import types
from typing import ClassVar

import pytest

import lazuli.triton

MODULES = (
    "protocol",
    "metrics",
    "response_sender",
    "engine_model",
    "embedding",
    "reranking",
    "classification",
    "tokenizer",
    "lane",
    "answering",
    "observing",
    "pair_tokenizer",
    "classify_tokenizer",
    "contextual",
    "context_tokenizer",
)


class TritonError(Exception):
    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED = range(8)

    def __init__(self, message, code=INTERNAL):
        super().__init__(message)
        self.code = code

    def message(self):
        return self.args[0]


class Tensor:
    def __init__(self, name, value):
        self._name, self._value = name, value

    def name(self):
        return self._name

    def shape(self):
        return list(self.as_numpy().shape)

    def as_numpy(self):
        return self._value


class InferenceResponse:
    def __init__(self, output_tensors=(), error=None):
        self.tensors = {tensor.name(): tensor.as_numpy() for tensor in output_tensors}
        self.error = error


class ResponseSender:
    """Triton's rule: nothing after FINAL, and a unary model sends exactly one response, FINAL with it."""

    def __init__(self):
        self.cancelled = False
        self.responses, self.flags = [], []
        self.ended = threading.Event()

    def send(self, response=None, flags=0):
        assert not self.ended.is_set(), "a response after FINAL"
        self.responses.append(response)
        self.flags.append(flags)
        if flags:
            self.ended.set()

    def is_cancelled(self):
        assert not self.ended.is_set(), "a question after FINAL"
        return self.cancelled


class Request:
    timeout_us = 0

    def __init__(self, parameters="", *, request_id="", server_context=None, **tensors):
        self.tensors = tensors
        self.sender = ResponseSender()
        self._request_id, self._server_context = request_id, server_context
        self._parameters = parameters if isinstance(parameters, str) else json.dumps(parameters)

    def parameters(self):
        return self._parameters

    def inputs(self):
        return [Tensor(name, value) for name, value in self.tensors.items()]

    def timeout(self):
        return self.timeout_us

    def request_id(self):
        return self._request_id

    def trace(self):
        return types.SimpleNamespace(get_context=lambda: self._server_context)

    def get_response_sender(self):
        return self.sender

    def wait(self):
        assert self.sender.ended.wait(10), "the request was never answered"
        return self.sender


class Logger:
    lines: ClassVar[list] = []

    @classmethod
    def log_error(cls, text):
        cls.lines.append(("error", text))

    @classmethod
    def log_warn(cls, text):
        cls.lines.append(("warn", text))

    @classmethod
    def log_info(cls, text):
        cls.lines.append(("info", text))


class Metric:
    def __init__(self, family, labels):
        self.family, self.labels, self.value = family, labels, 0.0

    def increment(self, value):
        assert self.family.kind == MetricFamily.COUNTER
        assert value > 0, "a counter only grows"
        self.value += value
        MetricFamily.changes.append(self)

    def set(self, value):
        assert self.family.kind == MetricFamily.GAUGE
        self.value = value
        MetricFamily.changes.append(self)


class MetricFamily:
    COUNTER, GAUGE = range(2)
    metrics: ClassVar[list] = []
    changes: ClassVar[list] = []

    def __init__(self, name, description, kind):
        self.name, self.description, self.kind = name, description, kind

    def Metric(self, labels):  # noqa: N802 - Triton's name
        metric = Metric(self, labels)
        self.metrics.append(metric)
        return metric


@pytest.fixture
def pb_utils(monkeypatch):
    """The fake module in `sys.modules`; modules that import it are imported anew, before and after."""
    fake = types.ModuleType("triton_python_backend_utils")
    fake.TritonError, fake.Tensor, fake.InferenceResponse, fake.Request = (
        TritonError,
        Tensor,
        InferenceResponse,
        Request,
    )
    fake.TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
    fake.Logger = Logger
    fake.MetricFamily = MetricFamily
    MetricFamily.metrics, MetricFamily.changes = [], []
    Logger.lines = []

    def get_input_tensor_by_name(request, name):
        return Tensor(name, request.tensors[name]) if name in request.tensors else None

    fake.get_input_tensor_by_name = get_input_tensor_by_name
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", fake)
    forget()
    yield fake
    forget()


def forget():
    for name in MODULES:
        sys.modules.pop(f"lazuli.triton.{name}", None)
        # `from lazuli.triton import protocol` would find the old one.
        vars(lazuli.triton).pop(name, None)


@pytest.fixture
def load(pb_utils):
    """Import a module of `lazuli.triton` over the fake."""
    return lambda name: importlib.import_module(f"lazuli.triton.{name}")


@pytest.fixture(autouse=True)
def log_as_before():
    """`log_to_triton` takes the package's logger over; give it back."""
    import logging

    logger = logging.getLogger("lazuli")
    handlers, level, propagate = list(logger.handlers), logger.level, logger.propagate
    root_handlers = list(logging.getLogger().handlers)
    yield
    logger.handlers[:] = handlers
    logging.getLogger().handlers[:] = root_handlers
    logger.setLevel(level)
    logger.propagate = propagate


@pytest.fixture
def arguments():
    """What Triton passes to `initialize`."""

    def arguments(*, kind="CPU", device_id="0", decoupled=None, **parameters):
        config = {"parameters": {key: {"string_value": value} for key, value in parameters.items()}}
        if decoupled is not None:
            config["model_transaction_policy"] = {"decoupled": decoupled}
        return {
            "model_config": json.dumps(config),
            "model_instance_kind": kind,
            "model_instance_device_id": device_id,
        }

    return arguments
