"""Compares the vectors of a model with a reference, and what they rank."""
