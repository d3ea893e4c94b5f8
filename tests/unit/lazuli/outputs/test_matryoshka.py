import json

import pytest

from lazuli.checkpoint import load_checkpoint
from lazuli.errors import ConfigError
from lazuli.outputs.matryoshka import Matryoshka, read_matryoshka

QWEN3_PROMPT = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"


@pytest.fixture
def read(tmp_path, write_bert):
    def read(setting=None, card=None, prompts=None, pooling="mean", **config):
        write_bert(tmp_path, pooling=pooling, **config)
        if card is not None:
            (tmp_path / "README.md").write_text(card)
        if prompts is not None:
            (tmp_path / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
        return read_matryoshka(load_checkpoint(str(tmp_path)), setting)

    return read


def test_a_checkpoint_that_says_nothing(read):
    assert read() == Matryoshka(False)


@pytest.mark.parametrize(("setting", "allowed"), [("yes", True), ("no", False)])
def test_the_parameter_decides(read, setting, allowed):
    assert read(setting, is_matryoshka=not allowed) == Matryoshka(allowed)


@pytest.mark.parametrize("name", ["matryoshka_dimensions", "matryoshka_dims"])
def test_a_list(read, name):
    assert read(**{name: [16, 8]}) == Matryoshka(True, (8, 16))


@pytest.mark.parametrize("values", [["8"], [8.5], {"a": 1}, [True], [0]])
def test_a_list_of_something_else(read, values):
    with pytest.raises(ConfigError, match="matryoshka_dimensions: must be a list of numbers"):
        read(matryoshka_dimensions=values)


@pytest.mark.parametrize("flag", [False, True])
def test_a_flag(read, flag):
    assert read(is_matryoshka=flag) == Matryoshka(flag)


@pytest.mark.parametrize(
    ("card", "allowed"),
    [
        ("---\ntags:\n- sentence-similarity\n- loss:MatryoshkaLoss\n---\n# A model\n", True),
        ("---\ntags:\n- loss:MultipleNegativesRankingLoss\n---\nnot loss:MatryoshkaLoss\n", False),
        ("# A model\n- loss:MatryoshkaLoss\n", False),
        ("---\ntags:\n- x\n---\n- loss:MatryoshkaLoss\n", False),
    ],
)
def test_the_tags_of_the_card(read, card, allowed):
    assert read(card=card) == Matryoshka(allowed)


@pytest.mark.parametrize(
    ("allowed", "changes"),
    [
        (True, {}),
        (False, {"pooling": "mean"}),
        (False, {"prompts": {}}),
        (False, {"prompts": {"query": "query: "}}),
        (False, {"model_type": "bert"}),
    ],
)
def test_qwen3_embedding_is_known_by_its_prompt(read, allowed, changes):
    facts = {"model_type": "qwen3", "pooling": "last", "prompts": {"query": QWEN3_PROMPT, "document": ""}}
    assert read(**(facts | changes)) == Matryoshka(allowed)


@pytest.mark.parametrize("architecture", ["PPLXQwen3Model", "PPLXQwen3ContextualModel"])
def test_perplexitys_models(read, architecture):
    assert read(architectures=[architecture]) == Matryoshka(True)


@pytest.mark.parametrize(("layers", "allowed"), [(0, False), (2, True)])
def test_embedding_gemma_is_known_by_its_layers(tmp_path, write_bert, layers, allowed):
    write_bert(tmp_path, architectures=["Gemma3TextModel"])
    modules = json.loads((tmp_path / "modules.json").read_text())
    for number in range(layers):
        folder = tmp_path / f"{number}_Dense"
        folder.mkdir()
        activation = "torch.nn.modules.linear.Identity"
        config = {"in_features": 32, "out_features": 32, "bias": False, "activation_function": activation}
        (folder / "config.json").write_text(json.dumps(config))
        modules.insert(-1, {"type": "sentence_transformers.models.Dense", "path": folder.name})
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    assert read_matryoshka(load_checkpoint(str(tmp_path))) == Matryoshka(allowed)
