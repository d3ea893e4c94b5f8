"""The systems that `run.py` measures, one module a kind; `registry.py` names them."""
