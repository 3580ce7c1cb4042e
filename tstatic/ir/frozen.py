"""The single-assignment copy of a program that passes work on: each value is written once; what goes in and out is listed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tstatic.errors import FeedError, NotFoundError, ProgramError, near
from tstatic.ir.edit import sub_blocks
from tstatic.ir.opdef import EMPTY, OpDef, op_def
from tstatic.ir.program import Block, Operator, Program
from tstatic.ir.traits import MayLack
from tstatic.ir.types import Meta
from tstatic.where import Where, show

Entry = str | None | tuple[str, ...]
"""What stands in a slot: a value, nothing, or (for a ``*`` slot) several values; ``@EMPTY@`` marks a hole in a list."""


@dataclass(frozen=True, slots=True)
class FrozenOp:
    """One op over values.

    Attributes:
        definition: What the op is.
        inputs, outputs: One entry per slot of the op definition.
        attrs: Complete attributes.
        role, role_var: As of ``Operator``.
        where: The user's line that built it.
        position: Where the op stood when it was built; keys its random numbers and never changes.
        sub_blocks: Bodies of control flow.
        scope: The op's name scope; parts of it forbid or demand fusions.
        body: For a fused op: the ops that it replaces, over values of the program and values of their own.
        fusion: For a fused op: the name of the fusion that made it.
        kernel: For a fused op: its generated kernel; ``None`` once its inputs were renamed.
        make_kernel: For a fused op: makes the kernel, from the body, the metadata of all values and the values written.
        slot_names: Slot -> variable names as the program has them (control flow looks values up by name).
    """

    definition: OpDef
    inputs: tuple[Entry, ...]
    outputs: tuple[Entry, ...]
    attrs: Mapping[str, Any]
    role: int = 0
    role_var: tuple[str, ...] = ()
    where: Where | None = None
    position: int = 0
    sub_blocks: tuple[SubBlock, ...] = ()
    slot_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    scope: str = ""
    body: tuple[FrozenOp, ...] = ()
    fusion: str = ""
    kernel: Any = field(default=None, repr=False, compare=False)
    make_kernel: Callable[[Sequence[FrozenOp], Mapping[str, Meta], Sequence[str]], Any] | None = field(
        default=None, repr=False, compare=False
    )
    # Every pass asks every op what it reads and writes, often: an op keeps the answers.
    _reads: tuple[str, ...] | None = field(default=None, init=False, repr=False, compare=False)
    _contents: tuple[str, ...] | None = field(default=None, init=False, repr=False, compare=False)
    _writes: tuple[str, ...] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def type(self) -> str:
        return self.definition.type

    def reads(self) -> Sequence[str]:
        """Returns all values that the op reads."""
        if self._reads is None:
            # Past `frozen`: an answer that is kept changes nothing.
            object.__setattr__(self, "_reads", tuple(flat(self.inputs)))
        assert self._reads is not None
        return self._reads

    def contents(self) -> Sequence[str]:
        """Returns the values whose elements the op reads, without those of which it needs only the shape."""
        if self._contents is None:
            slots = zip(self.definition.inputs, self.inputs, strict=True)
            needed = [entry for slot, entry in slots if slot.name not in self.definition.shape_only]
            object.__setattr__(self, "_contents", tuple(flat(needed)))
        assert self._contents is not None
        return self._contents

    def writes(self) -> Sequence[str]:
        """Returns all values that the op writes."""
        if self._writes is None:
            object.__setattr__(self, "_writes", tuple(flat(self.outputs)))
        assert self._writes is not None
        return self._writes

    def input(self, slot: str) -> Entry:
        return self.inputs[[s.name for s in self.definition.inputs].index(slot)]

    def output(self, slot: str) -> Entry:
        return self.outputs[[s.name for s in self.definition.outputs].index(slot)]

    def with_inputs(self, rename: Mapping[str, str]) -> FrozenOp:
        """Replaces input values."""
        body = tuple(op.with_inputs(rename) for op in self.body)
        # A kernel names the values that it loads: one for the new names is made when it is asked for.
        return replace(self, inputs=tuple(_renamed(e, rename) for e in self.inputs), body=body, kernel=None)

    def __repr__(self) -> str:
        outs = ", ".join(self.writes())
        return f"{outs} = {self.type}({', '.join(self.reads())})"


def flat(entries: Sequence[Entry]) -> list[str]:
    """Returns the values of entries, without holes."""
    found: list[str] = []
    for e in entries:
        if e is None:
            continue
        if isinstance(e, str):
            if e != EMPTY:
                found.append(e)
        else:
            found.extend(n for n in e if n != EMPTY)
    return found


def _renamed(entry: Entry, rename: Mapping[str, str]) -> Entry:
    if entry is None:
        return None
    if isinstance(entry, str):
        return rename.get(entry, entry)
    return tuple(rename.get(n, n) for n in entry)


@dataclass(frozen=True, slots=True)
class SubBlock:
    """The body of a control-flow op: ops over values of its own; what it does not make, it is given by name."""

    block: int
    ops: tuple[FrozenOp, ...]
    inputs: tuple[tuple[str, str], ...]
    """(variable name, value) of what the body reads from outside."""
    outputs: tuple[tuple[str, str], ...]
    """(variable name, value): the last value of every variable that the body writes."""
    metas: Mapping[str, Meta]
    grad_prefix: str = ""


@dataclass(frozen=True, slots=True)
class FrozenProgram:
    """A program in single-assignment form.

    Attributes:
        ops: In an order in which each value is made before it is read.
        metas: Value -> metadata at build time (sizes may be unknown).
        names: Value -> variable name.
        feeds: Variable names that are fed (each is also a value).
        fetches: (name asked for, value) in the order of ``fetch_list``.
        reads: Persistable variable -> value that holds it before the run.
        writes: Persistable variable -> value that holds it after the run.
        constants: Values that passes computed at compile time.
        uid, version: Identity of the program it was made from.
    """

    ops: tuple[FrozenOp, ...]
    metas: Mapping[str, Meta]
    names: Mapping[str, str]
    feeds: tuple[str, ...]
    fetches: tuple[tuple[str, str], ...]
    reads: Mapping[str, str]
    writes: Mapping[str, str]
    constants: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    uid: int = 0
    version: int = 0

    def roots(self) -> set[str]:
        """Returns the values that must exist at the end."""
        return {v for _, v in self.fetches} | set(self.writes.values())

    def edit(self, **changes: Any) -> FrozenProgram:
        return replace(self, **changes)


def unfused(program: FrozenProgram) -> FrozenProgram:
    """Replaces every fused op by the ops of its body."""
    ops: list[FrozenOp] = []
    # A stack, last op first: a fused op may contain fused ops, and order must stay.
    pending = list(reversed(program.ops))
    while pending:
        op = pending.pop()
        if op.body:
            pending.extend(reversed(op.body))
        else:
            ops.append(op)
    return program.edit(ops=tuple(ops))


class _Frame:
    """Names of one block while it is being frozen."""

    def __init__(self, block: Block, feeds: Iterable[str] = ()) -> None:
        self.block = block
        # Version 0 of a fed variable has the variable's name.
        self.current: dict[str, str] = {n: n for n in feeds}
        self.versions: dict[str, int] = dict.fromkeys(self.current, 0)
        self.metas: dict[str, Meta] = {}
        self.names: dict[str, str] = {n: n for n in self.current}
        self.external: dict[str, str] = {}
        self.written: dict[str, None] = {}  # in the order of writing, which a set would lose

    def note(self, value: str, name: str) -> str:
        self.names[value] = name
        var = self.block._find_var_recursive(name)
        if var is not None:
            self.metas[value] = var.meta
        return value

    def read(self, name: str) -> str:
        value = self.current.get(name)
        if value is None:
            # Read before any op wrote it: it comes from outside, under its own name, as version 0.
            value = self.current[name] = self.note(name, name)
            self.versions[name] = 0
            self.external[name] = value
        return value

    def write(self, name: str) -> str:
        version = self.versions.get(name)
        if version is None:
            self.versions[name] = 0
            value = name
            var = self.block._find_var_recursive(name)
            if var is not None and var.persistable:
                # The first version of a persistable variable is what the scope holds.
                self.versions[name] = 1
                value = f"{name}#1"
        else:
            self.versions[name] = version + 1
            value = f"{name}#{version + 1}"
        self.current[name] = value
        self.written[name] = None
        return self.note(value, name)


def _slot_entries(slots: Any, given: Mapping[str, tuple[str, ...]], use: Callable[[str], str]) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    for slot in slots:
        row = given.get(slot.name)
        if slot.many:
            # A hole keeps its place in a list; a single slot without a value is absent.
            entries.append(tuple(n if n == EMPTY else use(n) for n in row or ()))
        elif row and row[0] != EMPTY:
            entries.append(use(row[0]))
        else:
            entries.append(None)
    return tuple(entries)


def _freeze_op(op: Operator, frame: _Frame) -> FrozenOp:
    definition = op_def(op.type)
    frozen: tuple[SubBlock, ...] = ()
    slot_names: dict[str, tuple[str, ...]] = {}
    if any(spec.kind == "block" for spec in definition.attrs.values()):
        frozen = tuple(_freeze_sub_block(op.block.program.blocks[i]) for i in sub_blocks(op))
        # Bodies look values up by variable name, which versions would hide.
        slot_names = {**op.inputs, **{n: v for n, v in op.outputs.items() if n not in op.inputs}}
    inputs = _slot_entries(definition.inputs, op.inputs, frame.read)
    # After the inputs: an op that reads and writes a variable reads its old version.
    outputs = _slot_entries(definition.outputs, op.outputs, frame.write)
    return FrozenOp(
        definition,
        inputs,
        outputs,
        dict(op.attrs),
        op.role,
        op.role_var,
        op.where,
        op.position,
        frozen,
        slot_names,
        op.namescope,
    )


def _freeze_sub_block(block: Block) -> SubBlock:
    frame = _Frame(block)
    ops = tuple(_freeze_op(op, frame) for op in block.ops)
    return SubBlock(
        block.idx,
        ops,
        tuple(frame.external.items()),
        tuple((n, frame.current[n]) for n in frame.written),
        frame.metas,
        block.grad_prefix,
    )


def freeze(
    program: Program,
    feeds: Sequence[str],
    fetches: Sequence[str],
    skip: Callable[[Operator], bool] | None = None,
) -> FrozenProgram:
    """Freezes a program: makes its single-assignment copy.

    Args:
        program: What to freeze.
        feeds: Names of the variables that are fed.
        fetches: Names asked for.
        skip: Ops for which it is true are left out (the loss gradient's fill when the user feeds it).

    Raises:
        NotFoundError: If a fetched name is not a variable of the program.
        FeedError: If a declared input is read but not fed.
        ProgramError: If a variable is read that nothing makes.
    """
    block = program.global_block()
    frame = _Frame(block, feeds)
    for name in feeds:
        frame.note(name, name)
    ops = []
    for op in block.ops:
        if skip is not None and skip(op):
            continue
        ops.append(_freeze_op(op, frame))
    reads: dict[str, str] = {}
    # An input that only a branch reads need not be fed in runs that do not take the branch.
    lacking = _lacking(block, frame.external, ops)
    ops = [_without(op, lacking) for op in ops] if lacking else ops
    for name, value in frame.external.items():
        if name in lacking:
            continue
        _check_external(program, name, feeds, ops)
        reads[name] = value
    fetched = []
    for name in fetches:
        if name not in frame.current:
            var = block._find_var_recursive(name)
            if var is None:
                raise NotFoundError(
                    f"cannot fetch '{name}': the program has no variable of that name",
                    expected=f"one of the program's {len(block.vars)} variables",
                    received=repr(name),
                    fix=near(name, block.vars) or "list them with program.list_vars()",
                    var=name,
                    op="fetch",
                )
            if not var.persistable:
                raise FeedError(
                    f"cannot fetch '{name}': no operator of the program makes it"
                    + (" and it is not fed" if var.is_data else ""),
                    expected="a variable that an operator writes, a fed input, or a persistable variable",
                    received=repr(var),
                    fix=f"feed '{name}'"
                    if var.is_data
                    else "fetch another variable, or add the operator that writes it",
                    var=name,
                    op="fetch",
                    where=show(var.made_at),
                )
            # A persistable variable that no op touches is fetched from the scope as it is.
            reads[name] = frame.read(name)
        fetched.append((name, frame.current[name]))
    # The last version of a persistable variable goes back to the scope, and no other.
    writes = {}
    for name in frame.written:
        var = block._find_var_recursive(name)
        if var is not None and var.persistable:
            writes[name] = frame.current[name]
    return FrozenProgram(
        tuple(ops), frame.metas, frame.names, tuple(feeds), tuple(fetched), reads, writes,
        uid=program.uid, version=program.version,
    )  # fmt: skip


def _lacking(block: Block, external: Iterable[str], ops: Sequence[FrozenOp]) -> set[str]:
    """Returns declared inputs that are not fed and that only branches read, which may not run."""
    found = {n for n in external if (var := block.vars.get(n)) is not None and var.is_data and not var.persistable}
    for op in ops:
        for slot, entry in zip(op.definition.inputs, op.inputs, strict=True):
            # Any other reader runs for certain, so the input is needed.
            if found and slot.name not in op.definition.slots_of(MayLack):
                found.difference_update(flat((entry,)))
    return found


def _without(op: FrozenOp, lacking: set[str]) -> FrozenOp:
    """Replaces missing inputs of an op by holes."""
    if lacking.isdisjoint(op.reads()):
        return op
    inputs = tuple(tuple(EMPTY if v in lacking else v for v in e) if isinstance(e, tuple) else e for e in op.inputs)
    return replace(op, inputs=inputs)


def _check_external(program: Program, name: str, feeds: Sequence[str], ops: Sequence[FrozenOp]) -> None:
    var = program.global_block()._find_var_recursive(name)
    if var is not None and var.persistable:
        return
    # The user's line in the message is that of an op which needs the value.
    reader = next((op for op in ops if name in op.reads()), None)
    owner = next((v for v in program.global_block().vars.values() if v.is_data and name in v.lod), None)
    if owner is not None:
        count = len(owner.lod)
        lengths = "[lengths]" if count == 1 else f"[{', '.join(['lengths'] * count)}]"
        raise FeedError(
            f"the sequences of '{owner.name}' are read, but the feed does not say where they begin",
            expected=f"a LoDTensor with {count} level{'s' * (count > 1)} of offsets",
            received="an array" if owner.name in feeds else f"feed with {', '.join(map(repr, feeds)) or 'nothing'}",
            fix=f"feed fluid.create_lod_tensor(array, {lengths}, place) for '{owner.name}'",
            op=reader.type if reader else "fetch",
            var=owner.name,
            where=show(reader.where if reader else None),
        )
    if var is not None and var.is_data:
        raise FeedError(
            f"input '{name}' is not fed",
            expected=f"feed={{'{name}': array of {var.dtype.name}{list(var.shape)}}}",
            received=f"feed with {', '.join(map(repr, feeds)) or 'nothing'}",
            fix=near(name, feeds) or f"add '{name}' to feed",
            op=reader.type if reader else None,
            var=name,
            where=show(reader.where if reader else var.made_at),
        )
    raise ProgramError(
        f"variable '{name}' is read, but no operator before makes it and it is not fed",
        expected="a variable that an earlier operator writes, or a fed input",
        received=f"'{name}', which nothing writes",
        fix=f"add the operator that writes '{name}', feed it, or make it persistable if the startup program fills it",
        op=reader.type if reader else None,
        var=name,
        where=show(reader.where if reader else None),
    )


# ------------------------------------------------------------------------------------------------------------ verify
class VerifyError(AssertionError):
    """A pass left a program that cannot be right: a fault of tstatic, not of the user's program."""


def verify(program: FrozenProgram, after: str) -> None:
    """Checks that each value is made once, before it is read, and that all roots exist.

    Raises:
        VerifyError: With the name of the pass and the program's text, the message under the op concerned.
    """
    known = set(program.feeds) | set(program.reads.values()) | set(program.constants)
    for index, op in enumerate(program.ops):
        for value in op.reads():
            if value not in known:
                raise VerifyError(_report(program, index, f"'{value}' is read before it is made", after))
        for value in op.writes():
            if value in known:
                raise VerifyError(_report(program, index, f"'{value}' is made twice", after))
            known.add(value)
        if len(op.inputs) != len(op.definition.inputs) or len(op.outputs) != len(op.definition.outputs):
            raise VerifyError(_report(program, index, "its slots do not fit its definition", after))
    for value in program.roots():
        if value not in known:
            raise VerifyError(
                _report(program, len(program.ops), f"'{value}' is fetched or kept, but nothing makes it", after)
            )


def _report(program: FrozenProgram, index: int, message: str, after: str) -> str:
    lines = [f"after pass '{after}': {message}"]
    # Five ops before it and two behind show what the pass did there.
    for i in range(max(0, index - 5), min(len(program.ops), index + 3)):
        lines.append(f"  {i:5d}  {program.ops[i]!r}")
        if i == index:
            lines.append(f"         ^ {message}")
    return "\n".join(lines)
