"""What the scripts of this folder share: command line, training loop, checkpoints, places, mixed precision, pictures, the verdict.

A script says what its data, programs, steps and tests are, and hands the last two to ``fit``. Steps are counted from 0, and the
batch of a step depends on the seed and the step's number alone: so a resumed run sees the batches that it would have seen.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tqdm import tqdm

import tstatic as paddle
from tstatic import static

STARTED = time.perf_counter()
FREE = ("epochs", "steps", "default_epochs", "place", "resume", "out")
"""Options that may differ between a run and its resumption."""


# -------------------------------------------------------------------------------------------------------- command line
def parser(description: str | None, epochs: int) -> argparse.ArgumentParser:
    """Returns the options that all scripts have; ``epochs`` is the length of a full run, whose metric must reach its goal."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    length = made.add_mutually_exclusive_group()
    length.add_argument("--epochs", type=int, default=epochs, help="how long to train, resumed epochs included")
    length.add_argument("--steps", type=int, help="the same in steps, for a short run")
    made.add_argument("--amp", choices=["", "bf16", "fp16"], default="", help="compute products in 16 bits")
    made.add_argument("--places", type=int, default=1, help="how many devices share each batch")
    made.add_argument("--place", default="gpu:0" if paddle.is_compiled_with_cuda() else "cpu", help="cpu or gpu:0")
    made.add_argument(
        "--resume", action="store_true", help="go on from the newest checkpoint in --out, if there is one"
    )
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--out", type=Path, default=Path(__file__).parent / "out", help="folder of all that is written")
    made.set_defaults(default_epochs=epochs)
    return made


def mixed_precision(optimizer: Any, amp: str) -> Any:
    """Returns the optimizer, decorated for ``--amp``: float16 gets a loss scale that follows overflows, bfloat16 needs none."""
    dtypes = {"bf16": "bfloat16", "fp16": "float16"}
    return static.amp.decorate(optimizer, dtype=dtypes[amp]) if amp else optimizer


def on_places(program: static.Program, loss: static.Variable, given: argparse.Namespace) -> Any:
    """Returns what to run for ``--places``: the program itself, or its replicas on that many devices."""
    if given.places == 1:
        return program
    on_gpu = given.place.startswith("gpu")
    places = [paddle.CUDAPlace(n) if on_gpu else paddle.CPUPlace() for n in range(given.places)]
    return static.CompiledProgram(program).with_data_parallel(loss.name, places=places)


def shuffled(count: int, batch: int, step: int, seed: int) -> tuple[np.ndarray, np.random.Generator]:
    """Returns the rows of a step, each row once per epoch of ``count // batch`` steps, and a generator for its noise."""
    epoch, place = divmod(step, count // batch)
    order = np.random.default_rng([seed, epoch]).permutation(count)
    return order[place * batch : (place + 1) * batch], np.random.default_rng([seed, epoch, place])


# ------------------------------------------------------------------------------------------------------------- training
@dataclass
class History:
    """What was measured: in every step, and in the test after every epoch (``step`` tells after how many steps)."""

    steps: list[dict[str, float]] = field(default_factory=list)
    tests: list[dict[str, float]] = field(default_factory=list)


@contextlib.contextmanager
def progress(name: str, begun: int, total: int, unit: str, shown: bool = True) -> Iterator[Callable[[str, str], None]]:
    """Yields a function that is called after every unit, with what was measured: a bar on a terminal, elsewhere lines.

    Its second argument begins that line, such as ``epoch 3``; it is empty where there is to be none.
    """
    done, started = begun, time.perf_counter()
    with tqdm(total=max(total, begun), initial=begun, desc=name, unit=unit, disable=None if shown else True) as bar:

        def advance(measured: str, line: str) -> None:
            nonlocal done
            done += 1
            bar.set_postfix_str(measured, refresh=False)
            if bar.disable and shown and line:
                left = (time.perf_counter() - started) / (done - begun) * (total - done)
                print(f"{name}: {line}, {measured}; {left:.0f} s left", file=sys.stderr)
            bar.update()

        yield advance


def short(path: Path) -> str:
    """Returns a path from the current folder, where it lies in that; else as it is."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def printable(text: bytes) -> str:
    """Returns bytes that a model wrote as text, in which whatever could move a terminal's cursor is an escape."""
    shown = text.decode("utf-8", "replace").replace("\t", "    ")
    return "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in shown)


def fit(
    given: argparse.Namespace,
    name: str,
    programs: Sequence[static.Program],
    step: Callable[[int], Mapping[str, Any]],
    test: Callable[[], Mapping[str, Any]],
    per_epoch: int,
    metric: str,
    mode: Literal["min", "max"] = "max",
    scheduler: Any = None,
) -> History:
    """Trains to the last step; tests, and writes a checkpoint, after every epoch.

    Args:
        given: The command line.
        name: What the checkpoints' folder and the progress bar are called.
        programs: The training programs, whose startup programs have run. The state of all belongs to a checkpoint.
        step: Makes the step of a number; returns what to record, the first of it the loss (per place, or their mean).
        test: Returns metrics of the model as it is.
        per_epoch: How many steps an epoch has.
        metric: Which of the metrics makes a checkpoint the best, which is kept beside the two newest.
        mode: Whether more or less of it is better.
        scheduler: The learning-rate scheduler, if there is one; ``step`` moves it on.
    """
    total = given.steps or given.epochs * per_epoch
    folder = given.out / f"{name}-checkpoints"
    managers = [
        static.CheckpointManager(folder, p, keep=2, mode=mode, scheduler=scheduler, name=f"program{n}")
        for n, p in enumerate(programs)
    ]
    settings = {key: value for key, value in vars(given).items() if key not in FREE}
    history = resumed(managers, settings) if given.resume else History()
    begun, measured = len(history.steps), ""
    with progress(name, begun, total, "step") as advance:
        for number in range(begun, total):
            line = ""
            history.steps.append({key: float(np.mean(value)) for key, value in step(number).items()})
            done = number + 1
            if done % per_epoch == 0 or done == total:
                tested = {key: float(value) for key, value in test().items()}
                history.tests.append({"step": done, **tested})
                measured = ", ".join(f"{k} {v:.4g}" for k, v in (history.steps[-1] | tested).items())
                for manager in managers:
                    manager.save(done, tested[metric], settings=settings, history=vars(history))
                line = f"epoch {done / per_epoch:.4g}"
            advance(measured, line)
    return history


def resumed(managers: Sequence[static.CheckpointManager], settings: Mapping[str, Any]) -> History:
    """Loads the newest checkpoint that all programs have; returns an empty history if there is none.

    Raises:
        SystemExit: If it was made with other settings.
    """
    newest = max(set.intersection(*(set(manager.steps()) for manager in managers)), default=None)
    found = None if newest is None else managers[0].read(newest)
    if newest is None or found is None:
        return History()
    other = [key for key, value in found.state["settings"].items() if settings.get(key) != value]
    if other:
        raise SystemExit(
            f"{managers[0].folder} was made with another {', '.join(other)}; use the same, or another --out"
        )
    for manager in managers:
        manager.restore(newest)
    return History(**found.state["history"])


# -------------------------------------------------------------------------------------------------------------- results
COLORS = ("#1b3a6b", "#c0392b", "#2e9e6b", "#e0a030", "#7a4fa3", "#555555")
"""Colours of all pictures, dark to light: the first four differ in grey as well. The others need markers of their own."""


@contextlib.contextmanager
def picture(path: Path, title: str, columns: int = 1, size: tuple[float, float] = (7.0, 4.0)) -> Iterator[Any]:
    """Gives the axes of a new figure (an array if there are several columns) and writes it.

    Lines differ in style and lightness, too: the picture can be read in grey. The background is part of it, so that it can be
    read on a dark page.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import cycler, pyplot

    lines = cycler(color=COLORS[:4]) + cycler(linestyle=["-", "--", ":", "-."])
    with pyplot.rc_context(
        {"axes.prop_cycle": lines, "axes.grid": True, "axes.axisbelow": True, "grid.alpha": 0.3, "image.cmap": "gray_r"}
    ):
        figure, axes = pyplot.subplots(1, columns, figsize=size, layout="constrained")
        figure.suptitle(title)
        yield axes
        figure.savefig(path, dpi=120)
        pyplot.close(figure)


def curves(axes: Any, x: Sequence[float], lines: Mapping[str, Sequence[float]], xlabel: str, ylabel: str) -> None:
    """Draws lines with a legend; labels name the units."""
    for label, values in lines.items():
        axes.plot(x, values, label=label)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    if len(lines) > 1:
        axes.legend()


def verdict(
    out: Path, name: str, metric: str, reached: float, wanted: float, whole: bool, mode: Literal["min", "max"] = "max"
) -> int:
    """Prints metric, goal and time, and writes them for ``python examples``; returns the exit code.

    Only a run that is ``whole``, as long as by default, fails if what it ``reached`` is worse than what was ``wanted``.
    """
    missed = whole and not (reached >= wanted if mode == "max" else reached <= wanted)
    seconds, processor = time.perf_counter() - STARTED, time.process_time()
    goal = f"{'>=' if mode == 'max' else '<='} {wanted:g}"
    row = {"name": name, "metric": metric, "reached": reached, "goal": goal, "seconds": seconds, "processor": processor}
    (out / f"{name}.json").write_text(json.dumps(row), encoding="utf-8")
    said = "missed" if missed else "wanted of a full run" if not whole else "wanted"
    print(f"{name}: {metric} {reached:.4f} ({said}: {goal}); {seconds:.0f} s, {processor:.0f} s of processor time")
    return int(missed)


def is_whole(given: argparse.Namespace) -> bool:
    """Returns whether a command line asks for a full run."""
    return given.steps is None and given.epochs >= given.default_epochs
