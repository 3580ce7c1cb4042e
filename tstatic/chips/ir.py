"""What Triton's own forms of a kernel say: the matrix products asked for (TTIR), the copies of boxes of a tensor (TTGIR)."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["BoxCopy", "Dot", "TensorCopies", "read_copies", "read_dots"]


@dataclass(frozen=True, slots=True)
class Dot:
    """One ``tl.dot``.

    Attributes:
        type: Element type of its operands: "bf16", "f16", "f32".
        precision: How operands of 32 bits are multiplied: "ieee", "tf32", "tf32x3".
        sizes: Rows, columns and depth of the tile.
        loaded: Element types in memory of what its operands are made of.
        origins: Pointer parameters through which they are loaded.
        sides: Those of the left operand, and those of the right one.
    """

    type: str
    precision: str
    sizes: tuple[int, int, int]
    loaded: tuple[str, ...]
    origins: tuple[str, ...]
    sides: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    @property
    def upcast(self) -> bool:
        """Whether it multiplies floats of 32 bits that were loaded as floats of 16 bits."""
        return self.type == "f32" and bool({"bf16", "f16"} & set(self.loaded))

    @property
    def tf32(self) -> bool:
        """Whether it rounds float32 operands to TF32, as it was asked to."""
        return self.type == "f32" and self.precision == "tf32" and not self.upcast

    @property
    def exact(self) -> bool:
        """Whether no matrix unit can make it: fp64, or fp32 as IEEE has it."""
        return self.type == "f64" or (self.type == "f32" and self.precision == "ieee" and not self.upcast)


@dataclass(frozen=True, slots=True)
class BoxCopy:
    """A copy of a box of a tensor from global into shared memory, or back.

    Attributes:
        box: Elements that the descriptor moves.
        place: Elements that shared memory has for them.
    """

    box: int
    place: int


@dataclass(frozen=True, slots=True)
class TensorCopies:
    """The copies of boxes (TMA) of a kernel.

    Attributes:
        boxes: Each copy, as it stands in the TTGIR.
        awaited: (bytes that a barrier is told to expect, bytes that the copies bring which signal it) per ``barrier_expect``.
    """

    boxes: tuple[BoxCopy, ...] = ()
    awaited: tuple[tuple[int, int], ...] = ()


_FUNCTION = re.compile(r"^\s*tt\.func\b[^@]*@[\w$.]+\(", re.MULTILINE)
_DEFINED = re.compile(r"^\s*(%[\w$.]+)(?::\d+)?(?:, %[\w$.]+)* = ")
_NAME = re.compile(r"%[\w$.]+")
_CARRIED = re.compile(r"(%[\w$.]+) = (%[\w$.]+)")
_CARRIED_BY = re.compile(r"scf\.for (%[\w$.]+) = ")
_DOT = re.compile(r" = tt\.dot (%[\w$.]+)(?:#\d+)?, (%[\w$.]+)(?:#\d+)?,")
_PRECISION = re.compile(r"inputPrecision = (\w+)")
_DOT_TYPES = re.compile(r": tensor<([\dx]+)x([a-z]\w*)[^>]*>+ \* tensor<([\dx]+)x([a-z]\w*)")
_ELEMENT = re.compile(r"tensor<(?:[\dx]+x)?(?:!tt\.ptr<)?([a-z]\w*)")


def read_dots(ttir: str, parameters: Sequence[str]) -> tuple[Dot, ...]:
    """Reads the matrix products of a module in Triton's IR, before any layout.

    Args:
        ttir: The module as text.
        parameters: Names of the kernel's parameters, constants left out.

    Raises:
        ValueError: A product is written in a way that is not known.
    """
    found: list[Dot] = []
    for head, body in _functions(ttir):
        # A host's descriptor is several arguments.
        arguments = _arguments(head)
        names = dict(zip(arguments, parameters, strict=True)) if len(arguments) == len(parameters) else {}
        body = _told_apart(body)
        lines = {n: line for line in body for n in _results(line)}
        carried = {n: start for line in body if "iter_args(" in line for n, start in _CARRIED.findall(line)}
        for line in body:
            if " = tt.dot " not in line:
                continue
            operands, types = _DOT.search(line), _DOT_TYPES.search(line)
            if not operands or not types:
                raise ValueError(f"a matrix product that cannot be read: {line.strip()[:200]}")
            left, right = types[1].split("x"), types[3].split("x")
            loads = [_loads(one, lines, carried) for one in operands.groups()]
            sides = [{p for i in own for p in _pointers(i, lines, carried)} for own in loads]
            first, second = (tuple(sorted(names.get(p, p[1:]) for p in side)) for side in sides)
            precision = _PRECISION.search(line)
            found.append(
                Dot(
                    types[2],
                    precision[1] if precision else "ieee",
                    (int(left[-2]), int(right[-1]), int(left[-1])),
                    tuple(sorted({_loaded(i) for own in loads for i in own})),
                    tuple(sorted({*first, *second})),
                    (first, second),
                )
            )
    return tuple(found)


def _functions(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yields first line and further lines of each function: names of values are a function's own."""
    starts = [m.start() for m in _FUNCTION.finditer(text)]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        head, *body = text[start:end].lstrip("\n").splitlines()
        yield head, body


def _told_apart(body: Sequence[str]) -> list[str]:
    """Returns the lines of a function with a name for each value: regions beside each other use the same ones again."""
    times: dict[str, int] = {}

    def named(name: str) -> str:
        return f"{name}.again{times[name]}" if times.get(name) else name

    told = []
    for line in body:
        made = {*_results(line), *(_CARRIED_BY.findall(line) if " scf.for " in line else ())}
        # A loop's results are what they are after it, and its arguments what they are in it: both are new names.
        if " scf.for " in line:
            made |= {n for n, _ in _CARRIED.findall(line)}
        old = {n: named(n) for n in _NAME.findall(line)}
        times.update((n, times.get(n, -1) + 1) for n in made)
        new = {n: named(n) for n in made}

        def put(match: re.Match[str], new: dict[str, str] = new, old: dict[str, str] = old) -> str:
            return new.get(match[0]) or old[match[0]]

        told.append(_NAME.sub(put, line))
    return told


def _arguments(head: str) -> list[str]:
    """Names of a function's arguments."""
    return re.findall(r"(%[\w$.]+): ", head)


def _results(line: str) -> list[str]:
    """Names of the values that a line defines."""
    match = _DEFINED.match(line)
    return _NAME.findall(match[0]) if match else []


def _operands(line: str) -> list[str]:
    return _NAME.findall(line.split(" = ", 1)[1]) if " = " in line else []


def _loads(start: str, lines: dict[str, str], carried: dict[str, str]) -> set[str]:
    """Returns the lines of the loads that a value is made of."""
    found: set[str] = set()
    seen: set[str] = set()
    todo = [start]
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        line = lines.get(name, "")
        if " = tt.load " in line or " = tt.descriptor_load " in line or " = tt.descriptor_gather " in line:
            found.add(line)
        elif line:
            todo += _operands(line)
        elif name in carried:
            todo.append(carried[name])
    return found


def _loaded(load: str) -> str:
    """Element type of what a load brings."""
    types = _ELEMENT.findall(load)
    # "... : !tt.tensordesc<tensor<128x64xbf16>> -> tensor<128x64xbf16>", "... : tensor<64x32x!tt.ptr<bf16>> loc(...)".
    return types[-1] if types else ""


def _pointers(load: str, lines: dict[str, str], carried: dict[str, str]) -> set[str]:
    """Returns the arguments through which a load reads: the first operand of each step."""
    name = _operands(load)[0]
    for _ in range(len(lines) + 1):
        if name in lines:
            operands = _operands(lines[name])
            if not operands:
                return set()
            name = operands[0]
        elif name in carried:
            name = carried[name]
        else:
            break
    return {name}


_EXPECT = re.compile(r"ttng\.barrier_expect (%[\w$.]+), (\d+)")
_COPY = re.compile(r"ttng\.async_tma_(copy_global_to_local|gather|copy_local_to_global|reduce|scatter)\b")
_INTO = re.compile(r"\] (%[\w$.]+), (%[\w$.]+),")
_BOX = re.compile(r"!tt\.tensordesc<(?:tensor<)?((?:\d+x)+)([a-z]\w*)")
_PLACE = re.compile(r"!ttg\.memdesc<((?:\d+x)+)([a-z]\w*)")


def _elements(dims: str) -> int:
    return math.prod(int(n) for n in dims.split("x") if n)


def read_copies(ttgir: str) -> TensorCopies:
    """Reads the copies of boxes of a tensor, and what each barrier waits for.

    Raises:
        ValueError: A copy is written in a way that is not known.
    """
    boxes: list[BoxCopy] = []
    awaited: list[tuple[int, int]] = []
    # A barrier's name may be told to expect again, as in an unrolled loop.
    latest: dict[str, int] = {}
    unexpected: dict[str, int] = defaultdict(int)
    for line in ttgir.splitlines():
        if expect := _EXPECT.search(line):
            latest[expect[1]] = len(awaited)
            awaited.append((int(expect[2]), 0))
        elif copy := _COPY.search(line):
            box, places = _BOX.search(line), _PLACE.findall(line)
            data = [place for place in places if place[1] != "i64"]
            if not box or not data:
                raise ValueError(f"a copy of a box that cannot be read: {line.strip()[:300]}")
            place = _elements(data[-1][0])
            gathers = copy[1] in ("gather", "scatter")
            moved = place if gathers else _elements(box[1])
            boxes.append(BoxCopy(moved, place))
            if copy[1] in ("copy_global_to_local", "gather"):
                into = _INTO.search(line)
                if not into:
                    raise ValueError(f"a copy of a box that cannot be read: {line.strip()[:300]}")
                size = moved * _bits(data[-1][1]) // 8
                barrier = next((n for n in into.groups() if n in latest), None)
                if barrier is None:
                    unexpected[into[2]] += size
                else:
                    at = latest[barrier]
                    awaited[at] = awaited[at][0], awaited[at][1] + size
    return TensorCopies(tuple(boxes), (*awaited, *((0, n) for n in unexpected.values())))


def _bits(type_: str) -> int:
    """Bits of an element: "bf16" has 16, "f8E4M3FN" 8."""
    found = re.search(r"\d+", type_)
    return int(found[0]) if found else 8
