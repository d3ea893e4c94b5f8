"""A steady load whose every answer is compared, and what the server holds meanwhile, for `soak.py`."""
