"""Adds the partial sums that many kernels leave with one launch, just before the first of the results is read.

The gradients of biases and of norms are sums over rows, of which each kernel's programs leave partial sums. What adds them is
a launch of a few numbers per kernel, and nobody reads its results before the update. So kernels of a chip hand their partial
sums on as values, and one launch adds all of them: in the same order as each would, so that the bits are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tstatic.fusion.codegen.kernel import Kernel, KernelLocal, Launch, Launches, LibraryProduct
from tstatic.fusion.codegen.update.strip_sums import StripSum, strip_sums
from tstatic.ir.frozen import Entry, FrozenOp, FrozenProgram
from tstatic.ir.opdef import OpDef, op_def
from tstatic.ir.operator import OpRole
from tstatic.ir.types import Meta
from tstatic.target import DEFAULT_TARGET

Planned = Mapping[tuple[Entry, ...], tuple[Kernel, Launches]]
"""The kernels of fused ops with their launches, by the ops' outputs."""


def finish_together(
    program: FrozenProgram, metas: Mapping[str, Meta], planned: Planned
) -> tuple[FrozenProgram, Mapping[str, Meta], Planned]:
    """Returns the program, its metadata and its kernels after partial sums were taken together.

    Args:
        program: After all fusions.
        metas: Metadata of all its values.
        planned: Its kernels, planned for a chip.
    """
    places = [(index, sums) for index, sums in _by_first_reader(program, metas, planned) if _saves(sums)]
    if not places:
        return program, metas, planned
    own, kernels = dict(metas), dict(planned)
    given = {one.result: one for _, sums in places for one, _ in sums}
    own.update((one.partials, Meta((one.strips, one.kept), one.compute)) for one in given.values())
    changed: dict[int, FrozenOp] = {}
    for index in {index for _, sums in places for _, index in sums}:
        op = program.ops[index]
        kernel, calls = kernels.pop(op.outputs)
        changed[index], launches = _without_sums(op, calls, given)
        # Under its new outputs, in which partial sums have the place of the sums.
        kernels[changed[index].outputs] = kernel, launches
    before: dict[int, list[FrozenOp]] = {}
    for index, sums in places:
        alike: dict[tuple[object, ...], list[StripSum]] = {}
        for one, _ in sums:
            alike.setdefault(one.alike, []).append(one)
        for members in alike.values():
            # At the line of the kernel whose sums are there last.
            last = max(maker for one, maker in sums if one in members)
            op, kernel = _added(members, program.ops[last])
            before.setdefault(index, []).append(op)
            # Cut as the kernels left their strips, whatever the chip.
            kernels[op.outputs] = kernel, kernel.plan(DEFAULT_TARGET)
    ops: list[FrozenOp] = []
    for index, op in enumerate(program.ops):
        ops += before.get(index, ())
        ops.append(changed.get(index, op))
    return program.edit(ops=(*ops, *before.get(len(program.ops), ()))), own, kernels


def _by_first_reader(
    program: FrozenProgram, metas: Mapping[str, Meta], planned: Planned
) -> Iterator[tuple[int, list[tuple[StripSum, int]]]]:
    """Yields where sums have to be known, and those, each with the index of the op whose kernel leaves it to be added."""
    waiting: dict[str, tuple[StripSum, int]] = {}
    for index, op in enumerate(program.ops):
        if waiting and not waiting.keys().isdisjoint(op.reads()):
            # Also those that nobody reads yet: a launch for each reader would save less.
            yield index, list(waiting.values())
            waiting = {}
        if op.outputs in planned:
            waiting |= {one.result: (one, index) for one in _left(op, metas, planned[op.outputs][1])}
    if waiting:
        yield len(program.ops), list(waiting.values())


def _saves(sums: Sequence[tuple[StripSum, int]]) -> bool:
    """Returns whether taking sums together makes fewer launches: a kernel adds its own ones with at least one."""
    return len({one.alike for one, _ in sums}) < len({index for _, index in sums})


def _left(op: FrozenOp, metas: Mapping[str, Meta], calls: Launches) -> Iterator[StripSum]:
    """Yields the sums of a kernel that another launch may add: results that the kernel itself does not read."""
    written = set(op.writes())
    for launch in calls.launches:
        if not isinstance(launch, Launch) or not launch.finishes:
            continue
        *names, strips, kept = launch.arguments
        # Partial sums and the result that they add up to, in pairs.
        pairs = list(zip(map(str, names[::2]), names[1::2], strict=True))
        others = {a for one in calls.launches if one is not launch for a in one.arguments}
        results = {y for _, y in pairs}
        if not results <= written or any(isinstance(y, KernelLocal) for y in results) or results & others:
            continue
        assert isinstance(strips, int)
        assert isinstance(kept, int)
        for partials, result in pairs:
            value = f"{result}@STRIPS"
            while value in metas:
                value += "_"
            compute = calls.partials[KernelLocal(partials)][1]
            tile = launch.constants["ROWS"], launch.constants["COLUMNS"]
            yield StripSum(value, str(result), strips, kept, compute, metas[str(result)].dtype, *tile)


def _without_sums(op: FrozenOp, calls: Launches, given: Mapping[str, StripSum]) -> tuple[FrozenOp, Launches]:
    """Returns an op that writes partial sums in the place of the sums, and its launches: of the same module, but fewer."""
    left: list[Launch | LibraryProduct] = []
    places: dict[str, str] = {}
    for one in calls.launches:
        if isinstance(one, Launch) and one.finishes and str(one.arguments[1]) in given:
            names = one.arguments[:-2]
            places |= {
                KernelLocal(str(p)): given[str(y)].partials for p, y in zip(names[::2], names[1::2], strict=True)
            }
        else:
            left.append(one)

    def placed(one: Launch | LibraryProduct) -> Launch | LibraryProduct:
        if isinstance(one, LibraryProduct):
            return one
        return replace(one, arguments=tuple(places.get(a, a) if isinstance(a, str) else a for a in one.arguments))

    partials = {name: buffer for name, buffer in calls.partials.items() if name not in places}
    written = tuple(_renamed(entry, given) for entry in op.outputs)
    launches = replace(calls, launches=tuple(map(placed, left)), partials=partials)
    return replace(op, outputs=written), launches


def _renamed(entry: Entry, given: Mapping[str, StripSum]) -> Entry:
    if isinstance(entry, tuple):
        return tuple(given[v].partials if v in given else v for v in entry)
    return given[entry].partials if entry is not None and entry in given else entry


def _added(members: Sequence[StripSum], near: FrozenOp) -> tuple[FrozenOp, Kernel]:
    """Returns the op that adds partial sums, and its kernel."""
    definition = op_def("reduce_sum")
    body = tuple(
        FrozenOp(
            definition, (one.partials,), (one.result,),
            definition.complete({"dim": [0], "out_dtype": one.dtype}), OpRole.Backward, where=near.where,
        )
        for one in members
    )  # fmt: skip
    kernel = strip_sums(members, body)
    op = FrozenOp(
        OpDef("strip_sums", "X* -> Out*"), (tuple(one.partials for one in members),),
        (tuple(one.result for one in members),), {}, OpRole.Backward, where=near.where, position=near.position,
        body=body, fusion="strip_sums", kernel=kernel,
    )  # fmt: skip
    return op, kernel
