"""Parts of a graph: numbers that run through for their nodes, and neighbours drawn at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import (
    FLOATS,
    INDICES,
    check_dtype,
    check_index,
    check_int,
    check_length,
    check_rank,
    check_same_dtype,
)
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.opdef import Case, Domain, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.no_effect import no_effect
from tstatic.ops.shape.joining import concat
from tstatic.tuned import draw
from tstatic.tuned._common import Array
from tstatic.tuned.philox import philox_key

_BUFFERS = "tables of hashes are for a GPU; here nodes are found by sorting"


def _vectors(metas: Sequence[Meta | None], args: Sequence[str]) -> None:
    for meta, arg in zip(metas, args, strict=True):
        if meta is not None:
            check_rank(meta, 1, arg, layout="[n]")


# ---------------------------------------------------------------------------------------------------------- graph_reindex
def _reindex_infer(x: Meta, neighbors: Meta, count: Meta) -> tuple[Meta, Meta, Meta]:
    _vectors((x, neighbors, count), ("X", "Neighbors", "Count"))
    for meta, arg in ((x, "X"), (count, "Count")):
        check_dtype(meta, INDICES, arg)
    check_same_dtype((x, neighbors), ("X", "Neighbors"))
    return neighbors, neighbors, x.with_shape((UNKNOWN,))


def _reindex(x: Array, neighbors: Array, count: Array, *outs: Any) -> list[Array]:
    nodes, first, inverse = np.unique(np.concatenate([x, neighbors]), return_index=True, return_inverse=True)
    # In the order in which they come up: those of X have their places as numbers.
    order = np.argsort(first, kind="stable")
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    targets = np.repeat(np.arange(len(count)) % max(len(x), 1), count)
    return [number[inverse][len(x) :].astype(x.dtype), targets.astype(x.dtype), nodes[order]]


def _torch_reindex(torch: Any, x: Any, neighbors: Any, count: Any) -> Any:
    known: dict[int, int] = {}
    for node in (*x.tolist(), *neighbors.tolist()):
        known.setdefault(node, len(known))
    targets = [i % max(len(x), 1) for i, n in enumerate(count.tolist()) for _ in range(n)]
    rows = ([known[n] for n in neighbors.tolist()], targets, list(known))
    return tuple(torch.tensor(row, dtype=x.dtype) for row in rows)


register(OpDef(
    "graph_reindex", "X, Neighbors, Count -> Reindex_Src, Reindex_Dst, Out_Nodes", infer=_reindex_infer, ref=_reindex,
    lower=_torch_reindex, dynamic=Dynamic("the different nodes"),
    domain=Domain(
        cases=(Case(((3,), (6,), (3,))), Case(((1,), (2,), (1,))), Case(((2,), (8,), (4,)))),
        # Nodes of X are different; every one has two neighbours.
        values={
            "X": ValueRange(dtype="int64", offsets="Neighbors.0"), "Neighbors": ValueRange(0, 9, dtype="int64"),
            "Count": ValueRange(2, 2, dtype="int32"),
        },
        floats=("float32",), ulps=0,
    ), onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip


@export("geometric.reindex_graph", op="graph_reindex")
@no_effect(value_buffer=_BUFFERS, index_buffer=_BUFFERS)
def reindex_graph(
    x: Variable,
    neighbors: Variable,
    count: Variable,
    value_buffer: Any = None,
    index_buffer: Any = None,
    name: str | None = None,
) -> tuple[Variable, Variable, Variable]:
    """Numbers the nodes of a part of a graph from 0: first those of ``x``, then their neighbours as they come up.

    Args:
        x: Different nodes, int32 or int64 ``[n]``.
        neighbors: The neighbours of the first, of the second and so on, ``[edges]``.
        count: How many each has, int32 ``[n]``.
        value_buffer, index_buffer: Accepted as Paddle has them.
        name: Name of the layer.

    Returns:
        For each edge the new number of the neighbour, and that of the node; and the nodes by their new numbers.

    Example:
        >>> x, neighbors = paddle.to_tensor([0, 1]), paddle.to_tensor([8, 9, 0])
        >>> made = paddle.geometric.reindex_graph(x, neighbors, paddle.to_tensor([2, 1], dtype="int32"))
        >>> static.Executor().run(fetch_list=made)
        [array([2, 3, 0]), array([0, 0, 1]), array([0, 1, 8, 9])]
    """
    return _reindexed("reindex_graph", x, [neighbors], [count], name)


@export("geometric.reindex_heter_graph", op="graph_reindex")
@no_effect(value_buffer=_BUFFERS, index_buffer=_BUFFERS)
def reindex_heter_graph(
    x: Variable,
    neighbors: Sequence[Variable],
    count: Sequence[Variable],
    value_buffer: Any = None,
    index_buffer: Any = None,
    name: str | None = None,
) -> tuple[Variable, Variable, Variable]:
    """Does what :func:`reindex_graph` does where there are several kinds of edges.

    Args:
        x: Different nodes, int32 or int64 ``[n]``.
        neighbors, count: Per kind, as of ``reindex_graph``.
        value_buffer, index_buffer: Accepted as Paddle has them.
        name: Name of the layer.

    Returns:
        As ``reindex_graph``: the edges of the first kind, then those of the second and so on.
    """
    check_length(count, len(neighbors), "count", "reindex_heter_graph", why="one for each kind of edges")
    return _reindexed("reindex_heter_graph", x, neighbors, count, name)


def _reindexed(
    function: str, x: Any, neighbors: Sequence[Any], count: Sequence[Any], name: str | None
) -> tuple[Variable, Variable, Variable]:
    lists = [
        [check_variable(v, arg, function, INDICES) for v in given]
        for arg, given in (("neighbors", neighbors), ("count", count))
    ]
    joined = [row[0] if len(row) == 1 else concat(row) for row in lists]
    ins = {"X": check_variable(x, "x", function, INDICES), "Neighbors": joined[0], "Count": joined[1]}
    made: tuple[Variable, Variable, Variable] = emit("graph_reindex", ins, name=name, prefix=function)
    return made


@export("incubate.graph_reindex", op="graph_reindex")
@no_effect(value_buffer=_BUFFERS, index_buffer=_BUFFERS, flag_buffer_hashtable=_BUFFERS)
def graph_reindex(
    x: Variable,
    neighbors: Variable,
    count: Variable,
    value_buffer: Any = None,
    index_buffer: Any = None,
    flag_buffer_hashtable: bool = False,
    name: str | None = None,
) -> tuple[Variable, Variable, Variable]:
    """Does what :func:`reindex_graph` does, under the name that Paddle had before.

    Args:
        x, neighbors, count, name: As of ``reindex_graph``.
        value_buffer, index_buffer, flag_buffer_hashtable: Accepted as Paddle has them.
    """
    return _reindexed("graph_reindex", x, [neighbors], [count], name)


# ------------------------------------------------------------------------------------------------- graph_sample_neighbors
def _sample_infer(
    row: Meta, pointers: Meta, x: Meta, eids: Meta | None, weight: Meta | None, sample_size: int
) -> tuple[Meta, Meta, Meta | None]:
    _vectors((row, pointers, x, eids, weight), ("Row", "Col_Ptr", "X", "Eids", "EdgeWeight"))
    for meta, arg in ((row, "Row"), (pointers, "Col_Ptr"), (x, "X")):
        check_dtype(meta, INDICES, arg)
    if weight is not None:
        check_dtype(weight, FLOATS, "EdgeWeight")
    drawn = row.with_shape((UNKNOWN,))
    return drawn, Meta(x.shape, row.dtype), None if eids is None else eids.with_shape((UNKNOWN,))


def _picks(pointers: Array, nodes: Array, weight: Array | None, size: int, rng: Any) -> list[Array]:
    """Returns the edges that are drawn for each node, in the graph's order."""
    check_index(nodes, len(pointers) - 1, "X")
    found = []
    for i, node in enumerate(nodes):
        edges = np.arange(pointers[node], pointers[node + 1])
        if 0 <= size < len(edges):
            u = np.empty(len(edges), np.float64)
            # A node's numbers depend on its place and its number of neighbours alone.
            draw.fill_uniform(u, 0.0, 1.0, philox_key(rng, 0), rng.start + (i << 20))
            # The first to arrive of exponential waiting times with these rates.
            with np.errstate(all="ignore"):
                arrival = -np.log(u + draw.ONE_53) / (1.0 if weight is None else weight[edges].astype(np.float64))
            edges = np.sort(edges[np.argsort(arrival, kind="stable")[:size]])
        found.append(edges)
    return found


def _sample(
    row: Array,
    pointers: Array,
    x: Array,
    eids: Array | None,
    weight: Array | None,
    *outs: Any,
    sample_size: int,
    rng: Any,
) -> list[Any]:
    found = _picks(pointers, x, weight, sample_size, rng)
    edges = np.concatenate([*found, np.empty(0, np.int64)]).astype(np.int64)
    counts = np.array([len(one) for one in found], row.dtype).reshape(x.shape)
    return [row[edges], counts, None if eids is None else eids[edges]]


def _torch_sample(
    torch: Any, row: Any, pointers: Any, x: Any, eids: Any, weight: Any, *, sample_size: int, rng: Any
) -> Any:
    found = _picks(pointers.numpy(), x.numpy(), None if weight is None else weight.double().numpy(), sample_size, rng)
    edges = torch.tensor([e for one in found for e in one.tolist()], dtype=torch.int64)
    counts = torch.tensor([len(one) for one in found], dtype=row.dtype).reshape(x.shape)
    return row[edges], counts, None if eids is None else eids[edges]


_NODES = {
    "Row": ValueRange(0, 9, dtype="int64"), "Col_Ptr": ValueRange(dtype="int64", offsets="Row.0"),
    "X": ValueRange(0, 3, dtype="int64"), "Eids": ValueRange(0, 99, dtype="int64"), "EdgeWeight": ValueRange(0.5, 2.0),
}  # fmt: skip

register(OpDef(
    "graph_sample_neighbors", "Row, Col_Ptr, X, Eids?, EdgeWeight? -> Out, Out_Count, Out_Eids?", attrs={"sample_size": -1},
    infer=_sample_infer, ref=_sample, lower=_torch_sample,
    dynamic=Dynamic("the neighbours that are drawn"), random=True, effects=True,
    domain=Domain(
        cases=(
            Case(((12,), (5,), (3,), None, None), {"sample_size": 2}), Case(((12,), (5,), (3,), (12,), None)),
            Case(((12,), (5,), (2,), (12,), (12,)), {"sample_size": 1}), Case(((4,), (5,), (1,), None, None)),
        ),
        values=_NODES, floats=("float32", "float64"), ulps=0,
    ),
))  # fmt: skip


def _sampled(
    function: str,
    row: Any,
    colptr: Any,
    nodes: Any,
    weight: Any,
    size: Any,
    eids: Any,
    return_eids: bool,
    name: str | None,
) -> tuple[Variable, ...]:
    ins = {
        "Row": check_variable(row, "row", function, INDICES),
        "Col_Ptr": check_variable(colptr, "colptr", function, INDICES),
        "X": check_variable(nodes, "input_nodes", function, INDICES),
    }
    if return_eids:
        ins["Eids"] = check_variable(eids, "eids", function, INDICES)
    if weight is not None:
        ins["EdgeWeight"] = check_variable(weight, "edge_weight", function, FLOATS)
    attrs = {"sample_size": check_int(size, "sample_size", function)}
    return tuple(emit("graph_sample_neighbors", ins, attrs, name=name, prefix=function))


@export("geometric.sample_neighbors", op="graph_sample_neighbors")
@no_effect(perm_buffer=_BUFFERS)
def sample_neighbors(
    row: Variable,
    colptr: Variable,
    input_nodes: Variable,
    sample_size: int = -1,
    eids: Variable | None = None,
    return_eids: bool = False,
    perm_buffer: Any = None,
    name: str | None = None,
) -> tuple[Variable, ...]:
    """Draws neighbours of nodes, without putting back.

    Args:
        row: The neighbours of node 0, of node 1 and so on, int32 or int64 ``[edges]``.
        colptr: Where those of each node begin, and the number of edges, ``[nodes + 1]``.
        input_nodes: The nodes, ``[n]``.
        sample_size: How many of each; all by default, and where there are not more.
        eids: Numbers of the edges, ``[edges]``.
        return_eids: Gives the numbers of the edges that were drawn, too.
        perm_buffer: Accepted as Paddle has it.
        name: Name of the layer.

    Returns:
        The neighbours, how many each node has of them, and with ``return_eids`` the numbers of their edges.

    Example:
        >>> row, colptr = paddle.to_tensor([1, 2, 0]), paddle.to_tensor([0, 2, 3, 3])
        >>> made = paddle.geometric.sample_neighbors(row, colptr, paddle.to_tensor([0, 1]))
        >>> static.Executor().run(fetch_list=made)
        [array([1, 2, 0]), array([2, 1])]
    """
    return _sampled("sample_neighbors", row, colptr, input_nodes, None, sample_size, eids, return_eids, name)


@export("geometric.weighted_sample_neighbors", op="graph_sample_neighbors")
def weighted_sample_neighbors(
    row: Variable,
    colptr: Variable,
    edge_weight: Variable,
    input_nodes: Variable,
    sample_size: int = -1,
    eids: Variable | None = None,
    return_eids: bool = False,
    name: str | None = None,
) -> tuple[Variable, ...]:
    """Draws neighbours of nodes without putting back, heavier edges more often.

    Args:
        row, colptr, input_nodes, sample_size, eids, return_eids, name: As of :func:`sample_neighbors`.
        edge_weight: A positive weight of each edge, ``[edges]``.
    """
    return _sampled(
        "weighted_sample_neighbors", row, colptr, input_nodes, edge_weight, sample_size, eids, return_eids, name
    )


@export("incubate.graph_sample_neighbors", op="graph_sample_neighbors")
@no_effect(perm_buffer=_BUFFERS, flag_perm_buffer=_BUFFERS)
def graph_sample_neighbors(
    row: Variable,
    colptr: Variable,
    input_nodes: Variable,
    eids: Variable | None = None,
    perm_buffer: Any = None,
    sample_size: int = -1,
    return_eids: bool = False,
    flag_perm_buffer: bool = False,
    name: str | None = None,
) -> tuple[Variable, ...]:
    """Does what :func:`sample_neighbors` does, under the name that Paddle had before.

    Args:
        row, colptr, input_nodes, eids, sample_size, return_eids, name: As of ``sample_neighbors``.
        perm_buffer, flag_perm_buffer: Accepted as Paddle has them.
    """
    return _sampled("graph_sample_neighbors", row, colptr, input_nodes, None, sample_size, eids, return_eids, name)
