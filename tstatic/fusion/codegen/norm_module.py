"""What the kernels of a batch norm and of its gradient share: the data, the ops per element, the parts of the module."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from tstatic.fusion.codegen.emit import header, helpers, module, named
from tstatic.fusion.codegen.kernel import Kernel, KernelArgument, KernelLocal, Launches
from tstatic.fusion.codegen.lines import LANGUAGE, Lines, Typed, number
from tstatic.fusion.codegen.loop_nest import CodegenUnsupported, LoopNest, build
from tstatic.fusion.codegen.norm_reference import write_norm
from tstatic.fusion.codegen.per_channel import Extent, Function, extent_of, uses_running_statistics
from tstatic.fusion.codegen.script import standalone_main
from tstatic.ir.frozen import Entry, FrozenOp
from tstatic.ir.types import DType, Meta
from tstatic.target import Target

TILE = ("ROWS", "COLUMNS")
MERGE = ("STRIPS", "COLUMNS")


def one(entry: Entry) -> str:
    """Returns the value of a slot that must hold one."""
    assert isinstance(entry, str), "a slot that must hold one value"
    return entry


def snake(slot: str) -> str:
    """Returns a slot as a parameter's name."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", slot.replace("@GRAD", "Grad")).lower()


def normalised(centered: str, slope: str, biased: bool) -> str:
    """Returns the text of a normalised element.

    The mean is taken off first: folded into the bias, a large one would cancel there. Product and sum are one operation in
    words, not by the compiler's choice: the backward pass computes the element again and must find the same bits.
    """
    return f"tl.fma({centered}, {slope}[None, :], base[None, :])" if biased else f"{centered} * {slope}[None, :]"


class NormModule:
    """What both directions share: the data's extent, the ops per element, and the parts of the module."""

    def __init__(
        self,
        norm: FrozenOp,
        others: Sequence[FrozenOp],
        body: Sequence[FrozenOp],
        metas: Mapping[str, Meta],
        needed: Sequence[str],
    ) -> None:
        self.norm = norm
        self.body = body
        self.told = body
        self.metas = metas
        self.needed = set(needed)
        self.x = one(norm.input("X"))
        self.dtype: DType = metas[self.x].dtype
        self.compute: DType = self.dtype.compute
        self.real = LANGUAGE[self.compute.name]
        self.given = uses_running_statistics(norm.attrs)
        self.extent: Extent = extent_of(metas[self.x], norm.attrs["data_layout"])
        self.used: set[str] = set()
        self.made = [v for op in others for v in op.writes()]
        self.group: LoopNest = build(others, metas, self.made)
        for operand in (*self.group.inputs, *self.group.outputs):
            if metas[operand.value].shape != metas[self.x].shape:
                raise CodegenUnsupported(
                    "SHAPE_MISMATCH", f"'{operand.value}' has another shape than the input of {norm.type}", norm
                )
        self.functions: list[tuple[Function, tuple[str, ...], tuple[str, ...]]] = []

    def function(self, name: str, integers: tuple[str, ...], constants: tuple[str, ...]) -> Function:
        """Adds a function to the module and returns it."""
        made = Function(name, self.compute, self.used)
        self.functions.append((made, integers, constants))
        return made

    def number(self, value: float) -> str:
        return number(float(value), self.compute)

    def rounds(self, name: str) -> Typed:
        """Returns the name of a normalised element, which memory would hold in the data's type."""
        return Typed(name, self.compute, self.dtype if self.dtype.is_low else None)

    def channel(self, f: Function, slot: str) -> str | None:
        """Returns the text that loads a parameter or statistic of the norm; nothing where it is absent."""
        value = self.norm.input(slot)
        return None if value is None else f.read(snake(slot), one(value), self.metas[one(value)].dtype)

    def wanted(self, slot: str) -> str | None:
        """Returns the value in an output slot of the norm, if it is needed."""
        value = self.norm.output(slot)
        return value if isinstance(value, str) and value in self.needed else None

    def put(self, f: Function, slot: str, text: str) -> None:
        """Stores a result per channel, where it is needed."""
        value = self.wanted(slot)
        if value is not None:
            f.add(f.write(snake(slot), value, self.metas[value].dtype, text))

    def elements(self, f: Function, known: Mapping[str, Typed]) -> Lines:
        """Returns the ops per element, over values that are there already (the norm's) and others, which are loaded."""
        loaded: dict[int, Typed] = {}
        lines: list[str] = []
        for i, operand in enumerate(self.group.inputs):
            if operand.value in known:
                loaded[i] = known[operand.value]
                continue
            lines.append(f"a{i} = {f.read(f'x{i}', operand.value, operand.dtype, 'offsets', 'mask')}")
            loaded[i] = Typed(f"a{i}", self.compute)
        written = Lines(self.group, loaded)
        written.lines.extend(lines)
        written.write()
        self.used.update(written.used)
        return written

    def stores(self, f: Function, done: Mapping[str, Typed]) -> list[str]:
        """Returns stores of the needed values among some."""
        return [
            f.write(f"y{i}", value, self.metas[value].dtype, typed.text, "offsets", "mask")
            for i, (value, typed) in enumerate(done.items())
            if value in self.needed
        ]

    def partial(self, name: str) -> KernelLocal:
        return KernelLocal(f"partial:{name}")

    def finish(self, template: str, plan: Callable[[Target], Launches]) -> Kernel:
        functions = "\n\n\n".join(f.finished(i, c) for f, i, c in self.functions)
        name = named(module("", helpers(self.used), functions), template)
        text = module(header(self.body, name), helpers(self.used), functions)
        main = self.functions[-1]
        read = {
            p.operand: None
            for f, _, _ in self.functions
            for p in f.pointers.values()
            if p.operand not in self.needed and not isinstance(p.operand, KernelLocal)
        }
        written = [v for op in self.body for v in op.writes() if v in self.needed]
        return Kernel(
            name, text, template, main[0].parameters(main[1], main[2]),
            tuple(self.buffer(v) for v in read), tuple(self.buffer(v) for v in written), plan,
            standalone_main(self.told, self.metas, write_norm),
        )  # fmt: skip

    def buffer(self, value: str) -> KernelArgument:
        meta = self.metas[value]
        return KernelArgument(value, meta.dtype, meta.numel)
