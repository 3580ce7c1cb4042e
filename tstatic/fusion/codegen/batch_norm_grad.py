"""The gradient of a batch norm with ops per element before it: sums by strip, then the gradient of the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tstatic.fusion.codegen.kernel import Kernel, KernelLocal, Launches
from tstatic.fusion.codegen.lines import Typed
from tstatic.fusion.codegen.norm_module import MERGE, TILE, NormModule, normalised, one
from tstatic.fusion.codegen.norm_reference import AGAIN
from tstatic.fusion.codegen.per_channel import Function, merging, tiling, uses_running_statistics
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import op_def
from tstatic.ir.types import Meta
from tstatic.target import Target

RECOMPUTES = "recomputes"
"""Mark among the attributes of an activation's gradient: its ``Out`` is the activation's of this norm's result.

Both passes over the data need the result's sign (relu) or value (sigmoid, tanh) and read ``x`` anyway, so they compute it again
from ``x`` instead of reading it: 5 streams instead of 7. A mask of one bit an element, written by the forward pass, would cost
2 % of its bytes in 16-bit types and as much here. The bits are those of the forward kernel, which uses the same statistics and
operations; a comparison rounds to 16 bits first, so a result that underflowed to 0 in memory counts as 0 here.
"""

_INNER = KernelLocal("partial:normalised")
"""What the norm's result is called; no value of a program is called so."""


class Backward(NormModule):
    """``dz`` from what arrives; sums of ``dz`` and ``dz * (x - mean)``; then, from these, ``dx``.

    With ``m`` values per channel: ``dbias = sum(dz)``, ``dscale = sum(dz * (x - mean)) * inverse`` and
    ``dx = scale * inverse * (dz - dbias / m - (x - mean) * inverse * dscale / m)``; with given statistics
    ``dx = scale * inverse * dz``.
    """

    def __init__(self, body: Sequence[FrozenOp], metas: Mapping[str, Meta], needed: Sequence[str]) -> None:
        norm, others, told = body[-1], list(body[:-1]), list(body)
        self.dz = one(norm.input("Y@GRAD"))
        self.sums = bool({"Scale@GRAD", "Bias@GRAD"} & _wanted(norm, needed)) or not uses_running_statistics(norm.attrs)
        first = others[0]
        # Without sums x is not read at all, and reading the result is as cheap.
        self.again = bool(first.attrs.get(RECOMPUTES)) and self.sums
        if self.again:
            forward = op_def(first.definition.of)
            result = one(first.input("Out"))
            metas = {**metas, _INNER: metas[result]}
            act = FrozenOp(forward, (_INNER,), (result,), first.attrs)
            others.insert(0, act)
            inner = tuple(norm.input(s.name) for s in AGAIN.inputs)
            told[:0] = [FrozenOp(AGAIN, inner, (_INNER,), norm.attrs), act]
        super().__init__(norm, others, body, metas, needed)
        self.told = told
        self.dx = self.wanted("X@GRAD")

    def kernel(self) -> Kernel:
        channels, compute = self.extent.channels, self.compute
        if not self.sums:
            only = self.apply(first=True)

            def map_only(target: Target) -> Launches:
                tiles = tiling(self.extent, target, sums=False)
                return Launches((only.launch(tiles.grid, (tiles.strip,), tiles.constants),), {})

            return self.finish("batch_norm_grad", map_only)
        sums, merge = self.strips(), self.merge()
        main = self.apply(first=False) if self.dx and not self.given else None
        tile = self.tile()

        def plan(target: Target) -> Launches:
            tiles = tiling(self.extent, target, sums=True, tile=tile)
            grid, constants = merging(self.extent, tiles, target)
            launches = [
                sums.launch(tiles.grid, (tiles.strip,), tiles.constants),
                merge.launch(grid, (tiles.strips,), constants),
            ]
            partials = {self.partial(n): (tiles.strips * channels, compute) for n in ("sum", "along")}
            if main is not None:
                mapped = tiling(self.extent, target, sums=False)
                launches.append(main.launch(mapped.grid, (mapped.strip,), mapped.constants))
                partials |= {self.partial(n): (channels, compute) for n in ("level", "tilt")}
            return Launches(tuple(launches), partials)

        return self.finish("batch_norm_grad", plan)

    def tile(self) -> int:
        """Returns elements per tile of the sums: what a thread holds without spilling, under both compilers and on all chips."""
        read = {o.value for o in self.group.inputs} - {_INNER}
        streams = len(read | {self.x}) + sum(v in self.needed for v in self.made)
        if self.extent.inner == 1:
            return 2048 if streams <= 4 else 1024
        # Offsets take registers, too; with five streams 16 bytes of each.
        return 2048 // self.dtype.itemsize if streams > 4 else 1024 if streams == 4 or self.again else 2048

    def start(self, f: Function, which: str) -> None:
        f.add(*self.extent.columns, *self.extent.rows_from(which))
        f.add(f"mean_here = {self.channel(f, 'SavedMean')}")
        if self.again:
            self.factor(f)
            bias = self.channel(f, "Bias")
            if bias is not None:
                f.add(f"base = {bias}")

    def factor(self, f: Function) -> None:
        scale = self.channel(f, "Scale")
        f.add(f"factor = {self.channel(f, 'SavedVariance')}" + (f" * {scale}" if scale is not None else ""))

    def centered(self, f: Function) -> list[str]:
        """Returns lines that give ``d``, the distance from the mean, and where it is asked for the normalised element."""
        lines = [f"d = {f.read('x', self.x, self.dtype, 'offsets', 'mask')} - mean_here[None, :]"]
        if self.again:
            lines.append(f"t = {normalised('d', 'factor', self.norm.input('Bias') is not None)}")
        return lines

    @property
    def known(self) -> dict[str, Typed]:
        """What the ops per element do not have to load."""
        return {_INNER: self.rounds("t")} if self.again else {}

    def strips(self) -> Function:
        f = self.function("sums", ("strip",), TILE)
        self.start(f, "tl.program_id(1)")
        written = self.elements(f, self.known)
        dz = written.done[self.dz].text
        lines = [
            *self.centered(f),
            *written.lines,
            f"total += tl.where(mask, {dz}, 0.0)",
            f"along += tl.where(mask, {dz} * d, 0.0)",
            *self.stores(f, {v: written.done[v] for v in self.made}),
        ]
        if self.dx and self.given:
            # Given statistics do not depend on x: one pass does.
            if not self.again:
                self.factor(f)
            lines.append(self.store_dx(f, f"({dz} * factor[None, :])"))
        f.add(
            f"total = tl.zeros((ROWS, COLUMNS), {self.real})",
            f"along = tl.zeros((ROWS, COLUMNS), {self.real})",
            *self.extent.tiles(lines),
            f"index = tl.program_id(1) * {self.extent.channels} + columns",
            f.write("p_sum", self.partial("sum"), self.compute, "tl.sum(total, 0)", "index"),
            f.write("p_along", self.partial("along"), self.compute, "tl.sum(along, 0)", "index"),
        )
        return f

    def merge(self) -> Function:
        f = self.function("merge", ("strips",), MERGE)
        rows = self.number(self.extent.rows)
        f.add(
            *self.extent.columns,
            "which = tl.arange(0, STRIPS)[:, None]",
            "mask = (which < strips) & inside[None, :]",
            f"index = which * {self.extent.channels} + columns[None, :]",
            f"inverse = {self.channel(f, 'SavedVariance')}",
            f"total = tl.sum({f.read('p_sum', self.partial('sum'), self.compute, 'index', 'mask')}, 0)",
            f"along = tl.sum({f.read('p_along', self.partial('along'), self.compute, 'index', 'mask')}, 0) * inverse",
        )
        self.put(f, "Scale@GRAD", "along")
        self.put(f, "Bias@GRAD", "total")
        if self.dx and not self.given:
            f.add(
                f.write("level", self.partial("level"), self.compute, f"(total / {rows})"),
                f.write("tilt", self.partial("tilt"), self.compute, f"(along * inverse / {rows})"),
            )
        return f

    def apply(self, first: bool) -> Function:
        """Writes ``dx``; ``first``: nothing ran before, so what else is needed is stored here."""
        f = self.function("kernel", ("strip",), TILE)
        which = "tl.program_id(1)" if first else "(tl.num_programs(1) - 1 - tl.program_id(1))"
        if first:
            f.add(*self.extent.columns, *self.extent.rows_from(which))
        else:
            self.start(f, which)
            for name in ("level", "tilt"):
                f.add(f"{name}_here = {f.read(name, self.partial(name), self.compute)}")
        if not self.again:
            self.factor(f)
        lines, dz = self.arriving(f, first)
        text = dz
        if not first:
            lines = [*self.centered(f), *lines, "d = d * tilt_here[None, :] + level_here[None, :]"]
            text = f"({dz} - d)"
        if self.dx:
            lines.append(self.store_dx(f, f"({text} * factor[None, :])"))
        f.add(*self.extent.tiles(lines))
        return f

    def arriving(self, f: Function, first: bool) -> tuple[list[str], str]:
        """Returns lines that give ``dz``, and its name; where the first pass stored it, it is loaded."""
        scratch = self.elements(Function("unused", self.compute, set()), self.known)
        same = [v for v in self.made if v in self.needed and scratch.done[v].text == scratch.done[self.dz].text]
        if same and not first:
            return [f"dz_here = {f.read('dz', same[0], self.metas[same[0]].dtype, 'offsets', 'mask')}"], "dz_here"
        written = self.elements(f, self.known)
        lines = list(written.lines)
        if first:
            lines += self.stores(f, {v: written.done[v] for v in self.made})
        return lines, written.done[self.dz].text

    def store_dx(self, f: Function, text: str) -> str:
        assert self.dx is not None
        return f.write("dx", self.dx, self.metas[self.dx].dtype, text, "offsets", "mask")


def _wanted(op: FrozenOp, needed: Sequence[str]) -> set[str]:
    """Returns output slots of an op whose values are needed."""
    return {
        s.name for s, e in zip(op.definition.outputs, op.outputs, strict=True) if isinstance(e, str) and e in needed
    }
