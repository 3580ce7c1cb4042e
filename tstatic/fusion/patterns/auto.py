"""Groups connected ops with elementwise expressions, including broadcasting and casts, into one kernel each."""

from __future__ import annotations

from collections.abc import Iterator

from tstatic.fusion.codegen.define import draws, is_elementwise, is_pointwise, works_on_rows, worth_a_kernel
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported, arrays_of_uniform, build
from tstatic.fusion.codegen.loops.rows import check_sums
from tstatic.fusion.engine import Fusion, Groups, loop_nest
from tstatic.fusion.engine.chain import ELEMENTWISE, Chain
from tstatic.fusion.engine.reasons import RejectedPair
from tstatic.fusion.engine.view import View
from tstatic.fusion.patterns.elewise_add_act import prepared
from tstatic.fusion.rewrites.identity_gradients import pass_on_to_products
from tstatic.fusion.rewrites.redrawn import draw_again
from tstatic.ir.frozen import FrozenOp, FrozenProgram
from tstatic.ir.types import UNKNOWN, Meta

MOST_OPS = 24
"""The most ops in one group.

A choice, to bound what a kernel takes to compile. Registers are not the limit: 23 ops, of them eight tanh with live results, take
32 on sm_80 and sm_90 and 43 on sm_100, without spills (float32, triton 3.7.1)."""

MAX_FULL_ARRAYS = 10
"""The most full-size arrays that one kernel reads and writes."""

MOST_ARRAYS = 16
"""The most arrays of any size that one kernel reads and writes."""

WINDOW = 256
"""The most ops between the first op of a group and one that joins it."""


def _parts(op: FrozenOp) -> tuple[FrozenOp, ...]:
    return op.body or (op,)


def fits(view: View, op: FrozenOp, rows: bool) -> bool:
    """Returns whether an op may be in a group; ``rows`` includes ops along rows."""
    # No kernel takes so many arrays: this skips building an expression for the sum of a thousand gradients.
    if not op.body and len([*op.reads(), *op.writes()]) > MOST_ARRAYS:
        return False
    if op.sub_blocks or not all(
        is_elementwise(one.definition) or (rows and works_on_rows(one.definition)) for one in _parts(op)
    ):
        return False
    return _sized(view, op) and all(_has_form(one, view) for one in _parts(op))


def _sized(view: View, op: FrozenOp) -> bool:
    """Returns whether all sizes are known and none is 0."""
    metas = [view.metas.get(v) for v in (*op.reads(), *op.writes(), *(v for one in op.body for v in one.writes()))]
    return all(meta is not None and UNKNOWN not in meta.shape and 0 not in meta.shape for meta in metas)


def _complex_pairs(view: View, index: int) -> Iterator[RejectedPair]:
    """Yields the neighbours of an op that are not grouped with it because they work on complex values."""

    def is_complex(at: int) -> bool:
        op = view.ops[at]
        known = (view.metas.get(v) for v in op.writes())
        return is_pointwise(op.definition) and any(meta is not None and meta.dtype.is_complex for meta in known)

    if is_complex(index):
        for maker in dict.fromkeys(view.maker[v] for v in view.ops[index].reads() if v in view.maker):
            if is_complex(maker):
                reason = "generated kernels compute no complex values"
                yield RejectedPair((maker, index), "COMPLEX", reason, view.ops[index].type)


def _random_pairs(view: View, index: int, rows: bool) -> Iterator[RejectedPair]:
    """Yields the neighbours of an op that are not grouped with it because one of the two draws what kernels cannot draw."""

    def joins(at: int) -> bool:
        definition = view.ops[at].definition
        return is_elementwise(definition) or (rows and works_on_rows(definition))

    def why(at: int) -> str:
        op = view.ops[at]
        if not op.definition.random or not _sized(view, op):
            return ""
        if op.definition.drawn is None:
            return (
                f"{op.type} has no form whose numbers are those of its reference in every bit: kernels draw uniform, normal and "
                "whole numbers, coin flips and dropout"
            )
        if view.formulas.of(op) is None:
            return f"{op.type} has its seed in a tensor, writes a mask of another shape, or changes what it drew"
        return ""

    for maker in dict.fromkeys(view.maker[v] for v in view.ops[index].reads() if v in view.maker):
        for drawing, other in ((maker, index), (index, maker)):
            if joins(other) and (reason := why(drawing)):
                yield RejectedPair((maker, index), "RANDOM", reason, view.ops[drawing].type)
                break


_forms: dict[tuple[object, ...], bool] = {}


def _has_form(op: FrozenOp, view: View) -> bool:
    """Returns whether the op alone could be a kernel: its functions are supported for its types. Cached per kind of op."""
    # The key holds what decides whether an op has a kernel's form, and no more: a network has thousands of ops and tens of
    # kinds, and writing a kernel takes a fraction of a millisecond.
    dtypes = tuple(view.metas[v].dtype.name for v in (*op.reads(), *op.writes()))
    wanted = tuple(e is not None for e in (*op.inputs, *op.outputs))
    same = tuple(view.metas[v].shape == view.metas[next(iter(op.writes()))].shape for v in op.reads())
    # Whether an op along rows has a kernel depends on its sizes: the axes of a row, and its number of elements.
    sized = works_on_rows(op.definition) or draws(op.definition)
    sizes = tuple(view.metas[v].shape for v in (*op.reads(), *op.writes())) if sized else ()
    empty = any(0 in view.metas[v].shape for v in (*op.reads(), *op.writes()))
    attrs = tuple(sorted((n, repr(v)) for n, v in op.attrs.items()))
    key = (op.type, attrs, dtypes, wanted, same, sizes, empty)
    found = _forms.get(key)
    if found is None:
        try:
            loop_nest([op], view.metas, list(op.writes()))
            found = True
        except CodegenUnsupported:
            found = False
        # Whole: keeping the order of use would cost more than filling it again.
        if len(_forms) > 4096:
            _forms.clear()
        _forms[key] = found
    return found


class _Groups:
    """Groups that grow op by op in program order; ``after[g]`` holds the groups that must run before ``g``."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.members: list[list[int]] = []
        self.of: dict[int, int] = {}
        self.after: list[set[int]] = []
        # Op outside of groups -> groups that it depends on.
        self.seen: dict[int, frozenset[int]] = {}

    def before(self, index: int, but: int = -1) -> set[int]:
        """Returns the groups that an op depends on, except the group ``but``."""
        found: set[int] = set()
        for value in self.view.ops[index].reads():
            maker = self.view.maker.get(value)
            if maker is None:
                continue
            group = self.of.get(maker)
            if group is None:
                found |= self.seen.get(maker, frozenset())
            else:
                found.add(group)
        found.discard(but)
        return found

    def reaches(self, start: set[int], goal: int) -> bool:
        """Returns whether one of the groups in ``start`` depends on the group ``goal``."""
        pending, known = list(start), set(start)
        while pending:
            group = pending.pop()
            if group == goal:
                return True
            for other in self.after[group]:
                # A group that ended before the goal began cannot depend on it.
                if other not in known and self.members[other][-1] > self.members[goal][0]:
                    known.add(other)
                    pending.append(other)
        return False

    def outside(self, index: int, but: int) -> set[int]:
        """Returns the groups that an op depends on other than directly through ``but``, the group it would join."""
        found: set[int] = set()
        for value in self.view.ops[index].reads():
            maker = self.view.maker.get(value)
            if maker is None or self.of.get(maker) == but:
                continue
            group = self.of.get(maker)
            if group is None:
                if but in self.seen.get(maker, frozenset()):
                    return {but}
                found |= self.seen.get(maker, frozenset())
            else:
                found.add(group)
        return found

    def join(self, index: int, group: int) -> None:
        """Adds an op to a group.

        Raises:
            CodegenUnsupported: If the op cannot join; nothing has changed then.
        """
        members = self.members[group]
        if len(members) >= MOST_OPS:
            raise CodegenUnsupported("MANY_OPS", f"the group has {MOST_OPS} operators already")
        if index - members[0] > WINDOW:
            raise CodegenUnsupported(
                "FAR", f"{index - members[0]} operators lie between the group's first one and this one"
            )
        # Joining must not put an op that depends on the group before one that the group waits for.
        between = self.outside(index, group)
        if self.reaches(between, group):
            raise CodegenUnsupported(
                "CYCLE", "another operator reads what the group makes and makes what this one reads"
            )
        # All checks come before the first change, so that a refused op leaves no trace.
        inside = {*members, index}
        ops = [one for i in sorted(inside) for one in _parts(self.view.ops[i])]
        needed = self.view.needed(inside)
        arrays = streams = arrays_of_uniform(ops, needed, self.view.formulas)
        if arrays is None:
            built = build(ops, self.view.metas, needed, self.view.formulas)
            operands = (*built.inputs, *built.outputs)
            arrays, streams = len(operands), sum(o.full for o in operands)
            check_sums(built)
        assert streams is not None
        if arrays > MOST_ARRAYS:
            raise CodegenUnsupported(
                "MANY_ARRAYS", f"the kernel would read and write {arrays} arrays, at most {MOST_ARRAYS}"
            )
        if streams > MAX_FULL_ARRAYS:
            raise CodegenUnsupported(
                "MANY_ARRAYS", f"the kernel would read and write {streams} arrays, at most {MAX_FULL_ARRAYS} are fast"
            )
        members.append(index)
        self.of[index] = group
        self.after[group] |= between


def _is_single_op_group(view: View, index: int, rows: bool) -> bool:
    """Returns whether an op is worth a kernel by itself; the engine reports if it cannot be one."""
    op = view.ops[index]
    fits = draws(op.definition) or (rows and works_on_rows(op.definition))
    if op.body or index in view.forbidden or not fits or not _sized(view, op):
        return False
    formula = view.formulas.of(op)
    # Without a kernel, random words are tens of passes over memory.
    return formula is not None and (draws(op.definition) or worth_a_kernel(formula))


def groups(view: View, rows: bool = False) -> Iterator[tuple[int, ...] | RejectedPair]:
    """Yields neighbours that could not be grouped though each could be in a group, then groups of two or more ops.

    Args:
        view: The program.
        rows: Include reductions and normalisations along rows. One of these may also be a group by itself, as may an op that
            draws random numbers.
    """
    state = _Groups(view)
    for index, op in enumerate(view.ops):
        if index in view.forbidden or not fits(view, op, rows):
            state.seen[index] = frozenset(state.before(index))
            yield from _complex_pairs(view, index)
            yield from _random_pairs(view, index, rows)
            continue
        yield from _random_pairs(view, index, rows)
        # Group that the op reads from -> the last op of that group that it reads.
        nearest: dict[int, int] = {}
        for maker in (view.maker[v] for v in op.reads() if v in view.maker):
            if maker in state.of:
                group = state.of[maker]
                nearest[group] = max(maker, nearest.get(group, maker))
        # The later group first: it may wait for the other one, and then only joining it makes no cycle.
        for group in sorted(nearest, key=lambda g: -state.members[g][-1]):
            if index in state.of:
                yield RejectedPair(
                    (nearest[group], index),
                    "TWO_GROUPS",
                    "the second operator reads from two groups, and joined the later one",
                )
                continue
            try:
                state.join(index, group)
            except CodegenUnsupported as found:
                yield RejectedPair((nearest[group], index), found.code, found.reason, found.op.type if found.op else "")
        if index not in state.of:
            # A group of one so far: it costs nothing if no other op joins.
            state.of[index] = len(state.members)
            before = state.before(index)
            state.members.append([index])
            state.after.append(before)
    yield from (tuple(m) for m in state.members if len(m) > 1)
    inside = {index for m in state.members if len(m) > 1 for index in m}
    yield from (
        (index,) for index in range(len(view.ops)) if index not in inside and _is_single_op_group(view, index, rows)
    )


def ready(program: FrozenProgram, metas: dict[str, Meta]) -> FrozenProgram:
    """Prepares a program for groups of any ops: gradients draw masks again, sums are recomputed, identities are removed."""
    return pass_on_to_products(prepared(draw_again(program, metas), metas, compiler=True), metas)


_CHAIN = Chain((ELEMENTWISE, ELEMENTWISE), "two connected operators per element on one shape, of known sizes")
FUSION = Fusion("auto", "enable_auto_fusion", Groups(groups, _CHAIN), prepare=ready)
