"""Batch norm with ops per element after it (forward) or before it (backward), as one module of a few kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tstatic.fusion.codegen.batch_norm_grad import Backward
from tstatic.fusion.codegen.kernel import Kernel, Launches
from tstatic.fusion.codegen.lines import Typed
from tstatic.fusion.codegen.norm_module import MERGE, TILE, NormModule, normalised, one, snake
from tstatic.fusion.codegen.per_channel import Function, merging, tiling
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import Meta
from tstatic.target import Target


def batch_norm_kernel(body: Sequence[FrozenOp], metas: Mapping[str, Meta], needed: Sequence[str]) -> Kernel:
    """Returns the kernel of a batch norm and of ops per element that follow it, or of such ops and a batch norm's gradient.

    Args:
        body: ``batch_norm`` first, or ``batch_norm_grad`` last.
        metas: Metadata of all values; every size is known.
        needed: Values that are written to memory.

    Raises:
        CodegenUnsupported: If the ops beside the batch norm do not work element by element on its shape.
    """
    if body[0].type == "batch_norm":
        return Forward(body, metas, needed).kernel()
    assert body[-1].type == "batch_norm_grad", "a batch norm begins or ends the group"
    return Backward(body, metas, needed).kernel()


class Forward(NormModule):
    """Statistics by strip, merged in a fixed order; then ``tail((x - mean) * inverse * scale + bias)``."""

    def __init__(self, body: Sequence[FrozenOp], metas: Mapping[str, Meta], needed: Sequence[str]) -> None:
        super().__init__(body[0], body[1:], body, metas, needed)

    def kernel(self) -> Kernel:
        if self.given:
            main = self.apply()

            def map_only(target: Target) -> Launches:
                tiles = tiling(self.extent, target, sums=False)
                return Launches((main.launch(tiles.grid, (tiles.strip,), tiles.constants),), {})

            return self.finish("batch_norm", map_only)
        statistics, merge, main = self.statistics(), self.merge(), self.apply()
        channels, compute = self.extent.channels, self.compute

        def plan(target: Target) -> Launches:
            tiles = tiling(self.extent, target, sums=True)
            grid, constants = merging(self.extent, tiles, target)
            mapped = tiling(self.extent, target, sums=False)
            partials = {self.partial(n): (tiles.strips * channels, compute) for n in ("plain", "sum", "spread")}
            partials[self.partial("shift")] = channels, compute
            partials |= {
                self.partial(slot): (channels, compute)
                for slot in ("SavedMean", "SavedVariance")
                if not self.wanted(slot)
            }
            return Launches(
                (
                    statistics.launch(tiles.grid, (tiles.strip,), tiles.constants),
                    merge.launch(grid, (tiles.strip, tiles.strips), constants),
                    main.launch(mapped.grid, (mapped.strip,), mapped.constants),
                ),
                partials,
            )

        return self.finish("batch_norm", plan)

    def shift(self, f: Function) -> list[str]:
        """Returns a value near the channel's, its first: differences from it are small where the mean is large."""
        index = "columns" if self.extent.inner == 1 else f"columns * {self.extent.inner}"
        return [
            f"first = {f.read('x', self.x, self.dtype, index)}",
            'shift = tl.where(tl.abs(first) < float("inf"), first, 0.0)',
        ]

    def statistics(self) -> Function:
        """Writes the sums and sums of squared deviations of each strip (B. P. Welford, 1962; T. F. Chan et al., 1979)."""
        f = self.function("statistics", ("strip",), TILE)
        f.add(*self.extent.columns, *self.extent.rows_from("tl.program_id(1)"), *self.shift(f))
        first = "inside & (tl.program_id(1) == 0)"
        f.add(f.write("p_shift", self.partial("shift"), self.compute, "shift", mask=first))
        f.add(
            *(f"{name} = tl.zeros((ROWS, COLUMNS), {self.real})" for name in ("plain", "total", "spread")),
            f"seen = tl.zeros((1, 1), {self.real})",
        )
        f.add(
            *self.extent.tiles([
                f"x_here = {f.read('x', self.x, self.dtype, 'offsets', 'mask')}",
                "plain += x_here",
                "d = tl.where(mask, x_here - shift[None, :], 0.0)",
                "off = tl.where(mask, d - total * (1 / tl.where(seen > 0, seen, 1.0)), 0.0)",
                "spread += off * (off * (seen / (seen + 1)))",
                "total += d",
                "seen += 1",
            ])
        )  # fmt: skip
        f.add(
            f"count = tl.minimum({self.extent.rows} - begin, strip)",
            # Row r of the tiles saw every ROWS-th row of the strip.
            f"n = ((count - tl.arange(0, ROWS) + (ROWS - 1)) // ROWS).to({self.real})[:, None]",
            "here = tl.sum(total, 0)",
            f"off = total - n * (here[None, :] / count.to({self.real}))",
            "spread += tl.where(n > 0, off * (off / tl.where(n > 0, n, 1.0)), 0.0)",
            f"index = tl.program_id(1) * {self.extent.channels} + columns",
            f.write("p_plain", self.partial("plain"), self.compute, "tl.sum(plain, 0)", "index"),
            f.write("p_sum", self.partial("sum"), self.compute, "here", "index"),
            f.write("p_spread", self.partial("spread"), self.compute, "tl.sum(spread, 0)", "index"),
        )
        return f

    def merge(self) -> Function:
        """Puts the strips together, and updates the running statistics: momentum weighs the old value."""
        f = self.function("merge", ("strip", "strips"), MERGE)
        rows, attrs = self.extent.rows, self.norm.attrs
        f.add(*self.extent.columns, f"shift = {f.read('p_shift', self.partial('shift'), self.compute)}")
        f.add(
            "which = tl.arange(0, STRIPS)[:, None]",
            "mask = (which < strips) & inside[None, :]",
            f"n = tl.where(which < strips, tl.minimum({rows} - which.to({self.extent.offset_type}) * strip, strip), 1)"
            f".to({self.real})",
            f"index = which * {self.extent.channels} + columns[None, :]",
            f"sums = {f.read('p_sum', self.partial('sum'), self.compute, 'index', 'mask')}",
            f"spread = {f.read('p_spread', self.partial('spread'), self.compute, 'index', 'mask')}",
            f"center = tl.sum(sums, 0) / {self.number(rows)}",
            "off = tl.where(mask, sums - n * center[None, :], 0.0)",
            f"variance_here = tl.sum(spread + off * (off / n), 0) / {self.number(rows)}",
            f"plain = {f.read('p_plain', self.partial('plain'), self.compute, 'index', 'mask')}",
            f"plain_mean = tl.sum(plain, 0) / {self.number(rows)}",
            # Differences from a value far from the mean have lost digits: then the plain sum is the better one.
            "mean_here = tl.where(tl.abs(plain_mean) < tl.abs(plain_mean - shift), plain_mean, shift + center)",
            f"inverse = 1 / tl.sqrt(variance_here + {self.number(attrs['epsilon'])})",
        )
        for slot, text in (("SavedMean", "mean_here"), ("SavedVariance", "inverse")):
            value = self.wanted(slot) or self.partial(slot)
            dtype = self.metas[value].dtype if value in self.metas else self.compute
            f.add(f.write(snake(slot), value, dtype, text))
        if self.wanted("MeanOut") or self.wanted("VarianceOut"):
            tensor = self.norm.input("MomentumTensor")
            if tensor is None:
                keep, rest = self.number(attrs["momentum"]), self.number(1 - float(attrs["momentum"]))
            else:
                dtype = self.metas[one(tensor)].dtype
                pointer = f.pointer("momentum", one(tensor), dtype)
                f.add(f"keep = tl.load({pointer}).to({self.real})")
                keep, rest = "keep", "(1 - keep)"
            for slot, out, text in (("Mean", "MeanOut", "mean_here"), ("Variance", "VarianceOut", "variance_here")):
                if self.wanted(out):
                    self.put(f, out, f"({self.channel(f, slot)} * {keep} + {text} * {rest})")
        return f

    def apply(self) -> Function:
        f = self.function("kernel", ("strip",), TILE)
        # Backwards: what the statistics read last may still be in the cache.
        which = "tl.program_id(1)" if self.given else "(tl.num_programs(1) - 1 - tl.program_id(1))"
        f.add(*self.extent.columns, *self.extent.rows_from(which))
        if self.given:
            f.add(
                f"mean_here = {self.channel(f, 'Mean')}",
                f"variance_here = {self.channel(f, 'Variance')}",
                f"slope = 1 / tl.sqrt(variance_here + {self.number(self.norm.attrs['epsilon'])})",
            )
            self.kept_statistics(f)
        else:
            for slot, name in (("SavedMean", "mean_here"), ("SavedVariance", "slope")):
                value = self.wanted(slot) or self.partial(slot)
                f.add(f"{name} = {f.read(snake(slot), value, self.compute)}")
        scale, bias = self.channel(f, "Scale"), self.channel(f, "Bias")
        if scale is not None:
            f.add(f"slope = slope * {scale}")
        if bias is not None:
            f.add(f"base = {bias}")
        inner = one(self.norm.output("Y"))
        text = normalised("(x_here - mean_here[None, :])", "slope", bias is not None)
        known = self.rounds("t")
        written = self.elements(f, {inner: known, self.x: Typed("x_here", self.compute)})
        f.add(
            *self.extent.tiles([
                f"x_here = {f.read('x', self.x, self.dtype, 'offsets', 'mask')}",
                f"t = {text}",
                *written.lines,
                *self.stores(f, {inner: known, **{v: written.done[v] for v in self.made}}),
            ])
        )  # fmt: skip
        return f

    def kept_statistics(self, f: Function) -> None:
        """Running statistics stay as they are; they have values of their own in the program, though."""
        results = (
            ("MeanOut", "mean_here"), ("VarianceOut", "variance_here"), ("SavedMean", "mean_here"), ("SavedVariance", "slope"),
        )  # fmt: skip
        if any(self.wanted(slot) for slot, _ in results):
            f.add("everywhere = inside", "inside = inside & (tl.program_id(1) == 0)")
            for slot, text in results:
                self.put(f, slot, text)
            f.add("inside = everywhere")
