"""The image: its files, its packages and its command, without building it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import rehearse
from rehearse import CONTEXT, Builder, Step, copied_files, ignore_patterns, is_sent, read_steps, steps_of_last_stage
from requirements import main as list_requirements
from requirements import pins, requirements

DOCKERFILE = CONTEXT / "docker" / "Dockerfile"
MAKEFILE = (CONTEXT / "Makefile").read_text(encoding="utf-8")
TEXT = DOCKERFILE.read_text(encoding="utf-8")
EXTRAS = tuple(re.search(r"^IMAGE_EXTRAS := (.*)$", MAKEFILE, re.MULTILINE)[1].split())


class FilesOnly(Builder):
    """Carries out what makes files and settings; takes down what would run."""

    def __init__(self, root, arguments):
        super().__init__(root, arguments)
        self.runs = []

    def _run(self, step):
        self.runs.append(step.text)


def built(root, device):
    arguments = {"DEVICE": device}
    builder = FilesOnly(root, arguments)
    for step in steps_of_last_stage(read_steps(TEXT), arguments):
        builder.do(step)
    return builder


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    return built(tmp_path_factory.mktemp("image"), "cuda")


def test_hadolint_finds_nothing(tool):
    assert tool("hadolint", DOCKERFILE) == ""


def test_the_base_image_is_pinned():
    (base,) = re.findall(r"^ARG TRITON_IMAGE=(\S+)$", TEXT, re.MULTILINE)
    assert re.fullmatch(r"nvcr\.io/nvidia/tritonserver:\d\d\.\d\d-py3", base)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_device_decides_where_torch_is_from(tmp_path, device):
    (torch,) = [run for run in built(tmp_path, device).runs if "torch==" in run]
    assert ("--index-url" in torch) is (device == "cpu")
    assert re.search(r"torch==(\S+)", torch)[1] == re.search(r"^TORCH \?= (\S+)", MAKEFILE, re.MULTILINE)[1]


def test_what_changes_often_is_copied_last():
    kinds = [
        (step.kind, step.text)
        for step in steps_of_last_stage(read_steps(TEXT), {"DEVICE": "cuda"})
        if step.kind in ("COPY", "RUN")
    ]
    torch, packages, source = (
        next(place for place, (kind, text) in enumerate(kinds) if kind == "RUN" and part in text)
        for part in ("torch==", "requirements.txt", "--no-deps .")
    )
    copied = [place for place, (kind, text) in enumerate(kinds) if kind == "COPY" and "backend_src" in text]
    assert torch < packages < min(copied) < source


def test_the_image_holds_the_project_and_nothing_else(image):
    top = image.root / "opt" / "lazuli"
    for name in (
        "pyproject.toml",
        "README.md",
        "backend_src/lazuli/attention/table.json",
        "client/lazuli_client/py.typed",
    ):
        assert (top / name).read_bytes() == (CONTEXT / name).read_bytes()
    repository = {path.relative_to(CONTEXT) for path in (CONTEXT / "model_repository").rglob("*") if path.is_file()}
    repository = {path for path in repository if "__pycache__" not in path.parts}
    assert {path.relative_to(top) for path in (top / "model_repository").rglob("*") if path.is_file()} == repository
    assert not list(top.rglob("*.pyc"))
    assert {path.name for path in top.iterdir()} == {
        "README.md",
        "backend_src",
        "client",
        "constraints.txt",
        "model_repository",
        "pyproject.toml",
        "requirements.py",
    }


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("backend_src/lazuli/cli.py", True),
        ("docker/constraints.txt", True),
        ("docker/compose.yaml", False),
        (".git/config", False),
        (".venv/bin/python", False),
        ("tests/conftest.py", False),
        ("client/lazuli_client/__pycache__/cli.cpython-311.pyc", False),
        ("backend_src/lazuli.egg-info/PKG-INFO", False),
    ],
)
def test_the_context_has_only_what_is_needed(path, expected):
    assert is_sent(Path(path), ignore_patterns()) is expected


def test_a_source_that_is_not_there_is_an_error():
    with pytest.raises(FileNotFoundError, match=r"COPY perf/nothing"):
        list(copied_files(["perf/nothing"], []))


def test_the_packages_are_those_that_the_project_asks_for(image):
    """The step of the Dockerfile itself, with the files of the image."""
    (run,) = [run for run in image.runs if "requirements.py" in run]
    command = run.split("&&")[0].replace("python ", f"{sys.executable} ", 1)
    folder = image.root / "opt" / "lazuli"
    subprocess.run(["bash", "-c", command], cwd=folder, check=True)
    lines = (folder / "requirements.txt").read_text(encoding="utf-8").splitlines()
    (folder / "requirements.txt").unlink()
    assert lines == requirements(CONTEXT / "pyproject.toml", EXTRAS)
    assert {"numpy", "torch", "typer", "kitoken"} <= {Requirement(line).name for line in lines}


def pinned():
    lines = (DOCKERFILE.parent / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def test_every_requirement_has_a_pin_that_fits():
    for line in requirements(CONTEXT / "pyproject.toml", EXTRAS):
        requirement = Requirement(line)
        if requirement.name != "torch":
            assert requirement.specifier.contains(Version(pinned()[requirement.name])), line


def test_pins_name_what_is_installed_here_with_all_that_it_needs():
    found = dict(
        line.split("==") for line in pins(requirements(CONTEXT / "pyproject.toml", ("engine", "default-model")))
    )
    assert {"tokenizers", "huggingface-hub", "grpcio", "scipy"} <= set(found)  # the last three by others
    assert not {"torch", "lazuli", "pytest"} & set(found)


def test_it_does_not_run_as_root(image):
    user = image.image.settings["USER"]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)  # Kubernetes cannot tell from a name


def test_the_command_is_one_that_lazuli_understands(image, served_options):
    options = served_options(Step("CMD", image.image.settings["CMD"]).words())
    assert options.host == "0.0.0.0"
    exposed = {int(port) for port in image.image.settings["EXPOSE"].split()}
    assert exposed == {options.http_port, options.grpc_port, options.metrics_port, options.health_port}


def test_health_is_asked_where_the_command_tells_it(image, served_options):
    options = served_options(Step("CMD", image.image.settings["CMD"]).words())
    flags, command = image.image.settings["HEALTHCHECK"].split("CMD", 1)
    words = Step("CMD", command.strip()).words()
    assert words[0] == "curl"
    assert "-f" in words[1]  # else an answer of 503 counts as health
    assert words[-1] == f"http://127.0.0.1:{options.health_port}/ready"
    assert float(re.search(r"--start-period=(\d+)s", flags)[1]) >= options.start_timeout_s


def test_what_is_written_lies_in_the_volume(image):
    environment, volume = image.image.environment, image.image.settings["VOLUME"]
    assert environment["HOME"] == volume
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        assert environment[name].startswith(f"{volume}/")
    assert any(f"--owner=1000 --group=1000 {volume}" in run for run in image.runs)


def test_packages_come_before_those_of_the_base_image(image):
    assert image.image.environment["PATH"].startswith("/opt/lazuli/venv/bin:/opt/tritonserver/bin:")


@pytest.mark.parametrize("program", ["rehearse.py", "requirements.py"])
def test_the_programs_print_their_usage(program):
    command = [sys.executable, str(CONTEXT / "docker" / program)]
    asked = subprocess.run([*command, "--help"], capture_output=True, text=True, check=False, timeout=60)
    assert (asked.returncode, asked.stderr) == (0, "")
    assert asked.stdout.startswith(f"usage: {program}")
    assert f"python docker/{program}" in asked.stdout
    without = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (without.returncode, without.stdout) == (2, "")
    assert without.stderr.startswith(f"usage: {program}")


@pytest.mark.parametrize("words", [[], ["lazuli", "serve", "--http-port", "9000"], ["--help"]])
def test_words_for_the_container_are_left_as_they_are(tmp_path, monkeypatch, words):
    given = []
    monkeypatch.setattr(rehearse, "run", lambda *arguments: given.append(arguments) or 7)
    assert rehearse.main(["run", str(tmp_path), *words]) == 7
    assert given == [(tmp_path, words)]


def test_arguments_of_a_build_have_values(tmp_path, monkeypatch, capsys):
    given = []
    monkeypatch.setattr(rehearse, "build", lambda *arguments: given.append(arguments))
    assert rehearse.main(["build", str(tmp_path), "DEVICE=cpu", "A=b=c"]) == 0
    assert given == [(tmp_path, {"DEVICE": "cpu", "A": "b=c"})]
    with pytest.raises(SystemExit, match="2"):
        rehearse.main(["build", str(tmp_path), "DEVICE"])
    assert "'DEVICE' is not NAME=VALUE" in capsys.readouterr().err


def test_requirements_are_printed_as_they_are_asked_for(capsys):
    file = CONTEXT / "pyproject.toml"
    list_requirements([str(file), "otel"])
    assert capsys.readouterr().out.splitlines() == requirements(file, ["otel"])
    list_requirements(["--pins", str(file)])
    assert capsys.readouterr().out.splitlines() == pins(requirements(file, []))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["nope"], "has no extra 'nope'; it has "),
        (["--pins", "nope"], "has no extra 'nope'; it has "),
    ],
)
def test_an_extra_that_is_not_there_is_refused(capsys, words, reason):
    with pytest.raises(SystemExit, match="2"):
        list_requirements([*words[:-1], str(CONTEXT / "pyproject.toml"), words[-1]])
    output = capsys.readouterr()
    assert output.out == ""
    assert reason in output.err.splitlines()[-1]


@pytest.mark.parametrize(("text", "reason"), [(None, "No such file"), ("a = [", "Invalid"), ("a = 1", "no [project]")])
def test_what_is_no_project_is_refused(tmp_path, capsys, text, reason):
    file = tmp_path / "pyproject.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SystemExit, match="2"):
        list_requirements([str(file)])
    assert reason in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("command", ["build", "run"])
@pytest.mark.parametrize("is_file", [False, True])
def test_a_root_that_is_no_folder_is_refused(tmp_path, capsys, command, is_file):
    root = tmp_path / "root"
    if is_file:
        root.touch()
    with pytest.raises(SystemExit, match="2"):
        rehearse.main([command, str(root)])
    assert f"ROOT: {root} is no folder" in capsys.readouterr().err
    assert not root.is_dir()
