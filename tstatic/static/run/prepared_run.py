"""Runs what an Executor has compiled: at once, or without waiting for the device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from tstatic import flags
from tstatic.errors import DeviceError, NoRoomError, OutOfMemoryError, ProgramTypeError, TstaticError, shown
from tstatic.ir.declare import default_main_program
from tstatic.ir.program import Program
from tstatic.logs import get_logger, warn_once
from tstatic.runtime.ahead import Step, done
from tstatic.runtime.feed import Arrays
from tstatic.runtime.fetched import converting
from tstatic.runtime.learning_rate import Rates, written
from tstatic.runtime.lod import with_lod
from tstatic.runtime.scope import Scope
from tstatic.runtime.shards import merged
from tstatic.static.compile.plan_cache import Bound
from tstatic.static.run.compiled_program import PLAIN, CompiledProgram, Settings, settings_of
from tstatic.static.run.data_parallel import OWN_PLACE, Replicas

_recompiles = get_logger("recompiles")
_fusion = get_logger("fusion")

# One for all runs: it holds nothing, and a step makes no call for it.
_NOTHING: AbstractContextManager[None] = nullcontext()


@dataclass(slots=True)
class PreparedRun:
    """A run whose plan is bound to a scope.

    Attributes:
        entry: The compilation.
        feeds: What each replica is fed.
        scope: The scope.
        settings: Those of the program.
        replicas: Who runs it together; ``None`` for one place.
        rates: The learning rates that it writes.
        compile_again: Compiles the program once more: with the replicas that are given, for these sizes alone.
        refuse_any_size: Notes that a plan for any size does not do for this program.
        on_device: Whether one place gives what it fetches as arrays of its device.
    """

    entry: Bound
    feeds: list[Arrays]
    scope: Scope
    settings: Settings
    replicas: Replicas | None
    rates: Rates
    compile_again: Callable[..., tuple[Bound, Replicas | None]]
    refuse_any_size: Callable[[], None]
    on_device: bool = False

    def execute(self) -> list[Any]:
        """Runs, and returns the fetches of each replica.

        Raises:
            TstaticError: As ``Executor.run`` does.
        """
        if self.scope.parted.others and self.replicas is None:
            # The plan is bound to the storage of the first replica alone.
            self.scope._join(self.entry.compilation.touched[0])
        if not self.rates and self.replicas is None and self.settings.numerics is None and self.entry.exact is None:
            # The usual run: nothing to undo, and no other plan to try.
            try:
                return [self.entry.sessions[0].run(self.feeds[0], self.settings.iterations, (), self.on_device)]
            except NoRoomError as error:
                return self._fitting(error)
        late = bool(self.rates) and self._writes_rates_late()
        with written(self.rates, self.scope) if self.rates and not late else _NOTHING:
            if not late:
                self.rates = ()
            shared = self.entry.exact is not None and self.settings.iterations == 1
            try:
                try:
                    return self._results()
                except NoRoomError as error:
                    return self._fitting(error)
            except TstaticError as error:
                # Handlers of signals raise errors of other types; these two may come while state is written.
                if not shared or isinstance(error, DeviceError | OutOfMemoryError):
                    raise
                _recompiles.info("a plan for any size failed: %s: %s", type(error).__name__, error)
            # The failed run left the state as it was: with a plan for these sizes it passes, or raises its own error.
            self.entry, _ = self.compile_again(None, own=True)
            found = self._results()
            self.refuse_any_size()
            return found

    def queue(self) -> Step:
        """Runs without waiting for the device, where that is possible; the step has the results, or the error."""
        # As in `execute`: the plan is bound to the storage of the first replica alone.
        if self.scope.parted.others and self.replicas is None:
            self.scope._join(self.entry.compilation.touched[0])
        single = self.replicas is None and self.settings.numerics is None and self.settings.iterations == 1
        ahead = single and self.entry.exact is None and not self.entry.kept
        if not ahead or (self.rates and not self._writes_rates_late()):
            return done(self.execute)
        try:
            return self.entry.sessions[0].queue(self.feeds[0], self.rates, self.on_device)
        except NoRoomError as error:
            return done(self._fitting, error)

    def _writes_rates_late(self) -> bool:
        """Whether the session writes learning rates, in the order of its device's work."""
        return self.replicas is None and not self.scope.replicas and self.entry.sessions[0].device.deferred

    def _results(self) -> list[Any]:
        feeds, iterations = self.feeds, self.settings.iterations
        if self.replicas is None and self.settings.numerics is None:
            return [self.entry.sessions[0].run(feeds[0], iterations, self.rates, self.on_device)]
        # Libraries' settings, and the order in which processes sum gradients, depend on it, too.
        with flags.using_numerics(self.settings.numerics):
            if self.replicas is None:
                return [self.entry.sessions[0].run(feeds[0], iterations, self.rates, self.on_device)]
            return self.replicas.run(self.entry, feeds, self.scope, iterations)

    def _fitting(self, error: NoRoomError) -> list[Any]:
        """Plans anew without the launches that the device had no room for, until all others fit, and runs.

        Binding a plan tries its kernels, so nothing has run yet.

        Raises:
            NoRoomError: If a kernel has no other way.
        """
        known = -1
        while True:
            _fusion.warning("%s; its next way is tried: %s", error.what, error.received)
            self.entry, self.replicas = self.compile_again(self.replicas, own=True)
            refusals = self.entry.compilation.first.device.refusals
            # A plan for which the device refused nothing new would fail in the same way again.
            if len(refusals) == known:
                raise error
            known = len(refusals)
            try:
                return self._results()
            except NoRoomError as another:
                error = another


def returned(
    base: Program,
    names: list[str],
    count: int,
    lods: list[tuple[str, ...]],
    replicas: Replicas | None,
    settings: Settings,
    return_numpy: bool,
    return_merged: bool,
    results: list[Any],
) -> list[Any]:
    """Returns what the caller gets of the fetches of each replica."""
    own = replicas is None or settings.places is OWN_PLACE
    if not own and not return_merged:
        if return_numpy:
            rows = [[one[i] for one in results] for i in range(count)]
            return converting(rows) if base.fetches_convert else rows
        each = [with_lod(one, lods) for one in results]
        return [list(row) for row in zip(*each, strict=True)]
    values = results[0] if own else merged(results, names, frozenset(names[count:]))
    if not return_numpy:
        return with_lod(values, lods)
    return converting(values) if base.fetches_convert else values


def source_of(program: Any) -> tuple[Program, Settings]:
    """Returns the program that ``Executor.run`` is given, or the default one, and its settings.

    Raises:
        ProgramTypeError: If it is not a program.
    """
    if program is None:
        main = default_main_program()
        if not main.global_block().ops:
            warn_once(
                ("empty program", main.uid),
                "The current program is empty: exe.run() was called without a program and the default main program has "
                "no operators",
            )
        return main, PLAIN
    if isinstance(program, CompiledProgram):
        return settings_of(program)
    if not isinstance(program, Program):
        raise ProgramTypeError(
            f"Executor requires Program as its Parameter. But you passed in {type(program).__name__}",
            expected="a static.Program or static.CompiledProgram",
            received=shown(program),
            fix="pass the program, for example exe.run(static.default_main_program(), feed=...)",
            op="Executor.run",
        )
    return program, PLAIN


__all__ = ["PreparedRun", "returned", "source_of"]
