"""The Executor: compiles a program once for a key, then replays its plan."""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from logging import DEBUG, INFO
from typing import Any

from tstatic import flags, places
from tstatic.devices import interpret
from tstatic.errors import (
    EOFException,
    ForkedProcessError,
    ProgramError,
    ProgramTypeError,
    TstaticError,
    UnsupportedError,
    shown,
)
from tstatic.ir import edit
from tstatic.ir.evaluate import meta_of
from tstatic.ir.frozen import FrozenProgram
from tstatic.ir.program import Program, default_main_program
from tstatic.ir.types import Meta
from tstatic.ir.where import show, user_line
from tstatic.locks import rlock
from tstatic.logs import get_logger, warn_once
from tstatic.no_effect import no_effect
from tstatic.runtime.feed import Arrays, read_feed, uninitialised
from tstatic.runtime.learning_rate import scheduled
from tstatic.runtime.scope import Scope, global_scope, tensor_of
from tstatic.runtime.session import Session
from tstatic.static import pipeline
from tstatic.static.compiled_program import CompiledProgram
from tstatic.static.data_parallel import Companies
from tstatic.static.dot import write_graphs
from tstatic.static.request import check_holders, damaged_program, fetch_names, fits, rewritten_for, updated
from tstatic.static.strategy import BuildStrategy, ExecutionStrategy

_log = get_logger("recompiles")
_steps = get_logger("steps")

CACHE_SIZE = 32
"""Plans kept per Executor; the least recently used one goes first."""

_SIGNATURE = "feed signature"
KEY_PARTS = (
    "program",
    "version",
    "strategy",
    "execution",
    _SIGNATURE,
    "fetch list",
    "place",
    "scope",
    "flags",
    "prune",
)


_DEFAULT = BuildStrategy()
"""What a plain Program runs with."""
_DEFAULT_KEY = _DEFAULT.key()


class _Compiled:
    """One cache entry: a session, and what is needed to notice that it no longer fits."""

    def __init__(self, session: Session, state: Mapping[str, Meta]) -> None:
        self.session = session
        self.state = state

    def fits(self, scope: Scope) -> bool:
        """Whether the scope's values still have the metadata that the plan was made for."""
        return fits(self.state, scope)


class Executor:
    """Runs programs on one place.

    Args:
        place: A Place, or its spelling (``"cpu"``, ``"gpu:0"``); the expected place if ``None``.

    Raises:
        PlaceError: For a text that names no place.
    """

    def __init__(self, place: Any = None) -> None:
        self.place = places.expected_place() if place is None else places.to_place(place)
        self._cache: OrderedDict[tuple[Any, ...], _Compiled] = OrderedDict()
        self._companies = Companies()
        self._used: dict[tuple[int, int], frozenset[str]] = {}
        self._lock = rlock()
        self._closed = False
        self._pid = os.getpid()

    # -------------------------------------------------------------------------------------------------------------- run
    @no_effect(use_program_cache="plans are always kept, by the content of the program")
    def run(
        self,
        program: Program | CompiledProgram | None = None,
        feed: Any = None,
        fetch_list: Any = None,
        feed_var_name: str = "feed",
        fetch_var_name: str = "fetch",
        scope: Scope | None = None,
        return_numpy: bool = True,
        use_program_cache: bool = False,
        return_merged: bool = True,
        use_prune: bool = False,
    ) -> list[Any]:
        """Runs a program once and returns the fetched values.

        Args:
            program: A Program or CompiledProgram; the default main program if ``None``.
            feed: ``{name: array}``; dtypes must be those declared, unknown sizes take any.
            fetch_list: Variables or names, nested lists allowed.
            feed_var_name, fetch_var_name: Accepted as in Paddle; part of the cache key.
            scope: Where persistable variables live; the global scope if ``None``.
            return_numpy: ``True`` gives numpy arrays, ``False`` gives tensors that hold them.
            return_merged: Accepted; it matters with several places.
            use_prune: Run only what the fetched variables and the optimizer need.

        Returns:
            One array per fetched variable, the user's own.

        Raises:
            FeedError, FeedTypeError: For feeds and fetches that do not fit the program.
            TstaticError: What an operator refuses, with the user's line. The scope is then as it was before.
        """
        try:
            return self._run(
                program, feed, fetch_list, feed_var_name, fetch_var_name, scope, return_numpy, return_merged, use_prune
            )
        except (TstaticError, MemoryError, EOFException):
            raise
        except Exception as error:
            damaged = damaged_program(program, error)
            if damaged is None:
                raise
            raise damaged from error

    def _run(
        self,
        program: Program | CompiledProgram | None,
        feed: Any,
        fetch_list: Any,
        feed_var_name: str,
        fetch_var_name: str,
        scope: Scope | None,
        return_numpy: bool,
        return_merged: bool,
        use_prune: bool,
    ) -> list[Any]:
        self._check_usable()
        compiled = program if isinstance(program, CompiledProgram) else None
        base = self._program_of(program)
        where = scope if scope is not None else global_scope()
        if not isinstance(where, Scope):
            raise ProgramTypeError(
                "Executor.run needs a Scope as 'scope'",
                expected="a static.Scope",
                received=shown(where),
                fix="make one with static.Scope()",
                op="Executor.run",
            )
        check_holders(feed_var_name, fetch_var_name)
        names, kept = fetch_names(fetch_list)
        if compiled is not None and compiled._is_data_parallel:
            if compiled._share is not None and compiled._share._scope is not None:
                where = compiled._share._scope
            compiled._scope = where
            with self._lock, where.lock:
                used = self._needed(base, names)
                return self._companies.run(
                    compiled, self.place, feed, used, (names, kept), where, return_numpy, return_merged, use_prune
                )
        with self._lock, where.lock:
            entry, arrays = self._compile(
                base, compiled, feed, names, kept, where, (feed_var_name, fetch_var_name), use_prune
            )
            if compiled is not None and compiled._exec_strategy._dry_run:
                return [None] * len(names)
            start = time.perf_counter()
            iterations = 1 if compiled is None else compiled._exec_strategy.num_iteration_per_run
            with scheduled(base, where):
                values = entry.session.run(arrays, iterations)
            if compiled is not None:
                compiled._after_run(entry.session)
            if _steps.isEnabledFor(DEBUG):
                _steps.debug("ran %r in %.3f ms", base, (time.perf_counter() - start) * 1e3)
        return values if return_numpy else [tensor_of(v) for v in values]

    def _check_usable(self) -> None:
        if self._closed:
            raise ProgramError(
                "Attempted to use a closed Executor",
                expected="an open Executor",
                received="one on which close() was called",
                fix="make a new one: exe = static.Executor(place)",
            )
        if os.getpid() != self._pid:
            raise ForkedProcessError(
                "this Executor was made in another process",
                expected=f"the process that made it (pid {self._pid})",
                received=f"pid {os.getpid()}",
                fix="make the Executor in the child process, or start it with the 'spawn' method",
            )

    @staticmethod
    def _program_of(program: Any) -> Program:
        if program is None:
            main = default_main_program()
            if not main.global_block().ops:
                warn_once(
                    ("empty program", main.uid),
                    "The current program is empty: exe.run() was called without a program and the default main program has "
                    "no operators",
                )
            return main
        if isinstance(program, CompiledProgram):
            return program._program
        if not isinstance(program, Program):
            raise ProgramTypeError(
                f"Executor requires Program as its Parameter. But you passed in {type(program).__name__}",
                expected="a static.Program or static.CompiledProgram",
                received=shown(program),
                fix="pass the program, for example exe.run(static.default_main_program(), feed=...)",
                op="Executor.run",
            )
        return program

    # ---------------------------------------------------------------------------------------------------------- compile
    def _needed(self, program: Program, fetches: Sequence[str]) -> frozenset[str]:
        """Names that the program's ops read; kept per version."""
        key = (program.uid, program.version)
        found = self._used.get(key)
        if found is None:
            found = frozenset(n for b in program.blocks for op in b.ops for n in op.input_arg_names)
            if len(self._used) > 4 * CACHE_SIZE:
                self._used.clear()
            self._used[key] = found
        return found | set(fetches) if fetches else found

    def _compile(
        self,
        program: Program,
        compiled: CompiledProgram | None,
        feed: Any,
        fetches: list[str],
        kept: list[str],
        scope: Scope,
        holders: tuple[str, str],
        use_prune: bool,
    ) -> tuple[_Compiled, Arrays]:
        place = places.resolve(self.place)
        if place.kind not in ("cpu", "null"):
            raise UnsupportedError(
                f"this release runs programs on the CPU, not on {place}",
                expected="CPUPlace()",
                received=repr(place),
                fix="use static.Executor(CPUPlace())",
            )
        build = _DEFAULT if compiled is None else compiled._build_strategy
        execution = None if compiled is None else compiled._exec_strategy
        try:
            arrays = read_feed(program, feed, self._needed(program, fetches))
        except TstaticError as error:
            raise error.add_context(where=show(user_line())) from None
        signature = tuple((n, a.shape, a.dtype) for n, a in sorted(arrays.items()))
        threads = _threads(execution)
        key = (
            program.uid, program.version, _DEFAULT_KEY if compiled is None else build.key(), threads, signature,
            (tuple(fetches), *holders),
            place, id(scope), flags.key(), (use_prune, tuple(kept)),
        )  # fmt: skip
        found = self._cache.get(key)
        if found is not None and (not found.session.stale() or found.fits(scope)):
            self._cache.move_to_end(key)
            return found, arrays
        start = time.perf_counter()
        try:
            entry, fused = self._build(program, build, arrays, fetches, kept, scope, threads, place.kind, use_prune)
        except TstaticError as error:
            raise error.add_context(where=show(user_line())) from None
        if compiled is not None:
            compiled._remember(entry.session.plan, fused)
        self._report(key, (time.perf_counter() - start) * 1e3, program)
        self._cache[key] = entry
        while len(self._cache) > CACHE_SIZE:
            self._cache.popitem(last=False)
        return entry, arrays

    def _build(
        self,
        program: Program,
        build: BuildStrategy,
        arrays: Arrays,
        fetches: list[str],
        kept: list[str],
        scope: Scope,
        threads: int,
        device: str,
        use_prune: bool,
    ) -> tuple[_Compiled, FrozenProgram]:
        source = program
        if use_prune:
            targets = list(fetches) + (kept or updated(program))
            source = edit.prune(program, list(arrays), targets)
        made = rewritten_for(source, build, {n: meta_of(a) for n, a in arrays.items()}, fetches, scope)
        interpreted = device == "cpu" and interpret.backend() == "interpret"
        frozen, metas = pipeline.fuse(made.frozen, made.metas, build)
        write_graphs(source, build, list(arrays), fetches, frozen, metas)
        plan = pipeline.lower(frozen, metas, build, generated=interpreted)
        for var in frozen.reads:
            if scope.array(var) is None:
                raise uninitialised(plan, var)
        session = Session(
            plan, scope, device, threads, program.random_seed, program.uid, bool(flags.flag("FLAGS_check_nan_inf"))
        )
        return _Compiled(session, made.state), frozen

    def _report(self, key: tuple[Any, ...], milliseconds: float, program: Program) -> None:
        """Says what was compiled, which part of the key differed from the nearest plan, and what it cost."""
        if not _log.isEnabledFor(INFO):
            return
        best: dict[str, tuple[Any, Any]] | None = None
        for other in self._cache:
            if other[0] != key[0]:
                continue
            differs = {p: (old, new) for p, new, old in zip(KEY_PARTS, key, other, strict=True) if old != new}
            if best is None or len(differs) <= len(best):  # of equals the newest
                best = differs
        reason = "first run" if best is None else "the scope's values changed size"
        if best:
            reason = f"differs in {', '.join(best)}"
            if _SIGNATURE in best:
                reason += f" ({changed_feeds(*best[_SIGNATURE])})"
        _log.info("compiled %r in %.1f ms: %s", program, milliseconds, reason)

    def close(self) -> None:
        """Frees all plans; a later run raises. May be called twice."""
        self._closed = True
        for entry in self._cache.values():
            entry.session.drop()
        self._cache.clear()
        self._companies.close()

    def flush(self) -> None:
        """Waits for running work; runs of this release are finished when ``run`` returns."""

    def infer_from_dataset(self, *args: Any, **kwargs: Any) -> None:
        """Not part of tstatic: parameter-server datasets."""
        raise _no_dataset("infer_from_dataset")

    def train_from_dataset(self, *args: Any, **kwargs: Any) -> None:
        """Not part of tstatic: parameter-server datasets."""
        raise _no_dataset("train_from_dataset")

    @property
    def held_bytes(self) -> int:
        """Bytes that the arenas of cached plans hold now."""
        return sum(entry.session.held_bytes for entry in self._cache.values()) + self._companies.held_bytes


def _no_dataset(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"Executor.{name} reads parameter-server datasets, which tstatic does not have",
        expected="batches fed with Executor.run(feed=...)",
        received=name,
        fix="loop over your data and call exe.run(program, feed=batch, fetch_list=[...])",
    )


def _threads(execution: ExecutionStrategy | None) -> int:
    wanted = 0 if execution is None else execution.num_threads
    return wanted or places.cpu_threads(None)


def changed_feeds(old: Sequence[tuple[Any, ...]], new: Sequence[tuple[Any, ...]]) -> str:
    """What differs between two feed signatures: ``x: (32, 8) float32 -> (16, 8) float32``."""
    before, after = ({n: f"{shape} {dtype.name}" for n, shape, dtype in one} for one in (old, new))
    names = [n for n in {**before, **after} if before.get(n) != after.get(n)]
    return "; ".join(f"{n}: {before.get(n, 'not fed')} -> {after.get(n, 'not fed')}" for n in names)


__all__ = ["Executor"]
