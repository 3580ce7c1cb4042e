"""The programs that commands look at: those that a user's script runs, or a saved one."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tstatic import errors, fluid, static
from tstatic.ir.program import Program
from tstatic.runtime.feed import check_shape
from tstatic.runtime.scope import Scope
from tstatic.static.compile import Compilation
from tstatic.static.compile.ledger import CompileRecord
from tstatic.static.files.object_files import load
from tstatic.static.run.compiled_program import CompiledProgram, Settings, note_compilations
from tstatic.static.run.executor import observers
from tstatic.static.strategy import BuildStrategy, ExecutionStrategy
from tstatic.tools.cli.outcome import CommandError
from tstatic.tools.cli.scripts import execute
from tstatic.tools.cli.show import said
from tstatic.tools.cli.targets import FLUID_MODEL, MODEL, STATE, VALUES, check_target, refuse_script_options
from tstatic.tools.testing.feeds import data_variables
from tstatic.tools.testing.runner import everything_on

SIZE = 16
"""The size that commands assume where a saved program leaves it open and ``--batch`` says nothing."""


Seen = tuple[Compilation, Settings, Scope, CompileRecord]
"""A compilation of a script's run."""


@dataclass(frozen=True)
class Subject:
    """A program, and how it is run.

    Attributes:
        label: Where it comes from.
        program: The user's program.
        scope: The values of its persistable variables.
        build, execution: The strategies of its runs.
        feed_shapes: Input -> shape in the run that was seen; empty for a saved program.
        fetches: Names that were fetched.
        places: Of a data-parallel run; ``None`` for one place.
        parallel: Whether it ran data parallel.
        compilations: Its compilations in the script.
    """

    label: str
    program: Program
    scope: Scope
    build: BuildStrategy
    execution: ExecutionStrategy
    feed_shapes: Mapping[str, Sequence[int]]
    fetches: Sequence[str]
    places: Any = None
    parallel: bool = False
    compilations: tuple[CompileRecord, ...] = ()

    def compiled(self) -> CompiledProgram:
        """Returns the program with its strategies."""
        made = CompiledProgram(self.program, self.build, self.execution)
        note_compilations(made, self.compilations)
        if self.parallel:
            made.with_data_parallel(self.program.loss_name or None, places=self.places)
        return made

    def switched(self, every: bool, switches: Sequence[str]) -> Subject:
        """Returns the program with every fusion on, or with further properties of the BuildStrategy set to ``True``."""
        build = everything_on() if every else self.build.copy()
        for name in switches:
            try:
                setattr(build, name, True)
            except (errors.UnknownPropertyError, errors.StrategyTypeError) as error:
                raise CommandError(said(error)) from None
        return replace(self, build=build)

    def sizes(self, batch: int, feeds: Sequence[str]) -> tuple[dict[str, Sequence[int]], str]:
        """Returns the shape of each input, and a note on those that were assumed.

        Args:
            batch: For sizes that are open; 0 for those of the run, or ``SIZE``.
            feeds: ``name=2,3`` for single inputs.
        """
        shapes: dict[str, Sequence[int]] = {} if batch else dict(self.feed_shapes)
        shapes |= dict(self._shape_of(text) for text in feeds)
        assumed = []
        for var in data_variables(self.program):
            if var.name not in shapes:
                shapes[var.name] = tuple((batch or SIZE) if size < 0 else size for size in var.shape)
                if shapes[var.name] != tuple(var.shape):
                    assumed.append(f"{var.name} {list(shapes[var.name])}")
        return shapes, f"Sizes that the program leaves open were assumed: {', '.join(assumed)}." if assumed else ""

    def _shape_of(self, text: str) -> tuple[str, tuple[int, ...]]:
        """Reads ``name=2,3``."""
        name, given, sizes = text.partition("=")
        # Digits alone: int() also reads 1_0 and -1.
        wrong = [size for size in sizes.split(",") if size and not re.fullmatch(r"[0-9]{1,12}", size)]
        if not given or wrong:
            raise CommandError(f"--feed takes NAME=SIZE,SIZE, for example x=32,784, and not {text!r}")
        shape = tuple(int(size) for size in sizes.split(",") if size)
        inputs = {var.name: var for var in data_variables(self.program)}
        if name not in inputs:
            known = errors.near(name, inputs) or f"Its inputs: {', '.join(inputs) or 'none'}"
            raise CommandError(f"--feed: '{self.label}' has no input '{name}'. {known}")
        try:
            check_shape(shape, inputs[name])
        except errors.FeedError as error:
            raise CommandError(f"--feed {text}: {said(error)}") from None
        return name, shape


# ------------------------------------------------------------------------------------------------------------------ open
def subject_of(target: str, arguments: Sequence[str] = (), program: int = 0, first: int = 0) -> Subject:
    """Returns the program that a target names.

    Args:
        target: A script, or a saved program: ``model``, ``model.pdmodel`` or the folder of a model.
        arguments: Those of the script.
        program: Number of the program of a script, counted from 1; 0 takes the one with most operators of those that are
            fed or fetched from.
        first: End the script when it compiled so many programs; 0 runs all of it.

    Raises:
        CommandError: If there is no such file, or it is neither.
        ScriptError: If the script fails.
    """
    saved = check_target(target)
    if saved is not None:
        refuse_script_options(target, arguments=arguments, program=program, first=first)
        return _load(target, saved)
    found = ran_by(target, arguments, first)
    if not found:
        raise CommandError(f"'{target}' ran no program: an Executor's run is what is looked at")
    if program > len(found):
        listed = "; ".join(f"{i}: {one.program!r}" for i, one in enumerate(found, 1))
        raise CommandError(f"'{target}' ran {len(found)} programs, and --program asks for number {program}: {listed}")
    return found[program - 1] if program else max(found, key=_weight)


def _weight(subject: Subject) -> tuple[bool, int]:
    """Returns what the interesting one of several programs has most of: startup programs have many operators, but no feeds."""
    return bool(subject.feed_shapes or subject.fetches), sum(len(block.ops) for block in subject.program.blocks)


# --------------------------------------------------------------------------------------------------------------- scripts
class _Enough(BaseException):
    """Ends a script that has compiled all that was asked for; no ``except Exception`` of the script catches it."""


@contextlib.contextmanager
def watched(first: int = 0) -> Iterator[list[Seen]]:
    """Collects the compilations of all Executors; ends what runs after the first so many."""
    seen: list[Seen] = []

    def observe(*made: Any) -> None:
        seen.append(made)
        if first and len(seen) >= first:
            raise _Enough

    observers.append(observe)
    try:
        yield seen
    except _Enough:
        pass
    finally:
        observers.remove(observe)


def ran_by(script: str, arguments: Sequence[str], first: int = 0) -> list[Subject]:
    """Runs a script and returns the programs that its Executors ran, each once; what it prints goes to standard error."""
    with contextlib.redirect_stdout(sys.stderr), watched(first) as seen:
        execute(script, arguments)
    kinds: dict[Any, list[Seen]] = {}
    for one in seen:
        made, settings, _, _ = one
        kinds.setdefault((made.program.uid, made.program.version, settings.build.key()), []).append(one)
    return [_of_run(f"{script}, program {i} of {len(kinds)}", runs) for i, runs in enumerate(kinds.values(), 1)]


def _of_run(label: str, runs: Sequence[Seen]) -> Subject:
    made, settings, scope, _ = runs[0]
    assert made.key is not None
    shapes: dict[str, Sequence[int]] = {}
    for replica in made.key.feed_signature:
        for name, shape, _ in replica:
            whole = list(shapes.get(name, (0, *shape[1:]) if shape else ()))
            # The whole batch, which the replicas share.
            shapes[name] = (whole[0] + shape[0], *shape[1:]) if shape else ()
    fetches = [name for name, _ in made.first.before.fetches]
    parallel = settings.parallel and len(made.key.feed_signature) > 1
    records = tuple(record for *_, record in runs)
    return Subject(
        label, made.program, scope, settings.build, settings.execution, shapes, fetches, settings.places, parallel, records
    )  # fmt: skip


# ----------------------------------------------------------------------------------------------------------------- saved
def _load(target: str, file: Path) -> Subject:
    prefix = str(file).removesuffix(MODEL)
    scope = Scope()
    try:
        with static.scope_guard(scope):
            if file.name == FLUID_MODEL:
                program, _, results = fluid.io.load_inference_model(str(file.parent), None)
            elif Path(prefix + VALUES).is_file():
                program, _, results = static.load_inference_model(prefix, None)
            else:
                program, results = load(str(file)), []
                if Path(prefix + STATE).is_file():
                    static.load(program, prefix)
    except errors.CheckpointError as error:
        raise CommandError(f"'{target}' cannot be read as a saved program:\n{said(error)}") from error
    if not isinstance(program, Program):
        raise CommandError(f"'{file}' does not hold a program")
    fetches = [v.name for v in results] or ([program.loss_name] if program.loss_name else [])
    return Subject(target, program, scope, BuildStrategy(), ExecutionStrategy(), {}, fetches)
