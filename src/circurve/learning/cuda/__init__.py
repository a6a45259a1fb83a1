"""The M-step as Triton kernels, launched by `learning/graph_steps.py`. Triton is imported late."""
