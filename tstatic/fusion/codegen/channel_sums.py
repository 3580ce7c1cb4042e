"""Sums over channels in two stages: each program sums a strip of rows, then one program puts the strips of a channel together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from tstatic.fusion.codegen.kernel import KernelLocal
from tstatic.fusion.codegen.lines import LANGUAGE, number
from tstatic.fusion.codegen.per_channel import Extent, Function
from tstatic.ir.types import DType

TILE = ("ROWS", "COLUMNS")
MERGE = ("STRIPS", "COLUMNS")


def partial(name: str) -> KernelLocal:
    """Returns memory that the launches of a module share."""
    return KernelLocal(f"partial:{name}")


class ChannelSums(ABC):
    """How some functions of a channel are computed.

    Attributes:
        per_strip: Names of partial results with one value per strip and channel.
        per_channel: Names of those with one value per channel.
    """

    per_strip: Sequence[str] = ()
    per_channel: Sequence[str] = ()

    def __init__(self, extent: Extent, compute: DType) -> None:
        self.extent = extent
        self.compute = compute
        self.real = LANGUAGE[compute.name]

    @abstractmethod
    def begin(self, f: Function) -> None:
        """Adds lines before the loop over a strip's tiles."""

    @abstractmethod
    def tile(self) -> list[str]:
        """Returns lines that add a tile."""

    @abstractmethod
    def end(self, f: Function) -> None:
        """Adds lines that write a strip's partial results."""

    @abstractmethod
    def merge(self, f: Function) -> None:
        """Adds lines of the function that puts the strips together: ``name_here = ...`` for each function of a channel."""

    def zeros(self, *names: str) -> list[str]:
        """Returns lines of sums that begin."""
        return [f"{name} = tl.zeros((ROWS, COLUMNS), {self.real})" for name in names]

    def write(self, f: Function, name: str, text: str) -> str:
        """Returns the store of a strip's partial result."""
        return f.write(f"p_{name}", partial(name), self.compute, text, "index")

    def read(self, f: Function, name: str) -> str:
        """Returns the load of all strips' partial results."""
        return f.read(f"p_{name}", partial(name), self.compute, "index", "mask")


class PlainSums(ChannelSums):
    """Functions ``csum``.

    Args:
        extent: The data.
        compute: The type of computation.
        texts: Name of each sum -> the text of an element.
    """

    def __init__(self, extent: Extent, compute: DType, texts: Mapping[str, str]) -> None:
        super().__init__(extent, compute)
        self.texts = texts
        self.per_strip = tuple(texts)

    def begin(self, f: Function) -> None:
        f.add(*self.zeros(*(f"sum_{name}" for name in self.texts)))

    def tile(self) -> list[str]:
        return [f"sum_{name} += tl.where(mask, {text}, 0.0)" for name, text in self.texts.items()]

    def end(self, f: Function) -> None:
        f.add(*(self.write(f, name, f"tl.sum(sum_{name}, 0)") for name in self.texts))

    def merge(self, f: Function) -> None:
        f.add(*(f"{name}_here = tl.sum({self.read(f, name)}, 0)" for name in self.texts))


class Moments(ChannelSums):
    """Mean and biased variance (``cmean``, ``cvar``) of the input ``x``: sums of squared deviations of strips, merged.

    B. P. Welford, 1962; T. F. Chan et al., 1979. Deviations are taken from a value near the channel's, its first: they are
    small where the mean is large.

    Args:
        extent: The data.
        compute: The type of computation.
        value, dtype: The input ``x`` in the program.
        names: Function -> name of its result.
    """

    per_strip = ("plain", "sum", "spread")
    per_channel = ("shift",)

    def __init__(self, extent: Extent, compute: DType, value: str, dtype: DType, names: Mapping[str, str]) -> None:
        super().__init__(extent, compute)
        self.value, self.dtype, self.names = value, dtype, names

    def begin(self, f: Function) -> None:
        index = "columns" if self.extent.inner == 1 else f"columns * {self.extent.inner}"
        first = "inside & (tl.program_id(1) == 0)"
        f.add(
            f"first = {f.read('x', self.value, self.dtype, index)}",
            'shift = tl.where(tl.abs(first) < float("inf"), first, 0.0)',
            f.write("p_shift", partial("shift"), self.compute, "shift", mask=first),
            *self.zeros("plain", "total", "spread"),
            f"seen = tl.zeros((1, 1), {self.real})",
        )

    def tile(self) -> list[str]:
        return [
            "plain += x_here",
            "d = tl.where(mask, x_here - shift[None, :], 0.0)",
            "off = tl.where(mask, d - total * (1 / tl.where(seen > 0, seen, 1.0)), 0.0)",
            "spread += off * (off * (seen / (seen + 1)))",
            "total += d",
            "seen += 1",
        ]

    def end(self, f: Function) -> None:
        f.add(
            f"count = tl.minimum({self.extent.rows} - begin, strip)",
            # Row r of the tiles saw every ROWS-th row of the strip.
            f"n = ((count - tl.arange(0, ROWS) + (ROWS - 1)) // ROWS).to({self.real})[:, None]",
            "here = tl.sum(total, 0)",
            f"off = total - n * (here[None, :] / count.to({self.real}))",
            "spread += tl.where(n > 0, off * (off / tl.where(n > 0, n, 1.0)), 0.0)",
            self.write(f, "plain", "tl.sum(plain, 0)"),
            self.write(f, "sum", "here"),
            self.write(f, "spread", "tl.sum(spread, 0)"),
        )

    def merge(self, f: Function) -> None:
        rows, count = self.extent.rows, number(float(self.extent.rows), self.compute)
        f.add(
            f"shift = {f.read('p_shift', partial('shift'), self.compute)}",
            f"n = tl.where(which < strips, tl.minimum({rows} - which.to({self.extent.offset_type}) * strip, strip), 1)"
            f".to({self.real})",
            f"sums = {self.read(f, 'sum')}",
            f"spread = {self.read(f, 'spread')}",
            f"center = tl.sum(sums, 0) / {count}",
            "off = tl.where(mask, sums - n * center[None, :], 0.0)",
            f"{self.names['cvar']}_here = tl.sum(spread + off * (off / n), 0) / {count}",
            f"plain = {self.read(f, 'plain')}",
            f"plain_mean = tl.sum(plain, 0) / {count}",
            # Differences from a value far from the mean have lost digits: then the plain sum is the better one.
            f"{self.names['cmean']}_here = tl.where(tl.abs(plain_mean) < tl.abs(plain_mean - shift), plain_mean, shift + center)",
        )
