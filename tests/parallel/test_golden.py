"""The numbers after one step, as a ten-line model gives them, under every way to aggregate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.parallel.golden import ROWS, Training, net, strategy
from tstatic import devices, static

Reduce = static.BuildStrategy.ReduceStrategy.Reduce
NoReduce = static.BuildStrategy.ReduceStrategy._NoReduce
One = static.BuildStrategy.GradientScaleStrategy.One
Customized = static.BuildStrategy.GradientScaleStrategy.Customized

# Rows, or bounds of a list of feeds; switches; steps; losses; gradient (column 0, all places); weights after.
CASES: dict[str, tuple[Any, dict[str, Any], int, list[float], list[float], list[float]]] = {
    "even": (4, {}, 1, [0.19125, 1.67625], [0.54, 0.6225, 0.705] * 2, [0.446, 0.43775, 0.4295]),
    "5 rows": (5, {}, 1, [0.19125, 2.385], [0.765, 0.85875, 0.9525] * 2, [0.4235, 0.414125, 0.40475]),
    "3 rows": (3, {}, 1, [0.0225, 0.73125], [0.2025, 0.25125, 0.3] * 2, [0.47975, 0.474875, 0.47]),
    "one": (4, {"gradient_scale_strategy": One}, 1, [0.19125, 1.67625], [1.08, 1.245, 1.41] * 2, [0.392, 0.3755, 0.359]),
    "reduce": (
        4, {"reduce_strategy": Reduce}, 1, [0.19125, 1.67625], [0.045, 0.06375, 0.0825, 0.54, 0.6225, 0.705],
        [0.446, 0.43775, 0.4295],
    ),
    "list": (
        [(0, 1), (1, 5)], {}, 1, [0.0225, 1.87875], [0.5625, 0.63375, 0.705] * 2, [0.44375, 0.436625, 0.4295],
    ),
    "three steps": (
        4, {}, 3, [0.050536, 0.735814], [0.351751, 0.400827, 0.449902] * 2, [0.367335, 0.347796, 0.328257],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_one_net_gives_the_known_numbers(name: str) -> None:
    rows, switches, steps, losses, gradient, weights = CASES[name]
    training = Training(net(), build=strategy(**switches))
    feed = {"X": ROWS[:rows]} if isinstance(rows, int) else [{"X": ROWS[a:b]} for a, b in rows]
    for _ in range(steps):
        loss, grad, w = training.step(feed, ["w@GRAD", "w"])
    np.testing.assert_allclose(loss, losses, atol=1e-6)
    np.testing.assert_allclose(grad[:, 0], gradient, atol=1e-6)
    np.testing.assert_allclose(w[:, 0], weights * 2, atol=1e-6)
    for replica in (0, 1):
        np.testing.assert_allclose(training.value("w", replica)[:, 1], weights, atol=1e-6)


CLIPS: dict[str, tuple[Any, list[float], float]] = {
    "by norm": (lambda: paddle.nn.ClipGradByNorm(0.5), [0.482396, 0.479706, 0.477017], -0.035355),
    "by global norm": (lambda: paddle.nn.ClipGradByGlobalNorm(0.5), [0.485989, 0.483848, 0.481708], -0.021406),
}


@pytest.mark.parametrize("reduce", [False, True], ids=["AllReduce", "Reduce"])
@pytest.mark.parametrize("clip", CLIPS)
def test_clipping_sees_the_summed_gradients(clip: str, reduce: bool) -> None:
    make, weights, bias = CLIPS[clip]
    switches = {"reduce_strategy": Reduce} if reduce else {}
    training = Training(net(paddle.optimizer.SGD(0.1, grad_clip=make())), build=strategy(**switches))
    training.step({"X": ROWS[:4]})
    np.testing.assert_allclose(training.value("w")[:, 0], weights, atol=1e-6)
    np.testing.assert_allclose(training.value("b"), [bias, bias], atol=1e-6)


@pytest.mark.parametrize("reduce", [False, True], ids=["AllReduce", "Reduce"])
def test_decay_is_added_once(reduce: bool) -> None:
    sgd = paddle.optimizer.SGD(0.1, weight_decay=paddle.regularizer.L2Decay(0.1))
    training = Training(net(sgd), build=strategy(**({"reduce_strategy": Reduce} if reduce else {})))
    training.step({"X": ROWS[:4]})
    np.testing.assert_allclose(training.value("w")[:, 0], [0.441, 0.43275, 0.4245], atol=1e-6)
    np.testing.assert_allclose(training.value("b"), [-0.0825, -0.0825], atol=1e-6)


def test_without_reduction_each_place_trains_alone() -> None:
    training = Training(net(), build=strategy(reduce_strategy=NoReduce))
    training.step({"X": ROWS[:4]})
    alone = [Training(net(), places=1) for _ in range(2)]
    for i, one in enumerate(alone):
        one.step({"X": ROWS[2 * i : 2 * i + 2]})
        np.testing.assert_array_equal(training.value("w", i), one.value("w"))
    assert (training.value("w", 0) != training.value("w", 1)).any()


def test_a_customized_scale_is_fed_per_place() -> None:
    built = net()
    training = Training(built, build=strategy(gradient_scale_strategy=Customized))
    grad = f"{built.loss.name}@GRAD"
    _loss, seen, w_grad = training.step({"X": ROWS[:4], grad: np.array([0.5, 0.25], np.float32)}, [grad, "w@GRAD"])
    np.testing.assert_array_equal(seen, [0.5, 0.25])
    np.testing.assert_allclose(w_grad[0, 0], 0.5 * 0.09 + 0.25 * 0.99, atol=1e-6)
    with pytest.raises(ValueError, match="is not fed, and gradient_scale_strategy is Customized"):
        training.step({"X": ROWS[:4]})


MOMENTS = {
    "sgd": lambda clip: paddle.optimizer.SGD(0.1, grad_clip=clip),
    "momentum": lambda clip: paddle.optimizer.Momentum(0.1, grad_clip=clip),
    "adamw": lambda clip: paddle.optimizer.AdamW(0.1, weight_decay=0.02, grad_clip=clip),
}


@pytest.mark.parametrize("fused", [False, True], ids=["", "fused"])
@pytest.mark.parametrize("clip", [None, "global"])
@pytest.mark.parametrize("optimizer", MOMENTS)
@pytest.mark.parametrize("places", [2, 3, 4])
def test_reduce_equals_allreduce_bit_for_bit(places: int, optimizer: str, clip: str | None, fused: bool) -> None:
    values = []
    for kind in (static.BuildStrategy.ReduceStrategy.AllReduce, Reduce):
        norm = paddle.nn.ClipGradByGlobalNorm(0.3) if clip else None
        build = strategy(reduce_strategy=kind, fuse_all_optimizer_ops=fused, fuse_broadcast_ops=fused)
        training = Training(net(MOMENTS[optimizer](norm)), places, build)
        losses = [training.step({"X": ROWS[:9]})[0] for _ in range(4)]
        names = sorted(training.scope.local_var_names())
        values.append([*losses, *(training.value(n) for n in names)])
        for replica in range(places):
            np.testing.assert_array_equal(training.value("w", replica), training.value("w"))
    for a, b in zip(*values, strict=True):
        np.testing.assert_array_equal(a, b)


def test_explain_counts_what_the_replicas_exchange() -> None:
    clip = paddle.nn.ClipGradByGlobalNorm(0.3)
    training = Training(net(paddle.optimizer.SGD(0.1, grad_clip=clip)), build=strategy(reduce_strategy=Reduce))
    said = training.compiled.explain()
    report = said.collectives
    assert report is not None
    assert (report.gradients, report.reductions, report.parameters, report.broadcasts) == (2, 1, 2, 2)
    assert (report.shared, report.gatherings) == (2, 1)
    assert report.before == 6
    assert report.after == 4
    assert sorted(report.owners.values()) == [0, 1]
    assert "collectives a step: 6 -> 4" in str(said)
    verdict = next(v for v in said.verdicts if v.name == "fuse_all_reduce_ops")
    # Where sums run beside the backward part, collectives have a size.
    limit = " of at most 25 MB" if devices.cpu_device().deferred else ""
    assert verdict.reason == f"2 gradients go in 1 collectives{limit}: 32 bytes a step."
    assert said.to_dict()["collectives"]["after"] == 4
    training.step({"X": ROWS[:4]})
    group = next(iter(training.exe._replicas.values())).group
    calls = group.calls
    training.step({"X": ROWS[:4]})
    assert group.calls - calls == report.after
