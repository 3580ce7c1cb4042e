"""Optimizers in whole programs: against torch and the published formulas, clipping, decay, rates, and golden numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.nets import state
from tstatic import static
from tstatic.errors import ShapeError

torch = pytest.importorskip("torch")

SIZE, STEPS = 50, 20
START = np.linspace(-1.0, 1.0, SIZE).astype("float32")
GRADS = np.random.default_rng(0).standard_normal((STEPS, SIZE)).astype("float32")


def trained(optimizer: Any, attr: Any = None, steps: int = STEPS) -> np.ndarray[Any, Any]:
    """A parameter after steps whose gradients are exactly what is fed."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), static.scope_guard(static.Scope()):
        g = static.data("g", [SIZE])
        attr = attr or paddle.ParamAttr()
        attr.initializer = paddle.nn.initializer.Assign(START)
        w = static.create_parameter([SIZE], "float32", attr=attr)
        optimizer.minimize(paddle.sum(w * g))
        exe = static.Executor("cpu")
        exe.run(startup)
        for i in range(steps):
            exe.run(main, feed={"g": GRADS[i]})
        return np.array(static.global_scope().find_var(w.name).get_tensor())


def in_torch(make: Callable[[Any], Any]) -> np.ndarray[Any, Any]:
    w = torch.tensor(START.copy(), requires_grad=True)
    optimizer = make([w])
    for g in GRADS:
        w.grad = torch.tensor(g)
        optimizer.step()
    result: np.ndarray[Any, Any] = w.detach().numpy()
    return result


O, T = paddle.optimizer, torch.optim  # noqa: E741
SAME_RULE = {
    "sgd": (lambda: O.SGD(0.1), lambda p: T.SGD(p, 0.1), 1e-6),
    "sgd l2": (lambda: O.SGD(0.1, weight_decay=0.05), lambda p: T.SGD(p, 0.1, weight_decay=0.05), 1e-6),
    "momentum": (lambda: O.Momentum(0.1, 0.9), lambda p: T.SGD(p, 0.1, momentum=0.9), 1e-6),
    "nesterov": (
        lambda: O.Momentum(0.1, 0.9, use_nesterov=True),
        lambda p: T.SGD(p, 0.1, momentum=0.9, nesterov=True),
        1e-6,
    ),
    "momentum l2": (
        lambda: O.Momentum(0.1, 0.9, weight_decay=0.05),
        lambda p: T.SGD(p, 0.1, momentum=0.9, weight_decay=0.05),
        1e-6,
    ),
    "nesterov l2": (
        lambda: O.Momentum(0.1, 0.8, use_nesterov=True, weight_decay=0.05),
        lambda p: T.SGD(p, 0.1, momentum=0.8, weight_decay=0.05, nesterov=True),
        1e-6,
    ),
    "adam": (lambda: O.Adam(0.05), lambda p: T.Adam(p, 0.05), 2e-5),
    "adam l2": (lambda: O.Adam(0.05, weight_decay=0.1), lambda p: T.Adam(p, 0.05, weight_decay=0.1), 2e-5),
    "adamw": (lambda: O.AdamW(0.05, weight_decay=0.1), lambda p: T.AdamW(p, 0.05, weight_decay=0.1), 2e-5),
    "adagrad": (lambda: O.Adagrad(0.1, epsilon=1e-6), lambda p: T.Adagrad(p, 0.1, eps=1e-6), 1e-6),
    "adadelta": (lambda: O.Adadelta(1.0, 1e-6, 0.9), lambda p: T.Adadelta(p, 1.0, 0.9, 1e-6), 1e-6),
}


@pytest.mark.parametrize("name", SAME_RULE)
def test_rules_that_torch_has_too(name: str) -> None:
    make, twin, rtol = SAME_RULE[name]
    assert np.allclose(trained(make()), in_torch(twin), rtol=rtol, atol=rtol)


def _adamax(lr: float, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> np.ndarray[Any, Any]:
    p, m, n = START.astype("float64"), np.zeros(SIZE), np.zeros(SIZE)
    for t, g in enumerate(GRADS, 1):
        m = b1 * m + (1 - b1) * g
        n = np.maximum(np.abs(g), b2 * n + eps)
        p = p - lr / (1 - b1**t) * m / n
    return p


def _rmsprop(lr: float, rho: float, eps: float, momentum: float, centered: bool) -> np.ndarray[Any, Any]:
    p, s, a, v = START.astype("float64"), np.zeros(SIZE), np.zeros(SIZE), np.zeros(SIZE)
    for g in GRADS:
        s = rho * s + (1 - rho) * g * g
        a = rho * a + (1 - rho) * g
        v = momentum * v + lr * g / np.sqrt(s - centered * a * a + eps)
        p = p - v
    return p


def _lamb(
    lr: float, decay: float, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-6, adapts: bool = True
) -> np.ndarray[Any, Any]:
    p, m, v = START.astype("float64"), np.zeros(SIZE), np.zeros(SIZE)
    for t, g in enumerate(GRADS, 1):
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g * g
        r = m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps) + decay * p
        p = p - lr * (np.linalg.norm(p) / np.linalg.norm(r) if adapts else 1.0) * r
    return p


def _momentum(lr: float, mu: float, decay: float, rescale: float, nesterov: bool) -> np.ndarray[Any, Any]:
    p, v = START.astype("float64"), np.zeros(SIZE)
    for raw in GRADS:
        g = rescale * raw + decay * p
        v = mu * v + g
        p = p - lr * (g + mu * v if nesterov else v)
    return p


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize(("decay", "rescale"), [(0.0, 1.0), (0.3, 1.0), (0.0, 0.25), (0.3, 0.25)])
def test_momentum_with_decay_and_rescaled_gradients(decay: float, rescale: float, nesterov: bool) -> None:
    one = O.Momentum(0.1, 0.9, use_nesterov=nesterov, weight_decay=decay or None, rescale_grad=rescale)
    assert np.allclose(trained(one), _momentum(0.1, 0.9, decay, rescale, nesterov), rtol=1e-5, atol=1e-6)


def test_rules_by_their_formulas() -> None:
    assert np.allclose(trained(O.Adamax(0.05)), _adamax(0.05), rtol=2e-5, atol=2e-5)
    assert np.allclose(trained(O.RMSProp(0.01)), _rmsprop(0.01, 0.95, 1e-6, 0.0, False), rtol=1e-5, atol=1e-6)
    centered = O.RMSProp(0.01, rho=0.9, epsilon=1e-3, momentum=0.8, centered=True)
    assert np.allclose(trained(centered), _rmsprop(0.01, 0.9, 1e-3, 0.8, True), rtol=1e-5, atol=1e-6)
    assert np.allclose(trained(O.Lamb(0.01, lamb_weight_decay=0.02)), _lamb(0.01, 0.02), rtol=2e-5, atol=2e-5)


def test_lamb_scales_steps_without_decay_only_if_it_always_adapts() -> None:
    for options in ({"lamb_weight_decay": 0.0}, {"exclude_from_weight_decay_fn": lambda p: True}):
        for always in (False, True):
            got = trained(O.Lamb(0.01, always_adapt=always, **options))
            assert np.allclose(got, _lamb(0.01, 0.0, adapts=always), rtol=2e-5, atol=2e-5)
    assert np.allclose(trained(O.Lamb(0.01, 0.02)), _lamb(0.01, 0.02), rtol=2e-5, atol=2e-5)


def test_a_parameters_own_settings_beat_the_optimizers() -> None:
    half = trained(O.SGD(0.1), paddle.ParamAttr(learning_rate=0.5))
    assert np.allclose(half, trained(O.SGD(0.05)), rtol=1e-6, atol=1e-7)
    own = trained(O.SGD(0.1, weight_decay=9.0), paddle.ParamAttr(regularizer=paddle.regularizer.L2Decay(0.05)))
    assert np.allclose(own, trained(O.SGD(0.1, weight_decay=0.05)), rtol=1e-6, atol=1e-7)


def test_l1_decay_adds_the_sign() -> None:
    got = trained(O.SGD(0.1, weight_decay=paddle.regularizer.L1Decay(0.3)), steps=1)
    assert np.allclose(got, START - 0.1 * (GRADS[0] + 0.3 * np.sign(START)), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", ["value", "norm", "global"])
def test_clipping_comes_before_decay(kind: str) -> None:
    g = GRADS[0]
    clip, clipped = {
        "value": (paddle.nn.ClipGradByValue(0.3, -0.2), np.clip(g, -0.2, 0.3)),
        "norm": (paddle.nn.ClipGradByNorm(0.5), g * 0.5 / np.linalg.norm(g)),
        "global": (paddle.nn.ClipGradByGlobalNorm(0.5), g * 0.5 / np.linalg.norm(g)),
    }[kind]
    got = trained(O.SGD(0.1, weight_decay=0.05, grad_clip=clip), steps=1)
    assert np.allclose(got, START - 0.1 * (clipped + 0.05 * START), rtol=1e-5, atol=1e-6)
    free = trained(O.SGD(0.1, grad_clip=clip), paddle.ParamAttr(need_clip=False), steps=1)
    assert np.allclose(free, START - 0.1 * g, rtol=1e-6, atol=1e-6)
    kept = trained(O.SGD(0.1, grad_clip=paddle.nn.ClipGradByGlobalNorm(1e6)), steps=1)
    assert np.allclose(kept, START - 0.1 * g, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_single_number_is_clipped_by_the_norm_of_all(dtype: str) -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), static.scope_guard(static.Scope()):
        x = static.data("x", [3], dtype)
        start = (np.array(0.5, dtype), np.array([1.0, -2.0, 3.0], dtype))
        scale, weight = (
            static.create_parameter(
                list(v.shape), dtype, attr=paddle.ParamAttr(initializer=paddle.nn.initializer.Assign(v))
            )
            for v in start
        )
        clip = paddle.nn.ClipGradByGlobalNorm(0.7)
        O.SGD(0.1, grad_clip=clip).minimize(paddle.sum(weight * x) + scale * 4.0)
        exe = static.Executor("cpu")
        exe.run(startup)
        value = np.array([2.0, -1.0, 0.5], dtype)
        exe.run(main, feed={"x": value})
        got = [np.array(static.global_scope().find_var(v.name).get_tensor()) for v in (scale, weight)]
    factor = 0.7 / np.sqrt(4.0**2 + np.sum(value**2))
    assert got[0].shape == ()
    assert np.allclose(got[0], 0.5 - 0.1 * 4.0 * factor, rtol=1e-6)
    assert np.allclose(got[1], start[1] - 0.1 * value * factor, rtol=1e-6)


CLIP = paddle.fluid.clip


def _updates(set_clips: Callable[[Any], None], **options: Any) -> dict[str, Any]:
    """What one SGD step takes off the parameters u, v and w, whose gradients are 3, 4 and 12."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), static.scope_guard(static.Scope()):
        u, v, w = (static.create_parameter([1], "float32", name=n) for n in "uvw")
        loss = paddle.sum(3 * u + 4 * v + 12 * w)
        set_clips(main)
        O.SGD(1.0, **options).minimize(loss)
        exe = static.Executor("cpu")
        exe.run(startup)
        before = state(static.global_scope(), main)
        exe.run(main)
        after = state(static.global_scope(), main)
    return {n: round(float(before[n][0] - after[n][0]), 3) for n in "uvw"}


def test_set_gradient_clip_clips_the_listed_parameters_alone() -> None:
    value = CLIP.GradientClipByValue(1.0)
    assert _updates(lambda _: CLIP.set_gradient_clip(value, ["u"])) == {"u": 1, "v": 4, "w": 12}
    # A later call wins, and a Parameter is as good as its name.
    assert _updates(
        lambda main: (
            CLIP.set_gradient_clip(value),
            CLIP.set_gradient_clip(CLIP.GradientClipByValue(2.0), [main.global_block().var("w")], main),
            CLIP.set_gradient_clip(None, ["v"]),
        )
    ) == {"u": 1, "v": 4, "w": 2}
    own = _updates(lambda _: CLIP.set_gradient_clip(value), grad_clip=CLIP.GradientClipByValue(2.5))
    assert own == {"u": 2.5, "v": 2.5, "w": 2.5}


def test_a_clip_of_a_param_attr_clips_its_parameter() -> None:
    attr = paddle.ParamAttr(name="w", gradient_clip=CLIP.GradientClipByValue(0.5))
    w = static.create_parameter([1], "float32", attr=attr)
    v = static.create_parameter([1], "float32", attr=paddle.ParamAttr(name="v", gradient_clip=None))
    O.SGD(1.0).minimize(paddle.sum(3 * w + 3 * v))
    exe = static.Executor("cpu")
    exe.run(static.default_startup_program())
    main = static.default_main_program()
    before = state(static.global_scope(), main)
    exe.run(main)
    after = state(static.global_scope(), main)
    assert [float(before[n][0] - after[n][0]) for n in "wv"] == pytest.approx([0.5, 3.0])
    with pytest.raises(paddle.errors.ProgramTypeError, match="'gradient_clip' in optimizer must be"):
        paddle.ParamAttr(gradient_clip=1.0)


def test_old_names_of_optimizers_take_old_arguments() -> None:
    old = paddle.fluid.optimizer
    decay = paddle.regularizer.L2Decay(0.05)
    assert np.array_equal(
        trained(old.MomentumOptimizer(0.1, 0.9, regularization=decay, flatten_param_grads=True)),
        trained(O.Momentum(0.1, 0.9, weight_decay=decay)),
    )
    plain, decayed = (trained(old.LambOptimizer(0.01, regularization=r), steps=3) for r in (None, decay))
    assert np.array_equal(plain, trained(O.Lamb(0.01), steps=3))
    assert not np.array_equal(plain, decayed)
    with pytest.raises(TypeError, match=r"AdamOptimizer\(\) .*lazy_mode_"):
        old.AdamOptimizer(0.1, lazy_mode_=True)


def test_clips_by_the_global_norm_share_a_norm_per_group() -> None:
    by_norm = CLIP.GradientClipByGlobalNorm
    assert _updates(lambda _: CLIP.set_gradient_clip(by_norm(2.5), ["u", "v"])) == {"u": 1.5, "v": 2, "w": 12}
    assert _updates(
        lambda _: (
            CLIP.set_gradient_clip(by_norm(2.5), ["u", "v"]),
            CLIP.set_gradient_clip(by_norm(6.0, group_name="other"), ["w"]),
        )
    ) == {"u": 1.5, "v": 2, "w": 6}
    with pytest.raises(paddle.errors.ProgramError, match="'clip_norm' of a same group"):
        _updates(lambda _: [CLIP.set_gradient_clip(by_norm(n), [p]) for n, p in ((1.0, "u"), (2.0, "w"))])


def test_set_gradient_clip_without_effect_warns_and_wrong_lists_change_nothing() -> None:
    value = CLIP.GradientClipByValue(1.0)
    with pytest.warns(UserWarning, match="after the network is built"):
        CLIP.set_gradient_clip(value)
    w = static.create_parameter([1], "float32", name="w")
    x = static.data("x", [1])
    for wrong in ([w, "gone"], [w, x], [w, 3]):
        with pytest.raises((paddle.errors.NotFoundError, paddle.errors.ProgramTypeError)):
            CLIP.set_gradient_clip(value, wrong)
        assert w.gradient_clip_attr is None
    O.SGD(1.0).minimize(paddle.sum(w * x))
    with pytest.warns(UserWarning, match="minimize came before"):
        CLIP.set_gradient_clip(value, ["w"])
    assert static.default_main_program().clone().all_parameters()[0].gradient_clip_attr is value


GOLDEN = {
    "plain": (lambda: O.SGD(0.1), 1, [0.446, 0.43775, 0.4295], None),
    "three steps": (lambda: O.SGD(0.1), 3, [0.367335, 0.347796, 0.328257], None),
    "clip by norm": (
        lambda: O.SGD(0.1, grad_clip=paddle.nn.ClipGradByNorm(0.5)), 1, [0.482396, 0.479706, 0.477017], -0.035355,
    ),
    "clip by global norm": (
        lambda: O.SGD(0.1, grad_clip=paddle.nn.ClipGradByGlobalNorm(0.5)), 1, [0.485989, 0.483848, 0.481708], -0.021406,
    ),
    "l2": (lambda: O.SGD(0.1, weight_decay=paddle.regularizer.L2Decay(0.1)), 1, [0.441, 0.43275, 0.4245], -0.0825),
}  # fmt: skip


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_numbers_of_the_reference(name: str) -> None:
    make, steps, weights, bias = GOLDEN[name]
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = static.data("x", [None, 3])
        half = paddle.nn.initializer.Constant(0.5)
        loss = paddle.mean(paddle.square(static.nn.fc(x, 2, weight_attr=paddle.ParamAttr(initializer=half))))
        make().minimize(loss)
    exe = static.Executor("cpu")
    exe.run(startup)
    for _ in range(steps):
        exe.run(main, feed={"x": (np.arange(12).reshape(4, 3) * 0.1).astype("float32")})
    values = state(static.global_scope(), main)
    assert np.allclose(values["fc_0.w_0"], np.array(weights)[:, None].repeat(2, 1), atol=1e-6)
    if bias is not None:
        assert np.allclose(values["fc_0.b_0"], bias, atol=1e-6)


def test_minimize_appends_in_name_order_and_returns_program_order() -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = static.data("x", [None, 3])
        h = static.nn.fc(x, 2, weight_attr="zz", bias_attr="aa")
        ops, pairs = O.SGD(0.1).minimize(paddle.mean(h))
    assert [op.input("Param")[0] for op in ops] == ["aa", "zz"]
    assert [p.name for p, _ in pairs] == ["zz", "aa"]
    assert all(op.attr("op_role") == 2 for op in ops)


def test_set_lr_reaches_the_next_run() -> None:
    optimizer = O.SGD(0.5)
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        w = static.create_parameter([1], "float32", default_initializer=paddle.nn.initializer.Constant(0.0))
        optimizer.minimize(paddle.sum(w))
    exe = static.Executor("cpu")
    exe.run(startup)
    assert exe.run(main, fetch_list=[w])[0] == -0.5
    optimizer.set_lr(0.25)
    assert optimizer.get_lr() == 0.25
    assert exe.run(main, fetch_list=[w])[0] == -0.75


def test_a_loss_of_several_elements_is_refused_before_anything_is_appended() -> None:
    out = static.nn.fc(static.data("x", [None, 2]), 3)
    program = static.default_main_program()
    before = str(program)
    with pytest.raises(ShapeError, match=r"number of elements of loss should be 1.*\(-1, 3\).*paddle.mean") as caught:
        paddle.optimizer.SGD(0.1).minimize(out)
    assert isinstance(caught.value, AssertionError), "scripts catch the class that Paddle raises"
    assert str(program) == before
    assert len(paddle.optimizer.SGD(0.1).minimize(paddle.reshape(paddle.mean(out), [1, 1]))[1]) == 2


def test_settings_may_be_numpy_numbers() -> None:
    half = np.float32(0.5)
    rule = paddle.optimizer.Adam(0.1, beta1=half, beta2=np.float64(0.25), epsilon=half)
    assert (rule._beta1, rule._beta2, rule._epsilon) == (0.5, 0.25, 0.5)
    assert paddle.optimizer.Adadelta(0.1, rho=half)._rho == 0.5
    assert paddle.nn.ClipGradByGlobalNorm(half).clip_norm == 0.5
    assert paddle.nn.ClipGradByNorm(np.int64(2)).clip_norm == 2.0
    assert (paddle.nn.ClipGradByValue(half).min, paddle.nn.ClipGradByValue(half).max) == (-0.5, 0.5)
    for wrong in (1.0, -0.1, float("nan"), "0.5", True, None):
        with pytest.raises(ValueError, match="'beta1' "):
            paddle.optimizer.Adam(0.1, beta1=wrong)
    for wrong in (0.0, -1.0, float("nan"), "1", True, None):
        with pytest.raises(ValueError, match="'clip_norm' "):
            paddle.nn.ClipGradByNorm(wrong)
