"""``static.CheckpointManager``: checkpoints of a training, of which the newest and the best are kept."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tstatic.errors import CheckpointError, ProgramError, TstaticError, shown
from tstatic.formats import checkpoint, files, leftovers, serial
from tstatic.formats.objects import dump_object, load_object
from tstatic.ir.export import export
from tstatic.logs import get_logger
from tstatic.runtime.scope import global_scope
from tstatic.static.files.saving import MODEL_SUFFIX, PARAMETERS_SUFFIX, encode_save, load, persistables, program_of

STATE_SUFFIX = ".state"
SUFFIXES = (STATE_SUFFIX, PARAMETERS_SUFFIX, MODEL_SUFFIX)
"""Of the files of one checkpoint, in the order in which they are removed: without the first one it does not count."""


@dataclass(frozen=True)
class Restored:
    """A checkpoint that was loaded.

    Attributes:
        step: Its step.
        metric: Its metric, if it was saved with one.
        state: What the caller saved with it.
    """

    step: int
    metric: float | None = None
    state: dict[str, Any] = field(default_factory=dict)


@export("static.CheckpointManager")
class CheckpointManager:
    """Writes checkpoints of a training into a folder, keeps the newest and the best, and takes one up again.

    A checkpoint holds all persistable variables (weights, moments, counters), the run count that random numbers depend on, the
    learning-rate scheduler, and what the caller adds. A resumed training gives what an unbroken one does, bit for bit. Its files
    change at one point: after a crash there is the checkpoint or none. ``static.load(program, manager.path(step))`` loads one, too.

    With several processes, let one of them save, and all restore.

    Args:
        folder: Where the checkpoints are; made when the first is saved.
        program: The training program, a Program or CompiledProgram.
        keep: How many of the newest checkpoints are kept; the best one is kept besides.
        mode: ``"min"`` if a smaller metric is better, ``"max"`` if a larger one is.
        scheduler: The learning-rate scheduler, or anything with ``state_dict`` and ``set_state_dict``.
        name: What the files' names begin with.

    Raises:
        ProgramError: If an argument has a value that cannot be used.

    Example:
        >>> w = paddle.create_parameter([2], "float32", name="w")
        >>> _ = static.Executor().run(static.default_startup_program())
        >>> manager = static.CheckpointManager("run", static.default_main_program(), keep=2)
        >>> for epoch, loss in enumerate([0.5, 0.1, 0.3, 0.2]):
        ...     _ = manager.save(epoch, metric=loss, seen=epoch * 10)
        >>> manager.steps(), manager.best()
        ([1, 2, 3], 1)
        >>> manager.restore().state
        {'seen': 30}
    """

    def __init__(
        self,
        folder: str | Path,
        program: Any,
        keep: int = 3,
        mode: Literal["min", "max"] = "min",
        scheduler: Any = None,
        name: str = "step",
    ) -> None:
        function = "CheckpointManager"
        if type(keep) is not int or keep < 1:
            raise ProgramError(
                "a manager keeps at least one checkpoint", expected="keep >= 1", received=shown(keep),
                fix="pass the number of checkpoints to keep, as in keep=3", op=function,
            )  # fmt: skip
        if mode not in ("min", "max"):
            raise ProgramError(
                f"there is no mode {mode!r}", expected="'min' or 'max'", received=shown(mode),
                fix="pass 'max' if a larger metric is better", op=function,
            )  # fmt: skip
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
            raise ProgramError(
                "the name begins the names of files", expected="letters, digits, '_', '-' and '.'", received=shown(name),
                fix="pass 'step', for example", op=function,
            )  # fmt: skip
        self.folder = Path(folder)
        self.program = program
        self.keep = keep
        self.mode = mode
        self.scheduler = scheduler
        self.name = name
        self._source = program_of(program, function)
        # Eight digits, as `path` pads them, up to the 18 that `save` allows.
        self._files = re.compile(rf"{re.escape(name)}-([0-9]{{8,18}})({'|'.join(map(re.escape, SUFFIXES))})")

    # ------------------------------------------------------------------------------------------------------------- look
    def path(self, step: int) -> Path:
        """Returns the path of the checkpoint of a step, without suffixes, for ``static.load``."""
        return self.folder / f"{self.name}-{step:08}"

    def steps(self) -> list[int]:
        """Returns the steps of all whole checkpoints, in order."""
        return sorted(step for step, suffixes in self._found().items() if suffixes.issuperset(SUFFIXES))

    def latest(self) -> int | None:
        """Returns the step of the newest checkpoint, or ``None``."""
        return max(self.steps(), default=None)

    def best(self) -> int | None:
        """Returns the step of the checkpoint with the best metric, or ``None`` if none has one.

        Raises:
            CheckpointError: If the newest checkpoint, which knows the best, is damaged.
        """
        steps = self.steps()
        if not steps:
            return None
        found = self._state(steps[-1])["best"]
        return found[0] if found is not None and found[0] in steps else None

    def read(self, step: int | None = None) -> Restored | None:
        """Returns what the caller saved with a checkpoint, and loads nothing.

        Args:
            step: Which one; the newest if ``None``.

        Returns:
            Step, metric and state; ``None`` if there is no checkpoint.

        Raises:
            CheckpointError: If it is damaged or missing.
        """
        wanted = self.latest() if step is None else step
        if wanted is None:
            return None
        held = self._state(wanted)
        return Restored(wanted, held["metric"], held["state"])

    def _found(self) -> dict[int, set[str]]:
        """Returns which files there are of each step."""
        done: dict[int, set[str]] = {}
        for path in files.listed(self.folder):
            match = self._files.fullmatch(path.name)
            if match is not None:
                done.setdefault(int(match[1]), set()).add(match[2])
        return done

    # ------------------------------------------------------------------------------------------------------------- save
    def save(self, step: int, metric: Any = None, **state: Any) -> Path:
        """Writes a checkpoint, then removes those that are no longer kept.

        Args:
            step: How far the training is; a checkpoint of the same step is replaced.
            metric: One number; NaN is never the best.
            **state: What else the training needs to go on: numbers, texts, arrays, and lists and dicts of them.

        Returns:
            The path of the checkpoint, without suffixes.

        Raises:
            ProgramError: If the step is not a number from 0, or the metric is not one number.
            FeedError: If a persistable variable has no value.
            CheckpointError: If a file cannot be written; all older checkpoints are there then.
        """
        if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < 10**18:
            raise ProgramError(
                "a checkpoint belongs to a step", expected="an int from 0", received=shown(step), fix="count steps or epochs",
                op="CheckpointManager.save",
            )  # fmt: skip
        value = _number(metric)
        path = self.path(step)
        held: dict[str, Any] = {
            "format": 1,
            "step": step,
            "metric": value,
            "best": self._best_with(step, value),
            "state": state,
        }
        held["scheduler"] = None if self.scheduler is None else self.scheduler.state_dict()
        content = dump_object(held)
        # A run between two of the files would leave values of different steps in them.
        with global_scope().lock:
            model = path.with_name(path.name + MODEL_SUFFIX), serial.encode(self._source)
            values = {path.with_name(path.name + PARAMETERS_SUFFIX): persistables(self._source)}
            made = encode_save(values, "save", model, self._source)
        files.write(made | {path.with_name(path.name + STATE_SUFFIX): content})
        # Only now: a crash before leaves the older ones.
        self._rotate(step, held["best"])
        return path

    def _best_with(self, step: int, metric: float | None) -> list[Any] | None:
        """Returns step and metric of the best checkpoint once one more is there."""
        found: list[Any] | None = None
        # The newest one that can be read knows the best of all before it.
        for other in reversed(self.steps()):
            with contextlib.suppress(CheckpointError):
                found = self._state(other)["best"]
                break
        if found is not None and found[0] >= step:
            # It is replaced or removed: the best of the others is the one with the best metric of its own.
            rest = [(s, m) for s in self.steps() if s < step and (m := self._metric_of(s)) is not None]
            found = None
            if rest:
                found = [*min(rest, key=self._order)]
        if metric is None or math.isnan(metric):
            return found
        mine = [step, metric]
        # Of equal metrics the earlier one stays the best.
        return mine if found is None or self._order(mine) < self._order(found) else found

    def _order(self, row: Sequence[Any]) -> float:
        """Returns what is smaller the better a step and its metric are."""
        return float(row[1] if self.mode == "min" else -row[1])

    def _metric_of(self, step: int) -> float | None:
        with contextlib.suppress(CheckpointError):
            metric: float | None = self._state(step)["metric"]
            return None if metric is None or math.isnan(metric) else metric
        return None

    def _rotate(self, step: int, best: list[Any] | None) -> None:
        """Removes checkpoints that are neither among the newest nor the best, those of later steps, and remains.

        A later step belongs to a course that was given up: the training went on from an earlier step. Links, and files with
        these names that no save wrote, stay.
        """
        found = self._found()
        whole = sorted(s for s, suffixes in found.items() if suffixes.issuperset(SUFFIXES) and s <= step)
        # The best one stays, however old it is.
        kept = {*whole[-self.keep :], *([] if best is None else best[:1])}
        old = [(other, suffixes) for other, suffixes in found.items() if other not in kept]
        names = [self.path(other).name + suffix for other, suffixes in old for suffix in SUFFIXES if suffix in suffixes]
        leftovers.remove(self.folder, names)

    # ---------------------------------------------------------------------------------------------------------- restore
    def restore(self, step: int | Literal["latest", "best"] = "latest") -> Restored | None:
        """Loads a checkpoint into the global scope, the program's run count and the scheduler.

        If the newest one is damaged, the newest whole one is taken, and a warning says so.

        Args:
            step: Which one: ``"latest"``, ``"best"``, or the step itself.

        Returns:
            Step, metric and state of the checkpoint; ``None`` if there is none yet.

        Raises:
            CheckpointError: If all are damaged, or the one that is asked for is damaged or missing.
            ShapeError: If the program is another one.
        """
        steps = self.steps()
        if step == "latest":
            return self._latest(steps)
        wanted = self.best() if step == "best" else step
        if wanted is None:
            return None
        if wanted not in steps:
            raise CheckpointError(
                f"{self.folder} has no checkpoint of step {wanted}",
                expected=f"one of {', '.join(map(str, steps))}" if steps else "a checkpoint",
                received=shown(step),
                fix="pass 'latest' or 'best'",
                op="CheckpointManager.restore",
            )
        return self._restored(wanted)

    def _latest(self, steps: list[int]) -> Restored | None:
        error: CheckpointError | None = None
        for step in reversed(steps):
            try:
                found = self._restored(step)
            except CheckpointError as damaged:
                # The newest one's error is the one to tell.
                error = error or damaged
                continue
            if error is not None:
                get_logger().warning(
                    "the newest checkpoint is damaged, so that of step %d is taken: %s", step, error.what
                )
            return found
        if error is not None:
            raise error
        return None

    def _restored(self, step: int) -> Restored:
        held = self._state(step)
        before = None if self.scheduler is None else self.scheduler.state_dict()
        with self._undone(before):
            # The scheduler before the values: it can be set back, and they cannot.
            if self.scheduler is not None and held["scheduler"] is not None:
                self.scheduler.set_state_dict(held["scheduler"])
            load(self.program, str(self.path(step)))
        return Restored(step, held["metric"], held["state"])

    @contextlib.contextmanager
    def _undone(self, before: Any) -> Iterator[None]:
        """Gives the scheduler its state back if the values cannot be loaded."""
        try:
            yield
        except TstaticError:
            if self.scheduler is not None:
                self.scheduler.set_state_dict(before)
            raise

    def _state(self, step: int) -> dict[str, Any]:
        """Returns the state file of a checkpoint.

        Raises:
            CheckpointError: If it is damaged.
        """
        # Appended: `with_suffix` would cut a name that has dots.
        path = self.path(step).with_name(self.path(step).name + STATE_SUFFIX)
        found = load_object(checkpoint.read(path, "CheckpointManager.save"), path)
        if not _is_state(found, step):
            raise CheckpointError(
                f"this is not the state of a checkpoint: {path}",
                expected=f"what a CheckpointManager saved for step {step}",
                received=shown(found),
                fix="remove the checkpoint, or take an older copy of the folder",
            )
        done: dict[str, Any] = found
        return done


def _is_state(found: Any, step: int) -> bool:
    checks: dict[str, Callable[[Any], bool]] = {
        "format": lambda v: v == 1,
        "step": lambda v: v == step,
        "metric": lambda v: v is None or isinstance(v, float),
        "best": lambda v: v is None or (isinstance(v, list) and [type(part) for part in v] == [int, float]),
        "scheduler": lambda v: v is None or isinstance(v, dict),
        "state": lambda v: isinstance(v, dict),
    }
    return isinstance(found, dict) and all(name in found and check(found[name]) for name, check in checks.items())


def _number(metric: Any) -> float | None:
    """Returns a metric as a number; also of an array with one element.

    Raises:
        ProgramError: If it is something else.
    """
    if metric is None:
        return None
    try:
        # `item` refuses arrays of several elements.
        return float(metric.item() if hasattr(metric, "item") else metric)
    except (TypeError, ValueError):
        raise ProgramError(
            "a metric is one number",
            expected="a number, or an array with one element",
            received=shown(metric),
            fix="pass float(np.mean(values))",
            op="CheckpointManager.save",
        ) from None
