"""One module at a time; no program is run."""
