"""Scores of pairs, and labels of texts."""
