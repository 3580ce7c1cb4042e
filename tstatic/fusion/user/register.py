"""``register_kernel`` makes a user's Triton kernel an operator, with a numpy function that defines its result."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.autodiff.backward import unstated_gradient
from tstatic.errors import DTypeError, ProgramError, ProgramTypeError, ShapeError, UnsupportedError, near, shown
from tstatic.fusion.user.user_kernel import OPTIONS, UserKernel, accepted, python_function, source_of
from tstatic.ir.build import emit
from tstatic.ir.checks import check_callable, check_type
from tstatic.ir.export import door
from tstatic.ir.expr import parse, variables
from tstatic.ir.opdef import DERIVE, GRAD, OPS, GradContext, GradOp, OpDef, OpSpec, parse_slots, register
from tstatic.ir.types import Meta, dtype_of

__all__ = ["register_kernel"]

Builder = Callable[..., Any]
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@door("register_kernel")
def register_kernel(
    name: str,
    slots: str,
    *,
    reference: Callable[..., Any],
    launch: Callable[..., tuple[Any, Mapping[str, Any]]],
    infer: Callable[..., Any] | None = None,
    attrs: Mapping[str, Any] | None = None,
    grad: Any = None,
) -> Callable[[Any], Builder]:
    """Makes a ``triton.jit`` function an operator: a decorator.

    On CPU places the operator runs ``reference``; with ``TSTATIC_CPU_BACKEND=interpret`` it runs the kernel, in Triton's
    interpreter, unless it was built inside ``static.no_fuse()``. ``tstatic.testing`` compares the two.

    Args:
        name: The operator's type: lower-case letters, digits and ``_``.
        slots: Its inputs and outputs, ``"X, Y -> Out"``. The kernel's pointers are called as the slots in lower case
            (``x``, ``y``, ``out``; ``dout`` for ``Out@GRAD``), in any order.
        reference: ``(*inputs, **attributes) -> array`` (a tuple for several outputs) on numpy arrays; inputs of 16 bits come
            as float32, and what is returned is rounded once.
        launch: ``(*inputs, *outputs, **attributes) -> (grid, {parameter: number})``, where inputs and outputs have ``shape``,
            ``dtype`` and ``numel``: the programs to launch, and the kernel's other parameters, ``tl.constexpr`` ones
            included; ``num_warps`` may be among them. Attributes of a parameter's name are passed by themselves.
        infer: ``(*inputs, **attributes)`` -> the shape of the output, or ``(shape, dtype)`` (a tuple of these for several
            outputs); without it outputs are like the first input.
        attrs: Attribute -> default value.
        grad: The gradients: expressions over the slots (``{"X@GRAD": "dout * 2 * x"}``), or what this function returned for
            another kernel, whose slots are among the inputs, outputs and gradients of this operator, or a numpy function
            ``(*inputs, *outputs, *gradients of the outputs, **attributes) -> gradients of the inputs``. To need a gradient that
            is not stated is an error; ``{"X@GRAD": ..., "Y@GRAD": None}`` says that ``Y`` has none. In such a mapping the
            kernel, or the function, may stand under the gradients that it computes.

    Returns:
        A decorator. It turns the kernel into a function ``(*Variables, name=None, **attributes) -> Variable`` (a tuple for
        several outputs) that builds the operator.

    Raises:
        ProgramTypeError, ProgramError: If the parts of the registration do not fit together.
    """
    known = _check_name(name)
    inputs, outputs = _check_slots(name, slots)
    for what, value in (("reference", reference), ("launch", launch)):
        check_callable(value, what, f"register_kernel('{name}')")
    if infer is not None:
        check_callable(infer, "infer", f"register_kernel('{name}')", "a function, or None")

    def decorate(kernel: Any) -> Builder:
        function = python_function(kernel)
        if function is None:
            raise ProgramTypeError(
                f"register_kernel('{name}') decorates something else than a kernel",
                expected="a @triton.jit function",
                received=shown(kernel),
                fix="write @register_kernel(...) directly above @triton.jit, and both above the kernel's def",
            )
        source = source_of(kernel, f"the kernel of '{name}'")
        pointers = [s.param for s in (*inputs, *outputs)]
        missing = [p for p in pointers if p not in source.parameters]
        if missing or set(pointers) & source.constants:
            wrong = missing or sorted(set(pointers) & source.constants)
            raise ProgramError(
                f"the kernel '{source.name}' does not take the slots of '{name}'",
                expected=f"parameters {', '.join(pointers)} (no tl.constexpr), then others",
                received=", ".join(source.parameters),
                fix=f"add a parameter '{wrong[0]}'" if missing else f"make '{wrong[0]}' a pointer",
            )
        # Names alone tell a kernel's pointers, attributes and options apart.
        taken = sorted(set(attrs or {}) & {*pointers, *OPTIONS, "name"})
        if taken:
            raise ProgramError(
                f"an attribute of '{name}' has a name that means something else",
                expected=f"other names than {', '.join([*pointers, *OPTIONS, 'name'])}",
                received=taken[0],
                fix=f"rename the attribute, for example to '{taken[0]}_value'",
            )
        # A notebook cell that runs again: the old definition goes when the new one has passed all checks.
        if known is not None:
            _forget(name)
        stated = {"slots": slots, "infer": infer, "attrs": dict(attrs or {}), "grad": grad}
        registered = UserKernel(name, source, launch, reference, stated)
        register(
            OpDef(
                name,
                slots,
                attrs=dict(attrs or {}),
                infer=_Infer(name, [s.name for s in outputs], infer),
                ref=_Reference(name, len(inputs), reference),
                grad=_gradient(name, slots, grad),
                kernel=registered,
            )
        )

        def build(*args: Any, name: str | None = None, **given: Any) -> Any:
            if len(args) != len(inputs):
                raise ProgramTypeError(
                    f"'{op}' takes {len(inputs)} Variables",
                    expected=", ".join(s.param for s in inputs),
                    received=f"{len(args)} arguments",
                    fix="pass one Variable for each input",
                    op=op,
                )
            pairs = dict(zip((s.name for s in inputs), args, strict=True))
            return emit(op, pairs, given, name=name)

        # `build` has a parameter of that name.
        op = name
        build.__name__ = build.__qualname__ = source.name
        build.__doc__ = function.__doc__
        build.op, build.kernel, build.registered = op, kernel, registered  # type: ignore[attr-defined]
        return build

    return decorate


# ------------------------------------------------------------------------------------------------------------- checks
def _check_name(name: Any) -> OpDef | None:
    """Returns the op definition that a repeated registration replaces, as when a notebook cell runs again."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.endswith("_grad_grad"):
        raise ProgramTypeError(
            "the name of a kernel is not an operator type",
            expected="lower-case letters, digits and _, beginning with a letter",
            received=repr(name),
            fix="register_kernel('my_op', ...), for example",
        )
    known = OPS.get(name)
    # Only kernels of users are replaced.
    if known is not None and known.kernel is None:
        raise ProgramError(
            f"there is an operator '{name}' already",
            expected="a name of your own",
            received=repr(name),
            fix=f"call it 'my_{name}', for example",
        )
    return known


def _check_slots(name: str, slots: Any) -> tuple[Any, Any]:
    example = "write 'X, Y -> Out', for example"
    check_type(slots, str, "slots", f"register_kernel('{name}')", expected="'X, Y -> Out'")
    try:
        inputs, outputs = parse_slots(slots)
    except AssertionError as error:
        raise ProgramError(
            f"the slots of '{name}' cannot be read", expected="'X, Y -> Out'", received=str(error), fix=example
        ) from None
    names = [s.name for s in (*inputs, *outputs)]
    marked = [s.name for s in (*inputs, *outputs) if s.many or s.optional]
    params = [s.param for s in (*inputs, *outputs)]
    if not inputs or not outputs or marked or len(set(params)) < len(params):
        raise ProgramError(
            f"the slots of '{name}' do not fit a kernel",
            expected="at least one input and one output, each one Variable with a name of its own",
            received=f"'{slots}'" + (f" ({marked[0]} is marked)" if marked else ""),
            fix=example if len(set(names)) == len(names) else "give each slot another name",
        )
    return inputs, outputs


def _forget(name: str) -> None:
    for type in (name, f"{name}_grad"):
        # Another operator may have the gradient's name.
        if type == name or (type in OPS and OPS[type].of == name):
            OPS.pop(type, None)


# ---------------------------------------------------------------------------------------------------------- functions
class _Infer:
    """Adapts a user's function of shapes and dtypes.

    ``__call__`` is an op definition's ``infer``.
    """

    def __init__(self, op: str, outputs: list[str], function: Callable[..., Any] | None) -> None:
        self.op = op
        self.outputs = outputs
        self.stated = function

    def __call__(self, *metas: Meta, **attrs: Any) -> Any:
        if self.stated is None:
            # Without a rule, results are like the first input.
            return metas[0] if len(self.outputs) == 1 else tuple(metas[0] for _ in self.outputs)
        answer = self.stated(*metas, **accepted(self.stated, attrs))
        rows = [answer] if len(self.outputs) == 1 else answer
        if not isinstance(rows, tuple | list) or len(rows) != len(self.outputs):
            raise ShapeError(
                f"'infer' of '{self.op}' must say a shape for each output",
                expected=f"one for each of {', '.join(self.outputs)}",
                received=repr(answer),
                fix="return a tuple of shapes",
                op=self.op,
            )
        made = [self._meta(row, metas[0]) for row in rows]
        return made[0] if len(made) == 1 else tuple(made)

    def _meta(self, row: Any, like: Meta) -> Meta:
        if isinstance(row, Meta):
            return row
        shape, dtype = row, like.dtype
        # Not a shape of two sizes, which are ints: a shape and a dtype.
        if isinstance(row, tuple) and len(row) == 2 and isinstance(row[0], tuple | list):
            shape, dtype = row[0], dtype_of(row[1])
        if not isinstance(shape, tuple | list) or not all(isinstance(n, int) and n >= -1 for n in shape):
            raise ShapeError(
                f"'infer' of '{self.op}' returned something that is not a shape",
                expected="a tuple of ints (-1 where unknown), or (shape, dtype)",
                received=repr(row),
                fix="return x.shape, for example",
                op=self.op,
            )
        return Meta(tuple(shape), dtype)


class _Reference:
    """Adapts a function that returns arrays to an op definition's ``ref``, which writes them."""

    def __init__(self, op: str, inputs: int, function: Callable[..., Any], targets: Sequence[str] = ()) -> None:
        self.op = op
        self.inputs = inputs
        self.computed = function
        self.targets = targets  # of a gradient: what it computes, by the words of the registration

    def __call__(self, *arrays: Any, **attrs: Any) -> None:
        ins, outs = arrays[: self.inputs], arrays[self.inputs :]
        # A copy: the function may keep or change its arguments, and their memory is reused.
        # 16 bits as float32: numpy would round after every step, which kernels do not.
        wide = [np.array(a, np.float32 if a.dtype.itemsize == 2 and a.dtype.kind in "fV" else a.dtype) for a in ins]
        answer = self.computed(*wide, **accepted(self.computed, attrs))
        found = list(answer) if isinstance(answer, tuple | list) else [answer]
        if len(found) != len(outs):
            raise ProgramError(
                f"the reference of '{self.op}' returned another number of arrays than the operator has outputs",
                expected=f"{len(outs)}" + (f": {', '.join(self.targets)}" if self.targets else ""),
                received=f"{len(found)}",
                fix="return one array for each output, as a tuple",
                op=self.op,
            )
        for index, (out, one) in enumerate(zip(outs, found, strict=True)):
            if one is None and out is not None:
                raise self._nothing(index)
            if out is not None:
                self._store(out, np.asarray(one))

    def _nothing(self, index: int) -> ProgramError:
        """Returns the error for ``None`` in the place of an array that is needed."""
        target = self.targets[index] if self.targets else f"output {index}"
        return ProgramError(
            f"the reference of '{self.op}' returned None for {target}",
            expected="an array",
            received="None",
            fix=f"return zeros, or say that there is none: grad={{..., '{target}': None}}"
            if self.targets
            else "return an array",
            op=self.op,
        )

    def _store(self, out: Any, array: Any) -> None:
        if array.shape != out.shape:
            raise ShapeError(
                f"the reference of '{self.op}' returned another shape than 'infer' says",
                expected=list(out.shape),
                received=list(array.shape),
                fix="correct one of the two",
                op=self.op,
            )
        # What `unsafe` would drop without a word: imaginary parts, and fractions.
        if array.dtype.kind == "c" or array.dtype == object or (array.dtype.kind == "f" and out.dtype.kind in "biu"):
            raise DTypeError(
                f"the reference of '{self.op}' returned another dtype than 'infer' says",
                expected=out.dtype.name,
                received=str(array.dtype),
                fix="correct one of the two",
                op=self.op,
            )
        np.copyto(out, array, casting="unsafe")


# ----------------------------------------------------------------------------------------------------------- gradients
def _gradient(name: str, slots: str, grad: Any) -> Any:
    """Returns the ``grad`` of the op definition.

    Inputs that ``grad`` says nothing of have no gradient, and autodiff refuses to need one; those with ``None`` are meant to.
    """
    inputs, outputs = parse_slots(slots)
    sources = [s.name for s in (*inputs, *outputs)] + [f"{s.name}{GRAD}" for s in outputs]
    targets = [f"{s.name}{GRAD}" for s in inputs]
    if grad is None:
        return _refuse(name)
    stated = targets
    meant: set[str] = set()
    if isinstance(grad, Mapping):
        stated, meant = _stated(name, targets, grad)
        values = [grad[target] for target in stated]
        if not values:
            # Every input is meant to have no gradient.
            return _none
        if isinstance(values[0], str):
            unstated = [t.removesuffix(GRAD) for t in targets if t not in stated and t not in meant]
            return _expressions(name, sources, {t: grad[t] for t in stated}, unstated)
        # One function or kernel under all names: `_stated` has checked it.
        grad = values[0]
    # What `register_kernel` returns carries the type of its op.
    other = OPS.get(getattr(grad, "op", ""))
    if other is not None:
        return _by_kernel(name, sources, stated, other, [t for t in targets if t not in meant])
    forms = "expressions by slot, a registered kernel, or a numpy function"
    function = check_callable(grad, "grad", f"register_kernel('{name}')", forms)
    reference = _Reference(f"{name}_grad", len(sources), function, stated)
    unstated = [t.removesuffix(GRAD) for t in targets if t not in stated and t not in meant]
    return GradOp(f"{', '.join(sources)} -> {', '.join(stated)}", ref=reference, unstated=tuple(unstated))


def _none(ctx: GradContext) -> list[OpSpec]:
    """The rule of an operator none of whose inputs is meant to have a gradient."""
    return []


def _stated(name: str, targets: list[str], grad: Mapping[str, Any]) -> tuple[list[str], set[str]]:
    """Returns the gradients that a mapping states, in the order of the inputs, and those that it says are none.

    Raises:
        ProgramError: If it names something else, or its values are of different forms.
    """
    foreign = [t for t in grad if t not in targets]
    if foreign or not grad:
        raise ProgramError(
            f"'grad' of '{name}' names something that is not a gradient of an input",
            expected=" or ".join(targets),
            received=", ".join(map(str, foreign)) or "nothing",
            fix=near(str(foreign[0]), targets) if foreign else "state an expression for each input",
        )
    stated = [t for t in targets if grad.get(t) is not None]
    values = [grad[t] for t in stated]
    if not all(isinstance(v, str) for v in values) and any(v is not values[0] for v in values):
        raise ProgramError(
            f"'grad' of '{name}' mixes forms",
            expected="expressions only, or one function or kernel under each gradient that it computes",
            received=", ".join(f"{t}: {shown(v)}" for t, v in zip(stated, values, strict=True)),
            fix="compute all gradients in one function",
        )
    return stated, {t for t in grad if grad[t] is None}


def _refuse(name: str) -> Callable[[GradContext], list[OpSpec]]:
    def rule(ctx: GradContext) -> list[OpSpec]:
        raise UnsupportedError(
            f"the kernel '{name}' has no gradient",
            expected="register_kernel(..., grad=...)",
            received="a gradient that goes through it",
            fix="state grad, or set stop_gradient = True on its inputs or its result",
            op=name,
        )

    return rule


def _expressions(name: str, sources: list[str], grad: Mapping[str, str], unstated: list[str]) -> GradOp:
    params = {s.param: s.name for s in parse_slots(f"{', '.join(sources)} ->")[0]}
    try:
        used = set().union(*(variables(parse(text)) for text in grad.values()))
    except (AssertionError, SyntaxError, TypeError) as error:
        raise ProgramError(
            f"an expression in 'grad' of '{name}' cannot be read",
            expected="an expression over the slots, such as 'dout * 2 * x'",
            received=str(error),
            fix="see docs/ops.md for the functions, or give a numpy function",
        ) from None
    # Gradients that arrive are slots of the op, whether an expression names them or not.
    read = [s for p, s in params.items() if p in used or s.endswith(GRAD)]
    return GradOp(
        f"{', '.join(read)} -> {', '.join(grad)}", pointwise=dict(grad), grad=DERIVE, unstated=tuple(unstated)
    )


def _by_kernel(
    name: str, sources: list[str], targets: list[str], other: OpDef, needed: list[str]
) -> Callable[[GradContext], list[OpSpec]]:
    """Returns the rule of a gradient by another kernel, which computes ``targets`` or some of them; ``needed`` may be asked for."""
    read, made = [s.name for s in other.inputs], [s.name for s in other.outputs]
    wrong = [s for s in read if s not in sources] + [s for s in made if s not in targets]
    if wrong:
        raise ProgramError(
            f"'{other.type}' does not compute gradients of '{name}'",
            expected=f"inputs among {', '.join(sources)}, outputs among {', '.join(targets)}",
            received=other.slots,
            fix=f"rename '{wrong[0]}'",
        )

    unstated = [t.removesuffix(GRAD) for t in needed if t not in made]

    def rule(ctx: GradContext) -> list[OpSpec]:
        for slot in unstated:
            lacking = [v for v in ctx.inputs[slot] if v in ctx.in_grads]
            if lacking:
                raise unstated_gradient(name, slot, lacking[0])
        forward = {**{s: v[0] for s, v in ctx.inputs.items()}, **{s: v[0] for s, v in ctx.outputs.items()}}
        specs = []
        inputs = {}
        for slot in read:
            if not slot.endswith(GRAD):
                inputs[slot] = [forward[slot]]
                continue
            value = forward[slot[: -len(GRAD)]]
            found = ctx.out_grads.get(value)
            # An output that no gradient reaches counts as having zeros.
            if found is None:
                found = ctx.fresh(value)
                specs.append(OpSpec("fill_zeros_like", {"X": [value]}, {"Out": [found]}))
            inputs[slot] = [found]
        values = {slot: forward[slot[: -len(GRAD)]] for slot in made}
        # The kernel writes all of its outputs; a gradient that nobody wants goes to a variable that nobody reads.
        outputs = {slot: [ctx.in_grads.get(v) or ctx.fresh(v)] for slot, v in values.items()}
        attrs = {n: v for n, v in ctx.attrs.items() if n in other.attrs}
        return [*specs, OpSpec(other.type, inputs, outputs, attrs)]

    return rule
