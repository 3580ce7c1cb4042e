"""Sequences of different lengths, row under row in one value (``docs/sequences.md``).

Each op reads the row offsets of its input in a slot of its own, ``X@LOD``, and is a function of arrays like any other.

* ``sequence_pool``: One row for each sequence: its sum, mean, largest, first or last.
* ``sequence_softmax``, ``sequence_reverse``: Each sequence for itself.
* ``sequence_concat``, ``sequence_slice``, ``sequence_reshape``, ``lod_reset``: Other sequences of the same rows.
* ``sequence_expand``, ``sequence_expand_as``: Rows repeated as often as sequences are long.
* ``sequence_pad``: Sequences as a batch, and back.
* ``sequence_enumerate``, ``sequence_scatter``: Windows of numbers; numbers added to places of a row.
* ``sequence_conv``, ``row_conv``, ``im2sequence``: Windows of rows; blocks of images as rows.
* ``lstm``, ``lstmp``, ``gru``: Recurrences.
* ``static_layers``: The layers that hold weights: convolutions and recurrences along sequences.
* ``_offsets``, ``_recurrence``: What they share: the sequence of each row, sums of sequences; the order of steps.
"""
