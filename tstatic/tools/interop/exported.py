"""What ``torch.export`` says about a module: a graph of ATen operators whose writes to memory are sorted out."""

from __future__ import annotations

import contextlib
import inspect
import logging
import operator
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tstatic.errors import ProgramTypeError, UnsupportedError, needed_for, shown
from tstatic.tools.interop.conversion import FUNCTION
from tstatic.where import Where

BATCH = "batch"
_FRAME = re.compile(r'File "(.+)", line (\d+), in ')


@dataclass(frozen=True)
class Arguments:
    """The example: what the module is called with.

    Attributes:
        args, kwargs: Tensors, and lists, tuples and dicts of them.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def arguments_of(example: Any) -> Arguments:
    """Returns the arguments that an example describes: one tensor, a tuple or a list of arguments, or a dict of them by name.

    Raises:
        ProgramTypeError: If it holds what is neither a tensor nor an array, a number, a text or ``None``.
    """
    with needed_for("from_torch"):
        import torch
        from torch.utils import _pytree as pytree

    def tensor(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray):
            return torch.from_numpy(leaf)
        if leaf is None or isinstance(leaf, torch.Tensor | bool | int | float | str):
            return leaf
        raise ProgramTypeError(
            f"the example of {FUNCTION} holds something that is not a tensor",
            expected="tensors or arrays; numbers, texts and None where the module takes them",
            received=shown(leaf),
            fix="pass a tensor, a tuple of the arguments, or a dict of them by name",
            op=FUNCTION,
            var="example",
        )

    given = pytree.tree_map(tensor, example)
    found = (
        Arguments((), dict(given))
        if isinstance(given, dict)
        else Arguments(tuple(given) if isinstance(given, list | tuple) else (given,), {})
    )
    if not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves((found.args, found.kwargs))):
        raise ProgramTypeError(
            f"the example of {FUNCTION} holds no tensor",
            expected="the arguments of a call of the module",
            received=shown(example),
            fix="pass what module(...) takes: a tensor, a tuple of arguments, or a dict of them by name",
            op=FUNCTION,
            var="example",
        )
    return found


def export_module(module: Any, given: Arguments, dynamic_shapes: Any) -> Any:
    """Returns torch's ``ExportedProgram`` of a module.

    Args:
        module: A ``torch.nn.Module``, in the mode in which it is to be exported.
        given: The example.
        dynamic_shapes: ``"batch"``, or what ``torch.export.export`` takes.

    Raises:
        ProgramTypeError: If it is not a module.
        UnsupportedError: If torch cannot export it; the first lines of its reason are in the message.
    """
    with needed_for("from_torch"):
        import torch
    if not isinstance(module, torch.nn.Module):
        raise ProgramTypeError(
            f"{FUNCTION} takes a module of torch",
            expected="a torch.nn.Module",
            received=shown(module),
            fix="wrap the function in a class that derives from torch.nn.Module",
            op=FUNCTION,
            var="module",
        )
    args, kwargs, shapes = given.args, given.kwargs, dynamic_shapes
    with _quiet():
        try:
            if isinstance(dynamic_shapes, str) and dynamic_shapes == BATCH:
                args, kwargs, shapes = _with_open_batch(module, given)
            return torch.export.export(module, args, kwargs, dynamic_shapes=shapes)
        except Exception as error:
            raise UnsupportedError(
                "torch cannot export the module with this example",
                expected="a module that torch.export.export(module, args) takes",
                received=_first_lines(error),
                fix="call the module with the example first; then see torch's documentation of torch.export for what is exported"
                + ("; dynamic_shapes=None fixes all sizes" if dynamic_shapes is not None else ""),
                op=FUNCTION,
            ) from error


def _first_lines(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:3])[:400]}"


def _with_open_batch(module: Any, given: Arguments) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """Returns arguments with at least two rows, and dynamic shapes that leave the first axis open where all inputs share its size.

    torch takes sizes of 1 for constants, so an example of one row is doubled.
    """
    import torch
    from torch.utils import _pytree as pytree

    tensors = [t for t in pytree.tree_leaves((given.args, given.kwargs)) if isinstance(t, torch.Tensor) and t.dim()]
    size = tensors[0].shape[0] if tensors else 0

    def is_batch(leaf: Any) -> bool:
        return isinstance(leaf, torch.Tensor) and leaf.dim() > 0 and leaf.shape[0] == size and size > 0

    def doubled(leaf: Any) -> Any:
        return torch.cat([leaf, leaf]) if is_batch(leaf) and size == 1 else leaf

    def axes(leaf: Any) -> Any:
        return {0: torch.export.Dim.AUTO} if is_batch(leaf) else None

    args, kwargs = pytree.tree_map(doubled, (given.args, given.kwargs))
    named = inspect.signature(module.forward).bind(*given.args, **given.kwargs).arguments
    return args, kwargs, pytree.tree_map(axes, dict(named))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps torch's warnings and log lines away inside: export warns of what it does itself, and logs what it raises."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


# ------------------------------------------------------------------------------------------------------- writes to memory
def functional(program: Any) -> Any:
    """Returns the program itself if each write to memory can be read as a new value of one tensor; else torch's functional form.

    That form has no such writes, but gradients flow through what the module computes under ``torch.no_grad()``.
    """
    if not _writes_through_views(program):
        return program
    with _quiet():
        return program.run_decompositions({})


def written_argument(node: Any) -> Any | None:
    """Returns the node whose tensor a call writes to, or ``None``."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return None
    for number, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            return node.args[number] if number < len(node.args) else node.kwargs.get(argument.name)
    return None


def _shared_argument(node: Any) -> Any | None:
    """Returns the node whose memory a call's result may share, or ``None``."""
    if node.target is operator.getitem:
        return node.args[0]
    schema = getattr(node.target, "_schema", None)
    if schema is None or not node.args:
        return None
    # What returns its argument where there is nothing to do.
    if str(node.target) in ("aten.dropout.default", "aten.feature_dropout.default") and not node.args[2]:
        return node.args[0]
    shares = any(a.alias_info is not None for a in schema.arguments)
    return node.args[0] if shares and hasattr(node.args[0], "op") else None


GRAD_MODE = "wrap_with_set_grad_enabled"
"""The operator whose inner graph runs with or without gradients; its arguments are a truth value, the graph and its inputs."""


def inner_inputs(node: Any, graph: Any) -> Iterator[tuple[Any, Any]]:
    """Yields the placeholders of an inner graph, and the arguments that they are."""
    places = [one for one in graph.nodes if one.op == "placeholder"]
    yield from zip(places, node.args[2:], strict=True)


def _writes_through_views(program: Any) -> bool:
    """Whether a write changes a tensor of which something else that is read later is a view, or that is a view itself."""
    nodes: list[Any] = []
    memory: dict[Any, Any] = {}  # node -> the first node that has its memory
    tensor: dict[Any, Any] = {}  # node -> the first node that is the same tensor

    def add(graph: Any, owner: Any) -> None:
        for node in graph.nodes:
            called = node.op == "call_function"
            written = written_argument(node) if called else None
            base = written if written is not None else _shared_argument(node) if called else None
            if node not in memory:  # else a placeholder of an inner graph
                memory[node] = memory.get(base, base) if base is not None else node
                tensor[node] = tensor[written] if written is not None else node
            nodes.append(node)
            if called and str(node.target) == GRAD_MODE:
                inner = getattr(owner, node.args[1].target)
                for place, argument in inner_inputs(node, inner.graph):
                    memory[place], tensor[place] = memory[argument], tensor[argument]
                add(inner.graph, inner)

    add(program.graph, program.graph_module)
    position = {node: number for number, node in enumerate(nodes)}
    last = {node: max((position[user] for user in node.users), default=-1) for node in nodes}
    for node in nodes:
        if node.op != "call_function" or written_argument(node) is None:
            continue
        for other in nodes[: position[node]]:
            # A placeholder may be a buffer, whose value is read in the next run.
            kept = other.op == "placeholder" or last[other] > position[node]
            if kept and memory[other] is memory[node] and tensor[other] is not tensor[node]:
                return True
    return False


# ----------------------------------------------------------------------------------------------------------------- places
def line_of(node: Any) -> Where | None:
    """Returns the line of the user's code that a node comes from: the innermost one outside of torch."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if f"{os.sep}torch{os.sep}" not in frame[0]]
    found = (own or frames)[-1:]
    return (found[0][0], int(found[0][1])) if found else None


def scope_of(node: Any) -> str:
    """Returns the path of the module that a node belongs to, as a name scope: ``/blocks.0/attention/``."""
    stack: Mapping[str, Any] = node.meta.get("nn_module_stack") or {}
    paths = [path for path, _ in stack.values() if path]
    scope, before = "/", ""
    for path in paths:
        scope += path.removeprefix(before).strip(".") + "/"
        before = path
    return scope if len(scope) > 1 else ""


def output_names(program: Any, count: int) -> Iterator[str]:
    """Yields names of the results in torch's order: keys and numbers on the way to each, ``"out"`` for a single tensor."""
    from torch.utils import _pytree as pytree

    spec = program.call_spec.out_spec
    tree = pytree.tree_unflatten(list(range(count)), spec)
    for path, _ in pytree.tree_flatten_with_path(tree)[0]:
        parts = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path]
        yield ".".join(parts) or "out"
