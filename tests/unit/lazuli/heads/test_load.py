import pytest
import torch
from safetensors.torch import load_file, save_file

from lazuli.checkpoint import load_checkpoint
from lazuli.errors import ConfigError
from lazuli.heads.head_config import INNER_ACTIVATIONS, AnswerTokens, HeadConfig, read_head_config
from lazuli.heads.load import _ACTIVATIONS, load_head

CPU = torch.device("cpu")


def load(folder, task, device=CPU):
    checkpoint = load_checkpoint(str(folder))
    return load_head(checkpoint, read_head_config(checkpoint, task), device)


def test_what_a_configuration_may_name_can_be_computed():
    assert set(_ACTIVATIONS) == set(INNER_ACTIVATIONS)


def test_layers_are_float32_whatever_the_file_holds(tmp_path, write_head):
    write_head(tmp_path, "BertForSequenceClassification", num_labels=3)
    file = tmp_path / "model.safetensors"
    save_file({name: tensor.bfloat16() for name, tensor in load_file(file).items()}, file)
    layers = load(tmp_path, "classify")
    assert [layer.num_out for layer in layers] == [48, 3]
    vectors = torch.randn(5, 48)
    for layer in layers:
        vectors = layer(vectors)
        assert vectors.dtype == torch.float32
    assert vectors.shape == (5, 3)


def test_shapes_alone(tmp_path, write_head):
    write_head(tmp_path, "ModernBertForSequenceClassification", num_labels=1)
    assert [layer.num_out for layer in load(tmp_path, "rerank", torch.device("meta"))] == [48, 1]


def test_a_missing_tensor_is_named(tmp_path, write_head):
    write_head(tmp_path, "BertForSequenceClassification", num_labels=3)
    file = tmp_path / "model.safetensors"
    save_file({name: tensor for name, tensor in load_file(file).items() if "pooler" not in name}, file)
    with pytest.raises(ConfigError, match=r"the tensor 'pooler\.dense\.weight' is missing"):
        load(tmp_path, "classify")


class TestAnswers:
    @pytest.fixture
    def head_of(self, tmp_path, write_head):
        model = write_head(tmp_path, "Qwen3ForCausalLM", tie_word_embeddings=False)
        checkpoint = load_checkpoint(str(tmp_path))

        def head_of(yes, no):
            return load_head(checkpoint, HeadConfig("last", ("yes",), "sigmoid", answers=AnswerTokens(yes, no)), CPU)

        return model, head_of

    @pytest.mark.parametrize("no", [3, None])
    def test_rows(self, head_of, no):
        model, make = head_of
        (layer,) = make(99, no)
        hidden = torch.randn(4, 48)
        logits = model.lm_head(hidden)
        expected = logits[:, 99] - (0 if no is None else logits[:, no])
        assert layer.num_out == 1
        torch.testing.assert_close(layer(hidden)[:, 0], expected, rtol=0, atol=1e-5)

    @pytest.mark.parametrize("yes", [100, -1])
    def test_a_token_outside_the_vocabulary(self, head_of, yes):
        with pytest.raises(ConfigError, match=rf"answer tokens \[{yes}, 0\], but the vocabulary has 100"):
            head_of[1](yes, 0)

    def test_a_head_that_is_neither_there_nor_tied(self, tmp_path, head_of):
        file = tmp_path / "model.safetensors"
        save_file({name: tensor for name, tensor in load_file(file).items() if "lm_head" not in name}, file)
        with pytest.raises(ConfigError, match=r"the tensor 'lm_head\.weight' is missing"):
            head_of[1](1, 2)
