"""Branches: conditional_block, where they come together (select_input), cond, case, switch_case and Switch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.errors import FeedError, ProgramError, ProgramTypeError
from tstatic.ir.build import LayerNamer, append_op, check_variable, emit
from tstatic.ir.checks import check_callable, check_int, check_length, check_not_empty, check_one_element, check_type
from tstatic.ir.declare import default_main_program
from tstatic.ir.opdef import Attr, Case, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Block, Operator, Variable
from tstatic.ir.tensor_array import copied, zeros_like
from tstatic.ir.traits import MayLack
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.logs import warn_user
from tstatic.no_effect import no_effect
from tstatic.ops.base import blocks as _blocks
from tstatic.ops.base.host import READS_CHOICE
from tstatic.undo import undone_on_error

Arrays = Sequence[Any]


def _infer(x: Sequence[Meta], mask: Meta) -> Meta:
    last = x[-1]
    if any(one.rank != last.rank or one.dtype is not last.dtype for one in x):
        # Which rank or dtype it is, only the run knows: a value whose sizes are unknown is not planned ahead.
        return last.with_shape((UNKNOWN,) * max(last.rank, 1))
    sizes = zip(*(one.shape for one in x), strict=True)
    return last.with_shape(every[0] if len(set(every)) == 1 else UNKNOWN for every in sizes)


def _index(mask: Any) -> int:
    return int(np.asarray(mask).reshape(()))


def _ref(x: Arrays, mask: Any, out: Any) -> list[Any]:
    chosen = x[_index(mask)]
    if out is None:
        # A copy: the branch's own buffer is used again by later ops.
        return [np.array(chosen)]
    np.copyto(out, chosen)
    return [out]


def _grad(x: Arrays, mask: Any, grad: Any, dx: Any) -> list[Any]:
    index = _index(mask)
    if dx is None:
        return [[np.array(grad, dtype=v.dtype) if i == index else np.zeros_like(v) for i, v in enumerate(x)]]
    for i, out in enumerate(dx):
        if out is not None:
            # The branch that was not chosen gets zeros, so that its own backward pass needs no special case.
            if i == index:
                np.copyto(out, grad)
            else:
                out.fill(0)
    return [dx]


register(OpDef(
    "select_input", "X*, Mask -> Out", infer=_infer, ref=_ref,
    traits=(READS_CHOICE,), lower=lambda torch, x, mask: x[int(mask)].clone(),
    grad=GradOp(
        "X*, Mask, Out@GRAD -> X@GRAD*", ref=_grad,
        traits=(READS_CHOICE,), lower=lambda torch, x, mask, g: (
            [g.clone() if i == int(mask) else torch.zeros_like(v) for i, v in enumerate(x)],
        ),
        shape_only=("X",),
    ),
    domain=Domain(
        cases=(
            Case(([(2, 3), (2, 3)], (1,))), Case(([(4,), (4,), (4,)], ())), Case(([(), ()], ())),
            Case(([(0, 2), (0, 2)], (1,))), Case(([(3, 1, 2), (3, 1, 2)], (1,))), Case(([(5,), (5,)], ())),
        ),
        values={"Mask": ValueRange(0, 1, dtype="int32")},
    ),
    complex="linear", onnx="it chooses between results of blocks",
))  # fmt: skip


def merge(helper: LayerNamer, no: Variable, yes: Variable, mask: Variable) -> Variable:
    """Joins the results of two branches into one Variable; ``mask`` is 1 where ``yes`` is chosen.

    Warns:
        UserWarning: If the results differ in rank or dtype: what is declared is then right for ``yes`` alone.
    """
    out: Variable = helper.emit("select_input", {"X": [no, yes], "Mask": mask})
    if no.ndim != yes.ndim or no.dtype is not yes.dtype:
        out._shape = yes.shape
        warn_user(
            f"the branches return values of different ranks or dtypes: {yes.meta!r} if true, {no.meta!r} if false. The "
            f"result is declared as {yes.meta!r}, which ops after it rely on; reshape or cast one branch if that is wrong "
            "for the other"
        )
    return out


# ------------------------------------------------------------------------------------------------------------- branches


def _true(conditions: Arrays) -> bool:
    # Several conditions must all hold, with all of their elements.
    return all(bool(np.asarray(c).all()) for c in conditions)


def _check_given(given: Mapping[str, Any]) -> None:
    """Refuses a run of the branch without what it reads; one that does not run needs nothing."""
    for name, array in given.items():
        if array is None:
            raise FeedError(
                f"input '{name}' is not fed, and the branch that runs reads it",
                expected=f"'{name}' in feed",
                received="a feed without it",
                fix=f"feed '{name}', or a condition that chooses the other branch",
                var=name,
            )


def _run_branch(cond: Arrays, inputs: Arrays, outs: Any, scope: Any, *, run_block: Any) -> tuple[Any, Any]:
    names_out = run_block.names("Out")
    given = dict(zip(run_block.names("Input"), inputs, strict=True))
    if _true(cond):
        _check_given(given)
        if scope is not None:
            # The arena's buffers are used again before the backward pass.
            given = {n: copied(a) for n, a in given.items()}
        env = run_block.run(given)
        if scope is not None:
            # In place: the list is the variable's value, which the backward op already holds.
            scope[:] = [run_block.before(given, env)]
        # A program cloned for a test has lost the ops that wrote the rest.
        values = [env[n] if n in env else given[n] for n in names_out]
    else:
        if scope is not None:
            # Marks that the branch did not run; what an earlier run left would be differentiated instead.
            scope.clear()
        values = [given[n] if n in given else run_block.placeholder(n) for n in names_out]
        if outs is not None:
            # A result that nothing was written to keeps its buffer as it is; nobody reads it if the branch did not run.
            values = [given.get(n, o) for n, o in zip(names_out, outs, strict=True)]
    return _blocks.deliver(values, outs), scope


def _run_branch_grad(
    cond: Arrays,
    inputs: Arrays,
    forward: Arrays,
    grads: Arrays,
    scope: Any,
    dinputs: Any,
    *,
    run_block: Any,
) -> tuple[Any]:
    names_in = run_block.names("Input")
    arriving = dict(zip(run_block.names("Out"), grads, strict=True))
    results = []
    if scope:
        # The values from before the body, since it may have overwritten its own inputs.
        env = {**scope[0], **{run_block.grad_name(n): g for n, g in arriving.items()}}
        done = run_block.run(env)
        results = [done.get(run_block.grad_name(n)) for n in names_in]
    else:
        # A branch that did not run leaves a variable that it would have overwritten as it was.
        results = [arriving.get(n) for n in names_in]
    # An input that was not fed has no gradient; one that the body does not differentiate has a gradient of 0.
    values = [None if x is None else zeros_like(x) if r is None else r for x, r in zip(inputs, results, strict=True)]
    return (_blocks.deliver(values, dinputs),)


register(OpDef(
    "conditional_block", "Cond*, Input* -> Out*, Scope?",
    attrs={
        "sub_block": Attr(kind="block"), "is_scalar_condition": Attr.idle(True, "the condition always has one element"),
    },
    ref=_run_branch, objects=("Scope",), traits=(MayLack(("Input",)),),
    grad=GradOp(
        "Cond*, Input*, Out*, Out@GRAD*, Scope -> Input@GRAD*", ref=_run_branch_grad, shape_only=("Input", "Out"),
        traits=(MayLack(("Input",)),),
    ),
))  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- building
def _check_pred(pred: Any, function: str) -> Variable:
    var = check_variable(pred, "pred", function, ("bool",))
    check_one_element(var, "pred", function)
    return var


def _check_function(function: Any, arg: str, caller: str) -> None:
    if function is not None:
        check_callable(function, arg, caller, "a function without arguments, or None")


def _close(helper: LayerNamer, block: Block, pred: Variable) -> Operator:
    """Appends the ``conditional_block`` op of a finished body and returns it."""
    reads, writes = _blocks.captures(block)
    parent = block.parent
    assert parent is not None
    scope = helper.variable("float32", ())
    scope.type = "step_scopes"
    return append_op(
        parent, "conditional_block", {"Cond": [pred], "Input": reads}, {"Out": writes, "Scope": scope},
        {"sub_block": block.idx, "is_scalar_condition": True},
    )  # fmt: skip


def _branch(
    helper: LayerNamer, pred: Variable, function: Callable[[], Any] | None, excludes: tuple[Operator, ...] = ()
) -> tuple[Any, list[Variable], Operator]:
    """Builds one branch; returns what the function returned, the outer variables that hold its leaves, and its op."""
    program = default_main_program()
    outer: list[Variable] = []
    with _blocks.body(program) as block:
        # A loss inside this branch does not depend on ops of the other ones: they never run together.
        block.excludes = excludes
        result = function() if function is not None else None
        parent = block.parent
        assert parent is not None
        above = LayerNamer("cond", helper.name, parent)
        if result is not None:
            for leaf in _blocks.flatten(result):
                if leaf is None:
                    continue
                var = _blocks.leaf_variable(leaf, "cond")
                # Results leave the block through variables of the block around it, which select_input can read.
                out = above.variable(var.dtype, var.shape, stop_gradient=var.stop_gradient)
                append_op(block, "assign", {"X": var}, {"Out": out})
                outer.append(out)
    return result, outer, _close(LayerNamer("cond", helper.name, parent), block, pred)


@no_effect(return_names="results are not renamed")
@export("static.nn.cond", "fluid.layers.cond", op="conditional_block")
def cond(
    pred: Variable,
    true_fn: Callable[[], Any] | None = None,
    false_fn: Callable[[], Any] | None = None,
    name: str | None = None,
    return_names: Any = None,
) -> Any:
    """Runs one of two functions' ops, as ``pred`` says when the program runs.

    Args:
        pred: A bool Variable with one element.
        true_fn, false_fn: Build the branches; both return the same structure of Variables, or both ``None``. They see all
            outer variables; ``paddle.assign(x, output=y)`` writes to an outer one.
        name: Prefix of names.

    Returns:
        The structure that the functions return, with the chosen branch's values. A size in which the branches differ is
        declared as -1; where they differ in rank or dtype, the true branch's are declared, with a warning, and a run gives
        those of the branch it chose.

    Raises:
        ProgramTypeError, DTypeError, ShapeError: For a bad ``pred``, or a function that cannot be called.
        ProgramError: If the structures differ.

    Example:
        >>> x = static.data("x", [1])
        >>> y = static.nn.cond(x > 0, lambda: x * 10, lambda: x - 1)
        >>> exe = static.Executor()
        >>> [exe.run(feed={"x": np.array([v], "float32")}, fetch_list=[y])[0] for v in (2, -2)]
        [array([20.], dtype=float32), array([-3.], dtype=float32)]
    """
    _check_pred(pred, "cond")
    _check_function(true_fn, "true_fn", "cond")
    _check_function(false_fn, "false_fn", "cond")
    helper = LayerNamer("cond", name)
    otherwise = helper.emit("logical_not", {"X": pred})
    # Two blocks, each with its own condition, as in Paddle's programs: there is no block with two bodies.
    yes, yes_vars, taken = _branch(helper, pred, true_fn)
    no, no_vars, _ = _branch(helper, otherwise, false_fn, (taken,))
    if not _blocks.same_structure(yes, no):
        raise ProgramError(
            "Incompatible return values of true_fn and false_fn in cond",
            expected="the same structure of Variables from both",
            received=f"{_describe(yes)} and {_describe(no)}",
            fix="return the same number and nesting of Variables from both functions",
            op="cond",
            var=pred.name,
        )
    if yes is None:
        return None
    mask = helper.emit("cast", {"X": pred}, {"in_dtype": "bool", "out_dtype": "int32"})
    merged = [merge(helper, n, y, mask) for y, n in zip(yes_vars, no_vars, strict=True)]
    leaves = iter(merged)
    return _blocks.pack(yes, (next(leaves) if leaf is not None else None for leaf in _blocks.flatten(yes)))


def _describe(value: Any) -> str:
    if value is None:
        return "None"
    return f"{type(value).__name__} of {len(_blocks.flatten(value))} values"


@export("static.nn.case", "fluid.layers.case", op="conditional_block")
def case(pred_fn_pairs: Any, default: Callable[[], Any] | None = None, name: str | None = None) -> Any:
    """Runs the function of the first true predicate, else ``default`` (else the last function).

    Args:
        pred_fn_pairs: List of (bool Variable, function).
        default: Function for the case that none is true.
        name: Prefix of names.

    Raises:
        ProgramTypeError: If the pairs are malformed.

    Example:
        >>> x = static.data("x", [1])
        >>> y = static.nn.case([(x < 0, lambda: x - 1), (x > 10, lambda: x + 1)], default=lambda: x * 0)
        >>> exe = static.Executor()
        >>> [exe.run(feed={"x": np.array([v], "float32")}, fetch_list=[y])[0].item() for v in (-5, 20, 3)]
        [-6.0, 21.0, 0.0]
    """
    pairs = _check_pairs(pred_fn_pairs)
    _check_function(default, "default", "case")
    if default is None:
        default = pairs[-1][1]
        # The last function is also the default, so its own condition would choose between twice the same.
        pairs = pairs[:-1] if len(pairs) > 1 else pairs
    result = default
    # From the inside out: each pair's other branch is the choice between the pairs behind it.
    for pred, function in reversed(pairs):
        result = _nested(pred, function, result, name)
    return result()


def _nested(pred: Variable, yes: Callable[[], Any], no: Callable[[], Any], name: str | None) -> Callable[[], Any]:
    return lambda: cond(pred, yes, no, name)


def _check_pairs(pairs: Any) -> list[tuple[Variable, Callable[[], Any]]]:
    check_type(pairs, (list, tuple), "pred_fn_pairs", "case", expected="a list of pairs (bool Variable, function)")
    check_not_empty(pairs, "pred_fn_pairs", "case", of="pair (bool Variable, function)", error=ProgramTypeError)
    done = []
    for i, pair in enumerate(pairs):
        arg = f"pred_fn_pairs[{i}]"
        check_type(pair, tuple, arg, "case", expected="a pair (bool Variable, function)")
        pred, function = check_length(pair, 2, arg, "case", why="a condition and a function", error=ProgramTypeError)
        check_callable(function, f"{arg}[1]", "case", "a function without arguments")
        done.append((_check_pred(pred, "case"), function))
    return done


@export("static.nn.switch_case", "fluid.layers.switch_case", op="conditional_block")
def switch_case(
    branch_index: Variable, branch_fns: Any, default: Callable[[], Any] | None = None, name: str | None = None
) -> Any:
    """Runs the function whose key equals ``branch_index``, else ``default`` (else the one with the largest key).

    Args:
        branch_index: An int Variable with one element.
        branch_fns: Dict, list of (int, function), or list of functions (keys 0, 1, ...).
        default: Function for any other index.
        name: Prefix of names.

    Raises:
        ProgramTypeError: For malformed branches.
        ProgramError: If a key occurs twice.

    Example:
        >>> index, x = static.data("index", [1], "int32"), paddle.to_tensor([2.0])
        >>> y = static.nn.switch_case(index, {1: lambda: x + 10, 2: lambda: x * 10}, default=lambda: x)
        >>> exe = static.Executor()
        >>> [exe.run(feed={"index": np.array([i], "int32")}, fetch_list=[y])[0].item() for i in (1, 2, 3)]
        [12.0, 20.0, 2.0]
    """
    check_variable(branch_index, "branch_index", "switch_case", ("int64", "int32", "uint8"))
    if isinstance(branch_fns, dict):
        branch_fns = list(branch_fns.items())
    wanted = "a dict {int: function}, or a list of functions or of pairs (int, function)"
    check_type(branch_fns, (list, tuple), "branch_fns", "switch_case", expected=wanted)
    check_not_empty(branch_fns, "branch_fns", "switch_case", of="branch", error=ProgramTypeError)
    table: dict[int, Callable[[], Any]] = {}
    for i, item in enumerate(branch_fns):
        key, function = item if isinstance(item, tuple) and len(item) == 2 else (i, item)
        key = check_int(key, f"branch_fns[{i}][0]", "switch_case")
        check_callable(function, f"branch_fns[{i}]", "switch_case", "a function without arguments")
        if key in table:
            raise ProgramError(
                f"the key {key} occurs twice in 'branch_fns'",
                expected="distinct keys",
                received=key,
                fix="give each branch its own key",
                op="switch_case",
                var=branch_index.name,
            )
        table[key] = function
    _check_function(default, "default", "switch_case")
    keys = sorted(table)
    if default is None:
        # Paddle's rule: without a default, the largest key.
        default = table[keys.pop()]
    result = default
    for key in reversed(keys):
        number = emit("fill_constant", {}, {"shape": (1,), "dtype": branch_index.dtype, "value": key})
        result = _nested(emit("equal", {"X": branch_index, "Y": number}), table[key], result, name)
    return result()


@export("fluid.layers.Switch", "fluid.layers.control_flow.Switch")
class Switch:
    """1.x style: ``with switch.case(condition): ...``, ``with switch.default(): ...``; the first true case runs.

    Example:
        >>> x, y = static.data("x", [1]), fluid.layers.create_global_var([1], 0.0, "float32", persistable=True)
        >>> with fluid.layers.Switch() as switch:
        ...     with switch.case(x > 10.0):
        ...         _ = fluid.layers.fill_constant([1], "float32", 1.0, out=y)
        ...     with switch.default():
        ...         _ = fluid.layers.fill_constant([1], "float32", 2.0, out=y)
        >>> _ = static.Executor().run(static.default_startup_program())
        >>> static.Executor().run(feed={"x": np.array([3], "float32")}, fetch_list=[y])[0]
        array([2.], dtype=float32)
    """

    _is_restored = True

    def __init__(self, name: str | None = None) -> None:
        self._helper = LayerNamer("switch", name)
        self._not_yet: Variable | None = None
        self._earlier: tuple[Operator, ...] = ()

    def __enter__(self) -> Switch:
        return self

    def __exit__(self, *error: Any) -> None:
        self._not_yet = None

    @contextlib.contextmanager
    def case(self, condition: Variable) -> Iterator[None]:
        """Collects ops that run if ``condition`` is true and no earlier case was."""
        _check_pred(condition, "Switch.case")
        helper = self._helper
        if self._not_yet is None:
            mine = condition
            self._not_yet = helper.emit("logical_not", {"X": condition})
        else:
            mine = helper.emit("logical_and", {"X": self._not_yet, "Y": condition})
            # Later cases need that no earlier one was true, so the conditions are joined as they come.
            other = helper.emit("logical_not", {"X": condition})
            self._not_yet = helper.emit("logical_and", {"X": self._not_yet, "Y": other})
        with self._body(mine):
            yield

    @contextlib.contextmanager
    def default(self) -> Iterator[None]:
        """Collects ops that run if no case was true."""
        if self._not_yet is None:
            raise ProgramError(
                "Switch.default needs a case before it",
                expected="at least one 'with switch.case(condition)'",
                received="default first",
                fix="write 'with switch.case(condition):' before 'with switch.default():'",
                op="Switch",
            )
        with self._body(self._not_yet):
            yield

    @contextlib.contextmanager
    def _body(self, pred: Variable) -> Iterator[None]:
        with undone_on_error(self):
            with _blocks.body() as block:
                block.excludes = self._earlier
                yield
            self._earlier += (_close(LayerNamer("switch", self._helper.name), block, pred),)
