"""Reads the arguments of a run: what it feeds, the names that it fetches, the state that the program reads, the plan's device."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.devices import Device, cpu_device, of_place
from tstatic.errors import FeedTypeError, ProgramError, reason, shown
from tstatic.ir.checks import check_type
from tstatic.ir.evaluate import meta_of
from tstatic.ir.frozen import FrozenProgram
from tstatic.ir.operator import OpRole
from tstatic.ir.program import Operator, Program, Variable
from tstatic.ir.types import UNKNOWN, Meta, dtype_of
from tstatic.places import Place
from tstatic.plan.capacity import chip_of
from tstatic.runtime.feed import Arrays, read_feed
from tstatic.runtime.lod import FetchedLods, open_rows
from tstatic.runtime.scope import Scope, dtype_check
from tstatic.target import CHIPS, Target

Signature = tuple[tuple[str, tuple[int, ...], np.dtype[Any]], ...]
"""Name, shape and dtype of all fed arrays, sorted by name."""

MOST_ACCEPTED = 1 << 14
"""The most kinds of arrays that a FeedReader remembers, so that feeds of ever new sizes do not fill the memory: 200 bytes each, and
far more than the sizes of which an Executor keeps plans, so that sizes in turn do not push each other out."""


def signature_of(arrays: Arrays, open_rows: Mapping[str, str]) -> Signature:
    """Returns the part of a feed that a compilation depends on.

    Args:
        arrays: The feed.
        open_rows: Variables whose first size it does not depend on, if the variable beside them is fed, too: rows of sequences.
    """
    return tuple(
        (name, (UNKNOWN, *array.shape[1:]) if open_rows.get(name) in arrays else array.shape, array.dtype)
        for name, array in sorted(arrays.items())
    )


def metas_of(signature: Signature) -> dict[str, Meta]:
    """Returns the metadata of a feed."""
    return {name: Meta(shape, dtype_of(dtype)) for name, shape, dtype in signature}


class FeedReader:
    """Reads the feeds of one version of a program, and remembers which kinds of arrays have passed all checks.

    Args:
        program: The program; after an edit, another version needs another reader.
        fetches: Names that are fetched; an input may be among them.
    """

    def __init__(self, program: Program, fetches: Sequence[str]) -> None:
        read = {name for block in program.blocks for op in block.ops for name in op.input_arg_names}
        self.lods = FetchedLods(program, fetches)
        self.used = frozenset(read | set(fetches) | self.lods.names)
        self.open_rows = open_rows(program)
        # (name, shape, dtype) of plain arrays that need no conversion -> whether the program uses the fed value.
        self._accepted: dict[tuple[str, tuple[int, ...], np.dtype[Any]], bool] = {}

    def read(self, program: Program, feed: Any, device: Device | None = None) -> tuple[Arrays, Signature]:
        """Returns the arrays that a run needs, checked, and their signature; what lies on the device stays there.

        Raises:
            FeedError, FeedTypeError: As :func:`tstatic.runtime.feed.read_feed` does.
        """
        if type(feed) is dict:
            # For arrays that passed before, one loop without calls takes 0.6 us; all checks of one array take 4, a small step 25.
            arrays: Arrays = {}
            parts = []
            accepted = self._accepted
            for name, value in list(feed.items()):  # copied at once: another thread may change the feed
                if type(value) is not np.ndarray:
                    break
                kind = name, value.shape, value.dtype
                used = accepted.get(kind)
                if used is None:
                    break
                if used:
                    arrays[name] = value
                    parts.append(kind)
            else:
                parts.sort()
                return arrays, tuple(parts)
        arrays = read_feed(program, feed, self.used, device)
        if type(feed) is dict:
            self._accept(program, feed, arrays)
        return arrays, signature_of(arrays, self.open_rows)

    def _accept(self, program: Program, feed: Mapping[str, Any], arrays: Arrays) -> None:
        """Remembers the kinds of arrays that were used unconverted and that fit their declarations in every check."""
        # All at once: an order of use would cost every run.
        if len(self._accepted) > MOST_ACCEPTED:
            self._accepted.clear()
        for name, value in list(feed.items()):
            var = program.global_block().vars.get(name)
            if var is None or var.lod or type(value) is not np.ndarray or value.dtype != var.dtype.np:
                continue
            sizes = len(var.shape) == value.ndim and all(
                w in (UNKNOWN, g) for w, g in zip(var.shape, value.shape, strict=True)
            )
            if sizes and (name not in self.used or arrays.get(name) is value):
                self._accepted[name, value.shape, value.dtype] = name in arrays


def with_readers(program: Program, feed: Any, places: int) -> Any:
    """Returns the feed of a run with the next batches of the program's loaders.

    Args:
        program: The program to run.
        feed: The user's ``feed``: a dict, a list with a dict for each place, or ``None``; it wins over the loaders.
        places: Number of places; each takes a batch, while there are any: the list may be shorter.
    """
    given = feed if isinstance(feed, list | tuple) else [feed or {}] * places
    if len(given) != places or not all(isinstance(one, Mapping) for one in given):
        return feed  # what checks feeds says why
    parts = [dict(one) for one in given]
    taken = [batches for reader in program.readers if (batches := reader.take(places, parts[0])) is not None]
    if not taken:
        return feed
    # The loader with the fewest batches left decides on how many places the program runs.
    parts = parts[: min(map(len, taken))]
    for batches in taken:
        for part, batch in zip(parts, batches, strict=False):
            part.update(batch)
    return parts if places > 1 else parts[0]


def fed_places(program: Program, feed: Any, places: int) -> int:
    """Returns on how many of several places a program runs: as many as a list feeds.

    A loader's last batches may be fewer than the places. A program with a backward pass takes no such list, as in Paddle: its
    gradients would be those of fewer samples without a word.
    """
    if not isinstance(feed, list | tuple) or not 0 < len(feed) < places:
        return places
    return places if any(op.role & OpRole.Backward for op in program.global_block().ops) else len(feed)


def fed_state(program: Program, feeds: Iterable[str], writes: Container[str] = ()) -> tuple[str, ...]:
    """Returns the fed persistable variables that a run leaves as they were fed, since no operator writes them."""
    block = program.global_block()
    return tuple(n for n in feeds if (var := block.vars.get(n)) is not None and var.persistable and n not in writes)


def fetch_names(fetch_list: Any) -> tuple[list[str], list[Operator]]:
    """Returns the names of a (nested) fetch list, and the ops in it, of those that ``minimize`` returned.

    Raises:
        FeedTypeError: If an item is not a str, a Variable or an op.
    """
    names: list[str] = []
    kept: list[Operator] = []
    if fetch_list is None:
        return names, kept
    # Lists first: a look at an abstract class costs more than the rest of this check.
    if type(fetch_list) is not list and isinstance(fetch_list, Mapping | set):
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
            kept.append(item)
        elif isinstance(item, list | tuple):
            # As in Paddle, what `minimize` returned prunes the program to these updates.
            if isinstance(item, tuple) and _is_minimize_result(item):
                kept.extend(item[0])
            else:
                # Reversed, since the stack gives its last item first: names keep their order.
                stack.extend(reversed(item))
        else:
            raise FeedTypeError(
                f"The item in fetch_list should be str, variable or optimize_op, but received {type(item).__name__}.",
                expected="a Variable, its name, or what minimize returned",
                received=shown(item),
                fix="fetch variables or their names",
                op="fetch",
            )
    return names, kept


def _is_minimize_result(item: tuple[Any, ...]) -> bool:
    return (
        len(item) == 2 and isinstance(item[0], list) and bool(item[0])
        and all(isinstance(op, Operator) for op in item[0])
    )  # fmt: skip


def state_metas(frozen: FrozenProgram, program: Program, scope: Scope) -> dict[str, Meta]:
    """Returns the metadata of the persistable variables that a program reads: of their values, else as declared."""
    found = {}
    for var in frozen.reads:
        array = scope.array(var)
        declared = program.global_block()._find_var_recursive(var)
        if array is not None:
            found[var] = meta_of(array)
            # Only mixed precision changes a parameter's type under a value that a startup program made before.
            if program.mixed_precision and declared is not None:
                dtype_check(var, declared.dtype, found[var].dtype)
        elif declared is not None:
            found[var] = declared.meta
    return found


def check_holders(feed_var_name: Any, fetch_var_name: Any) -> None:
    """Checks that the names of Paddle's feed and fetch variables, which have no effect here, are texts.

    Raises:
        ProgramTypeError: If one is not a str.
    """
    if isinstance(feed_var_name, str) and isinstance(fetch_var_name, str):
        return
    for argument, name in (("feed_var_name", feed_var_name), ("fetch_var_name", fetch_var_name)):
        if not isinstance(name, str):
            expected = "a str; it names a variable that tstatic does not need"
            check_type(name, str, argument, "Executor.run", expected=expected, fix=f"leave '{argument}' out")


def damaged_program(base: Program, error: Exception) -> ProgramError | None:
    """Returns the error for a program from a damaged file, if the checks on reading could not find the damage.

    ``None`` for programs that were built in this process, and for those that call user functions, which may raise anything.
    """
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


def planned_for(place: Any) -> Device | Target | None:
    """Returns the GPU, or the chip, that a run is planned for; ``None``: a CPU place.

    Args:
        place: A place, a chip or its name, or ``None``.

    Raises:
        ProgramError: If it is nothing of these.
        DeviceError: If the GPU of the place is not there.
    """
    if isinstance(place, Place):
        device = of_place(place)
        return None if device is cpu_device() else device
    if place is None or isinstance(place, Target):
        return place
    chip = chip_of(place) if isinstance(place, str) else None
    if chip is None:
        raise ProgramError(
            "this is neither a place nor a chip",
            expected=f"CPUPlace(), CUDAPlace(0), or one of {', '.join(one.short_name.upper() for one in CHIPS)}",
            received=shown(place),
            fix="give a place, or the name of a chip",
        )
    return chip
