from lazuli.triton.reranking import TritonPythonModel
