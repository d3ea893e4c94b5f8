"""The checkpoints that are measured: found, made with random weights, and what `transformers` makes of them."""
