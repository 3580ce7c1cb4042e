"""A sample of an op in its own domain, and what depends on sizes: the expressions that it states for them, and its kernel."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tstatic import flags, static
from tstatic.errors import TstaticError
from tstatic.fusion import FUSIONS
from tstatic.fusion.codegen.kernel import Kernel, Launch
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported
from tstatic.fusion.engine import Fusion
from tstatic.fusion.engine.pattern import Pattern
from tstatic.fusion.patterns.single_op import single_kernel
from tstatic.ir.attrs import Slot
from tstatic.ir.evaluate import infer_outputs
from tstatic.ir.frozen import Entry, FrozenOp
from tstatic.ir.opdef import Case, OpDef, ValueRange
from tstatic.ir.types import Meta, dtype_of
from tstatic.tools.benchlib.fusions import example_rows

SHAPE = (8, 16)
"""Of the inputs of an op that takes any: more than one row, and a size that broadcasting would change."""


@dataclass(frozen=True)
class Sample:
    """Sizes of an op's inputs.

    Attributes:
        ins: Metadata per input slot: of a value, of a list of values, or ``None``.
        outs: The same of its results.
        attrs: Its complete attributes.
    """

    ins: Sequence[Any]
    outs: Sequence[Any]
    attrs: Mapping[str, Any]

    def label(self, definition: OpDef) -> str:
        """Returns the inputs as text: ``X float32[8, 16], Y float32[16]``."""
        shown = [
            f"{slot.name} {m.dtype.name}{list(m.shape)}"
            for slot, entry in zip(definition.inputs, self.ins, strict=True)
            for m in (entry if isinstance(entry, list) else [entry])
            if m is not None
        ]
        return ", ".join(shown) or "no inputs"


def samples(definition: OpDef) -> Iterator[Sample]:
    """Yields samples of an op, of the types that its domain names, in their order; none without a domain."""
    domain = definition.domain
    if domain is None:
        return
    cases = domain.cases
    if domain.family != "cases":
        count = 1 if domain.family == "unary" else 2
        cases = tuple(Case((SHAPE,) * count, attrs) for attrs in domain.attrs)
    names = domain.floats or domain.others or ("float32",)
    for kind, case in itertools.product(map(dtype_of, names), cases):
        rest = [None] * (len(definition.inputs) - len(case.shapes))
        ins = [
            _meta(definition, s, shape, kind) for s, shape in zip(definition.inputs, (*case.shapes, *rest), strict=True)
        ]
        attrs = definition.complete(case.attrs)
        try:
            yield Sample(ins, infer_outputs(definition, ins, attrs), attrs)
        except TstaticError:
            continue  # a case that tests use to see the op refuse it


def _meta(definition: OpDef, slot: Slot, shape: Any, kind: Any) -> Any:
    assert definition.domain is not None
    values = definition.domain.values.get(slot.name, ValueRange())
    dtype = {"float": kind, "complex": kind.complex}.get(values.dtype) or dtype_of(values.dtype)
    if shape is None:
        return None
    return [Meta(tuple(s), dtype) for s in shape] if slot.many else Meta(tuple(shape), dtype)


def stated_texts(definition: OpDef) -> tuple[str, Mapping[str, str], str] | None:
    """Returns what an op states along rows, on channels or over drawn numbers: its kind, the texts, and for which sample."""
    for kind, function in (
        ("along rows", definition.rows),
        ("on channels", definition.channels),
        ("over the numbers that it draws", definition.drawn),
    ):
        for sample in samples(definition) if function is not None else ():
            assert function is not None
            found = function(*sample.ins, **definition.pick(function, sample.attrs))
            if found is not None:
                return kind, found.texts, sample.label(definition)
    return None


# --------------------------------------------------------------------------------------------------------------- kernels
@dataclass(frozen=True)
class SampleKernel:
    """A kernel, and for what it was made."""

    kernel: Kernel
    made_for: str


def kernel_of_sample(definition: OpDef) -> SampleKernel | str:
    """Returns the kernel of an op alone for the first sample that has one; else that of a fusion with it; else why it has none."""
    reason = ""
    with flags.using_numerics("strict"):
        for sample in samples(definition):
            op, metas = _frozen(definition, sample)
            try:
                kernel, _ = single_kernel(op, metas)
            except CodegenUnsupported as error:
                reason = reason or error.reason
                continue
            if not any(
                isinstance(one, Launch) for _, ways in kernel.everywhere for way in ways for one in way.launches
            ):
                reason = reason or f"the device's library makes the product of {sample.label(definition)}"
                continue
            return SampleKernel(kernel, f"the operator alone (FLAGS_numerics=strict), {sample.label(definition)}")
    for fusion in fusions_naming(definition.type):
        fused = _fused(fusion, definition.type)
        if fused is not None:
            return SampleKernel(fused, f"an example of the fusion '{fusion.name}'; alone: {reason or 'none'}")
    return reason


def fusions_naming(type: str) -> list[Fusion]:
    """Returns the fusions of whose patterns an op type, or its backward op, is part."""
    types = {type, f"{type}_grad"}
    return [
        fusion for fusion in FUSIONS
        if any(types & set(op.types) for function in fusion.finder.patterns for op in Pattern(function).ops)
    ]  # fmt: skip


def _frozen(definition: OpDef, sample: Sample) -> tuple[FrozenOp, dict[str, Meta]]:
    metas: dict[str, Meta] = {}

    def entries(slots: Sequence[Slot], values: Sequence[Any]) -> tuple[Entry, ...]:
        made: list[Entry] = []
        for slot, value in zip(slots, values, strict=True):
            if isinstance(value, list | tuple):
                names = tuple(f"{slot.name}.{i}" for i in range(len(value)))
                metas.update(zip(names, value, strict=True))
                made.append(names)
            else:
                made.append(None if value is None else slot.name)
                metas.update({} if value is None else {slot.name: value})
        return tuple(made)

    return FrozenOp(
        definition, entries(definition.inputs, sample.ins), entries(definition.outputs, sample.outs), sample.attrs
    ), metas


def _fused(fusion: Fusion, type: str) -> Kernel | None:
    """Returns the kernel of the example of a fusion in which an op of a type stands, if there is one."""
    for row in example_rows(fusion, ("float32",), ("fwd",), prefer=type):
        if all(step.type != type for step in row.recipe.steps):
            continue
        main, _, feeds, fetches = row.recipe.build()
        strategy = static.BuildStrategy()
        setattr(strategy, fusion.switch, True)
        shapes = {name: array.shape for name, array in feeds.items()}
        found = static.CompiledProgram(main, build_strategy=strategy).explain(fetches, shapes)
        return next((one.kernel for one in found.applied if one.kernel is not None), None)
    return None


__all__ = ["Sample", "SampleKernel", "fusions_naming", "kernel_of_sample", "samples", "stated_texts"]
