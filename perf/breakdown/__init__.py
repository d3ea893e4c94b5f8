"""Where the time of one request to the server goes, for `bench_server.py`."""
