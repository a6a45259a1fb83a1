"""The M-step as Triton kernels: `mstep.py` launches those of the two other files. Triton is imported late."""
