"""Ragged attention: one interface, several kernels."""
