"""The matrix instructions of a compiled kernel, by unit and type of the operands, and what else runs in their loops."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tstatic.chips.loops import Instruction, loops

__all__ = ["MatrixLoop", "PtxMatrix", "matrix_loops", "matrix_type", "read_matrix"]


@dataclass(frozen=True, slots=True, order=True)
class MatrixLoop:
    """A loop that holds matrix instructions and no smaller loop that does: over the inner axis of a product.

    Attributes:
        matrix: Matrix instructions in its body.
        fma: Fused multiply-adds of 32-bit floats in its body.
    """

    matrix: int
    fma: int


@dataclass(frozen=True, slots=True)
class PtxMatrix:
    """What a kernel's PTX says about its matrix instructions.

    Attributes:
        counts: Instruction ("mma", "wgmma", "tcgen05.mma") and type of its operands ("wgmma.bf16") -> how often it stands there.
            ``tcgen05.mma`` says "f16" of bf16, too.
        loops: Their loops.
        bulk_loads: Copies of boxes of a tensor from global into shared memory (TMA).
        bulk_stores: Such copies from shared into global memory.
        register_moves: Instructions that hand registers from warps to others (``setmaxnreg``).
    """

    counts: Mapping[str, int]
    loops: tuple[MatrixLoop, ...]
    bulk_loads: int
    bulk_stores: int
    register_moves: int

    def of_type(self, *types: str) -> int:
        """Matrix instructions whose operands have one of these types."""
        return sum(n for name, n in self.counts.items() if name.rpartition(".")[2] in types)

    def of_unit(self, unit: str) -> int:
        """Matrix instructions of one sort ("wgmma")."""
        return sum(n for name, n in self.counts.items() if name.rpartition(".")[0] == unit)


_TYPES = {"BF16": "bf16", "TF32": "tf32"}
_UTC = re.compile(r"UTC\w*MMA$")


def matrix_type(opcode: str) -> str | None:
    """Returns the type of the operands of a SASS instruction, "" where the opcode does not say it; None for all others.

    Example:
        >>> matrix_type("HGMMA.64x128x8.F32.TF32"), matrix_type("HMMA.16816.F32"), matrix_type("UTCHMMA"), matrix_type("FFMA")
        ('tf32', 'f16', '', None)
    """
    head, *modifiers = opcode.split(".")
    if head in ("HMMA", "HGMMA"):
        return next((_TYPES[m] for m in modifiers if m in _TYPES), "f16")
    if head in ("IMMA", "DMMA", "IGMMA", "QGMMA") or _UTC.match(head):
        return ""
    return None


def _ptx_name(operation: str) -> str:
    """Returns instruction and type of a PTX matrix instruction, "" for all others."""
    parts = operation.split(".")
    if operation.startswith("mma.sync."):
        # Result, left, right, sum.
        return f"mma.{parts[-3]}"
    if operation.startswith("wgmma.mma_async."):
        return f"wgmma.{parts[-1]}"
    if operation.startswith("tcgen05.mma."):
        return "tcgen05.mma." + next((p.partition("::")[2] for p in parts if p.startswith("kind::")), "")
    return ""


def matrix_loops(code: Sequence[Instruction], matrix: Iterable[int], fma: Iterable[int]) -> tuple[MatrixLoop, ...]:
    """Returns the loops around matrix instructions; both kinds of instruction are named by their positions in ``code``."""
    matrix, fma = frozenset(matrix), frozenset(fma)
    if not matrix:
        return ()
    around = [body for body in loops(code) if body & matrix]
    # An outer loop, over tiles of the result, holds the work on the finished tile as well.
    inner = [body for body in around if not any(other < body for other in around)]
    return tuple(sorted(MatrixLoop(len(body & matrix), len(body & fma)) for body in inner))


_COMMENT = re.compile(r"//[^\n]*|^\s*\.(?:loc|reg|pragma)\b[^\n]*$", re.MULTILINE)
_PIECE = re.compile(r"^\s*(\$[\w$]+):|(@!?%?\w+\s+)?\b([a-z][\w.:]*)(?=[\s;])\s*([^;:]*);", re.MULTILINE)
_BODY = re.compile(r"^(?:\.(?:visible|weak|extern)\s+)?\.(?:entry|func)\b", re.MULTILINE)


def _ptx_code(body: str) -> list[Instruction]:
    """Returns the instructions of one function. Labels of inline assembly are left out: they only wait."""
    code: list[Instruction] = []
    labels: list[str] = []
    for label, condition, operation, operands in _PIECE.findall(_COMMENT.sub("", body.partition("{")[2])):
        if label:
            labels.append(label)
            continue
        jump = operation.split(".")[0] == "bra"
        target = operands.strip() if jump and operands.lstrip().startswith("$") else ""
        ends = not condition and (bool(target) or operation in ("ret", "exit", "trap"))
        code.append(Instruction(operation, tuple(labels), target, ends))
        labels = []
    return code


def read_matrix(ptx: str) -> PtxMatrix:
    """Counts the matrix instructions of all functions of a module, and reads their loops."""
    counts: Counter[str] = Counter()
    found: list[MatrixLoop] = []
    moved: Counter[str] = Counter()
    for body in _BODY.split(ptx)[1:]:
        code = _ptx_code(body)
        names = {i: name for i, one in enumerate(code) if (name := _ptx_name(one.operation))}
        counts.update(names.values())
        found += matrix_loops(code, names, (i for i, one in enumerate(code) if one.operation.startswith("fma.rn.f32")))
        for one in code:
            if one.operation.startswith("cp.async.bulk.tensor."):
                moved["loads" if ".shared" in one.operation.partition(".global")[0] else "stores"] += 1
            elif one.operation.startswith("setmaxnreg."):
                moved["registers"] += 1
    return PtxMatrix(
        dict(sorted(counts.items())), tuple(sorted(found)), moved["loads"], moved["stores"], moved["registers"]
    )
