"""Programs on `CUDAPlace(0)`; without a GPU a few of each, on what stands in for one."""
