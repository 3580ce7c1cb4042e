"""What follows a matrix product, as a function that gets a tile of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tstatic.fusion.codegen.kernel import KernelParameter
from tstatic.fusion.codegen.loops.lines import TYPES, Typed, nested
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported, LoopNest, Operand
from tstatic.fusion.codegen.matrix.products import Product
from tstatic.fusion.codegen.text.emit import coordinates, loaded, pointers_of, stored
from tstatic.fusion.codegen.text.size_names import SizeNames
from tstatic.ir.frozen import FrozenOp


@dataclass(frozen=True)
class Tail:
    """Ops per element behind a product, and the product itself where it is kept.

    Attributes:
        product: The product.
        prefix: Of its functions.
        name: Of this function, behind the prefix.
        value: Whose tile it gets: the product's result, or the sum of product and addend that a library made.
        group: The ops as a loop nest; ``None`` without any.
        stores: Whether it writes the tile to memory.
        rounds: Whether the ops go on with the tile as memory holds it.
        read: Whether the tile comes from there, and is rounded.
    """

    product: Product
    prefix: str
    name: str
    value: str
    group: LoopNest | None
    stores: bool = False
    rounds: bool = False
    read: bool = False

    @property
    def function(self) -> str:
        """Its name in the module."""
        return f"{self.prefix}{self.name}"

    @property
    def summed(self) -> tuple[Operand, ...]:
        """Results that are sums over the rows."""
        return self.group.summed if self.group is not None else ()

    @property
    def drawn(self) -> bool:
        """Whether it draws random numbers."""
        return self.group is not None and bool(self.group.drawings)

    @property
    def pointers(self) -> tuple[KernelParameter, ...]:
        """The parameters of its memory."""
        p, found = self.product, list[KernelParameter]()
        if self.stores:
            found.append(KernelParameter(f"{self.prefix}out", "pointer", TYPES[p.dtype.name], p.out))
        if self.group is not None:
            # The tile is an argument, and not read from memory.
            found += [q for q in pointers_of(self.group) if q.operand != self.value]
        return tuple(found)

    @property
    def passed(self) -> str:
        """The arguments of a call."""
        return ", ".join(("total", "block", *(q.name for q in self.pointers), "ROWS", "COLUMNS"))

    def check(self, op: FrozenOp) -> None:
        """Checks that the ops behind the product work on its elements.

        Raises:
            CodegenUnsupported: If they do not; it names ``op``.
        """
        assert self.group is not None
        if self.group.inner is not None:
            raise CodegenUnsupported("ROWS_KERNEL", "an operator along rows has a kernel of its own", op)
        if not self.fits:
            space = list(self.group.iteration_space)
            raise CodegenUnsupported(
                "SHAPE_MISMATCH", f"the operators after the product work on {space}, not on its elements", op
            )
        for operand in self.group.outputs:
            if not operand.full and not self.per_column(operand):
                raise CodegenUnsupported("SUM_SHAPE", f"'{operand.value}' is a sum over other axes than the rows", op)
            if not operand.full and not operand.dtype.is_float:
                raise CodegenUnsupported("SUM_TYPE", "a group sums floats only", op)

    @property
    def fits(self) -> bool:
        """Whether the ops read the tile, all of it in one place, and work on its elements."""
        assert self.group is not None
        places = [o for o in self.group.inputs if o.value == self.value]
        elements = self.product.rows * self.product.columns
        return len(places) == 1 and places[0].full and math.prod(self.group.iteration_space) == elements

    def per_column(self, operand: Operand) -> bool:
        """Returns whether an operand has one element per column of the product."""
        cut = self._cut()
        return cut is not None and not any(operand.dims[:cut]) and all(operand.dims[cut:])

    def _cut(self) -> int | None:
        """Returns where the columns begin among the dimensions of the group; ``None`` if a dimension has rows and columns."""
        assert self.group is not None
        space = self.group.iteration_space
        for cut in range(len(space) + 1):
            # The first that fits: sizes of 1 may stand on either side.
            if math.prod(space[:cut]) == self.product.rows and math.prod(space[cut:]) == self.product.columns:
                return cut
        return None

    def _index(self, operand: Operand, sizes: SizeNames) -> tuple[str, str]:
        """Returns offset and mask of an operand's elements on a tile."""
        assert self.group is not None
        if operand.full:
            return "offsets", "mask"
        if self.per_column(operand):
            return "columns", f"columns < {self.product.named_columns(sizes)}"
        cut = self._cut()
        if cut is not None and all(operand.dims[:cut]) and not any(operand.dims[cut:]):
            return "rows", f"rows < {self.product.named_rows(sizes)}"
        return f"({coordinates(self.group.iteration_space, operand, 'offsets', sizes)})", "mask"

    def text(self, used: set[str]) -> str:
        """Returns the function; adds what it needs of the prelude to ``used``."""
        p, sizes = self.product, SizeNames()
        count, length = p.named_rows(sizes), p.named_columns(sizes)
        wide = ".to(tl.int64)" if p.wide_offsets else ""
        body = [
            f"rows = (block[0]{wide} * ROWS + tl.arange(0, ROWS))[:, None]",
            "columns = (block[1] * COLUMNS + tl.arange(0, COLUMNS))[None, :]",
            f"mask = (rows < {count}) & (columns < {length})",
            f"offsets = rows * {length} + columns",
        ]
        # What comes from memory is rounded already; a tile in registers is not.
        total = Typed("total", p.dtype.compute, p.dtype if p.dtype.is_low and not self.read else None)
        if self.stores:
            body.append(f"tl.store({self.prefix}out + offsets, {stored(total, p.dtype, used)}, mask=mask)")
        if self.rounds:
            used.add(f"round_{TYPES[p.dtype.name]}")
            body.append(f"total = round_{TYPES[p.dtype.name]}(total)")
            total = Typed("total", p.dtype.compute)
        if self.group is not None:
            drawings = self.group.drawings
            eights: list[str] = []
            # Halves of eight neighbours in a row are drawn together.
            if p.columns % 8 == 0 and drawings and all(one.operand.full for one in drawings):
                run = sizes("RUN", 8, "neighbours whose random numbers are drawn together")
                body.append(f"eights = (block[1] * COLUMNS + {run} * tl.arange(0, COLUMNS // {run}))[None, :]")
                eights = [f"rows * {length} + eights, columns, {run}, False"] * len(drawings)
            loads, lines = loaded(self.group, lambda o: self._index(o, sizes), {self.value: total}, drawn_runs=eights)
            used |= lines.used
            body += [*loads, *lines.lines]
            for operand in self.group.outputs:
                value = lines.done[operand.value]
                if operand.full:
                    text = stored(value, operand.dtype, used)
                    body.append(f"tl.store({operand.name} + offsets, {text}, mask=mask)")
                else:
                    place = f"p_{operand.name} + block[0] * {length} + columns"
                    # Beyond the edges are numbers that must not count; a further launch adds the blocks' sums.
                    added = f"tl.sum(tl.where(mask, {value.text}, 0.0), 0)[None, :]"
                    body.append(f"tl.store({place}, {added}, mask=columns < {length})")
        names = ", ".join(("total", "block", *(q.name for q in self.pointers)))
        head = f"def {self.function}({names}, ROWS: tl.constexpr, COLUMNS: tl.constexpr):"
        return "\n".join(["@triton.jit", *nested(head, sizes.defined(body))])
