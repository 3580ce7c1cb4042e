"""Tests of the benches that need no GPU."""
