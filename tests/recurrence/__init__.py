"""Recurrences: layers, steps written as ops, tensor arrays, decoding; against torch, unrolled programs and Paddle."""
