"""Sequences of different lengths, row under row in one value (``docs/sequences.md``).

Each op reads the row offsets of its input in a slot of its own, ``X@LOD``, and is a function of arrays like any other.

* ``sequence_pool``: One row for each sequence: its sum, mean, largest, first or last.
* ``_offsets``: What they share: the sequence of each row, sums of sequences, checks.
"""
