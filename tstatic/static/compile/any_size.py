"""Plans for feeds of any size: new sizes of a known program bind to one of them, and compile nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache as cache_result

from tstatic import flags
from tstatic.errors import TstaticError
from tstatic.ir.program import Operator, Program
from tstatic.ir.types import UNKNOWN
from tstatic.runtime.scope import Scope
from tstatic.static.compile import Compilation, compile_program
from tstatic.static.compile.ledger import Key
from tstatic.static.compile.plan_cache import Bound, CompileCache
from tstatic.static.compile.request import Signature, fed_state, metas_of
from tstatic.static.strategy import BuildStrategy


def opened(program: Program, signature: Signature) -> Signature:
    """Returns the signature of a feed with those sizes left open that the program leaves open."""
    declared = program.global_block().vars
    parts = []
    for name, shape, dtype in signature:
        var = declared.get(name)
        if var is not None and len(var.shape) == len(shape):
            shape = tuple(UNKNOWN if w == UNKNOWN else g for w, g in zip(var.shape, shape, strict=True))
        parts.append((name, shape, dtype))
    return tuple(parts)


def for_any_size(
    cache: CompileCache, key: Key, program: Program, build: BuildStrategy, fetches: Sequence[str],
    kept: Sequence[Operator] | None, scope: Scope, threads: int,
) -> Bound | None:  # fmt: skip
    """Returns the plan that serves feeds of any size, with its session, for one more size of a program; makes it once.

    On a device where steps are bound to sizes while they run (:mod:`tstatic.runtime.sections`), a size that is new to the program
    then costs the binding of the steps that depend on it: inference of all shapes, fusions, the plan, and the binding of updates
    are done once for all sizes.

    Args:
        cache: The cache, which has compiled the program for other sizes.
        key: The key of the new size.
        program, build, fetches, kept, scope: As for :func:`tstatic.static.compile.compile_program`.
        threads: Number of threads.

    Returns:
        ``None`` where the size has to be compiled: the first size of a program, one that ran so often that a plan of its own
        pays, other devices, programs with loops or collectives, and what cannot be compiled without sizes.
    """
    device = key.device
    if not device.binds_sizes or device.generated or not flags.flag("FLAGS_plan_any_size"):
        return None
    family = cache.family(key)
    if family is None or cache.deserves_own_plan(key) or build.debug_graphviz_path or flags.flag("FLAGS_check_nan_inf"):
        return None
    signature = opened(program, key.feed_signature[0])
    if signature == key.feed_signature[0] or fed_state(program, [name for name, *_ in signature]):
        return None
    if not family.repeats or cache.refuses_any_size(key):
        return None

    @cache_result
    def exact() -> Compilation:
        metas = [metas_of(key.feed_signature[0])]
        return compile_program(
            program, build, metas, fetches, scope, kept=kept, device=device, key=key, numerics=key.numerics, family=family
        )  # fmt: skip

    known = cache.any_size(key)
    # As for any plan: a session that is still bound to the scope's storage fits it.
    if known is None or (any(s.stale() for s in known.sessions) and not known.compilation.fits(scope)):
        try:
            made = compile_program(
                program, build, [metas_of(signature)], fetches, scope, kept=kept, device=device, numerics=key.numerics,
                family=family,
            )  # fmt: skip
            known = Bound(made, made.bind_scope(scope, [device], threads, arenas=cache.arenas([device], None)), None)
        except TstaticError:
            # A rule that needs sizes to be known; if it is an error in the program, compiling for these sizes says so.
            cache.refuse_any_size(key)
            return None
    return Bound(known.compilation, known.sessions, known.group, known.kept, exact)


__all__ = ["for_any_size", "opened"]
