"""Tiny random checkpoints with heads, as `transformers` writes them, and the models that wrote them."""

import json

import pytest
import torch

SIZES = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 80,
    "vocab_size": 100,
    "max_position_embeddings": 66,
}
# Of each architecture, what its configuration is called and what it needs beside the sizes.
ARCHITECTURES = {
    "BertForSequenceClassification": ("BertConfig", {"type_vocab_size": 2}),
    "XLMRobertaForSequenceClassification": ("XLMRobertaConfig", {"type_vocab_size": 1, "pad_token_id": 1}),
    "RobertaForSequenceClassification": ("RobertaConfig", {"type_vocab_size": 1, "pad_token_id": 1}),
    "MPNetForSequenceClassification": ("MPNetConfig", {"pad_token_id": 1}),
    "ModernBertForSequenceClassification": (
        "ModernBertConfig",
        {"local_attention": 16, "pad_token_id": 0, "bos_token_id": 1, "cls_token_id": 1, "eos_token_id": 2}
        | {"sep_token_id": 2},
    ),
    "Qwen3ForSequenceClassification": ("Qwen3Config", {"num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0}),
    "Qwen3ForCausalLM": ("Qwen3Config", {"num_key_value_heads": 2, "head_dim": 16}),
}


def change_json(file, **changes):
    content = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps(content | changes))


@pytest.fixture(scope="session")
def write_head():
    """Write a checkpoint of an architecture into a folder; returns the model of `transformers`."""

    def write(folder, architecture, **changes):
        import transformers

        torch.manual_seed(0)
        config_name, special = ARCHITECTURES[architecture]
        config = getattr(transformers, config_name)(**(SIZES | special | changes), attn_implementation="eager")
        model = getattr(transformers, architecture)(config).eval()
        for parameter in model.parameters():
            parameter.data.add_(0.2 * torch.randn_like(parameter))
        model.save_pretrained(folder)
        return model

    return write


@pytest.fixture(scope="session")
def write_tokenizer():
    """Write a tokenizer whose vocabulary is a list of words."""

    def write(folder, words):
        from tokenizers import Tokenizer, models

        Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token=words[0])).save(
            str(folder / "tokenizer.json")
        )

    return write
