"""Update ops against torch's optimizers over several steps, and what no torch rule covers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.ops.sampler import Sample
from tests.ops.tiles import run_tiles
from tstatic.errors import DTypeError, ProgramError, ShapeError
from tstatic.ir.evaluate import evaluate, infer_outputs, metas_of
from tstatic.ir.opdef import PARTIAL_SUM, op_def
from tstatic.ir.split import POINTWISE

Array = np.ndarray[Any, Any]
SHAPE = (7, 5)
STEPS = 12


def rng() -> np.random.Generator:
    return np.random.default_rng(8)


class Steps:
    """One parameter under an op, step by step; state slots keep their values from step to step."""

    def __init__(self, type: str, attrs: dict[str, Any], lr: float, state: dict[str, float], param: Array) -> None:
        self.definition = op_def(type)
        self.attrs = attrs
        self.values: dict[str, Array] = {"Param": param.copy(), "LearningRate": np.array([lr], np.float32)}
        for slot, start in state.items():
            size = (1,) if slot.endswith("Pow") else param.shape
            self.values[slot] = np.full(size, start, param.dtype)

    def step(self, grad: Array, **more: Any) -> None:
        self.values |= {"Grad": grad, **more}
        outs = evaluate(self.definition, [self.values.get(s.name) for s in self.definition.inputs], self.attrs)
        for slot, out in zip(self.definition.outputs, outs, strict=True):
            if out is not None:
                self.values[slot.name.removesuffix("Out")] = out

    @property
    def param(self) -> Array:
        return self.values["Param"]


Case = tuple[str, dict[str, Any], float, dict[str, float], Callable[[Any, Any], Any], float]
ADAM = {"Moment1": 0.0, "Moment2": 0.0, "Beta1Pow": 0.9, "Beta2Pow": 0.999}
CASES: dict[str, Case] = {
    "sgd": ("sgd", {}, 0.1, {}, lambda t, p: t.optim.SGD(p, 0.1), 1e-6),
    "momentum": ("momentum", {"mu": 0.9}, 0.1, {"Velocity": 0.0}, lambda t, p: t.optim.SGD(p, 0.1, 0.9), 1e-6),
    "nesterov": (
        "momentum",
        {"mu": 0.8, "use_nesterov": True},
        0.1,
        {"Velocity": 0.0},
        lambda t, p: t.optim.SGD(p, 0.1, 0.8, nesterov=True),
        1e-6,
    ),
    "momentum with decay": (
        "momentum",
        {"mu": 0.9, "regularization_method": "l2_decay", "regularization_coeff": 0.05},
        0.1,
        {"Velocity": 0.0},
        lambda t, p: t.optim.SGD(p, 0.1, 0.9, weight_decay=0.05),
        1e-6,
    ),
    "adam": ("adam", {}, 0.01, ADAM, lambda t, p: t.optim.Adam(p, 0.01), 2e-5),
    "adamw": ("adamw", {"coeff": 0.1}, 0.01, ADAM, lambda t, p: t.optim.AdamW(p, 0.01, weight_decay=0.1), 2e-5),
    "adamw without decay": (
        "adamw",
        {"coeff": 0.1, "with_decay": False, "lr_ratio": 0.5},
        0.02,
        ADAM,
        lambda t, p: t.optim.Adam(p, 0.01),
        2e-5,
    ),
    "adamax": (
        "adamax",
        {"epsilon": 1e-12},
        0.01,
        {"Moment": 0.0, "InfNorm": 0.0, "Beta1Pow": 0.9},
        lambda t, p: t.optim.Adamax(p, 0.01, eps=1e-12),
        2e-5,
    ),
    "adagrad": (
        "adagrad",
        {"epsilon": 1e-10},
        0.05,
        {"Moment": 0.1},
        lambda t, p: t.optim.Adagrad(p, 0.05, initial_accumulator_value=0.1),
        1e-6,
    ),
    "adadelta": (
        "adadelta",
        {"rho": 0.9, "epsilon": 1e-6},
        0.5,
        {"AvgSquaredGrad": 0.0, "AvgSquaredUpdate": 0.0},
        lambda t, p: t.optim.Adadelta(p, 0.5),
        1e-6,
    ),
    # torch adds epsilon after the root, so it is made too small to tell.
    "rmsprop": (
        "rmsprop",
        {"decay": 0.9, "epsilon": 1e-30, "momentum": 0.7},
        0.01,
        {"Moment": 0.0, "MeanSquare": 0.0},
        lambda t, p: t.optim.RMSprop(p, 0.01, 0.9, eps=1e-15, momentum=0.7),
        1e-6,
    ),
    "centered rmsprop": (
        "rmsprop",
        {"decay": 0.9, "epsilon": 1e-30, "centered": True},
        0.01,
        {"Moment": 0.0, "MeanSquare": 0.0, "MeanGrad": 0.0},
        lambda t, p: t.optim.RMSprop(p, 0.01, 0.9, eps=1e-15, centered=True),
        1e-6,
    ),
}  # fmt: skip


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_against_torch(name: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    type, attrs, lr, state, make, rtol = CASES[name]
    start = rng().normal(size=SHAPE).astype(dtype)
    mine = Steps(type, attrs, lr, state, start)
    mine.values["LearningRate"] = np.array([lr], dtype)
    for step in range(STEPS):
        mine.step(rng().normal(size=SHAPE).astype(dtype) * (1 + step))
        if name == "adamax":
            # The op only reads the power.
            mine.values["Beta1Pow"] = mine.values["Beta1Pow"] * mine.values["Beta1Pow"].dtype.type(0.9)
    tensor = torch.tensor(start, requires_grad=True)
    optimizer = make(torch, [tensor])
    for step in range(STEPS):
        tensor.grad = torch.tensor(rng().normal(size=SHAPE).astype(dtype) * (1 + step))
        optimizer.step()
    expected = tensor.detach().numpy()
    # Relative to how far the parameter has gone, which is what the rule computes.
    scale = np.abs(expected - start).max()
    assert np.abs(mine.param - expected).max() <= (rtol if dtype == "float32" else rtol * 1e-3) * max(scale, 1.0)


def test_formulas_of_lamb() -> None:
    p, g = rng().normal(size=SHAPE), rng().normal(size=SHAPE) * 3
    lamb = Steps("lamb", {"weight_decay": 0.01}, 0.1, {**ADAM}, p)
    m = v = np.zeros(SHAPE)
    for step in range(1, 4):
        lamb.step(g)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        r = m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.999**step)) + 1e-6) + 0.01 * p
        p = p - float(np.float32(0.1)) * np.linalg.norm(p) / np.linalg.norm(r) * r
        assert np.allclose(lamb.param, p, rtol=1e-12)


@pytest.mark.parametrize("always", [True, False])
def test_lamb_without_decay(always: bool) -> None:
    p, g = rng().normal(size=SHAPE), rng().normal(size=SHAPE)
    lamb, adam = (
        Steps("lamb", {"always_adapt": always, "epsilon": 1e-8}, 0.01, {**ADAM}, p),
        Steps("adam", {}, 0.01, {**ADAM}, p),
    )
    lamb.step(g)
    adam.step(g)
    assert np.allclose(lamb.param, adam.param, rtol=1e-9) is not always


def test_lamb_of_a_zero_parameter_takes_the_plain_step() -> None:
    lamb = Steps("lamb", {"weight_decay": 0.1}, 0.1, {**ADAM}, np.zeros(SHAPE))
    lamb.step(np.ones(SHAPE))
    assert np.allclose(lamb.param, -0.1, rtol=1e-5)


def test_adamax_puts_epsilon_on_the_old_norm() -> None:
    steps = Steps("adamax", {"epsilon": 0.5}, 1.0, {"Moment": 0.0, "InfNorm": 2.0, "Beta1Pow": 0.9}, np.zeros(3))
    steps.step(np.array([0.1, -5.0, 0.0]))
    assert np.allclose(steps.values["InfNorm"], [2.498, 5.0, 2.498])


def test_a_centered_rmsprop_without_its_mean_gradient_names_the_slot() -> None:
    steps = Steps("rmsprop", {"centered": True}, 0.1, {"Moment": 0.0, "MeanSquare": 1.0}, np.zeros(3, np.float32))
    with pytest.raises(ProgramError, match="'rmsprop' with centered=True needs the slot 'MeanGrad'"):
        steps.step(np.ones(3, np.float32))
    values = {**steps.values, "Grad": np.ones(3, np.float32), "MeanGrad": np.zeros(3, np.float32)}
    ins = [values.get(slot.name) for slot in steps.definition.inputs]
    with pytest.raises(ProgramError, match="lacks the slot 'MeanGradOut'"):
        evaluate(steps.definition, ins, steps.attrs, [slot.name != "MeanGradOut" for slot in steps.definition.outputs])


def test_rmsprop_has_epsilon_inside_the_root() -> None:
    steps = Steps("rmsprop", {"decay": 0.5, "epsilon": 1.0}, 1.0, {"Moment": 0.0, "MeanSquare": 0.0}, np.zeros(1))
    steps.step(np.array([2.0]))
    assert np.allclose(steps.param, -2 / np.sqrt(0.5 * 4 + 1))


@pytest.mark.parametrize("type", ["sgd", "momentum", "adam", "adamw", "adagrad", "adadelta", "rmsprop", "lamb"])
@pytest.mark.parametrize("low", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("wide_grad", [False, True])
def test_master_parameter(type: str, low: Any, wide_grad: bool) -> None:
    """With a master parameter the steps are those of float32 and the parameter is its rounded copy."""
    state = {
        "momentum": {"Velocity": 0.0},
        "adagrad": {"Moment": 0.1},
        "adadelta": {"AvgSquaredGrad": 0.0, "AvgSquaredUpdate": 0.0},
        "rmsprop": {"Moment": 0.0, "MeanSquare": 0.0},
    }.get(type, {} if type == "sgd" else ADAM)
    attrs = {"momentum": {"mu": 0.9}, "lamb": {"weight_decay": 0.01}}.get(type, {})
    start = rng().normal(size=SHAPE).astype(low).astype(np.float32)
    plain = Steps(type, attrs, 0.01, state, start)
    mixed = Steps(type, {**attrs, "multi_precision": True}, 0.01, state, start)
    mixed.values |= {"MasterParam": start.copy(), "Param": start.astype(low)}
    for _ in range(4):
        grad = rng().normal(size=SHAPE).astype(low)
        plain.step(grad.astype(np.float32))
        mixed.step(grad.astype(np.float32) if wide_grad else grad)
    assert np.array_equal(mixed.values["MasterParam"], plain.param)
    assert mixed.param.dtype == low
    assert np.array_equal(mixed.param, plain.param.astype(low))


@pytest.mark.parametrize("type", ["adam", "adamw", "lamb"])
def test_skip_update(type: str) -> None:
    steps = Steps(type, {}, 0.1, ADAM, rng().normal(size=SHAPE).astype(np.float32))
    before = {n: v.copy() for n, v in steps.values.items()}
    steps.step(np.full(SHAPE, np.nan, np.float32), SkipUpdate=np.array([True]))
    for name in ("Param", "Moment1", "Moment2", "Beta1Pow", "Beta2Pow"):
        assert np.array_equal(steps.values[name], before[name])
    steps.step(np.ones(SHAPE, np.float32), SkipUpdate=np.array([False]))
    assert not np.array_equal(steps.param, before["Param"])


def test_powers_move_on() -> None:
    steps = Steps("adam", {"beta1": 0.5, "beta2": 0.25}, 0.1, {**ADAM, "Beta1Pow": 0.5, "Beta2Pow": 0.25}, np.zeros(3))
    steps.step(np.ones(3))
    assert (float(steps.values["Beta1Pow"][0]), float(steps.values["Beta2Pow"][0])) == (0.25, 0.0625)
    tensors = {"Beta1Tensor": np.array([0.1]), "Beta2Tensor": np.array([0.2]), "EpsilonTensor": np.array([1e-3])}
    steps.step(np.ones(3), **tensors)
    assert np.allclose([steps.values["Beta1Pow"][0], steps.values["Beta2Pow"][0]], [0.025, 0.0125])
    held = Steps("adam", {"use_global_beta_pow": True}, 0.1, ADAM, np.zeros(3))
    held.step(np.ones(3))
    assert float(held.values["Beta1Pow"][0]) == 0.9


# --------------------------------------------------------------------------------------------------------------- tiles
@pytest.mark.parametrize("name", [n for n in CASES if n != "adamw without decay"])
def test_large_parameters_are_cut(name: str) -> None:
    type, attrs, lr, state, _, _ = CASES[name]
    steps = Steps(type, attrs, lr, state, rng().normal(size=(3, POINTWISE.size)).astype(np.float32))
    steps.values["Grad"] = rng().normal(size=(3, POINTWISE.size)).astype(np.float32)
    ins = tuple(steps.values.get(s.name) for s in steps.definition.inputs)
    metas = infer_outputs(steps.definition, metas_of(ins), steps.definition.complete(attrs))
    assert steps.definition.split is not None
    tiles = steps.definition.split(*metas_of(ins), *metas)
    assert tiles is not None
    assert len(tiles) == 3
    # Numbers that all tiles read and the op moves on are written apart.
    powers = [i for i, s in enumerate(steps.definition.outputs) if s.name.endswith("PowOut")]
    for i in powers:
        column = [tile[len(ins) + i] for tile in tiles]
        assert column == [PARTIAL_SUM, None, None]
    for a, b in zip(
        run_tiles(steps.definition, Sample(ins, attrs, "float32"), tiles, metas),
        evaluate(steps.definition, ins, attrs),
        strict=True,
    ):
        assert (a is None and b is None) or np.array_equal(a, b)


def test_small_parameters_are_not_cut() -> None:
    definition = op_def("adam")
    assert definition.split is not None
    ins = [None if s.optional else np.zeros(SHAPE, np.float32) for s in definition.inputs]
    assert definition.split(*metas_of(ins), *[None] * len(definition.outputs)) is None


# --------------------------------------------------------------------------------------------------------------- errors
def refused(type: str, **arrays: Any) -> None:
    definition = op_def(type)
    good = {
        "Param": np.zeros(SHAPE, np.float32),
        "Grad": np.zeros(SHAPE, np.float32),
        "LearningRate": np.zeros((), np.float32),
    }
    good |= {s.name: np.zeros(SHAPE, np.float32) for s in definition.inputs if s.name not in good and not s.optional}
    good |= {n: np.ones(1, np.float32) for n in good if n.endswith("Pow")}
    infer_outputs(definition, metas_of([good.get(s.name) for s in definition.inputs]), {})
    infer_outputs(definition, metas_of([(good | arrays).get(s.name) for s in definition.inputs]), {})


@pytest.mark.parametrize("type", ["sgd", "adam", "adagrad", "lamb"])
def test_refuses(type: str) -> None:
    with pytest.raises(ShapeError, match=f"'Grad' of {type} has the wrong shape"):
        refused(type, Grad=np.zeros((5, 7), np.float32))
    with pytest.raises(DTypeError, match=f"'Grad' in {type} is not supported"):
        refused(type, Grad=np.zeros(SHAPE, np.float64))
    with pytest.raises(ShapeError, match=f"'LearningRate' of {type} must have one element"):
        refused(type, LearningRate=np.zeros(3, np.float32))
    with pytest.raises(DTypeError, match=f"'Param' in {type} is not supported"):
        refused(type, Param=np.zeros(SHAPE, np.int64))
