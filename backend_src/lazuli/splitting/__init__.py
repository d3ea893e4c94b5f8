"""Texts that are longer than the model can take, as several chunks."""
