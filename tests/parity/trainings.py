"""Trainings that both sides run: the grid of optimizers, small networks, learning-rate schedules."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from tests.parity import nets

STEPS = 3
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {},
    "Momentum": {"momentum": 0.9},
    "Momentum nesterov": {"momentum": 0.9, "use_nesterov": True},
    "Adam": {},
    "AdamW": {},
    "Adamax": {},
    "Adagrad": {},
    "Adadelta": {},
    "RMSProp": {},
    "RMSProp centered": {"centered": True, "momentum": 0.5},
    "Lamb": {},
}
DECAYS = ("none", "number", "L1Decay", "L2Decay")
CLIPS = ("none", "ClipGradByValue", "ClipGradByNorm", "ClipGradByGlobalNorm")
ATTRS = ("plain", "learning rate", "L1Decay", "need_clip", "frozen", "constant schedule")


def grid() -> list[dict[str, Any]]:
    """Two fifths of the grid; five divides no axis, so every pair of choices occurs."""
    every = [(o, d, c, a) for o in OPTIMIZERS for d in DECAYS for c in CLIPS for a in ATTRS]
    return [
        {"path": "training", "id": f"training({o}, decay {d}, clip {c}, {a})", "choice": [o, d, c, a]}
        for k, (o, d, c, a) in enumerate(every)
        if k % 5 in (0, 2)
    ]


def schedules() -> list[dict[str, Any]]:
    """Learning-rate schedules with their arguments."""
    found = {
        "CosineAnnealingDecay": [0.5, 6],
        "CosineAnnealingWarmRestarts": [0.5, 4, 2],
        "CyclicLR": [0.1, 0.9, 3],
        "ExponentialDecay": [0.5, 0.9],
        "InverseTimeDecay": [0.5, 0.1],
        "LinearLR": [0.5, 5],
        "LinearWarmup": [0.5, 4, 0.0, 0.5],
        "MultiStepDecay": [0.5, [2, 5]],
        "NaturalExpDecay": [0.5, 0.1],
        "NoamDecay": [64, 4],
        "OneCycleLR": [0.9, 13],
        "PiecewiseDecay": [[2, 5], [0.5, 0.2, 0.1]],
        "PolynomialDecay": [0.5, 8],
        "StepDecay": [0.5, 3, 0.5],
        "LambdaDecay": [0.5, "lambda"],
        "MultiplicativeDecay": [0.5, "lambda"],
        "ReduceOnPlateau": [0.5],
    }
    return [
        {"path": "schedule", "id": f"optimizer.lr.{name}", "name": name, "args": args} for name, args in found.items()
    ]


def networks() -> list[dict[str, Any]]:
    """The networks of `nets.py`."""
    return [{"path": "network", "id": f"network {name}", "name": name} for name in nets.NETS]


def schedule(paddle: Any, call: dict[str, Any], tools: Any) -> dict[str, Any]:
    """The rates of thirteen epochs."""
    args = [(lambda epoch: 0.9**epoch) if a == "lambda" else a for a in call["args"]]
    rates = getattr(paddle.optimizer.lr, call["name"])(*args)
    found = [rates()]
    for epoch in range(12):
        if call["name"] == "ReduceOnPlateau":
            rates.step(1.0 if epoch > 0 else 0.5)
        else:
            rates.step()
        found.append(rates())
    return {"outs": [tools.packed(np.asarray(found, np.float64))]}


def training(paddle: Any, call: dict[str, Any], tools: Any) -> dict[str, Any]:
    """Three steps of a small net: losses, and all state at the end."""
    kind, decay, clip, attr = call["choice"]
    with tools.fresh(paddle) as (main, startup):
        try:
            loss = _build(paddle, kind, decay, clip, attr)
        except Exception as error:
            return tools.raised("build", error)
        exe = paddle.static.Executor(paddle.CPUPlace())
        try:
            names = [f[0] for f in tools.start(paddle, exe, main, startup)]
            feed = {"x": tools.ramp([4, 3], "float32", -1.0, 1.0, 0), "y": tools.ramp([4, 2], "float32", -1.0, 1.0, 1)}
            losses = [
                float(np.asarray(exe.run(main, feed=feed, fetch_list=[loss])[0]).ravel()[0]) for _ in range(STEPS)
            ]
        except Exception as error:
            return tools.raised("run", error)
        scope = paddle.static.global_scope()
        outs = [tools.packed(np.asarray(losses, np.float32))]
        outs += [tools.packed(np.array(scope.find_var(name).get_tensor())) for name in names]
        return {"outs": outs}


def _build(paddle: Any, kind: str, decay: str, clip: str, attr: str) -> Any:
    static, nn = paddle.static, paddle.nn
    given = {
        "learning rate": {"learning_rate": 0.5},
        "L1Decay": {"regularizer": paddle.regularizer.L1Decay(0.05)},
        "need_clip": {"need_clip": False},
        "frozen": {"trainable": False},
    }.get(attr, {})
    x, y = static.data("x", [None, 3]), static.data("y", [None, 2])
    hidden = paddle.tanh(
        static.nn.fc(x, 3, weight_attr=paddle.ParamAttr(name="w0", **given), bias_attr=paddle.ParamAttr(name="b0"))
    )
    out = static.nn.fc(
        hidden, 2, weight_attr=paddle.ParamAttr(name="w1"), bias_attr=paddle.ParamAttr(name="b1", **given)
    )
    loss = paddle.mean(nn.functional.square_error_cost(out, y))
    options = dict(OPTIMIZERS[kind])
    if decay != "none":
        value = 0.03 if decay == "number" else getattr(paddle.regularizer, decay)(0.03)
        options["lamb_weight_decay" if kind == "Lamb" else "weight_decay"] = value
    if clip != "none":
        options["grad_clip"] = {"ClipGradByValue": nn.ClipGradByValue(0.1)}.get(clip) or getattr(nn, clip)(0.2)
    rate: Any = 0.1
    if attr == "constant schedule":
        rate = paddle.optimizer.lr.PiecewiseDecay([100], [0.1, 0.01])
    getattr(paddle.optimizer, kind.partition(" ")[0])(rate, **options).minimize(loss)
    return loss


def network(paddle: Any, call: dict[str, Any], tools: Any) -> dict[str, Any]:
    """Twenty steps of a network: all losses, and the parameters at the end."""
    net = nets.NETS[call["name"]]
    with tools.fresh(paddle) as (main, startup), contextlib.ExitStack():
        try:
            loss = net(paddle)
            names = [p.name for p in main.all_parameters()]
            exe = paddle.static.Executor(paddle.CPUPlace())
            exe.run(startup)
            _soft_start(paddle, main, tools)
            losses = []
            for step in range(20):
                feed = nets.feed(call["name"], step, tools.ramp)
                losses.append(float(np.asarray(exe.run(main, feed=feed, fetch_list=[loss])[0]).ravel()[0]))
        except Exception as error:
            return tools.raised("run", error)
        scope = paddle.static.global_scope()
        ends = [tools.packed(np.array(scope.find_var(name).get_tensor())) for name in names]
        return {"outs": [tools.packed(np.asarray(losses, np.float32)), *ends], "plain": names}


def _soft_start(paddle: Any, main: Any, tools: Any) -> None:
    """Gives weights small known values; what starts constant (biases, scales, statistics) stays."""
    scope = paddle.static.global_scope()
    for number, parameter in enumerate(main.all_parameters()):
        tensor = scope.find_var(parameter.name).get_tensor()
        value = np.array(tensor)
        if value.size > 1 and (value == value.ravel()[0]).all():
            continue
        wide = 1.5 / max(value.shape[0], value.size // value.shape[0]) ** 0.5
        tensor.set(tools.ramp(list(value.shape), "float32", -wide, wide, number), paddle.CPUPlace())
