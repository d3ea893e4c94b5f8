"""Model definitions over ragged batches."""
