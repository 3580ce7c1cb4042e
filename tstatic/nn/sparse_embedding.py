"""``static.nn.sparse_embedding``: on one process, a table whose gradients are rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.comm.rendezvous import launch
from tstatic.errors import UnsupportedError
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.nn.static_linear import fluid_embedding
from tstatic.no_effect import no_effect

_SERVER = "it configures tables of parameter servers, which do not exist here"


@export("static.nn.sparse_embedding")
@no_effect(is_test=_SERVER, entry=_SERVER, table_class=_SERVER, slot=_SERVER)
def sparse_embedding(
    input: Variable, size: Sequence[int], padding_idx: int | None = None, is_test: bool = False, entry: Any = None,
    table_class: str = "MemorySparseTable", param_attr: Any = None, dtype: Any = "float32", slot: Any = None,
) -> Variable:  # fmt: skip
    """Looks up rows of a table, as ``fluid.layers.embedding(is_sparse=True)``: what Paddle keeps on parameter servers.

    Args:
        input: Ids, shape ``[batch, 1]``.
        size: Number of rows, and the size of a row.
        padding_idx: The id whose row is zeros.
        param_attr: Settings of the table.
        dtype: Its element type.

    Returns:
        Shape ``[batch, size[1]]``.

    Raises:
        UnsupportedError: In several processes, whose tables would be on parameter servers.

    Example:
        >>> ids = static.data("ids", [None, 1], "int64")
        >>> rows = static.nn.sparse_embedding(ids, [10, 3], param_attr=paddle.nn.initializer.Constant(0.5))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(feed={"ids": np.array([[1], [4]])}, fetch_list=[rows])[0].shape
        (2, 3)
    """
    processes = launch.current().size
    if processes > 1:
        raise UnsupportedError(
            "static.nn.sparse_embedding keeps its table on parameter servers, which are not part of tstatic",
            expected="one process",
            received=f"{processes} processes",
            fix="call fleet.init(is_collective=True), and use static.nn.embedding(is_sparse=True)",
            op="static.nn.sparse_embedding",
        )
    return fluid_embedding(input, size, is_sparse=True, padding_idx=padding_idx, param_attr=param_attr, dtype=dtype)


__all__ = ["sparse_embedding"]
