"""Outputs of single tokens, in place of one vector a text: sparse weights, many vectors, and scores made of them."""
