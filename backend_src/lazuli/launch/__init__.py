"""Starting, watching and stopping tritonserver on the model repository, and checking the machine for it.

Knows nothing of tensors and never imports torch: the models live in processes of the server.
"""
