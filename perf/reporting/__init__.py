"""Measurements in files, and the tables and pages that are made of them."""
