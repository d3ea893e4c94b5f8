import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from lazuli.repository.errors import RepositoryError
from lazuli.repository.facts import check_small_files, examine


def examined(checkpoint, tokenizer=None, engine=None):
    folder = {"checkpoint": str(checkpoint)}
    return examine(folder | (tokenizer or {}), folder | (engine or {}))


def change(file, **values):
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def test_what_a_checkpoint_says(checkpoint):
    facts = examined(checkpoint)
    assert (facts.architecture, facts.dimension, facts.max_seq_length) == ("BertModel", 32, 64)
    assert (facts.pooling, facts.pooling_is_guessed, facts.normalize) == ("mean", False, True)
    assert (dict(facts.prompts), facts.default_prompt_name) == ({"query": "w1 ", "document": ""}, None)
    tensors = load_file(checkpoint / "model.safetensors")
    assert facts.weights.num_parameters == sum(tensor.numel() for tensor in tensors.values())


def test_dense_modules_decide_the_dimension_and_are_checked_too(checkpoint):
    folder = checkpoint / "3_Dense"
    folder.mkdir()
    modules = json.loads((checkpoint / "modules.json").read_text())
    modules.insert(-1, {"type": "sentence_transformers.models.Dense", "path": folder.name})
    (checkpoint / "modules.json").write_text(json.dumps(modules))
    identity = "torch.nn.modules.linear.Identity"
    config = {"in_features": 32, "out_features": 8, "bias": False, "activation_function": identity}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(RepositoryError, match=r"3_Dense has neither model\.safetensors"):
        examined(checkpoint)
    save_file({"linear.weight": torch.zeros(8, 32)}, str(folder / "model.safetensors"))
    assert examined(checkpoint).dimension == 8
    change(folder / "config.json", in_features=31)
    with pytest.raises(RepositoryError, match="in_features: 31, but 32 come in"):
        check_small_files(checkpoint)


def test_parameters_come_before_the_checkpoint(checkpoint):
    tokenizer = {"max_seq_length": "16", "prompts": '{"title": "w2 "}', "default_prompt_name": "title"}
    facts = examined(checkpoint, tokenizer, {"pooling": "cls"})
    assert (facts.max_seq_length, facts.pooling, facts.default_prompt_name) == (16, "cls", "title")
    assert list(facts.prompts) == ["query", "document", "title"]


def test_pooling_is_a_guess_without_a_word_of_it(checkpoint):
    (checkpoint / "modules.json").unlink()
    assert examined(checkpoint).pooling_is_guessed
    assert not examined(checkpoint, engine={"pooling": "last"}).pooling_is_guessed


def test_an_unsupported_architecture_is_refused_by_name_with_those_there_are(checkpoint):
    change(checkpoint / "config.json", architectures=["T5Model"])
    for check in (check_small_files, examined):
        with pytest.raises(RepositoryError, match=r"T5Model is not supported; supported: BertModel, .*Qwen3Model"):
            check(checkpoint)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors", "1_Pooling/config.json"])
def test_a_missing_file_is_named(checkpoint, name):
    (checkpoint / name).unlink()
    with pytest.raises(RepositoryError, match=name):
        examined(checkpoint)


def test_small_files_can_be_checked_without_weights(checkpoint):
    (checkpoint / "model.safetensors").unlink()
    check_small_files(checkpoint)
    (checkpoint / "tokenizer.json").write_text("{}")
    with pytest.raises(RepositoryError, match="tokenizer"):
        check_small_files(checkpoint)


@pytest.mark.parametrize("family", ["Bert", "XLMRoberta", "Qwen3"])
def test_every_family_can_be_checked_without_reading_its_weights(checkpoint, family):
    import transformers

    (checkpoint / "model.safetensors").unlink()
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    config = getattr(transformers, f"{family}Config")(**sizes, vocab_size=100, max_position_embeddings=66)
    getattr(transformers, f"{family}Model")(config).save_pretrained(checkpoint)
    assert examined(checkpoint).dimension == 32


def test_tensors_must_be_those_of_the_architecture(checkpoint):
    file = checkpoint / "model.safetensors"
    tensors = load_file(file)
    lost = tensors.pop("encoder.layer.1.output.dense.weight")
    save_file(tensors, file)
    with pytest.raises(RepositoryError, match=r"'encoder\.layer\.1\.output\.dense\.weight' is missing"):
        examined(checkpoint)
    save_file(tensors | {"encoder.layer.1.output.dense.weight": lost.T.contiguous()}, file)
    with pytest.raises(RepositoryError, match=r"has shape \[48, 32\], expected \[32, 48\]"):
        examined(checkpoint)
    save_file(tensors | {"encoder.layer.1.output.dense.weight": lost, "adapter": torch.zeros(1)}, file)
    with pytest.raises(RepositoryError, match="1 tensors are left over: adapter"):
        examined(checkpoint)


@pytest.mark.parametrize(
    ("tokenizer", "engine", "match"),
    [
        ({"max_seq_length": "65"}, {}, "max_seq_length: 65, but the model takes 64 tokens"),
        ({"max_seq_length": "2"}, {}, "max_seq_length: 2 leaves no room"),
        ({"prompts": "query"}, {}, "prompts: not valid JSON"),
        ({}, {"pooling": "max"}, "pooling: 'max' is not one of auto, mean, cls, last"),
        ({}, {"dtype": "int4"}, "dtype: 'int4' is not one of auto, float32"),
        ({}, {"token_budget": "0"}, "token_budget: must be at least 1, got 0"),
    ],
)
def test_parameters_that_do_not_fit_are_named_with_the_limit(checkpoint, tokenizer, engine, match):
    with pytest.raises(RepositoryError, match=match):
        examined(checkpoint, tokenizer, engine)
