"""Pairs of a query and a document as token ids."""
