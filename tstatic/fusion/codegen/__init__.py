"""Kernels as text: what ops compute (``define``), a loop nest over it (``group``), and its Triton source (``emit``)."""
