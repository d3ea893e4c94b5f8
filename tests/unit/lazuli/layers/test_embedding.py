import torch

from lazuli.layers.embedding import TokenEmbedding


def test_the_sum_of_token_and_position():
    tokens = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    positions = torch.tensor([[10.0, 20.0], [30.0, 40.0]])
    ids = torch.tensor([2, 0, 2], dtype=torch.int32)
    places = torch.tensor([0, 1, 1], dtype=torch.int32)
    assert TokenEmbedding(tokens, positions)(ids, places).tolist() == [[15, 26], [31, 42], [35, 46]]
