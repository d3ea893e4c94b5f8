import numpy as np
import pytest
import torch

from lazuli.heads.activation import activate

LOGITS = np.array([[0.0, 1.0, -2.0], [1e4, 9.9e3, -1e4], [-1e30, 1e30, 0.0], [3.0, 3.0, 3.0]], dtype=np.float32)


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("identity", lambda logits: logits),
        ("sigmoid", torch.sigmoid),
        ("softmax", lambda logits: torch.softmax(logits, dim=1)),
    ],
)
def test_against_torch(name, reference):
    values = activate(LOGITS, name)
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, reference(torch.from_numpy(LOGITS).double()).float(), rtol=1e-6, atol=1e-30)


def test_another():
    with pytest.raises(ValueError, match="unknown activation 'relu'"):
        activate(LOGITS, "relu")
