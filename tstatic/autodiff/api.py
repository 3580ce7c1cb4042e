"""``append_backward`` and ``gradients`` append gradient ops to the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.autodiff.backward import Backward, PendingOp, run
from tstatic.autodiff.early import before_updates
from tstatic.autodiff.paths import path_to, requirements
from tstatic.autodiff.recompute import recompute
from tstatic.errors import ProgramError, ProgramTypeError, ShapeError, UnsupportedError, shown
from tstatic.ir import names
from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_length, check_type, same_shape
from tstatic.ir.opdef import GRAD, export
from tstatic.ir.operator import OpRole
from tstatic.ir.program import Block, Operator, Parameter, Program, Variable
from tstatic.logs import warn_once
from tstatic.no_effect import no_effect
from tstatic.where import Where, show, user_line

Pair = tuple[Variable, Variable | None]


def _names(items: Any, argument: str) -> set[str]:
    """Returns the names in a list of Variables or names.

    Raises:
        ProgramTypeError: If an entry is neither.
    """
    if items is None:
        return set()
    expected = "a list, tuple or set of Variable or str"
    check_type(items, (list, tuple, set, frozenset), argument, "append_backward", expected=expected)
    found = set()
    for item in items:
        if isinstance(item, Variable):
            found.add(item.name)
        elif isinstance(item, str):
            found.add(item.removesuffix(GRAD))
        else:
            raise ProgramTypeError(
                f"'{argument}' holds something that is not a variable",
                expected="Variable or str",
                received=shown(item),
                fix="pass variables or their names",
                op="append_backward",
            )
    return found


def _around(block: Block) -> list[Block]:
    """Returns the block and the blocks around it, the global one first."""
    found = [block]
    while found[0].parent is not None:
        found.insert(0, found[0].parent)
    return found


def _next_prefix(program: Program) -> str:
    """Returns the prefix of gradient names for the next differentiation of a program, which are those of Paddle."""
    order = program._appending_grad_times
    program._appending_grad_times += 1
    return "grad/" * order


@export("static.append_backward", "fluid.append_backward", "fluid.backward.append_backward")
@no_effect(distop_context="no ops are split over devices while a program is built")
def append_backward(
    loss: Variable,
    parameter_list: Any = None,
    no_grad_set: Any = None,
    callbacks: Any = None,
    checkpoints: Any = None,
    distop_context: Any = None,
) -> list[Pair]:
    """Appends the backward ops of ``loss`` to the block that is being built.

    Args:
        loss: The Variable to differentiate; its gradient starts as ones. Inside a branch it may be made there, or outside.
        parameter_list: Variables or names to get gradients for; all trainable parameters by default.
        no_grad_set: Variables or names that no gradient flows to or through.
        callbacks: Called with ``(block, context)`` after each appended backward op, as Paddle does.
        checkpoints: Variables to keep; the ops between them are recomputed in the backward pass.

    Returns:
        ``(parameter, gradient)`` pairs in program order.

    Raises:
        ProgramTypeError: If ``loss`` or a list entry is not a variable.

    Example:
        >>> w = paddle.create_parameter([2], "float32", name="w")
        >>> loss = paddle.sum(w * paddle.to_tensor([3.0, 4.0]))
        >>> [(p, g)] = static.append_backward(loss)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[g])[0]
        array([3., 4.], dtype=float32)
    """
    check_variable(loss, "loss", "append_backward")
    program = loss.block.program
    # The backward ops of a loss in a branch go to that branch: they run when it does.
    block = program.current_block()
    around = _around(block)
    if loss.block not in around:
        raise UnsupportedError(
            "append_backward needs a loss of the block that is being built, or of one around it",
            expected="a loss made outside of control flow, or a call inside the same branch",
            received=f"'{loss.name}' of block {loss.block.idx}",
            fix="return the value from static.nn.cond or while_loop and differentiate that",
            var=loss.name,
        )
    if not loss.dtype.is_float:
        raise ProgramError(
            "only a float variable can be differentiated",
            expected="a float loss",
            received=f"{loss.dtype.name}",
            fix="cast the loss to float32",
            var=loss.name,
        )
    no_grad = _names(no_grad_set, "no_grad_set")
    chosen = _names(parameter_list, "parameter_list") if parameter_list is not None else None
    excluded = {id(op) for one in around for op in one.excludes}
    ops = [op for one in around for op in one.ops if id(op) not in excluded]
    path = path_to(ops, [loss.name])
    reordered = before_updates(ops, path) if block.idx == 0 else None
    if reordered is not None:
        ops = reordered[0]
        path = path_to(ops, [loss.name])
    forward = [ops[i] for i in path]
    needed = requirements(block, forward, set(), no_grad, True)
    if chosen is not None:
        needed |= {n for n in chosen if n not in no_grad}
    prefix = _next_prefix(program)
    if prefix == "" and program.loss_name is None and block.idx == 0:
        program.loss_name = loss.name
    for i in reversed(path):
        if loss.name in ops[i].output_arg_names:
            ops[i]._set_attr("op_role", ops[i].role | OpRole.Loss)
            break
    work = Backward(block, block, prefix)
    if reordered is not None:
        work.updates = reordered[1]
    if loss.name in needed:
        seed = work.grad_name(loss.name)
        work.metas[seed] = loss.meta
        if -1 in loss.shape:
            new_op = PendingOp("fill_any_like", {"X": (loss.name,)}, {"Out": (seed,)}, {"value": 1.0}, user_line())
        else:
            attrs = {"shape": loss.shape, "value": 1.0, "dtype": loss.dtype}
            new_op = PendingOp("fill_constant", {}, {"Out": (seed,)}, attrs, user_line())
        new_op.role = OpRole.Backward | OpRole.Loss
        work.pending.append(new_op)
        work.add_partial(loss.name, None, seed)
        if checkpoints:
            recompute(work, ops, path, needed, _names(checkpoints, "checkpoints"))
        else:
            run(work, ops, path, needed)
    # Leaves have no op whose backward step accumulates their gradients.
    leaves = list(work.partial_grads)
    for name in leaves:
        work.accumulate(name, None)
    parameters = [p for p in program.all_parameters() if (p.trainable if chosen is None else p.name in chosen)]
    if chosen is not None:
        known = {p.name for p in parameters}
        parameters += [block._var_recursive(n) for n in sorted(chosen - known)]  # type: ignore[misc]
    _mark_parameters(work, parameters)
    if work.early:
        block.ops[:] = ops
    added = work.append(work.updates if work.early else None)
    if callbacks:
        for op in added:
            for callback in callbacks:
                callback(block=block, context={"op": op})
    pairs: list[Pair] = []
    for p in parameters:
        grad = block._find_var_recursive(work.grad_name(p.name))
        if grad is not None and p.name in needed and p.name not in no_grad:
            pairs.append((p, grad))
    for op, name in work.cut:
        _tell_cut(op, name, ops, [p.name for p in parameters if p.name in needed])
    return pairs


def _tell_cut(op: Operator, name: str, ops: Sequence[Operator], parameters: Sequence[str]) -> None:
    """Warns of parameters that get no gradient through a call of a Python function without a backward function."""
    before = ops[: next(i for i, one in enumerate(ops) if one is op)]
    read = {name, *(n for i in path_to(before, [name]) for n in before[i].input_arg_names)}
    lost = [p for p in parameters if p in read]
    if lost:
        warn_once(
            ("no gradient", op.block.program.uid, op.block.idx, op.position, tuple(lost)),
            f"no gradient flows through '{op.type}' at {show(op.where)} to {', '.join(lost)}: give it a backward function, or set "
            "stop_gradient = True on what it returns to say that none is meant to",
        )


def _mark_parameters(work: Backward, parameters: Sequence[Variable]) -> None:
    """Sets ``op_role_var`` on the op that completes a parameter's gradient (data parallelism reads it)."""
    finals = {work.grad_name(p.name): p.name for p in parameters if isinstance(p, Parameter)}
    last: dict[str, PendingOp] = {}
    for new_op in work.pending:
        for row in new_op.outputs.values():
            for name in row:
                if name in finals:
                    last[name] = new_op
    for grad, new_op in last.items():
        new_op.role_var += [finals[grad], grad]


@export("static.gradients", "fluid.gradients", "fluid.backward.gradients", "fluid.backward.calc_gradient")
def gradients(
    targets: Any, inputs: Any, target_gradients: Any = None, no_grad_set: Any = None
) -> list[Variable | None]:
    """Appends ops that compute the gradients of the sum of ``targets`` with respect to ``inputs``.

    Args:
        targets: A Variable or a list of them.
        inputs: A Variable or a list of them.
        target_gradients: One gradient per target (``None``: ones).
        no_grad_set: Variables or names that no gradient flows to or through.

    Returns:
        One entry per input: its gradient, or ``None`` when the targets do not depend on it, or it stops gradients, as
        inputs made by ``static.data`` do until ``x.stop_gradient = False``.

    Raises:
        ProgramTypeError: If something is not a Variable.
        ShapeError: If counts or shapes of targets and their gradients differ.

    Example:
        >>> x = paddle.to_tensor([1.0, 2.0, 3.0], stop_gradient=False)
        >>> (dx,) = static.gradients(paddle.sum(x * x), x)
        >>> static.Executor().run(fetch_list=[dx])[0]
        array([2., 4., 6.], dtype=float32)
    """
    outs = [check_variable(t, "targets", "gradients") for t in _listed(targets)]
    ins = [check_variable(i, "inputs", "gradients") for i in _listed(inputs)]
    seeds = _listed(target_gradients) if target_gradients is not None else [None] * len(outs)
    check_length(seeds, len(outs), "target_gradients", "gradients", why="one per target, None for ones")
    for target, seed in zip(outs, seeds, strict=True):
        if seed is None:
            continue
        check_variable(seed, "target_gradients", "gradients")
        if not same_shape(target.shape, seed.shape):
            raise ShapeError(
                f"The shapes of target and grad are different: target: {target.shape} grad: {seed.shape}",
                expected=list(target.shape),
                received=list(seed.shape),
                fix="give the gradient the target's shape",
                var=seed.name,
            )
    no_grad = _names(no_grad_set, "no_grad_set")
    block = outs[0].block
    program = block.program
    ops = list(block.ops)
    path = path_to(ops, [t.name for t in outs])
    reordered = before_updates(ops, path) if block.idx == 0 else None
    if reordered is not None:
        ops = reordered[0]
        path = path_to(ops, [t.name for t in outs])
    roots = {v.name for v in ins if v.name not in no_grad and not v.stop_gradient}
    needed = requirements(block, [ops[i] for i in path], roots, no_grad, False)
    work = Backward(block, block, _next_prefix(program), roots)
    if reordered is not None:
        work.updates = reordered[1]
    for target, seed in zip(outs, seeds, strict=True):
        if target.name not in needed:
            continue
        if seed is not None:
            work.add_partial(target.name, None, seed.name)
            continue
        written = names.generate(f"{work.grad_name(target.name)}@SEED")
        new_op = PendingOp("fill_any_like", {"X": (target.name,)}, {"Out": (written,)}, {"value": 1.0}, user_line())
        work.pending.append(new_op)
        work.add_partial(target.name, new_op, written)
    # If an op of the path writes an input, its backward step accumulates that input's gradient: keep the name.
    finals: dict[str, str] = {}
    accumulate = work.accumulate

    def remember(name: str, where: Where | None) -> str | None:
        final = accumulate(name, where)
        if final is not None and name in roots:
            finals[name] = final
        return final

    work.accumulate = remember  # type: ignore[method-assign]
    run(work, ops, path, needed)
    for name in list(work.partial_grads):
        work.accumulate(name, None)
    if work.early:
        block.ops[:] = ops
    work.append(work.updates if work.early else None)
    results: list[Variable | None] = []
    for v in ins:
        final = finals.get(v.name)
        results.append(block._find_var_recursive(final) if final is not None else None)
    return results


def _listed(items: Any) -> list[Any]:
    return list(items) if isinstance(items, list | tuple) else [items]


_KEPT = "a program keeps its operators, so that gradients can be differentiated again"


@export("tensor.grad")
@no_effect(retain_graph=_KEPT, create_graph=_KEPT)
def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool = False,
    no_grad_vars: Any = None,
) -> list[Variable | None]:
    """Appends ops that compute the gradients of the sum of ``outputs`` with respect to ``inputs``, as :func:`gradients`.

    Args:
        outputs: A Variable or a list of them.
        inputs: A Variable or a list of them.
        grad_outputs: One gradient per output (``None``: ones).
        only_inputs: ``True``: no other variable gets a gradient.
        allow_unused: Returns ``None`` for an input that the outputs do not depend on, or that stops gradients.
        no_grad_vars: Variables or names that no gradient flows to or through.

    Returns:
        One gradient per input.

    Raises:
        ProgramTypeError, ShapeError: As :func:`gradients`.
        ProgramError: If an input has no gradient and ``allow_unused`` is ``False``; nothing is appended then.
        UnsupportedError: If ``only_inputs`` is ``False``.

    Example:
        >>> x = paddle.to_tensor([1.0, 2.0, 3.0], stop_gradient=False)
        >>> (dx,) = paddle.grad(paddle.sum(x * x), x)
        >>> static.Executor().run(fetch_list=[dx])[0]
        array([2., 4., 6.], dtype=float32)
    """
    if not only_inputs:
        raise UnsupportedError(
            "gradients are those of the inputs alone",
            expected="only_inputs=True",
            received="False",
            fix="list every variable whose gradient you need in inputs",
            op="grad",
        )
    found = gradients(outputs, inputs, grad_outputs, no_grad_vars)
    unused = [v.name for v, gradient in zip(_listed(inputs), found, strict=True) if gradient is None]
    if unused and not allow_unused:
        raise ProgramError(
            f"no gradient reaches {', '.join(map(repr, unused))}",
            expected="outputs that depend on every input, and inputs with stop_gradient=False",
            received=f"inputs {[v.name for v in _listed(inputs)]}",
            fix="set stop_gradient = False on inputs that static.data makes, or pass allow_unused=True for None in their place",
            op="grad",
            var=unused[0],
        )
    return found
