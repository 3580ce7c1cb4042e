"""Matrix products with ops per element after them: the epilogue reads the product from registers, tile by tile.

A product that is cut along its depth, or that the device's library makes, lies in memory first; a second function reads it there
and goes on. The library adds a bias itself, and writes the sum where it is kept, so that what follows only reads it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tstatic.fusion.codegen.kernel import (
    DRAWS,
    Kernel,
    KernelArgument,
    KernelLocal,
    KernelParameter,
    Launch,
    Launches,
    LibraryProduct,
    argument_types,
    operands,
    power_of_two,
)
from tstatic.fusion.codegen.loops import sums
from tstatic.fusion.codegen.loops.lines import LANGUAGE, TYPES, nested
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported, LoopNest, Operand, build
from tstatic.fusion.codegen.matrix.gemm_tail import Tail
from tstatic.fusion.codegen.matrix.gemm_tiles import BLOCKS, GROUP, LEAST_PART, Tile, fixed_tile, split_depth, tiles_of
from tstatic.fusion.codegen.matrix.products import (
    Product,
    is_product,
    is_product_gradient,
    lone_addend,
    numpy_products,
    products_of,
    tails_of,
)
from tstatic.fusion.codegen.numerics import strict_numerics, uncontracted
from tstatic.fusion.codegen.text.emit import as_kernel, drawing_table, function, rounds_apart
from tstatic.fusion.codegen.text.script import standalone_main
from tstatic.fusion.codegen.text.size_names import SizeNames
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import DType, Meta
from tstatic.target import TINY, Target


def gemm_kernel(body: Sequence[FrozenOp], metas: Mapping[str, Meta], needed: Sequence[str]) -> Kernel:
    """Returns the kernel of a matrix product, or of its gradients, and of ops per element that follow.

    Args:
        body: One op that multiplies two matrices, or the gradient of one, and ops with expressions per element that depend on
            one of its results; sums over all rows, one per column, may be among their results.
        metas: Metadata of all values; every size is known.
        needed: Values that are written to memory.

    Raises:
        CodegenUnsupported: If the ops do not work element by element on the product's shape.
    """
    return _Module(body, metas, needed).kernel()


class _Module:
    """The functions of all products of one op."""

    def __init__(self, body: Sequence[FrozenOp], metas: Mapping[str, Meta], needed: Sequence[str]) -> None:
        self.body, self.metas = body, metas
        self.used: set[str] = set()
        (self.op,) = (op for op in body if is_product(op.definition) or is_product_gradient(op.definition))
        products = products_of(self.op, metas)
        tails = tails_of(body, self.op, products)
        self.parts: list[_Part] = [
            _Part(index, product, tail, metas, needed, self.used)
            for index, (product, tail) in enumerate(zip(products, tails, strict=True))
        ]
        if sum(part.tail.drawn for part in self.parts) > 1:
            raise CodegenUnsupported("TWO_PRODUCTS", "random numbers are drawn behind both products", self.op)

    def kernel(self) -> Kernel:
        text = "\n\n\n".join(t for part in self.parts for t in part.functions())
        summed = [len(part.tail.summed) for part in self.parts if part.tail.summed]
        if summed:
            self.used.add("to_bf16")
            text += f"\n\n\n{sums.text(*summed)}"
        read = dict.fromkeys(v for part in self.parts for v in part.reads)
        written = dict.fromkeys(v for part in self.parts for v in part.writes)
        memory = self._arguments(read), self._arguments(written)
        # Now: when the kernel is planned the flag may be another.
        self.separate = rounds_apart(self.used)
        kernel = as_kernel(
            "gemm", self.body, self.metas, text, self.used, self.parts[0].parameters, memory, self._planned,
            standalone_main(self.body, self.metas, numpy_products), self._inplace(),
        )  # fmt: skip
        return replace(kernel, alternatives=self._alternatives)

    def _arguments(self, values: Mapping[str, None]) -> tuple[KernelArgument, ...]:
        return tuple(KernelArgument(v, self.metas[v].dtype, self.metas[v].numel) for v in values)

    def _inplace(self) -> tuple[tuple[str, str], ...]:
        """Returns (input, output) that may share memory: what a product reads, other programs read, too."""
        shared = {v for part in self.parts for v in (part.product.a, part.product.b)}
        found = []
        for part in self.parts:
            others = {v for other in self.parts if other is not part for v in other.reads}
            pairs = part.tail.group.inplace if part.tail.group is not None else ()
            found += [(a, b) for a, b in pairs if a != part.product.out and a not in shared | others]
        return tuple(found)

    def _planned(self, target: Target) -> Launches:
        return self._joined([next(part.ways(target)) for part in self.parts])

    def _joined(self, ways: Sequence[Launches]) -> Launches:
        """Returns the launches of all parts, one after the other."""
        calls = Launches(
            tuple(launch for way in ways for launch in way.launches),
            {name: buffer for way in ways for name, buffer in way.partials.items()},
            {name: table for way in ways for name, table in way.tables.items()},
            " + ".join(way.name for way in ways),
        )
        return uncontracted(calls) if self.separate else calls

    def _alternatives(self, target: Target) -> tuple[Launches, ...]:
        ways = [list(part.ways(target)) for part in self.parts]
        first = [way[0] for way in ways]
        # One part changes at a time: their times add up.
        return tuple(
            self._joined([*first[:index], other, *first[index + 1 :]])
            for index, part in enumerate(ways)
            for other in part[1:]
        )


class _Part:
    """The functions of one product.

    Attributes:
        product: What is multiplied.
        tail: What follows it.
        addend: What the library adds to it, one number per column or per element; ``None`` for nothing.
        made: What the library then makes: the product, or the sum.
        rest: What follows that, if it is not what follows the product.
        reads, writes: Values in memory.
        sizes: Names of the product's sizes in the functions.
        parameters: Of its main function.
    """

    def __init__(
        self,
        index: int,
        product: Product,
        tail: Sequence[FrozenOp],
        metas: Mapping[str, Meta],
        needed: Sequence[str],
        used: set[str],
    ) -> None:
        self.prefix = "second_" if index else ""
        self.product = product
        self.sizes = SizeNames()
        self.strict = strict_numerics()
        self.used = used
        self.metas = metas
        self.needed = needed
        self.compute = product.dtype.compute
        group = self._group(tail) if tail else None
        stores = product.out in needed or group is None
        # Others read the rounded product from memory: the tail goes on with the same numbers.
        rounds = product.dtype.is_low and group is not None and (stores or self.strict)
        self.tail = Tail(product, self.prefix, "tail", product.out, group, stores, rounds)
        if tail:
            self.tail.check(tail[0])
        self.addend, self.made, self.rest = self._left_to_library(tail)
        inside = group.inputs if group is not None else ()
        self.reads = tuple(dict.fromkeys((product.a, product.b, *(o.value for o in inside if o.value != product.out))))
        results = group.outputs if group is not None else ()
        self.writes = (*([product.out] if stores else []), *(o.value for o in results))
        self.parameters = self._main_parameters()

    def _group(self, ops: Sequence[FrozenOp]) -> LoopNest:
        """Returns the loop nest of ops behind the product."""
        written = {v for op in ops for v in op.writes()}
        group = build(ops, self.metas, [v for v in self.needed if v in written])
        if not self.prefix:
            return group
        # Both parts' names are in one module: partial sums are found by them.
        return replace(
            group,
            inputs=tuple(replace(o, name=f"{self.prefix}{o.name}") for o in group.inputs),
            outputs=tuple(replace(o, name=f"{self.prefix}{o.name}") for o in group.outputs),
        )

    def _left_to_library(self, tail: Sequence[FrozenOp]) -> tuple[Operand | None, str, Tail | None]:
        """Returns what a library adds to the product, what it makes then, and what follows that.

        ``None`` for no addend, and where nothing follows, or the same as the product. A sum of 16 bits is rounded once; strict
        numerics round the product first, as the ops by themselves do.
        """
        p = self.product
        if not tail or self.strict:
            return None, p.out, None
        first, *others = tail
        if not self.tail.stores and not any(p.out in op.reads() for op in others):
            alone = build([first], self.metas, list(first.writes()))
            addend = lone_addend(p, alone)
            if addend is not None:
                made, row = alone.outputs[0].value, replace(self.tail, group=alone).per_column(addend)
                if not others and (row or addend.full):
                    return addend, made, None
                # A matrix would be copied to where the sum goes first.
                if others and row and p.dtype.is_low:
                    rest = Tail(p, self.prefix, "rest", made, self._group(others), read=True)
                    if rest.fits:
                        return addend, made, rest
        if self.tail.stores and p.dtype.is_low:
            return None, p.out, replace(self.tail, name="rest", stores=False, rounds=False, read=True)
        return None, p.out, None

    def _main_parameters(self) -> tuple[KernelParameter, ...]:
        kind = TYPES[self.product.dtype.name]
        return (
            KernelParameter("a", "pointer", kind, self.product.a),
            KernelParameter("b", "pointer", kind, self.product.b),
            *self.tail.pointers,
            # A number that the compiler does not know: it would write out the loop over a depth that it knows.
            KernelParameter("depth", "integer", "i32"),
            *(KernelParameter(n, "constant") for n in ("ROWS", "COLUMNS", "STEP", "WHOLE", "GROUP")),
        )

    def functions(self) -> Iterator[str]:
        """Yields the text of the functions that are launched on some chip or in the interpreter, and of those that they call."""
        if self._multiplies:
            yield self._product()
        if self._multiplies or self._combines:
            yield self.tail.text(self.used)
        if self._multiplies:
            yield self._main()
        if self._splits:
            yield self._part()
        if self._combines:
            yield self._combine("combine", self.tail)
        if self.rest is not None:
            yield self.rest.text(self.used)
            yield self._combine("go_on", self.rest)

    @property
    def _multiplies(self) -> bool:
        """Whether a kernel of ours makes the product somewhere."""
        return fixed_tile(self.product, TINY) is not None if self.strict else True

    @property
    def _splits(self) -> bool:
        """Whether the product is cut along its depth somewhere: in the interpreter, if on any chip."""
        return not self.strict and self.product.depth >= split_depth(TINY)

    @property
    def _combines(self) -> bool:
        """Whether the tail follows parts, or what the library made."""
        return self._splits or (self.tail.group is not None and self.addend is None and self.rest is None)

    def _product(self) -> str:
        """One tile of the product, or of a part of its depth."""
        p, s = self.product, self.sizes
        rows, columns, terms = p.named_rows(s), p.named_columns(s), p.named_depth(s)
        self.used.add("dot")
        wide = ".to(tl.int64)" if p.wide_offsets else ""
        if p.trans_a:
            left, step_a = f"a + (begin + inner)[None, :]{wide} * {rows} + rows[:, None]", f"STEP * {rows}"
        else:
            left, step_a = f"a + rows[:, None]{wide} * {terms} + (begin + inner)[None, :]", "STEP"
        if p.trans_b:
            right, step_b = f"b + columns[None, :]{wide} * {terms} + (begin + inner)[:, None]", "STEP"
        else:
            right, step_b = (
                f"b + (begin + inner)[:, None]{wide} * {columns} + columns[None, :]",
                f"STEP * {columns}",
            )
        head = (
            f"def {self.prefix}product(a, b, block, begin, "
            "depth, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr, WHOLE: tl.constexpr):"
        )
        body = [
            "# Beyond the last row and column the first ones are read again: loads need no mask, and nothing is stored there.",
            f"rows = (block[0] * ROWS + tl.arange(0, ROWS)) % {rows}",
            f"columns = (block[1] * COLUMNS + tl.arange(0, COLUMNS)) % {columns}",
            "inner = tl.arange(0, STEP)",
            f"left = {left}",
            f"right = {right}",
            f"total = tl.zeros((ROWS, COLUMNS), {LANGUAGE[self.compute.name]})",
            "for start in range(0, depth, STEP):",
            "    if WHOLE:",
            "        total = dot(tl.load(left), tl.load(right), total)",
            "    else:",
            f"        inside = inner < {terms} - begin - start",
            "        first = tl.load(left, mask=inside[None, :], other=0)",
            "        second = tl.load(right, mask=inside[:, None], other=0)",
            "        total = dot(first, second, total)",
            f"    left += {step_a}",
            f"    right += {step_b}",
            "return total",
        ]
        return "\n".join(["@triton.jit", *nested(head, s.defined(body))])

    def _block(self) -> list[str]:
        """Lines that say which tile a program has."""
        rows, columns = self.product.named_rows(self.sizes), self.product.named_columns(self.sizes)
        return [
            f"tall, wide = tl.cdiv({rows}, ROWS), tl.cdiv({columns}, COLUMNS)",
            "program = tl.program_id(0)",
            "block = tl.swizzle2d(program // wide, program % wide, tall, wide, GROUP)",
        ]

    def _main(self) -> str:
        name = f"{self.prefix}kernel" if self.prefix else "kernel"
        body = [
            *self._block(),
            f"total = {self.prefix}product(a, b, block, 0, depth, ROWS, COLUMNS, STEP, WHOLE)",
            f"{self.tail.function}({self.tail.passed})",
        ]
        return function(name, self.parameters, body, self.sizes)

    def _part(self) -> str:
        """A part of the depth, to memory."""
        count, length = self.product.named_rows(self.sizes), self.product.named_columns(self.sizes)
        wide = ".to(tl.int64)" if self.product.wide_offsets else ""
        parameters = (
            *self.parameters[:2],
            KernelParameter("parts", "pointer", TYPES[self.compute.name], self._parts),
            *self.parameters[-6:],
        )
        body = [
            *self._block(),
            f"total = {self.prefix}product(a, b, block, tl.program_id(1) * depth, depth, ROWS, COLUMNS, STEP, WHOLE)",
            f"rows = (block[0]{wide} * ROWS + tl.arange(0, ROWS))[:, None]",
            "columns = (block[1] * COLUMNS + tl.arange(0, COLUMNS))[None, :]",
            f"offsets = tl.program_id(1){wide} * ({count} * {length}) + rows * {length} + columns",
            f"tl.store(parts + offsets, total, mask=(rows < {count}) & (columns < {length}))",
        ]
        return function(f"{self.prefix}part", parameters, body, self.sizes)

    @property
    def _parts(self) -> KernelLocal:
        return KernelLocal(f"partial:{self.prefix}parts")

    def _combine_parameters(self, parts: str, dtype: DType, tail: Tail) -> tuple[KernelParameter, ...]:
        return (
            KernelParameter("parts", "pointer", TYPES[dtype.name], parts),
            *tail.pointers,
            *(KernelParameter(n, "constant") for n in ("PARTS", "ROWS", "COLUMNS")),
        )

    def _combine(self, name: str, tail: Tail) -> str:
        """The sum of all parts, in their order, or what the library made; and what follows."""
        count, length = self.product.named_rows(self.sizes), self.product.named_columns(self.sizes)
        self.used.add("wide")
        wide = ".to(tl.int64)" if self.product.wide_offsets else ""
        body = [
            f"block = tl.program_id(0) // tl.cdiv({length}, COLUMNS), tl.program_id(0) % tl.cdiv({length}, COLUMNS)",
            f"rows = (block[0]{wide} * ROWS + tl.arange(0, ROWS))[:, None]",
            "columns = (block[1] * COLUMNS + tl.arange(0, COLUMNS))[None, :]",
            f"inside = (rows < {count}) & (columns < {length})",
            f"places = rows * {length} + columns",
            "total = wide(tl.load(parts + places, mask=inside, other=0))",
            "for part in range(1, PARTS):",
            f"    total += wide(tl.load(parts + part{wide} * ({count} * {length}) + places, mask=inside, other=0))",
            f"{tail.function}({tail.passed})",
        ]
        parameters = self._combine_parameters(self._parts, self.compute, tail)
        return function(f"{self.prefix}{name}", parameters, body, self.sizes)

    # ------------------------------------------------------------------------------------------------------------ launches
    def ways(self, target: Target) -> Iterator[Launches]:
        """Yields the ways to make this part on a chip, the first one to be taken where nothing is timed."""
        if self.strict:
            tile = fixed_tile(self.product, target)
            yield self._library(target) if tile is None else self._generated(tile, target)
            return
        generated = [self._generated(tile, target) for tile in self._tiles(target)]
        if self.product.depth >= split_depth(target):
            # Parts give every multiprocessor work, so that the tile may be large: it loads less for each product.
            largest = max(
                tiles_of(self.product, target, drawn=self.tail.drawn), key=lambda tile: tile.rows * tile.columns
            )
            split = self._split(largest, target)
            generated[:0] = [] if split is None else [split]
        library = self._library(target)
        # Kernels of chips multiply 16-bit elements as well as the library does, and only if loads are wide. The library's
        # product of float32 is not rounded to TF32; a product with nothing behind it gains nothing by a kernel of ours.
        ours = self.product.dtype.is_low and self.product.aligned and not self._less_by_library
        ours = ours or target.large_programs or target.asks(*BLOCKS)
        yield from (*generated, library) if ours else (library, *generated)

    @property
    def _less_by_library(self) -> bool:
        """Whether a library's product, and a kernel for what follows it, take less time than one kernel, measured on an H200.

        That is so where nothing follows the product and addend, where there are several results, and where there are sums over
        the rows.
        """
        alone = self.tail.group is None or (self.addend is not None and self.rest is None)
        return alone or len(self.writes) > 1 or bool(self.tail.summed)

    def _tiles(self, target: Target) -> list[Tile]:
        return tiles_of(self.product, target, drawn=self.tail.drawn, summed=bool(self.tail.summed))

    def _constants(self, tile: Tile, depth: int) -> dict[str, int]:
        whole = self.product.depth % depth == 0
        return {"ROWS": tile.rows, "COLUMNS": tile.columns, "STEP": tile.depth, "WHOLE": whole, "GROUP": GROUP}

    def _generated(self, tile: Tile, target: Target) -> Launches:
        tall, wide = tile.blocks(self.product)
        depth = math.ceil(self.product.depth / tile.depth) * tile.depth
        main = Launch(
            f"{self.prefix}kernel",
            (tall * wide,),
            (*operands(self.parameters), depth),
            self._constants(tile, depth),
            tile.num_warps,
            argument_types(self.parameters),
            stages=tile.stages,
        )
        return replace(self._finished(main, tall, target, self.tail), name=f"generated {tile.name}")

    def _finished(self, main: Launch, tall: int, target: Target, tail: Tail) -> Launches:
        """Returns the launch and those that complete sums over rows."""
        calls = Launches((main,), {})
        if tail.summed:
            calls = sums.finished(main, tail.summed, tall, self.product.columns, target)
        if tail.group is not None and tail.drawn:
            calls = replace(calls, tables={DRAWS: drawing_table(tail.group)})
        return calls

    def _split(self, tile: Tile, target: Target) -> Launches | None:
        """Returns the launches of a product that is cut along its depth; ``None`` if there is work for everybody without."""
        tall, wide = tile.blocks(self.product)
        depth = self.product.depth
        # In the interpreter two parts show what many would.
        wanted = 2 if target.large_programs else min(target.multiprocessors // (tall * wide), depth // LEAST_PART, 16)
        if wanted < 2:
            return None
        part = math.ceil(math.ceil(depth / wanted) / tile.depth) * tile.depth
        count = math.ceil(depth / part)
        p = self.product
        first = Launch(
            f"{self.prefix}part",
            (tall * wide, count),
            (p.a, p.b, self._parts, part),
            self._constants(tile, part),
            tile.num_warps,
            (*argument_types(self.parameters[:2]), f"*{TYPES[self.compute.name]}", "i32"),
            stages=tile.stages,
        )
        combined = self._combined("combine", self.tail, self._parts, count, self.compute, target)
        partials = {self._parts: (count * p.rows * p.columns, self.compute), **combined.partials}
        return Launches((first, *combined.launches), partials, combined.tables, f"{count} parts {tile.name}")

    def _combined(self, name: str, tail: Tail, parts: str, count: int, dtype: DType, target: Target) -> Launches:
        p, num_warps = self.product, 4
        if target.large_programs:
            rows, columns = (power_of_two(-(-n // 2), 16, 256) for n in (p.rows, p.columns))
        else:
            # 16 values a thread: 8 rows of 128 columns for a warp of four.
            rows, columns = power_of_two(p.rows, 1, 16), power_of_two(p.columns, 16, 128)
            if tail.summed:
                # Each block of rows leaves a partial sum. Of 32 bits, so many values a thread of four warps would spill.
                rows = power_of_two(p.rows, 1, 64)
                num_warps = 4 if dtype.is_low else 8
        tall, wide = math.ceil(p.rows / rows), math.ceil(p.columns / columns)
        parameters = self._combine_parameters(parts, dtype, tail)
        main = Launch(
            f"{self.prefix}{name}",
            (tall * wide,),
            operands(parameters),
            {"PARTS": count, "ROWS": rows, "COLUMNS": columns},
            num_warps,
            argument_types(parameters),
        )
        return self._finished(main, tall, target, tail)

    def _library(self, target: Target) -> Launches:
        p = self.product
        made = LibraryProduct(p.a, p.b, p.out, (p.rows, p.columns, p.depth), p.trans_a, p.trans_b, p.dtype)
        if self.addend is not None:
            made = replace(made, addend=self.addend.value, addend_rows=p.rows if self.addend.full else 1)
        if self.tail.group is None or (made.addend and self.rest is None):
            return Launches((replace(made, out=self.made),), {}, name="library")
        parts: str = self._parts
        if self.rest is not None:
            name, tail = "go_on", self.rest
            parts = self.made if self.made in self.needed else parts
        else:
            name, tail = "combine", self.tail
        behind = self._combined(name, tail, parts, 1, p.dtype, target)
        buffer = {self._parts: (p.rows * p.columns, p.dtype)} if parts == self._parts else {}
        launches = replace(made, out=parts), *behind.launches
        return Launches(launches, {**buffer, **behind.partials}, behind.tables, "library")
