"""What comes behind pooling where the answer is not a vector: scores of pairs, labels of texts.

A head takes pooled vectors and returns its values, in float32, as `lazuli.dense` does. Which head a checkpoint has is
read from its JSON files; the weights are in its own tensors, beside those of the model.
"""
