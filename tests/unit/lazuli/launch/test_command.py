import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lazuli.launch import command
from lazuli.launch.command import Launch, model_flags, restriction_flags, server_environment
from lazuli.launch.errors import LaunchError
from lazuli.launch.options import Door, Dtype, LogLevel, ServeOptions


def test_everything_listens_on_loopback_unless_told(launch: Launch):
    for service in ("http", "grpc", "metrics"):
        assert f"--{service}-address=127.0.0.1" in launch.arguments


def test_extra_flags_come_last(options):
    launch = command.build_launch(replace(options, extra_flags=("--log-info=false", "--id=x")))
    assert launch.arguments[-2:] == ["--log-info=false", "--id=x"]
    assert launch.arguments[0] == str(options.tritonserver)


def test_admin_apis_are_closed_with_a_random_key():
    first, second = ServeOptions(), ServeOptions()
    assert first.admin_key != second.admin_key
    assert restriction_flags("secret") == [
        "--http-restricted-api=shared-memory,model-repository,trace,logging:admin-key=secret",
        "--grpc-restricted-protocol=shared-memory,model-repository,trace,logging:admin-key=secret",
    ]


@pytest.mark.parametrize(("door", "model"), [(Door.UNARY, "embed"), (Door.STREAM, "embed_stream")])
def test_one_door_is_loaded_by_name(door, model, repository):
    assert model_flags(ServeOptions(door=door), [repository]) == [
        "--disable-auto-complete-config",
        "--model-control-mode=explicit",
        f"--load-model={model}",
    ]


def test_both_doors_load_everything(repository):
    (repository / ".ipynb_checkpoints").mkdir()
    assert model_flags(ServeOptions(), [repository]) == [
        "--disable-auto-complete-config",
        "--model-control-mode=explicit",
        *(f"--load-model={name}" for name in ("embed", "embed_stream", "tokenizer")),
    ]
    assert model_flags(ServeOptions(auto_complete_config=True), [repository]) == [
        "--model-control-mode=explicit",
        "--load-model=*",
    ]


def test_a_door_that_the_repository_lacks_is_named(tmp_path):
    with pytest.raises(LaunchError, match="--door stream needs a model such as embed_stream"):
        model_flags(ServeOptions(door=Door.STREAM), [tmp_path])


def test_servers_do_not_share_memory_names(options):
    assert command.build_launch(options).shm_prefix != command.build_launch(options).shm_prefix


def test_only_given_options_reach_the_models():
    assert ServeOptions().model_environment() == {}
    given = ServeOptions(checkpoint="/x", device="cuda:1", dtype=Dtype.BFLOAT16, max_seq_length=128, threads=2)
    assert given.model_environment() == {
        "LAZULI_CHECKPOINT": "/x",
        "LAZULI_DEVICE": "cuda:1",
        "LAZULI_DTYPE": "bfloat16",
        "LAZULI_MAX_SEQ_LENGTH": "128",
        "LAZULI_THREADS": "2",
    }


def test_environment_of_the_wheel(wheel, monkeypatch):
    monkeypatch.setattr(command, "libpython_folder", lambda server: Path("/python/lib"))
    options = ServeOptions(device="cpu", environment={"MORE": "1"})
    inherited = {"PATH": "/bin", "LD_LIBRARY_PATH": "/mine", "PYTHONHOME": "/wrong", "LAZULI_DEVICE": "cuda"}
    result = server_environment(options, wheel, inherited)
    assert result["PATH"] == f"{Path(sys.executable).parent}:/bin"
    assert result["LD_LIBRARY_PATH"] == f"/python/lib:{wheel.libraries}:/mine"
    assert result["LAZULI_DEVICE"] == "cpu"
    assert result["MORE"] == "1"
    assert "PYTHONHOME" not in result


def test_a_complete_installation_keeps_its_libraries(wheel):
    installed = replace(wheel, backend=None, stub=None)
    result = server_environment(ServeOptions(), installed, {"PATH": "/bin"})
    assert result["PATH"] == "/bin"
    assert "LD_LIBRARY_PATH" not in result


def test_verbose_asks_the_server_for_more():
    assert command.log_flags(LogLevel.VERBOSE) == ["--log-verbose=1"]
    assert command.log_flags(LogLevel.WARNING) == []


def test_headers_of_traces_become_parameters_where_spans_are_made():
    assert command.tracing_flags({}) == []
    flags = command.tracing_flags({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"})
    assert flags == [
        "--http-header-forward-pattern=(?i)^trace(parent|state)$",
        "--grpc-header-forward-pattern=(?i)^trace(parent|state)$",
    ]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"http_port": 8001}, "must differ"),
        ({"device": "gpu"}, "'gpu' is not auto, cpu, cuda"),
        ({"admin_key": "a,b=c"}, "--admin-key may hold"),
    ],
)
def test_wrong_options_are_named(wrong, message):
    with pytest.raises(LaunchError, match=message):
        ServeOptions(**wrong)


@pytest.mark.parametrize(
    ("host", "address"), [("localhost", "127.0.0.1"), ("0.0.0.0", "0.0.0.0"), ("10.1.2.3", "10.1.2.3")]
)
def test_names_are_resolved_for_triton_which_takes_them_for_everyone(host, address):
    flags = command.address_flags(ServeOptions(host=host))
    assert [flag.split("=")[1] for flag in flags if "address" in flag] == [address] * 3


@pytest.mark.parametrize("host", ["::1", "[::1]", "::", "", "no.such.host.invalid"])
def test_hosts_that_triton_cannot_listen_on_are_refused(host):
    with pytest.raises(LaunchError, match="--host"):
        command.address_flags(ServeOptions(host=host))


def test_an_empty_checkpoint_is_not_the_built_in_one():
    with pytest.raises(LaunchError, match="--checkpoint is empty"):
        ServeOptions(checkpoint=" ")
