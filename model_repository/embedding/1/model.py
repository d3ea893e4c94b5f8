from lazuli.triton.embedding import TritonPythonModel
