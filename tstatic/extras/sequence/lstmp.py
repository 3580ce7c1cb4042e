"""LSTM over sequences whose hidden state is projected; ``layers.dynamic_lstmp``."""

from __future__ import annotations

from tstatic.extras.sequence._recurrence import activation
from tstatic.extras.sequence.lstm import ATTRS, LstmOp, case
from tstatic.ir.opdef import register
from tstatic.ir.paddle_form import ABSENT

register(LstmOp("ProjWeight").op(
    "lstmp", "Projection, Cell, BatchGate~, BatchCellPreAct~, BatchHidden~",
    {**ATTRS, "proj_activation": activation("tanh"), "cell_clip": 0.0, "proj_clip": 0.0},
    (
        case(7, 3, 2, False, 3), case(7, 4, 3, True, 2), case(5, 2, 2, True, 1, use_peepholes=False, is_reverse=True),
        case(0, 2, 2, True, 1), case(6, 3, 2, False, 2, proj_activation="identity", cell_clip=50.0, proj_clip=50.0),
    ),
    "pad the sequences (sequence_pad) and write the step with matmul, sigmoid and tanh in a Python loop", paddle=ABSENT,
))  # fmt: skip
