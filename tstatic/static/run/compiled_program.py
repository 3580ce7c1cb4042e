"""CompiledProgram: a program with strategies, its plan, its memory report and its explanation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import NoneType
from typing import Any, TypeVar

import numpy as np

from tstatic import flags, places
from tstatic.comm.passes.data_parallel import starts_loss_gradient
from tstatic.comm.passes.distribution import Distribution, Exchange
from tstatic.comm.rendezvous import launch
from tstatic.devices import Device, cpu_device, of_place
from tstatic.errors import FeedError, ProgramError, ProgramTypeError, near, shown
from tstatic.fusion.codegen.kernel import Kernel
from tstatic.ir.checks import check_choice, check_int, check_type
from tstatic.ir.export import notes_signatures
from tstatic.ir.operator import OpRole
from tstatic.ir.program import Program
from tstatic.ir.types import UNKNOWN, Meta, dtype_of
from tstatic.places import Place
from tstatic.plan.capacity import capacity, chip_of
from tstatic.plan.plan import Plan
from tstatic.plan.report import Fit, MemoryReport, memory_report
from tstatic.runtime.feed import check_shape
from tstatic.runtime.lod import open_rows
from tstatic.runtime.scope import Scope, global_scope
from tstatic.runtime.shards import shard_metas
from tstatic.static.compile import compile_program, distribution
from tstatic.static.compile.ledger import CompileRecord
from tstatic.static.compile.request import fetch_names, planned_for
from tstatic.static.explain import Explanation
from tstatic.static.explain.inquiry import as_program, build_explanation
from tstatic.static.explain.property_status import PropertyStatus
from tstatic.static.run.data_parallel import OWN_PLACE, places_of
from tstatic.static.run.history import History
from tstatic.static.run.max_batch import given_shapes, largest, with_batch
from tstatic.static.strategy import BuildStrategy, ExecutionStrategy
from tstatic.target import Target

S = TypeVar("S", BuildStrategy, ExecutionStrategy)
_PLAIN_EXCHANGE = Exchange()
ASSUMED = 16
"""The size that an explanation assumes if the program leaves it open: a choice, small and a multiple of 16, as most batches are."""


@dataclass(frozen=True, eq=False)
class Settings:
    """Describes how an Executor runs a program.

    Attributes:
        build, execution: The strategies in force.
        history: The record of runs; ``None`` for a plain Program, whose runs are not recorded.
        parallel: Whether it runs on several places, as replicas that each get a part of the batch.
        places: The places as the user gave them; ``None``: they follow from the Executor's place.
        share: The history of the data-parallel program whose variables this one uses.
        exchange: What the strategy of fleet that made them says of how gradients travel.
        statuses: What the strategy of fleet that made them did, for explanations.
        numerics: ``default`` or ``strict``; ``None``: what ``FLAGS_numerics`` says.
        threads, dry_run, iterations, drop_every: Properties of the execution strategy, read once.
    """

    build: BuildStrategy
    execution: ExecutionStrategy
    history: History | None = None
    parallel: bool = False
    places: Any = None
    share: History | None = None
    exchange: Exchange = _PLAIN_EXCHANGE
    statuses: tuple[PropertyStatus, ...] = ()
    numerics: str | None = None
    threads: int = field(init=False)
    dry_run: bool = field(init=False)
    iterations: int = field(init=False)
    drop_every: int = field(init=False)

    def __post_init__(self) -> None:
        for name, value in (
            ("threads", self.execution.num_threads),
            ("dry_run", self.execution._dry_run),
            ("iterations", self.execution.num_iteration_per_run),
            ("drop_every", self.execution.num_iteration_per_drop_scope),
        ):
            object.__setattr__(self, name, value)

    def scope_for(self, given: Scope) -> Scope:
        """Returns the scope of a data-parallel run's variables, and records it."""
        if self.share is not None and self.share.scope is not None:
            given = self.share.scope
        if self.history is not None:
            self.history.scope = given
        return given


@notes_signatures(undo=False)
class CompiledProgram:
    """A program to be rewritten and planned by a strategy when it first runs.

    Args:
        program_or_graph: The Program.
        build_strategy: Copied; later changes to it have no effect.
        exec_strategy: Copied likewise. Paddle takes it in ``with_data_parallel`` only.
        numerics: ``"strict"``: what is fused gives bit for bit what the unfused program gives. ``"default"``: it may keep more
            precision. ``None``: what ``FLAGS_numerics`` says; any other value beats the flag.

    Raises:
        ProgramTypeError: If the first argument is not a Program, or a strategy is not of its class.
        ProgramError: If ``numerics`` is none of its values.

    Example:
        >>> y = static.data("x", [2]) * 3
        >>> compiled = static.CompiledProgram(static.default_main_program())
        >>> static.Executor().run(compiled, feed={"x": np.array([1, 2], "float32")}, fetch_list=[y])[0]
        array([3., 6.], dtype=float32)
    """

    _program: Program

    def __init__(
        self,
        program_or_graph: Program | CompiledProgram,
        build_strategy: BuildStrategy | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        numerics: str | None = None,
    ) -> None:
        check_choice(numerics, (*flags.NUMERICS, None), "numerics", "CompiledProgram")
        # Its strategies do not carry over.
        if isinstance(program_or_graph, CompiledProgram):
            program_or_graph = program_or_graph._program
        if not isinstance(program_or_graph, Program):
            raise ProgramTypeError(
                "The type of program_to_graph parameter is wrong, expected Graph or Program, but received "
                f"{type(program_or_graph)}",
                expected="a static.Program",
                received=shown(program_or_graph),
                fix="pass the program, for example static.default_main_program()",
            )
        self._program = program_or_graph
        self._history = History()
        self._settings = Settings(
            _copied(build_strategy, BuildStrategy, "build_strategy"),
            _copied(exec_strategy, ExecutionStrategy, "exec_strategy"),
            self._history,
            numerics=numerics,
        )

    @property
    def build_strategy(self) -> BuildStrategy:
        """The strategy in force (a copy of the given one)."""
        return self._settings.build

    @property
    def exec_strategy(self) -> ExecutionStrategy:
        """The execution strategy in force, with ``num_threads`` resolved: 4 for each place (``CPU_NUM`` if none are given)."""
        resolved = self._settings.execution.copy()
        if not resolved.num_threads:
            given = self._settings.places
            count = len(given) if isinstance(given, list | tuple) else 1 if given is not None else 0
            resolved.num_threads = places.cpu_threads(count or None)
        return resolved

    @property
    def program(self) -> Program:
        """The program as it runs: with fused ops after the first run or memory report, the user's own before."""
        if self._history.compilation is None:
            return self._program
        return as_program(self._program, self._history.compilation.first.after)

    @property
    def fused_ops(self) -> tuple[str, ...]:
        """The types of the fused ops of the last compilation; none before the first run or memory report."""
        made = self._history.compilation
        return () if made is None else tuple(op.type for op in made.first.after.ops if op.body)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The generated kernels that runs of the last compilation launch; none where fused ops run as those that they replace."""
        made = self._history.compilation
        return () if made is None else tuple(one.kernel for one in made.first.plan.kernels.values())

    @property
    def compilations(self) -> tuple[CompileRecord, ...]:
        """The compilations for runs of this object, oldest first: what changed each time, and the seconds it took."""
        return tuple(self._history.records)

    @property
    def plan(self) -> Plan:
        """The plan of the last compilation; ``print`` it to see steps, order, events and slots.

        Raises:
            ProgramError: Before the first run or memory report.
        """
        if self._history.compilation is None:
            raise ProgramError(
                "there is no plan yet: feed shapes decide it",
                expected="a program that ran, or for which memory_report(feed_shapes) was called",
                received="a CompiledProgram that was never compiled",
                fix="run it once, or call compiled.memory_report({'x': (32, 3)})",
            )
        return self._history.compilation.first.plan

    def with_data_parallel(
        self,
        loss_name: str | None = None,
        build_strategy: BuildStrategy | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        share_vars_from: CompiledProgram | None = None,
        places: Any = None,
    ) -> CompiledProgram:
        """Runs the program on several places: each gets a part of the batch, gradients are summed, parameters stay equal.

        Args:
            loss_name: Name of the loss that the backward part starts from; ``None`` for a program without one.
            build_strategy: Replaces that of the constructor; copied.
            exec_strategy: Copied.
            share_vars_from: A compiled program, data parallel too, that uses the same variables. Programs that run in the
                same scope always share them.
            places: Places or their spellings; ``None`` takes ``CPU_NUM`` CPU places, or all visible GPUs, at the first run.

        Returns:
            This object.

        Raises:
            ProgramError: If it was called before, ``loss_name`` is missing or names another variable, or
                ``share_vars_from`` is not data parallel.
            ProgramTypeError: If an argument has another type.
        """
        if self._settings.parallel:
            raise self._refused(
                "Already compiled with parallel, cannot be recompiled.",
                "one call of with_data_parallel",
                "a second one",
                "make another CompiledProgram of the same program",
            )
        self._check_loss(loss_name)
        expected = "a CompiledProgram on which with_data_parallel was called, or None"
        check_type(
            share_vars_from, (CompiledProgram, NoneType), "share_vars_from", "with_data_parallel", expected=expected
        )
        if share_vars_from is not None and not share_vars_from._settings.parallel:
            raise self._refused(
                "The shared Program is not data parallel, cannot share variables from it.",
                "a CompiledProgram on which with_data_parallel was called",
                repr(share_vars_from),
                "call with_data_parallel on it first",
            )
        # Where no strategy is given, that of the constructor stays.
        given: dict[str, Any] = {}
        if build_strategy is not None:
            given["build"] = _copied(build_strategy, BuildStrategy, "build_strategy")
        if exec_strategy is not None:
            given["execution"] = _copied(exec_strategy, ExecutionStrategy, "exec_strategy")
        share = None if share_vars_from is None else share_vars_from._history
        self._settings = replace(self._settings, parallel=True, places=places, share=share, **given)
        return self

    def _refused(self, what: str, expected: str, received: str, fix: str) -> ProgramError:
        return ProgramError(what, expected=expected, received=received, fix=fix)

    def _check_loss(self, name: Any) -> None:
        """Checks that the given name is the loss that the backward part starts from."""
        check_type(
            name, (str, NoneType), "loss_name", "with_data_parallel", expected="a str such as loss.name, or None"
        )
        if not self._has_backward():
            if name and self._program.global_block()._find_var_recursive(name) is None:
                raise self._refused(
                    f"loss_name '{name}' is not a variable of the program",
                    "the name of a variable of the program, or None",
                    repr(name),
                    near(name, self._program.global_block().vars) or "pass loss.name",
                )
            return
        ops = self._program.global_block().ops
        # Gradients of a second loss are called grad/<name>@GRAD, and those of mixed precision start from a scaled loss.
        starts = {n.removesuffix("@GRAD") for op in ops if starts_loss_gradient(op) for n in op.output_arg_names}
        marked = [
            n for op in ops if op.role & OpRole.Loss and not op.role & OpRole.Backward for n in op.output_arg_names
        ]
        losses = sorted({n for n in starts if not n.startswith("grad/")}.union(marked))
        if losses and name and name == self._program.loss_name:
            return
        if not name:
            raise self._refused(
                "The loss name of CompiledProgram is None. The loss name should be set if CompiledProgram contains backward "
                "part.",
                f"loss_name={losses[0]!r}" if losses else "the name of the loss",
                repr(name),
                "pass loss_name=loss.name",
            )
        if losses and name not in losses:
            raise self._refused(
                f"loss_name '{name}' is not the loss that the backward part starts from",
                " or ".join(map(repr, losses)),
                repr(name),
                "pass the name of the variable that minimize or append_backward was called on",
            )

    def _feed_metas(self, feed_shapes: Mapping[str, Sequence[int]] | None) -> dict[str, Meta]:
        block = self._program.global_block()
        known: dict[str, Meta] = {}
        for name, shape in given_shapes(feed_shapes).items():
            var = block.vars.get(name)
            if var is None:
                raise ProgramError(
                    f"feed_shapes names '{name}', which the program does not have",
                    expected=f"inputs {', '.join(repr(n) for n, v in block.vars.items() if v.is_data)}",
                    received=repr(name),
                    fix=near(name, block.vars) or "use the names of static.data",
                    var=name,
                )
            if not all(isinstance(s, int | np.integer) and 0 <= s < 2**62 for s in shape):
                raise ProgramError(
                    f"feed_shapes gives '{name}' a shape that no array has", expected="sizes from 0 on",
                    received=repr(tuple(shape))[:200], fix="pass the shape of the array that will be fed", var=name,
                )  # fmt: skip
            sizes = tuple(int(s) for s in shape)
            check_shape(sizes, var)
            known[name] = Meta(sizes, dtype_of(var.dtype))
        return known

    def _without_shape(self, error: FeedError, known: Mapping[str, Meta]) -> FeedError:
        """Makes an error say ``feed_shapes`` where it is a shape that was not given, and no array."""
        var = self._program.global_block().vars.get(error.var or "")
        if var is not None and var.is_data and var.name not in known:
            error.what = f"no shape is given for input '{var.name}'"
            error.expected = f"feed_shapes={{'{var.name}': {tuple(var.shape)}}}, with a size in the place of each -1"
            error.received = f"shapes of {', '.join(map(repr, known)) or 'no input'}"
            error.fix = near(var.name, known) or f"add '{var.name}' to feed_shapes"
        return error

    def memory_report(
        self,
        feed_shapes: Mapping[str, Sequence[int]] | None = None,
        fetch_list: Any = None,
        scope: Scope | None = None,
        place: Any = None,
    ) -> MemoryReport:
        """Returns how much memory a run takes, without running the program.

        For a data-parallel program the report is that of the place that needs most; its ``replicas`` has one for each place.

        Args:
            feed_shapes: Input name -> shape; of the whole batch, which the places share.
            fetch_list: Variables that will be fetched; their memory is kept to the end.
            scope: The scope of the persistable variables; the global scope if ``None``.
            place: Where it would run: a place, or a chip that need not be here (``"H100"``, or its ``Target``), on which fused
                ops are kernels; CPU places if ``None``.

        Returns:
            Peak bytes, by category and by op; ``held_bytes`` are the bytes that arenas and scope hold at this moment.

        Raises:
            FeedError: If an input's shape is missing or does not fit its declaration, or the batch cannot be split over the places.
            ProgramError: If ``feed_shapes`` has a name that the program does not have, or the chip is unknown.
            DeviceError: If the GPU of the place is not there.
        """
        chosen_for = planned_for(place)
        where = scope if scope is not None else global_scope()
        known = self._feed_metas(feed_shapes)
        names, kept = fetch_names(fetch_list)
        # A chip that need not be here runs its work late, too.
        late = (
            chosen_for.deferred if isinstance(chosen_for, Device) else chosen_for is not None or cpu_device().deferred
        )
        how = self._distribution(late)
        feeds = [known] if how is None else shard_metas(self._program, known, how.replicas)
        chosen = self._settings.numerics
        device = chosen_for if isinstance(chosen_for, Device) else None
        try:
            made = compile_program(
                self._program, self._settings.build, feeds, names, where, how=how, kept=kept or None, numerics=chosen,
                device=device,
            )  # fmt: skip
        except FeedError as error:
            raise self._without_shape(error, known) from None
        chip = chosen_for if isinstance(chosen_for, Target) else None
        plans = [one.plan if chip is None else one.plan_on(chip) for one in made.replicas]
        # What is planned for another device must not replace the compilation that runs use.
        if chosen_for is None:
            self._history.compilation = made
        held = self._history.held_bytes + where.held_bytes()
        parameters = frozenset(p.name for p in self._program.all_parameters())
        found = [
            memory_report(plan, state, held, parameters, self._history.seen(plan))
            for plan, state in zip(plans, made.states, strict=True)
        ]
        name = chip.name if chip is not None else "" if device is None else str(place)
        found = [replace(report, planned_for=name) for report in found]
        largest = max(found, key=lambda report: report.peak_bytes)
        return largest if how is None else replace(largest, replicas=tuple(found))

    def fits(
        self,
        memory: Any = None,
        feed_shapes: Mapping[str, Sequence[int]] | None = None,
        fetch_list: Any = None,
        scope: Scope | None = None,
    ) -> Fit:
        """Returns whether a run fits in a memory, without running the program; ``print`` says what it takes.

        What a GPU's libraries take while ops run is known after a first run there; before it, it is not counted.

        Args:
            memory: Bytes, a size (``"80 GB"``), a chip that need not be here (``"H100"``), a place; ``None``: the main memory
                that is free. The run is planned for the chip or the place, else for a CPU place.
            feed_shapes, fetch_list, scope: As in :meth:`memory_report`.

        Raises:
            FeedError, ProgramError: As :meth:`memory_report`, and if ``memory`` is not a memory.
            DeviceError: If the GPU of the place is not there.

        Example:
            >>> if not compiled.fits("H100", {"x": (4096, 1024)}):
            ...     print(compiled.max_batch("H100"))
        """
        capacity(memory)  # refuses a bad argument before anything is planned
        place = chip_of(memory) if isinstance(memory, str) else memory if isinstance(memory, Place | Target) else None
        return self.memory_report(feed_shapes, fetch_list, scope, place).fits(memory)

    def max_batch(
        self,
        memory: Any = None,
        feed_shapes: Mapping[str, Sequence[int | None]] | None = None,
        fetch_list: Any = None,
        scope: Scope | None = None,
        multiple_of: int = 1,
    ) -> int:
        """Returns the largest batch whose run fits in a memory, 0 if none does, without running the program.

        It plans about six batches, each as long as a compilation takes. The batch is that of all places together.

        Args:
            memory: As in :meth:`fits`.
            feed_shapes: Input name -> shape, with -1 or ``None`` where the size of the batch stands. Inputs that are not named
                have their declared shapes.
            fetch_list, scope: As in :meth:`memory_report`.
            multiple_of: What the batch must be a multiple of; data-parallel programs need one of the number of their places.

        Raises:
            ProgramError: If no input has an open first size, or one has another open size.
            FeedError, DeviceError: As :meth:`fits`.
        """
        step = check_int(multiple_of, "multiple_of", "max_batch", least=1)
        capacity(memory)  # as in `fits`
        return largest(
            lambda batch: self.fits(
                memory, with_batch(self._program, given_shapes(feed_shapes), batch), fetch_list, scope
            ),
            step,
        )

    def _distribution(self, late: bool) -> Distribution | None:
        """Returns how the program is distributed over its places; ``None`` for a program on one place.

        ``late``: Whether their device runs its work late.
        """
        settings = self._settings
        if self._program.distributed is not None:
            settings = over_processes(self._program, settings)
        if not settings.parallel:
            return None
        build = settings.build
        given = settings.places
        listed = given if isinstance(given, list | tuple) else [given]
        home = places.CPUPlace() if given is None or given is OWN_PLACE or not listed else places.resolve(listed[0])
        count = len(places_of(home, given))
        processes = launch.agree(launch.current(), build)
        return distribution(build, count, processes, settings.exchange, late, settings.numerics)

    def explain(
        self,
        fetch_list: Any = None,
        feed_shapes: Mapping[str, Sequence[int]] | None = None,
        verbose: bool = False,
    ) -> Explanation:
        """Explains for every property of both strategies whether it acts, and which ops were fused or not, and why.

        Args:
            fetch_list: Variables that will be fetched: a fetched value must be stored, which may prevent a fusion. ``None`` takes
                those of the last run, before the first one nothing.
            feed_shapes: Input name -> shape; sizes left open are assumed, and the explanation's note says so. ``None`` takes those
                of the last run.
            verbose: Whether printing it lists everything, not only what matters most.

        Raises:
            ProgramError: If ``feed_shapes`` has a name that the program does not have.
        """
        names, kept = fetch_names(fetch_list)
        pruned, told = kept or None, []
        block, ran, fed = self._program.global_block(), self._history.fetched, self._history.fed
        # The program may have changed since.
        if fetch_list is None and ran is not None and all(block.has_var_recursive(name) for name in ran):
            names, pruned = ran, self._history.kept
            told.append(f"fetched {', '.join(ran) or 'nothing'}")
        fed = {n: s for n, s in fed.items() if block.has_var(n) and block.var(n).is_data} if feed_shapes is None else {}
        if fed:
            told.append("fed " + ", ".join(f"{name} {list(shape)}" for name, shape in fed.items()))
        known = self._feed_metas(fed or feed_shapes)
        assumed = []
        used = {n for b in self._program.blocks for op in b.ops for n in op.input_arg_names}
        outermost = open_rows(self._program)
        for name, var in block.vars.items():
            if var.is_data and name in used and name not in known:
                # There is one more offset than there are sequences.
                size = UNKNOWN if name in outermost else ASSUMED + (name in outermost.values())
                shape = tuple(size if s < 0 else s for s in var.shape)
                known[name] = Meta(shape, dtype_of(var.dtype))
                if shape != tuple(var.shape):
                    assumed.append(f"{name} {list(shape)}")
        note = f"Sizes that the program leaves open were assumed: {', '.join(assumed)}." if assumed else ""
        if told:
            note = f"As in the last run: {'; '.join(told)}. {note}".strip()
        place = None if self._history.last is None else self._history.last[0].place
        device = cpu_device() if place is None else of_place(place[0] if isinstance(place, tuple) else place)
        build, how = self._settings.build, self._distribution(device.deferred)
        if how is not None:
            # Sizes are those of the whole batch; the plan is for the first replica's part.
            extra = set(outermost.values())
            known = {name: _part(meta, how.replicas, int(name in extra)) for name, meta in known.items()}
        where = self._history.scope or global_scope()
        made = compile_program(
            self._program, build, [known], names, where, how=how, kept=pruned, numerics=self._settings.numerics,
            device=device,
        )  # fmt: skip
        last = self._history.compilation
        # Transports are chosen when programs run; an explanation only shows them.
        if made.report is not None and last is not None and last.report is not None:
            made.report.choices = last.report.choices
        fleet = self._program.distributed
        statuses = fleet.statuses if isinstance(fleet, Settings) else ()
        # `exec_strategy` below gives it a value that the user did not set.
        chosen = () if self._settings.execution.num_threads else ("num_threads",)
        found = build_explanation(made, build, self.exec_strategy, note, statuses, verbose, chosen)
        return replace(found, compilations=self.compilations, in_use=self._history.in_use)

    def _has_backward(self) -> bool:
        return any(op.role & OpRole.Backward for op in self._program.global_block().ops)

    def __repr__(self) -> str:
        return f"<CompiledProgram of {self._program!r}>"


def _part(meta: Meta, replicas: int, extra: int = 0) -> Meta:
    """Returns the metadata of the first replica's part of an input; ``extra`` entries each replica has by itself."""
    if replicas == 1 or not meta.shape or meta.shape[0] == UNKNOWN:
        return meta
    return meta.with_shape((max(1, (meta.shape[0] - extra) // replicas) + extra, *meta.shape[1:]))


PLAIN = Settings(BuildStrategy(), ExecutionStrategy())
"""The settings of a plain Program."""


ACROSS = Settings(BuildStrategy(), ExecutionStrategy(), parallel=True, places=OWN_PLACE)
"""The settings of a plain Program with collectives, where there are several processes."""


def over_processes(program: Program, settings: Settings) -> Settings:
    """Returns the settings with which a launcher's processes run a program together, on one place each.

    Args:
        program: A program with ``distributed``.
        settings: The settings of the CompiledProgram that is run, or ``PLAIN``; what a strategy of fleet says beats them.
    """
    given = program.distributed if isinstance(program.distributed, Settings) else None
    plain = settings is PLAIN
    if settings.parallel or (given is not None and given.parallel and plain):
        return given if plain and given is not None else settings
    if not program.collectives and launch.current().size == 1:
        return given if plain and given is not None else settings
    if plain and given is None:
        return ACROSS
    exchange = Exchange() if given is None else given.exchange
    base = given if plain and given is not None else settings
    return replace(base, parallel=True, places=OWN_PLACE, exchange=exchange)


def settings_of(compiled: CompiledProgram) -> tuple[Program, Settings]:
    """Returns the program of a CompiledProgram, and its settings."""
    return compiled._program, compiled._settings


def note_compilations(compiled: CompiledProgram, records: Iterable[CompileRecord]) -> None:
    """Adds compilations of the same program elsewhere, which an explanation then lists."""
    for record in records:
        compiled._history.note(record)


def _copied(strategy: S | None, kind: type[S], arg: str) -> S:
    """Returns a copy of a strategy, or a new one for ``None``."""
    if strategy is None:
        return kind()
    return check_type(strategy, kind, arg, "CompiledProgram", expected=f"a static.{kind.__name__} or None").copy()


__all__ = ["PLAIN", "CompiledProgram", "Settings", "note_compilations", "over_processes", "settings_of"]
