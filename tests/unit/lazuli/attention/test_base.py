import numpy as np
import pytest
import torch

from lazuli.attention.base import AttentionMetadata


def groups(*lengths):
    cu_seqlens = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return AttentionMetadata(torch.from_numpy(cu_seqlens), cu_seqlens, max(lengths)).equal_length_groups


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([5], [(0, 1, 5)]),
        ([5, 5, 5], [(0, 3, 5)]),
        ([1, 1, 3, 3, 3, 7], [(0, 2, 1), (2, 3, 3), (11, 1, 7)]),
        ([1, 2, 3], [(0, 1, 1), (1, 1, 2), (3, 1, 3)]),
        # Equal lengths that are not neighbours are no group.
        ([2, 1, 2], [(0, 1, 2), (2, 1, 1), (3, 1, 2)]),
    ],
)
def test_neighbours_of_one_length_are_a_group(lengths, expected):
    assert groups(*lengths) == expected


def test_sizes_with_and_without_padding():
    cu_seqlens = np.array([0, 3, 8, 8, 8], dtype=np.int32)
    plain = AttentionMetadata(torch.from_numpy(cu_seqlens[:3]), cu_seqlens[:3], 5)
    assert (plain.num_sequences, plain.padded_tokens) == (2, 8)
    padded = AttentionMetadata(torch.from_numpy(cu_seqlens), cu_seqlens, 5, num_tokens=16)
    assert (padded.num_sequences, padded.padded_tokens) == (4, 16)
