"""Model repositories: what a checkpoint needs to be served under a name, and adding, listing and removing such models.

Takes checkpoints and folders; writes the folders that Triton loads. Starts no server and computes no vector.
"""
