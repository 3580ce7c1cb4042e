"""What a row of the benchmark is: a small program of ops with the sizes and values of its inputs; made from op definitions."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tstatic.errors import TstaticError
from tstatic.ir.evaluate import evaluate, infer_outputs
from tstatic.ir.opdef import LOD, Domain, OpDef, ValueRange, op_def
from tstatic.ir.program import Program
from tstatic.ir.rng import RngKey
from tstatic.ir.types import Meta, dtype_of
from tstatic.tools.testing.op_samples import fill
from tstatic.tools.testing.parts import Array, Input, Step
from tstatic.tools.testing.recipe import Recipe

DIRECTIONS = ("fwd", "bwd", "fwd_bwd")
FORWARD, BACKWARD, BOTH = DIRECTIONS
ELEMENTS = 1 << 18
"""Elements that the first input of an op without stated sizes is scaled up to, by its first axis."""
FLAT = (512, 512)
"""Shape of the inputs of elementwise ops without stated sizes."""

Values = Mapping[str, Array]
Sizes = tuple[tuple[str, int], ...]
"""Names of block sizes, as kernels call them, each with its value."""


@dataclass(frozen=True)
class OwnProgram:
    """A program of the user's.

    Attributes:
        program: The program; it has a seed.
        shapes: Input -> shape of what it is fed.
        fetches: Names that a step fetches.
        state: Persistable variables and their values before the first step.
        trains: Whether a step writes some of them.
    """

    program: Program
    shapes: Mapping[str, Sequence[int]]
    fetches: tuple[str, ...]
    state: Values
    trains: bool


@dataclass(frozen=True)
class Row:
    """What is measured in one row.

    Attributes:
        subject: What ``--op`` selects: an op type, or the name of a program.
        label: Sizes and attributes, as people read them.
        dtype: The float type.
        direction: ``fwd``, ``bwd`` or ``fwd_bwd``; a program with an optimizer has one whole step, ``fwd_bwd``.
        recipe: The program; its gradients are those that the direction asks for.
        draw: Seed -> input name -> values; inputs that it lacks have those of the recipe.
        fusion: The fusion that the program is an example of.
        switch: The property of the BuildStrategy that the peer ``tstatic`` turns on; empty turns every one on.
        blocks: Sizes of blocks that kernels take in place of those that they would choose.
        own: The user's program that is measured, in place of ``recipe``, which is empty then.
    """

    subject: str
    label: str
    dtype: str
    direction: str
    recipe: Recipe
    draw: Callable[[int], Values] = lambda seed: {}
    fusion: str = ""
    switch: str = ""
    blocks: Sizes = ()
    own: OwnProgram | None = None

    @property
    def name(self) -> str:
        """The row's name, by which rows of two results are matched; with other blocks it is another row."""
        blocks = (f"{name}={size}" for name, size in sorted(self.blocks))
        return " ".join(filter(None, (self.subject, self.label, self.dtype, self.direction, *blocks)))


@dataclass(frozen=True)
class OpSizes:
    """The sizes of an op: a shape per input slot (``None`` for an absent one, a list for a ``*`` slot), and attributes."""

    shapes: tuple[Any, ...]
    attrs: Mapping[str, Any]


def refusal(definition: OpDef) -> str:
    """Returns why an op has no row of its own; empty if it has one."""
    if definition.of:
        return "it is a backward op: a direction of its forward op"
    if definition.domain is None:
        return "it owns blocks or calls Python: it is measured in programs"
    if definition.effects:
        return "it prints, calls Python, or raises depending on values"
    if definition.dynamic:
        return "the size of its result depends on values"
    if definition.objects or definition.collective:
        return "it works on Python objects or meets other replicas"
    if any(spec.kind == "function" for spec in definition.attrs.values()):
        return "its gradient is a function that only its builder knows"
    if any(slot.name.endswith(LOD) for slot in (*definition.inputs, *definition.outputs)):
        return "numbers that are drawn do not divide rows into sequences"
    return ""


def rows_of_op(definition: OpDef, sizes: OpSizes, dtype: str, directions: Sequence[str]) -> Iterator[Row]:
    """Yields a row per direction that the op has; none for one without a gradient but ``fwd``.

    Raises:
        TstaticError: If the op refuses the sizes.
    """
    shapes = (*sizes.shapes, *[None] * (len(definition.inputs) - len(sizes.shapes)))
    named = _names(definition, shapes)
    metas = [_meta(definition, i, shape, dtype) for i, shape in enumerate(shapes)]
    attrs = definition.complete(sizes.attrs)
    outs = infer_outputs(definition, metas, attrs)
    inputs: list[Input] = []
    for names, meta in zip(named, metas, strict=True):
        given = meta if isinstance(meta, list) else [meta] if meta is not None else []
        inputs += [Input(n, m.shape, m.dtype.name) for n, m in zip(names, given, strict=True)]
    written = {
        slot.name: tuple(f"{slot.name}.{i}" for i in range(len(meta) if isinstance(meta, list | tuple) else 1))
        for slot, meta in zip(definition.outputs, outs, strict=True)
        if meta is not None
    }
    read = {slot.name: names for slot, names in zip(definition.inputs, named, strict=True) if names}
    step = Step.of(definition.type, read, written, sizes.attrs)
    results = tuple(n for slot in definition.outputs if not slot.intermediate for n in written.get(slot.name, ()))
    floats = [_is_float(m) for m in outs if m is not None]
    recipe = Recipe(tuple(inputs), (step,), results or tuple(n for names in written.values() for n in names))
    wanted = tuple(one.name for one in inputs if dtype_of(one.dtype).is_float and 0 not in one.shape)
    differentiable = definition.grad is not None and not definition.update and any(floats) and bool(wanted)
    row = Row(
        definition.type, label(definition, shapes, sizes.attrs), dtype, FORWARD, recipe,
        _Drawn(definition, shapes, sizes.attrs, dtype, named),
    )  # fmt: skip
    for direction in directions:
        if direction == FORWARD:
            yield row
        elif differentiable:
            yield replace(row, direction=direction, recipe=replace(recipe, gradients=wanted))


@dataclass(frozen=True)
class _Drawn:
    """Draws the inputs of an op from its domain."""

    definition: OpDef
    shapes: tuple[Any, ...]
    attrs: Mapping[str, Any]
    dtype: str
    names: Sequence[Sequence[str]]

    def __call__(self, seed: int) -> Values:
        domain = self.definition.domain or Domain()
        rng = np.random.default_rng([seed, zlib.crc32(self.definition.type.encode())])
        ins = fill(self.definition, domain, self.shapes, self.attrs, self.dtype, rng)
        found: dict[str, Array] = {}
        for names, value in zip(self.names, ins, strict=True):
            found.update(
                zip(names, [] if value is None else value if isinstance(value, list) else [value], strict=True)
            )
        return found


def _names(definition: OpDef, shapes: Sequence[Any]) -> list[tuple[str, ...]]:
    """Returns the variables of each input slot."""
    return [
        () if shape is None else tuple(f"{slot.name}.{i}" for i in range(len(shape))) if slot.many else (slot.name,)
        for slot, shape in zip(definition.inputs, shapes, strict=True)
    ]


def _meta(definition: OpDef, number: int, shape: Any, dtype: str) -> Any:
    if shape is None:
        return None
    slot = definition.inputs[number]
    values = (definition.domain or Domain()).values.get(slot.name, ValueRange())
    kind = {"float": dtype_of(dtype), "complex": dtype_of(dtype).complex}.get(values.dtype) or dtype_of(values.dtype)
    return [Meta(tuple(s), kind) for s in shape] if slot.many else Meta(tuple(shape), kind)


def _is_float(meta: Any) -> bool:
    return any(_is_float(m) for m in meta) if isinstance(meta, list | tuple) else bool(meta.dtype.is_float)


def label(definition: OpDef, shapes: Sequence[Any], attrs: Mapping[str, Any]) -> str:
    """Returns sizes as ``[64, 256] x [256]``, and behind them the attributes."""
    texts = [str([list(one) for one in s]) if slot.many else str(list(s))
             for slot, s in zip(definition.inputs, shapes, strict=True) if s is not None]  # fmt: skip
    return " ".join([" x ".join(texts), *(f"{n}={_plain(v)}" for n, v in attrs.items())]).strip()


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


# --------------------------------------------------------------------------------------- ops for which nobody stated sizes
def sizes_from_domain(definition: OpDef, dtype: str) -> OpSizes:
    """Returns sizes for an op from its domain: the first case, whose first axis is made longer as far as the op allows it.

    Inputs that have the length of the first input's first axis are taken to share it, and grow with it; if the op's shape rule
    refuses that, the first input alone; else the case stays as it is.

    Raises:
        TstaticError: If the domain names no shapes.
    """
    domain = definition.domain or Domain()
    if domain.family != "cases":
        given = [FLAT, FLAT][: 1 if domain.family == "unary" else 2]
        rest = [None if slot.optional else FLAT for slot in definition.inputs[len(given) :]]
        return OpSizes((*given, *rest)[: len(definition.inputs)], domain.attrs[0] if domain.attrs else {})
    case = domain.cases[0]
    shapes = (*case.shapes, *[None] * (len(definition.inputs) - len(case.shapes)))
    # Tried on twice the length first: shape rules do not see everything that a reference asks for.
    for twice, scaled in zip(_scaled(shapes, 2), _scaled(shapes), strict=True):
        if _accepts(definition, scaled, case.attrs, dtype) and _runs(definition, twice, case.attrs, dtype):
            return OpSizes(scaled, case.attrs)
    return OpSizes(shapes, case.attrs)


def _runs(definition: OpDef, shapes: tuple[Any, ...], attrs: Mapping[str, Any], dtype: str) -> bool:
    try:
        ins = fill(definition, definition.domain or Domain(), shapes, attrs, dtype, np.random.default_rng(0))
        reserved: dict[str, Any] = {"rng": RngKey(1)} if definition.random else {}
        evaluate(definition, ins, attrs, **reserved)
    except (TstaticError, ValueError, IndexError, ArithmeticError):
        return False
    return True


def _scaled(shapes: tuple[Any, ...], factor: int = 0) -> Iterator[tuple[Any, ...]]:
    every = [tuple(s) for one in shapes if one is not None for s in _as_list(one)]
    first = next((s for s in every if s and math.prod(s)), None)
    if first is None or math.prod(first) >= ELEMENTS:
        return
    length = first[0] * (factor or ELEMENTS // math.prod(first))

    def longer(shape: Any, only: tuple[int, ...] | None = None) -> Any:
        if shape is None:
            return None
        if shape and isinstance(shape[0], list | tuple):
            return [longer(s, only) for s in shape]
        grows = bool(shape) and shape[0] == first[0] and (only is None or tuple(shape) == only)
        return (length, *shape[1:]) if grows else tuple(shape)

    yield tuple(longer(one) for one in shapes)
    yield tuple(longer(one, first) for one in shapes)


def _as_list(shape: Any) -> Sequence[Any]:
    return shape if shape and isinstance(shape[0], list | tuple) else [shape]


def _accepts(definition: OpDef, shapes: tuple[Any, ...], attrs: Mapping[str, Any], dtype: str) -> bool:
    try:
        metas = [_meta(definition, i, shape, dtype) for i, shape in enumerate(shapes)]
        outs = infer_outputs(definition, metas, definition.complete(attrs))
    except (TstaticError, ValueError, IndexError, ZeroDivisionError):
        return False
    # A product of two long axes may be far too large.
    sizes = [m for one in outs if one is not None for m in (one if isinstance(one, list | tuple) else [one])]
    return all(m.known and math.prod(m.shape) <= 8 * ELEMENTS for m in sizes)


def rows_from_domain(type: str, dtypes: Sequence[str], directions: Sequence[str]) -> Iterator[Row]:
    """Yields the rows of an op for which nobody stated sizes; those of types that its domain does not have are left out.

    Raises:
        TstaticError: If the op refuses them.
    """
    definition = op_def(type)
    domain = definition.domain or Domain()
    for dtype in dtypes:
        if dtype in domain.floats:
            yield from rows_of_op(definition, sizes_from_domain(definition, dtype), dtype, directions)
