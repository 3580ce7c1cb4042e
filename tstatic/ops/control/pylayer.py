"""Layers with a gradient of their own: ``static_pylayer``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tstatic.errors import ProgramError, UnsupportedError
from tstatic.ir.build import LayerNamer, append_op, check_variable
from tstatic.ir.checks import check_callable, check_type
from tstatic.ir.declare import default_main_program
from tstatic.ir.opdef import Attr, Case, Domain, GradContext, OpDef, OpSpec, export, register
from tstatic.ir.paddle_form import ABSENT
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta
from tstatic.ops.base import blocks as _blocks
from tstatic.ops.base.gradients import zeros_for
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.control.py_func import function_id, known_function


@dataclass(frozen=True)
class _Backward:
    """What a backward function built: ops over names, some of them gradients.

    Attributes:
        specs: The ops.
        arriving: Names of the gradients of the results.
        made: Names of the gradients of the inputs; ``None`` where the function gave none.
        local: Names that the ops make.
    """

    specs: tuple[OpSpec, ...]
    arriving: tuple[str, ...]
    made: tuple[str | None, ...]
    local: frozenset[str]

    def __call__(self, ctx: GradContext) -> list[OpSpec]:
        """Returns the ops with the names of a backward pass."""
        specs: list[OpSpec] = []
        renamed = {
            name: zeros_for(ctx, out, specs) for name, out in zip(self.arriving, ctx.outputs["Out"], strict=True)
        }
        # Fresh names for each use: the recorded ones may occur in several backward passes of one program.
        renamed |= {name: ctx.fresh(name) for name in sorted(self.local)}

        def names(slots: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
            return {slot: [renamed.get(n, n) for n in each] for slot, each in slots.items()}

        specs += [OpSpec(s.type, names(s.inputs), names(s.outputs), s.attrs) for s in self.specs]
        for name, made in zip(ctx.inputs["Input"], self.made, strict=True):
            # None is a gradient of 0, which no op needs to make.
            if made is not None and name in ctx.in_grads:
                specs.append(OpSpec("assign", {"X": [renamed.get(made, made)]}, {"Out": [ctx.in_grads[name]]}))
        return specs


def _infer(inputs: Sequence[Meta], results: Sequence[Meta]) -> list[Meta]:
    return list(results)


def _ref(inputs: Any, results: Sequence[Any], outs: Any) -> list[Any]:
    if outs is None:
        return [[np.array(r) for r in results]]
    # The op copies: what marks the layer's border must not be the value inside it.
    for result, out in zip(results, outs, strict=True):
        if out is not None:
            np.copyto(out, result)
    return [outs]


def _grad(ctx: GradContext) -> list[OpSpec]:
    backward = known_function(
        ctx.attrs["backward"], "the backward function of a pylayer",
        "a program with static_pylayer has no gradient of it after loading: build it again", "pylayer",
    )  # fmt: skip
    specs: list[OpSpec] = backward(ctx)
    return specs


register(OpDef(
    "pylayer", "Input*, Result* -> Out*",
    attrs={"backward": Attr.idle(-1, "results do not depend on it, only gradients do", "function")}, infer=_infer, ref=_ref,
    lower=lambda torch, inputs, results: ([r.clone() for r in results],), grad=_grad, shape_only=("Input",),
    paddle=ABSENT,
    domain=Domain(
        cases=(Case(([(2, 3)], [(2, 3), (4,)])), Case(([(1,), ()], [(0, 2)]))), ulps=0,
        check_grad="the gradient is what the user says",
    ), onnx="it calls Python",
))  # fmt: skip


def _record(backward_fn: Callable[..., Any], inputs: Sequence[Variable], results: Sequence[Variable]) -> _Backward:
    """Calls the backward function on stand-ins for gradients; what it builds leaves the program again."""
    program = default_main_program()
    with _blocks.body(program) as block:
        helper = LayerNamer("pylayer_grad", None, block)
        arriving = [helper.variable(r.dtype, r.shape) for r in results]
        given = backward_fn(*arriving)
        grads = list(given) if isinstance(given, list | tuple) else [given]
        if len(grads) != len(inputs):
            raise ProgramError(
                "the backward function of static_pylayer returned another number of gradients than there are inputs",
                expected=f"{len(inputs)}: one per input, None for an input without a gradient",
                received=len(grads),
                fix="return a gradient for each input",
                op="static_pylayer",
            )
        for i, grad in enumerate(grads):
            if grad is not None:
                check_variable(grad, f"the gradient of inputs[{i}]", "static_pylayer")
        # A recorded op is copied by name; a body would have to be copied with its block.
        if any(spec.kind == "block" for op in block.ops for spec in op.definition.attrs.values()):
            raise UnsupportedError(
                "the backward function of static_pylayer builds control flow",
                fix="use operators alone in it, such as paddle.where",
            )
        made = {name for op in block.ops for name in op.output_arg_names}
        specs = tuple(
            OpSpec(
                op.type,
                {n: op.input(n) for n in op.input_names},
                {n: op.output(n) for n in op.output_names},
                dict(op.attrs),
            )
            for op in block.ops
        )
    return _Backward(
        specs, tuple(v.name for v in arriving), tuple(None if g is None else g.name for g in grads), frozenset(made)
    )


@export("static.nn.static_pylayer", op="pylayer")
def static_pylayer(
    forward_fn: Callable[..., Any],
    inputs: Sequence[Variable],
    backward_fn: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Any:
    """Builds a layer from a function, and its gradient from another one.

    Args:
        forward_fn: Gets the inputs and returns a Variable, or a list or tuple of them.
        inputs: Variables.
        backward_fn: Gets the gradient of each result and returns that of each input, ``None`` for one without; built from
            operators without control flow. Without it no input may need a gradient.
        name: Prefix of names.

    Returns:
        What ``forward_fn`` returns. No gradient reaches parameters that it uses.

    Raises:
        ProgramTypeError: If a function cannot be called, or something is not a Variable.
        ProgramError: If an input needs a gradient and there is no ``backward_fn``, or it returns another number of
            gradients.

    Example:
        >>> x = paddle.to_tensor([1.0, 2.0])
        >>> x.stop_gradient = False
        >>> y = static.nn.static_pylayer(lambda a: a * 3, [x], lambda grad: grad * 100)
        >>> slope = static.gradients(y, x)
        >>> static.Executor().run(fetch_list=[y, *slope])
        [array([3., 6.], dtype=float32), array([100., 100.], dtype=float32)]
    """
    function = "static_pylayer"
    check_callable(forward_fn, "forward_fn", function)
    if backward_fn is not None:
        check_callable(backward_fn, "backward_fn", function)
    check_type(inputs, (list, tuple), "inputs", function, expected="a list of Variables")
    xs = [check_variable(x, f"inputs[{i}]", function) for i, x in enumerate(inputs)]
    needy = [x.name for x in xs if not x.stop_gradient]
    if backward_fn is None and needy:
        raise ProgramError(
            f"static_pylayer has no backward_fn, and its input '{needy[0]}' needs a gradient",
            expected="inputs with stop_gradient=True, or backward_fn",
            received=f"'{needy[0]}' with stop_gradient=False",
            fix="pass backward_fn, or x.detach()",
            op=function,
            var=needy[0],
        )
    inner = []
    for x in xs:
        copy = emit_one("assign", {"X": x})
        # The forward ops are hidden from differentiation: gradients come from backward_fn alone.
        copy.stop_gradient = True
        inner.append(copy)
    found = forward_fn(*inner)
    results = [check_variable(v, "what forward_fn returns", function) for v in _blocks.flatten(found)]
    # Without gradients the function's own ops are enough.
    if backward_fn is None:
        return found
    backward = _record(backward_fn, xs, results)
    # The block held only what was recorded.
    default_main_program().blocks.pop()
    helper = LayerNamer("pylayer", name)
    outs = [helper.variable(r.dtype, r.shape, stop_gradient=not needy) for r in results]
    append_op(
        helper.block,
        "pylayer",
        {"Input": xs, "Result": results},
        {"Out": outs},
        {"backward": function_id(backward)},
    )
    return _blocks.pack(found, iter(outs))
