"""The Executor compiles a program once per key, then replays its plan."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from logging import DEBUG
from typing import Any, Literal, overload

from tstatic import flags, places, records
from tstatic.comm.processes import world
from tstatic.comm.rendezvous import launch
from tstatic.devices import Device, check_backend, of_place
from tstatic.errors import (
    EOFException,
    ForkedProcessError,
    ProgramError,
    TstaticError,
)
from tstatic.ir.checks import check_type
from tstatic.ir.export import notes_signatures
from tstatic.ir.program import Operator, Program
from tstatic.locks import rlock
from tstatic.logs import get_logger
from tstatic.no_effect import no_effect
from tstatic.places import CPUPlace, Place
from tstatic.runtime import timeline
from tstatic.runtime.feed import Arrays
from tstatic.runtime.fetched import converting
from tstatic.runtime.learning_rate import due_rates
from tstatic.runtime.lod import FetchedLods, check_numpy
from tstatic.runtime.scope import Scope, global_scope
from tstatic.runtime.shards import shards
from tstatic.shortage import out_of_memory
from tstatic.static.compile import Compilation, Key, compile_program, distribution
from tstatic.static.compile.any_size import for_any_size
from tstatic.static.compile.ledger import CompileRecord, PlansInUse
from tstatic.static.compile.plan_cache import Bound, CompileCache
from tstatic.static.compile.request import (
    FeedReader,
    Signature,
    check_holders,
    damaged_program,
    fed_places,
    fed_state,
    fetch_names,
    metas_of,
    signature_of,
    with_readers,
)
from tstatic.static.explain.dot import write_graphs
from tstatic.static.run.compiled_program import PLAIN, CompiledProgram, Settings, over_processes
from tstatic.static.run.data_parallel import Replicas, joined_by, places_of
from tstatic.static.run.from_dataset import FetchHandler, run_batches
from tstatic.static.run.prepared_run import PreparedRun, returned, source_of
from tstatic.static.run.run_future import RunFuture
from tstatic.static.strategy import BuildStrategy
from tstatic.target import as_asked, asked
from tstatic.where import show, user_line

_PLAIN_KEY = PLAIN.build.key()
_steps = get_logger("steps")
_ORDER = "batches are read in order, so that runs can be repeated"
_DEBUG = "TSTATIC_LOGS=steps logs the time of each run"

MOST_READERS = 128
"""The most program versions for which an Executor keeps a FeedReader."""

observers: list[Callable[[Compilation, Settings, Scope, CompileRecord], None]] = []
"""Called after each compilation for a run, with its record; the command line looks at the programs of users' scripts by it."""


@notes_signatures(undo=False)
class Executor:
    """Runs programs on one place.

    Args:
        place: A Place, or its spelling (``"cpu"``, ``"gpu:0"``); the expected place if ``None``.

    Raises:
        PlaceError: If a text does not name a place.

    Example:
        >>> x = static.data("x", [None, 3])
        >>> y = static.nn.fc(x, 2, weight_attr=paddle.nn.initializer.Constant(0.5))
        >>> exe = static.Executor(paddle.CPUPlace())
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(feed={"x": np.array([[1, 2, 3]], "float32")}, fetch_list=[y])[0]
        array([[3., 3.]], dtype=float32)
    """

    def __init__(self, place: Any = None) -> None:
        self.place = places.expected_place() if place is None else places.to_place(place)
        self._cache = CompileCache()
        # One more for each depth at which a Python function in a program runs programs: whoever runs keeps its plan and arena.
        self._inner: list[CompileCache] = []
        self._depth = 0
        self._replicas: dict[tuple[tuple[Device, ...], str], Replicas] = {}
        self._readers: dict[tuple[int, int, tuple[str, ...]], FeedReader] = {}
        self._lock = rlock()
        self._closed = False
        self._pid = os.getpid()

    # -------------------------------------------------------------------------------------------------------------- run
    @overload
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
        *,
        block: Literal[True] = True,
    ) -> list[Any]: ...

    @overload
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
        *,
        block: Literal[False],
    ) -> RunFuture: ...

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
        *,
        block: bool = True,
    ) -> Any:
        """Runs a program once and returns the fetched values.

        Args:
            program: A Program or CompiledProgram; the default main program if ``None``.
            feed: ``{name: array}``; dtypes must equal the declared ones; unknown sizes may be any. What it lacks comes from the
                program's loaders that are not iterable.
            fetch_list: Variables or names, nested lists allowed. What ``minimize`` returned, or ops of it, chooses the optimizers
                that run; without such an entry all do.
            feed_var_name, fetch_var_name: Accepted as in Paddle; part of the cache key.
            scope: The scope of persistable variables; the global scope if ``None``.
            return_numpy: ``True`` returns numpy arrays, ``False`` tensors that hold them.
            return_merged: With several places: ``True`` joins their values, ``False`` returns a list per variable.
            use_prune: Run only what the fetched variables and the optimizer need.
            block: ``False`` returns a :class:`RunFuture`, whose ``result()`` is the list. On a GPU it does not wait for the device,
                as long as the host has no part in the step; at most 3 steps are in flight, and one more waits for the oldest.
                Elsewhere the run is over when the call returns.

        Returns:
            A list with one array per fetched variable; the caller may keep and change it. It is a plain ``numpy.ndarray``; of a
            program that functions of ``fluid`` built, and under ``tstatic.as_paddle``, a subclass that converts to a number from
            any rank.

        Raises:
            FeedError, FeedTypeError: If feeds or fetches do not fit the program.
            EOFException: If a loader of the program has no batch left.
            TstaticError: If an operator fails; it has the user's line. The scope is then as before the run. Of a run that does not
                block, the future raises what the device finds.
        """
        args = (
            program,
            feed,
            fetch_list,
            feed_var_name,
            fetch_var_name,
            scope,
            return_numpy,
            return_merged,
            use_prune,
            block,
        )
        try:
            if records.recorder is None:
                return self._run(*args)
            recorder, start = records.recorder, time.perf_counter_ns()
            try:
                return self._run(*args)
            finally:
                recorder.add("run", "Executor.run", start)
        # These say enough; others may come from damage to the program's file.
        except (TstaticError, EOFException):
            raise
        except MemoryError as error:
            raise out_of_memory("Executor.run", cause=error) from error
        except Exception as error:
            damaged = damaged_program(source_of(program)[0], error)
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
        block: bool,
    ) -> Any:
        # Threads and locks of the parent do not exist in a forked child.
        if self._closed or os.getpid() != self._pid:
            raise self._unusable()
        base, settings = (program, PLAIN) if isinstance(program, Program) else source_of(program)
        if base.distributed is not None:
            settings = over_processes(base, settings)
        where = scope if scope is not None else global_scope()
        if not isinstance(where, Scope):
            check_type(where, Scope, "scope", "Executor.run", fix="make one with static.Scope()")
        if feed_var_name != "feed" or fetch_var_name != "fetch":
            check_holders(feed_var_name, fetch_var_name)
        names, kept = fetch_names(fetch_list)
        if settings.parallel:
            where = settings.scope_for(where)
        # Executors may share a scope: its lock keeps their runs apart.
        with self._lock, where.lock:
            try:
                place, replicas = self._place_of(settings)
                device = of_place(place if isinstance(place, Place) else place[0])
                # Under the lock, so that batches reach runs in the order in which loaders give them.
                if base.readers:
                    feed = with_readers(base, feed, len(place) if isinstance(place, tuple) else 1)
                if replicas is not None and replicas.outer is None and isinstance(place, tuple):
                    fed = fed_places(base, feed, len(place))
                    if fed < len(place):
                        place, replicas = place[:fed], self._join(place[:fed], settings.build)
                feeds, signatures, fetched = self._read(base, feed, names, replicas, device)
                count = len(names)
                lods: list[tuple[str, ...]] = [()] * count
                if fetched.names:
                    lods = fetched.available(feeds[0])
                    if return_numpy:
                        check_numpy(names, lods)
                    # The row offsets of what is fetched are fetched behind it.
                    names = [*names, *(n for lod in lods for n in lod)]
                # CPU_NUM threads; replicas have four each.
                threads = settings.threads or (os.environ.get("CPU_NUM", "1") if replicas is None else 4)
                target = device.target if asked.get() is None else as_asked(device.target)
                key = Key(
                    base.uid, base.version, _PLAIN_KEY if settings is PLAIN else settings.build.key(), threads, signatures,
                    (tuple(names), feed_var_name, fetch_var_name), place, device, target, id(where), flags.key(),
                    (use_prune or bool(kept), tuple(kept)), settings.numerics,
                )  # fmt: skip
                cache = self._cache if not self._depth else self._cache_within()
                entry = cache.find(key, where)
                # None leaves the program whole; an empty list prunes it to what is fetched.
                pruned = kept if kept or use_prune else None
                first = None
                if entry is None:
                    first = timeline.start()
                    with timeline.part("plan"):
                        entry, replicas = self._compile(
                            cache, key, base, settings, feeds, names, pruned, where, replicas
                        )
            except TstaticError as error:
                raise error.add_context(where=show(user_line())) from None
            # Before the run: an explanation then shows what a run that failed was compiled to.
            if settings.history is not None:
                settings.history.compilation = entry.exact or entry.compilation
                settings.history.last = key, count
            # After compiling, which tells all that is wrong with the program.
            if settings.dry_run:
                return [None] * count
            # Asked before each step: another process may look up more rows than this one's plan has room for.
            if replicas is not None and (room := replicas.room(entry)) != entry.compilation.room:
                key = key._replace(table_rows=room)
                entry = (
                    cache.find(key, where)
                    or self._compile(cache, key, base, settings, feeds, names, pruned, where, replicas)[0]
                )
            start = time.perf_counter()
            depth = self._depth
            run = PreparedRun(
                entry, feeds, where, settings, replicas, due_rates(base) if base.learning_rates else (),
                partial(self._compile, cache, key, base, settings, feeds, names, pruned, where),
                partial(cache.refuse_any_size, key), not return_numpy and device.gives_tensors,
            )  # fmt: skip
            finish = partial(returned, base, names, count, lods, replicas, settings, return_numpy, return_merged)
            results: list[Any] = []
            try:
                # A Python function in the program may run programs: `_cache_within` keeps their plans apart.
                self._depth = depth + 1
                if block:
                    results = run.execute()
                else:
                    future = RunFuture(run.entry.sessions[0], run.queue(), finish)
            finally:
                self._depth = depth
            entry = run.entry
            # After the run, so that one that fails leaves the scope as it was.
            for name in entry.kept:
                where.var(name).get_tensor()._write(feeds[0][name])
            if settings.history is not None:
                settings.history.ran(entry, settings.drop_every)
            if records.recorder is not None and records.recorder.memory:
                records.recorder.note_memory(self.held_bytes)
            if first is not None:
                first.tell(base)
            if _steps.isEnabledFor(DEBUG):
                # Replicas run side by side: the slowest is what the step takes.
                took = [seconds for one in entry.sessions if (seconds := one.device_seconds) is not None]
                on_device = f", of which {max(took) * 1e3:.3f} ms on the device" if took else ""
                _steps.debug("ran %r in %.3f ms%s", base, (time.perf_counter() - start) * 1e3, on_device)
        # The usual run, which needs nothing of what `returned` does.
        if block and replicas is None and return_numpy:
            return converting(results[0]) if base.fetches_convert else results[0]
        return finish(results) if block else future

    def _unusable(self) -> TstaticError:
        if self._closed:
            return ProgramError(
                "Attempted to use a closed Executor",
                expected="an open Executor",
                received="one on which close() was called",
                fix="make a new one: exe = static.Executor(place)",
            )
        return ForkedProcessError(
            "this Executor was made in another process",
            expected=f"the process that made it (pid {self._pid})",
            received=f"pid {os.getpid()}",
            fix="make the Executor in the child process, or start it with the 'spawn' method",
        )

    def _cache_within(self) -> CompileCache:
        """Returns the cache of runs inside of ``_depth`` other runs of this Executor."""
        while len(self._inner) < self._depth:
            self._inner.append(CompileCache(self._cache.ledger))
        return self._inner[self._depth - 1]

    def _place_of(self, settings: Settings) -> tuple[Place | tuple[Place, ...], Replicas | None]:
        """Returns where a program runs: on one place, or on those of its replicas."""
        if settings.parallel:
            found = tuple(places_of(self.place, settings.places))
            # Connects before the feed is read, so that the other processes learn of a rejected feed.
            return found, self._replicas.get(joined_by(found)) or self._join(found, settings.build)
        # Most programs run on the CPU, which always exists.
        return self.place if type(self.place) is CPUPlace else places.resolve(self.place), None

    def _join(self, on: tuple[Place, ...], build: BuildStrategy) -> Replicas:
        """Returns the replicas on some places, in the process group that the launcher and the strategy agree on."""
        launch.resolve_process(build)
        outer = world()
        key = joined_by(on)
        found = self._replicas.get(key)
        # The process group was made anew, and compilations are bound to the old one's transports.
        if found is None or found.outer is not outer:
            if found is not None:
                found.close()
                for cache in (self._cache, *self._inner):
                    cache.forget(found.group)
            found = self._replicas[key] = Replicas(key[0], outer)
        return found

    def _read(
        self, program: Program, feed: Any, names: list[str], replicas: Replicas | None, device: Device
    ) -> tuple[list[Arrays], tuple[Signature, ...], FetchedLods]:
        """Returns each replica's feed, checked, the feeds' signatures, and the row offsets of what is fetched."""
        version = program.uid, program.version, tuple(names)
        reader = self._readers.get(version)
        if reader is None:
            if len(self._readers) >= MOST_READERS:
                self._readers.clear()
            reader = self._readers[version] = FeedReader(program, names)
        if replicas is None:
            arrays, signature = reader.read(program, feed, device if device.gives_tensors else None)
            return [arrays], (signature,), reader.lods
        parts = shards(program, feed, reader.used, replicas.group.size)
        return parts, tuple(signature_of(part, reader.open_rows) for part in parts), reader.lods

    # ---------------------------------------------------------------------------------------------------------- compile
    def _compile(
        self,
        cache: CompileCache,
        key: Key,
        program: Program,
        settings: Settings,
        feeds: list[Arrays],
        names: list[str],
        kept: list[Operator] | None,
        scope: Scope,
        replicas: Replicas | None,
        own: bool = False,
    ) -> tuple[Bound, Replicas | None]:
        """Compiles a program, binds it to a scope and adds it to the cache; ``own``: with a plan for these sizes alone."""
        recorder = records.recorder
        if not own:
            cache.ledger.check(key, repr(program))
        start, start_ns = time.perf_counter(), time.perf_counter_ns()
        build, group, how, rank = settings.build, None, None, 0
        check_backend()
        threads = settings.threads or places.cpu_threads(None if replicas is None else len(feeds))
        entry = None
        if replicas is None and not own:
            entry = for_any_size(cache, key, program, build, names, kept, scope, threads)
        if replicas is not None:
            # Joins again: the process group may have changed.
            assert isinstance(key.place, tuple)
            replicas = self._join(key.place, build)
            group, rank = replicas.group, replicas.rank
            processes = None if replicas.outer is None else replicas.outer.launch
            how = distribution(build, len(feeds), processes, settings.exchange, key.device.deferred, settings.numerics)
        if entry is None:
            made = compile_program(
                program,
                build,
                [metas_of(signature) for signature in key.feed_signature],
                names,
                scope,
                how=how,
                kept=kept,
                device=key.device,
                key=key,
                numerics=settings.numerics,
                family=cache.family(key),
                room=key.table_rows,
            )
            # One process for all: they may share the file system.
            if not rank:
                write_graphs(made.source, build, list(feeds[0]), names, made.first.after, made.first.metas)
            devices = [key.device] if replicas is None else replicas.devices
            if replicas is not None and made.report is not None:
                made.report.choices = replicas.choices
            arenas = cache.arenas(devices, group)
            kept_feeds = fed_state(program, feeds[0], made.first.before.writes)
            entry = Bound(made, made.bind_scope(scope, devices, threads, group, rank, arenas), group, kept_feeds)
        if replicas is not None:
            replicas.agree(entry.compilation, build, scope)
        record = cache.add(key, entry, time.perf_counter() - start)
        if settings.history is not None:
            settings.history.note(record)
        if recorder is not None:
            recorder.add("compile", "compile", start_ns)
        for observe in observers:
            # Observers look at a plan for these sizes, also where one for any size runs.
            observe(entry.compilation if entry.exact is None else entry.exact(), settings, scope, record)
        return entry, replicas

    def close(self) -> None:
        """Frees all plans; a later run raises. May be called twice."""
        self._closed = True
        for replicas in self._replicas.values():
            replicas.close()
        self._replicas.clear()
        for cache in (self._cache, *self._inner):
            cache.close()

    def flush(self) -> None:
        """Does nothing: all work of a run is done when ``run`` returns."""

    @no_effect(thread=_ORDER, debug=_DEBUG)
    def train_from_dataset(
        self,
        program: Program | CompiledProgram | None = None,
        dataset: Any = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Any = None,
        fetch_info: Sequence[str] | None = None,
        print_period: int = 100,
        fetch_handler: FetchHandler | None = None,
    ) -> None:
        """Runs a program once for each batch of a data set of files.

        Args:
            program: A Program or CompiledProgram; the default main program if ``None``.
            dataset: A ``distributed.InMemoryDataset`` or ``QueueDataset``.
            scope: The scope of persistable variables; the global scope if ``None``.
            fetch_list: Variables or names whose values are printed.
            fetch_info: A text for each of them; their names if ``None``.
            print_period: Batches between two lines of print.
            fetch_handler: Gets values from time to time, in place of print.

        Raises:
            ProgramError: If ``dataset`` is not one, or the arguments of print do not fit (a ``RuntimeError``).
            TstaticError: If the data set cannot be read, or a run fails; batches before it have been trained on.

        Example:
            >>> x = static.data("x", [None, 2])
            >>> total = paddle.sum(x)
            >>> np.savetxt("part.txt", [[2, 1, 2], [2, 3, 4]], fmt="%d")
            >>> dataset = paddle.distributed.QueueDataset()
            >>> dataset.init(use_var=[x])
            >>> dataset.set_filelist(["part.txt"])
            >>> exe = static.Executor()
            >>> exe.train_from_dataset(dataset=dataset, fetch_list=[total])
        """

        def run(feed: Any, names: list[str]) -> list[Any]:
            return self.run(program, feed, names, scope=scope)

        run_batches(run, dataset, fetch_list, fetch_info, print_period, fetch_handler)

    @no_effect(thread=_ORDER, debug=_DEBUG)
    def infer_from_dataset(
        self,
        program: Program | CompiledProgram | None = None,
        dataset: Any = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Any = None,
        fetch_info: Sequence[str] | None = None,
        print_period: int = 100,
        fetch_handler: FetchHandler | None = None,
    ) -> None:
        """Runs a program once for each batch of a data set, as :meth:`train_from_dataset` does: pass one without updates.

        Args:
            program: A Program or CompiledProgram; the default main program if ``None``.
            dataset: A ``distributed.InMemoryDataset`` or ``QueueDataset``.
            scope: The scope of persistable variables; the global scope if ``None``.
            fetch_list: Variables or names whose values are printed.
            fetch_info: A text for each of them; their names if ``None``.
            print_period: Batches between two lines of print.
            fetch_handler: Gets values from time to time, in place of print.

        Raises:
            ProgramError: As :meth:`train_from_dataset` does.
        """
        self.train_from_dataset(
            program, dataset, scope, thread, debug, fetch_list, fetch_info, print_period, fetch_handler
        )

    @property
    def compilations(self) -> tuple[CompileRecord, ...]:
        """One record for each compilation, oldest first: which parts of the cache key changed, and the seconds it took.

        Example:
            >>> y = static.data("x", [None, 2]) * 2
            >>> exe = static.Executor()
            >>> for rows in (1, 3, 1):
            ...     _ = exe.run(feed={"x": np.ones((rows, 2), "float32")}, fetch_list=[y])
            >>> len(exe.compilations), str(exe.compilations[1].changes[0])
            (2, "feed 'x': (1, 2) float32 -> (3, 2) float32")
        """
        return self._cache.ledger.records

    @property
    def plans(self) -> PlansInUse:
        """How many plans are kept, with about how many bytes (``FLAGS_plan_cache_bytes`` bounds them), and how runs found them.

        Example:
            >>> y = static.data("x", [None, 2]) * 2
            >>> exe = static.Executor()
            >>> for rows in (1, 3, 1, 3):
            ...     _ = exe.run(feed={"x": np.ones((rows, 2), "float32")}, fetch_list=[y])
            >>> exe.plans.plans, exe.plans.compilations, exe.plans.hits
            (2, 2, 2)
        """
        return self._cache.in_use

    @property
    def held_bytes(self) -> int:
        """Bytes of the arenas, in which plans take turns, and of their scratch memory now."""
        return sum(cache.held_bytes for cache in (self._cache, *self._inner))


def checking_executor(place: Any = None) -> Executor:
    """Returns an Executor that compiles one program many times without a warning: checks do so on purpose."""
    made = Executor(place)
    made._cache.warns = False
    return made


__all__ = ["Executor"]
