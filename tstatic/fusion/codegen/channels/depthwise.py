"""Depthwise convolution of ``relu(x)``, forward and backward: a stencil that takes relu as it loads, so it is never stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tstatic.fusion.codegen.channels.per_channel import LAST, Extent, Function, Tiling, extent_of, merging, tiling
from tstatic.fusion.codegen.kernel import Kernel, KernelArgument, KernelLocal, Launches, power_of_two
from tstatic.fusion.codegen.loops.lines import LANGUAGE
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported
from tstatic.fusion.codegen.text.emit import as_kernel
from tstatic.fusion.codegen.text.reference import Reference
from tstatic.fusion.codegen.text.script import standalone_main
from tstatic.fusion.codegen.text.size_names import SizeNames
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import DType, Meta
from tstatic.ops.conv._convolution import Window
from tstatic.target import Target

MOST_TAPS = 64
"""Places of a filter, times filters per channel: each is written out, and has a sum of its own in the filter's gradient."""

_TILE = ("ROWS", "COLUMNS")

FILTER = KernelLocal("partial:filter")
"""The strips' sums of the filter's gradient."""


def relu_depthwise_kernel(body: Sequence[FrozenOp], metas: Mapping[str, Meta], needed: Sequence[str]) -> Kernel:
    """Returns the kernel of ``conv(relu(x))``, or of its gradients for x and for the filter.

    Args:
        body: ``relu`` and the convolution; or ``relu``, the convolution's gradient and, where x's gradient is wanted,
            ``relu_grad``.
        metas: Metadata of all values; every size is known.
        needed: Values that are written to memory.

    Raises:
        CodegenUnsupported: If the filter is too large, or there are no elements.
    """
    return _Module(body, metas, needed).kernel()


@dataclass(frozen=True, slots=True)
class _Window:
    """Sizes and steps of a stencil from ``[h, w]`` to ``[oh, ow]``; ``times`` filters per channel."""

    h: int
    w: int
    oh: int
    ow: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    before: tuple[int, int]
    dilations: tuple[int, int]
    channels: int
    times: int
    last: bool

    @property
    def taps(self) -> list[tuple[int, int]]:
        return [(i, j) for i in range(self.kernel[0]) for j in range(self.kernel[1])]

    def side(self, sizes: SizeNames, small: bool) -> tuple[str, str, str]:
        """Returns the names of height, width and channels of the small (output) or large (input) side."""
        height, width = (self.oh, self.ow) if small else (self.h, self.w)
        count = self.channels * self.times if small else self.channels
        name, what = ("OUT", "result") if small else ("IN", "input")
        return (
            sizes(f"{name}_HEIGHT", height, f"rows of an image of the {what}"),
            sizes(f"{name}_WIDTH", width, f"columns of an image of the {what}"),
            sizes(f"{name}_CHANNELS", count, f"channels of the {what}"),
        )

    def steps(self, sizes: SizeNames) -> tuple[str, str]:
        """Returns the names of the strides down and to the right; "1" for none."""
        down, right = self.strides
        return (
            sizes("STEP_DOWN", down, "the stride from row to row of the result") if down > 1 else "1",
            sizes("STEP_RIGHT", right, "the stride from column to column") if right > 1 else "1",
        )

    def size(self, sizes: SizeNames) -> str:
        """Returns the name of the number of places of the filter."""
        return sizes("TAPS", len(self.taps), "places of the filter")

    def offset(self, sizes: SizeNames, image: str, row: str, column: str, channel: str, small: bool) -> str:
        """Returns offset of an element of the small (output) or large (input) side."""
        height, width, count = self.side(sizes, small)
        if self.last:
            return f"(({image} * {height} + {row}) * {width} + {column}) * {count} + {channel}"
        return f"(({image} * {count} + {channel}) * {height} + {row}) * {width} + {column}"


class _Module:
    """The functions of one direction."""

    def __init__(self, body: Sequence[FrozenOp], metas: Mapping[str, Meta], needed: Sequence[str]) -> None:
        self.body = body
        self.metas = metas
        self.needed = set(needed)
        self.relu, self.conv = body[0], body[1]
        self.x = _one(self.relu.input("X"))
        self.filter = _one(self.conv.input("Filter"))
        self.forward = not self.conv.type.endswith("_grad")
        # The side of the convolution's result: with a stride it has fewer rows and columns.
        self.small = _one(self.conv.output("Output") if self.forward else self.conv.input("Output@GRAD"))
        self.dtype: DType = metas[self.x].dtype
        self.compute: DType = self.dtype.compute
        self.real = LANGUAGE[self.compute.name]
        self.used: set[str] = set()
        self.functions: list[tuple[Function, tuple[str, ...], tuple[str, ...]]] = []
        self.window = self.read_window()
        layout = self.conv.attrs["data_format"]
        self.inner: Extent = extent_of(metas[self.small], layout)
        self.outer: Extent = extent_of(metas[self.x], layout)

    def read_window(self) -> _Window:
        attrs: Mapping[str, Any] = self.conv.attrs
        last = attrs["data_format"] in LAST
        x, small, w = (self.metas[v].shape for v in (self.x, self.small, self.filter))
        sizes = x[1:3] if last else x[2:]
        out = small[1:3] if last else small[2:]
        channels = x[3] if last else x[1]
        strides, pads, dilations, _ = Window(sizes, w[2:], attrs).plane(channels)
        times = w[0] // channels
        # Taps are written out, and live in registers.
        if w[2] * w[3] * times > MOST_TAPS:
            raise CodegenUnsupported(
                "NO_KERNEL_FORM", f"a filter of {w[2]} x {w[3]} is too large to be written out", self.conv
            )
        return _Window(
            sizes[0], sizes[1], out[0], out[1], (w[2], w[3]), (strides[0], strides[1]), (pads[0], pads[2]),
            (dilations[0], dilations[1]), channels, times, last,
        )  # fmt: skip

    def function(self, name: str, integers: tuple[str, ...], constants: tuple[str, ...]) -> Function:
        made = Function(name, self.compute, self.used)
        self.functions.append((made, integers, constants))
        return made

    # ------------------------------------------------------------------------------------------------------- the parts
    def places(self, f: Function, small: bool) -> list[str]:
        """Returns lines that say which image, row and column of a side the rows of a tile are."""
        height, width, _ = self.window.side(f.sizes, small)
        return [
            f"image = rows // ({height} * {width})",
            f"down = rows // {width} % {height}",
            f"right = rows % {width}",
        ]

    def sources(self, f: Function) -> Iterator[tuple[int, int, str, str]]:
        """Returns per place of the filter: row and column of the input for an output at ``down``, ``right``."""
        w = self.window
        down, right = w.steps(f.sizes)
        for i, j in w.taps:
            yield (
                i, j,
                _linear("down", down, i * w.dilations[0] - w.before[0]),
                _linear("right", right, j * w.dilations[1] - w.before[1]),
            )  # fmt: skip

    def loaded(self, f: Function, row: str, column: str) -> list[str]:
        """Returns lines that load ``relu(x)`` as ``a`` at a place that may lie in the padding."""
        w = self.window
        # Output channel c reads input channel c // times.
        channel = "columns[None, :]" if w.times == 1 else f"columns[None, :] // {self.filters(f)}"
        height, width, _ = w.side(f.sizes, small=False)
        self.used.add("_maximum")
        return [
            # Padding is 0 and relu(0) is 0, so what the mask hides needs no case of its own.
            f"there = mask & ({row} >= 0) & ({row} < {height}) & ({column} >= 0) & ({column} < {width})",
            f"source = {w.offset(f.sizes, 'image', row, column, channel, small=False)}",
            f"a = _maximum({f.read('x', self.x, self.dtype, 'source', 'there')}, 0.0)",
        ]

    def filters(self, f: Function) -> str:
        """Returns the name of the number of filters of each channel."""
        return f.sizes("FILTERS", self.window.times, "filters of each channel of the input")

    def weight(self, f: Function, i: int, j: int, channel: str = "columns") -> str:
        place = i * self.window.kernel[1] + j
        index = channel if len(self.window.taps) == 1 else f"{channel} * {self.window.size(f.sizes)} + {place}"
        return f.read("filters", self.filter, self.metas[self.filter].dtype, index)

    # --------------------------------------------------------------------------------------------------------- kernels
    def kernel(self) -> Kernel:
        if self.forward:
            main = self.output()
            return self.finish("relu_depthwise", lambda target: self.mapped(main, self.inner, target))
        dx = self.body[2].output("X@GRAD") if len(self.body) > 2 else None
        dw = self.conv.output("Filter@GRAD")
        # Two gradients are two loops over different sides, so that neither needs atomics.
        first = self.filter_gradient(_one(dw)) if isinstance(dw, str) and dw in self.needed else None
        second = self.input_gradient(_one(dx)) if isinstance(dx, str) and dx in self.needed else None
        assert first or second, "a gradient is asked for"

        def plan(target: Target) -> Launches:
            calls = [self.summed(*first, target)] if first else []
            calls += [self.mapped(second, self.outer, target)] if second else []
            partials = {n: p for one in calls for n, p in one.partials.items()}
            return Launches(tuple(launch for one in calls for launch in one.launches), partials)

        return self.finish("relu_depthwise_grad", plan)

    def mapped(self, f: Function, extent: Extent, target: Target) -> Launches:
        tiles = self.tall_enough(tiling(extent, target, sums=False, pieces=2), target, 128)
        return Launches((f.launch(tiles.grid, (tiles.strip,), tiles.constants),), {})

    def summed(self, sums: Function, merge: Function, target: Target) -> Launches:
        tiles = self.tall_enough(tiling(self.inner, target, sums=True, pieces=4), target, 64)
        grid, constants = merging(self.inner, tiles, target)
        size = self.window.kernel[0] * self.window.kernel[1]
        count = tiles.strips * self.inner.channels * size
        launches = (
            sums.launch(tiles.grid, (tiles.strip,), tiles.constants),
            merge.launch(grid, (tiles.strips,), constants),
        )
        return Launches(launches, {FILTER: (count, self.compute)})

    def tall_enough(self, tiles: Tiling, target: Target, registers: int) -> Tiling:
        """Returns smaller tiles for larger filters, whose values and sums are held in registers by every thread."""
        if target.large_programs or target.asks("ROWS"):
            return tiles
        # Of 64 taps each thread holds four times as much as of 16: a quarter of the rows.
        held = power_of_two(len(self.window.taps) * self.window.times, 16, 64)
        tall = power_of_two(128 * max(1, registers // held) // tiles.wide, 1, tiles.tall)
        return Tiling(tiles.wide, tall, tiles.strip, tiles.strips, tiles.blocks)

    def output(self) -> Function:
        """Writes ``out[o] = sum over the filter's places of relu(x) * filter``."""
        f = self.function("kernel", ("strip",), _TILE)
        f.add(*self.inner.columns(f.sizes), *self.inner.rows_from("tl.program_id(1)"))
        # The filter is loaded once, before the loop over the strip's tiles.
        f.add(*(f"w{k} = {self.weight(f, i, j)}" for k, (i, j) in enumerate(self.window.taps)))
        lines = [*self.places(f, small=True), f"total = tl.zeros((ROWS, COLUMNS), {self.real})"]
        for k, (_, _, row, column) in enumerate(self.sources(f)):
            lines += [*self.loaded(f, row, column), f"total += a * w{k}[None, :]"]
        lines.append(f.write("y", self.small, self.metas[self.small].dtype, "total", "offsets", "mask"))
        f.add(*self.inner.tiles(f.sizes, lines))
        return f

    def input_gradient(self, dx: str) -> Function:
        """Writes ``dx = sum over the outputs that read x of dout * filter``, where x is above 0."""
        w = self.window
        f = self.function("kernel", ("strip",), _TILE)
        f.add(*self.outer.columns(f.sizes), *self.outer.rows_from("tl.program_id(1)"))
        lines = [*self.places(f, small=False), f"total = tl.zeros((ROWS, COLUMNS), {self.real})"]
        height, width, _ = w.side(f.sizes, small=True)
        down, right = w.steps(f.sizes)
        # x is read by ``times`` output channels at each tap: dx gathers from them, where a scatter would need atomics.
        for q in range(w.times):
            channel = "columns" if w.times == 1 else f"(columns * {self.filters(f)} + {q})"
            for k, (i, j) in enumerate(w.taps):
                name = f"w{q * len(w.taps) + k}"
                f.add(f"{name} = {self.weight(f, i, j, channel)}")
                row, rest_row = _divided("down", w.before[0] - i * w.dilations[0], down)
                column, rest_column = _divided("right", w.before[1] - j * w.dilations[1], right)
                place = w.offset(
                    f.sizes, "image", "to_row", "to_column", channel.replace("columns", "columns[None, :]"), small=True
                )
                lines += [
                    f"to_row = {row}",
                    f"to_column = {column}",
                    f"there = mask & (to_row >= 0) & (to_row < {height}) & (to_column >= 0) & (to_column < {width})"
                    + rest_row + rest_column,
                    f"source = {place}",
                    f"d = {f.read('dout', self.small, self.metas[self.small].dtype, 'source', 'there')}",
                    # Where no output reads x the load gives 0, which times an infinite weight would be NaN.
                    f"total += tl.where(there, d * {name}[None, :], 0.0)",
                ]  # fmt: skip
        lines += [
            f"a = {f.read('x', self.x, self.dtype, 'offsets', 'mask')}",
            f.write("dx", dx, self.metas[dx].dtype, "tl.where(a > 0, total, 0.0)", "offsets", "mask"),
        ]
        f.add(*self.outer.tiles(f.sizes, lines))
        return f

    def filter_gradient(self, dw: str) -> tuple[Function, Function]:
        """Writes ``dfilter[i, j] = sum over outputs of dout * relu(x)``: by strip, then over strips in their order."""
        f = self.function("filters_sums", ("strip",), _TILE)
        size = len(self.window.taps)
        f.add(*self.inner.columns(f.sizes), *self.inner.rows_from("tl.program_id(1)"))
        # One tile of sums per tap, added up over the rows once, after the loop.
        f.add(*(f"t{k} = tl.zeros((ROWS, COLUMNS), {self.real})" for k in range(size)))
        lines = [
            *self.places(f, small=True),
            f"d = {f.read('dout', self.small, self.metas[self.small].dtype, 'offsets', 'mask')}",
        ]
        for k, (_, _, row, column) in enumerate(self.sources(f)):
            lines += [*self.loaded(f, row, column), f"t{k} += a * d"]
        f.add(*self.inner.tiles(f.sizes, lines))
        _, channels, _ = self.inner.named(f.sizes)
        for k in range(size):
            index = f"(tl.program_id(1) * {self.window.size(f.sizes)} + {k}) * {channels} + columns"
            f.add(f.write("p_filter", FILTER, self.compute, f"tl.sum(t{k}, 0)", index))
        # Strips in a fixed order: the result does not depend on who is done first.
        g = self.function("filters_merge", ("strips",), ("STRIPS", "COLUMNS"))
        g.add(
            *self.inner.columns(g.sizes), "which = tl.arange(0, STRIPS)[:, None]", "mask = (which < strips) & inside[None, :]"
        )  # fmt: skip
        dtype = self.metas[dw].dtype
        taps = self.window.size(g.sizes)
        for k in range(size):
            index = f"(which * {taps} + {k}) * {channels} + columns[None, :]"
            g.add(f"total = tl.sum({g.read('p_filter', FILTER, self.compute, index, 'mask')}, 0)")
            g.add(g.write("dfilters", dw, dtype, "total", f"columns * {taps} + {k}"))
        return f, g

    def finish(self, template: str, plan: Callable[[Target], Launches]) -> Kernel:
        functions = "\n\n\n".join(f.finished(i, c) for f, i, c in self.functions)
        main, integers, constants = self.functions[-1]
        read = {p.operand: None for f, _, _ in self.functions for p in f.pointers.values()}
        ins = [v for v in read if v not in self.needed and not isinstance(v, KernelLocal)]
        outs = [v for v in read if v in self.needed]
        memory = self.arguments(ins), self.arguments(outs)
        parameters = main.parameters(integers, constants)
        text = standalone_main(self.body, self.metas, self.reference)
        return as_kernel(template, self.body, self.metas, functions, self.used, parameters, memory, plan, text)

    def arguments(self, values: Sequence[str]) -> tuple[KernelArgument, ...]:
        return tuple(KernelArgument(v, self.metas[v].dtype, self.metas[v].numel) for v in values)

    def reference(self, reference: Reference, op: FrozenOp) -> None:
        """Writes the convolution by torch in float64, and its gradients by torch's differentiation."""
        w = self.window
        top, left = w.before
        # What the output's size leaves over at the end is padding.
        bottom, right = (
            (out - 1) * step + (taps - 1) * wide + 1 - size - before
            for out, step, taps, wide, size, before in zip(
                (w.oh, w.ow), w.strides, w.kernel, w.dilations, (w.h, w.w), w.before, strict=True
            )
        )
        reference.helpers["convolve"] = _CONVOLVE
        more = f"{(left, right, top, bottom)!r}, {w.strides!r}, {w.dilations!r}, {w.channels}, {w.last!r}"
        given = [reference.of(_one(op.input(s))).text for s in ("Input", "Filter")]
        if self.forward:
            reference.put(op.output("Output"), f"convolve({', '.join(given)}, None, {more})")
            return
        dy = reference.of(_one(op.input("Output@GRAD"))).text
        reference.lines.append(f"dx, dfilter = convolve({', '.join(given)}, {dy}, {more})")
        reference.put(op.output("Input@GRAD"), "dx")
        reference.put(op.output("Filter@GRAD"), "dfilter")


_CONVOLVE = '''
def convolve(x, filters, dy, pads, strides, dilations, groups, last):
    """A convolution, or with ``dy`` its gradients for both inputs."""
    x, filters = (torch.from_numpy(np.array(v, np.float64)).requires_grad_() for v in (x, filters))
    first = x.permute(0, 3, 1, 2) if last else x
    y = torch.nn.functional.conv2d(
        torch.nn.functional.pad(first, pads), filters, None, strides, 0, dilations, groups
    )
    y = y.permute(0, 2, 3, 1) if last else y
    if dy is None:
        return y.detach().numpy()
    return [g.numpy() for g in torch.autograd.grad(y, (x, filters), torch.from_numpy(np.array(dy, np.float64)))]
'''.strip()


def _linear(name: str, factor: str, offset: int) -> str:
    """Returns ``name * factor + offset``, without what does nothing."""
    text = name if factor == "1" else f"{name} * {factor}"
    return text if offset == 0 else f"({text} {'+' if offset > 0 else '-'} {abs(offset)})"


def _divided(name: str, offset: int, stride: str) -> tuple[str, str]:
    """Returns ``(name + offset) / stride``, and the condition that it is whole; the quotient counts where it is not negative."""
    text = _linear(name, "1", offset)
    if stride == "1":
        return text, ""
    # Triton divides towards zero: a negative number without rest stays negative.
    return f"{text} // {stride}", f" & ({text} % {stride} == 0)"


def _one(entry: object) -> str:
    assert isinstance(entry, str), "a slot that must hold one value"
    return entry
