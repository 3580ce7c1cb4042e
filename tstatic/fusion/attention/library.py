"""An attention whose products the device's library makes: of types that no matrix unit multiplies without rounding operands.

A few batches at a time: their scores lie in a buffer that the chip's cache holds, and a kernel along their rows makes weights of
them, or gradients. Neither scores nor weights are kept, as in the kernels of this package that make the products themselves.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tstatic.fusion.attention.module import AttentionModule
from tstatic.fusion.attention.tiles import padded
from tstatic.fusion.codegen.kernel import (
    KernelLocal,
    KernelParameter,
    Launch,
    Launches,
    LibraryProduct,
    Matrices,
    argument_types,
    operands,
    power_of_two,
    steps_of,
)
from tstatic.fusion.codegen.loops import sums
from tstatic.fusion.codegen.loops.lines import LANGUAGE, TYPES, nested, number
from tstatic.fusion.codegen.loops.loop_nest import Operand
from tstatic.fusion.codegen.matrix.layouts import Layout
from tstatic.fusion.codegen.text.emit import function
from tstatic.ir.types import DType, Shape
from tstatic.target import Target

MOST_BYTES = 1 << 28
"""Scores of one batch that are held at most: longer rows are left to kernels that hold none."""

SCORES = KernelLocal("partial:scores")
"""Scores of some batches; weights, in their place."""

GRADIENTS = KernelLocal("partial:gradients")
"""Gradients of these weights; of the scores, in their place."""

Parameters = tuple[KernelParameter, ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """A run of batches: the first index and how many along each dimension of the batches."""

    along: tuple[tuple[int, int], ...]
    first: int

    @property
    def count(self) -> int:
        return math.prod(n for _, n in self.along)


def cuts(batch: Shape, most: int) -> Iterator[Cut]:
    """Yields all batches in order, at most so many at a time, and at least one.

    Example:
        >>> [cut.along for cut in cuts((2, 3), 2)]
        [((0, 1), (0, 2)), ((0, 1), (2, 1)), ((1, 1), (0, 2)), ((1, 1), (2, 1))]
    """
    # The outermost dimension that is cut: those before it one index at a time, those behind it whole.
    axis = next((i for i in range(len(batch)) if math.prod(batch[i + 1 :]) <= most), len(batch) - 1)
    whole = tuple((0, n) for n in batch[axis + 1 :])
    step = max(1, most // math.prod(n for _, n in whole))
    if axis >= 0:
        # As many runs as that takes, of one length.
        step = math.ceil(batch[axis] / math.ceil(batch[axis] / step))
    first = 0
    for runs in itertools.product(*(_runs(n, step if i == axis else 1) for i, n in enumerate(batch[: axis + 1]))):
        cut = Cut((*runs, *whole), first)
        yield cut
        first += cut.count


def _runs(count: int, step: int) -> list[tuple[int, int]]:
    """Returns first index and length of runs of indices, in order."""
    return [(start, min(step, count - start)) for start in range(0, count, step)]


def part_of(layout: Layout, cut: Cut) -> Matrices:
    """Returns where a run of batches lies; a size of 1 is for all of them, and dimensions that are missing have size 1."""
    missing = len(cut.along) + 2 - len(layout.shape)
    for axis, (start, size) in enumerate(cut.along[max(0, missing) :]):
        if layout.shape[axis] > 1:
            layout = layout.cut(axis, start, size)
    return layout.matrices


class LibraryWay:
    """One way to make an attention, or its gradients.

    Args:
        module: Its sizes and its ops per element; gets the function along rows.
        wanted: Of the gradient: those among ``"dq"``, ``"dk"`` and ``"dv"`` that are wanted; of the attention itself nothing.
    """

    def __init__(self, module: AttentionModule, wanted: Collection[str] = ()) -> None:
        self.module, self.places, self.wanted = module, module.places, wanted
        self.through_scores = {"dq", "dk"}.intersection(wanted)
        s = module.sizes
        # Where heads share keys, gradients would have to be added up over the heads.
        shared = s.keys != s.batch and bool(self.wanted)
        held = s.rows * s.columns * module.dtype.itemsize
        one_factor, *self.factors = self._factors()
        self.offered = not (module.matrix_unit or shared) and held <= MOST_BYTES and one_factor
        self.parameters: Parameters = ()
        self.strips: Parameters = ()

    # ------------------------------------------------------------------------------------------------------------ factors
    def _factor(self, *names: str) -> float:
        return math.prod(self.places[n].factor or 1.0 for n in names if n in self.places)

    def _factors(self) -> tuple[bool, float, float, float, float]:
        """Returns by what scores, weights, their gradients and those of scores are multiplied, as the library multiplies by none.

        The first result is whether queries and keys take gradients of scores with one factor.
        """
        if not self.wanted:
            return True, self._factor("q", "k"), self._factor("v", "out"), 1.0, 1.0
        both = {self._factor(name, other) for name, other in (("dq", "k"), ("dk", "q")) if name in self.wanted} or {1.0}
        return (
            len(both) == 1,
            self._factor("q", "k"),
            self._factor("given", "dv"),
            self._factor("given", "v"),
            both.pop(),
        )

    @staticmethod
    def _times(text: str, factor: float, kind: DType) -> str:
        return text if factor == 1 else f"({text}) * {number(factor, kind)}"

    # ---------------------------------------------------------------------------------------------------------- the texts
    def texts(self) -> list[str]:
        """Returns the functions that are launched between the products."""
        if not self.offered:
            return []
        text, self.parameters = self._gradient_rows() if self.wanted else self._weight_rows()
        texts = [text]
        if self.module.biases:
            text, self.strips = self._strip_sums()
            texts.append(text)
        return texts

    def _shared_parameters(self) -> list[KernelParameter]:
        """Parameters of both functions, behind their buffers."""
        m = self.module
        lse = [m.pointer("lse", m.lse)] if m.lse is not None else []
        ends = [
            KernelParameter("first", "integer", "i32"),
            *(KernelParameter(n, "constant") for n in ("ROWS", "COLUMNS")),
        ]
        return [*lse, *m.tail, *ends]

    def _head(self) -> list[str]:
        m, t = self.module, self.module.size_texts
        return [
            f"own = tl.program_id(1){m.wide_offsets}",
            "batch = first + own",
            "rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)",
            f"begin = own * ({t.rows} * {t.columns}) + rows * {t.columns}",
        ]

    def _block(self, start: str) -> list[str]:
        """Lines that load a block of scores, from a column on: those that count, and what they are."""
        m, t = self.module, self.module.size_texts
        below = "" if m.diagonal is None else f" & (columns[None, :] <= rows[:, None] + {m.last_seen})"
        return [
            *m.columns(start),
            f"inside = (columns < {t.columns})[None, :] & (rows < {t.rows})[:, None]",
            f"seen = inside{below}",
            f"raw = {self._times(self._loaded('scores_at'), self.factors[0], m.compute)}",
            f's = tl.where(seen, {m.call("scores", "raw")}, float("-inf"))',
        ]

    @staticmethod
    def _loaded(pointer: str) -> str:
        # All that there is, seen or not: with a mask that differs from column to column loads would be narrow.
        return f"tl.load({pointer} + begin[:, None] + columns[None, :], mask=inside, other=0)"

    @staticmethod
    def _kept(pointer: str, text: str) -> str:
        return f"tl.store({pointer} + begin[:, None] + columns[None, :], {text}, mask=inside)"

    def _until(self) -> str:
        """The end of the columns that a block of rows sees."""
        m, t = self.module, self.module.size_texts
        if m.diagonal is None:
            return t.columns
        return f"tl.minimum((tl.program_id(0) + 1) * ROWS + {m.last_seen}, {t.columns})"

    def _weight_rows(self) -> tuple[str, Parameters]:
        """Weights of scores, in their place, and the logarithm of each row's sum of powers."""
        m, t, kind = self.module, self.module.size_texts, LANGUAGE[self.module.compute.name]
        parameters = (m.pointer("scores_at", SCORES), *self._shared_parameters())
        used = self._times(m.call("weights", "p"), self.factors[1], m.compute)
        body = [
            *self._head(),
            f'top = tl.full((ROWS,), float("-inf"), {kind})',
            f"total = tl.zeros((ROWS,), {kind})",
            *nested(
                f"for start in range(0, {self._until()}, COLUMNS):",
                [
                    *self._block("start"),
                    "peak = tl.maximum(top, tl.max(s, 1))",
                    # A row without scores has none to subtract: -inf less -inf is NaN.
                    'shift = tl.where(peak == float("-inf"), 0.0, peak)',
                    "total = total * tl.exp(top - shift) + tl.sum(tl.exp(s - shift[:, None]), 1)",
                    "top = peak",
                ],
            ),
            # A second pass over the columns: only now are the largest score and the sum known.
            'shift = tl.where(top == float("-inf"), 0.0, top)',
            *nested(
                f"for start in range(0, {t.columns}, COLUMNS):",
                [
                    *self._block("start"),
                    "p = tl.exp(s - shift[:, None]) / total[:, None]",
                    self._kept("scores_at", used),
                ],
            ),
        ]
        if m.lse is not None:
            text = f"top.to(tl.float64) + (tl.log(total){m.stretched('top')}).to(tl.float64)"
            body.append(f"tl.store(lse + batch * {t.rows} + rows, {text}, mask=rows < {t.rows})")
        return m.function("weight_rows", parameters, body)

    def _gradient_rows(self) -> tuple[str, Parameters]:
        """What the last product took of the weights, in the place of scores, and gradients of scores in that of weights'."""
        m, t = self.module, self.module.size_texts
        buffers, sizes = [m.pointer("scores_at", SCORES)], list[KernelParameter]()
        if self.through_scores:
            read = (("out", m.out), ("given", self.places["given"]))
            buffers += [m.pointer("d_at", GRADIENTS), *(m.placed(name, place) for name, place in read)]
            sizes.append(KernelParameter("WIDTH", "constant"))
        parameters = (*buffers, *self._shared_parameters(), *sizes)
        # The library multiplies what a row does not see, too: its gradients there count as 0.
        given = f"tl.where(seen, {self._times(self._loaded('d_at'), self.factors[2], m.compute)}, 0.0)"
        body = [
            *self._head(),
            f"exact = tl.load(lse + batch * {t.rows} + rows, mask=rows < {t.rows}, other=0)",
            *m.restored(),
        ]
        loop = [
            *self._block("start"),
            "# Products take all of a row: of one that is NaN, what it does not see is 0 all the same.",
            "p = tl.where(seen, tl.exp(s - saved[:, None] - rest[:, None]), 0.0)",
        ]
        if self.through_scores:
            body += [
                "wide = tl.arange(0, WIDTH)",
                f"result = {m.load('out', 'batch', 'rows', t.rows, 'wide', t.width)}",
                f"sums = sum_products(result, {m.load('given', 'batch', 'rows', t.rows, 'wide', t.width)})",
            ]
            loop += [
                f"d = {given}",
                f"d = {m.call('weights_grad', 'd')}",
                m.scores_gradient(first_row=True),
                f"ds = {self._times(m.call('scores_grad', 'raw', 'ds'), self.factors[3], m.compute)}",
                self._kept("d_at", "ds"),
            ]
        if "dv" in self.wanted:
            # Behind the gradients: they read the scores that this replaces.
            loop.append(self._kept("scores_at", self._times(m.call("weights", "p"), self.factors[1], m.compute)))
        body += nested(f"for start in range(0, {t.columns}, COLUMNS):", loop)
        return m.function("gradient_rows", parameters, body)

    def _strip_sums(self) -> tuple[str, Parameters]:
        """Sums over strips of the rows of a value that gradients lie in."""
        m = self.module
        first = next(iter(m.biases))
        kind = m.metas[first].dtype
        parameters = (
            KernelParameter("x", "pointer", TYPES[kind.name], first),
            KernelParameter("p", "pointer", TYPES[kind.compute.name], sums.partial(m.sum_of(m.biases[first]))),
            KernelParameter("count", "integer", "i32"),
            KernelParameter("kept", "integer", "i32"),
            *sums.STRIP,
        )
        tile = [
            "inside_strip = (inside[:, None] < strip) & (rows < count) & (columns < kept)[None, :]",
            "total += tl.sum(tl.load(x + rows * kept + columns[None, :], mask=inside_strip, other=0), 0)",
        ]
        body = [
            "columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)",
            f"total = tl.zeros((COLUMNS,), {LANGUAGE[kind.compute.name]})",
            *sums.over_strip(0, "tl.int64", tile),
            "tl.store(p + tl.program_id(0) * kept + columns, total, mask=columns < kept)",
        ]
        return function("strip_sums", parameters, body), parameters

    # ------------------------------------------------------------------------------------------------------- the launches
    def launches(self, target: Target) -> list[Launches]:
        """Returns the way; none where the library cannot make the products as they lie."""
        if not self.offered:
            return []
        m, s = self.module, self.module.sizes
        each = s.rows * s.columns * m.dtype.itemsize
        # The gradient of values needs the weights alone, and no gradient of theirs.
        buffers = 2 if self.through_scores else 1
        # Products write what the next launch reads: of the cache, a part is theirs.
        chosen = [*cuts(s.batch, max(1, target.l2_bytes // (2 * buffers * each)))]
        # Runs take turns in buffers of the largest one's size.
        most = max(cut.count for cut in chosen)
        partials = {SCORES: (most * s.rows * s.columns, m.compute)}
        if buffers > 1:
            partials[GRADIENTS] = partials[SCORES]
        launches = [launch for cut in chosen for launch in self._of_cut(cut, target)]
        for value, bias in m.biases.items():
            added = self._summed(value, m.sum_of(bias), target)
            launches += added.launches
            partials |= added.partials
        return [Launches(tuple(launches), partials, name="library")]

    def among(self, generated: list[Launches], target: Target) -> list[Launches]:
        """Returns all ways, the one to be taken where nothing was timed first: the library's on a chip, where it is offered."""
        own = self.launches(target)
        # Who asks for blocks means the kernels that have some, and an interpreter is there to run these.
        first = target.large_programs or target.asks("ROWS", "COLUMNS")
        return generated + own if first else own + generated

    def _of_cut(self, cut: Cut, target: Target) -> list[Launch | LibraryProduct]:
        s = self.module.sizes
        r, c, depth, width = s.rows, s.columns, s.depth, s.width
        scores = self._product("q", "k", SCORES, (r, c, depth), cut, trans_b=True)
        if not self.wanted:
            mixed = self._product(SCORES, "v", "out", (r, width, c), cut)
            return [scores, self._rows_launch("weight_rows", cut, target), mixed]
        made: list[Launch | LibraryProduct] = [scores]
        if self.through_scores:
            # Both products before the launch between, which reads scores and gradients together.
            made.append(self._product("given", "v", GRADIENTS, (r, c, width), cut, trans_b=True))
        made.append(self._rows_launch("gradient_rows", cut, target))
        if "dv" in self.wanted:
            made.append(self._product(SCORES, "given", "dv", (c, width, r), cut, trans_a=True))
        if "dk" in self.wanted:
            made.append(self._product(GRADIENTS, "q", "dk", (c, depth, r), cut, trans_a=True))
        if "dq" in self.wanted:
            made.append(self._product(GRADIENTS, "k", "dq", (r, depth, c), cut))
        return made

    def _product(
        self,
        a: str,
        b: str,
        out: str,
        sizes: tuple[int, int, int],
        cut: Cut,
        *,
        trans_a: bool = False,
        trans_b: bool = False,
    ) -> LibraryProduct:
        s = self.module.sizes
        # In buffers the matrices of a run lie one behind the other.
        held = Matrices(shape := (*(n for _, n in cut.along), s.rows, s.columns), steps_of(shape))

        def value(name: str) -> str:
            return name if isinstance(name, KernelLocal) else self.places[name].value

        batched = tuple(held if isinstance(n, KernelLocal) else part_of(self.places[n], cut) for n in (a, b, out))
        return LibraryProduct(
            value(a), value(b), value(out), sizes, trans_a, trans_b, self.module.dtype, batched=batched
        )

    def _rows_launch(self, name: str, cut: Cut, target: Target) -> Launch:
        m, s = self.module, self.module.sizes
        if target.large_programs:
            # Two blocks along each axis, so that tests in the interpreter see borders.
            rows, columns = (power_of_two(-(-n // 2), 16, 128) for n in (s.rows, s.columns))
        else:
            # Eight scores a thread of four warps.
            columns = power_of_two(s.columns, 16, 512)
            rows = power_of_two(s.rows, 1, 1024 // columns)
        constants = {"ROWS": rows, "COLUMNS": columns}
        named = operands(self.parameters)
        read = {m.lse: cut.count * s.rows} if m.lse is not None else {}
        if self.wanted and self.through_scores:
            constants["WIDTH"] = padded(s.width)
            read |= dict.fromkeys((m.out.value, self.places["given"].value), cut.count * s.rows * s.width)
        return Launch(
            name, (math.ceil(s.rows / rows), cut.count), (*named, cut.first), constants,
            types=argument_types(self.parameters), elements=read,
        )  # fmt: skip

    def _summed(self, value: str, operand: Operand, target: Target) -> Launches:
        """Returns the launches that sum the rows of a value."""
        kept = self.module.metas[operand.value].numel
        count = self.module.metas[value].numel // kept
        if target.large_programs:
            rows, columns, strips = power_of_two(-(-count // 4), 1, 128), power_of_two(-(-kept // 2), 1, 1 << 16), 2
        else:
            rows, columns, strips = 16, power_of_two(kept, 1, 128), min(64, math.ceil(count / 16))
        strip = math.ceil(count / strips)
        arguments = (value, sums.partial(operand), count, kept, strip)
        main = Launch(
            "strip_sums", (strips, math.ceil(kept / columns)), arguments, {"ROWS": rows, "COLUMNS": columns},
            types=argument_types(self.strips),
        )  # fmt: skip
        return sums.finished(main, [operand], strips, kept, target)
