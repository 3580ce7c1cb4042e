"""Programs as readable text; ``parse`` reads it back exactly."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import NoneType
from typing import Any

import numpy as np

from tstatic.formats.schema import (
    BlockDesc,
    OpDesc,
    ParameterDesc,
    ProgramDesc,
    VarDesc,
    learning_rate_of,
    process_of,
    regularizer_of,
)
from tstatic.ir.program import Block, Operator, Parameter, Program, Variable
from tstatic.ir.rng import op_position
from tstatic.ir.types import DType
from tstatic.where import Where, show

ROLES = {1: "Backward", 2: "Optimize", 4: "RPC", 8: "Dist", 16: "LRSched", 256: "Loss", 4096: "NotSpecified"}
_AS_PYTHON = frozenset({NoneType, bool, str, bytes, float})
"""Types whose repr is what a text holds; most values are of these."""
BARE = re.compile(r"[A-Za-z_][\w.@/+-]*\Z", re.ASCII)
"""Names that stand in the text without quotes."""
_LABEL = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff#:]+\Z")

Labels = Mapping[str, str]
"""Source file -> its short name in the text."""


# ------------------------------------------------------------------------------------------------------------- values
def value_text(value: Any) -> str:
    """Writes a value as Python would; dtypes by their bare name, large ints in hexadecimal."""
    if type(value) in _AS_PYTHON:
        return repr(value)
    if type(value) is int:
        return repr(value) if -(2**64) < value < 2**64 else hex(value)
    if isinstance(value, np.generic):
        plain = value.item()
        # A long double is its own item.
        return f"<{type(value).__name__}>" if isinstance(plain, np.generic) else value_text(plain)
    if isinstance(value, str):
        return str.__repr__(value)
    if isinstance(value, bytes):
        return bytes.__repr__(value)
    if isinstance(value, int):
        return value_text(int(value))
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, DType):
        return value.name
    if isinstance(value, tuple):
        return f"({', '.join(map(value_text, value))}{',' * (len(value) == 1)})"
    if isinstance(value, list):
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{value_text(k)}: {value_text(v)}" for k, v in value.items()) + "}"
    # Printing never fails; reading this back does, with a message of its own.
    return f"<{type(value).__name__}>"


@lru_cache(4096)
def name_text(name: str) -> str:
    """Writes a name, in quotes where it needs them."""
    return name if BARE.match(name) else str.__repr__(name)


@lru_cache(256)
def role_text(role: int) -> str:
    """Writes a role, as ``Backward | Loss`` for 257; as a number when a bit has no name."""
    names = [name for bit, name in ROLES.items() if role & bit]
    known = sum(bit for bit in ROLES if role & bit)
    return " | ".join(names) if known == role and names else str(role)


def labels_of(program: Program) -> dict[str, str]:
    """Returns a short name for every source file: as many last parts of its path as distinguish it from the others."""
    files: dict[str, None] = {}
    for block in program.blocks:
        for where in (*(v.made_at for v in block.vars.values()), *(op.where for op in block.ops)):
            if where is not None:
                files[where[0]] = None
    found: dict[str, str] = {}
    taken: set[str] = set()
    for number, file in enumerate(files):
        parts = file.replace("\\", "/").split("/")
        label = ""
        for count in range(1, len(parts) + 1):
            label = "/".join(parts[-count:])
            if label and label not in taken:
                break
        if label in taken or not _LABEL.match(label) or label != label.strip():
            label = f"file{number}"
            while label in taken:
                label += "_"
        taken.add(label)
        found[file] = label
    return found


def _where_text(where: Where | None, labels: Labels | None) -> str:
    if where is None:
        return ""
    return f"  # {show(where)}" if labels is None else f"  # {labels[where[0]]}:{where[1]}"


def _marks(pairs: Sequence[tuple[str, Any]]) -> str:
    """Writes ``(feed, lod_level = 1)``: what is ``True`` needs no value."""
    if not pairs:
        return ""
    shown = [name if value is True else f"{name} = {value_text(value)}" for name, value in pairs]
    return f" ({', '.join(shown)})"


# ---------------------------------------------------------------------------------------------------------- variables
def variable_marks(var: Variable, details: bool = False) -> list[tuple[str, Any]]:
    """Returns what differs from a plain variable; everything if ``details``."""
    parameter = var if isinstance(var, Parameter) else None
    if parameter is None and not details and VarDesc.all_at_default(var):
        return []
    found = []
    usual = VarDesc.in_text(None if parameter is None else bool(parameter.trainable))
    if var.is_data and var.need_check_feed and not details:
        found.append(("feed", True))
        usual = {**usual, "is_data": True, "need_check_feed": True}
    for name, value in VarDesc.marks(var, details, {"parameter": parameter}, usual):
        if name == "parameter":
            given = {"regularizer": regularizer_of(value)}
            more = ParameterDesc.marks(var, details, given, ParameterDesc.IN_TEXT)
            found += [mark[1] if mark[0] == "regularizer" else mark for mark in more]
        else:
            found.append((name, value))
    return found


def variable_text(var: Variable, with_details: bool = False, labels: Labels | None = None) -> str:
    """Writes ``var x: float32[-1, 3] (feed, stop_gradient)  # train.py:7``; ``?`` for an unknown shape or dtype."""
    shape = "?" if var._shape is None else ", ".join(map(str, var._shape))
    dtype = "?" if var._dtype is None else var._dtype.name
    kind = "param" if isinstance(var, Parameter) else "var"
    marks = _marks(variable_marks(var, with_details))
    return f"{kind} {name_text(var.name)}: {dtype}[{shape}]{marks}{_where_text(var.made_at, labels)}"


# ---------------------------------------------------------------------------------------------------------------- ops
def op_text(op: Operator, with_details: bool = False, labels: Labels | None = None, index: int | None = None) -> str:
    """Writes ``{Out=['y']} = relu(inputs={X=['x']})  # train.py:7``; automatic attributes where they say something.

    Args:
        op: The op.
        with_details: Write every automatic attribute.
        labels: Short names of source files; the paths themselves if ``None``.
        index: The op's number in its block; its position is left out when it is this one.
    """
    parts = [f"inputs={_slots_text(op._inputs)}"]
    parts += [f"{name_text(n)} = {value_text(v)}" for n, v in op._attrs.items()]
    position = op.position if index is None else op_position(op.block.idx, index)
    for name, value in OpDesc.marks(op, with_details, usual={"position": position}):
        parts.append(f"op_{name} = {role_text(value) if name == 'role' else value_text(value)}")
    return f"{_slots_text(op._outputs)} = {name_text(op.type)}({', '.join(parts)}){_where_text(op.where, labels)}"


def _slots_text(slots: Mapping[str, tuple[str, ...]]) -> str:
    # `str.__repr__`, because the repr of a numpy.str_ is not a Python literal.
    rows = [f"{name_text(slot)}=[{', '.join(map(str.__repr__, row))}]" for slot, row in slots.items()]
    return f"{{{', '.join(rows)}}}"


# ------------------------------------------------------------------------------------------------- blocks and programs
def block_text(block: Block, with_details: bool = False, labels: Labels | None = None) -> str:
    """Writes a block: its variables, then its ops."""
    marks = BlockDesc.marks(block, with_details, usual={"built": len(block.ops)})
    lines = [f"block {block.idx}{_marks(marks)} {{"]
    lines += [f"    {variable_text(v, with_details, labels)}" for v in block.vars.values()]
    if block.vars and block.ops:
        lines.append("")
    lines += [f"    {op_text(op, with_details, labels, i)}" for i, op in enumerate(block.ops)]
    return "\n".join([*lines, "}"])


def program_text(program: Program, with_details: bool = False, process: str = "") -> str:
    """Writes a program; equal programs give equal text.

    Args:
        program: The program.
        with_details: Write what is at its default too.
        process: What the process is called whose functions the program calls.
    """
    labels = labels_of(program)
    marks = ProgramDesc.marks(program, with_details, {"learning_rate": learning_rate_of(program), "process": process})
    lines = [f"program{_marks(marks)}"]
    lines += [f"file {label!r} = {file!r}" for file, label in labels.items()]
    return "\n".join([*lines, *(block_text(b, with_details, labels) for b in program.blocks)])


def text_of(part: Program | Block | Operator | Variable, with_details: bool = False) -> str:
    """Writes a program or a part of one."""
    if isinstance(part, Program):
        return program_text(part, with_details, process_of(part))
    if isinstance(part, Block):
        return block_text(part, with_details)
    return op_text(part, with_details) if isinstance(part, Operator) else variable_text(part, with_details)


# ------------------------------------------------------------------------------- programs that only this process can run
def shared_text(program: Program) -> str:
    """Writes a program as every process does that builds the same one: Python functions are numbered from 0."""
    names = {
        n for b in program.blocks for op in b.ops for n, spec in op.definition.attrs.items() if spec.kind == "function"
    }
    text = program_text(program)
    if not names:
        return text
    numbers: dict[str, int] = {}
    call = re.compile(rf"\b({'|'.join(sorted(names))}) = (\d+)")
    return call.sub(lambda found: f"{found[1]} = {numbers.setdefault(found[2], len(numbers))}", text)
