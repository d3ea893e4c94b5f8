"""Requests for outputs of single tokens through the service, beside requests for vectors."""

import numpy as np
import pytest

from lazuli.config import EngineConfig
from lazuli.errors import InputError, OptionError
from lazuli.options import RequestOptions
from lazuli.service import EmbeddingService
from lazuli.tokenwise.form import join
from lazuli.tokenwise.probe import run_tokens


@pytest.fixture
def serve(tmp_path, write_bge_m3):
    write_bge_m3(tmp_path)
    services = []

    def serve(*, streaming=False, **parameters):
        parameters = {"checkpoint": str(tmp_path), "device": "cpu", "dtype": "float32"} | parameters
        services.append(EmbeddingService(EngineConfig(**parameters), streaming=streaming))
        return services[-1]

    yield serve
    for service in services:
        service.close()


def submit(service, rows, sender, **options):
    ids, mask = (
        np.zeros((len(rows), max(map(len, rows))), np.int32),
        np.zeros((len(rows), max(map(len, rows))), np.int8),
    )
    for row, tokens in enumerate(rows):
        ids[row, : len(tokens)] = tokens
        mask[row, : len(tokens)] = 1
    service.submit(ids, mask, RequestOptions(**options), sender)


def gathered(sender):
    assert not sender.wait().errors, sender.errors
    assert not sender.after_end
    assert sender.finals == [False] * (len(sender.finals) - 1) + [True]
    parts = [(part.index, part.outputs) for part in sender.parts]
    rows = np.concatenate([index for index, _ in parts])
    assert sorted(rows.tolist()) == list(range(len(rows)))
    counts = np.empty(len(rows), dtype=np.int32)
    counts[rows] = np.concatenate([part.token_count for part in sender.parts])
    return join(parts, len(rows)), counts


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("token_budget", [None, 10])
def test_all_outputs_in_one_piece_or_in_parts(serve, rows_of, make_sender, streaming, token_budget):
    service, rows, sender = serve(streaming=streaming, token_budget=token_budget), rows_of(5, 33, 3, 9), make_sender()
    output = ("float32", "sparse", "multi")
    form = service.engine.answers.choose(RequestOptions(output=output))
    expected = run_tokens(service.engine.run, rows, form)
    submit(service, rows, sender, output=output)
    outputs, counts = gathered(sender)
    assert counts.tolist() == [5, 33, 3, 9]
    assert set(outputs) == set(expected)
    for name, values in expected.items():
        assert outputs[name].dtype == values.dtype
        np.testing.assert_allclose(outputs[name], values, atol=1e-6, err_msg=name)
    assert len(sender.parts) == (1 if not streaming or token_budget is None else 4)


def test_requests_of_both_kinds_at_once(serve, rows_of, make_sender):
    service, rows = serve(token_budget=40), rows_of(5, 33, 3, 9)
    vectors = service.engine.embed_ids(rows)
    senders = [make_sender() for _ in range(20)]
    for number, sender in enumerate(senders):
        submit(service, rows, sender, output=(("float32",), ("sparse",), ("multi", "float32"))[number % 3])
    for number, sender in enumerate(senders):
        outputs, _ = gathered(sender)
        names = (["embedding"], ["sparse_ids", "sparse_weights"], ["embedding", "multi_vector", "multi_vector_count"])
        assert sorted(outputs) == names[number % 3]
        if "embedding" in outputs:
            np.testing.assert_allclose(outputs["embedding"], vectors, atol=1e-6)


def test_chunks_have_no_weights(serve, make_sender):
    ids, mask = np.array([[0, 5, 2, 0, 6, 2]], dtype=np.int32), np.array([[1, 1, 1, 2, 1, 1]], dtype=np.int8)
    with pytest.raises(InputError, match="attention_mask: 2 marks a further chunk"):
        serve().submit(ids, mask, RequestOptions(output=("sparse",)), make_sender())


@pytest.mark.parametrize(("output", "num_rows"), [("multi", 257), ("sparse", 3972), ("dense,sparse,multi", 257)])
def test_one_long_text_among_many(serve, rows_of, make_sender, output, num_rows):
    """Of 33 tokens and 32 numbers each, 256 rows of vectors are 1 MB, and 3971 of weights."""
    service, sender = serve(max_answer_mb=1), make_sender()
    waiting = service._scheduler.queued_tokens
    rows, wanted = rows_of(*(2,) * (num_rows - 1), 33), RequestOptions.from_json(f'{{"output": "{output}"}}').output
    with pytest.raises(InputError, match=f"{num_rows} rows, each .* row {num_rows - 1} of 33 tokens, make 2 MB"):
        submit(service, rows, sender, output=wanted)
    assert service._scheduler.queued_tokens == waiting == 0
    assert not sender.ended
    submit(service, rows[-200:], sender, output=wanted)
    gathered(sender)


def test_a_stream_of_them_has_smaller_parts(serve, rows_of, make_sender):
    service, sender, rows = serve(streaming=True, max_answer_mb=1), make_sender(), rows_of(*(2,) * 500, 62)
    submit(service, rows, sender, output=("multi",))
    outputs, counts = gathered(sender)
    assert counts.tolist() == [2] * 500 + [62]
    assert outputs["multi_vector_count"][:, 0].tolist() == [1] * 500 + [61]
    assert max(part.outputs["multi_vector"].nbytes for part in sender.parts) <= 1 << 20
    expected = run_tokens(
        service.engine.run, [rows[-1]], service.engine.answers.choose(RequestOptions(output=("multi",)))
    )
    np.testing.assert_allclose(outputs["multi_vector"][-1], expected["multi_vector"][0], atol=1e-6)


@pytest.mark.parametrize("output", ["sparse", "multi"])
def test_a_model_without_such_outputs(tiny_checkpoint, serve, make_sender, output):
    service = serve(checkpoint=str(tiny_checkpoint))
    with pytest.raises(OptionError, match=f"output: {output}: the model has no such output"):
        submit(service, [np.array([1])], make_sender(), output=(output,))


def test_dimensions_without_vectors(serve, make_sender):
    with pytest.raises(OptionError, match="dimensions: only dense vectors can be cut"):
        submit(serve(), [np.array([1])], make_sender(), output=("sparse",), dimensions=8)
