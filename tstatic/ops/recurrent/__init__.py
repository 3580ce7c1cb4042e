"""Recurrences: whole sequences, single steps, and a body of ops that runs once per step.

* ``recurrence``: `lstm_sequence`, `gru_sequence` and `simple_rnn_sequence`, one layer and direction over all steps.
"""
