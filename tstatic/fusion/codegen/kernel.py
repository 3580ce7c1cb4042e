"""A generated kernel as data: its text, its parameters, the memory that it touches, and how it is launched."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tstatic.display import preformatted, size
from tstatic.fusion.codegen.text.docstring import Told, docstring
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import DType, Meta, Shape
from tstatic.locks import cached_property
from tstatic.target import CHIPS, DEFAULT_TARGET, TINY, Target


class KernelLocal(str):
    """The name of a buffer or table that a kernel's launches share.

    It equals no value of the program, whatever the user's variables are called: only another ``KernelLocal`` of the same text.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KernelLocal) and str.__eq__(self, other)

    # ``str`` has an ``__ne__`` of its own, which would compare the texts.
    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((KernelLocal, str.__hash__(self)))


RNG = KernelLocal("rng")
"""What decides the random numbers of a step, two 64-bit integers that the device holds (``kernel_numbers``). Whoever launches
kernels that draw writes them before each step, so that a new step compiles nothing."""

STOPPED = KernelLocal("stopped")
"""A truth value that the device holds: whether the step met a bad index or label, so that updates are to change nothing. Whoever
launches updates gives it; it is false where the host stops the step itself."""

DRAWS = KernelLocal("draws")
"""A table with two integers per op that draws: its number in the program, and its own seed (0: the program's)."""


ParameterKind = Literal["pointer", "integer", "constant"]
"""``pointer``: an array's address. ``integer``: a number that each launch passes. ``constant``: a ``tl.constexpr``, which the
compiler knows."""


@dataclass(frozen=True, slots=True)
class KernelParameter:
    """One parameter of a kernel, in order.

    Attributes:
        name: Its name.
        kind: What is passed.
        type: Triton's type of the element or the integer; empty for a constant.
        operand: The value that a pointer leads to; a :class:`KernelLocal` for partial sums or a table.
    """

    name: str
    kind: ParameterKind
    type: str = ""
    operand: str = ""


Call = tuple[str, tuple[int, ...], tuple[str | int | float, ...], Mapping[str, int], Mapping[str, int | bool]]
"""Function, grid, arguments, constants, options of the compiler."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One call.

    Attributes:
        function: Name in the module.
        grid: Number of programs per axis.
        arguments: Values of the program, names of partial buffers or tables, or numbers, in the order of the function's
            parameters.
        constants: ``tl.constexpr`` parameters.
        num_warps: Warps per program.
        types: Triton's types of the arguments (``*fp32``, ``i32``); empty for the main function, whose parameters say it.
        contract: Whether the compiler may make one operation with one rounding of a product and a sum; not where the bits
            must be those of the two.
        stages: Depth of the software pipeline of the main loop; 0 leaves it to the compiler.
        elements: Argument -> how many of its elements it reads or writes, where that is not all of them.
        finishes: Whether it only adds partial sums: its arguments are then a buffer of these and a result, for each result, and
            how many strips and columns they have.
    """

    function: str
    grid: tuple[int, ...]
    arguments: tuple[str | int | float, ...]
    constants: Mapping[str, int]
    num_warps: int = 4
    types: tuple[str, ...] = ()
    contract: bool = True
    stages: int = 0
    elements: Mapping[str, int] = field(default_factory=dict)
    finishes: bool = False

    @property
    def options(self) -> dict[str, int | bool]:
        """What the call says to Triton's compiler, beside the constants."""
        # Defaults are left out: options are part of the key under which Triton caches what it compiled.
        found: dict[str, int | bool] = {"num_warps": self.num_warps}
        if self.stages:
            found["num_stages"] = self.stages
        return found if self.contract else {**found, "enable_fp_fusion": False}

    @property
    def call(self) -> Call:
        """What a device takes."""
        return self.function, self.grid, self.arguments, self.constants, self.options


@dataclass(frozen=True, slots=True)
class Matrices:
    """Where matrices lie in a value's memory.

    Attributes:
        shape: Dimensions of batches, then rows and columns.
        strides: Elements between neighbours along each dimension; 0 where several share one.
        offset: The first element's place.
    """

    shape: Shape
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def lie_together(self) -> bool:
        """Whether they are one run of memory from the value's first element on."""
        return not self.offset and self.strides == steps_of(self.shape)

    def seen(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Returns them as a view of an array that is contiguous."""
        flat = array.reshape(-1)[self.offset :]
        return as_strided(flat, self.shape, [flat.itemsize * step for step in self.strides])


@dataclass(frozen=True, slots=True)
class LibraryProduct:
    """Matrix products that the device's library makes, between the launches of a kernel: ``out = op(a) @ op(b) + addend``.

    Attributes:
        a, b, out: Values of the program, or names of partial buffers.
        sizes: Rows, columns and depth of the product.
        trans_a, trans_b: Whether the memory of ``a`` is ``[depth, rows]``, that of ``b`` ``[columns, depth]``.
        dtype: The type of ``a``, ``b``, ``addend`` and ``out``.
        addend: One number per column, or per element; empty for none.
        addend_rows: 1, or as many as ``out`` has.
        batched: Where the matrices of ``a``, ``b`` and ``out`` lie, if there are several of each; without it there is one of each,
            and it lies together.
    """

    a: str
    b: str
    out: str
    sizes: tuple[int, int, int]
    trans_a: bool
    trans_b: bool
    dtype: DType
    addend: str = ""
    addend_rows: int = 1
    batched: tuple[Matrices, ...] = ()

    function = "library product"
    """As reports call it."""

    grid = (1,)
    constants: ClassVar[Mapping[str, int]] = {}

    @property
    def arguments(self) -> tuple[str, ...]:
        """What it reads and writes."""
        return (self.a, self.b, self.addend, self.out) if self.addend else (self.a, self.b, self.out)

    @property
    def addend_shape(self) -> tuple[int, ...]:
        """``[columns]``, or ``[rows, columns]``."""
        return self.sizes[1:2] if self.addend_rows == 1 else self.sizes[:2]

    @property
    def matrices(self) -> tuple[tuple[str, Matrices], ...]:
        """``a``, ``b`` and ``out``, each with the place of its matrices in memory."""
        rows, columns, depth = self.sizes
        a = (depth, rows) if self.trans_a else (rows, depth)
        b = (columns, depth) if self.trans_b else (depth, columns)
        places = self.batched or tuple(Matrices(shape, steps_of(shape)) for shape in (a, b, (rows, columns)))
        return tuple(zip((self.a, self.b, self.out), places, strict=True))

    @property
    def count(self) -> int:
        """How many products it makes."""
        return math.prod(self.batched[2].shape[:-2]) if self.batched else 1


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """64-bit integers that a kernel looks up: where values lie in memory, or fixed numbers.

    Attributes:
        values: Values whose addresses the table holds; known when memory is.
        numbers: Otherwise what it holds.
        text: Python that makes the numbers from ``SIZES``, in the part that runs alone; without it they are written out.
    """

    values: tuple[str, ...] = ()
    numbers: np.ndarray[Any, Any] | None = None
    text: str = ""

    @property
    def nbytes(self) -> int:
        return 8 * (len(self.values) if self.numbers is None else int(self.numbers.size))

    def filled(self, arrays: Mapping[str, Any], span: Callable[[Any], tuple[int, int]]) -> np.ndarray[Any, Any]:
        """Returns the table's content, for values that lie in these arrays; the caller keeps them alive until the launch completes.

        Args:
            arrays: Value -> array of a device.
            span: The device's, which says at which addresses an array begins and ends.
        """
        if self.numbers is not None:
            return self.numbers
        return np.array([span(arrays[v])[0] for v in self.values], np.int64)


@dataclass(frozen=True, slots=True)
class Launches:
    """The launches of a kernel, the buffers that they share (name -> (elements, type)), and their tables by name.

    ``name`` tells several ways to make the same results apart.
    """

    launches: tuple[Launch | LibraryProduct, ...]
    partials: Mapping[KernelLocal, tuple[int, DType]]
    tables: Mapping[KernelLocal, Table] = field(default_factory=dict)
    name: str = "generated"

    @property
    def partial_offsets(self) -> tuple[dict[KernelLocal, int], int]:
        """Where each shared buffer begins in memory that holds them all, in bytes, and how large that is."""
        offsets, top = {}, 0
        for name, (count, dtype) in self.partials.items():
            offsets[name] = top
            top += -(-max(1, count * dtype.itemsize) // 256) * 256
        return offsets, top

    @property
    def draws(self) -> bool:
        """Whether a launch draws random numbers: it then reads what they depend on from :data:`RNG`."""
        return any(RNG in one.arguments for one in self.launches)

    @property
    def asks(self) -> bool:
        """Whether it reads from ``STOPPED`` whether it is to change nothing."""
        return any(STOPPED in one.arguments for one in self.launches)

    @property
    def functions(self) -> tuple[str, ...]:
        """What it launches, in order, each once."""
        return tuple(dict.fromkeys(one.function for one in self.launches))

    @property
    def programs(self) -> int:
        """Programs of all launches together."""
        return sum(math.prod(one.grid) for one in self.launches)


@dataclass(frozen=True, slots=True)
class KernelArgument:
    """A value that a kernel reads or writes, and how many of its elements, each counted once."""

    value: str
    dtype: DType
    count: int

    @property
    def nbytes(self) -> int:
        return int(self.count * self.dtype.itemsize)


@dataclass(frozen=True)
class Kernel:
    """A generated module.

    Attributes:
        name: Template and hash of the text.
        code: The module's functions; it imports Triton and nothing of tstatic. Nothing in it depends on what the user's variables
            are called, or on the lines that made the ops: kernels of equal code are loaded, compiled and cached once.
        template: What made it.
        parameters: Of the function ``kernel``.
        inputs, outputs: Memory that is read and written.
        plan: ``(target) -> Launches``: how the kernel is launched on a chip.
        standalone_main: ``(kernel) -> text`` of the part that makes the module run as a script.
        inplace: (input, output) that may lie in the same memory.
        alternatives: ``(target) -> further ways to make the results``, to be timed against those of ``plan``.
        parts: Kernels that it runs one after the other; without it it is one template's.
        join: Makes one way of a way of each part.
        between: Shared buffers that hold values, which a part writes and a later one reads.
        unrounded: Results of casts that take what was computed, before it is rounded to 16 bits.
        ops: What it computes.
        metas: Metadata of all their values.
    """

    name: str
    code: str
    template: str
    parameters: tuple[KernelParameter, ...]
    inputs: tuple[KernelArgument, ...]
    outputs: tuple[KernelArgument, ...]
    # Functions compare by identity, so they would make equal kernels unequal: text and memory decide.
    plan: Callable[[Target], Launches] = field(repr=False, compare=False)
    standalone_main: Callable[[Kernel], str] = field(default=lambda kernel: "", repr=False, compare=False)
    inplace: tuple[tuple[str, str], ...] = ()
    alternatives: Callable[[Target], tuple[Launches, ...]] = field(default=lambda target: (), repr=False, compare=False)
    parts: tuple[Kernel, ...] = ()
    join: Callable[[Sequence[Launches]], Launches] | None = field(default=None, repr=False, compare=False)
    between: tuple[KernelArgument, ...] = ()
    unrounded: tuple[str, ...] = ()
    ops: tuple[FrozenOp, ...] = field(default=(), repr=False, compare=False)
    metas: Mapping[str, Meta] = field(default_factory=dict, repr=False, compare=False)

    def __repr__(self) -> str:
        arrays = f"{len(self.inputs)} inputs, {len(self.outputs)} outputs"
        return f"<Kernel {self.name} ({self.template}): {arrays}, {size(self.nbytes)}>"

    def _repr_html_(self) -> str:
        return preformatted(f"{self!r}\n\n{self.text}")

    def candidates(self, target: Target) -> Iterator[Launches]:
        """Yields all ways to make the results on a chip; the first is the one that runs where nothing was timed."""
        yield self.plan(target)
        yield from self.alternatives(target)

    def ways(self, target: Target) -> tuple[Launches, ...]:
        """Returns the plan for a chip, and as many other candidates as it takes to launch each function that one of them launches.

        What only the interpreter would have to choose from is left out: nothing is timed there.
        """
        if self.join is not None:
            ways = [part.ways(target) for part in self.parts]
            # Side by side, as they do not depend on each other: not all combinations.
            rows = zip_longest(*ways)
            return tuple(self.join([one or own[0] for one, own in zip(row, ways, strict=True)]) for row in rows)
        found = [self.plan(target)]
        seen = {*found[0].functions}
        for one in () if target.large_programs else self.alternatives(target):
            if not seen.issuperset(one.functions):
                found.append(one)
                seen.update(one.functions)
        return tuple(found)

    @cached_property
    def everywhere(self) -> tuple[tuple[str, tuple[Launches, ...]], ...]:
        """Architecture -> its ways: the interpreter's, and those of a chip of each architecture that kernels are tuned for."""
        targets = {one.architecture: one for one in (TINY, *CHIPS)} | {DEFAULT_TARGET.architecture: DEFAULT_TARGET}
        return tuple((name, self.ways(target)) for name, target in targets.items())

    @cached_property
    def text(self) -> str:
        """The whole module; run as a script it makes inputs, launches, compares and times."""
        every = [(name, not i, one) for name, ways in self.everywhere for i, one in enumerate(ways)]
        launches = (
            Told(one.function, one.arguments, one.constants, {n: table.values for n, table in way.tables.items()})
            for *_, way in every
            for one in way.launches
        )
        outputs = {b.value for b in self.outputs}
        # What one part leaves to another, in the order of ``between``.
        left = dict.fromkeys(b.value for part in self.parts for b in part.outputs if b.value not in outputs)
        head = docstring(
            self.name, self.code, self.ops, self.metas, launches, ((name, first, way.functions) for name, first, way in every),
            dict(zip((b.value for b in self.between), left, strict=True)),
            "a result that no op reads" if self.template == "user_kernel" else "",
        )  # fmt: skip
        return f"{head}\n\n\n{self.code}\n\n{self.standalone_main(self)}\n"

    @property
    def nbytes(self) -> int:
        """Bytes that must be moved: every input read once, every output written once."""
        return sum(b.nbytes for b in (*self.inputs, *self.outputs))

    @cached_property
    def moved(self) -> tuple[int, ...]:
        """Bytes per launch on the default target: what it names, read or written once by it, partial sums and tables included."""
        if self.parts:
            # A part's tensors are the same memory here, and its own launches know which of them merge partial sums.
            return tuple(nbytes for part in self.parts for nbytes in part.moved)
        calls = self.plan(DEFAULT_TARGET)
        return tuple(self._moved(launch, calls) for launch in calls.launches)

    def _moved(self, launch: Launch | LibraryProduct, calls: Launches) -> int:
        """Returns the bytes that a launch moves.

        One beside the main one whose tiles cover no more than the partial sums that it names merges them: of a tensor it
        sees no more elements than its tiles hold.
        """
        sizes: Counter[str] = Counter()
        widths: dict[str, int] = {}
        for buffer in (*self.inputs, *self.outputs):
            sizes[buffer.value] += buffer.nbytes
            widths[buffer.value] = buffer.dtype.itemsize
        named = {a for a in launch.arguments if isinstance(a, str)}
        # The elements that the launch's tiles cover.
        tiles = math.prod(launch.grid) * math.prod(max(1, n) for n in launch.constants.values())
        if isinstance(launch, LibraryProduct):
            rows, columns, depth = launch.sizes
            added = launch.addend_rows * columns if launch.addend else 0
            elements = launch.count * (rows * depth + depth * columns + rows * columns) + added
            return int(elements * launch.dtype.itemsize)
        for value, count in launch.elements.items():
            sizes[value] = min(sizes[value], count * widths[value])
        # Tiles are padded to powers of two, by axis. The main function may walk over more than a tile.
        most = 4 * max((n for a, (n, _) in calls.partials.items() if a in named), default=-1)
        merges = launch.function != "kernel" and tiles <= most
        total = sum(min(sizes[a], tiles * widths[a]) if merges else sizes[a] for a in named if a in widths)
        total += sum(n * t.itemsize for a, (n, t) in calls.partials.items() if a in named)
        for name, table in calls.tables.items():
            if name in named:
                total += table.nbytes
                if launch.function == "kernel":
                    # The launches beside it read a number per tensor, not the tensors.
                    total += sum(sizes[v] for v in dict.fromkeys(table.values))
        return int(total)


def steps_of(shape: Shape) -> tuple[int, ...]:
    """Returns the strides, in elements, of an array that is contiguous."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def operands(parameters: Iterable[KernelParameter]) -> tuple[str, ...]:
    """Returns what the pointers among a function's parameters lead to: the first arguments of its launch."""
    return tuple(p.operand for p in parameters if p.kind == "pointer")


def argument_types(parameters: Iterable[KernelParameter]) -> tuple[str, ...]:
    """Returns Triton's types of a function's arguments, those of constants left out."""
    return tuple(f"*{p.type}" if p.kind == "pointer" else p.type for p in parameters if p.kind != "constant")


def power_of_two(n: int, least: int, most: int) -> int:
    """Returns the power of two that holds ``n``, within bounds that are powers of two."""
    # ``n - 1``, so that a power of two is its own result.
    return max(least, min(most, 1 << max(0, n - 1).bit_length()))
