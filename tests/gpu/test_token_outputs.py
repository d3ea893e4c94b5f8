"""Outputs of single tokens, and scores of pairs, on a GPU against the CPU; and that queueing a pass does not wait."""

import json
import warnings

import numpy as np
import pytest
import torch

from lazuli.config import EngineConfig
from lazuli.engine import Engine
from lazuli.options import RequestOptions
from lazuli.tokenwise.probe import run_pairs, run_tokens

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

SIZES = {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "vocab_size": 2000,
    "max_position_embeddings": 514,
}
LENGTHS = (2, 7, 7, 33, 300, 3, 128)
DTYPES = ("float32", "bfloat16")


def rows_of(*lengths, seed=0):
    rng = np.random.default_rng(seed)
    return [np.array([0, *rng.integers(4, 200, size=length - 2), 2], dtype=np.int32) for length in lengths]


def modules(folder, **kinds):
    entries = [{"type": f"sentence_transformers.models.{name}", "path": path} for name, path in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(entries))
    for path in kinds.values():
        (folder / path).mkdir(exist_ok=True)


def save(model, folder):
    """With weights that tell texts apart."""
    for parameter in model.parameters():
        parameter.data.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(folder)


def write_bge_m3(folder):
    from transformers import XLMRobertaConfig, XLMRobertaModel

    save(XLMRobertaModel(XLMRobertaConfig(**SIZES), add_pooling_layer=False), folder)
    for name, size in (("sparse_linear", 1), ("colbert_linear", 128)):
        torch.save(torch.nn.Linear(128, size).state_dict(), folder / f"{name}.pt")
    modules(folder, Transformer="", Pooling="1_Pooling", Normalize="2_Normalize")
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))


def write_splade(folder):
    from transformers import BertConfig, BertForMaskedLM

    save(BertForMaskedLM(BertConfig(**SIZES)), folder)
    modules(folder, MLMTransformer="", SpladePooling="1_SpladePooling")
    (folder / "1_SpladePooling" / "config.json").write_text(json.dumps({"pooling_strategy": "max"}))


def write_late_interaction(folder):
    from safetensors.torch import save_file
    from transformers import BertConfig, BertModel

    save(BertModel(BertConfig(**SIZES), add_pooling_layer=False), folder)
    modules(folder, Transformer="", Dense="1_Dense", MultiVectorMask="2_Mask")
    dense = {"in_features": 128, "out_features": 96, "bias": False}
    dense["activation_function"] = "torch.nn.modules.linear.Identity"
    (folder / "1_Dense" / "config.json").write_text(json.dumps(dense))
    save_file({"linear.weight": torch.randn(96, 128) / 10}, str(folder / "1_Dense" / "model.safetensors"))
    (folder / "2_Mask" / "config.json").write_text("{}")
    expansion = {"strategy": "min", "attend": False, "length": 32, "token": "[MASK]"}
    (folder / "sentence_bert_config.json").write_text(json.dumps({"query_expansion": expansion}))
    vocabulary = {"[MASK]": 5, ".": 6, ",": 7}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "WordPiece", "vocab": vocabulary}}))


WRITERS = {"bge_m3": write_bge_m3, "splade": write_splade, "late_interaction": write_late_interaction}


@pytest.fixture(scope="module", params=WRITERS)
def folder(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokens") / request.param
    folder.mkdir()
    torch.manual_seed(0)
    WRITERS[request.param](folder)
    return folder


def make(folder, device, **parameters):
    config = EngineConfig(**({"checkpoint": str(folder), "graph_capture": "off"} | parameters))
    return Engine(config, torch.device(device, 0) if device == "cuda" else torch.device(device))


def form_of(engine, **options):
    names = tuple("float32" if name == "dense" else name for name in engine.answers.facts.outputs)
    return engine.answers.choose(RequestOptions(output=names, **options))


def dense_weights(outputs):
    rows = np.zeros((len(outputs["sparse_ids"]), SIZES["vocab_size"]), dtype=np.float32)
    for row, ids, weights in zip(rows, outputs["sparse_ids"], outputs["sparse_weights"], strict=True):
        row[ids[ids >= 0]] = weights[ids >= 0]
    return rows


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("input_type", ["query", "document"])
def test_outputs(folder, dtype, input_type):
    reference, engine = make(folder, "cpu", dtype="float32"), make(folder, "cuda", dtype=dtype)
    rows = rows_of(*LENGTHS)
    expected, outputs = (run_tokens(one.run, rows, form_of(one, input_type=input_type)) for one in (reference, engine))
    assert set(outputs) == set(expected)
    limit = 1e-4 if dtype == "float32" else 5e-2
    for name in set(expected) - {"sparse_ids", "sparse_weights"}:
        np.testing.assert_allclose(outputs[name], expected[name], atol=limit, err_msg=name)
    if "sparse_ids" in expected:
        weights = dense_weights(expected)
        np.testing.assert_allclose(dense_weights(outputs), weights, atol=limit * max(1, weights.max()))


@pytest.mark.parametrize("dtype", DTYPES)
def test_scores(folder, dtype):
    reference = make(folder, "cpu", dtype="float32", task="rerank")
    engine = make(folder, "cuda", dtype=dtype, task="rerank")
    pairs = [(query, document) for query in rows_of(5, 9, seed=1) for document in rows_of(*LENGTHS, seed=2)]
    expected, scores = (run_pairs(one.run, pairs) for one in (reference, engine))
    scale = np.abs(expected).max(axis=0)
    assert (np.abs(scores - expected) <= (1e-4 if dtype == "float32" else 5e-2) * scale).all()


def test_a_text_alone_is_equal_to_the_same_in_a_batch(folder):
    engine = make(folder, "cuda", dtype="float32")
    rows, form = rows_of(*LENGTHS), form_of(engine)
    together = run_tokens(engine.run, rows, form)
    for row, ids in enumerate(rows):
        for name, values in run_tokens(engine.run, [ids], form).items():
            if name.startswith("sparse_"):
                continue
            width = values.shape[1]
            np.testing.assert_allclose(together[name][row, :width], values[0], atol=1e-5, err_msg=name)


def test_queueing_a_pass_does_not_wait(folder):
    engine, pairs_engine = make(folder, "cuda"), make(folder, "cuda", task="rerank")
    rows, form = rows_of(*LENGTHS), form_of(engine, input_type="query")
    pairs = [(rows[0], row) for row in rows]
    run_tokens(engine.run, rows, form)  # loads the kernels
    run_pairs(pairs_engine.run, pairs)

    def checked(run):
        def wrapped(*arguments):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that it does not detect all of them
                torch.cuda.set_sync_debug_mode("error")
            try:
                return run(*arguments)
            finally:
                torch.cuda.set_sync_debug_mode("default")

        return wrapped

    run_tokens(checked(engine.run), rows, form)
    run_pairs(checked(pairs_engine.run), pairs)


def test_warming_up(folder):
    make(folder, "cuda", graph_capture="idle").warm_up()
    make(folder, "cuda", graph_capture="idle", task="rerank").warm_up()
