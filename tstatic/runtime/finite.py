"""Finds the first NaN or infinity of a run, and says where it came from: a fed value, a variable, or an op and its inputs."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, NamedTuple, NoReturn

import numpy as np

from tstatic.devices import Device
from tstatic.devices.step import Stream
from tstatic.errors import NumericsError
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import dtype_of
from tstatic.plan.plan import Plan
from tstatic.runtime.sub_block import run_op
from tstatic.where import show

MOST = 6
"""So many inputs a message names: a fused op may read dozens, and the ranges of the first mostly tell."""


class Contents(NamedTuple):
    """What an array holds.

    Attributes:
        size: Number of elements.
        nans, infinities: How many of them are not finite.
        low, high: Range of the finite ones; ``None`` without any.
        first: Position of the first one that is not finite.
    """

    size: int
    nans: int
    infinities: int
    low: Any
    high: Any
    first: tuple[int, ...] | None

    @property
    def bad(self) -> int:
        """How many elements are not finite."""
        return self.nans + self.infinities

    def text(self) -> str:
        """Returns what a message says of the array."""
        reach = "no finite element" if self.low is None else f"from {self.low:.6g} to {self.high:.6g}"
        if not self.bad:
            return reach
        kinds = [f"{n} {what}" for n, what in ((self.nans, "NaN"), (self.infinities, "infinite")) if n]
        return f"{' and '.join(kinds)} of {self.size} elements, first at {list(self.first or ())}; else {reach}"


def contents_of(array: np.ndarray[Any, Any]) -> Contents:
    """Returns what an array of floats, complex numbers, integers or truth values holds; of complex numbers the sizes."""
    if not dtype_of(array.dtype).is_inexact:
        whole = array.astype(np.float64) if array.dtype == np.bool_ else array
        low, high = (whole.min(), whole.max()) if array.size else (None, None)
        return Contents(array.size, 0, 0, low, high, None)
    wide = np.abs(array) if np.iscomplexobj(array) else array.astype(np.float64)
    finite = np.isfinite(wide)
    nans = int(np.isnan(wide).sum())
    kept = wide[finite]
    low, high = (kept.min(), kept.max()) if kept.size else (None, None)
    bad = np.argwhere(~finite)
    first = tuple(int(i) for i in bad[0]) if len(bad) else None
    return Contents(array.size, nans, int((~finite).sum()) - nans, low, high, first)


def check_finite(device: Device, op: FrozenOp, arrays: Mapping[str, Any], stream: Stream, plan: Plan) -> None:
    """Refuses NaN and infinity in the results of an op, after waiting for them.

    Args:
        device: The device.
        op: The op that has run.
        arrays: Value -> array.
        stream: The stream of its work.
        plan: The plan, which says what is fed and what is a variable.

    Raises:
        NumericsError: Names the fed value or the variable that was bad, else the op and the ranges of its inputs.
    """
    device.synchronize([stream])  # the array of a dynamic result exists only afterwards
    made = {v: a for v in op.writes() if (a := arrays.get(v)) is not None and not isinstance(a, list)}
    floats = {v: a for v, a in made.items() if dtype_of(a.dtype).is_inexact}
    counts = device.to_host(device.check_finite(list(floats.values()), stream), stream)
    for value, bad in zip(floats, counts, strict=True):
        if bad:
            _refuse(device, op, arrays, stream, plan, value)


def _refuse(
    device: Device, op: FrozenOp, arrays: Mapping[str, Any], stream: Stream, plan: Plan, value: str
) -> NoReturn:
    program = plan.program
    read = [v for v in dict.fromkeys(op.contents()) if hasattr(arrays.get(v), "dtype")]
    written = [device.span(arrays[v]) for v in op.writes() if hasattr(arrays.get(v), "dtype")]

    # Of an input that a result replaced, the range would be that of the result: better none.
    def overwritten(name: str) -> bool:
        start, end = device.span(arrays[name])
        return any(start < high and low < end for low, high in written)

    values: MutableMapping[str, Any] = {v: device.to_host(arrays[v], stream) for v in read if not overwritten(v)}
    inside = _first_inside(op, values) if op.body else None
    if inside is not None:
        # A fused op: the op that made it, on what that one read.
        op, value, values = inside
        read = [v for v in dict.fromkeys(op.contents()) if v in values]
        found = contents_of(values[value])
    else:
        found = contents_of(device.to_host(arrays[value], stream))
    ranges = {v: contents_of(values[v]) for v in read if v in values}
    called = {v: program.names.get(v, v) for v in read}
    state = {v: var for var, v in program.reads.items()}
    for name, one in ranges.items():
        root = plan.root.get(name, name)
        if not one.bad:
            continue
        if root in program.feeds:
            raise NumericsError(
                f"the fed '{root}' holds {one.bad} NaN or infinite values",
                expected="finite feeds (FLAGS_check_nan_inf is on)", received=one.text(),
                fix="look at the data before it is fed; this operator is the first that reads these values",
                op=op.type, var=root, where=show(op.where),
            )  # fmt: skip
        if root in state:
            raise NumericsError(
                f"the variable '{state[root]}' holds {one.bad} NaN or infinite values before this step",
                expected="finite variables (FLAGS_check_nan_inf is on)", received=one.text(),
                fix="look at the initializer, the loaded file, or the update of an earlier step (its learning rate)",
                op=op.type, var=state[root], where=show(op.where),
            )  # fmt: skip
    inputs = "; ".join(f"'{called[v]}' {ranges[v].text() if v in ranges else 'was overwritten'}" for v in read[:MOST])
    odd = next((called[v] for v, one in ranges.items() if one.bad), None)
    so = "and no value before it does" if odd is None else f"as its input '{odd}' does"
    more = f"; and {len(read) - MOST} more" if len(read) > MOST else ""
    raise NumericsError(
        f"'{value}' holds {found.bad} NaN or infinite values, {so}",
        expected="finite values (FLAGS_check_nan_inf is on)",
        received=f"{found.text()}; inputs of the operator: {inputs or 'none'}{more}",
        fix="look at the ranges of these inputs; lower the learning rate or clip gradients",
        op=op.type, var=value, where=show(op.where),
    )  # fmt: skip


def _first_inside(op: FrozenOp, values: Mapping[str, Any]) -> tuple[FrozenOp, str, MutableMapping[str, Any]] | None:
    """Runs the ops behind a fused one on the host, until one makes a value that is not finite.

    Returns:
        The op, the value, and the arrays that were there; ``None`` if an input was overwritten, if the ops draw random numbers,
        or if nothing is found.
    """
    made: dict[str, Any] = dict(values)
    for one in op.body:
        if one.definition.random or one.sub_blocks or any(v not in made for v in one.reads()):
            return None
        with np.errstate(all="ignore"):
            run_op(one, made, {})
        for value in one.writes():
            if dtype_of(made[value].dtype).is_inexact and contents_of(made[value]).bad:
                return one, value, made
    return None
