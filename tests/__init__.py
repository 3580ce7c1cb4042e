"""Rings of tests; README.md says where a test goes."""
