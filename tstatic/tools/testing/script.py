"""Writes a recipe as a script of at most 30 lines in the public API."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Protocol

import numpy as np

from tstatic.errors import ProgramError, TstaticError
from tstatic.fusion.user.registration import registration_text
from tstatic.ir import names
from tstatic.ir.declare import program_guard
from tstatic.ir.export import PUBLIC_API
from tstatic.ir.opdef import op_def
from tstatic.ir.program import Program, Variable
from tstatic.ir.types import DType, dtype_of
from tstatic.static.strategy import BuildStrategy
from tstatic.target import Target
from tstatic.tools.testing.parts import Input, Names, Step

MOST_LINES = 30
WIDTH = 118
WIDEN = ".astype('float32')"
MOST_NUMBERS = 48
"""Arrays of at most this many elements are written out; larger ones are drawn from their seed."""
_BACKEND = ("TSTATIC_CPU_BACKEND", "TRITON_INTERPRET")
"""The environment variables that decide which kernels run on the CPU."""
_PREFIXES = {"tensor.": "paddle.", "nn.functional.": "F."}
_HELPER = (
    "def op(type, inputs, outputs, attrs):  # appends one operator; a number of outputs makes new variables",
    "    block = main.global_block()",
    "    new = {s: [block.create_var() for _ in range(o)] if isinstance(o, int) else o for s, o in outputs.items()}",
    "    block.append_op(type, inputs, new, attrs)",
    "    return [v for row in new.values() for v in row]",
)


class Built(Protocol):
    """The programs of a recipe."""

    @property
    def main(self) -> Program: ...


class Recipe(Protocol):
    """The part of a :class:`~tstatic.testing.recipe.Recipe` that a script needs."""

    @property
    def inputs(self) -> tuple[Input, ...]: ...
    @property
    def steps(self) -> tuple[Step, ...]: ...
    @property
    def fetches(self) -> Names: ...
    @property
    def gradients(self) -> Names: ...
    @property
    def optimizer(self) -> str: ...
    @property
    def runs(self) -> int: ...
    @property
    def clip(self) -> float: ...
    @property
    def kept(self) -> Names: ...
    def build(self) -> Built: ...
    def seed_of(self, target: Variable, number: int, /) -> Input: ...
    def weights_of(self, target: Variable, number: int, /) -> Input: ...


# ---------------------------------------------------------------------------------------------------------------- write
def write(recipe: Recipe, strategies: Any = (), chip: Target | None = None) -> str:
    """Returns the script, which raises ``EquivalenceError`` if the strategies' results differ.

    It runs alone, from a file: kernels that the user registered are in it (their lines come on top of the 30), and so is the
    environment that decides which kernels run on the CPU.

    Args:
        recipe: The program.
        strategies: A BuildStrategy or several; ``()`` prints the values instead of comparing them.
        chip: Launch kernels as on this one.
    """
    metas = _metas(recipe)
    steps = [_step_text(step, recipe, metas) for step in recipe.steps]
    head = [
        *_backend_lines(chip),
        "import numpy as np",
        "import tstatic as paddle",
        "from tstatic import static, testing",
    ]
    if any("F." in s for s in steps):
        head.append("F = paddle.nn.functional")
    tail = _tail(recipe, strategies, chip)
    body = [_input_text(i) for i in recipe.inputs]
    seeds = _seeds(recipe, metas)
    body += [_input_text(i) for i in seeds]
    body += [line for i in (*recipe.inputs, *seeds) if (line := _stop_text(i, recipe))]
    body += [*steps, *(f"{n}.persistable = True" for n in recipe.kept), *_gradient_lines(recipe, metas)]
    if recipe.optimizer:
        magnitudes = [f"paddle.mean({n}{WIDEN * metas[n][1].is_low} * {n}_weights)" for n in _trained(recipe, metas)]
        body.append(f"loss = {' + '.join(magnitudes)}")
        clip = f", grad_clip=paddle.nn.ClipGradByGlobalNorm({recipe.clip})" if recipe.clip else ""
        body.append(f"paddle.optimizer.{recipe.optimizer}(learning_rate=0.01{clip}).minimize(loss)")
    feeds = [f"    {i.name!r}: {_array_text(i)}," for i in (*recipe.inputs, *seeds) if not i.parameter]
    helper = list(_HELPER) if any("op(" in _code(s) for s in steps) else []
    start = ["main, startup = static.Program(), static.Program()"]
    room = MOST_LINES - len(head) - len(helper) - len(start) - 1 - len(tail)
    feed_lines = ["feeds = {", *feeds, "}"] if len(feeds) + 2 + len(body) <= room else None
    if feed_lines is None:
        feed_lines = [f"feeds = {{{' '.join(f.strip() for f in feeds)}}}"]
    packed = _pack(body, room - len(feed_lines))
    guard = ["with static.program_guard(main, startup):", *(f"    {line}" for line in packed)]
    return "\n".join([*head, *_kernel_lines(recipe), *start, *helper, *guard, *feed_lines, *tail]) + "\n"


def _backend_lines(chip: Target | None) -> list[str]:
    """Returns a statement that makes the script run the kernels which this process runs."""
    if chip is not None:
        # Before a kernel of the user's own imports Triton.
        return ["import os; os.environ['TRITON_INTERPRET'] = '1'"]
    found = {name: os.environ[name] for name in _BACKEND if os.environ.get(name)}
    if not found.get("TSTATIC_CPU_BACKEND"):
        return []
    return [f"import os; os.environ.update({', '.join(f'{n}={v!r}' for n, v in found.items())})"]


def _kernel_lines(recipe: Recipe) -> list[str]:
    """Returns the registrations of the users' kernels among the ops, or why a text for one cannot be had."""
    lines: list[str] = []
    types = dict.fromkeys(op_def(step.type).of or step.type for step in recipe.steps)
    for kernel in [op_def(type).kernel for type in types]:
        if kernel is None:
            continue
        try:
            lines += ["", *registration_text(kernel).splitlines(), ""]
        except ProgramError as error:
            lines.append(f"# Register the kernel {kernel.op!r} here: {' '.join(error.what.split())}")
    return lines


def _code(text: str) -> str:
    return text.partition("= ")[2]


def _pack(lines: Sequence[str], room: int) -> list[str]:
    """Joins statements with semicolons until there are at most ``room`` lines; lines exceed the width only if they must."""
    room = max(room, 1)
    if len(lines) <= room:
        return list(lines)
    for width in (WIDTH - 4, 4 * WIDTH):
        done: list[str] = []
        for line in lines:
            if done and len(done[-1]) + len(line) + 2 <= width:
                done[-1] += "; " + line
            else:
                done.append(line)
        if len(done) <= room:
            return done
    each = -(-len(lines) // room)
    return ["; ".join(lines[i : i + each]) for i in range(0, len(lines), each)]


def _metas(recipe: Recipe) -> dict[str, tuple[tuple[int, ...], DType]]:
    main = recipe.build().main
    return {n: (v.shape, v.dtype) for n, v in main.global_block().vars.items()}


def _trained(recipe: Recipe, metas: Mapping[str, tuple[tuple[int, ...], DType]]) -> list[str]:
    """Returns the fetches that the loss sums."""
    return [n for n in recipe.fetches if metas[n][1].is_float and 0 not in metas[n][0]]


def _seeds(recipe: Recipe, metas: Mapping[str, tuple[tuple[int, ...], DType]]) -> list[Input]:
    """Returns the inputs that feed gradients of fetched values, and their weights in the loss."""
    block = recipe.build().main.global_block()
    floats = [n for n in recipe.fetches if metas[n][1].is_float]
    found = [recipe.seed_of(block.var(n), k) for k, n in enumerate(floats)] if recipe.gradients else []
    if recipe.optimizer:
        trained = set(_trained(recipe, metas))
        found += [recipe.weights_of(block.var(n), k) for k, n in enumerate(floats) if n in trained]
    return found


# --------------------------------------------------------------------------------------------------------------- inputs
def _input_text(one: Input) -> str:
    if one.parameter:
        start = f"paddle.nn.initializer.Assign({_array_text(one)})"
        return f"{one.name} = static.create_parameter({list(one.shape)}, {one.dtype!r}, {one.name!r}, default_initializer={start})"
    return f"{one.name} = static.data({one.name!r}, {list(one.shape)}, {one.dtype!r})"


def _stop_text(one: Input, recipe: Recipe) -> str:
    return f"{one.name}.stop_gradient = False" if one.name in recipe.gradients and not one.parameter else ""


def _array_text(one: Input) -> str:
    size = int(np.prod(one.shape))
    if one.given is None and size > MOST_NUMBERS:
        v = one.values
        extra = f", avoid={v.avoid!r}" if v.avoid else ""
        extra += ", rows=True" if v.rows else ""
        extra += (", nan=True" if one.nan else "") + (", special=True" if one.special else "")
        return f"testing.sample({one.shape!r}, {one.dtype!r}, {v.low!r}, {float(v.high)!r}, {one.seed}{extra})"
    array = one.array()
    if not size:
        return f"np.zeros({one.shape!r}, {one.dtype!r})"
    plain = array.astype(np.float64) if dtype_of(array.dtype).is_float else array
    if size > 2 and (array == array.flat[0]).all():
        return f"np.full({one.shape!r}, {_value_text(_numbers(plain.flat[0].item(), array.dtype))}, {one.dtype!r})"
    text = repr(_numbers(plain.tolist(), array.dtype)).replace("nan", "np.nan").replace("inf", "np.inf")
    # numpy knows the name "bfloat16" once tstatic is imported.
    return f"np.array({text}, {one.dtype!r})"


# ---------------------------------------------------------------------------------------------------------------- steps
def _numbers(value: Any, dtype: Any) -> Any:
    """Returns floats with the fewest digits that round to the same element."""
    if isinstance(value, list):
        return [_numbers(v, dtype) for v in value]
    return float(str(np.array(value, dtype)[()])) if isinstance(value, float) else value


def _step_text(step: Step, recipe: Recipe, metas: Mapping[str, tuple[tuple[int, ...], DType]]) -> str:
    """Returns ``v1 = paddle.tanh(v0)`` if a public function appends exactly this op, else a call of the helper ``op``."""
    outputs_of_definition = [n for slot, row in step.outputs for n in row]
    if not step.role:
        kinds = tuple((slot, tuple((metas[n][0], metas[n][1].name) for n in row)) for slot, row in step.inputs)
        found = _call(step.type, kinds, _key(step.attrs), tuple((s, len(r)) for s, r in step.outputs))
        if found is not None:
            name, arguments = found
            visible = [n for n in outputs_of_definition if not _hidden(step, n)]
            reads = [n for _, row in step.inputs for n in row]
            return f"{', '.join(visible)} = {name}({', '.join([*reads, *arguments])})"
    known = {i.name for i in recipe.inputs}
    ins = "{" + ", ".join(f"{s!r}: [{', '.join(row)}]" for s, row in step.inputs) + "}"
    outs = _outs_text(step, known)
    left = ", ".join(outputs_of_definition)
    return f"{left}{',' if len(outputs_of_definition) == 1 else ''} = op({step.type!r}, {ins}, {outs}, {_attrs_text(step)})"


def _outs_text(step: Step, known: set[str]) -> str:
    parts = []
    for slot, row in step.outputs:
        count = f"[{', '.join(row)}]" if set(row) & known else str(len(row))
        parts.append(f"{slot!r}: {count}")
    return "{" + ", ".join(parts) + "}"


def _attrs_text(step: Step) -> str:
    return "{" + ", ".join(f"{n!r}: {_value_text(v)}" for n, v in step.all_attrs().items()) + "}"


def _hidden(step: Step, name: str) -> bool:
    slots = op_def(step.type).output_slots
    return any(slots[s].intermediate for s, row in step.outputs if name in row)


def _key(attrs: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    return tuple((n, tuple(v) if isinstance(v, list) else v) for n, v in attrs)


@cache
def _call(
    type: str, kinds: tuple[Any, ...], attrs: tuple[tuple[str, Any], ...], outputs: tuple[tuple[str, int], ...]
) -> tuple[str, tuple[str, ...]] | None:
    """Returns a public function that appends exactly this op, and its further arguments as text; tries each candidate."""
    for spelling, entry in PUBLIC_API.items():
        prefix = next((p for p in _PREFIXES if spelling.startswith(p)), "")
        if entry.op != type or not prefix or not inspect.isfunction(entry.function) or "." in spelling[len(prefix) :]:
            continue
        own = list(inspect.signature(entry.function).parameters)
        by_name = {n: v for n, v in attrs if n in own}
        texts = tuple(f"{n}={_value_text(v)}" for n, v in attrs if n in own)
        values = [v for _, v in attrs]
        for args, keywords, shown in (
            ([], by_name, texts),
            (values, {}, tuple(map(_value_text, values))),
            (values[-1:], {}, tuple(map(_value_text, values[-1:]))),
            ([], {}, ()),
        ):
            if _does(entry.function, type, kinds, attrs, outputs, args, keywords):
                return _PREFIXES[prefix] + spelling[len(prefix) :], shown
    return None


def _value_text(value: Any) -> str:
    if isinstance(value, DType):
        return repr(value.name)
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_value_text, value))}]"
    if isinstance(value, float) and not np.isfinite(value):
        return f"float('{value}')"
    return repr(value)


def _does(
    function: Any, type: str, kinds: Any, attrs: Any, outputs: Any, args: Sequence[Any], keywords: Mapping[str, Any]
) -> bool:
    main = Program()
    with program_guard(main, Program()), names.guard():
        block = main.global_block()
        rows = [
            (slot, [Variable(block, f"{slot}{k}", shape, dtype) for k, (shape, dtype) in enumerate(row)])
            for slot, row in kinds
        ]
        for _, row in rows:
            block.vars.update((v.name, v) for v in row)
        try:
            ready = [v for _, row in rows for v in row]
            result = function(*ready, *(list(a) if isinstance(a, tuple) else a for a in args), **keywords)
            wanted = Program()
            with program_guard(wanted, Program()):
                other = wanted.global_block()
                for v in ready:
                    other.create_var(name=v.name, shape=v.shape, dtype=v.dtype)
                outs = {slot: [other.create_var() for _ in range(count)] for slot, count in outputs}
                made = other.append_op(type, {slot: [v.name for v in row] for slot, row in rows}, outs, dict(attrs))
        except (TstaticError, TypeError, ValueError, AttributeError, AssertionError, IndexError):
            return False
        if len(block.ops) != 1:
            return False
        op = block.ops[0]
        slots = op_def(type).output_slots
        visible = sum(count for slot, count in outputs if not slots[slot].intermediate)
        # The script assigns a single result to one name, so a function that returns a list of one does not fit.
        several = isinstance(result, list | tuple)
        given = 0 if several and visible == 1 else len(result) if several else 1
        same = dict(op.attrs) == made.attrs
        # An in-place function is a different op, even if its type is the same.
        separate = set(op.output_arg_names).isdisjoint(op.input_arg_names)
        return op.type == type and same and op.inputs == made.inputs and given == visible and separate


# ----------------------------------------------------------------------------------------------------------------- tail
def _gradient_lines(recipe: Recipe, metas: Mapping[str, tuple[tuple[int, ...], DType]]) -> list[str]:
    targets = [n for n in recipe.fetches if metas[n][1].is_float] if recipe.gradients else []
    if not targets:
        return []
    seeds = ", ".join(f"{n}_bar" for n in targets)
    return [f"grads = static.gradients([{', '.join(targets)}], [{', '.join(recipe.gradients)}], [{seeds}])"]


def _tail(recipe: Recipe, strategies: Any, chip: Target | None) -> list[str]:
    fetches = ", ".join(recipe.fetches)
    fetch = f"[{fetches}]"
    if recipe.gradients:
        fetch = f"[{fetches}, *(g for g in grads if g is not None)]"
    if recipe.optimizer:
        fetch = fetch[:-1] + ", loss]"
    chosen = [strategies] if isinstance(strategies, BuildStrategy) else list(strategies)
    if not chosen:
        return [
            "exe = static.Executor(paddle.CPUPlace())",
            "exe.run(startup)",
            f"print(*exe.run(main, feed=feeds, fetch_list={fetch}), sep='\\n')",
        ]
    lines = []
    for k, strategy in enumerate(chosen):
        name = "strategy" if len(chosen) == 1 else f"strategy{k}"
        lines.append(f"{name} = static.BuildStrategy()")
        settings = strategy.changed()
        if len(settings) <= 2:
            lines += [f"{name}.{n} = {_setting(v)}" for n, v in settings.items()]
        else:
            pairs = ", ".join(f"{n!r}: {_setting(v)}" for n, v in settings.items())
            lines += [f"for name, value in {{{pairs}}}.items():", f"    setattr({name}, name, value)"]
    listed = "strategy" if len(chosen) == 1 else "[" + ", ".join(f"strategy{k}" for k in range(len(chosen))) + "]"
    steps = f", steps={recipe.runs}" if recipe.runs > 1 else ""
    where = f", target={chip.architecture!r}" if chip is not None else ""
    lines.append(
        f"testing.assert_equivalent(main, {listed}, feeds=feeds, fetch_list={fetch}, startup=startup{steps}{where}, shrink=False)"
    )
    return lines


def _setting(value: Any) -> str:
    if isinstance(value, bool | int | str | set | list | frozenset | type(None)):
        return repr(value)
    return f"static.BuildStrategy.{type(value).__name__}.{value.name}"


__all__ = ["MOST_LINES", "write"]
