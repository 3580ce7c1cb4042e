"""What must be true of a frozen program; checked after every pass."""

from __future__ import annotations

from tstatic.ir.frozen import FrozenProgram


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
    for i in range(max(0, index - 5), min(len(program.ops), index + 3)):
        lines.append(f"  {i:5d}  {program.ops[i]!r}")
        if i == index:
            lines.append(f"         ^ {message}")
    return "\n".join(lines)
