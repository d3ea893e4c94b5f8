import torch

from lazuli.layers.embedding import TokenEmbedding
from lazuli.segments import SEGMENT_BIT


def test_the_sum_of_token_and_position():
    tokens = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    positions = torch.tensor([[10.0, 20.0], [30.0, 40.0]])
    ids = torch.tensor([2, 0, 2], dtype=torch.int32)
    places = torch.tensor([0, 1, 1], dtype=torch.int32)
    assert TokenEmbedding(tokens, positions)(ids, places).tolist() == [[15, 26], [31, 42], [35, 46]]


def test_each_segment_has_positions_of_its_own():
    tokens = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    positions = torch.tensor([[10.0, 20.0], [30.0, 40.0], [100.0, 200.0], [300.0, 400.0]])
    ids = torch.tensor([2, 1 << SEGMENT_BIT, 2 | 1 << SEGMENT_BIT], dtype=torch.int32)
    places = torch.tensor([0, 1, 0], dtype=torch.int32)
    embedding = TokenEmbedding(tokens, positions, num_segments=2)
    assert embedding(ids, places).tolist() == [[15, 26], [301, 402], [105, 206]]
    assert ids[0] == 2
    assert places.tolist() == [0, 1, 0], "graphs keep the inputs"
