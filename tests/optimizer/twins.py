"""Two trainings in one program, and the same two in programs of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tstatic as paddle
from tstatic import static

SIDES = "AB"
NUMBERED = (
    "learning_rate", "loss_scaling", "num_good_steps", "num_bad_steps", "gradient_merge_step", "lookahead_step",
)  # fmt: skip
"""Variables that are called by a number, in the order in which optimizers are built."""
COUNTER = "@EMA_STEP_COUNTER@"

Rule = Callable[[str], Any]


@dataclass
class Setup:
    """How both trainings are built and run.

    Attributes:
        rule: Side -> its optimizer, named after the side so that accumulators are told apart.
        shared: Both sides have the first layer in common.
        norm: Each side has a batch norm.
        averages: What is made after ``minimize``, from the optimizer's program.
        wrap: Program, loss -> what the Executor runs.
        start: Called with the training after its startup program.
        between: Called with the optimizers, by side, before each step with its number.
        feed: Step -> the batch.
    """

    rule: Rule
    shared: bool = False
    norm: bool = False
    averages: Callable[[], Any] | None = None
    wrap: Callable[[Any, Any], Any] = lambda program, loss: program
    start: Callable[[Training], None] = lambda training: None
    between: Callable[[Mapping[str, Any], int], None] = lambda rules, step: None
    feed: Callable[[int], dict[str, Any]] = lambda step: batch(step)


def batch(step: int, rows: int = 6) -> dict[str, Any]:
    rng = np.random.default_rng(step)
    return {
        "x": rng.standard_normal((rows, 3), dtype=np.float32),
        **{f"y{side}": rng.standard_normal((rows, 1), dtype=np.float32) for side in SIDES},
    }


def parameter(name: str, shape: Sequence[int]) -> Any:
    """Attributes of a parameter whose first value depends on its name alone."""
    values = np.random.default_rng(sum(map(ord, name))).standard_normal(tuple(shape)).astype("float32")
    return paddle.ParamAttr(name=name, initializer=paddle.nn.initializer.Assign(values))


def loss_of(side: str, shared: bool, norm: bool) -> Any:
    block = static.default_main_program().global_block()
    x = block.var("x") if block.has_var("x") else static.data("x", [None, 3])
    trunk = "shared" if shared else side
    if shared and block.has_var("trunk"):
        hidden = block.var("trunk")
    else:
        bias = parameter(f"{trunk}_b0", [4])
        hidden = static.nn.fc(x, 4, weight_attr=parameter(f"{trunk}_w0", [3, 4]), bias_attr=bias)
        hidden = paddle.tanh(hidden, name="trunk") if shared else paddle.tanh(hidden)
    if norm:
        names = {"moving_mean_name": f"{side}_mean", "moving_variance_name": f"{side}_variance"}
        hidden = static.nn.batch_norm(
            hidden, param_attr=parameter(f"{side}_scale", [4]), bias_attr=parameter(f"{side}_shift", [4]), **names
        )
    out = static.nn.fc(hidden, 1, weight_attr=parameter(f"{side}_w1", [4, 1]), bias_attr=parameter(f"{side}_b1", [1]))
    return paddle.mean(paddle.square(out - static.data(f"y{side}", [None, 1])))


@dataclass
class Training:
    """One program with the trainings of some sides.

    Attributes:
        sides: ``A``, ``B`` or both.
        scope: Of its variables; twins with common parameters share one.
        prefix: Of the names that are generated, so that twins in one scope have their own.
    """

    setup: Setup
    sides: str
    scope: Any = field(default_factory=static.Scope)
    prefix: str = ""

    def __post_init__(self) -> None:
        self.main, self.startup = static.Program(), static.Program()
        self.losses, self.rules, self.results = {}, {}, {}  # type: ignore[var-annotated]
        with static.program_guard(self.main, self.startup), paddle.utils.unique_name.guard(self.prefix):
            for side in self.sides:
                self.losses[side] = loss_of(side, self.setup.shared, self.setup.norm)
            for side in self.sides:
                self.rules[side] = self.setup.rule(side)
                self.results[side] = self.rules[side].minimize(self.losses[side])
            self.average = None if self.setup.averages is None else self.setup.averages()
        self.exe = static.Executor(paddle.CPUPlace())
        with static.scope_guard(self.scope):
            self.exe.run(self.startup)
            self.setup.start(self)
        self.runs = self.setup.wrap(self.main, self.losses[self.sides[0]])

    def step(self, number: int, sides: str) -> dict[str, Any]:
        """Runs some sides of this program; all of them by an ordinary fetch list."""
        self.setup.between(self.rules, number)
        fetches: list[Any] = [self.losses[side] for side in sides]
        if sides != self.sides:
            fetches += [self.results[side] for side in sides]
        feed = self.setup.feed(number)
        read = [n for n in feed if self.main.global_block().has_var(n)]
        with static.scope_guard(self.scope):
            values = self.exe.run(self.runs, feed={n: feed[n] for n in read}, fetch_list=fetches)
        return dict(zip(sides, values, strict=True))

    def state(self, side: str) -> dict[str, Any]:
        """The values of everything that belongs to a side, by the names that a program of its own gives it."""
        found = {}
        for var in self.main.list_vars():
            if not var.persistable or self.scope.find_var(var.name) is None:
                continue
            value = np.array(self.scope.find_var(var.name).get_tensor())
            name = var.name.removeprefix(self.prefix)
            stem, _, number = name.rpartition("_")
            if stem in NUMBERED:
                if int(number) == self.sides.index(side):
                    found[stem] = value
            elif name.startswith(COUNTER):
                if name in (COUNTER, f"{COUNTER}_{SIDES.index(side) + 1}"):
                    found[COUNTER] = value
            elif name.startswith((f"{side}_", "shared_")) and not _of_other(name, side):
                found[name] = value
        return found


def _of_other(name: str, side: str) -> bool:
    """Whether an accumulator of a shared parameter is that of the other side's optimizer."""
    return any(f"_{other}_" in name for other in SIDES if other != side)


def assert_alike(setup: Setup, steps: Sequence[str], exact: bool = True) -> Training:
    """Checks that every step of one program leaves what steps of two programs leave; returns the program.

    Args:
        setup: How they are built.
        steps: The sides that each step runs.
        exact: Bit for bit.
    """
    scope = static.Scope() if setup.shared else None
    both = Training(setup, SIDES)
    if scope is None:
        apart = {side: Training(setup, side) for side in SIDES}
    else:
        apart = {side: Training(setup, side, scope, f"{side}.") for side in SIDES}
    for number, sides in enumerate(steps):
        found = both.step(number, sides)
        for side in sides:
            compare(found[side], apart[side].step(number, side)[side], f"loss {side}", number, exact)
        for side in SIDES:
            mine, theirs = both.state(side), apart[side].state(side)
            assert mine.keys() == theirs.keys(), (number, mine.keys() ^ theirs.keys())
            assert len(mine) >= 4
            for name, value in mine.items():
                if name == "learning_rate" and side not in sides:
                    continue  # a run writes the rates of all optimizers of its program, which is of use to those that run
                compare(value, theirs[name], name, number, exact)
    return both


def compare(found: Any, wanted: Any, name: str, step: int, exact: bool) -> None:
    if exact:
        np.testing.assert_array_equal(found, wanted, f"{name} after step {step}")
    else:
        np.testing.assert_allclose(found, wanted, 1e-6, 1e-7, err_msg=f"{name} after step {step}")
