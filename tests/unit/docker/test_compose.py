"""compose.yaml against the specification and against what the server needs. What it mounts: `test_monitoring.py`."""

import re

import pytest
from typer import Typer
from typer.testing import CliRunner

from lazuli.launch.process import _STOP_MARGIN_S
from lazuli_client.gateway import command as gateway_command
from rehearse import CONTEXT, read_steps

FILES = ("compose.yaml", "compose.gpu.yaml")


@pytest.fixture(scope="module")
def command(served_options):
    steps = read_steps((CONTEXT / "docker" / "Dockerfile").read_text(encoding="utf-8"))
    return served_options(next(step for step in steps if step.kind == "CMD").words())


def seconds_of(duration):
    return int(re.fullmatch(r"(\d+)s", duration)[1])


def test_the_files_are_of_the_specification(tool):
    tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", *(CONTEXT / "docker" / name for name in FILES))


def test_images_are_pinned(read_yaml):
    for service in read_yaml("compose.yaml")["services"].values():
        assert re.search(r":(v?\d+\.\d+\.\d+|cpu)$", service["image"])


@pytest.mark.parametrize("name", ["lazuli", "gateway"])
def test_the_other_file_takes_the_other_image(read_yaml, name):
    base, other = (read_yaml(file)["services"][name] for file in FILES)
    assert (base["build"]["args"], other["build"]["args"]) == ({"DEVICE": "cpu"}, {"DEVICE": "cuda"})
    assert (base["image"], other["image"]) == ("lazuli:cpu", "lazuli:cuda")


def test_the_other_file_gives_the_server_gpus_and_changes_nothing_else(read_yaml):
    services = read_yaml("compose.gpu.yaml")["services"]
    assert set(services) == {"lazuli", "gateway"}
    assert services["lazuli"]["deploy"]["resources"]["reservations"]["devices"][0]["capabilities"] == ["gpu"]
    assert set(services["gateway"]) == {"build", "image"}


def test_a_stop_has_time_for_requests_in_flight(read_yaml, command):
    seconds = seconds_of(read_yaml("compose.yaml")["services"]["lazuli"]["stop_grace_period"])
    assert seconds >= command.exit_timeout_s + _STOP_MARGIN_S + 5


@pytest.mark.parametrize("name", ["lazuli", "gateway"])
def test_they_may_do_no_more_than_they_need(read_yaml, name):
    service = read_yaml("compose.yaml")["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service.get("volumes", []) == (["lazuli:/var/lib/lazuli"] if name == "lazuli" else [])


def test_all_ports_of_the_command_are_published(read_yaml, command):
    (ports,) = read_yaml("compose.yaml")["services"]["lazuli"]["ports"]
    first, last = map(int, re.fullmatch(r"127\.0\.0\.1:(\d+)-(\d+):\1-\2", ports).groups())
    assert set(range(first, last + 1)) == set(command.ports.values())


def test_the_gateway_understands_its_command_and_asks_the_server(read_yaml, command, monkeypatch):
    from lazuli_client.gateway import app, server

    asked = []
    monkeypatch.setattr(app, "create", lambda settings: None)
    monkeypatch.setattr(server, "serve", asked.append)
    gateway = read_yaml("compose.yaml")["services"]["gateway"]
    name, *words = gateway["command"]
    assert name == "lazuli"
    commands = Typer()
    gateway_command.register(commands)
    commands.command()(lambda: None)  # with a single one, Typer would take no name
    result = CliRunner().invoke(commands, words)
    assert result.exit_code == 0, result.output
    (settings,) = asked
    assert settings.replicas == (f"lazuli:{command.grpc_port}",)
    assert gateway["ports"] == [f"127.0.0.1:{settings.port}:{settings.port}"]
    assert gateway["healthcheck"]["test"][-1] == f"http://127.0.0.1:{settings.port}/health"
    assert settings.drain_s < seconds_of(gateway["stop_grace_period"])
