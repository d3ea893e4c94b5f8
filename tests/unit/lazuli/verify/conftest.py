"""Tiny random checkpoints of every task with tokenizers, a sample of words that they know, and the command."""

import json
import string

import pytest
import torch
import typer
from typer.testing import CliRunner

from lazuli.verify import command

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = (*SPECIAL, *string.ascii_lowercase)
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """A sample of 6 queries and 14 documents, all different."""
    generator = torch.Generator().manual_seed(1)

    def words(count):
        return " ".join(string.ascii_lowercase[place] for place in torch.randint(26, (count,), generator=generator))

    content = {
        "documents": [words(3 + number) for number in range(14)],
        "queries": [{"text": words(2 + number), "relevant": {str(2 * number): 1}} for number in range(6)],
    }
    file = tmp_path_factory.mktemp("sample") / "texts.json"
    file.write_text(json.dumps(content))
    return file


@pytest.fixture(scope="session")
def verify(texts):
    """Run the command on that sample, in float32."""
    app = typer.Typer()
    command.register(app)

    def verify(model, *arguments):
        words = ["--texts", str(texts), *(["--dtype", "float32"] if "--url" not in arguments else []), *arguments]
        return CliRunner().invoke(app, [str(model), *map(str, words)])

    return verify


@pytest.fixture(scope="session")
def measured(verify):
    """The measures of a comparison that passes."""

    def measured(*arguments):
        result = verify(*arguments, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout.splitlines()[-1])

    return measured


def save_tokenizer(folder, types=True):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    second = int(types)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair=f"[CLS] $A [SEP] $B:{second} [SEP]:{second}",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    names |= {"mask_token": "[MASK]", "model_max_length": 64}
    if types:
        names["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)


def save_model(folder, kind, seed, **changes):
    import transformers

    torch.manual_seed(seed)
    prefix = next(name for name in ("Bert", "XLMRoberta", "Qwen3") if kind.startswith(name))
    sizes = SIZES | {"vocab_size": len(WORDS), "max_position_embeddings": 128, "pad_token_id": 0} | changes
    model = getattr(transformers, kind)(getattr(transformers, f"{prefix}Config")(**sizes)).eval()
    for parameter in model.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)


@pytest.fixture(scope="session")
def write(tmp_path_factory):
    """Write a checkpoint of an architecture; other seeds give other weights."""

    def write(kind, *, name="model", seed=0, modules=(), **changes):
        folder = tmp_path_factory.mktemp("checkpoint") / name
        save_model(folder, kind, seed, **changes)
        save_tokenizer(folder, types=kind.startswith("Bert"))
        if modules:
            entries = [
                {"idx": place, "name": str(place), "type": f"sentence_transformers.{kind}", "path": path}
                for place, (kind, path, _) in enumerate(modules)
            ]
            (folder / "modules.json").write_text(json.dumps(entries))
        for _, path, content in modules:
            if path:
                (folder / path).mkdir()
                (folder / path / "config.json").write_text(json.dumps(content))
        return folder

    return write


@pytest.fixture(scope="session")
def write_embedder(write):
    modules = (
        ("models.Transformer", "", {}),
        ("models.Pooling", "1_Pooling", {"pooling_mode": "mean", "embedding_dimension": 32}),
        ("models.Normalize", "2_Normalize", {}),
    )
    return lambda **changes: write("BertModel", modules=modules, **changes)


@pytest.fixture(scope="session")
def write_splade(write, tmp_path_factory):
    def make(**changes):
        from sentence_transformers import SparseEncoder
        from sentence_transformers.base.modules import Transformer
        from sentence_transformers.sparse_encoder.modules import SpladePooling

        trunk = Transformer(str(write("BertForMaskedLM", **changes)), transformer_task="fill-mask")
        folder = tmp_path_factory.mktemp("splade")
        SparseEncoder(modules=[trunk, SpladePooling()], device="cpu").save_pretrained(str(folder))
        return folder

    return make


@pytest.fixture(scope="session")
def write_late_interaction(write, tmp_path_factory):
    def make(**changes):
        from sentence_transformers import MultiVectorEncoder
        from sentence_transformers.base.modules import Dense, Normalize, Transformer
        from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

        torch.manual_seed(5)
        tokens = {"module_input_name": "token_embeddings"}
        dense = Dense(32, 16, bias=False, activation_function=torch.nn.Identity(), **tokens)
        trunk = Transformer(str(write("BertModel", **changes)))
        mask = MultiVectorMask(skiplist_words=["a", "e"])
        folder = tmp_path_factory.mktemp("late")
        MultiVectorEncoder(modules=[trunk, dense, mask, Normalize(**tokens)], device="cpu").save_pretrained(str(folder))
        return folder

    return make


@pytest.fixture(scope="session")
def write_bge_m3(write_embedder):
    def make(**changes):
        folder = write_embedder(**changes)
        torch.manual_seed(6)
        for name, size in (("sparse_linear", 1), ("colbert_linear", 16)):
            torch.save(torch.nn.Linear(32, size).state_dict(), folder / f"{name}.pt")
        return folder

    return make


@pytest.fixture(scope="session")
def write_qwen3_reranker(tmp_path_factory):
    def make(**changes):
        from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast

        tokens = {token: place for place, token in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
        tokens |= {"ye": 256, "yes": 257, "no": 258}
        tokenizer = Tokenizer(models.BPE(tokens, [("y", "e"), ("ye", "s"), ("n", "o")]))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.add_special_tokens([AddedToken(f"<|{name}|>") for name in ("endoftext", "im_start", "im_end")])
        folder = tmp_path_factory.mktemp("checkpoint") / "Qwen3-Reranker-tiny"
        sizes = {"num_key_value_heads": 2, "head_dim": 16, "vocab_size": 264, "max_position_embeddings": 1024}
        save_model(folder, "Qwen3ForCausalLM", changes.get("seed", 0), **sizes)
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<|endoftext|>").save_pretrained(folder)
        return folder

    return make
