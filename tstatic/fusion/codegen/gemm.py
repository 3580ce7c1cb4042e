"""Matrix products with ops per element after them: the epilogue reads the product from registers, tile by tile.

A product that is cut along its depth, or that the device's library makes, lies in memory first; a second function reads it there
and goes on with the same lines.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tstatic.fusion.codegen import sums
from tstatic.fusion.codegen.emit import (
    as_kernel,
    coordinates,
    drawing_table,
    function,
    loaded,
    pointers_of,
    rounds_apart,
    stored,
)
from tstatic.fusion.codegen.gemm_tiles import (
    BOX_TILES,
    DESCRIPTOR_BYTES,
    GROUP,
    LEAST_PART,
    Tile,
    fitting,
    fixed_tile,
    split_depth,
    tiles_of,
)
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
from tstatic.fusion.codegen.lines import LANGUAGE, TYPES, Typed, nested
from tstatic.fusion.codegen.loop_nest import CodegenUnsupported, LoopNest, Operand, build
from tstatic.fusion.codegen.numerics import strict_numerics, uncontracted
from tstatic.fusion.codegen.products import (
    Product,
    is_product,
    is_product_gradient,
    lone_addend,
    numpy_products,
    products_of,
    tails_of,
)
from tstatic.fusion.codegen.script import standalone_main
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import DType, Meta
from tstatic.target import Target


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
        if sum(part.group is not None and bool(part.group.drawings) for part in self.parts) > 1:
            raise CodegenUnsupported("TWO_PRODUCTS", "random numbers are drawn behind both products", self.op)

    def kernel(self) -> Kernel:
        text = "\n\n\n".join(t for part in self.parts for t in part.functions())
        summed = [len(part.summed) for part in self.parts if part.summed]
        if summed:
            self.used.add("to_bf16")
            text += f"\n\n\n{sums.text(*summed)}"
        read = dict.fromkeys(v for part in self.parts for v in part.reads)
        written = dict.fromkeys(v for part in self.parts for v in part.writes)
        memory = self._arguments(read), self._arguments(written)
        # Now: when the kernel is planned the flag may be another.
        self.separate = rounds_apart(self.used)
        kernel = as_kernel(
            "gemm", self.body, text, self.used, self.parts[0].parameters, memory, self._planned,
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
            pairs = part.group.inplace if part.group is not None else ()
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
        group: The ops behind it as a loop nest; ``None`` without any.
        summed: Results that are sums over the rows.
        addend: What is added to the product, one number per column or per element, if nothing else follows.
        reads, writes: Values in memory.
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
        self.strict = strict_numerics()
        self.used = used
        self.metas = metas
        self.compute = product.dtype.compute
        self.group: LoopNest | None = None
        written = {v for op in tail for v in op.writes()}
        if tail:
            group = build(tail, metas, [v for v in needed if v in written])
            if index:
                # Both parts' names are in one module: partial sums are found by them.
                group = replace(
                    group,
                    inputs=tuple(replace(o, name=f"second_{o.name}") for o in group.inputs),
                    outputs=tuple(replace(o, name=f"second_{o.name}") for o in group.outputs),
                )
            self.group = group
            self._check(tail[0])
        self.summed = self.group.summed if self.group is not None else ()
        self.stores_product = product.out in needed or self.group is None
        found = None if self.group is None or self.stores_product else lone_addend(product, self.group)
        self.addend = found if found is not None and (found.full or self._per_column(found)) else None
        inside = self.group.inputs if self.group is not None else ()
        self.reads = tuple(dict.fromkeys((product.a, product.b, *(o.value for o in inside if o.value != product.out))))
        results = self.group.outputs if self.group is not None else ()
        self.writes = (*([product.out] if self.stores_product else []), *(o.value for o in results))
        self.behind = self._pointers()
        self.parameters = self._main_parameters()

    def _check(self, op: FrozenOp) -> None:
        """Checks that the ops behind the product work on its elements."""
        assert self.group is not None
        product, space = self.product, self.group.iteration_space
        if self.group.inner is not None:
            raise CodegenUnsupported("ROWS_KERNEL", "an operator along rows has a kernel of its own", op)
        places = [o for o in self.group.inputs if o.value == product.out]
        if len(places) != 1 or not places[0].full or math.prod(space) != product.rows * product.columns:
            raise CodegenUnsupported(
                "SHAPE_MISMATCH", f"the operators after the product work on {list(space)}, not on its elements", op
            )
        for operand in self.group.outputs:
            if not operand.full and not self._per_column(operand):
                raise CodegenUnsupported("SUM_SHAPE", f"'{operand.value}' is a sum over other axes than the rows", op)
            if not operand.full and not operand.dtype.is_float:
                raise CodegenUnsupported("SUM_TYPE", "a group sums floats only", op)

    # ------------------------------------------------------------------------------------------------------------ the text
    def _per_column(self, operand: Operand) -> bool:
        """Returns whether an operand has one element per column of the product."""
        cut = self._cut()
        return cut is not None and not any(operand.dims[:cut]) and all(operand.dims[cut:])

    def _cut(self) -> int | None:
        """Returns where the columns begin among the dimensions of the group; ``None`` if a dimension has rows and columns."""
        assert self.group is not None
        space = self.group.iteration_space
        for cut in range(len(space) + 1):
            if math.prod(space[:cut]) == self.product.rows and math.prod(space[cut:]) == self.product.columns:
                return cut
        return None

    def _index(self, operand: Operand) -> tuple[str, str]:
        """Returns offset and mask of an operand's elements on a tile."""
        assert self.group is not None
        if operand.full:
            return "offsets", "mask"
        if self._per_column(operand):
            return "columns", f"columns < {self.product.columns}"
        cut = self._cut()
        if cut is not None and all(operand.dims[:cut]) and not any(operand.dims[cut:]):
            return "rows", f"rows < {self.product.rows}"
        return f"({coordinates(self.group.iteration_space, operand, 'offsets')})", "mask"

    def _pointers(self) -> tuple[KernelParameter, ...]:
        """Returns the parameters of the tail's memory."""
        found: list[KernelParameter] = []
        if self.stores_product:
            found.append(
                KernelParameter(f"{self.prefix}out", "pointer", TYPES[self.product.dtype.name], self.product.out)
            )
        if self.group is not None:
            found += [p for p in pointers_of(self.group) if p.operand != self.product.out]
        return tuple(found)

    def _main_parameters(self) -> tuple[KernelParameter, ...]:
        kind = TYPES[self.product.dtype.name]
        return (
            KernelParameter("a", "pointer", kind, self.product.a),
            KernelParameter("b", "pointer", kind, self.product.b),
            *self.behind,
            # A number that the compiler does not know: it would write out the loop over a depth that it knows.
            KernelParameter("depth", "integer", "i32"),
            *(KernelParameter(n, "constant") for n in ("ROWS", "COLUMNS", "STEP", "WHOLE", "GROUP")),
        )

    def functions(self) -> Iterator[str]:
        """Yields the text of the functions."""
        yield self._product()
        yield self._tail()
        yield self._main()
        yield self._part()
        yield self._combine()
        if self.product.aligned:
            yield self._boxes()

    def _product(self) -> str:
        """One tile of the product, or of a part of its depth."""
        p = self.product
        self.used.add("dot")
        wide = ".to(tl.int64)" if p.wide_offsets else ""
        if p.trans_a:
            left, step_a = f"a + (begin + inner)[None, :]{wide} * {p.rows} + rows[:, None]", f"STEP * {p.rows}"
        else:
            left, step_a = f"a + rows[:, None]{wide} * {p.depth} + (begin + inner)[None, :]", "STEP"
        if p.trans_b:
            right, step_b = f"b + columns[None, :]{wide} * {p.depth} + (begin + inner)[:, None]", "STEP"
        else:
            right, step_b = (
                f"b + (begin + inner)[:, None]{wide} * {p.columns} + columns[None, :]",
                f"STEP * {p.columns}",
            )
        head = (
            f"def {self.prefix}product(a, b, block, begin, "
            "depth, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr, WHOLE: tl.constexpr):"
        )
        body = [
            "# Beyond the last row and column the first ones are read again: loads need no mask, and nothing is stored there.",
            f"rows = (block[0] * ROWS + tl.arange(0, ROWS)) % {p.rows}",
            f"columns = (block[1] * COLUMNS + tl.arange(0, COLUMNS)) % {p.columns}",
            "inner = tl.arange(0, STEP)",
            f"left = {left}",
            f"right = {right}",
            f"total = tl.zeros((ROWS, COLUMNS), {LANGUAGE[self.compute.name]})",
            "for start in range(0, depth, STEP):",
            "    if WHOLE:",
            "        total = dot(tl.load(left), tl.load(right), total)",
            "    else:",
            f"        inside = inner < {p.depth} - begin - start",
            "        first = tl.load(left, mask=inside[None, :], other=0)",
            "        second = tl.load(right, mask=inside[:, None], other=0)",
            "        total = dot(first, second, total)",
            f"    left += {step_a}",
            f"    right += {step_b}",
            "return total",
        ]
        return "\n".join(["@triton.jit", *nested(head, body)])

    def _tail(self) -> str:
        """What is made of a tile of the product."""
        p = self.product
        wide = ".to(tl.int64)" if p.wide_offsets else ""
        body = [
            f"rows = (block[0]{wide} * ROWS + tl.arange(0, ROWS))[:, None]",
            "columns = (block[1] * COLUMNS + tl.arange(0, COLUMNS))[None, :]",
            f"mask = (rows < {p.rows}) & (columns < {p.columns})",
            f"offsets = rows * {p.columns} + columns",
        ]
        total = Typed("total", self.compute, p.dtype if p.dtype.is_low else None)
        if self.stores_product:
            text = stored(total, p.dtype, self.used)
            body.append(f"tl.store({self.prefix}out + offsets, {text}, mask=mask)")
        if p.dtype.is_low and self.group is not None and (self.stores_product or self.strict):
            # Others read the rounded product from memory: the tail goes on with the same numbers.
            self.used.add(f"round_{TYPES[p.dtype.name]}")
            body.append(f"total = round_{TYPES[p.dtype.name]}(total)")
            total = Typed("total", self.compute)
        if self.group is not None:
            loads, lines = loaded(self.group, self._index, {p.out: total})
            self.used |= lines.used
            body += [*loads, *lines.lines]
            for operand in self.group.outputs:
                value = lines.done[operand.value]
                if operand.full:
                    text = stored(value, operand.dtype, self.used)
                    body.append(f"tl.store({operand.name} + offsets, {text}, mask=mask)")
                else:
                    place = f"p_{operand.name} + block[0] * {p.columns} + columns"
                    added = f"tl.sum(tl.where(mask, {value.text}, 0.0), 0)[None, :]"
                    body.append(f"tl.store({place}, {added}, mask=columns < {p.columns})")
        names = ", ".join(("total", "block", *(q.name for q in self.behind)))
        head = f"def {self.prefix}tail({names}, ROWS: tl.constexpr, COLUMNS: tl.constexpr):"
        return "\n".join(["@triton.jit", *nested(head, body)])

    def _block(self) -> list[str]:
        """Lines that say which tile a program has."""
        p = self.product
        return [
            f"tall, wide = tl.cdiv({p.rows}, ROWS), tl.cdiv({p.columns}, COLUMNS)",
            "program = tl.program_id(0)",
            "block = tl.swizzle2d(program // wide, program % wide, tall, wide, GROUP)",
        ]

    def _passed(self) -> str:
        return "".join(f"{q.name}, " for q in self.behind)

    def _main(self) -> str:
        name = f"{self.prefix}kernel" if self.prefix else "kernel"
        body = [
            *self._block(),
            f"total = {self.prefix}product(a, b, block, 0, depth, ROWS, COLUMNS, STEP, WHOLE)",
            f"{self.prefix}tail(total, block, {self._passed()}ROWS, COLUMNS)",
        ]
        return function(name, self.parameters, body)

    def _part(self) -> str:
        """A part of the depth, to memory."""
        p = self.product
        wide = ".to(tl.int64)" if p.wide_offsets else ""
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
            f"offsets = tl.program_id(1){wide} * {p.rows * p.columns} + rows * {p.columns} + columns",
            f"tl.store(parts + offsets, total, mask=(rows < {p.rows}) & (columns < {p.columns}))",
        ]
        return function(f"{self.prefix}part", parameters, body)

    @property
    def _box_parameters(self) -> tuple[KernelParameter, ...]:
        names = ("ROWS", "COLUMNS", "STEP", "GROUP", "PROGRAMS", "SPECIALISED")
        return (*self.parameters[:-5], *(KernelParameter(n, "constant") for n in names))

    def _boxes(self) -> str:
        """Tiles one after the other; the chip copies their operands as boxes of the matrices, and fills what lies beyond with 0."""
        p = self.product
        if p.trans_a:
            left, of_a = "tl.trans(left.load([start, top]))", (p.depth, p.rows, "STEP, ROWS")
        else:
            left, of_a = "left.load([top, start])", (p.rows, p.depth, "ROWS, STEP")
        if p.trans_b:
            right, of_b = "tl.trans(right.load([first, start]))", (p.columns, p.depth, "COLUMNS, STEP")
        else:
            right, of_b = "right.load([start, first])", (p.depth, p.columns, "STEP, COLUMNS")
        body = [
            *(
                f"{name} = tl.make_tensor_descriptor({memory}, [{tall}, {wide}], [{wide}, 1], [{box}])"
                for name, memory, (tall, wide, box) in (("left", "a", of_a), ("right", "b", of_b))
            ),
            f"tall, wide = tl.cdiv({p.rows}, ROWS), tl.cdiv({p.columns}, COLUMNS)",
            "for program in tl.range(tl.program_id(0), tall * wide, PROGRAMS, warp_specialize=SPECIALISED):",
            "    block = tl.swizzle2d(program // wide, program % wide, tall, wide, GROUP)",
            "    top, first = block[0] * ROWS, block[1] * COLUMNS",
            f"    total = tl.zeros((ROWS, COLUMNS), {LANGUAGE[self.compute.name]})",
            "    for start in range(0, depth, STEP):",
            f"        total = dot({left}, {right}, total)",
            f"    {self.prefix}tail(total, block, {self._passed()}ROWS, COLUMNS)",
        ]
        return function(f"{self.prefix}boxes", self._box_parameters, body)

    @property
    def _parts(self) -> KernelLocal:
        return KernelLocal(f"partial:{self.prefix}parts")

    def _combine_parameters(self, dtype: DType) -> tuple[KernelParameter, ...]:
        return (
            KernelParameter("parts", "pointer", TYPES[dtype.name], self._parts),
            *self.behind,
            *(KernelParameter(n, "constant") for n in ("PARTS", "ROWS", "COLUMNS")),
        )

    def _combine(self) -> str:
        """The sum of all parts, in their order, or the library's product; and the tail."""
        p = self.product
        self.used.add("wide")
        wide = ".to(tl.int64)" if p.wide_offsets else ""
        body = [
            f"block = tl.program_id(0) // tl.cdiv({p.columns}, COLUMNS), tl.program_id(0) % tl.cdiv({p.columns}, COLUMNS)",
            f"rows = (block[0]{wide} * ROWS + tl.arange(0, ROWS))[:, None]",
            "columns = (block[1] * COLUMNS + tl.arange(0, COLUMNS))[None, :]",
            f"inside = (rows < {p.rows}) & (columns < {p.columns})",
            f"places = rows * {p.columns} + columns",
            "total = wide(tl.load(parts + places, mask=inside, other=0))",
            "for part in range(1, PARTS):",
            f"    total += wide(tl.load(parts + part{wide} * {p.rows * p.columns} + places, mask=inside, other=0))",
            f"{self.prefix}tail(total, block, {self._passed()}ROWS, COLUMNS)",
        ]
        return function(f"{self.prefix}combine", self._combine_parameters(self.compute), body)

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
            largest = max(self._tiles(target), key=lambda tile: tile.rows * tile.columns)
            split = self._split(largest, target)
            generated[:0] = [] if split is None else [split]
        # Kernels multiply 16-bit elements as well as the library does, and only if loads are wide. Its product of float32 is not
        # rounded to TF32. Where nothing follows, or a matrix is added (in its place), a kernel of ours gains nothing.
        alone = self.group is None or (self.addend is not None and self.addend.full)
        ours = target.large_programs or (self.product.dtype.is_low and self.product.aligned and not alone)
        # No chip has run what copies boxes yet: it is never the first.
        yield from (*generated, self._library(target)) if ours else (self._library(target), *generated)
        yield from self._copied(target)

    def _copied(self, target: Target) -> Iterator[Launches]:
        """Yields the ways whose operands are copied as boxes, on chips that can; the second one's warps do different work."""
        if not self.product.aligned or not (target.large_programs or self.product.dtype.is_low):
            return
        if target.large_programs:
            yield self._boxed(self._tiles(target)[0], target, specialised=False)
        elif target.architecture in BOX_TILES:
            tiles = BOX_TILES[target.architecture]
            tile = fitting(tiles, drawn=self._drawn)[0]
            yield self._boxed(tile, target, specialised=False)
            if target.architecture == "sm_90" and tile is tiles[0] and not self.summed:
                # Four warps copy, and two times four are added that multiply half of the rows each. Triton's pass for that
                # fails on sums over the rows, and spills on chips of other generations.
                yield self._boxed(replace(tile, num_warps=4), target, specialised=True)

    def _boxed(self, tile: Tile, target: Target, *, specialised: bool) -> Launches:
        tall, wide = tile.blocks(self.product)
        programs = min(tall * wide, target.multiprocessors)
        constants = self._constants(tile, tile.depth) | {"PROGRAMS": programs, "SPECIALISED": specialised}
        del constants["WHOLE"]
        main = Launch(
            f"{self.prefix}boxes",
            (programs,),
            (*operands(self._box_parameters), self.product.depth),
            constants,
            tile.num_warps,
            argument_types(self._box_parameters),
            stages=tile.stages,
            scratch=2 * DESCRIPTOR_BYTES,
        )
        name = "specialised" if specialised else "boxes"
        return replace(self._finished(main, tall, target), name=f"{name} {tile.name}")

    def _tiles(self, target: Target) -> list[Tile]:
        return tiles_of(self.product, target, drawn=self._drawn)

    @property
    def _drawn(self) -> bool:
        return self.group is not None and bool(self.group.drawings)

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
        return replace(self._finished(main, tall, target), name=f"generated {tile.name}")

    def _finished(self, main: Launch, tall: int, target: Target) -> Launches:
        """Returns the launch and those that complete sums over rows."""
        calls = Launches((main,), {})
        if self.summed:
            calls = sums.finished(main, self.summed, tall, self.product.columns, target)
        if self.group is not None and self.group.drawings:
            calls = replace(calls, tables={DRAWS: drawing_table(self.group)})
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
        combined = self._combined(count, self.compute, target)
        partials = {self._parts: (count * p.rows * p.columns, self.compute), **combined.partials}
        return Launches((first, *combined.launches), partials, combined.tables, f"{count} parts {tile.name}")

    def _combined(self, count: int, dtype: DType, target: Target) -> Launches:
        p = self.product
        if target.large_programs:
            rows, columns = (power_of_two(-(-n // 2), 16, 256) for n in (p.rows, p.columns))
        else:
            # 16 values a thread: 8 rows of 128 columns for a warp of four.
            rows, columns = power_of_two(p.rows, 1, 16), power_of_two(p.columns, 16, 128)
            if self.summed:
                # Each block of rows leaves a partial sum.
                rows = power_of_two(p.rows, 1, 64)
        tall, wide = math.ceil(p.rows / rows), math.ceil(p.columns / columns)
        parameters = self._combine_parameters(dtype)
        main = Launch(
            f"{self.prefix}combine",
            (tall * wide,),
            operands(parameters),
            {"PARTS": count, "ROWS": rows, "COLUMNS": columns},
            types=argument_types(parameters),
        )
        return self._finished(main, tall, target)

    def _library(self, target: Target) -> Launches:
        p = self.product
        made = LibraryProduct(p.a, p.b, p.out, (p.rows, p.columns, p.depth), p.trans_a, p.trans_b, p.dtype)
        if self.addend is not None and not strict_numerics():
            rows = p.rows if self.addend.full else 1
            made = replace(made, out=self.writes[0], addend=self.addend.value, addend_rows=rows)
        if self.group is None or made.addend:
            return Launches((made,), {}, name="library")
        rest = self._combined(1, p.dtype, target)
        partials = {self._parts: (p.rows * p.columns, p.dtype), **rest.partials}
        return Launches((replace(made, out=self._parts), *rest.launches), partials, rest.tables, "library")
