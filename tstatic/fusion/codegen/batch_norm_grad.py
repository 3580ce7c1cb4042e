"""The gradient of a batch norm with ops per element before it: sums by strip, then the gradient of the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tstatic.fusion.codegen.kernel import Calls, Kernel
from tstatic.fusion.codegen.norm_module import MERGE, TILE, NormModule, one
from tstatic.fusion.codegen.per_channel import Function, merging, tiling
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import Meta


class Backward(NormModule):
    """``dz`` from what arrives; sums of ``dz`` and ``dz * (x - mean)``; then, from these, ``dx``.

    With ``m`` values per channel: ``dbias = sum(dz)``, ``dscale = sum(dz * (x - mean)) * inverse`` and
    ``dx = scale * inverse * (dz - dbias / m - (x - mean) * inverse * dscale / m)``; with given statistics
    ``dx = scale * inverse * dz``.
    """

    def __init__(self, body: Sequence[FrozenOp], metas: Mapping[str, Meta], needed: Sequence[str]) -> None:
        super().__init__(body[-1], body[:-1], body, metas, needed)
        self.dz = one(self.norm.input("Y@GRAD"))
        self.dx = self.wanted("X@GRAD")
        self.sums = bool(self.wanted("Scale@GRAD") or self.wanted("Bias@GRAD")) or not self.given

    def kernel(self) -> Kernel:
        channels, compute = self.extent.channels, self.compute
        if not self.sums:
            only = self.apply(first=True)

            def map_only(few: bool) -> Calls:
                tiles = tiling(self.extent, few, sums=False)
                return Calls((only.launch(tiles.grid, (tiles.strip,), tiles.constants),), {})

            return self.finish("batch_norm_grad", map_only)
        sums, merge = self.strips(), self.merge()
        main = self.apply(first=False) if self.dx and not self.given else None

        def plan(few: bool) -> Calls:
            tiles = tiling(self.extent, few, sums=True)
            grid, constants = merging(self.extent, tiles, few)
            launches = [
                sums.launch(tiles.grid, (tiles.strip,), tiles.constants),
                merge.launch(grid, (tiles.strips,), constants),
            ]
            partials = {self.partial(n): (tiles.strips * channels, compute) for n in ("sum", "along")}
            if main is not None:
                mapped = tiling(self.extent, few, sums=False)
                launches.append(main.launch(mapped.grid, (mapped.strip,), mapped.constants))
                partials |= {self.partial(n): (channels, compute) for n in ("level", "tilt")}
            return Calls(tuple(launches), partials)

        return self.finish("batch_norm_grad", plan)

    def start(self, f: Function, which: str) -> None:
        f.add(*self.extent.columns, *self.extent.rows_from(which))
        f.add(f"mean_here = {self.channel(f, 'SavedMean')}")

    def factor(self, f: Function) -> None:
        scale = self.channel(f, "Scale")
        f.add(f"factor = {self.channel(f, 'SavedVariance')}" + (f" * {scale}" if scale is not None else ""))

    def strips(self) -> Function:
        f = self.function("sums", ("strip",), TILE)
        self.start(f, "tl.program_id(1)")
        written = self.elements(f, {})
        dz = written.done[self.dz].text
        lines = [
            *written.lines,
            f"d = {f.read('x', self.x, self.dtype, 'offsets', 'mask')} - mean_here[None, :]",
            f"total += tl.where(mask, {dz}, 0.0)",
            f"along += tl.where(mask, {dz} * d, 0.0)",
            *self.stores(f, {v: written.done[v] for v in self.made}),
        ]
        if self.dx and self.given:
            # Given statistics do not depend on x: one pass does.
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
        """``dx``; ``first``: nothing ran before, so what else is needed is stored here."""
        f = self.function("kernel", ("strip",), TILE)
        which = "tl.program_id(1)" if first else "(tl.num_programs(1) - 1 - tl.program_id(1))"
        if first:
            f.add(*self.extent.columns, *self.extent.rows_from(which))
        else:
            self.start(f, which)
            for name in ("level", "tilt"):
                f.add(f"{name}_here = {f.read(name, self.partial(name), self.compute)}")
        self.factor(f)
        lines, dz = self.arriving(f, first)
        text = dz
        if not first:
            x = f.read("x", self.x, self.dtype, "offsets", "mask")
            lines.append(f"d = ({x} - mean_here[None, :]) * tilt_here[None, :] + level_here[None, :]")
            text = f"({dz} - d)"
        if self.dx:
            lines.append(self.store_dx(f, f"({text} * factor[None, :])"))
        f.add(*self.extent.tiles(lines))
        return f

    def arriving(self, f: Function, first: bool) -> tuple[list[str], str]:
        """Lines that give ``dz``, and its name; where the first pass stored it, it is loaded."""
        scratch = self.elements(Function("unused", self.compute, set()), {})
        same = [v for v in self.made if v in self.needed and scratch.done[v].text == scratch.done[self.dz].text]
        if same and not first:
            return [f"dz_here = {f.read('dz', same[0], self.metas[same[0]].dtype, 'offsets', 'mask')}"], "dz_here"
        written = self.elements(f, {})
        lines = list(written.lines)
        if first:
            lines += self.stores(f, {v: written.done[v] for v in self.made})
        return lines, written.done[self.dz].text

    def store_dx(self, f: Function, text: str) -> str:
        assert self.dx is not None
        return f.write("dx", self.dx, self.metas[self.dx].dtype, text, "offsets", "mask")
