"""Shared code of the tests: programs that they run, fresh processes, seeds, and readers of pages."""
