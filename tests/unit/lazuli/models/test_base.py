import pytest
import torch

from lazuli.models.base import fits_fused, make_workspace, use_fused


@pytest.mark.parametrize(
    ("sizes", "head_dim", "fits"),
    [
        ((1024, 4096, 2048, 6144, 3072), 128, True),
        ((384, 1152, 1536), 32, True),
        ((1024, 2176, 1088), 128, False),  # K of one layer is no multiple of a block
        ((256, 192), 32, False),
        ((1024, 4096), 96, False),
    ],
)
def test_which_layers_divide_into_blocks(sizes, head_dim, fits):
    assert fits_fused(sizes, head_dim) is fits


def test_a_cpu_has_no_fused_layers():
    workspace = make_workspace(torch.zeros(1, dtype=torch.bfloat16), (1024,))
    assert workspace is None
    assert not use_fused(workspace, 1)
