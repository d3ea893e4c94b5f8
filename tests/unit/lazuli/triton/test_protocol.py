import gc
import json
import logging

import numpy as np
import pytest

from lazuli import errors


@pytest.fixture
def protocol(load):
    return load("protocol")


def test_parameters(protocol, arguments):
    assert protocol.read_parameters(arguments(device="cpu", threads="2")) == {"device": "cpu", "threads": "2"}
    assert protocol.read_parameters({"model_config": json.dumps({})}) == {}


@pytest.mark.parametrize(("kind", "device_id", "expected"), [("CPU", "0", None), ("GPU", "0", 0), ("GPU", "3", 3)])
def test_the_gpu_of_the_instance(protocol, arguments, kind, device_id, expected):
    assert protocol.read_gpu_index(arguments(kind=kind, device_id=device_id)) == expected


def test_what_was_loaded_is_no_matter_of_the_garbage_collector(protocol):
    gc.unfreeze()
    protocol.forget_start()
    assert gc.get_freeze_count() > 10_000
    gc.unfreeze()


def test_a_tensor(protocol, pb_utils):
    request = pb_utils.Request(x=np.ones(3))
    assert protocol.read_tensor(request, "x").tolist() == [1, 1, 1]
    with pytest.raises(errors.InputError, match="y: the input is missing"):
        protocol.read_tensor(request, "y")


def test_parameters_that_are_not_unicode_are_the_callers_fault(protocol):
    class Request:
        def parameters(self):
            return b"\xff".decode()

    with pytest.raises(errors.OptionError, match="parameters: not valid UTF-8"):
        protocol.read_options(Request())


def test_a_response(protocol):
    response = protocol.make_response({"a": np.ones(1), "b": np.zeros(2)})
    assert {name: value.tolist() for name, value in response.tensors.items()} == {"a": [1], "b": [0, 0]}
    assert response.error is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.LazuliError, "INTERNAL"),
        (errors.ConfigError, "INVALID_ARG"),
        (errors.InputError, "INVALID_ARG"),
        (errors.OptionError, "INVALID_ARG"),
        (errors.ShuttingDownError, "UNAVAILABLE"),
        (errors.NonFiniteError, "INTERNAL"),
        (errors.DeviceError, "INTERNAL"),
    ],
)
def test_an_error_goes_under_its_code(protocol, pb_utils, error, code):
    response = protocol.make_error(error("why"))
    assert response.error.message() == "why"
    assert response.error.code == getattr(pb_utils.TritonError, code)


def test_an_unexpected_error_is_internal_and_logged(protocol, pb_utils, caplog):
    with caplog.at_level(logging.ERROR, logger="lazuli.triton.protocol"):
        response = protocol.make_error(KeyError("x"))
    assert response.error.code == pb_utils.TritonError.INTERNAL
    assert response.error.message() == "unexpected KeyError: 'x'"
    assert caplog.records[0].exc_info[1].args == ("x",)


def test_log_lines_go_to_triton_at_their_level(protocol, pb_utils, monkeypatch):
    monkeypatch.setenv("LAZULI_LOG_FORMAT", "text")
    protocol.log_to_triton({})
    logger = logging.getLogger("lazuli.some.module")
    for level in ("debug", "info", "warning", "error", "critical"):
        getattr(logger, level)("%s line", level)
    expected = [
        ("info", "info line"),
        ("warn", "warning line"),
        ("error", "error line"),
        ("error", "critical line"),
    ]
    assert pb_utils.Logger.lines == expected


def test_by_default_they_are_json_on_standard_error(protocol, pb_utils, capfd):
    protocol.log_to_triton({"model_name": "embedding", "model_instance_name": "embedding_0_0"})
    logging.getLogger("lazuli.some").info("here")
    logging.getLogger("another").warning("there")
    logging.getLogger("another").info("not this")
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [(line["event"], line["logger"]) for line in lines] == [("here", "lazuli.some"), ("there", "another")]
    assert {(line["model"], line["instance"]) for line in lines} == {("embedding", "embedding_0_0")}
    assert pb_utils.Logger.lines == []


@pytest.mark.parametrize(
    ("kind", "device_id", "expected"),
    [("CPU", "0", "embedding_0_0"), ("GPU", "0", "embedding_0_0_gpu0"), ("GPU", "1", "embedding_0_0_gpu1")],
)
def test_instances_on_several_gpus_have_names_of_their_own(protocol, kind, device_id, expected):
    args = {"model_instance_name": "embedding_0_0", "model_instance_kind": kind, "model_instance_device_id": device_id}
    assert protocol.instance_name(args) == expected
    assert protocol.instance_name({}) == ""


def test_an_unexpected_error_is_logged_without_its_message(protocol, capfd):
    protocol.log_to_triton({})
    protocol.make_error(KeyError("zebrafinch"))
    line = json.loads(capfd.readouterr().err)
    assert (line["event"], line["exception"]) == ("unexpected error", ["KeyError"])


@pytest.mark.parametrize(
    ("timeout_us", "expected"),
    [(0, None), (1, 1), (999, 1), (1000, 1), (1999, 1), (700_000, 700), (2**40, 2**40 // 1000)],
)
def test_the_timeout_of_a_request(protocol, pb_utils, timeout_us, expected):
    request = pb_utils.Request()
    request.timeout_us = timeout_us
    assert protocol.read_timeout_ms(request) == expected
