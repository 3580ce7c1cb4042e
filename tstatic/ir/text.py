"""Programs as readable text, and back."""

from __future__ import annotations

from typing import Any


def op_text(op: Any) -> str:
    """One line per op."""

    def side(slots: Any) -> str:
        return ", ".join(f"{s}={list(n)!r}" for s, n in slots.items())

    attrs = "".join(f", {n}={v!r}" for n, v in sorted(op.attrs.items()))
    return f"{{{side(op.outputs)}}} = {op.type}(inputs={{{side(op.inputs)}}}{attrs})"


def block_text(block: Any) -> str:
    lines = [f"{{ // block {block.idx}"]
    lines += [f"    {v!r}" for v in block.vars.values()]
    lines += [f"    {op_text(o)}" for o in block.ops]
    return "\n".join([*lines, "}"])


def program_text(program: Any) -> str:
    return "\n".join(block_text(b) for b in program.blocks)
