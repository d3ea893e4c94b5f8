import numpy as np
import pytest
import torch

from lazuli.attention.sdpa import SdpaAttention
from lazuli.batch import RaggedBatch
from lazuli.checkpoint import load_checkpoint
from lazuli.cpu import host_inputs
from lazuli.errors import ConfigError
from lazuli.models import bert
from lazuli.models.base import ModelShape
from lazuli.models.registry import load_model

CPU = torch.device("cpu")
SHAPES = {
    "small": {},
    "one layer, one head": {"num_hidden_layers": 1, "num_attention_heads": 1},
    "odd sizes": {"hidden_size": 36, "num_attention_heads": 3, "intermediate_size": 50, "vocab_size": 91},
    "three layers, relu": {"num_hidden_layers": 3, "hidden_act": "relu"},
    "gelu_new, another eps": {"hidden_act": "gelu_new", "layer_norm_eps": 1e-2},
    "one token type": {"type_vocab_size": 1},
}


def load(folder, dtype=torch.float32):
    return load_model(load_checkpoint(str(folder)), SdpaAttention(), CPU, dtype)


def hidden_states(model, rows):
    """Hidden states of each row, in the order of the rows."""
    batch = RaggedBatch.pack(rows, [True] * len(rows))
    inputs = host_inputs(batch)
    with torch.inference_mode():
        hidden = model.forward(inputs.input_ids, inputs.position_ids, inputs.attention)
    parts = hidden.split(np.diff(batch.cu_seqlens).tolist())
    return [parts[place] for place in np.argsort(batch.order)]


def rows_of(vocab_size, lengths=(1, 2, 7, 7, 33, 64)):
    rng = np.random.default_rng(1)
    return [rng.integers(vocab_size, size=length, dtype=np.int32) for length in lengths]


def worst(mine, reference):
    """Least cosine of any token, and the largest difference of any number."""
    cosine = torch.nn.functional.cosine_similarity(mine.double(), reference.double(), dim=-1).min()
    return float(cosine), float((mine - reference).abs().max())


@pytest.mark.parametrize("prefix", ["", "bert."])
@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES.keys())
def test_against_transformers(tmp_path, write_bert, changes, prefix):
    from transformers import BertModel

    folder = write_bert(tmp_path, prefix="", **changes)
    reference = BertModel.from_pretrained(folder).eval()
    model = load(write_bert(tmp_path, prefix=prefix, **changes))
    rows = rows_of(reference.config.vocab_size)
    for row, mine in zip(rows, hidden_states(model, rows), strict=True):
        with torch.inference_mode():
            expected = reference(input_ids=torch.from_numpy(row).long()[None]).last_hidden_state[0]
        cosine, difference = worst(mine, expected)
        assert cosine >= 1 - 1e-6
        assert difference <= 1e-5


def test_shape(tmp_path, write_bert):
    assert load(write_bert(tmp_path)).shape == ModelShape(
        32, head_dim=8, vocab_size=100, max_positions=64, num_segments=2
    )


def test_positions_beyond_the_ids_of_a_batch_do_not_matter(tiny_checkpoint):
    model = load(tiny_checkpoint)
    rows = rows_of(100)
    for row, together in zip(rows, hidden_states(model, rows), strict=True):
        cosine, difference = worst(hidden_states(model, [row])[0], together)
        assert cosine >= 1 - 1e-6
        assert difference <= 1e-5


def test_bfloat16_follows_float32(tiny_checkpoint):
    rows = rows_of(100)
    exact, quick = (hidden_states(load(tiny_checkpoint, dtype), rows) for dtype in (torch.float32, torch.bfloat16))
    assert all(tensor.dtype == torch.bfloat16 for tensor in quick)
    assert min(worst(q.float(), e)[0] for q, e in zip(quick, exact, strict=True)) >= 0.99


@pytest.mark.parametrize(
    "extra",
    ["embeddings.position_ids", "pooler.dense.more", "cls.predictions.bias", "cls.seq_relationship.weight"],
)
def test_what_sentence_embeddings_do_not_need_is_passed_over(tmp_path, write_bert, make_bert_tensors, extra):
    load(write_bert(tmp_path, tensors=make_bert_tensors() | {extra: torch.ones(3)}))


def test_the_pooling_head_may_be_absent(tmp_path, write_bert, make_bert_tensors):
    tensors = {name: tensor for name, tensor in make_bert_tensors().items() if not name.startswith("pooler")}
    load(write_bert(tmp_path, tensors=tensors))


def test_a_tensor_that_is_left_over_is_named(tmp_path, write_bert, make_bert_tensors):
    extra = {"encoder.layer.2.output.dense.bias": torch.ones(32)}
    with pytest.raises(ConfigError, match=r"1 tensors are left over: encoder\.layer\.2\.output\.dense\.bias"):
        load(write_bert(tmp_path, tensors=make_bert_tensors() | extra))


def test_every_other_tensor_is_needed(tmp_path, write_bert, make_bert_tensors):
    tensors = make_bert_tensors(num_hidden_layers=1)
    for name in [name for name in tensors if not name.startswith("pooler")]:
        without = {other: tensor for other, tensor in tensors.items() if other != name}
        with pytest.raises(ConfigError, match=f"the tensor '{name}' is missing"):
            load(write_bert(tmp_path, tensors=without, num_hidden_layers=1))


def test_a_wrong_shape_is_named(tmp_path, write_bert):
    write_bert(tmp_path)
    tensors_of_another = write_bert(tmp_path / "other", vocab_size=99) / "model.safetensors"
    (tmp_path / "model.safetensors").write_bytes(tensors_of_another.read_bytes())
    with pytest.raises(ConfigError, match=r"word_embeddings\.weight' has shape \[99, 32\], expected \[100, 32\]"):
        load(tmp_path)


class TestConfig:
    VALID = dict.fromkeys(set(bert.BertConfig.__dataclass_fields__) - {"position_offset", "biased"}, 1) | {
        "hidden_act": "gelu"
    }

    def test_other_keys_are_of_no_account(self):
        assert bert.BertConfig.from_json(self.VALID | {"torch_dtype": "float32"}).hidden_size == 1

    @pytest.mark.parametrize("name", VALID)
    def test_a_missing_one_is_named(self, name):
        values = {key: value for key, value in self.VALID.items() if key != name}
        with pytest.raises(ConfigError, match=rf"config\.json: {name} is missing"):
            bert.BertConfig.from_json(values)

    def test_relative_positions_are_refused(self):
        with pytest.raises(ConfigError, match="position_embedding_type: 'relative_key' is not supported"):
            bert.BertConfig.from_json(self.VALID | {"position_embedding_type": "relative_key"})

    def test_a_decoder_is_refused(self):
        with pytest.raises(ConfigError, match="is_decoder"):
            bert.BertConfig.from_json(self.VALID | {"is_decoder": True})

    def test_another_activation_is_refused(self, tmp_path, write_bert):
        with pytest.raises(ConfigError, match="hidden_act: 'silu'"):
            load(write_bert(tmp_path, hidden_act="silu"))
