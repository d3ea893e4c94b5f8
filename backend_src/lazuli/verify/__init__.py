"""Compares what a model answers with a reference, and what follows from it: rankings, labels."""
