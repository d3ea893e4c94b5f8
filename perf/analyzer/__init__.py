"""NVIDIA's perf_analyzer: the binary, and one run of it, for `run_perf_analyzer.py`."""
