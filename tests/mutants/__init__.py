"""Faults planted into the package one at a time, each of which some test must see."""
