"""What the kernels of an attention and of its gradient share: ops per element on blocks of scores, places of matrices, launches."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tstatic.fusion.attention.parts import Attention, Gradient, Inlined, fitting_result, numpy_matmul, one, sizes_of
from tstatic.fusion.attention.tiles import Blocks, Table, Variant, blocks_of, padded
from tstatic.fusion.codegen.kernel import (
    DRAWS,
    RNG,
    Kernel,
    KernelArgument,
    KernelLocal,
    KernelParameter,
    Launch,
    Launches,
    argument_types,
    operands,
)
from tstatic.fusion.codegen.loops.lines import LANGUAGE, TYPES, Typed, number
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported, Operand
from tstatic.fusion.codegen.matrix.layouts import Layout, batch_offset, contiguous
from tstatic.fusion.codegen.numerics import rounds_to_tf32, uncontracted
from tstatic.fusion.codegen.text.emit import as_kernel, drawing_table, function, rounds_apart, stored
from tstatic.fusion.codegen.text.script import standalone_main
from tstatic.fusion.codegen.text.size_names import SizeNames
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import DType, Meta
from tstatic.target import Target

LOG2E = math.log2(math.e)


class AttentionModule:
    """The functions of one direction."""

    def __init__(
        self,
        found: Attention,
        mixed: FrozenOp,
        gradient: Gradient | None,
        metas: Mapping[str, Meta],
        lse: str | None,
        out: Layout,
        layouts: Mapping[str, Layout] | None = None,
        biases: Mapping[str, str] | None = None,
    ) -> None:
        # Value that gradients lie in -> the sum over its rows.
        self.biases = biases or {}
        self.found, self.gradient, self.metas, self.lse, self.out = found, gradient, metas, lse, out
        self.diagonal = found.diagonal
        self.layouts = layouts or {}
        # Name of a pointer -> where its matrices lie.
        self.places: dict[str, Layout] = {}
        self.multiplies = False
        self.q, self.k = one(found.product.input("X")), one(found.product.input("Y"))
        self.v = one(mixed.input("Y"))
        if one(mixed.input("X")) != found.used:
            raise CodegenUnsupported("ATTRIBUTE", "the last product takes something else than the weights", mixed)
        self.dtype = metas[self.q].dtype
        self.compute = self.dtype.compute
        # A softmax of 32 bits between products of 16.
        self.wide_softmax = metas[found.weights].dtype is not self.dtype
        self.sizes = sizes_of(found.product, mixed, metas)
        self.named = SizeNames()
        self.size_texts = self.sizes.named(self.named)
        self.last_seen = (
            None
            if self.diagonal is None
            else self.named("DIAGONAL", self.diagonal, "the last key that the first query sees")
        )
        self.run = self.named("RUN", 8, "neighbours whose random numbers are drawn together")
        self.tf32 = rounds_to_tf32(self.dtype)
        self.dot = "dot_tf32" if self.tf32 else "dot"
        # Powers of 2 in the place of those of e: the factor between them, and that of the scores, is part of one operation. The
        # largest weight of a row is then 1 up to a rounding of 32 bits, which only results of 16 bits do not show.
        # Beside masks in memory scores may be so large that their product with a factor is rounded by more than powers can hold.
        self.folded = found.factor if self.dtype.is_low and not self.wide_softmax else None
        self.powers = self.folded is not None
        self.factor = number(self.folded * LOG2E, self.compute) if self.folded is not None else ""
        self.used: set[str] = {self.dot, "to_bf16"} if self.dtype.name == "bfloat16" else {self.dot}
        if self.powers:
            self.used.add("exp_less")
        self.inlined = self._inline()
        # One name for each value in memory, whatever function reads it.
        self.memory = {o.value: o for one in self.inlined for o in one.read}
        self.names = {value: f"m{i}" for i, value in enumerate(self.memory)}
        self.all_parameters: list[KernelParameter] = []

    def _inline(self) -> list[Inlined]:
        # The diagonal of a causal mask is a matter of loops.
        a, g, kind = self.found.unmasked, self.gradient, self.compute

        def function_of(
            name: str, ops: Sequence[FrozenOp], given: Mapping[str, str], result: str, casts_round: bool | None = None
        ) -> Inlined:
            return Inlined(name, ops, given, result, self.sizes, self.metas, kind, casts_round)

        made = [
            function_of("scores", a.behind_scores, {a.raw: "s"}, a.scores),
            function_of("weights", a.behind_weights, {a.weights: "p"}, a.used),
        ]
        if g is not None:
            arriving, leaving = one(g.mixed.output("X@GRAD")), one(g.softmax.input("Out@GRAD"))
            # Each row's sum of weights times these gradients, which is subtracted from them, is of gradients as they are
            # before any rounding; where it is almost all of them, rounding them would be all that is left.
            made.append(function_of("weights_grad", g.weights, {arriving: "d"}, leaving, casts_round=False))
            inner, last = one(g.softmax.output("X@GRAD")), one(g.product.input("Out@GRAD"))
            reads = {v for op in g.scores for v in op.contents()}
            inside = {a.raw, *(v for op in a.behind_scores for v in op.writes())}
            # Gradients that read scores get them from the raw ones again.
            again = () if reads.isdisjoint(inside) else a.behind_scores
            made.append(function_of("scores_grad", (*again, *g.scores), {a.raw: "s", inner: "d"}, last))
        return made

    # --------------------------------------------------------------------------------------------------------- parameters
    @property
    def tail(self) -> tuple[KernelParameter, ...]:
        """Parameters of what the functions on scores read."""
        found = [KernelParameter(self.names[v], "pointer", TYPES[o.dtype.name], v) for v, o in self.memory.items()]
        if self.drawn:
            found += [KernelParameter("rng", "pointer", "i64", RNG), KernelParameter("draws", "pointer", "i64", DRAWS)]
        return tuple(found)

    def pointer(self, name: str, value: str) -> KernelParameter:
        dtype = self.compute if isinstance(value, KernelLocal) else self.metas[value].dtype
        return KernelParameter(name, "pointer", TYPES[dtype.name], value)

    def placed(self, name: str, value: str | Layout) -> KernelParameter:
        """Returns the pointer to matrices, which may lie in another value's memory."""
        if not isinstance(value, Layout):
            value = self.layouts.get(value) or contiguous(value, self.metas[value].shape)
        self.places[name] = value
        return self.pointer(name, value.value)

    def sum_of(self, bias: str) -> Operand:
        number = [*self.biases.values()].index(bias)
        return Operand(f"bias{number}", bias, self.metas[bias].dtype, ())

    def call(self, name: str, *given: str, turned: bool = False) -> str:
        more = "".join(f", {p.name}" for p in self.tail)
        rows, columns = ("[None, :]", "[:, None]") if turned else ("[:, None]", "[None, :]")
        if any(one.name == name and one.draws_eights for one in self.inlined):
            more += f", eights{columns}, {turned}"
        return f"{name}({', '.join(given)}, batch, rows{rows}, columns{columns}{more})"

    def columns(self, first: str) -> list[str]:
        """Lines that number the keys of a block from a first one."""
        drawn = any(one.draws_eights for one in self.inlined)
        eights = [f"eights = {first} + {self.run} * tl.arange(0, COLUMNS // {self.run})"] if drawn else []
        return [f"columns = {first} + tl.arange(0, COLUMNS)", *eights]

    # ---------------------------------------------------------------------------------------------------------- the texts
    def load(self, name: str, batch: str, at: str, count: str, inner: str, length: str, *, whole: bool = False) -> str:
        """Returns the text that loads a block of rows of a matrix; ``whole``: all of them are there."""
        place = self.place(name, batch, at, inner)
        mask = f"({inner} < {length})[None, :]" if whole else self.inside(at, count, inner, length)
        text = f"tl.load({place}, mask={mask}, other=0)"
        elements = self.sizes.depth if length == self.size_texts.depth else self.sizes.width
        if whole and padded(elements) == elements:
            text = f"tl.load({place})"
        factor = self.places[name].factor
        if factor is None:
            return text
        return self.low(self._times(text, factor))

    def store(
        self, name: str, batch: str, at: str, count: str, inner: str, length: str, text: str, dtype: DType
    ) -> str:
        place, value = self.place(name, batch, at, inner), self.block(name, text, dtype)
        return f"tl.store({place}, {value}, mask={self.inside(at, count, inner, length)})"

    def block(self, name: str, text: str, dtype: DType) -> str:
        """Returns the text of a block as it is stored."""
        value = stored(Typed(text, self.compute), dtype, self.used)
        factor = self.places[name].factor
        if factor is None:
            return value
        # The op that multiplies reads what the gradient before it has stored.
        return stored(Typed(self._times(value, factor), self.compute), dtype, self.used)

    def inside(self, at: str, count: str, inner: str, length: str) -> str:
        return f"({at} < {count})[:, None] & ({inner} < {length})[None, :]"

    def _times(self, text: str, factor: float) -> str:
        # A function of its own: a variable here is called as the prelude's function.
        self.used.add("wide")
        self.multiplies = True
        return f"times({text}, {number(factor, self.compute)})"

    def place(self, name: str, batch: str, at: str, inner: str) -> str:
        """Returns the text of the pointers to a block of rows of a matrix."""
        layout = self.places[name]
        step = layout.strides[-2]
        row = f"{at}[:, None]" if layout.shape[-2] * step < 1 << 30 else f"{at}[:, None].to(tl.int64)"
        return f"{name} + {self.offset(name, batch)} + {row} * {self.row_step(name)} + {inner}[None, :]"

    def offset(self, name: str, batch: str) -> str:
        """Returns the text of the offset of a batch of the matrices at a pointer."""
        return batch_offset(self.places[name], batch, self.named, name.upper(), f"the matrices at {name}")

    def row_step(self, name: str) -> str:
        """Returns the name of the stride between rows of the matrices at a pointer."""
        return self.named(f"{name.upper()}_ROW", self.places[name].strides[-2], f"elements from row to row at {name}")

    def low(self, text: str) -> str:
        """Returns a block as the matrices' type holds it: an operand of the next product."""
        return stored(Typed(text, self.compute), self.dtype, self.used)

    @property
    def wide_offsets(self) -> str:
        s = self.sizes
        most = s.batches * max(s.rows * s.columns, s.rows * s.depth, s.rows * s.width, s.columns * s.depth)
        most = max(most, *(self.metas[at.value].numel for at in (self.out, *self.layouts.values())))
        return ".to(tl.int64)" if most >= 1 << 30 else ""

    def function(
        self, name: str, parameters: tuple[KernelParameter, ...], body: list[str]
    ) -> tuple[str, tuple[KernelParameter, ...]]:
        """Returns the text of a function, and its parameters."""
        self.all_parameters += [p for p in parameters if p.kind == "pointer"]
        return function(name, parameters, body, self.named), parameters

    def head(self) -> list[str]:
        return ["dims, wide = tl.arange(0, DEPTH), tl.arange(0, WIDTH)"]

    def product_text(self, rows: str, columns: str, turned: bool) -> str:
        """Returns the text of a block of a product, with an element for each score; turned, a row of it for each key."""
        a, b, shape = (columns, rows, "COLUMNS, ROWS") if turned else (rows, columns, "ROWS, COLUMNS")
        return f"{self.dot}({a}, tl.trans({b}), tl.zeros(({shape}), {LANGUAGE[self.compute.name]}))"

    def scored(self, turned: bool = False) -> list[str]:
        """Lines that make a block of scores; without their factor where powers take it in."""
        return [
            f"raw = {self.product_text('query', 'key', turned)}",
            "s = raw" if self.folded else f"s = {self.call('scores', 'raw', turned=turned)}",
        ]

    def stretched(self, top: str) -> str:
        """Returns the text of what multiplies the logarithm of a row's sum where it is saved beside the row's largest score.

        float64 cannot hold the sum of a score beyond 1e16, as masks with -1e30 make it, and such a logarithm. Stretched with the
        score, it stays in the bits that float32 has no room for: ``restored`` finds both again.
        """
        if self.compute.name != "float32":
            return ""
        return f" * ({self._exponent(top)} << 23).to(tl.float32, bitcast=True)"

    @staticmethod
    def _exponent(top: str) -> str:
        """Returns the text of the exponent of the power of 2 that a score is above 2^30, as float32 has it; that of 1 below."""
        return f"tl.maximum((({top}.to(tl.int32, bitcast=True) >> 23) & 255) - 30, 127)"

    def restored(self) -> list[str]:
        """Lines that take what was saved of rows, ``exact``, apart: the largest score, and the logarithm beside it."""
        kind = LANGUAGE[self.compute.name]
        lines = [f"saved = exact.to({kind})", f"rest = (exact - saved.to(tl.float64)).to({kind})"]
        if self.compute.name == "float32":
            # By its exponent: ptxas would join a product with each score's subtraction, at an FFMA a score.
            less = f"rest.to(tl.int32, bitcast=True) - (({self._exponent('saved')} - 127) << 23)"
            lines.append(f"rest = tl.where(rest == 0, rest, ({less}).to(tl.float32, bitcast=True))")
        return lines

    def scores_gradient(self, *, first_row: bool, turned: bool = False) -> str:
        """Returns the line that makes gradients of scores, ``ds``; in a row that sees one key they are exactly 0.

        Such a row's sum is the gradient of its only weight. Added up in another order, it would leave a rounding, of which Adam
        makes a full step. NaN and infinities that arrive are not hidden: what is 0 is multiplied by them, or taken from itself.

        Args:
            first_row: Whether the block may have the first query of a causal attention.
            turned: Whether the block has a row for each key.
        """
        each = "[None, :]" if turned else "[:, None]"
        if self.sizes.columns == 1:
            return "ds = p * (d - d)"
        sums = f"sums{each}"
        if next(one for one in self.inlined if one.name == "scores").read:
            # A mask in memory: the weight says what the row sees. Of rounded operands, scores made twice may differ a little.
            sums = f"tl.where(p >= {1 - 2.0**-16 if self.matrix_unit else 1.0!r}, d, {sums})"
        weight = f"tl.where((rows > 0){each}, p, 0.0)" if first_row and self.diagonal == 0 else "p"
        return f"ds = {weight} * (d - {sums})"

    def constants(self) -> tuple[KernelParameter, ...]:
        return tuple(KernelParameter(n, "constant") for n in ("ROWS", "COLUMNS", "DEPTH", "WIDTH"))

    # ----------------------------------------------------------------------------------------------------------- the kernel
    def texts(self, launched: Sequence[str]) -> list[str]:
        """Returns the functions that those that are launched call."""
        tail, text = [p.name for p in self.tail], "\n".join(launched)
        texts = [one.text(self.names, tail, self.used) for one in self.inlined if f"{one.name}(" in text]
        if self.multiplies:
            texts.insert(0, "@triton.jit\ndef times(a, b):\n    return wide(a) * b")
        return texts

    def blocks(self, table: Table, target: Target) -> tuple[Blocks, ...]:
        s = self.sizes
        head = max(s.depth, s.width)
        return blocks_of(table, target, head, s.rows, s.columns, self.dtype, self.variant)

    @property
    def variant(self) -> Variant:
        scores = self.sizes.rows * self.sizes.columns
        full = any(self.metas[o.value].numel >= scores for inlined in self.inlined for o in inlined.read)
        if self.tf32:
            return "tf32"
        if self.drawn:
            return "mixed drawn" if self.wide_softmax else "drawn"
        return "read" if full else "mixed" if self.wide_softmax else ""

    @property
    def matrix_unit(self) -> bool:
        """Whether matrix instructions make the products."""
        return self.tf32 or self.dtype.is_low

    @property
    def drawn(self) -> bool:
        return any(inlined.draws for inlined in self.inlined)

    def launch(
        self,
        name: str,
        parameters: tuple[KernelParameter, ...],
        blocks: Blocks,
        programs: int,
        batches: int,
        more: Mapping[str, int] | None = None,
    ) -> Launch:
        s = self.sizes
        constants = {
            "ROWS": blocks.rows, "COLUMNS": blocks.columns, "DEPTH": padded(s.depth), "WIDTH": padded(s.width),
            **(more or {}),
        }  # fmt: skip
        given, types = operands(parameters), argument_types(parameters)
        # Of a value that several matrices lie in, a launch may read or write some.
        elements: Counter[str] = Counter()
        for p in parameters:
            if p.name in self.places and self.places[p.name].value == p.operand:
                elements[p.operand] += math.prod(self.places[p.name].shape)
        parts = {v: n for v, n in elements.items() if n < self.metas[v].numel}
        return Launch(
            name, (programs, batches), given, constants, blocks.num_warps, types, stages=blocks.stages, elements=parts
        )

    def finished(
        self,
        template: str,
        texts: Sequence[str],
        parameters: tuple[KernelParameter, ...],
        body: Sequence[FrozenOp],
        ways: Callable[[Target], list[Launches]],
    ) -> Kernel:
        made = {v for op in body for v in op.writes()}
        named = dict.fromkeys(p.operand for p in self.all_parameters if not isinstance(p.operand, KernelLocal))
        memory = [
            tuple(KernelArgument(v, self.metas[v].dtype, self.metas[v].numel) for v in named if (v in made) == written)
            for written in (False, True)
        ]
        drawn = [inlined.group for inlined in self.inlined if inlined.group is not None and inlined.draws]
        tables = {DRAWS: drawing_table(drawn[0])} if drawn else {}

        def candidates(target: Target) -> list[Launches]:
            found = [replace(one, tables=tables) for one in ways(target)]
            return [uncontracted(one) for one in found] if rounds_apart(self.used) else found

        g = self.gradient
        fitting = fitting_result(body, g.mixed, self.out, str(self.lse), self.metas) if g is not None else None
        main = standalone_main(body, self.metas, numpy_matmul, fitting)
        kernel = as_kernel(
            template, body, self.metas, "\n\n\n".join([*self.texts(texts), *texts]), self.used, parameters,
            (memory[0], memory[1]),            lambda target: candidates(target)[0], main,
        )  # fmt: skip
        rounded = {
            v for one in self.inlined if one.group and one.casts_round for op, _ in one.group.ops for v in op.writes()
        }
        # Those between the products, and the one in front of what is saved.
        unrounded = tuple(v for op in body if op.type == "cast" for v in op.writes() if v not in rounded)
        return replace(kernel, alternatives=lambda target: tuple(candidates(target)[1:]), unrounded=unrounded)
