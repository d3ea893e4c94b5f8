from pathlib import Path

import pytest

from lazuli.repository.errors import RepositoryError
from lazuli.repository.model_config import ModelConfig

REPOSITORY = Path(__file__).resolve().parents[4] / "model_repository"
NAMES = sorted(path.name for path in REPOSITORY.iterdir() if path.is_dir())
RENAMED = {name: f"docs.{name}" for name in NAMES}


def read(name):
    return ModelConfig((REPOSITORY / name / "config.pbtxt").read_text(encoding="utf-8"), name)


def parsed(config):
    from google.protobuf import text_format
    from tritonclient.grpc import model_config_pb2

    return text_format.Parse(config.text, model_config_pb2.ModelConfig())


@pytest.mark.parametrize("name", NAMES)
def test_nothing_changes_but_names_and_the_given_parameters(name):
    given = {"checkpoint": "/x", "max_seq_length": "64", "unheard_of": "1"}
    before, after = parsed(read(name)), parsed(read(name).renamed(RENAMED, given, "a remark"))
    before.name = RENAMED[name]
    for step in before.ensemble_scheduling.step:
        step.model_name = RENAMED[step.model_name]
    for key in set(given) & set(before.parameters):
        before.parameters[key].string_value = given[key]
    assert after == before


@pytest.mark.parametrize("name", NAMES)
def test_every_comment_stays(name):
    text = read(name).renamed(RENAMED, {}, "a remark").text
    comments = [line for line in read(name).text.splitlines() if "#" in line]
    assert [line for line in text.splitlines() if "#" in line] == ["# a remark", *comments]


@pytest.mark.parametrize(
    "value", ['/a "quoted" \\ folder', "mödel 模型", '{"query": "Instruct: x\\nQuery:"}', "a\nb\tc", "", "\\1", "#"]
)
def test_any_value_is_read_as_it_was_given(value):
    config = read("tokenizer").renamed(RENAMED, {"prompts": value}, "a remark")
    assert config.parameters["prompts"] == value
    again = config.renamed({"docs.tokenizer": "other"}, {"prompts": "x"}, "another")
    assert (again.name, again.parameters["prompts"]) == ("other", "x")


def test_what_is_no_configuration_is_refused():
    with pytest.raises(RepositoryError, match=r"^here: .*no_such_field"):
        ModelConfig("no_such_field: 1", "here")


def test_a_layout_that_would_be_missed_is_refused():
    text = read("tokenizer").text.replace('{ key: "checkpoint", value:', '{ key: "checkpoint" value:')
    with pytest.raises(RepositoryError, match="not laid out as it was written"):
        ModelConfig(text).renamed(RENAMED, {"checkpoint": "/x"}, "a remark")
