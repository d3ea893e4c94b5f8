import pytest
import torch

from lazuli.attention.sdpa import SdpaAttention
from lazuli.checkpoint import load_checkpoint
from lazuli.errors import ConfigError
from lazuli.models.bert import BertModel
from lazuli.models.registry import load_model, read_shape

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["BertModel", "BertForMaskedLM"])
def test_bert(tmp_path, write_bert, name):
    checkpoint = load_checkpoint(str(write_bert(tmp_path, prefix="bert.", architectures=[name])))
    model = load_model(checkpoint, SdpaAttention(), CPU, torch.float32)
    assert isinstance(model, BertModel)
    assert read_shape(checkpoint) == model.shape


@pytest.mark.parametrize(
    ("architectures", "named"), [(["LlamaForCausalLM"], "LlamaForCausalLM"), ([], "none"), (None, "none")]
)
def test_another_is_refused_by_name(tmp_path, write_bert, architectures, named):
    checkpoint = load_checkpoint(str(write_bert(tmp_path, architectures=architectures)))
    message = f"the architecture {named} is not supported; supported: BertModel, BertForMaskedLM"
    with pytest.raises(ConfigError, match=message):
        load_model(checkpoint, SdpaAttention(), CPU, torch.float32)
    with pytest.raises(ConfigError, match=message):
        read_shape(checkpoint)
