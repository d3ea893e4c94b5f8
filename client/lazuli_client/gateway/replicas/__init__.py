"""The servers behind the gateway: which are fit, and which gets the next chunk."""
