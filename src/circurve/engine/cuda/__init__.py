"""The fast path for CUDA: fused Triton kernels with the answers of the reference backend. Triton is imported late."""

from circurve.engine.cuda.backend import Fused
from circurve.engine.cuda.support import blueprint_for, why_not

__all__ = ["Fused", "blueprint_for", "why_not"]
