import numpy as np
import pytest

from lazuli.batch import RaggedBatch


def row(*ids):
    return np.array(ids, dtype=np.int32)


def test_rows_lie_behind_each_other_by_ascending_length():
    batch = RaggedBatch.pack([row(1, 2, 3), row(4), row(5, 6)], [True, False, True])
    assert batch.order.tolist() == [1, 2, 0]
    assert batch.input_ids.tolist() == [4, 5, 6, 1, 2, 3]
    assert batch.position_ids.tolist() == [0, 0, 1, 0, 1, 2]
    assert batch.cu_seqlens.tolist() == [0, 1, 3, 6]
    assert batch.finish.tolist() == [0, 1, 1]
    assert (batch.max_seqlen, batch.num_tokens, batch.num_sequences) == (3, 6, 3)


def test_equal_lengths_keep_their_order():
    batch = RaggedBatch.pack([row(1, 1), row(2), row(3, 3), row(4), row(5, 5)], [True] * 5)
    assert batch.order.tolist() == [1, 3, 0, 2, 4]


def test_dtypes():
    batch = RaggedBatch.pack([row(1, 2), row(3)], [True, False])
    assert batch.input_ids.dtype == batch.position_ids.dtype == batch.cu_seqlens.dtype == np.int32
    assert batch.finish.dtype == np.int32
    assert isinstance(batch.max_seqlen, int)


def test_one_row():
    batch = RaggedBatch.pack([row(9)], [False])
    assert (batch.input_ids.tolist(), batch.cu_seqlens.tolist(), batch.max_seqlen) == ([9], [0, 1], 1)


@pytest.mark.parametrize("seed", range(5))
def test_every_row_is_found_again(seed):
    rng = np.random.default_rng(seed)
    rows = [rng.integers(1000, size=rng.integers(1, 40), dtype=np.int32) for _ in range(rng.integers(1, 50))]
    batch = RaggedBatch.pack(rows, [True] * len(rows))
    assert sorted(batch.order.tolist()) == list(range(len(rows)))
    assert batch.num_tokens == batch.cu_seqlens[-1] == sum(map(len, rows))
    for place, source in enumerate(batch.order):
        tokens = slice(batch.cu_seqlens[place], batch.cu_seqlens[place + 1])
        assert batch.input_ids[tokens].tolist() == rows[source].tolist()
        assert batch.position_ids[tokens].tolist() == list(range(len(rows[source])))
    assert (np.diff(np.diff(batch.cu_seqlens)) >= 0).all()
