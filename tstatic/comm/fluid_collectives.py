"""``fluid.layers.collective``: the collectives of Paddle 1.x, which return what they write."""

from __future__ import annotations

from tstatic.comm.process_collectives import all_gather, all_reduce, broadcast
from tstatic.comm.process_ops import ReduceOp
from tstatic.errors import ProgramError
from tstatic.ir.build import emit
from tstatic.ir.checks import check_choice, check_int
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.no_effect import no_effect

RING = "there is one group of all processes"
STREAM = "a run orders collectives and other operators by what they read"


@export("fluid.layers.collective._c_allreduce")
@no_effect(ring_id=RING, use_calc_stream=STREAM)
def _c_allreduce(
    x: Variable, out: Variable | None = None, reduce_type: str = "sum", ring_id: int = 0, use_calc_stream: bool = False
) -> Variable:
    """Combines a value over all processes.

    Args:
        x: The value of this process.
        out: What receives the result; ``x`` itself if ``None``.
        reduce_type: ``"sum"``, ``"prod"``, ``"max"`` or ``"min"``.

    Raises:
        ProgramError: If ``reduce_type`` is another one.
    """
    check_choice(reduce_type, ("sum", "prod", "max", "min"), "reduce_type", "_c_allreduce")
    target = x if out is None else emit("assign", {"X": x}, outputs={"Out": out})
    all_reduce(target, getattr(ReduceOp, reduce_type.upper()))
    return target


@export("fluid.layers.collective._c_broadcast")
@no_effect(ring_id=RING, use_calc_stream=STREAM)
def _c_broadcast(x: Variable, root: int = 0, ring_id: int = 0, use_calc_stream: bool = False) -> Variable:
    """Gives ``x`` of all processes the value that process ``root`` has, and returns it."""
    broadcast(x, root)
    return x


@export("fluid.layers.collective._c_allgather")
@no_effect(ring_id=RING, use_calc_stream=STREAM)
def _c_allgather(x: Variable, nranks: int, ring_id: int = 0, use_calc_stream: bool = False) -> Variable:
    """Returns the values ``x`` of all processes under each other.

    Args:
        x: The value of this process.
        nranks: How many processes there are.

    Raises:
        ProgramError: If there is another number of processes.
    """
    parts: list[Variable] = []
    all_gather(parts, x)
    check_int(nranks, "nranks", "_c_allgather", len(parts), len(parts), error=ProgramError)
    return emit("concat", {"X": parts}, {"axis": 0})  # type: ignore[no-any-return]


@export("fluid.layers.collective._c_sync_calc_stream")
def _c_sync_calc_stream(x: Variable) -> Variable:
    """Returns ``x``: a run orders collectives and other operators by what they read."""
    return x


@export("fluid.layers.collective._c_sync_comm_stream")
@no_effect(ring_id=RING)
def _c_sync_comm_stream(x: Variable, ring_id: int) -> Variable:
    """Returns ``x``: a run orders collectives and other operators by what they read."""
    return x
