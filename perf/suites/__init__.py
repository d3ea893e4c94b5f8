"""The suites of `run.py`, one module each; `registry.py` names them."""
