"""Nets of the repository leave the same bits captured and called: with ``TSTATIC_GRAPHS=all`` all that train, otherwise a few."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.amp import described
from tests.bench.scripts import script
from tests.cpu import bn_nets, depthwise_nets
from tests.helpers import attention_programs, epilogue_programs, linear_loss_programs, optimizer_programs, tied_programs
from tests.helpers.captured_runs import Net, Turns, differences, five_steps, ran, refused, standing_in
from tstatic import static, testing
from tstatic.testing.runner import trial_of_recipe

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    os.environ.get("TSTATIC_CPU_BACKEND", "numpy") != "numpy",
    reason="puts a device of its own in the place of the CPU's",
)

ALL = os.environ.get("TSTATIC_GRAPHS") == "all"
DRAWN = 60 if ALL else 1
"""Programs of each kind."""
BELOW = {"ids": 9, "label": 5, "kinds": 2, "places": 8, "follows": 2}
"""The positions that a small net takes, by the name of the input."""


def small(patch: pytest.MonkeyPatch, models: ModuleType) -> None:
    """Makes the models of the bench small; what they consist of stays."""
    patch.setattr(models, "GPT", {"layers": 2, "width": 16, "heads": 2, "tokens": 8, "vocabulary": 20, "batch": 2})
    patch.setattr(
        models, "BERT", {"layers": 2, "width": 16, "heads": 2, "tokens": 8, "vocabulary": 20, "batch": 2, "masked": 3}
    )
    patch.setattr(models, "RESNET", {"batch": 2, "side": 32, "classes": 5})
    patch.setattr(models, "STAGES", ((2, 4), (1, 8)))


def drawn_feed(shapes: dict[str, tuple[tuple[int, ...], str]]) -> Callable[[int], dict[str, Any]]:
    """Feeds of inputs of any sizes: positions where whole numbers are wanted."""

    def feed(step: int) -> dict[str, Any]:
        draw = np.random.default_rng(step)
        return {
            name: draw.integers(0, BELOW.get(name, 3), shape) if dtype == "int64" else draw.random(shape, "float32")
            for name, (shape, dtype) in shapes.items()
        }

    return feed


def of_build(build: Callable[[Any], Any], rule: Callable[[Any], Any] | None = None, rows: int = 2) -> Net:
    """A net that a function builds in the default program, with an update of its own or by a rule."""

    def built() -> list[Any]:
        loss = build(paddle)
        if rule is not None:
            rule(loss)
        return [loss]

    main = static.Program()
    with static.program_guard(main, static.Program()), paddle.utils.unique_name.guard():
        built()
    inputs = [v for v in main.global_block().vars.values() if v.is_data]
    return Net(
        built, drawn_feed({v.name: (tuple(rows if n < 0 else n for n in v.shape), v.dtype.name) for v in inputs})
    )


def of_bench(name: str) -> Net:
    """A net of the bench as it is measured, with its own feeds."""
    net = script("nets").NETS[name]
    # Of those whose values decide what is fed each step would have other sizes, and so graphs of its own.
    seeds = [0] * 5 if name.endswith(" fed") else range(5)
    return Net(lambda: [net.build(paddle)], lambda step: net.feed(np.random.default_rng(seeds[step])))


def of_model(name: str) -> Net:
    models = script("models")
    with pytest.MonkeyPatch.context() as patch:
        small(patch, models)
        made = of_build(models.MODELS[name].build)

    def build() -> list[Any]:
        with pytest.MonkeyPatch.context() as patch:
            small(patch, models)
            found = made.build()
        assert isinstance(found, list)
        return found

    return Net(build, made.feed, in_low_precision)


def in_low_precision(turns: Turns) -> None:
    """Five steps, before which the parameters of a program in 16 bits are cast."""
    low = {p.name for p in turns.main.all_parameters() if p.dtype.name == "bfloat16"}
    if low:
        static.amp.bf16.cast_parameters_to_bf16(paddle.CPUPlace(), turns.main, to_bf16_var_names=low)
    five_steps(turns)


def of_rule(number: int) -> Net:
    case = optimizer_programs.CASES[number]
    one = optimizer_programs.training(case.make, case.dtype, case.shapes)
    return Net(lambda: (one.main, one.startup, [one.loss]), one.feed)


def of_precision(program: str, level: str, dtype: str) -> Net:
    def rule(loss: Any) -> None:
        static.amp.decorate(
            paddle.optimizer.Momentum(0.01), dtype=dtype, level=level, init_loss_scaling=8.0,
            use_dynamic_loss_scaling=dtype == "float16", incr_every_n_steps=2,
        ).minimize(loss)  # fmt: skip

    return of_build(described.PROGRAMS[program], rule, 4)


def of_programs(made: tuple[Any, Any, Any], shape: tuple[int, ...]) -> Net:
    main, startup, loss = made
    return Net(lambda: (main, startup, [loss]), drawn_feed({"x": (shape, "float32")}))


def nets() -> Iterator[tuple[str, Callable[[], Net]]]:
    """Yields the name of each net, and what makes it."""
    for name in script("models").MODELS:
        yield f"model {name}", partial(of_model, name)
    for name, net in script("nets").NETS.items():
        if net.trained:
            yield f"bench {name}", partial(of_bench, name)
    for number, case in enumerate(optimizer_programs.CASES):
        yield f"rule {case.name}", partial(of_rule, number)
    for program in described.PROGRAMS:
        for level, dtype in (("O1", "float16"), ("O1", "bfloat16"), ("OD", "bfloat16")):
            yield f"precision {program} {level} {dtype}", partial(of_precision, program, level, dtype)
    for layout, shape in bn_nets.SHAPES.items():
        yield (
            f"residual {layout}",
            lambda layout=layout, shape=shape: of_programs(bn_nets.residual(layout=layout), shape),
        )
    for twice in (False, True):
        yield f"depthwise {twice}", lambda twice=twice: of_programs(depthwise_nets.net(twice=twice), (2, 3, 6, 5))


NETS = dict(nets())
FEW = ("model gpt-bf16", "bench small", "rule adamw ratio", "precision attention O1 float16", "depthwise True")


def test_the_few_are_of_all_kinds() -> None:
    assert {name.partition(" ")[0] for name in NETS} - {name.partition(" ")[0] for name in FEW} == {"residual"}
    assert set(FEW) < set(NETS)
    assert len(NETS) > 50


@pytest.mark.parametrize("device", ["fake", "gpu", "fake+torch"] if ALL else ["fake", "gpu"])
@pytest.mark.parametrize("name", NETS if ALL else FEW)
def test_trainings_leave_the_same_bits(name: str, device: str) -> None:
    net = NETS[name]()
    with standing_in(device) as made:
        plain = ran(net, "off")
        assert made.launches == 0
        captured = ran(net, "auto")
        assert made.launches >= 4
        assert refused(made) == []
        assert differences(plain, captured) == []
        assert not [one for one in plain.found if one.dtype.kind == "U"]


KINDS: dict[str, Callable[..., testing.Recipe]] = {
    "attention": attention_programs.attention_recipe,
    "epilogue": epilogue_programs.epilogue_recipe,
    "linear and loss": linear_loss_programs.linear_loss_recipe,
    "tied table": tied_programs.tied_recipe,
}


@pytest.mark.parametrize("device", ["fake", "gpu"])
@pytest.mark.parametrize("kind", KINDS)
def test_drawn_trainings_leave_the_same_bits(kind: str, device: str) -> None:
    for number in range(DRAWN):
        trial, feeds = trial_of_recipe(KINDS[kind](number, "training", 4))
        with standing_in(device) as made:
            found = []
            for mode in ("off", "auto"):
                paddle.set_flags({"FLAGS_cuda_graph": mode})
                try:
                    found.append(
                        [value.tobytes() for row in trial.run(trial.program, feeds, trial.state) for value in row]
                    )
                finally:
                    paddle.set_flags({"FLAGS_cuda_graph": "auto"})
            assert made.launches >= 3
        assert found[0] == found[1], number
