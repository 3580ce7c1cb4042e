"""Recurrences: whole sequences, single steps, and a body of ops that runs once per step.

* ``recurrence``: `lstm_sequence`, `gru_sequence` and `simple_rnn_sequence`, one layer and direction over all steps.
* ``rnn``: `rnn`, all layers and directions in one op, as Paddle 2 saves them.
* ``recurrent``: The `recurrent` op, whose body is one step, and the builder of such bodies.
* ``_recurrent_onnx``: Their forms in ONNX.
"""
