"""Slots that several optimizer updates have."""

from __future__ import annotations

from tstatic.ir.opdef import Attr

SCALARS = ("LearningRate", "Beta1Pow", "Beta2Pow", "SkipUpdate", "Beta1Tensor", "Beta2Tensor", "EpsilonTensor", "Noise")
"""Input slots that hold one number."""

MULTI_PRECISION = Attr.idle(False, "the slot MasterParam says whether there is a float32 copy")

ROW_MASK = "RowMask"
"""Input slot of updates with ``lazy_mode``: one number per row of the parameter; rows where it is zero are left alone."""

ROWS = "Rows"
"""Input slot of updates that leave rows without a gradient as they are: the rows of ``Param`` that the rows of ``Grad`` belong
to, each once and in order; behind them stands the number of rows of ``Param``, and nothing in ``Grad`` counts."""


TENSORS = {"Beta1Tensor": "beta1", "Beta2Tensor": "beta2", "EpsilonTensor": "epsilon"}
"""Scalar slots that take the place of an attribute."""
