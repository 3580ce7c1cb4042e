"""Kernels compiled for chips that are not here; triton runs in other processes only."""
