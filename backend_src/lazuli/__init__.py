"""Lazuli: low-latency text embedding on NVIDIA Triton's Python backend.

The package holds the engine (`lazuli.engine`), what surrounds it on the road of a request (`tokenizer`, `scheduler`,
`runner`, `reply`) and the thin layer that Triton loads (`lazuli.triton`). Importing `lazuli` imports nothing heavy.
"""

__version__ = "0.1.0"
