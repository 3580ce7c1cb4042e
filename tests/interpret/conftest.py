"""Kernels in Triton's interpreter, which patches its language once."""

from tests.helpers.quick_interpreter import interpret_quickly

interpret_quickly()
