"""The scripts of ``examples/``, on small settings."""
