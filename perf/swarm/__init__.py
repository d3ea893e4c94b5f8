"""Locust's users: what they ask for, how, and what is demanded of the answers, for `locustfile.py`."""
