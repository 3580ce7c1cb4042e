"""``check_grads`` compares a program's gradients with 4th-order central differences in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tstatic import static
from tstatic.errors import ProgramError, ProgramTypeError, shown
from tstatic.flags import FILL, filling_memory
from tstatic.ir import names
from tstatic.ir.declare import program_guard
from tstatic.ir.operator import OpRole
from tstatic.ir.program import Parameter, Program, Variable
from tstatic.ir.types import dtype_of
from tstatic.places import CPUPlace
from tstatic.runtime.scope import Scope
from tstatic.static.run.compiled_program import CompiledProgram
from tstatic.static.run.executor import checking_executor
from tstatic.static.strategy import BuildStrategy
from tstatic.tools.testing.magnitudes import widen
from tstatic.tools.testing.parts import Array, Feeds, Input
from tstatic.tools.testing.recipe import Recipe
from tstatic.tools.testing.runner import baseline_of, start_values
from tstatic.tools.testing.tolerance import float64_program

STENCIL = ((-2, 1 / 12), (-1, -8 / 12), (1, 8 / 12), (2, -1 / 12))
"""Shift in steps and weight of each evaluation; the error is of the order of STEP**4."""
JUMP = ((1, 1.0), (0, -2.0), (-1, 1.0))
"""The slope on the right of a point less that on its left."""
STEP = 1e-3
"""In float64 the relative errors of truncation (1e-12) and of cancellation (2e-16 / 1e-3) are then similar."""
RTOL = 1e-7
ATOL = 1e-9
MOST_ELEMENTS = 64
"""Inputs of at most this many elements are perturbed one element at a time; larger ones along random directions."""
DIRECTIONS = 3


class GradientError(AssertionError):
    """Raised if a gradient differs from finite differences.

    Attributes:
        order: 1 for the gradient, 2 for the gradient of the gradient.
        variable: The input.
        index: The element, or ``None`` for a random direction.
        analytic, numeric: The two values.
    """

    def __init__(
        self, order: int, variable: str, index: tuple[int, ...] | None, analytic: float, numeric: float, note: str
    ) -> None:
        place = "along a random direction" if index is None else f"at {list(index)}"
        kind = "gradient" if order == 1 else f"gradient of order {order}"
        super().__init__(
            f"the {kind} by '{variable}' {place} is {analytic!r}, finite differences give {numeric!r} "
            f"(difference {analytic - numeric:.3g}){note}"
        )
        self.order, self.variable, self.index, self.analytic, self.numeric = order, variable, index, analytic, numeric


def check_grads(
    program_or_function: Program | Recipe | Callable[..., Any],
    feeds: Mapping[str, Any] | None = None,
    order: int = 1,
    *,
    targets: Any = None,
    inputs: Sequence[str] | None = None,
    startup: Program | None = None,
    seed: int = 0,
) -> int:
    """Checks the gradients that ``static.gradients`` makes, in float64.

    Each input is perturbed element by element if it has at most 64, else along 3 random directions; steps of
    ``1e-3 * max(1, |x|)``, differences of 4th order (error of the order of step**4), tolerance ``1e-7`` of the value plus
    ``1e-9`` of the incoming gradient's scale. Keep inputs clear of kinks and poles.

    Args:
        program_or_function: A Program (its forward ops), a Recipe, or a function of Variables, one per feed in order, that
            returns a Variable or several.
        feeds: Input name -> values; a Recipe brings its own.
        order: Also check the gradient's own gradients up to this order.
        targets: Variables or names to differentiate; by default the program's loss, else the float results that no op
            reads.
        inputs: Names to differentiate by; by default every float feed and every trainable parameter.
        startup: Startup program; ``None`` as in :func:`~tstatic.testing.assert_equivalent`.
        seed: Seed of the random incoming gradients and directions.

    Returns:
        The number of derivatives compared.

    Raises:
        GradientError: A gradient is wrong.
        ProgramError: There is nothing to differentiate.
        ProgramTypeError: The first argument is of another type.
    """
    given = dict(feeds or {})
    if isinstance(program_or_function, Recipe):
        built = program_or_function.build()
        program, startup = built.main, built.startup
        given = {n: given.get(n, a) for n, a in built.feeds.items()}
        chosen: list[str] = list(program_or_function.fetches)
    elif isinstance(program_or_function, Program):
        program, chosen = program_or_function, []
    elif callable(program_or_function):
        program, startup, chosen = _trace(program_or_function, given)
    else:
        raise ProgramTypeError(
            "check_grads takes a program or a function of variables",
            expected="a static.Program, a testing.Recipe or a function",
            received=shown(program_or_function),
            fix="pass static.default_main_program(), or a function such as paddle.tanh",
        )
    values = {n: np.asarray(a) for n, a in given.items()}
    if targets is not None:
        listed = targets if isinstance(targets, list | tuple) else [targets]
        chosen = [t.name if isinstance(t, Variable) else str(t) for t in listed]
    check = _Check(program, start_values(program, startup), values, chosen, inputs, seed)
    return sum(check.compare(k) for k in range(1, order + 1))


def _trace(function: Callable[..., Any], feeds: Mapping[str, Any]) -> tuple[Program, Program, list[str]]:
    main, startup = Program(), Program()
    with program_guard(main, startup), names.guard():
        made = []
        for name, value in feeds.items():
            array = widen(np.asarray(value))
            made.append(static.data(name, list(array.shape), dtype_of(array.dtype).name))
        result = function(*made)
    listed = list(result) if isinstance(result, list | tuple) else [result]
    return main, startup, [v.name for v in listed]


class _Check:
    """Holds a program's forward ops in float64, and appends gradients order by order."""

    def __init__(
        self,
        program: Program,
        state: Mapping[str, Array],
        feeds: Feeds,
        targets: Sequence[str],
        inputs: Sequence[str] | None,
        seed: int,
    ) -> None:
        self.rng = np.random.default_rng(seed)
        wide = float64_program(program)
        block = wide.global_block()
        for one in wide.blocks:
            one.ops = [op for op in one.ops if not op.role & (OpRole.Backward | OpRole.Optimize | OpRole.LRSched)]
        wide.random_seed = program.random_seed or 1
        wide.learning_rates = {}
        wide._appending_grad_times = 0
        self.program = wide
        self.executor = checking_executor(CPUPlace())
        # Each value has a place of its own, so that an element left unwritten is not hidden by the value that was there before.
        self.compiled = CompiledProgram(wide, build_strategy=baseline_of(BuildStrategy()))
        self.state = {n: widen(a) for n, a in state.items()}
        self.feeds = {n: widen(a) for n, a in feeds.items()}
        read = {n for op in block.ops for n in op.input_arg_names}
        wanted = list(inputs) if inputs is not None else [
            n for n, v in block.vars.items()
            if n in read and v.dtype.is_float and (n in self.feeds or (isinstance(v, Parameter) and v.trainable))
        ]  # fmt: skip
        found = [
            n
            for n in targets or _results(wide)
            if block.has_var_recursive(n) and block._var_recursive(n).dtype.is_float
        ]
        if not found or not wanted:
            raise ProgramError(
                "there is nothing to differentiate",
                expected="a float result that depends on a float input or a parameter",
                received=f"results {found}, inputs {wanted}",
                fix="pass targets=[...] and inputs=[...]",
            )
        self.inputs = wanted
        for name in wanted:
            block._var_recursive(name).stop_gradient = False
        # The variables computed from them were built while they stopped gradients.
        for var in self.program.list_vars():
            var._reopen_gradient()
        self.targets = found

    def compare(self, order: int) -> int:
        """Checks the gradients of one order, which are the targets of the next; returns the number of derivatives compared."""
        block = self.program.global_block()
        shapes = dict(zip(self.targets, self.run(self.targets), strict=True))
        seeds, scale = [], 1.0
        with program_guard(self.program, Program()):
            for k, name in enumerate(self.targets):
                value = self.rng.uniform(0.5, 1.5, shapes[name].shape) * self.rng.choice(
                    [-1.0, 1.0], shapes[name].shape
                )
                one = Input(f"check_grads_{order}_{k}", shapes[name].shape, "float64")
                seeds.append(static.data(one.name, list(block._var_recursive(name).shape), "float64"))
                self.feeds[one.name] = np.asarray(value)
                scale = max(scale, float(np.abs(value).max(initial=0.0)))
            found = static.gradients(
                [block._var_recursive(n) for n in self.targets], [block._var_recursive(n) for n in self.inputs], seeds
            )
        pairs = [(x, g.name) for x, g in zip(self.inputs, found, strict=True) if g is not None]
        if not pairs:
            return 0
        stated = self.run([g for _, g in pairs])
        count = 0
        for (name, _), gradient in zip(pairs, stated, strict=True):
            base = self.feeds[name] if name in self.feeds else self.state[name]
            if gradient.shape != base.shape:
                raise AssertionError(f"the gradient of '{name}' has shape {gradient.shape}, the input {base.shape}")
            for index, direction in self._directions(base):
                analytic = float((gradient * direction).sum())
                numeric = self._slope(name, direction, seeds, 1.0)
                reach = max(1.0, math.sqrt(float((direction**2).sum())))
                if not abs(analytic - numeric) <= RTOL * abs(numeric) + ATOL * scale * reach:
                    other = self._slope(name, direction, seeds, 0.5)
                    # At a smooth point the two step lengths agree far better than the analytic gradient does.
                    note = ""
                    if abs(other - numeric) > 0.1 * abs(analytic - numeric):
                        note = "; differences of two step lengths disagree too: a kink or a pole is near"
                    else:
                        # Between the slopes of both sides: at a smooth point it halves with the step length.
                        jump, half = (self._jump(name, direction, seeds, factor) for factor in (1.0, 0.5))
                        if half > max(0.75 * jump, 0.1 * abs(analytic - numeric)):
                            note = "; the slopes on both sides disagree too: a kink or a pole is near"
                    raise GradientError(order, name, index, analytic, numeric, note)
                count += 1
        self.targets = [g for _, g in pairs]
        return count

    def run(self, fetches: Sequence[str], changed: str = "", value: Array | None = None) -> list[Array]:
        """Runs the program, with one input replaced, and returns the fetched values."""
        feeds, state = dict(self.feeds), dict(self.state)
        if value is not None:
            (feeds if changed in feeds else state)[changed] = value
        scope = Scope()
        for name, array in state.items():
            scope.publish(name, array.copy())
        # What an operator leaves unwritten is NaN, which equals no difference of values.
        with filling_memory(FILL):
            results: list[Array] = self.executor.run(self.compiled, feed=feeds, fetch_list=list(fetches), scope=scope)
        return results

    def _directions(self, x: Array) -> Iterator[tuple[tuple[int, ...] | None, Array]]:
        if x.size <= MOST_ELEMENTS:
            for at in np.ndindex(x.shape):
                one = np.zeros(x.shape)
                one[at] = 1.0
                yield at, one
        else:
            for _ in range(DIRECTIONS):
                yield None, np.asarray(self.rng.choice([-1.0, 1.0], x.shape))

    def _slope(self, name: str, direction: Array, seeds: Sequence[Variable], factor: float) -> float:
        return sum(float(part.sum()) for part in self._differences(name, direction, seeds, factor, STENCIL))

    def _jump(self, name: str, direction: Array, seeds: Sequence[Variable], factor: float) -> float:
        """Returns by how much slopes on both sides of the point differ, added up over all results: opposite ones do not cancel."""
        return sum(float(np.abs(part).sum()) for part in self._differences(name, direction, seeds, factor, JUMP))

    def _differences(
        self,
        name: str,
        direction: Array,
        seeds: Sequence[Variable],
        factor: float,
        stencil: Sequence[tuple[float, float]],
    ) -> list[Array]:
        base = self.feeds[name] if name in self.feeds else self.state[name]
        step = factor * STEP * float(np.maximum(1.0, np.abs(base))[direction != 0].min())
        total: list[Any] = [0.0] * len(self.targets)
        for shift, weight in stencil:
            moved = self.run(self.targets, name, np.asarray(base + shift * step * direction))
            # Differences first, sums last: the sum of a large result would lose the digits in which the shifts differ.
            total = [t + weight * r for t, r in zip(total, moved, strict=True)]
        return [t * self.feeds[s.name] / step for t, s in zip(total, seeds, strict=True)]


def _results(program: Program) -> list[str]:
    if program.loss_name:
        return [program.loss_name]
    read = {n for block in program.blocks for op in block.ops for n in op.input_arg_names}
    found = []
    for op in program.global_block().ops:
        for slot, row in op.outputs.items():
            if not op.definition.output_slots[slot].intermediate:
                found += [n for n in row if n not in read]
    return list(dict.fromkeys(found))


__all__ = ["GradientError", "check_grads"]
