"""Ops for looking into a run: ``print`` and ``assert``."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tstatic.errors import FeedError
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import check_dtype, check_one_element
from tstatic.ir.export import respell
from tstatic.ir.opdef import LOD, Attr, GradContext, OpDef, OpSpec, export, register
from tstatic.ir.program import Variable
from tstatic.ir.traits import MayLack
from tstatic.ir.types import Meta, dtype_of
from tstatic.no_effect import no_effect

Array = np.ndarray[Any, Any]


# --------------------------------------------------------------------------------------------------------------- print
def _to_stdout(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


_sink: Callable[[str], None] = _to_stdout
# By call and direction, for the life of the process: first_n counts over all runs and clones.
_printed: dict[tuple[int, bool], int] = {}
_numbers = itertools.count(1)


def set_print_sink(sink: Callable[[str], None] | None) -> Callable[[str], None]:
    """Sends what ``print`` ops say to a function instead of standard output; returns the one before.

    Args:
        sink: Gets the text of one value, lines with their ends; ``None`` for standard output.
    """
    global _sink
    before = _sink
    _sink = _to_stdout if sink is None else sink
    return before


def describe(x: Array, name: str, summarize: int, attrs: dict[str, Any], lod: Sequence[Array] = ()) -> str:
    """Returns the text that a ``print`` op gives for a value: the parts that its attributes ask for, one a line.

    Args:
        x: The value.
        name: Of its variable.
        summarize: How many elements are shown; all if negative.
        attrs: The op's attributes.
        lod: Its row offsets, from the outermost level inwards.
    """
    lines = [f"Variable: {name}" if attrs["print_tensor_name"] else "Variable"]
    if attrs["message"]:
        lines.append(f"  - message: {attrs['message']}")
    if attrs["print_tensor_lod"]:
        levels = (f"{{{', '.join(map(str, level.tolist()))}}}" for level in lod)
        lines.append(f"  - lod: {{{''.join(levels)}}}")
    if attrs["print_tensor_shape"]:
        lines.append(f"  - shape: [{', '.join(map(str, x.shape))}]")
    if attrs["print_tensor_layout"]:
        # Paddle's text; arrays here have no other layout.
        lines.append("  - layout: NCHW")
    if attrs["print_tensor_type"]:
        lines.append(f"  - dtype: {dtype_of(x.dtype).name}")
    shown = x.size if summarize < 0 else min(summarize, x.size)
    # islice, so that printing 20 elements does not convert a large array.
    values = (str(v) if x.dtype.kind in "biuc" else f"{float(v):.6g}" for v in itertools.islice(x.flat, shown))
    lines.append(f"  - data: [{' '.join(values)}{' ...' if shown < x.size else ''}]")
    return "\n".join(lines) + "\n"


def _say(x: Array, lod: Sequence[Array | None] | None, attrs: dict[str, Any]) -> None:
    forward = attrs["is_forward"]
    # One op prints values, a second one gradients: each is silent in the other's phase.
    if attrs["print_phase"] == ("BACKWARD" if forward else "FORWARD"):
        return
    key = attrs["counter"], forward
    count = _printed.get(key, 0)
    if 0 <= attrs["first_n"] <= count:
        return
    _printed[key] = count + 1
    name = attrs["tensor_name"] + ("" if forward else "@GRAD")
    # An array may be fed where the program declares sequences.
    levels = [level for level in lod or () if level is not None]
    _sink(describe(x, name, attrs["summarize"], attrs, levels))


def _print_ref(x: Array, lod: Sequence[Array | None] | None, out: Array | None, **attrs: Any) -> None:
    _say(x, lod, attrs)
    if out is not None:
        np.copyto(out, x)


def _print_lower(torch: Any, x: Any, lod: Any, **attrs: Any) -> Any:
    seen = x.detach().cpu()
    levels = [level.cpu().numpy() for level in lod or () if level is not None]
    # torch converts every dtype to numpy's but bfloat16.
    _say((seen.float() if seen.dtype == torch.bfloat16 else seen).numpy(), levels, attrs)
    return x


def _print_grad(ctx: GradContext) -> list[OpSpec]:
    incoming = ctx.out_grads.get(ctx.outputs["Out"][0])
    wanted = ctx.in_grads.get(ctx.inputs["In"][0])
    if incoming is None or wanted is None:
        return []
    inputs = {"In": [incoming], f"In{LOD}": ctx.inputs.get(f"In{LOD}", ())}
    # The gradient passes through a print of its own, unchanged.
    return [OpSpec("print", inputs, {"Out": [wanted]}, {**ctx.attrs, "is_forward": False})]


def _phase(value: Any) -> str | None:
    return None if value in ("FORWARD", "BACKWARD", "BOTH") else "'FORWARD', 'BACKWARD' or 'BOTH'"


register(OpDef(
    "print", f"In, In{LOD}*? -> Out", lod="In", traits=(MayLack((f"In{LOD}",)),),
    attrs={
        "first_n": -1, "message": "", "summarize": 20, "print_tensor_name": True, "print_tensor_type": True,
        "print_tensor_shape": True, "print_tensor_layout": True, "print_tensor_lod": True,
        "print_phase": Attr("BOTH", "str", _phase), "is_forward": True, "tensor_name": "",
        # Which Print call made the op: first_n counts per call, over all clones of the program.
        "counter": 0,
    },
    infer=lambda x, lod: x, ref=_print_ref, lower=_print_lower, grad=_print_grad, inplace=(("In", "Out"),), effects=True,
))  # fmt: skip


@export("static.Print", op="print")
@respell(
    "fluid.layers.Print",
    "fluid.layers.control_flow.Print",
    takes="input, first_n=-1, message=None, summarize=20, print_tensor_name=True, print_tensor_type=True, "
    "print_tensor_shape=True, print_tensor_lod=True, print_phase='both', print_tensor_layout=True",
    op="print",
)
def Print(
    input: Variable,
    first_n: int = -1,
    message: str | None = None,
    summarize: int = 20,
    print_tensor_name: bool = True,
    print_tensor_type: bool = True,
    print_tensor_shape: bool = True,
    print_tensor_layout: bool = True,
    print_tensor_lod: bool = True,
    print_phase: str = "both",
) -> Variable:
    """Prints a value whenever the program reaches it, and its gradient; returns the value, which must be used.

    Args:
        input: What to print.
        first_n: Print so many times only; -1 for no limit. Values and gradients are counted apart.
        message: A text to print along.
        summarize: How many elements to print; -1 for all.
        print_tensor_name: Whether to print the name.
        print_tensor_type: Whether to print the dtype.
        print_tensor_shape: Whether to print the shape.
        print_tensor_layout: Whether to print the layout.
        print_tensor_lod: Whether to print the LoD: the offsets of each level.
        print_phase: ``"forward"``, ``"backward"`` or ``"both"``.

    Returns:
        A Variable of the same value.

    Example:
        >>> x = paddle.to_tensor([1.0, 2.0])
        >>> y = static.Print(x, message="here", print_tensor_name=False, print_tensor_layout=False) * 2
        >>> static.Executor().run(fetch_list=[y])[0]
        Variable
          - message: here
          - lod: {}
          - shape: [2]
          - dtype: float32
          - data: [1 2]
        array([2., 4.], dtype=float32)
    """
    check_variable(input, "input", "Print")
    attrs = {
        "first_n": first_n,
        "message": message or "",
        "summarize": summarize,
        "print_tensor_name": print_tensor_name,
        "print_tensor_type": print_tensor_type,
        "print_tensor_shape": print_tensor_shape,
        "print_tensor_layout": print_tensor_layout,
        "print_tensor_lod": print_tensor_lod,
        "print_phase": print_phase.upper() if isinstance(print_phase, str) else print_phase,
        "tensor_name": input.name,
        "counter": next(_numbers),
    }
    out: Variable = emit("print", {"In": input}, attrs)
    out.stop_gradient = input.stop_gradient
    return out


# -------------------------------------------------------------------------------------------------------------- assert
def _assert_infer(cond: Meta, data: list[Meta] | None) -> tuple[()]:
    check_dtype(cond, ("bool",), "Cond")
    check_one_element(cond, "Cond")
    return ()


def _assert_ref(cond: Array, data: list[Array] | None, *, summarize: int) -> None:
    if bool(cond.flat[0]):
        return
    shown = [np.array2string(x, threshold=max(summarize, 1) if summarize >= 0 else sys.maxsize) for x in data or ()]
    raise FeedError(
        "the condition of an Assert was false",
        expected="True",
        received=f"False, with data {', '.join(shown)}" if shown else "False",
        fix="look at the values that the condition was made from",
        op="assert",
    )


register(OpDef(
    "assert", "Cond, Data*? ->", attrs={"summarize": -1}, infer=_assert_infer, ref=_assert_ref, effects=True,
))  # fmt: skip


@no_effect(name="the operator makes no variable")
@export("static.nn.Assert", "fluid.layers.Assert", op="assert")
def Assert(cond: Variable, data: Any = None, summarize: int = 20, name: str | None = None) -> None:
    """Raises an error at run time when ``cond``, a bool Variable with one element, is false.

    Args:
        cond: The condition.
        data: Variables whose values the message shows.
        summarize: How many elements of each to show; -1 for all.
        name: Name of the layer.
    """
    check_variable(cond, "cond", "Assert", ("bool",))
    shown = [check_variable(x, "data", "Assert") for x in data or ()]
    emit("assert", {"Cond": cond, "Data": shown or None}, {"summarize": summarize}, name=name)
