"""The work and the time of the hot paths that run in Python, for `guard.py`."""
