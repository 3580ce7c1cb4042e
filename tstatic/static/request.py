"""What a run asks for: names to fetch, the state that the program reads, and the program rewritten for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tstatic.errors import FeedTypeError, ProgramError, ProgramTypeError, reason, shown
from tstatic.ir.evaluate import meta_of
from tstatic.ir.frozen import FrozenProgram
from tstatic.ir.program import Operator, OpRole, Program, Variable, default_main_program
from tstatic.ir.types import Meta
from tstatic.plan.shapes import infer_program
from tstatic.runtime.scope import Scope
from tstatic.static import pipeline
from tstatic.static.strategy import BuildStrategy


def fetch_names(fetch_list: Any) -> tuple[list[str], list[str]]:
    """Names of a (nested) fetch list, and the names that optimizer ops in it write.

    Raises:
        FeedTypeError: For an item that is neither a text, a Variable nor an op.
    """
    names: list[str] = []
    kept: list[str] = []
    if fetch_list is None:
        return names, kept
    if isinstance(fetch_list, Mapping | set):
        raise FeedTypeError(
            "Currently, The fetch_list type only should be list or tuple, but the input type is "
            f"{type(fetch_list).__name__}",
            expected="a list or tuple of Variable or str",
            received=f"{type(fetch_list).__name__}",
            fix="pass fetch_list=[loss]",
            op="fetch",
        )
    stack: list[Any] = [fetch_list]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            names.append(item)
        elif isinstance(item, Variable):
            names.append(item.name)
        elif isinstance(item, Operator):
            kept.extend(item.output_arg_names)
        elif isinstance(item, list | tuple):
            if _is_minimize_result(item):
                kept.extend(n for op in item[0] for n in op.output_arg_names)
            else:
                stack.extend(reversed(item))
        elif item is not None or fetch_list is not None:
            raise FeedTypeError(
                f"The item in fetch_list should be str, variable or optimize_op, but received {type(item).__name__}.",
                expected="a Variable, its name, or what minimize returned",
                received=shown(item),
                fix="fetch variables or their names",
                op="fetch",
            )
    return names, kept


def _is_minimize_result(item: Any) -> bool:
    return (
        isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], list) and bool(item[0])
        and all(isinstance(op, Operator) for op in item[0])
    )  # fmt: skip


def state_metas(frozen: FrozenProgram, program: Program, scope: Scope) -> dict[str, Meta]:
    """Metadata of the persistable variables that a program reads, from the scope where it has them."""
    found = {}
    for var in frozen.reads:
        array = scope.array(var)
        declared = program.global_block()._find_var_recursive(var)
        if array is not None:
            found[var] = meta_of(array)
        elif declared is not None:
            found[var] = declared.meta
    return found


def fits(state: Mapping[str, Meta], scope: Scope) -> bool:
    """Whether a scope's values still have the metadata that a plan was made for."""
    for var, meta in state.items():
        array = scope.array(var)
        if array is None or array.shape != meta.shape:
            return False
    return True


def updated(program: Program) -> list[str]:
    """Names that the program's optimizer ops write."""
    return [n for op in program.global_block().ops if op.role & OpRole.Optimize for n in op.output_arg_names]


@dataclass(frozen=True)
class Rewritten:
    """A program after the passes before its fusions.

    Attributes:
        frozen: It.
        state: Metadata of the persistable variables that it reads.
        metas: Metadata of all its values.
    """

    frozen: FrozenProgram
    state: Mapping[str, Meta]
    metas: Mapping[str, Meta]


def rewritten_for(
    program: Program, strategy: BuildStrategy, feeds: Mapping[str, Meta], fetches: Sequence[str], scope: Scope
) -> Rewritten:
    """Rewrites a program for what is fed and fetched, and infers all shapes, once.

    Raises:
        TstaticError: For a feed or fetch that does not fit, or shapes that an op refuses.
    """
    frozen, _ = pipeline.rewrite(program, strategy, list(feeds), fetches)
    state = state_metas(frozen, program, scope)
    known = {**feeds, **{frozen.reads[var]: meta for var, meta in state.items()}}
    return Rewritten(frozen, state, infer_program(frozen, known))


def check_holders(feed_var_name: Any, fetch_var_name: Any) -> None:
    """Refuses names of Paddle's feed and fetch variables, which have no effect here, that are no texts.

    Raises:
        ProgramTypeError: If one is not a str.
    """
    for argument, name in (("feed_var_name", feed_var_name), ("fetch_var_name", fetch_var_name)):
        if not isinstance(name, str):
            raise ProgramTypeError(
                f"'{argument}' of Executor.run must be a text",
                expected="a str; it names a variable that tstatic does not need",
                received=shown(name),
                fix=f"leave '{argument}' out",
                op="Executor.run",
            )


def damaged_program(program: Any, error: Exception) -> ProgramError | None:
    """The error for a program from a file that says what no program would, past all that is checked when it is read.

    ``None`` for programs that were built here, and for those that call functions of the user's own, which may raise anything.
    """
    base: Program = getattr(program, "_program", program) or default_main_program()
    kinds = {attr.kind for block in base.blocks for op in block.ops for attr in op.definition.attrs.values()}
    if not base._from_file or "function" in kinds:
        return None
    return ProgramError(
        "the program, which was read from a file, cannot be run: its parts do not fit together",
        expected="a program as it was saved",
        received=reason(error),
        fix="save it again from the code that built it, or take an older copy of the file",
        op="Executor.run",
    )
