"""Programs run by the executor on the CPU."""
