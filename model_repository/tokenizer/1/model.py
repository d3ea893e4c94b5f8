from lazuli.triton.tokenizer import TritonPythonModel
