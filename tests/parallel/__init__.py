"""Data parallel on the places of one process."""
