"""Calls a Python function in the middle of a program."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tstatic.errors import DTypeError, NotFoundError, ProgramError
from tstatic.forks import away
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import check_callable, check_known
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.opdef import EMPTY, Attr, GradContext, OpDef, OpSpec, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, DType, Meta, Shape, dtype_of
from tstatic.ops.base.gradients import zeros_for

Array = np.ndarray[Any, Any]

# Attributes are plain values, which print and compare: a function is one by its number.
_functions: dict[int, Callable[..., Any]] = {}
_next = itertools.count()


def function_id(function: Callable[..., Any]) -> int:
    """Keeps a function for the life of the process and returns its number, the same for the same function."""
    # By identity, not by hash: a callable may be unhashable, or equal to another one.
    for number, known in _functions.items():
        if known is function:
            return number
    number = next(_next)
    _functions[number] = function
    return number


def known_function(number: int, what: str, fix: str, op: str) -> Callable[..., Any]:
    """Returns the function of a number.

    Raises:
        NotFoundError: If the process never gave that number to one; ``what`` and ``fix`` are parts of the message.
    """
    found = _functions.get(number)
    if found is None:
        raise NotFoundError(
            f"{what} is not part of this process",
            expected="a function that this process gave to the layer",
            received=f"number {number}",
            fix=fix,
            op=op,
        )
    return found


def _function(number: int) -> Callable[..., Any]:
    fix = "a program with py_func cannot be saved and loaded elsewhere: build it again"
    return known_function(number, "the Python function of a py_func", fix, "py_func")


def _infer(xs: list[Meta] | None, out_shapes: Sequence[Shape], out_dtypes: Sequence[str]) -> list[Meta]:
    return [Meta(tuple(s), dtype_of(d)) for s, d in zip(out_shapes, out_dtypes, strict=True)]


def _converted(result: Any, index: int, shape: Shape, dtype: DType) -> Array:
    """Returns a result as an array of the declared dtype, in the shape that it has.

    Raises:
        ProgramError: If there is none, and its shape is not known.
        DTypeError: If its dtype cannot become the declared one.
    """
    if result is None:
        if UNKNOWN in shape:
            raise ProgramError(
                f"the function of a py_func returned None for result {index}, whose shape is not known",
                expected=f"an array of shape {list(shape)}",
                received="None",
                fix="return zeros of the right shape",
                op="py_func",
            )
        return np.zeros(shape, dtype.np)
    array = np.asarray(result)
    if array.dtype != dtype.np:
        # Fractions would be cut off without a word.
        if array.dtype == object or (array.dtype.kind == "f" and dtype.np.kind in "biu"):
            raise DTypeError(
                f"the function of a py_func returned another dtype than was declared for result {index}",
                expected=dtype.name,
                received=str(array.dtype),
                fix=f"return array.astype('{dtype.name}')",
                op="py_func",
            )
        array = array.astype(dtype.np)
    # The function may keep what it returned.
    return np.array(array)


def _ref(
    xs: list[Array] | None,
    outs: Any,
    *,
    forward_callable_id: int,
    out_shapes: Sequence[Shape],
    out_dtypes: Sequence[str],
) -> list[list[Array]]:
    # Copies: the function may keep or change its arguments, and their memory is used again.
    arguments = [np.array(x) for x in xs or ()]
    # User code may fork, or wait for other threads: meanwhile this one does not count as computing.
    results = away(_function(forward_callable_id), *arguments)
    if results is None and not out_shapes:
        return [[]]
    given = list(results) if isinstance(results, list | tuple) else [results]
    if len(given) != len(out_shapes):
        raise ProgramError(
            "the function of a py_func returned another number of results than it has out variables",
            expected=f"{len(out_shapes)} arrays",
            received=f"{len(given)}",
            fix="return one array for each variable in out",
            op="py_func",
        )
    return [
        [
            _converted(r, i, tuple(s), dtype_of(d))
            for i, (r, s, d) in enumerate(zip(given, out_shapes, out_dtypes, strict=True))
        ]
    ]


def _grad(ctx: GradContext) -> list[OpSpec]:
    if ctx.attrs["backward_callable_id"] < 0:
        return []
    xs, outs = list(ctx.inputs.get("X", ())), list(ctx.outputs["Out"])
    if not any(x in ctx.in_grads for x in xs):
        return []
    skipped = set(ctx.attrs["backward_skip_vars"])
    specs: list[OpSpec] = []
    # The function takes a gradient for each result; those that nothing arrives for are zeros.
    incoming = [zeros_for(ctx, name, specs) for name in outs]
    metas = [ctx.meta(x) for x in xs]
    attrs = {
        "forward_callable_id": ctx.attrs["backward_callable_id"],
        "out_shapes": tuple(m.shape for m in metas),
        "out_dtypes": tuple(m.dtype.name for m in metas),
    }
    ins = [n for n in (*xs, *outs) if n not in skipped] + incoming
    # Unwanted gradients get the empty name: the function returns them anyway, and they are dropped.
    return [*specs, OpSpec("py_func", {"X": ins}, {"Out": [ctx.in_grads.get(x, EMPTY) for x in xs]}, attrs)]


register(OpDef(
    "py_func", "X*? -> Out*?",
    attrs={
        "forward_callable_id": Attr(kind="function"), "backward_callable_id": Attr(-1, "function"),
        "backward_skip_vars": Attr((), "strs"), "out_shapes": Attr((), "any"), "out_dtypes": Attr((), "strs"),
    },
    infer=_infer, ref=_ref, grad=_grad, effects=True, dynamic=Dynamic("the user's function", exact=False),
))  # fmt: skip


def _listed(value: Any, name: str) -> list[Variable]:
    if value is None:
        return []
    items = list(value) if isinstance(value, list | tuple) else [value]
    return [check_variable(item, name, "py_func") for item in items]


@export("static.py_func", "static.nn.py_func", "fluid.layers.py_func", op="py_func")
def py_func(
    func: Callable[..., Any],
    x: Any,
    out: Any,
    backward_func: Callable[..., Any] | None = None,
    skip_vars_in_backward_input: Any = None,
) -> Any:
    """Calls ``func`` with arrays at run time.

    Args:
        func: Gets one array for each Variable in ``x``, and returns one for each in ``out`` (``None`` when there is none).
        x: A Variable, a list of them, or ``None``.
        out: A Variable, a list of them, or ``None``; made before, with shape and dtype, for example by
            ``block.create_var``. A run takes the shapes that ``func`` returns.
        backward_func: Gets the arrays of ``x``, of ``out`` and of the gradients of ``out``, and returns one gradient for
            each in ``x``; ``None`` for zeros. No gradient flows without it, of which the log warns where parameters need one.
        skip_vars_in_backward_input: Variables of ``x`` and ``out`` that ``backward_func`` does not get.

    Returns:
        ``out``.

    Raises:
        ProgramTypeError: If a function cannot be called, or an argument is not a Variable.
        ProgramError: If a skipped Variable is neither in ``x`` nor in ``out``.

    Example:
        >>> x = paddle.to_tensor([3.0, 1.0, 2.0])
        >>> y = static.default_main_program().global_block().create_var(name="y", shape=[3], dtype="float32")
        >>> _ = static.py_func(np.sort, x, y)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([1., 2., 3.], dtype=float32)
    """
    check_callable(func, "func", "py_func")
    if backward_func is not None:
        check_callable(backward_func, "backward_func", "py_func")
    xs, outs = _listed(x, "x"), _listed(out, "out")
    for variable in outs:
        # Nothing can be inferred from a Python function, so its results are declared before.
        if variable._shape is None:
            raise ProgramError(
                f"the out variable '{variable.name}' of py_func has no shape",
                expected="a shape, with -1 where a size varies",
                received="none",
                fix="create it with create_var(name=..., shape=..., dtype=...)",
                op="py_func",
                var=variable.name,
            )
    known = {v.name for v in (*xs, *outs)}
    skipped = [v.name for v in _listed(skip_vars_in_backward_input, "skip_vars_in_backward_input")]
    unknown = "skip_vars_in_backward_input names a value that py_func does not get:"
    for name in skipped:
        check_known(
            name,
            sorted(known),
            unknown,
            fix="list Variables of x and out alone in skip_vars_in_backward_input",
            error=ProgramError,
            op="py_func",
        )
    attrs = {
        "forward_callable_id": function_id(func),
        "backward_callable_id": -1 if backward_func is None else function_id(backward_func),
        "backward_skip_vars": tuple(skipped),
        "out_shapes": tuple(v.shape for v in outs),
        "out_dtypes": tuple(v.dtype.name for v in outs),
    }
    emit("py_func", {"X": xs or None}, attrs, outputs={"Out": outs})
    return out
