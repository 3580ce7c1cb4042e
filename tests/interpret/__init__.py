"""Generated kernels in Triton's interpreter; run as ``TSTATIC_CPU_BACKEND=interpret pytest tests`` (``make interpret``)."""
