"""Kernels in the Triton language, with the functions that launch them. Imported only where there is a GPU."""
