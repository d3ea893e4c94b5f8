from lazuli.triton.contextual import TritonPythonModel
