"""Answers why two operators are one kernel or not, and which change of the strategy or the program would join them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from tstatic import flags
from tstatic.display import counted
from tstatic.fusion import FUSIONS
from tstatic.fusion.codegen.kernel import Kernel
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported
from tstatic.fusion.engine import Applied, Fusion, Log, Rejection, kernels_of, loop_nest
from tstatic.fusion.engine.reasons import REASONS, explain_code
from tstatic.fusion.rewrites.identity_gradients import eliminate_identity_gradients
from tstatic.fusion.rewrites.shape_readers import shapes_from_contents
from tstatic.ir.frozen import Entry, FrozenProgram
from tstatic.ir.operator import OpRole
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.static.compile import fuse_under, pipeline
from tstatic.static.explain import FusionAnswer
from tstatic.static.explain.savings import Operators
from tstatic.static.strategy import BuildStrategy
from tstatic.where import show

Kernels = Mapping[tuple[Entry, ...], Kernel]
"""The kernels of fused ops, by the ops' outputs."""
MOST_TRIALS = 10
"""Changes of the strategy that are tried for one question: each fuses the program anew."""


def _holds(record: Applied | Rejection, values: tuple[str, str]) -> bool:
    made = {v for m in record.members for v in m.outputs}
    return all(v in made for v in values)


def _label(frozen: FrozenProgram, value: str) -> str:
    op = next(o for o in frozen.ops if value in o.writes())
    where = show(op.where)
    return f"{op.type} -> {frozen.names.get(value, value)}" + (f" (at {where})" if where else "")


def left_of(frozen: FrozenProgram, metas: Mapping[str, Meta]) -> set[str]:
    """Returns the values that are still made after identity gradients are removed."""
    return {v for op in eliminate_identity_gradients(frozen, metas).ops for v in op.writes()}


class Only(NamedTuple):
    """What one fusion would do if its switch were the only one that is on.

    Attributes:
        log: The fusions that it would make, and the matches that it would reject.
        made: The program with its fused ops, the metadata of all values, and the kernels.
    """

    log: Log
    made: tuple[FrozenProgram, Mapping[str, Meta], Kernels]


def only_one(fusion: Fusion, frozen: FrozenProgram, metas: Mapping[str, Meta]) -> Only:
    """Returns what one fusion does to a program by itself."""
    log, own = Log(), dict(metas)
    fused = pipeline.make_one(fusion, shapes_from_contents(frozen, metas), own, log)
    return Only(log, (fused, own, kernels_of(fused, own)))


@dataclass(frozen=True)
class Question:
    """What answers are made from.

    Attributes:
        frozen: The program before its fusions.
        metas: Metadata of all its values.
        log: What the fusions did.
        build: The strategy.
        operators: The user's operators, by what records name.
        alone: Returns what each switch that is off would do by itself.
    """

    frozen: FrozenProgram
    metas: Mapping[str, Meta]
    log: Log
    build: BuildStrategy
    operators: Operators
    alone: Callable[[], Mapping[str, Only]]

    def holder(self, value: str) -> Applied | None:
        """Returns the last fusion that has the op of a value."""
        index = self.operators.view.maker[value]
        return next((a for a in reversed(self.log.applied) if index in self.operators.indices(a.members)), None)

    def joins(self, on: tuple[str, ...], off: tuple[str, ...], both: set[int]) -> bool:
        """Returns whether two ops become one kernel if switches are changed; the program is fused anew to see."""
        changed = self.build.copy()
        for name in (*on, *off):
            setattr(changed, name, name in on)
        _, _, log = fuse_under(flags.numerics(), self.frozen, self.metas, changed)
        operators = Operators(self.frozen, self.metas, log)
        return any(both <= operators.indices(made.members) for made in log.applied)


def why_apart(asked: Question, a: str, b: str) -> FusionAnswer:
    """Returns why the ops that make two values are one kernel, or why not, and the smallest change that joins them."""
    frozen, metas, log, operators = asked.frozen, asked.metas, asked.log, asked.operators
    pair = f"{_label(frozen, a)} and {_label(frozen, b)}"
    both = {operators.view.maker[v] for v in (a, b)}
    for made in log.applied:
        if both <= operators.indices(made.members):
            return FusionAnswer(True, "APPLIED", f"{pair} are one {made.op} by {made.switch}.", "")

    def apart(code: str, why: str, change: str, *, advice: bool = True) -> FusionAnswer:
        return FusionAnswer(False, code, f"{pair} stay apart{why}.{f' To allow it: {change}.' * advice}", change)

    alone = asked.alone()
    switches = _switches_for(alone, (a, b))
    # Groups that the user requires have no switch that could be turned off.
    held = tuple(
        dict.fromkeys(h.switch for h in (asked.holder(a), asked.holder(b)) if h is not None and h.switch in _OWN)
    )
    on, off = _change(asked, switches, held, both)
    turned_on = _assigned(on, off)
    # A refusal names the reason itself, so it comes before advice about switches.
    for no in log.refused:
        if _holds(no, (a, b)):
            # That nothing helps is wrong where a change of switches was tried and does.
            own = "" if turned_on and no.change.startswith("nothing") else no.change
            change = ", or ".join(filter(None, (own, turned_on)))
            return apart(no.code, f" under {no.switch}: {no.code}, {no.reason}", change)
    if on and not off:
        meaning, change = explain_code("OFF", value=on[0])
        rest = [s for s in switches if s != on[0]]
        others = f"; {' or '.join(rest)} would do it, too" if rest and not held else ""
        return apart("OFF", f": {meaning} ({on[0]}{others})", change)
    if turned_on:
        meaning, _ = explain_code("TWO_PATTERNS", value=" and ".join(held))
        return apart("TWO_PATTERNS", f": {meaning}", turned_on)
    makers = {v: op for op in frozen.ops for v in op.writes()}
    left = left_of(frozen, metas)
    for value in (a, b):
        if value not in left:
            meaning, change = explain_code("IDENTITY", reader=makers[value].type)
            return apart("IDENTITY", f": {meaning}", change, advice=False)
    # Why one fusion would reject the pair says more than that no pattern has it.
    refused = next((x for one in alone.values() for x in one.log.refused if _holds(x, (a, b))), None)
    if refused is not None:
        refused = Operators(frozen, metas, alone[refused.switch].log).with_culprit(refused)
        why = f", and {refused.switch} would not join them: {refused.code}, {refused.reason}"
        return apart(refused.code, why, refused.change)
    if a in makers[b].reads() or b in makers[a].reads():
        code, reason, change = _together(asked, tuple(sorted(both)))
        return apart(code, f": {reason}", change, advice=not change.startswith("nothing"))
    meaning, change = explain_code("NO_PATTERN")
    way = _way(asked, a, b) or _way(asked, b, a)
    if not way:
        why = ": neither reads what the other makes, and no fusion joins unrelated operators"
        return apart("NO_PATTERN", why, change, advice=False)
    names = dict(frozen.names)
    first, second = (names.get(v, v) for v in way)
    ask = f"ask why('{first}', '{second}'), which is where they part"
    between = counted(len(_path(asked, a, b) or _path(asked, b, a)), "operator")
    why = f": {between} on the way from one to the other would have to be in the kernel, too; {ask}"
    return apart("NO_PATTERN", why, ask, advice=False)


_OWN = frozenset(f.switch for f in FUSIONS)
"""The properties of the BuildStrategy that switch a fusion."""


def _assigned(on: tuple[str, ...], off: tuple[str, ...]) -> str:
    """Returns a change of the strategy as the user writes it."""
    texts = [f"build_strategy.{name} = {name in on}" for name in (*on, *off)]
    return " and ".join(texts)


def _change(
    asked: Question, switches: list[str], held: tuple[str, ...], both: set[int]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the switches to turn on, and those to turn off, that join two ops; each change was tried. None: two empty tuples.

    Args:
        asked: The question.
        switches: Those that would join the ops by themselves.
        held: Those of the fusions that have the ops now.
        both: The ops.
    """
    # Compilers join whatever neighbours they can, also where no pattern has the pair.
    general = [f.switch for f in FUSIONS if f.finder.general and not getattr(asked.build, f.switch)]
    # Where different fusions hold the two ops, both may have to go.
    fewer = [(name,) for name in held] + ([held] if len(held) > 1 else [])
    # From the smallest change on: the first one that works is the answer.
    trials: Iterator[tuple[tuple[str, ...], tuple[str, ...]]] = iter(
        [
            *(((name,), ()) for name in switches),
            *(((name,), less) for name in switches for less in fewer),
            *(((), less) for less in fewer),
            *(((name,), less) for name in general for less in fewer if name not in switches),
        ]
    )
    for _, (on, off) in zip(range(MOST_TRIALS), trials, strict=False):
        if not set(on) & set(off) and asked.joins(on, off, both):
            return on, off
    return (), ()


def _together(asked: Question, pair: tuple[int, ...]) -> tuple[str, str, str]:
    """Returns code, reason and change for two neighbours that no change of the strategy joins."""
    view = asked.operators.view
    ops = [view.ops[i] for i in pair]
    meaning, change = explain_code("NO_PATTERN")
    metas = [asked.metas.get(v) for op in ops for v in (*op.reads(), *op.writes())]
    if any(meta is None or UNKNOWN in meta.shape for meta in metas):
        return ("DYNAMIC", *explain_code("DYNAMIC"))
    try:
        # The attempt tells why one kernel cannot hold both.
        loop_nest(ops, asked.metas, view.needed(set(pair)))
    except CodegenUnsupported as error:
        if error.code in REASONS:
            reader = error.op.type if error.op is not None else ""
            why = f"no fusion joins them, and one kernel cannot hold both: {error.reason}"
            return error.code, why, explain_code(error.code, reader=reader)[1]
        return "NO_PATTERN", meaning, change
    # Users can put `fuse_together` around what they write themselves, and not around what `minimize` appends.
    if any(op.role & OpRole.Backward for op in ops) or view.forbidden & set(pair):
        return "NO_PATTERN", meaning, change
    return "NO_PATTERN", meaning, "static.fuse_together() around both"


def _path(asked: Question, a: str, b: str) -> list[str]:
    """Returns the values between ``a`` and ``b``, each read by the op that makes the next; empty if there are none."""
    view = asked.operators.view
    came: dict[str, str] = {}
    queue = [a]
    # The queue grows in the loop: breadth first, which finds a shortest path.
    for value in queue:
        for reader in view.readers.get(value, ()):
            for made in view.ops[reader].writes():
                if made not in came and made != a:
                    came[made] = value
                    queue.append(made)
        if b in came:
            break
    if b not in came:
        return []
    found = [came[b]]
    while found[-1] != a:
        found.append(came[found[-1]])
    # The walk began at the end, and ended with `a`, which does not count.
    return found[-2::-1]


def _way(asked: Question, a: str, b: str) -> tuple[str, str] | None:
    """Returns the first two neighbours on the way from one value to another that are not in one kernel; ``None`` without a way."""
    between = _path(asked, a, b)
    if not between:
        return None
    values = [a, *between, b]
    maker = asked.operators.view.maker
    for first, second in pairwise(values):
        pair = {maker[first], maker[second]}
        if not any(pair <= asked.operators.indices(made.members) for made in asked.log.applied):
            return first, second
    return None


def _switches_for(alone: Mapping[str, Only], values: tuple[str, str]) -> list[str]:
    """Returns the switches each of which would join two values' ops, that of the smallest change first.

    A pattern is a smaller change than a general compiler, and of two patterns the one that takes fewer operators.
    """
    general = {f.switch for f in FUSIONS if f.finder.general}
    sizes = {s: next((len(x.members) for x in one.log.applied if _holds(x, values)), 0) for s, one in alone.items()}
    return sorted((s for s, size in sizes.items() if size), key=lambda s: (s in general, sizes[s]))
