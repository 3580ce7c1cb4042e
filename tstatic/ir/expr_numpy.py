"""Pointwise expressions as straight-line numpy code: ufuncs into given buffers, equal parts computed once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np

from tstatic.ir.expr import FUNCTIONS, MODULAR, Node, Number, parse, substitute, variables
from tstatic.ir.types import dtype_of, wrap

# Integers as wide as an element: bit operations choose between values of any type.
_INT_OF_SIZE: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.int8),
    2: np.dtype(np.int16),
    4: np.dtype(np.int32),
    8: np.dtype(np.int64),
}


def compute_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Returns the type to compute in: float32 for float16 and bfloat16, whose results are rounded once."""
    if dtype.itemsize == 2 and dtype.kind in "fV":
        return np.dtype(np.float32)
    return dtype


OperandKind = Literal["in", "out", "reg", "const"]
"""``in``, ``out``: an array that is read or written, by its number. ``reg``: a register, an array between two instructions.
``const``: a number."""


@dataclass(frozen=True, slots=True)
class Operand:
    """Where an instruction finds an argument."""

    kind: OperandKind
    index: int
    dtype: np.dtype[Any]
    as_int: bool = False
    value: Any = None


@dataclass(frozen=True, slots=True)
class Instruction:
    """One ufunc call: the last operand is written; ``extra`` follows as it is."""

    function: Callable[..., Any]
    operands: tuple[Operand, ...]
    extra: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Code:
    """Straight-line numpy code of a group of expressions, with the dtypes of the registers it needs."""

    instructions: tuple[Instruction, ...]
    registers: tuple[np.dtype[Any], ...]

    def bind_operands(self, ins: Any, outs: Any, scratch: Any) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
        """Returns ready calls over the given arrays; ``scratch`` holds one array per register, of the outputs' shape."""
        space = {"in": ins, "out": outs, "reg": scratch}
        calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        for instruction in self.instructions:
            args = []
            for o in instruction.operands:
                array = o.value if o.kind == "const" else space[o.kind][o.index]
                args.append(array.view(_INT_OF_SIZE[o.dtype.itemsize]) if o.as_int else array)
            if instruction.function is np.copyto and same_place(args[0], args[1]):
                # A result that took over its input's buffer is there already.
                continue
            # Everywhere else the output is positional: calls are replayed as `function(*args)`.
            if instruction.function in _WRONG_INTO_GAPS and not args[-1].flags.c_contiguous:
                dense = np.empty(args[-1].shape, args[-1].dtype)
                calls += [(instruction.function, (*args[:-1], dense)), (np.copyto, (args[-1], dense))]
            elif instruction.function in _OUT_BY_KEYWORD:
                constants = [o.kind == "const" for o in instruction.operands]
                for *read, out in _with_rows(args, constants):
                    calls.append((partial(instruction.function, out=out), tuple(read)))
            else:
                calls.append((instruction.function, (*args, *instruction.extra)))
        return calls


def same_place(a: Any, b: Any) -> bool:
    """Returns whether two arrays are the same elements of memory."""
    if a is b:
        return True
    if a.dtype != b.dtype or a.shape != b.shape or a.strides != b.strides:
        return False
    return bool(a.__array_interface__["data"][0] == b.__array_interface__["data"][0])


# numpy 2.4 writes wrong elements where the output has gaps; some also where, besides, the input has.
_WRONG_INTO_GAPS = (np.negative, np.isnan, np.isinf, np.isfinite, np.signbit)
# numpy 2.4 deprecates their third positional argument.
_OUT_BY_KEYWORD = (np.maximum, np.minimum)


_ROW = 1 << 14
"""Values of the row that a number is repeated to: float32 and the row's 64 KiB take 0.09 ns a value, a longer row no less."""


@lru_cache(maxsize=64)
def _row(dtype: np.dtype[Any], item: bytes) -> Any:
    row = np.full(_ROW, np.frombuffer(item, dtype)[0], dtype)
    # All callers share it.
    row.setflags(write=False)
    return row


def _with_rows(args: Sequence[Any], constants: Sequence[bool]) -> list[list[Any]]:
    """Returns the arguments of a ufunc in parts in which each number is repeated, or as they are where nothing is gained.

    ``maximum`` and ``minimum`` take 0.30 ns to compare a value with a number, and 0.09 with one of an array (float32, in cache).
    """
    out = args[-1]
    alike = all(
        a.dtype == out.dtype and (constant or (a.shape == out.shape and a.flags.c_contiguous))
        for a, constant in zip(args, constants, strict=True)
    )
    if not alike or not any(constants) or out.dtype.kind != "f" or out.size < _ROW // 16:
        return [list(args)]
    whole = out.size - out.size % _ROW
    parts = []
    for start, stop, length in ((0, whole, _ROW), (whole, out.size, out.size - whole)):
        if start < stop:
            parts.append(
                [
                    _row(a.dtype, a.tobytes())[:length] if constant else a.reshape(-1)[start:stop].reshape(-1, length)
                    for a, constant in zip(args, constants, strict=True)
                ]
            )
    return parts


def _mask(condition: Any, out: Any) -> None:
    # Truth values are the bytes 0 and 1; negated they are 0 and -1, which has all bits set at any width.
    np.negative(condition, out=out)


def _choose(condition: Any, yes: Any, no: Any, out: Any) -> None:
    """Writes ``yes`` where the condition holds, else ``no``: of elements that no integer is as wide as."""
    np.copyto(out, np.where(condition, yes, no))


def _copy_real(out: Any, x: Any) -> None:
    """Writes the real part of complex numbers, in another type."""
    np.copyto(out, x.real, casting="unsafe")


class _Compiler:
    """Lowers expression trees to :class:`Code`; equal sub-expressions are computed once."""

    def __init__(self, inputs: dict[str, tuple[int, np.dtype[Any]]], values: Mapping[str, Any]) -> None:
        self.inputs = inputs
        self.values = values
        self.instructions: list[Instruction] = []
        self.known: dict[Node, Operand] = {}
        # Numbers are weak, as in numpy: they take the type of the operands, floats before integers.
        floats = [d for _, d in inputs.values() if d.kind in "fVc"]
        self.float = compute_dtype(floats[0]) if floats else np.dtype(np.float32)
        ints = [d for _, d in inputs.values() if d.kind in "iu"]
        self.default = self.float if floats else (ints[0] if ints else np.dtype(np.bool_))
        self.count = 0

    def fresh(self, dtype: np.dtype[Any], as_int: bool = False) -> Operand:
        self.count += 1
        return Operand("reg", self.count - 1, dtype, as_int)

    def constant(self, value: Number, like: np.dtype[Any] | None, modular: bool = False) -> Operand:
        dtype = like if like is not None else self.default
        if isinstance(value, float) and dtype.kind not in "fVc":
            if dtype.kind in "iu" and value.is_integer():
                value = int(value)
            else:
                dtype = self.float
        if modular and dtype.kind in "iu":
            value = wrap(int(value), dtype_of(dtype))
        return Operand("const", -1, dtype, value=np.asarray(value, dtype))

    def value(self, node: Node, like: np.dtype[Any] | None = None, modular: bool = False) -> Operand:
        if node.op == "const":
            return self.constant(node.value, like, modular)
        if node.op == "var" and node.value not in self.inputs:
            return self.constant(self.values[node.value], like, modular)
        found = self.known.get(node)
        if found is None:
            found = self.load(node) if node.op == "var" else self.apply(node)
            self.known[node] = found
        return found

    def load(self, node: Node) -> Operand:
        index, dtype = self.inputs[node.value]
        operand = Operand("in", index, dtype)
        wanted = compute_dtype(dtype)
        if wanted == dtype:
            return operand
        # Low precision is widened once, however often it is read; the result is rounded once, when it is stored.
        register = self.fresh(wanted)
        self.instructions.append(Instruction(np.copyto, (register, operand), ("unsafe",)))
        return register

    def apply(self, node: Node, into: Operand | None = None) -> Operand:
        function = FUNCTIONS[node.op]
        if node.op == "where":
            return self.select(node, into)
        if function.expand:
            expanded = substitute(parse(function.expand), dict(zip("abc", node.args, strict=False)))
            return self.value(expanded) if into is None else self.apply(expanded, into)
        logical = node.op in ("both", "either", "invert", "differ")
        operands = self.arguments(node.args, logical, node.op in MODULAR)
        dtype = np.dtype(np.bool_) if function.kind == "bool" else operands[0].dtype
        # True division, as in numpy: integers give floats.
        if node.op == "div" and dtype.kind in "iu":
            dtype = self.float
        target = into if into is not None and into.dtype == dtype else self.fresh(dtype)
        assert function.numpy is not None
        self.instructions.append(Instruction(function.numpy, (*operands, target)))
        return target

    def arguments(self, args: tuple[Node, ...], logical: bool = False, modular: bool = False) -> tuple[Operand, ...]:
        weak = [a for a in args if a.op == "const" or (a.op == "var" and a.value not in self.inputs)]
        strong = {a: self.value(a) for a in args if a not in weak}
        like = next((o.dtype for o in strong.values()), None)
        if like is not None and like.kind == "b" and not logical:
            # A truth value used as a number is 1 or 0 of the expression's own type.
            others = [o.dtype for o in strong.values() if o.dtype.kind != "b"]
            like = others[0] if others else self.float
        done = []
        for a in args:
            operand = strong[a] if a in strong else self.value(a, like, modular)
            if operand.dtype.kind == "b" and like is not None and like.kind != "b" and not logical:
                register = self.fresh(like)
                self.instructions.append(Instruction(np.copyto, (register, operand), ("unsafe",)))
                operand = register
            done.append(operand)
        return tuple(done)

    def select(self, node: Node, into: Operand | None) -> Operand:
        # np.where costs 8 ns an element on random masks; the same choice by bit operations costs 0.4.
        condition, yes, no = node.args
        c = self.value(condition)
        a, b = self.arguments((yes, no))
        if a.dtype != b.dtype:
            b = a if b.kind != "const" else self.constant(b.value.item(), a.dtype)
        dtype = a.dtype
        target = into if into is not None and into.dtype == dtype else self.fresh(dtype)
        if dtype.itemsize not in _INT_OF_SIZE:
            self.instructions.append(Instruction(_choose, (c, a, b, target)))
            return target
        ints: np.dtype[Any] = _INT_OF_SIZE[dtype.itemsize]
        mask = self.fresh(ints)

        def bits(o: Operand) -> Operand:
            return Operand(o.kind, o.index, o.dtype, True, o.value)

        self.instructions.append(Instruction(_mask, (bits(c), mask)))
        # Tested by its bits: -0.0 equals 0 but has a bit set, and must be kept.
        if b.kind == "const" and not b.value.view(ints).any():
            self.instructions.append(Instruction(np.bitwise_and, (bits(a), mask, bits(target))))
        else:
            # b ^ ((a ^ b) & mask): a where all bits of the mask are set, else b; NaN and signed zeros keep their bits.
            mixed = self.fresh(ints)
            self.instructions.append(Instruction(np.bitwise_xor, (bits(a), bits(b), mixed)))
            self.instructions.append(Instruction(np.bitwise_and, (mixed, mask, mixed)))
            self.instructions.append(Instruction(np.bitwise_xor, (mixed, bits(b), bits(target))))
        return target

    def store(self, node: Node, index: int, dtype: np.dtype[Any]) -> None:
        out = Operand("out", index, dtype)
        weak = node.op == "const" or (node.op == "var" and node.value not in self.inputs)
        # The last function writes to the output itself; a value that exists already is copied, and rounded there.
        if not weak and node.op != "var" and node not in self.known:
            result = self.apply(node, out)
            self.known[node] = result
        else:
            result = self.value(node, compute_dtype(dtype))
        if result.dtype.kind == "c" and dtype.kind not in "cb":
            self.instructions.append(Instruction(_copy_real, (out, result)))
        elif result != out:
            self.instructions.append(Instruction(np.copyto, (out, result), ("unsafe",)))


def _through_outputs(instructions: Sequence[Instruction], shared: Mapping[int, int]) -> list[Instruction]:
    """Puts a value that is only read to make an output into that output's memory, if nothing else needs what is there."""
    done = list(instructions)
    for at, instruction in enumerate(done):
        *read, target = instruction.operands
        if target.kind != "out" or not isinstance(instruction.function, np.ufunc):
            continue
        # In between, nobody may touch the output's memory, nor the input that may lie in it.
        barred = {("out", target.index), ("in", shared.get(target.index))}
        for r in read:
            touching = [k for k, one in enumerate(done) if _touches(one.operands, {(r.kind, r.index)})]
            first = done[touching[0]]
            # Exactly two instructions: the one that makes the value, and this one that reads it.
            if r.kind != "reg" or r.dtype != target.dtype or len(touching) != 2 or first.operands[-1] != r:
                continue
            between = (*(o for one in done[touching[0] + 1 : at] for o in one.operands), *read)
            if isinstance(first.function, np.ufunc) and not _touches(between, barred):
                done[touching[0]] = replace(first, operands=(*first.operands[:-1], target))
                done[at] = replace(instruction, operands=tuple(target if o is r else o for o in instruction.operands))
                break
    return done


def _touches(operands: Iterable[Operand], memory: Collection[tuple[str, int | None]]) -> bool:
    return any((o.kind, o.index) in memory for o in operands)


def _allocate(instructions: list[Instruction], in_place: bool) -> Code:
    """Gives registers whose values are no longer read to later values of the same dtype.

    Args:
        instructions: The last operand of each is written.
        in_place: Let a ufunc write to the register of an operand that is not read again.
    """
    # Linear scan: a register is free after its last use, and the next value of its dtype takes it.
    last: dict[int, int] = {}
    for at, instruction in enumerate(instructions):
        for o in instruction.operands:
            if o.kind == "reg":
                last[o.index] = at
    free: dict[np.dtype[Any], list[int]] = {}
    placed: dict[int, int] = {}
    dtypes: list[np.dtype[Any]] = []
    done = []

    def release(operands: tuple[Operand, ...], at: int) -> None:
        for o in operands:
            if o.kind == "reg" and last.get(o.index) == at:
                del last[o.index]
                free.setdefault(dtypes[placed[o.index]], []).append(placed[o.index])

    for at, instruction in enumerate(instructions):
        operands = []
        target = instruction.operands[-1]
        for o in instruction.operands:
            # Only ufuncs may write where they read; the operands come
            # before the target, so they have their places already.
            if o is target and in_place and isinstance(instruction.function, np.ufunc):
                release(tuple(r for r in instruction.operands if (r.kind, r.index) != (o.kind, o.index)), at)
            if o.kind == "reg":
                if o.index not in placed:
                    pool = free.setdefault(o.dtype, [])
                    if pool:
                        placed[o.index] = pool.pop()
                    else:
                        placed[o.index] = len(dtypes)
                        dtypes.append(o.dtype)
                o = Operand("reg", placed[o.index], o.dtype, o.as_int)
            operands.append(o)
        release(instruction.operands, at)
        done.append(Instruction(instruction.function, tuple(operands), instruction.extra))
    return Code(tuple(done), tuple(dtypes))


def compile_numpy(
    outputs: Mapping[int, Node],
    inputs: Mapping[str, tuple[int, np.dtype[Any]]],
    out_dtypes: Mapping[int, np.dtype[Any]],
    values: Mapping[str, Any],
    in_place: Mapping[int, int] | None = None,
) -> Code:
    """Compiles expressions to numpy code.

    Args:
        outputs: Output position -> expression.
        inputs: Variable name -> (input position, dtype).
        out_dtypes: Output position -> dtype.
        values: Attribute name -> number.
        in_place: For arrays that are large beside the cache: output position -> position of the input that may share its
            memory. Then as few registers as possible are used.
    """
    used = set().union(*(variables(n) for n in outputs.values())) if outputs else set()
    compiler = _Compiler({n: s for n, s in inputs.items() if n in used}, values)
    for position, node in outputs.items():
        compiler.store(node, position, out_dtypes[position])
    if in_place is None:
        return _allocate(compiler.instructions, in_place=False)
    return _allocate(_through_outputs(compiler.instructions, in_place), in_place=True)
