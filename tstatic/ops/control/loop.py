"""Loops: ``while``, and while_loop and While built from it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tstatic.errors import DTypeError, ProgramError
from tstatic.ir.build import LayerNamer, append_op, check_variable
from tstatic.ir.checks import check_callable, check_dtype, check_not_empty, check_one_element, check_type
from tstatic.ir.declare import default_main_program
from tstatic.ir.opdef import Attr, GradOp, OpDef, export, register
from tstatic.ir.program import Block, Operator, Variable
from tstatic.ir.tensor_array import KIND, add, copied, zeros_like
from tstatic.ops.base import blocks as _blocks
from tstatic.undo import undone_on_error

Arrays = Sequence[Any]


def _run_loop(xs: Arrays, condition: Any, outs: Any, scopes: Any, *, run_block: Any) -> tuple[Any, Any]:
    names_out = run_block.names("Out")
    given = dict(zip(run_block.names("X"), xs, strict=True))
    flag = run_block.names("Condition")[0]
    given[flag] = condition
    if scopes is not None:
        # The arena's buffers are used again before the backward pass.
        given = {n: copied(a) for n, a in given.items()}
        scopes.clear()
    while bool(np.asarray(given[flag]).all()):
        env = run_block.run(given)
        if scopes is not None:
            scopes.append(run_block.before(given, env))
        # A new dict: scopes hold the one of the iteration before.
        given = {**given, **{n: env[n] for n in names_out}}
    values = [given[n] for n in names_out]
    return _blocks.deliver(values, outs), scopes


def _run_loop_grad(xs: Arrays, forward: Arrays, grads: Arrays, scopes: Any, dxs: Any, *, run_block: Any) -> tuple[Any]:
    names_x, carried = run_block.names("X"), run_block.names("Out")
    arriving: dict[str, Any] = dict(zip(carried, grads, strict=True))
    total: dict[str, Any] = {n: zeros_like(x) for n, x in zip(names_x, xs, strict=True) if n not in arriving}
    written = {name for name, _ in run_block.sub_block.outputs}
    # The last iteration comes first. A carried variable hands its gradient on to the iteration before, which made it; one
    # that the body only reads adds up what all iterations contribute.
    for env in reversed(scopes):
        done = run_block.run({**env, **{run_block.grad_name(n): g for n, g in arriving.items()}})
        for n in total:
            if run_block.grad_name(n) in written:
                total[n] = add(total[n], done[run_block.grad_name(n)])
        arriving = {
            n: done[run_block.grad_name(n)] if run_block.grad_name(n) in written else zeros_like(g)
            for n, g in arriving.items()
        }
    values = [arriving[n] if n in arriving else total[n] for n in names_x]
    return (_blocks.deliver(values, dxs),)


register(OpDef(
    "while", "X*, Condition -> Out*, StepScopes?",
    attrs={"sub_block": Attr(kind="block"), "is_test": Attr.idle(False, "a loop runs alike in training and in tests")},
    ref=_run_loop, objects=("StepScopes",),
    grad=GradOp("X*, Out*, Out@GRAD*, StepScopes -> X@GRAD*", ref=_run_loop_grad, shape_only=("X", "Out")),
))  # fmt: skip


def _close(helper: LayerNamer, block: Block, condition: Variable, is_test: bool) -> Operator:
    """Appends the ``while`` op of a finished body and returns it."""
    reads, writes = _blocks.captures(block)
    # A carried variable keeps its value when the body never runs.
    reads += [n for n in writes if n not in reads]
    reads = [n for n in reads if n != condition.name]
    if condition.name not in writes:
        raise ProgramError(
            "the body of the loop never changes its condition, so it would run for ever",
            expected=f"an operator that writes '{condition.name}'",
            received="a body without one",
            fix="compute the condition again at the end of the body, for example paddle.less_than(i, n) into it",
            op="while",
            var=condition.name,
        )
    parent = block.parent
    assert parent is not None
    scopes = helper.variable("float32", ())
    scopes.type = "step_scopes"
    return append_op(
        parent, "while", {"X": reads, "Condition": condition}, {"Out": writes, "StepScopes": scopes},
        {"sub_block": block.idx, "is_test": is_test},
    )  # fmt: skip


def _assign(var: Variable) -> str:
    return "assign_array" if var.type == KIND else "assign"


def _copy_of(helper: LayerNamer, var: Variable) -> Variable:
    made: Variable = helper.emit(_assign(var), {"X": var})
    made.type = var.type
    return made


def _check_condition(var: Any, function: str) -> Variable:
    checked = check_variable(var, "cond", function)
    check_dtype(checked, ("bool",), "cond", function, fix="return a comparison, for example paddle.less_than(i, n)")
    check_one_element(checked, "cond", function)
    return checked


@export("static.nn.while_loop", "fluid.layers.while_loop", op="while")
def while_loop(
    cond: Callable[..., Any], body: Callable[..., Any], loop_vars: Any, is_test: bool = False, name: str | None = None
) -> list[Any]:
    """Repeats ``body`` while ``cond`` is true.

    Args:
        cond: Takes the loop variables, returns a bool Variable with one element.
        body: Takes the loop variables, returns as many of the same types.
        loop_vars: List of Variables (or nested structures of them).
        is_test: Kept as the op's attribute; a loop runs alike in training and in tests.
        name: Prefix of names.

    Returns:
        The loop variables after the loop.

    Raises:
        ProgramTypeError: If ``cond`` or ``body`` is not callable, or ``loop_vars`` is not a list.
        ProgramError: If ``loop_vars`` is empty, or ``body`` returns another structure.

    Example:
        >>> i, total = paddle.zeros([1]), paddle.zeros([1])
        >>> i, total = static.nn.while_loop(lambda i, total: i < 4, lambda i, total: [i + 1, total + i], [i, total])
        >>> static.Executor().run(fetch_list=[i, total])
        [array([4.], dtype=float32), array([6.], dtype=float32)]
    """
    check_callable(cond, "cond", "while_loop", "a function of the loop variables")
    check_callable(body, "body", "while_loop", "a function of the loop variables")
    wanted, fix = "a list of Variables", "pass loop_vars=[i, x]"
    check_type(loop_vars, (list, tuple), "loop_vars", "while_loop", expected=wanted, fix=fix)
    check_not_empty(loop_vars, "loop_vars", "while_loop", of="loop variable", error=ProgramError)
    program = default_main_program()
    helper = LayerNamer("while_loop", name)
    # Copies, so that the variables given keep their values for whoever reads them after the loop.
    carried = [_copy_of(helper, _blocks.leaf_variable(v, "while_loop")) for v in _blocks.flatten(list(loop_vars))]
    for var, given in zip(carried, _blocks.flatten(list(loop_vars)), strict=True):
        # A constant start stops no gradient: what the body makes of it may depend on parameters.
        var.stop_gradient = isinstance(given, Variable) and given.stop_gradient and not var.dtype.is_inexact
    state = _blocks.pack(list(loop_vars), iter(carried))
    condition = _check_condition(cond(*state), "while_loop")
    condition = helper.emit("assign", {"X": condition})
    with _blocks.body(program) as block:
        result = body(*state)
        if not isinstance(result, list | tuple):
            result = [result]
        if not _blocks.same_structure(list(result), list(state)):
            raise ProgramError(
                "body in while_loop should return the same arity (length and structure) and types as loop_vars",
                expected=f"{len(carried)} values",
                received=f"{len(_blocks.flatten(list(result)))} values",
                fix="return one value per loop variable",
                op="while_loop",
            )
        leaves = [_blocks.leaf_variable(v, "while_loop") for v in _blocks.flatten(list(result))]
        for new, old in zip(leaves, carried, strict=True):
            if new.dtype is not old.dtype:
                raise DTypeError(
                    "body in while_loop changes the dtype of a loop variable",
                    expected=old.dtype.name,
                    received=new.dtype.name,
                    fix=f"cast it back with paddle.cast(x, '{old.dtype.name}')",
                    op="while_loop",
                    var=old.name,
                )
        next_condition = _check_condition(cond(*_blocks.pack(list(result), iter(leaves))), "while_loop")
        # Through temporaries: a body that swaps two variables must not read one that is overwritten already.
        own = {v.name for v in carried}
        held = [_copy_of(helper, v) if v.name in own else v for v in leaves]
        for new, old in zip(held, carried, strict=True):
            if new is not old:
                append_op(block, _assign(new), {"X": new}, {"Out": old})
        append_op(block, "assign", {"X": next_condition}, {"Out": condition})
    loop = _close(helper, block, condition, is_test)
    given = [v for v in _blocks.flatten(list(loop_vars)) if isinstance(v, Variable)]
    outer = [program.current_block()._var_recursive(n) for n in loop.input("X") if n not in own]
    if all(v.stop_gradient for v in (*given, *outer)):
        for var in carried:
            var.stop_gradient = True
    return _blocks.pack(list(loop_vars), iter(carried))  # type: ignore[no-any-return]


@export("fluid.layers.While", "static.nn.While")
class While:
    """1.x style: ``while_op = While(cond)``, then ``with while_op.block(): ...`` that writes to ``cond``.

    Args:
        cond: A bool Variable of one element; the loop runs while it is true.
        is_test: Kept as the op's attribute; a loop runs alike in training and in tests.
        name: Name of the layer.

    Raises:
        DTypeError: If ``cond`` is not bool.
        ShapeError: If ``cond`` has several elements.

    Example:
        >>> i, n = paddle.zeros([1], "int64"), paddle.full([1], 5, "int64")
        >>> going = paddle.less_than(i, n)
        >>> with static.nn.While(going).block():
        ...     i = fluid.layers.increment(i)
        ...     _ = fluid.layers.less_than(i, n, cond=going)
        >>> static.Executor().run(fetch_list=[i])[0]
        array([5])
    """

    def __init__(self, cond: Variable, is_test: bool = False, name: str | None = None) -> None:
        self._condition = _check_condition(cond, "While")
        self._is_test = is_test
        self._helper = LayerNamer("while", name)

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """Collects the ops of the body."""
        with undone_on_error():
            with _blocks.body() as block:
                yield
            _close(self._helper, block, self._condition, self._is_test)
