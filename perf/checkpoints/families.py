"""Small checkpoints that stand for published ones: their widths and files, random weights, few layers.

Takes the name of a published checkpoint, writes a folder that `transformers` and Lazuli load alike; returns the model
that wrote it. What a published checkpoint says beside its weights (pooling, prompts) is as its card has it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from lazuli.checkpoint import resolve_checkpoint
from random_checkpoint import SHAPES
from texts.vocabularies import vocabularies

WORDPIECE, BPE, UNIGRAM = "WordPiece (all-MiniLM-L6-v2)", "byte-level BPE (Qwen3)", "Unigram (XLM-RoBERTa)"
SEED = 0
# As large as in a trained model, for biases as well, which `transformers` sets to zero.
_SPREAD = 0.02
# NomicBERT's first spelling, which its shape has, to the one of `transformers`.
_NOMIC = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_positions": "max_position_embeddings",
    "vocab_size": "vocab_size",
    "type_vocab_size": "type_vocab_size",
    "layer_norm_epsilon": "layer_norm_eps",
    "rotary_emb_base": "rope_theta",
}
_WEB_SEARCH = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"


@dataclass(frozen=True)
class Stand:
    """What stands for a published checkpoint.

    Attributes:
        shape: Whose sizes it has, of `random_checkpoint.SHAPES`.
        kind: Its class in `transformers`.
        config: Its configuration's class there.
        vocabulary: Of `texts.vocabularies`.
        settings: Added to the sizes.
        architecture: As its `config.json` calls it, where that is not `kind`.
        pooling: `mean`, `cls` or `lasttoken`; None where it has a head.
        normalize: Whether its vectors are scaled.
        dense: Sizes of the layers behind the pooling.
        prompts: By name.
        single, pair: What its tokenizer puts around a text and a pair, where that is not as in the vocabulary.
    """

    shape: str
    kind: str
    config: str
    vocabulary: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    architecture: str | None = None
    pooling: str | None = None
    normalize: bool = False
    dense: tuple[tuple[int, int], ...] = ()
    prompts: Mapping[str, str] = field(default_factory=dict)
    single: str | None = None
    pair: str | None = None

    @property
    def task(self) -> str:
        """What it is for."""
        has_head = self.pooling is None and not self.kind.endswith("ForMaskedLM")
        return "rerank" if has_head else "embed"


_BERT_BASE = {"hidden_size": 768, "intermediate_size": 3072}
_ONE_LABEL = {"num_labels": 1}
_MODERNBERT_IDS = {"pad_token_id": 0, "bos_token_id": 101, "cls_token_id": 101, "eos_token_id": 102} | {
    "sep_token_id": 102
}
_QWEN3_END = "$A <|endoftext|>"
_XLM_R_PAIR = "<s> $A </s> </s> $B </s>"
_NOMIC_PROMPTS = {"search_query": "search_query: ", "search_document": "search_document: "}
_GEMMA_PROMPTS = {"query": "task: search result | query: ", "document": "title: none | text: "}
STANDS = {
    "BAAI/bge-small-en-v1.5": Stand("minilm", "BertModel", "BertConfig", WORDPIECE, pooling="cls", normalize=True),
    "cross-encoder/ms-marco-MiniLM-L6-v2": Stand(
        "minilm", "BertForSequenceClassification", "BertConfig", WORDPIECE, _ONE_LABEL
    ),
    "naver/splade-cocondenser-ensembledistil": Stand("minilm", "BertForMaskedLM", "BertConfig", WORDPIECE, _BERT_BASE),
    "BAAI/bge-m3": Stand("bge-m3", "XLMRobertaModel", "XLMRobertaConfig", UNIGRAM, pooling="cls", normalize=True),
    "intfloat/multilingual-e5-large": Stand(
        "bge-m3",
        "XLMRobertaModel",
        "XLMRobertaConfig",
        UNIGRAM,
        {"max_position_embeddings": 514},
        pooling="mean",
        normalize=True,
    ),
    "BAAI/bge-reranker-v2-m3": Stand(
        "bge-m3", "XLMRobertaForSequenceClassification", "XLMRobertaConfig", UNIGRAM, _ONE_LABEL, pair=_XLM_R_PAIR
    ),
    "Qwen/Qwen3-Embedding-0.6B": Stand(
        "qwen3-embedding-0.6b",
        "Qwen3Model",
        "Qwen3Config",
        BPE,
        architecture="Qwen3ForCausalLM",
        pooling="lasttoken",
        normalize=True,
        prompts={"query": _WEB_SEARCH, "document": ""},
        single=_QWEN3_END,
    ),
    "Qwen/Qwen3-Reranker-0.6B": Stand(
        "qwen3-embedding-0.6b", "Qwen3ForCausalLM", "Qwen3Config", BPE, {"tie_word_embeddings": True}
    ),
    "perplexity-ai/pplx-embed-v1-0.6b": Stand(
        "qwen3-0.6b-bidirectional", "Qwen3Model", "Qwen3Config", BPE, architecture="PPLXQwen3Model", pooling="mean"
    ),
    "perplexity-ai/pplx-embed-context-v1-0.6b": Stand(
        "qwen3-0.6b-bidirectional", "Qwen3Model", "Qwen3Config", BPE, architecture="PPLXQwen3Model", pooling="mean"
    ),
    "Alibaba-NLP/gte-modernbert-base": Stand(
        "modernbert-base", "ModernBertModel", "ModernBertConfig", WORDPIECE, _MODERNBERT_IDS, pooling="cls"
    ),
    "Alibaba-NLP/gte-reranker-modernbert-base": Stand(
        "modernbert-base",
        "ModernBertForSequenceClassification",
        "ModernBertConfig",
        WORDPIECE,
        _MODERNBERT_IDS | _ONE_LABEL | {"classifier_pooling": "mean"},
    ),
    "nomic-ai/nomic-embed-text-v1.5": Stand(
        "nomic-embed-text-v1.5",
        "NomicBertModel",
        "NomicBertConfig",
        WORDPIECE,
        pooling="mean",
        prompts=_NOMIC_PROMPTS,
    ),
    "sentence-transformers/all-mpnet-base-v2": Stand(
        "all-mpnet-base-v2", "MPNetModel", "MPNetConfig", WORDPIECE, pooling="mean", normalize=True
    ),
    "google/embeddinggemma-300m": Stand(
        "embeddinggemma-300m",
        "Gemma3TextModel",
        "Gemma3TextConfig",
        WORDPIECE,
        pooling="mean",
        normalize=True,
        dense=((768, 3072), (3072, 768)),
        prompts=_GEMMA_PROMPTS,
    ),
}


def write_model(stand: Stand, folder: Path, layers: int) -> Any:
    """Write a checkpoint without a tokenizer; returns the model of `transformers`, in float32."""
    import transformers

    torch.manual_seed(SEED)
    config = getattr(transformers, stand.config)(**_sizes(stand), num_hidden_layers=layers)
    model = getattr(transformers, stand.kind)(config).eval()
    for parameter in model.parameters():
        parameter.data.add_(_SPREAD * torch.randn_like(parameter))
    model.tie_weights()
    model.save_pretrained(folder)
    if stand.architecture is not None:
        _change(folder / "config.json", architectures=[stand.architecture])
    _write_modules(stand, folder)
    if stand.prompts:
        _change(folder / "config_sentence_transformers.json", prompts=dict(stand.prompts))
    return model


def write_tokenizer(stand: Stand, folder: Path, kept: Path) -> None:
    """Write the tokenizer; vocabularies that no installed package carries are fetched into the folder `kept`."""
    from tokenizers import Tokenizer, processors

    definition = vocabularies(kept)[stand.vocabulary]()
    tokenizer = Tokenizer.from_str(json.dumps(definition))
    if stand.single or stand.pair:
        ids = {token: tokenizer.token_to_id(token) for token in ("<s>", "</s>", "<|endoftext|>")}
        tokenizer.post_processor = processors.TemplateProcessing(
            single=stand.single or "<s> $A </s>",
            pair=stand.pair,
            special_tokens=[(token, number) for token, number in ids.items() if number is not None],
        )
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.save(str(folder / "tokenizer.json"))
    if stand.vocabulary == WORDPIECE:
        settings = json.loads((resolve_checkpoint("all-MiniLM-L6-v2") / "tokenizer_config.json").read_text("utf-8"))
        _change(folder / "tokenizer_config.json", **settings)


def write_token_layers(folder: Path, size: int) -> None:
    """Write the two layers that bge-m3 has for single tokens."""
    torch.manual_seed(SEED)
    sparse, multi = torch.nn.Linear(size, 1), torch.nn.Linear(size, size)
    sparse.bias.data.fill_(0.5)  # or else about half of the tokens would have no weight
    for name, layer in (("sparse_linear", sparse), ("colbert_linear", multi)):
        save_file(layer.state_dict(), str(folder / f"{name}.safetensors"))


def _sizes(stand: Stand) -> dict[str, Any]:
    sizes = {key: value for key, value in SHAPES[stand.shape][0].items() if key not in ("architectures", "model_type")}
    if "n_embd" in sizes:
        sizes = {new: sizes[old] for old, new in _NOMIC.items()}
    return {key: value for key, value in {**sizes, **stand.settings}.items() if key != "num_hidden_layers"}


def _write_modules(stand: Stand, folder: Path) -> None:
    if stand.kind == "BertForMaskedLM":
        kinds = ["sparse_encoder.models.MLMTransformer", "sparse_encoder.models.SpladePooling"]
        _change(folder / "1_SpladePooling" / "config.json", pooling_strategy="max")
    elif stand.pooling is not None:
        kinds = ["Transformer", "Pooling", *["Dense"] * len(stand.dense), *["Normalize"] * stand.normalize]
        kinds = [f"models.{kind}" for kind in kinds]
        _change(folder / "1_Pooling" / "config.json", pooling_mode=stand.pooling)
        _write_dense(stand, folder)
    else:
        return
    paths = ["", *(f"{place}_{kind.rpartition('.')[2]}" for place, kind in enumerate(kinds[1:], 1))]
    modules = [{"type": f"sentence_transformers.{kind}", "path": path} for kind, path in zip(kinds, paths, strict=True)]
    (folder / "modules.json").write_text(json.dumps(modules))


def _write_dense(stand: Stand, folder: Path) -> None:
    for place, (num_in, num_out) in enumerate(stand.dense, 2):
        layer = torch.nn.Linear(num_in, num_out, bias=False)
        _change(
            folder / f"{place}_Dense" / "config.json",
            in_features=num_in,
            out_features=num_out,
            bias=False,
            activation_function="torch.nn.modules.linear.Identity",
        )
        save_file({"linear.weight": layer.weight.data}, str(folder / f"{place}_Dense" / "model.safetensors"))


def _change(file: Path, **changes: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    content = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    file.write_text(json.dumps(content | changes), encoding="utf-8")
