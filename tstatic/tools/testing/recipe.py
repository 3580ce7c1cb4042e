"""Describes a program as plain data (inputs, steps, fetches, gradients, optimizer), and builds it or its script."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import tstatic.optimizer
from tstatic import static
from tstatic.ir import names
from tstatic.ir.build import emit
from tstatic.ir.declare import program_guard
from tstatic.ir.opdef import ValueRange
from tstatic.ir.program import Block, Program, Variable
from tstatic.nn.clip import ClipGradByGlobalNorm
from tstatic.nn.initializer import Assign
from tstatic.tools.testing.parts import Feeds, Input, Names, Step
from tstatic.tools.testing.script import write


@dataclass(frozen=True)
class Built:
    """A recipe's programs, what to feed, and the names to fetch."""

    main: Program
    startup: Program
    feeds: Feeds
    fetches: list[str]

    def __iter__(self) -> Any:
        return iter((self.main, self.startup, self.feeds, self.fetches))


@dataclass(frozen=True, repr=False)
class Recipe:
    """A straight-line program as plain data, so that hypothesis shrinks it and a message can print it.

    Attributes:
        inputs: Fed values and parameters.
        steps: Ops, in order.
        fetches: Names of the values that a run returns.
        gradients: Also fetch the gradients of the float fetches by these inputs; each fetched value ``v`` gets the fed
            gradient ``v_bar``.
        optimizer: Name of a class of ``tstatic.optimizer`` that minimizes the sum of the weighted means of the float
            fetches that are not empty; the weights of ``v`` are fed as ``v_weights``.
        runs: Number of runs (training steps).
        clip: Bound to which the global norm of the gradients is clipped; 0 does not clip.
        kept: Intermediate values that are persistable, so that the scope keeps them after a run.
    """

    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    fetches: Names
    gradients: Names = ()
    optimizer: str = ""
    runs: int = 1
    clip: float = 0.0
    kept: Names = ()

    # ------------------------------------------------------------------------------------------------------------ build
    def build(self) -> Built:
        """Builds the programs.

        Returns:
            Main program, startup program, feeds and names to fetch (also as ``main, startup, feeds, fetches = ...``).

        Raises:
            TstaticError: What an op refuses.
        """
        main, startup = Program(), Program()
        # A fixed seed: random ops draw the same numbers in every process.
        main.random_seed = startup.random_seed = 1
        feeds: Feeds = {}
        with program_guard(main, startup), names.guard():
            block = main.global_block()
            for one in self.inputs:
                _declare(one, feeds)
            for step in self.steps:
                append(block, step)
            for name in self.kept:
                block.var(name).persistable = True
            fetches = [*self.fetches, *self._append_gradients(block, feeds)]
            if self.optimizer:
                loss = self._append_loss(block, feeds)
                clip = ClipGradByGlobalNorm(self.clip) if self.clip else None
                getattr(tstatic.optimizer, self.optimizer)(learning_rate=0.01, grad_clip=clip).minimize(loss)
                fetches.append(loss.name)
        return Built(main, startup, feeds, fetches)

    def _floats(self, block: Block) -> list[Variable]:
        return [block.var(n) for n in self.fetches if block.var(n).dtype.is_float]

    def _append_gradients(self, block: Block, feeds: Feeds) -> list[str]:
        targets = self._floats(block) if self.gradients else []
        if not targets:
            return []
        seeds = []
        for k, target in enumerate(targets):
            one = self.seed_of(target, k)
            seeds.append(_declare(one, feeds))
        found = static.gradients(targets, [block.var(n) for n in self.gradients], seeds)
        return list(dict.fromkeys(g.name for g in found if g is not None))

    @staticmethod
    def seed_of(target: Variable, number: int) -> Input:
        """Returns the input that feeds the gradient of a fetched value."""
        return Input(f"{target.name}_bar", target.shape, target.dtype.name, ValueRange(0.5, 1.5), number)

    @staticmethod
    def weights_of(target: Variable, number: int) -> Input:
        """Returns the input that feeds the weights of a fetched value in the loss."""
        return Input(f"{target.name}_weights", target.shape, "float32", ValueRange(0.5, 1.5), number)

    def _append_loss(self, block: Block, feeds: Feeds) -> Variable:
        total: Any = None
        for number, target in enumerate(self._floats(block)):
            # The mean of nothing is NaN.
            if 0 in target.shape:
                continue
            wide = target
            if target.dtype.is_low:
                wide = emit("cast", {"X": target}, {"in_dtype": target.dtype, "out_dtype": "float32"})
            # Weighted, because the gradient of the plain mean of a softmax or a normalisation is only rounding noise.
            weights = _declare(self.weights_of(target, number), feeds)
            product = emit("elementwise_mul", {"X": wide, "Y": weights})
            mean = emit("reduce_mean", {"X": product}, {"reduce_all": True})
            total = mean if total is None else emit("elementwise_add", {"X": total, "Y": mean})
        assert isinstance(total, Variable), "a recipe with an optimizer fetches a float that is not empty"
        return total

    # ---------------------------------------------------------------------------------------------------------- editing
    def pruned(self, fetches: Iterable[str]) -> Recipe:
        """Returns the recipe reduced to what the given values depend on."""
        wanted = set(fetches)
        kept = []
        for step in reversed(self.steps):
            if wanted.intersection(step.writes):
                kept.append(step)
                wanted.update(step.reads)
        return replace(
            self, steps=tuple(kept[::-1]), fetches=tuple(n for n in fetches),
            gradients=tuple(n for n in self.gradients if n in wanted),
            inputs=tuple(i for i in self.inputs if i.name in wanted),
            kept=tuple(n for n in self.kept if n in wanted),
        )  # fmt: skip

    def __repr__(self) -> str:
        lines = [
            f"{i.name}: {i.dtype}{list(i.shape)}{' (parameter)' * i.parameter}{' with NaN' * i.nan}"
            f"{' with special values' * i.special}"
            for i in self.inputs
        ]
        lines += [
            f"{', '.join(s.writes)} = {s.type}({', '.join([*s.reads, *(f'{n}={v!r}' for n, v in s.attrs)])})"
            for s in self.steps
        ]
        lines.append(f"fetch {', '.join(self.fetches)}")
        if self.gradients:
            lines.append(f"gradients by {', '.join(self.gradients)}")
        if self.optimizer:
            lines.append(f"{self.optimizer}, {self.runs} steps" + (f", clipped at {self.clip}" if self.clip else ""))
        if self.kept:
            lines.append(f"persistable {', '.join(self.kept)}")
        return "Recipe:\n  " + "\n  ".join(lines)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Prints a failing example for hypothesis."""
        printer.text(repr(self))

    def to_script(self, strategies: Any = ()) -> str:
        """Returns a script of at most 30 lines that builds the program through the public API and compares (see ``script.py``).

        Args:
            strategies: A BuildStrategy or several.
        """
        return write(self, strategies)


def _declare(one: Input, feeds: Feeds) -> Variable:
    if one.parameter:
        made: Variable = static.create_parameter(
            list(one.shape), one.dtype, name=one.name, default_initializer=Assign(one.array())
        )
        return made
    feeds[one.name] = one.array()
    var: Variable = static.data(one.name, list(one.shape), one.dtype)
    var.stop_gradient = not var.dtype.is_float
    return var


def append(block: Block, step: Step) -> None:
    """Appends a step to a block; its new outputs take the step's names."""
    new = []
    for name in step.writes:
        if block._find_var_recursive(name) is None:
            new.append(block.create_var(name=name))
    block.append_op(
        step.type, {s: list(row) for s, row in step.inputs}, {s: list(row) for s, row in step.outputs}, step.all_attrs()
    )
    for var in new:
        if not var.dtype.is_float:
            var.stop_gradient = True


__all__ = ["Built", "Recipe"]
