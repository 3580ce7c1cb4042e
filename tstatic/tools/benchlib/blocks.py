"""Block sizes that ``--block`` asks for: read, checked against the kernels of a row, and what kernels ran with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tstatic.devices import Device
from tstatic.errors import ProgramError, near
from tstatic.fusion.codegen.kernel import Launch
from tstatic.ir.program import Program
from tstatic.ir.types import Meta, dtype_of
from tstatic.plan.plan import Plan
from tstatic.runtime.scope import Scope
from tstatic.static.compile import compile_program
from tstatic.static.strategy import BuildStrategy
from tstatic.target import Blocks, planning_with
from tstatic.tools.testing.parts import Array


def read_blocks(texts: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Reads ``NAME=SIZE``.

    Raises:
        ProgramError: If a text is something else, a size is not a power of two, or a name stands there twice.
    """
    found: dict[str, int] = {}
    for text in texts:
        name, _, size = text.partition("=")
        # Digits alone: int() also reads 1_0 and -1.
        if not name.isidentifier() or not (size.isascii() and size.isdigit() and len(size) < 10):
            raise ProgramError(
                f"--block {text}: this is not a block size", expected="NAME=SIZE", received=repr(text),
                fix="write --block ROWS=64, for example",
            )  # fmt: skip
        number = int(size)
        if number < 1 or number & (number - 1):
            lower = 1 << max(0, number.bit_length() - 1)
            raise ProgramError(
                f"--block {text}: {number} is not a power of two, which the sizes of Triton's blocks are",
                expected="1, 2, 4, 8, ...", received=size, fix=f"--block {name}={lower} or --block {name}={2 * lower}",
            )  # fmt: skip
        if name in found:
            raise ProgramError(
                f"--block {text}: {name} has a size already", expected="each name once",
                received=f"{name}={found[name]} and {text}", fix="leave one of them out; a run measures one size",
            )  # fmt: skip
        found[name] = number
    return tuple(sorted(found.items()))


def check_blocks(
    row: str,
    given: Sequence[tuple[str, int]],
    device: Device,
    program: Program,
    feed: Mapping[str, Array],
    state: Mapping[str, Array],
    fetches: Sequence[str],
    strategy: BuildStrategy,
) -> None:
    """Checks that the kernels of a row have the blocks that somebody asked for; plans them, and runs nothing.

    Args:
        row: Its name, for messages.
        given: Names and sizes.
        device: Where it is to run.
        program, feed, state, fetches, strategy: What runs.

    Raises:
        ProgramError: If no kernel of the row has a block of a name, or none can have one of the size.
    """
    asked = ", ".join(f"{name}={size}" for name, size in given)
    if not device.generated:
        raise ProgramError(
            f"--block {asked}: no generated kernel runs on this device, and so nothing has blocks",
            expected="a GPU, or Triton's interpreter", received=f"the device '{device.name}'",
            fix="add --device cuda, or set TSTATIC_CPU_BACKEND=interpret",
        )  # fmt: skip
    blocks, scope = Blocks(dict(given)), Scope()
    for name, array in state.items():
        scope.publish(name, array)
    metas = {name: Meta(array.shape, dtype_of(array.dtype)) for name, array in feed.items()}
    with planning_with(blocks):
        try:
            plan = compile_program(program, strategy, [metas], list(fetches), scope, device=device).first.plan
        except ProgramError as error:
            raise ProgramError(
                f"--block {asked}: the row '{row}' cannot be planned so: {error.what}",
                expected=error.expected, received=error.received, fix=error.fix,
            ) from error  # fmt: skip
    sizes = [(name, size) for one in launched(plan, blocks) for name, size in one["blocks"].items()]
    for name, size in given:
        if (name, size) not in sizes:
            names = list(dict.fromkeys(n for n, _ in sizes))
            raise ProgramError(
                f"--block {name}={size}: no kernel of the row '{row}' has a block of that name",
                expected=", ".join(names) or "no name: the row has no generated kernel with blocks to choose",
                received=name,
                fix=near(name, names) or "leave it out, or choose other rows with --op, --direction, --only and --skip",
            )


def launched(plan: Plan, blocks: Blocks | None) -> list[dict[str, Any]]:
    """Returns the generated kernels of a plan, each with the blocks that it was launched with: plain data, equal ones once.

    Args:
        plan: The plan.
        blocks: What its kernels were planned with, which knows the names of blocks; ``None``: no block is listed.
    """
    found: list[dict[str, Any]] = []
    for one in plan.kernels.values():
        for launch in one.calls.launches:
            if not isinstance(launch, Launch):
                continue
            constants = {n: int(v) for n, v in launch.constants.items() if blocks is not None and n in blocks.offered}
            said = {
                "kernel": one.kernel.template,
                "function": launch.function,
                "blocks": constants,
                "warps": launch.num_warps,
            }
            if said not in found and not launch.finishes:
                found.append(said)
    return found


def shown(kernels: Sequence[Mapping[str, Any]]) -> str:
    """Returns the kernels of a row as text: ``gemm.part ROWS=32 COLUMNS=32 STEP=16; rows ROWS=8``."""
    texts = []
    for one in kernels:
        sizes = " ".join(f"{name}={size}" for name, size in one["blocks"].items())
        function = "" if one["function"] == "kernel" else f".{one['function']}"
        if sizes:
            texts.append(f"{one['kernel']}{function} {sizes}")
    return "; ".join(texts)


__all__ = ["check_blocks", "launched", "read_blocks", "shown"]
