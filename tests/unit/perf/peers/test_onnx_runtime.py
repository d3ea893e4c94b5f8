"""ONNX Runtime against Lazuli's engine, where its packages are installed."""

from contextlib import closing

import numpy as np
import pytest

from lazuli.config import DEFAULT_CHECKPOINT
from peers.local import close_models
from peers.registry import open_peer
from peers.spec import Settings, TargetSpec
from texts.rows import Rows

for package in ("onnxruntime", "onnx", "onnxscript"):
    pytest.importorskip(package)

TEXTS = ["a text", "One more text, which is longer.", "x", "a text"]


@pytest.mark.filterwarnings("ignore")
def test_the_exported_model_gives_the_same_vectors_in_any_batch(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with open_peer(TargetSpec("onnxruntime", None, {"batch": "3"}), Settings(DEFAULT_CHECKPOINT)) as peer:
        endpoint = peer.endpoint
    with open_peer(TargetSpec("lazuli-engine"), Settings(DEFAULT_CHECKPOINT, dtype="float32")) as peer:
        reference = peer.endpoint
    with closing(endpoint.connect()) as theirs, closing(reference.connect()) as ours:
        found, expected = theirs.send(Rows(TEXTS, 0)), ours.send(Rows(TEXTS, 0))
    close_models()
    np.testing.assert_allclose(found.vectors, expected.vectors, atol=1e-5)
    assert found.tokens == expected.tokens
    assert len(list(tmp_path.rglob("*.onnx"))) == 1
