"""The pages of model families say nothing that does not exist: commands, options, outputs, architectures, figures."""

import ast
import dataclasses
import inspect
import json
import re
from functools import cache
from pathlib import Path

import pytest
import typer

from checkpoints.families import STANDS
from lazuli import cli
from lazuli.config import TokenizerConfig
from lazuli.launch.repository import built_in_repository
from lazuli.models import registry
from lazuli.options import RequestOptions
from lazuli.repository.blueprint import Blueprint
from lazuli.repository.names import Task
from lazuli.scoring.options import ClassifyOptions, RerankOptions
from lazuli_client import LazuliClient
from lazuli_client.cli import register
from reporting.model_pages import (
    ANSWER,
    COMMAND,
    FOLDER,
    PYTHON,
    Addition,
    lazuli_arguments,
    pages,
    read_additions,
    read_blocks,
    read_requests,
    shorten_answer,
    with_answers,
)

ROOT = Path(__file__).parents[4]
OPTIONS = {
    Task.EMBED: RequestOptions,
    Task.CONTEXT: RequestOptions,
    Task.RERANK: RerankOptions,
    Task.CLASSIFY: ClassifyOptions,
}
INPUTS = {"text", "query", "document"}
MOST_LINES = 90
EVERY_PAGE = pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
EVERY_TEXT = pytest.mark.parametrize("page", [*pages(), FOLDER / "README.md"], ids=lambda page: page.stem)


@cache
def commands():
    app = typer.Typer()
    for command in cli.app.registered_commands:
        app.registered_commands.append(command)
    for group in cli.app.registered_groups:
        app.registered_groups.append(group)
    register(app)
    return typer.main.get_command(app)


def parse(arguments):
    """The parameters of a command line; raises if one does not exist."""
    command, rest = commands(), list(arguments)
    while hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    return command.make_context(command.name, rest).params


@cache
def blueprint(task):
    return Blueprint.read(built_in_repository(), task)


def task_of(addition):
    if addition.task:
        return Task(addition.task)
    return Task(STANDS[addition.checkpoint].task if addition.checkpoint in STANDS else "embed")


def blocks_of(page, *kinds):
    blocks = read_blocks(page.read_text(encoding="utf-8"))
    return [block for block in blocks if not kinds or block.kind in kinds]


def tasks_of(page):
    return {addition.name: task_of(addition) for addition in read_additions(blocks_of(page))}


@cache
def sources():
    files = [*ROOT.glob("backend_src/lazuli/**/*.p*"), *ROOT.glob("client/**/*.py"), *ROOT.glob("model_repository/*/*")]
    return "\n".join(file.read_text(encoding="utf-8") for file in files if file.suffix in (".py", ".pbtxt"))


@EVERY_PAGE
def test_a_page_is_short_and_whole(page):
    text = page.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    wanted = ["Add", "Request and answer", "Outputs and tasks", "Traps", "Accuracy", "Figures"]
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == wanted
    kinds = [block.kind for block in blocks_of(page)]
    assert kinds[-4:] == [COMMAND, ANSWER, PYTHON, ANSWER]
    assert all(block.text.strip() for block in blocks_of(page))


@EVERY_PAGE
def test_every_command_line_parses(page):
    lines = [arguments for block in blocks_of(page, COMMAND) if (arguments := lazuli_arguments(block.text))]
    assert lines
    for arguments in lines:
        parse(arguments)


@EVERY_PAGE
def test_models_are_added_with_known_parameters(page):
    for addition in read_additions(blocks_of(page)):
        parameters = dict(pair.split("=", 1) for pair in parse(addition.arguments)["parameter"] or [])
        assert set(parameters) <= set(blueprint(task_of(addition)).settle({**parameters, "checkpoint": "x"}))
        if "prompts" in parameters:
            assert TokenizerConfig(prompts=parameters["prompts"]).parsed_prompts()


@EVERY_PAGE
def test_requests_have_known_options_and_the_answers_known_outputs(page):
    tasks, requests = tasks_of(page), list(read_requests(blocks_of(page)))
    assert requests
    for model, body in requests:
        assert INPUTS & set(body)
        options = {name: value for name, value in body.items() if name not in INPUTS}
        OPTIONS[tasks[model]].from_json(json.dumps(options))
    outputs = {
        name
        for task in tasks.values()
        for config in blueprint(task).configs.values()
        for name in re.findall(r'name: "(\w+)"', config.text)
    }
    answer = blocks_of(page, ANSWER)[0].text
    assert {line.split(":")[0] for line in answer.splitlines()} <= outputs


@EVERY_PAGE
def test_programs_call_what_the_client_has(page):
    tasks, calls = tasks_of(page), []
    for block in blocks_of(page, PYTHON):
        for call in ast.walk(ast.parse(block.text)):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                if isinstance(call.func.value, ast.Name) and call.func.value.id == "client":
                    method = inspect.signature(getattr(LazuliClient, call.func.attr))
                    assert {keyword.arg for keyword in call.keywords} <= set(method.parameters)
                    calls.append(call)
                    check_values(call)
            elif isinstance(call, ast.Call) and getattr(call.func, "id", "") == "LazuliClient":
                named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
                assert named["model"] in tasks
    assert calls


def check_values(call):
    kind = RerankOptions if call.func.attr == "rerank" else RequestOptions
    known = {field.name for field in dataclasses.fields(kind)}
    values = {}
    for keyword in call.keywords:
        if keyword.arg in known and isinstance(keyword.value, ast.Constant | ast.List):
            value = ast.literal_eval(keyword.value)
            values[keyword.arg] = ",".join(value) if isinstance(value, list) else value
    kind.from_json(json.dumps(values))


def spans_of(page):
    """What stands between backticks, outside of blocks."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", text)


@EVERY_TEXT
def test_words_of_code_are_words_of_the_code(page):
    """Options, their values, outputs, parameters, names in `config.json`."""
    words = {span for span in spans_of(page) if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", span)}
    assert len(words) > 2
    assert [word for word in sorted(words) if not re.search(rf"\b{word}\b", sources())] == []


@EVERY_TEXT
def test_flags_and_commands_in_the_text_exist(page):
    known = {option for command in ("add",) for option in flags(commands().commands["model"].commands[command])}
    for span in spans_of(page):
        if span.startswith("--"):
            assert span.split()[0].strip("'") in known
            if span.startswith(("--task ", "--pooling ", "--dtype ", "--max-seq-length ")):
                parse(["model", "add", "x", "--checkpoint", "y", *span.split()])
            if span.startswith("--set"):
                name = span.split(maxsplit=1)[1].strip("'").split("=")[0]
                assert any(
                    f'key: "{name}"' in config.text for task in Task for config in blueprint(task).configs.values()
                )
        if span.startswith("lazuli "):
            assert span.split()[1] in commands().commands


def flags(command):
    return {name for parameter in command.params for name in parameter.opts}


def test_every_architecture_has_its_page():
    told = {name: [page.stem for page in pages() if name in spans_of(page)] for name in registry._FAMILIES}
    assert {name: stems for name, stems in told.items() if not stems} == {}


def test_the_index_links_every_page_and_the_front_page_the_index():
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\((\w+\.md)\)", index)) == {page.name for page in pages()}
    assert "(perf/models/README.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


@EVERY_PAGE
def test_no_figure_is_typed_by_hand(page):
    """What stands between its marks is what the results say; `make report` writes it."""
    pytest.importorskip("matplotlib")
    from report import read_results, table
    from reporting.models import fill_page

    text = page.read_text(encoding="utf-8")
    assert text.count("<!-- accuracy: ") == text.count("<!-- figures: ") == 1
    assert fill_page(text, read_results(ROOT / "perf" / "results"), table) == text


class TestBlocks:
    TEXT = "\n".join(
        [
            "# A page",
            "    .venv/bin/lazuli model add one --checkpoint org/one --task rerank --set 'a={\"b\": 1}'",
            "    .venv/bin/lazuli model add two --checkpoint org/two",
            '    curl -s http://127.0.0.1:8000/v2/models/one/generate -d \'{"query": "a"}\'',
            "",
            "```text",
            "```",
            "",
            "    make report",
            "```python",
            "print(1)",
            "```",
            "```text",
            "old",
            "```",
            "",
        ]
    )

    def test_they_are_found_in_order(self):
        kinds = [block.kind for block in read_blocks(self.TEXT)]
        assert kinds == [COMMAND, COMMAND, COMMAND, ANSWER, PYTHON, ANSWER]

    def test_additions(self):
        first, second = read_additions(read_blocks(self.TEXT))
        assert first == Addition("one", "org/one", "rerank", first.arguments)
        assert first.arguments[-1] == 'a={"b": 1}'
        assert (second.name, second.checkpoint, second.task) == ("two", "org/two", None)

    def test_requests(self):
        assert list(read_requests(read_blocks(self.TEXT))) == [("one", {"query": "a"})]
        with pytest.raises(ValueError, match="not a request"):
            list(read_requests(read_blocks("    curl -s http://127.0.0.1:8000/v2/health/ready")))

    def test_answers_go_behind_what_printed_them(self):
        text = with_answers(self.TEXT, [None, None, "of curl\n", None, "1", None])
        assert [block.text for block in read_blocks(text) if block.kind == ANSWER] == ["of curl\n", "1\n"]
        assert with_answers(text, [None, None, "of curl\n", None, "1", None]) == text
        assert with_answers(self.TEXT, [None] * 6) == self.TEXT

    def test_long_lists_are_cut(self):
        answer = {"model_name": "one", "embedding": [0.123456, -1, 2, 3, 4, 5, 6], "token_count": 5, "label": ["ä"]}
        expected = 'embedding: [0.1235, -1, 2, ...], 7 values\ntoken_count: 5\nlabel: ["ä"]'
        assert shorten_answer(json.dumps(answer)) == expected
        assert shorten_answer("plain\n") == "plain\n"
