"""The update of an exponential moving average."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tstatic.ir.checks import FLOATS, check_dtype, check_has_shape, check_one_element, check_same_dtype
from tstatic.ir.opdef import Case, Domain, OpDef, ValueRange, register
from tstatic.ir.paddle_form import ABSENT
from tstatic.ir.types import Meta

OP = "exponential_moving_average"


def _infer(average: Meta, value: Meta, decay: Meta) -> Meta:
    check_dtype(average, FLOATS, "Average", OP)
    check_same_dtype((average, value, decay), ("Average", "Value", "Decay"), OP)
    check_has_shape(value, average.shape, "Value", OP, why="that of the average", fix="average a value of one shape")
    check_one_element(decay, "Decay", OP)
    return average


def _scalar(ins: Sequence[Any], attrs: Mapping[str, Any]) -> Sequence[Any]:
    average, value, decay = ins
    return average, value, decay.reshape(())


register(
    OpDef(
        OP,
        "Average, Value, Decay -> AverageOut",
        paddle=ABSENT,
        pointwise={"AverageOut": "average * decay + value * (1 - decay)"},
        infer=_infer,
        prepare=_scalar,
        state=(("Average", "AverageOut"),),
        inplace=(("Average", "AverageOut"),),
        update=True,
        domain=Domain(
            cases=tuple(Case((s, s, one)) for s, one in (((3, 4), (1,)), ((), ()), ((0, 3), (1,)), ((129,), ()))),
            values={"Decay": ValueRange(0.1, 0.9)},
            ulps=4,
        ),
    )
)
