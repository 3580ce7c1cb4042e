"""Shrinks a program whose results differ to the smallest recipe that still shows the difference."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tstatic.ir.opdef import ValueRange
from tstatic.ir.types import dtype_of
from tstatic.static.strategy import BuildStrategy
from tstatic.target import Target
from tstatic.tools.testing.parts import Array, Feeds, Input, Step
from tstatic.tools.testing.recipe import Recipe
from tstatic.tools.testing.runner import Failure, Trial, baseline_of, trial_of_recipe
from tstatic.tools.testing.script import write

MOST_TRIES = 200
MOST_GIVEN = 4096
"""Arrays of more elements are replaced by drawn ones."""


def smallest(failure: Failure, trial: Trial, feeds: Feeds, recipe: Recipe | None) -> tuple[str, str]:
    """Returns the script of the smallest recipe found, and a line that introduces it.

    Args:
        failure: The difference.
        trial: The trial that found it.
        feeds: The feeds of that trial.
        recipe: The recipe behind the trial; ``None`` for a user's program.
    """
    try:
        start = recipe if recipe is not None else flatten(trial, feeds, failure.strategy)
    except Exception as error:
        return _whole(trial, failure, f"the program does not fit into a recipe ({type(error).__name__}: {error})")
    search = _Search(failure, trial.k, trial.chip)
    if recipe is None and not search.fails(start):
        return _whole(trial, failure, "its ops alone, written one by one, agree")
    start = search.shrink(start)
    return write(start, failure.strategy, trial.chip), f"this script shows it ({len(start.steps)} ops):"


def postponed() -> bool:
    """Returns whether hypothesis is still shrinking: only the example that it reports needs a script."""
    # Not imported here: a plain script needs no hypothesis.
    module = sys.modules.get("hypothesis")
    if module is None or not module.currently_in_test_context():
        return False
    return not getattr(module.control.current_build_context(), "is_final", True)


def _whole(trial: Trial, failure: Failure, reason: str) -> tuple[str, str]:
    """Returns the program's text, pruned to the variable, for programs that no recipe can express."""
    program = trial.program._prune([failure.variable]) if failure.variable else trial.program
    text = str(program).splitlines()
    shown = text if len(text) <= 30 else [*text[:29], f"# ... {len(text) - 29} more lines"]
    return "\n".join(shown) + "\n", f"no script: {reason}; the program (Program.parse_from_text reads it):"


# -------------------------------------------------------------------------------------------------------------- flatten
def flatten(trial: Trial, feeds: Feeds, strategy: Any) -> Recipe:
    """Converts a user's program to a recipe: each op is a step; feeds and parameters are inputs with their values.

    Raises:
        ValueError: The program has control flow.
    """
    program = trial.program
    if len(program.blocks) > 1:
        raise ValueError("it has control flow")
    block = program.global_block()
    steps = []
    for op in block.ops:
        attrs = tuple((n, v.name if hasattr(v, "itemsize") and hasattr(v, "name") else v) for n, v in op.attrs.items())
        steps.append(
            Step(op.type, tuple(op.inputs.items()), tuple(op.outputs.items()), attrs, op.role, tuple(op.role_var))
        )
    read = {n for s in steps for n in s.reads} | set(trial.fetches)
    written = {n for s in steps for n in s.writes}
    inputs = [_given(n, a) for n, a in feeds.items() if n in read]
    for name, array in trial.state.items():
        if name in read:
            one = _given(name, array)
            inputs.append(replace(one, parameter=True) if name in written else one)
    recipe = Recipe(tuple(inputs), tuple(steps), tuple(dict.fromkeys([*trial.fetches])), runs=trial.steps)
    recipe = replace(recipe, kept=tuple(n for n in trial.written if n not in trial.state))
    if not recipe.fetches:
        recipe = replace(recipe, fetches=tuple(n for n in trial.written))
    return _renamed(recipe)


def _renamed(recipe: Recipe) -> Recipe:
    """Returns the recipe with names that are Python identifiers (``fc_0.tmp_1`` becomes ``fc_0_tmp_1``)."""
    taken: dict[str, str] = {}

    def new(name: str) -> str:
        if name not in taken:
            plain = "".join(c if c.isascii() and c.isalnum() else "_" for c in name).strip("_") or "v"
            plain = plain if plain[0].isalpha() else f"v{plain}"
            count = sum(1 for t in taken.values() if t == plain or t.startswith(f"{plain}__"))
            taken[name] = f"{plain}__{count}" if count else plain
        return taken[name]

    def side(slots: Any) -> Any:
        return tuple((s, tuple(new(n) for n in row)) for s, row in slots)

    return replace(
        recipe,
        inputs=tuple(replace(i, name=new(i.name)) for i in recipe.inputs),
        steps=tuple(
            replace(s, inputs=side(s.inputs), outputs=side(s.outputs), role_var=tuple(new(n) for n in s.role_var))
            for s in recipe.steps
        ),
        fetches=tuple(new(n) for n in recipe.fetches),
        kept=tuple(new(n) for n in recipe.kept),
    )


def _given(name: str, array: Array) -> Input:
    """Returns an input with an array's values, or with drawn ones of the same range if there are too many."""
    array = np.asarray(array)
    kind = dtype_of(array.dtype)
    one = Input(name, array.shape, kind.name, _range(array))
    if array.size > MOST_GIVEN:
        return one
    return replace(one, given=_tuple(array.astype(np.float64) if kind.is_float else array))


def _tuple(array: Array) -> Any:
    def deep(v: Any) -> Any:
        return tuple(map(deep, v)) if isinstance(v, list) else v

    return deep(array.tolist())


def _range(array: Array) -> ValueRange:
    kind = dtype_of(array.dtype)
    if not array.size or kind.name == "bool":
        return ValueRange()
    low, high = float(array.astype(np.float64).min()), float(array.astype(np.float64).max())
    if not kind.is_float:
        return ValueRange(low, high + 1, dtype=kind.name)
    if not np.isfinite([low, high]).all():
        return ValueRange()
    return ValueRange(round(low, 3), max(round(high, 3), round(low, 3) + 0.001))


# --------------------------------------------------------------------------------------------------------------- search
class _Search:
    """Tries smaller recipes, and keeps those that still fail in the same way."""

    def __init__(self, failure: Failure, k: float | None, chip: Target | None) -> None:
        self.failure = failure
        self.k = k
        self.chip = chip
        self.tries = 0

    def fails(self, recipe: Recipe) -> bool:
        if self.tries >= MOST_TRIES:
            return False
        self.tries += 1
        try:
            trial, feeds = trial_of_recipe(recipe, self.k, self.chip)
            found = trial.compare(self.failure.strategy, feeds)
        except Exception:
            return False
        return found is not None and (found.error is None) == (self.failure.error is None)

    def shrink(self, recipe: Recipe) -> Recipe:
        """Drops what the difference does not need: training, fetches, and ops after, before and between."""
        recipe = self._simpler(recipe)
        recipe = self._first_variable(recipe)
        recipe = self._cut(recipe)
        recipe = self._bypass(recipe)
        return self._redraw(self._level(self._fewer_rows(self._simpler(recipe))))

    def _simpler(self, recipe: Recipe) -> Recipe:
        """Tries fewer runs, no optimizer, no gradients, and no persistable values."""
        simpler: tuple[dict[str, Any], ...] = (
            {"runs": 1}, {"clip": 0.0}, {"optimizer": "", "clip": 0.0, "runs": 1}, {"gradients": ()}, {"kept": ()},
        )  # fmt: skip
        for change in simpler:
            other = replace(recipe, **change)
            if other != recipe and self.fails(other):
                recipe = other
        return recipe

    def _first_variable(self, recipe: Recipe) -> Recipe:
        """Reduces the fetches to the first value that differs if fetched alone; bisects long programs, then tries each fetch."""
        if recipe.optimizer or not recipe.steps:
            return recipe
        kinds = self._kinds(recipe)
        names = [n for s in recipe.steps for n in s.writes if n in kinds and kinds[n] and n not in _parameters(recipe)]
        names = list(dict.fromkeys(names))
        best: Recipe | None = None
        low, high = 0, len(names) - 1
        while low <= high and len(names) > 24:
            middle = (low + high) // 2
            smaller = recipe.pruned([names[middle]])
            if self.fails(smaller):
                best, high = smaller, middle - 1
            else:
                low = middle + 1
        for name in [] if best is not None else names if len(names) <= 24 else recipe.fetches:
            smaller = recipe.pruned([name])
            if self.fails(smaller):
                return smaller
        return best if best is not None else recipe

    @staticmethod
    def _kinds(recipe: Recipe) -> dict[str, bool]:
        """Returns variable -> whether it can be fetched."""
        block = recipe.build().main.global_block()
        return {n: v.type == "dense_tensor" for n, v in block.vars.items()}

    def _cut(self, recipe: Recipe) -> Recipe:
        """Feeds intermediate values instead of computing them, from the first step on."""
        values = observe(recipe)
        for step in recipe.steps:
            if step not in recipe.steps or set(step.writes) & (set(recipe.fetches) | _parameters(recipe)):
                continue
            if any(n not in values for n in step.writes):
                continue
            used = {n for s in recipe.steps if s is not step for n in s.reads}
            fed = tuple(_given(n, values[n]) for n in step.writes if n in used)
            rest = tuple(s for s in recipe.steps if s is not step)
            smaller = replace(recipe, steps=rest, inputs=(*recipe.inputs, *fed)).pruned(recipe.fetches)
            if self.fails(smaller):
                recipe = smaller
        return recipe

    def _bypass(self, recipe: Recipe) -> Recipe:
        """Removes ops whose result has the shape and dtype of an input, which replaces it."""
        for step in recipe.steps:
            block = recipe.build().main.global_block()
            outs = [n for n in step.writes if n in block.vars]
            if step not in recipe.steps or not outs or outs[0] in _parameters(recipe):
                continue
            meta = block.vars[outs[0]].meta
            for name in dict.fromkeys(step.reads):
                if block.var(name).meta != meta:
                    continue
                smaller = _replaced(recipe, step, outs[0], name)
                if smaller is not None and self.fails(smaller):
                    recipe = smaller
                    break
        return recipe

    def _fewer_rows(self, recipe: Recipe) -> Recipe:
        """Keeps one row, or half of the rows, of all fed inputs with one number of rows."""
        fed = [i for i in recipe.inputs if i.shape and not i.parameter]
        for rows in sorted({i.shape[0] for i in fed if i.shape[0] > 1}):
            for part in (slice(0, 1), slice(rows - 1, rows), slice(0, rows // 2)):
                cut = {i.name: _given(i.name, i.array()[part]) for i in fed if i.shape[0] == rows}
                smaller = replace(recipe, inputs=tuple(cut.get(i.name, i) for i in recipe.inputs))
                if self.fails(smaller):
                    recipe = smaller
                    break
        return recipe

    def _level(self, recipe: Recipe) -> Recipe:
        """Gives all elements of a float input one value, if the difference shows with one."""
        for one in recipe.inputs:
            array = one.array()
            if array.size < 3 or not dtype_of(one.dtype).is_float:
                continue
            for value in dict.fromkeys((1.0, 0.5, float(array.flat[0]), float(array.flat[np.abs(array).argmax()]))):
                level = _given(one.name, np.full(one.shape, value, array.dtype))
                level = replace(level, parameter=one.parameter)
                smaller = replace(recipe, inputs=tuple(level if i is one else i for i in recipe.inputs))
                if self.fails(smaller):
                    recipe = smaller
                    break
        return recipe

    def _redraw(self, recipe: Recipe) -> Recipe:
        """Draws inputs from a seed if the difference does not need their own values, because that is shorter to write."""
        for one in recipe.inputs:
            array = one.array()
            if one.given is not None and array.size > 4 and not (array == array.flat[0]).all():
                drawn = replace(one, given=None)
                smaller = replace(recipe, inputs=tuple(drawn if i is one else i for i in recipe.inputs))
                if self.fails(smaller):
                    recipe = smaller
        return recipe


def _parameters(recipe: Recipe) -> set[str]:
    return {i.name for i in recipe.inputs if i.parameter}


def _replaced(recipe: Recipe, step: Step, old: str, new: str) -> Recipe | None:
    rest = []
    for other in recipe.steps:
        if other is step:
            continue
        rows = tuple((s, tuple(new if n == old else n for n in row)) for s, row in other.inputs)
        if set(step.writes) - {old} & set(other.reads):
            return None
        rest.append(replace(other, inputs=rows))
    fetches = tuple(dict.fromkeys(new if n == old else n for n in recipe.fetches))
    written = {n for s in rest for n in s.writes}
    if not set(fetches) <= written:
        return None
    return replace(recipe, steps=tuple(rest)).pruned(fetches)


def observe(recipe: Recipe) -> Mapping[str, Array]:
    """Returns name -> value, as the unfused program computes them; nothing if it fails."""
    trial, feeds = trial_of_recipe(recipe)
    block = trial.program.global_block()
    names = [n for s in recipe.steps for n in s.writes if block.has_var(n) and not block.var(n).persistable]
    trial = Trial(trial.program, trial.state, list(dict.fromkeys(names)))
    try:
        (values, *_) = trial.run(trial.compiled(baseline_of(BuildStrategy())), feeds, trial.state)
    except Exception:
        return {}
    return dict(zip(trial.fetches, values, strict=True))


__all__ = ["flatten", "observe", "smallest"]
