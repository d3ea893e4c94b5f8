"""Malformed requests of every kind, how they are sent, and what their answers must be like."""
