"""Functions of a channel in two stages: each program sums a strip of rows, then one puts the strips of a channel together.

Each way to sum has lines before the loop over a strip's tiles (``begin``), in it (``tile``) and after it (``end``), and lines
that put the strips together (``merge``), which call the result of a function of a channel ``name_here``.
"""

from __future__ import annotations

from collections.abc import Mapping

from tstatic.fusion.codegen.channels.per_channel import Extent, Function
from tstatic.fusion.codegen.kernel import KernelLocal
from tstatic.fusion.codegen.loops.lines import LANGUAGE, number
from tstatic.ir.types import DType

TILE = ("ROWS", "COLUMNS")
MERGE = ("STRIPS", "COLUMNS")
LARGEST_SHIFT = {"float32": 1e18, "float64": 1e150}
"""Per type, a number whose square does not overflow."""


def partial(name: str) -> KernelLocal:
    """Returns memory that the launches of a module share."""
    return KernelLocal(f"partial:{name}")


def _zeros(f: Function, *names: str) -> list[str]:
    return [f"{name} = tl.zeros((ROWS, COLUMNS), {LANGUAGE[f.compute.name]})" for name in names]


def _write(f: Function, name: str, text: str) -> str:
    """Returns the store of a strip's partial result."""
    return f.write(f"p_{name}", partial(name), f.compute, text, "index")


def _read(f: Function, name: str) -> str:
    """Returns the load of all strips' partial results."""
    return f.read(f"p_{name}", partial(name), f.compute, "index", "mask")


class PlainSums:
    """Functions ``csum``.

    Args:
        texts: Name of each sum -> the text of an element.

    Attributes:
        per_strip: Names of partial results with one value per strip and channel.
        per_channel: Names of those with one value per channel.
    """

    per_channel = ()

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts
        self.per_strip = tuple(texts)

    def begin(self, f: Function) -> None:
        f.add(*_zeros(f, *(f"sum_{name}" for name in self.texts)))

    def tile(self) -> list[str]:
        return [f"sum_{name} += tl.where(mask, {text}, 0.0)" for name, text in self.texts.items()]

    def end(self, f: Function) -> None:
        f.add(*(_write(f, name, f"tl.sum(sum_{name}, 0)") for name in self.texts))

    def merge(self, f: Function) -> None:
        f.add(*(f"{name}_here = tl.sum({_read(f, name)}, 0)" for name in self.texts))


class Moments:
    """Mean and biased variance (``cmean``, ``cvar``) of the input ``x``: sums of squared deviations of strips, merged.

    B. P. Welford, 1962; T. F. Chan et al., 1979. Deviations are taken from a value near the channel's, its first: they are
    small where the mean is large.

    Args:
        extent: The data.
        value, dtype: The input in the program.
        names: Function -> name of its result.

    Attributes:
        per_strip, per_channel: As of :class:`PlainSums`.
    """

    per_strip = ("plain", "sum", "spread")
    per_channel = ("shift",)

    def __init__(self, extent: Extent, value: str, dtype: DType, names: Mapping[str, str]) -> None:
        self.extent, self.value, self.dtype, self.names = extent, value, dtype, names

    def begin(self, f: Function) -> None:
        _, _, inner = self.extent.named(f.sizes)
        index = "columns" if self.extent.inner == 1 else f"columns * {inner}"
        first = "inside & (tl.program_id(1) == 0)"
        f.add(
            f"first = {f.read('x', self.value, self.dtype, index)}",
            # A shift that is infinite would make the mean NaN, where numpy's is infinite; differences from a huge one overflow.
            f"shift = tl.where(tl.abs(first) < {LARGEST_SHIFT[f.compute.name]}, first, 0.0)",
            f.write("p_shift", partial("shift"), f.compute, "shift", mask=first),
            *_zeros(f, "plain", "total", "spread"),
            # One counter for all places: a place that the mask hides in
            # the last tile has a zero difference, and `end` counts anew.
            f"seen = tl.zeros((1, 1), {LANGUAGE[f.compute.name]})",
        )

    def tile(self) -> list[str]:
        return [
            "plain += x_here",
            "d = tl.where(mask, x_here - shift[None, :], 0.0)",
            # A reciprocal of the one counter and a product per element, instead of a division per element.
            "off = tl.where(mask, d - total * (1 / tl.where(seen > 0, seen, 1.0)), 0.0)",
            "spread += off * (off * (seen / (seen + 1)))",
            "total += d",
            "seen += 1",
        ]

    def end(self, f: Function) -> None:
        real = LANGUAGE[f.compute.name]
        f.add(
            f"count = tl.minimum({self.extent.named(f.sizes)[0]} - begin, strip)",
            # Row r of the tiles saw every ROWS-th row of the strip.
            f"n = ((count - tl.arange(0, ROWS) + (ROWS - 1)) // ROWS).to({real})[:, None]",
            # The places' sums are merged like strips are: each by its distance from the strip's mean.
            "here = tl.sum(total, 0)",
            f"off = total - n * (here[None, :] / count.to({real}))",
            "spread += tl.where(n > 0, off * (off / tl.where(n > 0, n, 1.0)), 0.0)",
            _write(f, "plain", "tl.sum(plain, 0)"),
            _write(f, "sum", "here"),
            _write(f, "spread", "tl.sum(spread, 0)"),
        )

    def merge(self, f: Function) -> None:
        values, _, _ = self.extent.named(f.sizes)
        count, real = number(float(self.extent.rows), f.compute), LANGUAGE[f.compute.name]
        strip = f"tl.minimum({values} - which.to({self.extent.offset_type}) * strip, strip)"
        f.add(
            f"shift = {f.read('p_shift', partial('shift'), f.compute)}",
            # 1 where there is no strip: its count may be 0, and the term below 0 * (0 / 0).
            f"n = tl.where(which < strips, {strip}, 1).to({real})",
            f"sums = {_read(f, 'sum')}",
            f"spread = {_read(f, 'spread')}",
            f"center = tl.sum(sums, 0) / {count}",
            "off = tl.where(mask, sums - n * center[None, :], 0.0)",
            f"{self.names['cvar']}_here = tl.sum(spread + off * (off / n), 0) / {count}",
            f"plain = {_read(f, 'plain')}",
            f"plain_mean = tl.sum(plain, 0) / {count}",
            # Differences from a value far from the mean have lost digits: then the plain sum is the better one.
            f"{self.names['cmean']}_here"
            " = tl.where(tl.abs(plain_mean) < tl.abs(plain_mean - shift), plain_mean, shift + center)",
        )
