"""Calls of 1.x keywords, orders and names give the numbers that Paddle 1.8.5 and 2.6.2 printed on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import fluid, static
from tstatic.errors import PlaceError, ProgramError, UnsupportedError
from tstatic.incubate.nn import functional as fused

L = fluid.layers


def const(value: Any, dtype: str = "float32") -> Any:
    return L.assign(np.array(value, dtype))


def run(made: Any, feed: dict[str, Any] | None = None) -> list[np.ndarray[Any, Any]]:
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    fetched = list(made) if isinstance(made, list | tuple) else [made]
    return [np.asarray(one) for one in exe.run(feed=feed or {}, fetch_list=fetched, return_numpy=False)]


IMAGE = np.arange(1, 37).reshape(2, 1, 3, 6).astype("float32")
REGIONS = [[0, 0, 3, 2], [1, 1, 4, 2], [0, 0, 5, 2]]
MAP = [[[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]]]
ROWS = [[[0.5, -1.0, 2.0, 0.25], [1.0, 0.0, -0.5, 1.5]]]
TENTHS = np.arange(12) / 10.0


def x() -> Any:
    return const(ROWS)


def scale() -> Any:
    return const([1.0, 2.0, 1.0, 1.0])


def shift() -> Any:
    return const([0.0, 0.0, 1.0, 0.0])


# ------------------------------------------------------------------------------------------------- Paddle 1.8.5 printed these
OLDER: dict[str, tuple[Callable[[], Any], Any]] = {
    "sums(input)": (lambda: L.sums(input=[const([1.0, 2.0]), const([3.0, 4.0])]), [4, 6]),
    "gather_nd(input)": (lambda: L.gather_nd(input=const([[1.0, 2.0], [3.0, 4.0]]), index=const([[1, 0]], "int64")), [3]),
    "cross(input, other, dim)": (
        lambda: L.cross(input=const([[1, 2, 3], [1, 2, 3], [0, 1, 0]]), other=const([[4, 5, 7], [1, 1, 1], [2, 2, 2]]), dim=1),
        [[-1, 5, -3], [-1, 2, -1], [2, 0, -2]],
    ),
    "cross of the first axis of 3": (lambda: L.cross(const([[1.0, 2.0, 3.0]]), const([[4.0, 5.0, 7.0]])), [[-1, 5, -3]]),
    "tril(input)": (lambda: L.tril(input=const([[1.0, 2.0], [3.0, 4.0]])), [[1, 0], [3, 4]]),
    "triu(input)": (lambda: L.triu(input=const([[1.0, 2.0], [3.0, 4.0]])), [[1, 2], [0, 4]]),
    "kron(out)": (lambda: L.kron(const([[1.0, 2.0]]), const([[3.0, 4.0]]), L.create_tensor("float32")), [[3, 4, 6, 8]]),
    "log1p(out)": (lambda: L.log1p(const([1.0, 2.0]), L.create_tensor("float32")), [0.6931471825, 1.0986123085]),
    "roi_align(rois_lod)": (
        lambda: L.roi_align(const(IMAGE), const(REGIONS), 2, 2, 1.0, -1, None, const([0, 1, 3], "int64")),
        [[[[4.75, 6.25], [10.75, 12.25]]], [[[28.25, 29.75], [31.25, 32.75]]],
         [[[23.249998, 25.749998], [29.249998, 31.749998]]]],
    ),
    "roi_pool(rois_lod)": (
        lambda: L.roi_pool(const(IMAGE), const(REGIONS), 2, 2, 1.0, const([0, 1, 3], "int64")),
        [[[[8, 10], [14, 16]]], [[[27, 29], [33, 35]]], [[[27, 30], [33, 36]]]],
    ),
    "full": (lambda: L.full([2], 1.5), [1.5, 1.5]),
    "full of integers": (lambda: L.full([2], 1.5, dtype="int64"), [1, 1]),
    "log_softmax": (
        lambda: L.log_softmax(const([[0.0, 1.0], [2.0, 5.0]])),
        [[-1.3132616281, -0.3132616580], [-3.0485873222, -0.0485873446]],
    ),
    "log_softmax(axis, dtype)": (
        lambda: L.log_softmax(const([[0.0, 1.0], [2.0, 5.0]]), axis=0, dtype="float64"),
        [[-2.1269280110, -4.0181499279], [-0.1269280110, -0.0181499279]],
    ),
    "npair_loss": (
        lambda: L.npair_loss(const([[1.0, 0.5], [0.0, 2.0]]), const([[1.0, 0.25], [0.5, 0.0]]), const([0.0, 1.0])), [0.7030293941],
    ),
    "temporal_shift": (
        lambda: L.temporal_shift(L.reshape(const(np.arange(8)), [2, 4, 1, 1]), 2, 0.25),
        np.reshape([0, 5, 2, 3, 0, 0, 6, 7], [2, 4, 1, 1]),
    ),
    "affine_grid": (
        lambda: L.affine_grid(const(MAP), [1, 1, 2, 3]),
        [[[[-0.5, -1], [0.5, -1], [1.5, -1]], [[-0.5, 1], [0.5, 1], [1.5, 1]]]],
    ),
    "interpolate": (
        lambda: L.interpolate(L.reshape(const([1.0, 2.0, 3.0, 4.0]), [1, 1, 2, 2]), out_shape=[3, 3]),
        [[[[1, 1.5, 2], [2, 2.5, 3], [3, 3.5, 4]]]],
    ),
    "bmm": (lambda: L.bmm(const([[[1.0, 2.0]]]), const([[[3.0], [4.0]]])), [[[11]]]),
    "hash of one word": (
        lambda: L.hash(const([[1], [2], [3], [99]], "int64"), 1000, 4),
        [[[269], [609], [713], [897]], [[360], [419], [765], [578]], [[465], [822], [547], [999]], [[267], [610], [172], [763]]],
    ),
    "hash of five words": (
        lambda: L.hash(const(np.arange(10).reshape(2, 5), "int64"), 10**9, 2),
        [[[401366104], [797069315]], [[108499197], [921942885]]],
    ),
    "hash of negative numbers": (
        lambda: L.hash(const(np.arange(18).reshape(2, 9) - 4, "int64"), 10**9, 3),
        [[[653813480], [80400015], [562059505]], [[929751824], [668410725], [324050418]]],
    ),
    "Normal.entropy": (lambda: L.Normal(0.0, 3.0).entropy(), [2.5175509453]),
    "Normal.entropy of a list": (lambda: L.Normal([0.0, 1.0], [1.0, 2.0]).entropy(), [1.4189385176, 2.1120858192]),
    "Normal.log_prob": (lambda: L.Normal(0.0, 3.0).log_prob(const([0.5])), [-2.0314397812]),
    "Normal.kl_divergence": (lambda: L.Normal(0.0, 3.0).kl_divergence(L.Normal(1.0, 2.0)), [0.3445349038]),
    "Uniform.entropy": (lambda: L.Uniform(0.0, 3.0).entropy(), [1.0986123085]),
    "Uniform.log_prob": (lambda: L.Uniform(0.0, 3.0).log_prob(const([0.5])), [-1.0986123085]),
    "Uniform.log_prob outside": (lambda: L.Uniform(0.0, 3.0).log_prob(const([5.0])), [-np.inf]),
    "Categorical.entropy": (lambda: L.Categorical(const([[0.1, 0.2, 0.7]])).entropy(), [[1.0614306927]]),
    "Categorical.kl_divergence": (
        lambda: L.Categorical(const([0.6, 0.4])).kl_divergence(L.Categorical(const([0.2, 0.4]))), [0.0199336633],
    ),
    "MultivariateNormalDiag.entropy": (
        lambda: L.MultivariateNormalDiag(const([0.3, 0.5]), const([[0.4, 0], [0, 0.5]])).entropy(), [2.0331580639],
    ),
    "MultivariateNormalDiag.kl_divergence": (
        lambda: L.MultivariateNormalDiag(const([0.3, 0.5]), const([[0.4, 0], [0, 0.5]])).kl_divergence(
            L.MultivariateNormalDiag(const([0.2, 0.4]), const([[0.3, 0], [0, 0.4]]))
        ),
        [0.0654205084],
    ),
}  # fmt: skip
# ------------------------------------------------------- 2.6.2 printed these, from the functions where its CPU has no fused kernel
NEWER: dict[str, tuple[Callable[[], Any], Any]] = {
    "signal.frame": (
        lambda: paddle.signal.frame(const(np.arange(8)), 4, 2), [[0, 2, 4], [1, 3, 5], [2, 4, 6], [3, 5, 7]],
    ),
    "signal.frame(axis=0)": (
        lambda: paddle.signal.frame(const(np.arange(8)), 4, 2, axis=0), [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7]],
    ),
    "signal.overlap_add": (
        lambda: paddle.signal.overlap_add(const(np.arange(16).reshape(8, 2)), 4), [0, 2, 4, 6, 9, 13, 17, 21, 9, 11, 13, 15],
    ),
    "signal.overlap_add(axis=0)": (
        lambda: paddle.signal.overlap_add(const(np.arange(16).reshape(2, 8)), 2, axis=0), [0, 1, 10, 12, 14, 16, 18, 20, 14, 15],
    ),
    "cholesky": (lambda: paddle.cholesky(const([[4.0, 2.0], [2.0, 3.0]])), [[2, 0], [1, 1.4142135382]]),
    "eigvalsh": (lambda: paddle.eigvalsh(const([[4.0, 2.0], [2.0, 3.0]])), [1.4384472370, 5.5615530014]),
    "continuous_value_model": (
        lambda: static.nn.continuous_value_model(const([[1.0, 2.0, 3.0]]), const([[1.0, 1.0]])), [[0.6931471825, 0.4054651260, 3]],
    ),
    "fused_matmul_bias": (
        lambda: fused.fused_matmul_bias(x(), const(TENTHS.reshape(4, 3))), [[[1.125, 1.3, 1.475], [1.05, 1.25, 1.45]]],
    ),
    "fused_linear": (
        lambda: fused.fused_linear(x(), const(TENTHS.reshape(4, 3)), const([1.0, 2.0, 3.0])),
        [[[2.125, 3.3, 4.475], [2.05, 3.25, 4.45]]],
    ),
    "fused_linear(transpose_weight)": (
        lambda: fused.fused_linear(x(), const(TENTHS.reshape(4, 3).T), const([1.0, 2.0, 3.0]), True),
        [[[2.125, 3.3, 4.475], [2.05, 3.25, 4.45]]],
    ),
    "fused_linear_activation": (
        lambda: fused.fused_linear_activation(x(), const(TENTHS.reshape(4, 3)), const([1.0, 2.0, 3.0]), activation="gelu"),
        [[[2.0893139839, 3.2984044552, 4.4749827385], [2.0086262226, 3.2481245995, 4.4499807358]]],
    ),
    "fused_dropout_add": (lambda: fused.fused_dropout_add(x(), x(), p=0.0), 2 * np.array(ROWS)),
    "fused_bias_dropout_residual_layer_norm": (
        lambda: fused.fused_bias_dropout_residual_layer_norm(x(), x(), const([1, 0, 0, 1]), scale(), shift(), dropout_rate=0.0),
        [[[0.2891571522, -3.1228971481, 2.2144598961, 0.0578314289],
          [0.7276060581, -1.4552121162, -0.2126767635, 1.2126767635]]],
    ),
    "fused_feedforward": (
        lambda: fused.fused_feedforward(
            x(), const(TENTHS.reshape(4, 3)), const(TENTHS.reshape(3, 4)), dropout1_rate=0.0, dropout2_rate=0.0
        ),
        [[[-0.4201934338, -1.3128535748, 1.4133785963, 0.3196688294],
          [-0.0660815015, -0.7268964648, -0.8590594530, 1.6520372629]]],
    ),
    "fused_feedforward(pre_layer_norm)": (
        lambda: fused.fused_feedforward(
            x(), const(TENTHS.reshape(4, 3)), const(TENTHS.reshape(3, 4)), const([1.0, 2.0, 3.0]), ln1_scale=scale(),
            dropout1_rate=0.0, dropout2_rate=0.0, activation="gelu", pre_layer_norm=True,
        ),
        [[[3.2892799377, 2.2981564999, 5.8070335388, 4.5659103394], [4.0484018326, 3.6078686714, 3.6673359871, 6.2268028259]]],
    ),
    "fused_multi_head_attention": (
        lambda: fused.fused_multi_head_attention(
            x(), const(np.arange(48).reshape(3, 2, 2, 4) / 50.0), const(np.arange(16).reshape(4, 4) / 10.0), dropout_rate=0.0,
            attn_dropout_rate=0.0,
        ),
        [[[-0.6036976576, -1.2525755167, 1.3426899910, 0.5135822296],
          [-0.3614243865, -0.7228022218, -0.6324343085, 1.7166604996]]],
    ),
    "fused_layer_norm": (
        lambda: fused.fused_layer_norm(x(), scale(), shift(), 1e-5, begin_norm_axis=2),
        [[[0.0586207770, -2.6965558529, 2.4655194283, -0.1758623272],
          [0.6324504614, -1.2649009228, -0.2649009228, 1.2649009228]]],
    ),
    "fused_layer_norm(residual)": (
        lambda: fused.fused_layer_norm(x(), scale(), shift(), 1e-5, 0.5, 2, const([1.0, 0.0, 0.0, 1.0]), x())[0],
        [[[0.3604196906, -3.2248077393, 2.1191978455, 0.1327861995],
          [0.7495303154, -1.4990606308, -0.1992485523, 1.1992485523]]],
    ),
    "fused_layer_norm without a norm": (
        lambda: fused.fused_layer_norm(x(), None, None, 1e-5, 0.5, 2, const([1.0, 0.0, 0.0, 1.0]), x()),
        [[[1.75, -1.5, 3.0, 1.375], [2.5, 0.0, -0.75, 3.25]]],
    ),
    "fused_rms_norm": (
        lambda: fused.fused_rms_norm(x(), scale(), shift(), 1e-5, 2),
        [[[0.4338592887, -1.7354371548, 2.7354371548, 0.2169296443], [1.0690388680, 0.0, 0.4654805660, 1.6035583019]]],
    ),
    "fused_rms_norm(residual)": (
        lambda: fused.fused_rms_norm(x(), scale(), shift(), 1e-5, 2, const([1.0, 0.0, 0.0, 1.0]), x())[0],
        [[[0.7807194591, -1.5614389181, 2.5614390373, 0.5855395794], [1.1766959429, 0.0, 0.6077680588, 1.5689278841]]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [*OLDER, *NEWER])
def test_numbers_are_those_that_paddle_printed(name: str) -> None:
    call, expected = {**OLDER, **NEWER}[name]
    found = run(call())[0]
    wanted = np.array(expected)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=1e-6)


# ------------------------------------------------------------------------------------------------------ effects and refusals
def test_out_is_written_too() -> None:
    outs = [L.create_tensor("float32") for _ in range(3)]
    L.kron(const([1.0]), const([2.0]), out=outs[0])
    L.log1p(const([0.0]), out=outs[1])
    L.full([1], 7.0, out=outs[2])
    assert [one.item() for one in run(outs)] == [2.0, 0.0, 7.0]


def test_an_error_clip_cuts_the_gradient_of_its_variable() -> None:
    """1.8.5 trains to these numbers: gradients of 2 and -3 are cut to 0.3 and -0.1 before they reach ``w``."""
    fed = fluid.data("x", [2], "float32")
    w = L.create_parameter([2], "float32", name="w", default_initializer=fluid.initializer.Constant(1.0))
    y = w * fed
    y._set_error_clip(fluid.clip.ErrorClipByValue(max=0.3, min=-0.1))
    fluid.optimizer.SGD(1.0).minimize(L.reduce_sum(y * const([2.0, -3.0])))
    np.testing.assert_allclose(run(w, {"x": np.array([10.0, 100.0], "float32")})[0], [-2.0, 11.0], rtol=1e-6)


def test_an_error_clip_can_be_taken_back_and_is_checked() -> None:
    y = const([1.0])
    y._set_error_clip(fluid.clip.ErrorClipByValue(max=0.3))
    y._set_error_clip(None)
    assert y.block.program.error_clips == {}
    with pytest.raises(ProgramError, match="min <= max"):
        fluid.clip.ErrorClipByValue(max=-1.0)


def test_gradients_are_counted() -> None:
    """1.8.5 counts 0, 1, 2."""
    program = static.default_main_program()
    w = L.create_parameter([2], "float32")
    loss = L.reduce_sum(w)
    counts = [program._appending_grad_times]
    fluid.backward.append_backward(loss)
    counts.append(program._appending_grad_times)
    fluid.gradients(loss, w)
    assert [*counts, program._appending_grad_times] == [0, 1, 2]


def test_regularization_is_appended_to_gradients() -> None:
    """1.8.5 gives 5: the slope 4 of ``w * w`` at 2, and half of ``w``."""
    w = L.create_parameter([2], "float32", default_initializer=fluid.initializer.Constant(2.0))
    pairs = fluid.backward.append_backward(L.reduce_sum(w * w))
    pairs = fluid.optimizer.append_regularization_ops(pairs, fluid.regularizer.L2Decay(0.5))
    np.testing.assert_allclose(run(pairs[0][1])[0], [5.0, 5.0])


def test_initializers_take_the_arguments_of_their_era() -> None:
    new, old = paddle.nn.initializer.Normal(1.0, 2.0, "name"), fluid.initializer.Normal(1.0, 2.0, 3)
    assert (new.mean, new.std, new.seed) == (1.0, 2.0, 0)
    assert (old.mean, old.std, old.seed) == (1.0, 2.0, 3)
    assert isinstance(fluid.initializer.TruncatedNormal(loc=1.0, scale=2.0), paddle.nn.initializer.TruncatedNormal)
    assert fluid.initializer.Uniform(0.0, 1.0, 5).seed == 5
    assert paddle.nn.initializer.Uniform(0.0, 1.0, "name").seed == 0
    with pytest.raises(TypeError, match="mean"):
        fluid.initializer.Normal(mean=1.0)  # type: ignore[call-arg]


def test_optimizers_take_the_order_of_1x() -> None:
    decay = fluid.regularizer.L2Decay(0.1)
    for made in (
        fluid.optimizer.Adam(0.1, 0.9, 0.999, 1e-8, None, decay, None, "adam", True),
        fluid.optimizer.Momentum(0.1, 0.9, None, False, decay, None, "momentum"),
        fluid.optimizer.Lamb(0.1, 0.01, 0.9, 0.999, 1e-6, None, decay, None, None, "lamb"),
        fluid.optimizer.SGD(0.1, None, decay, None, "sgd"),
        fluid.optimizer.Optimizer(0.1, parameter_list=[], regularization=decay),
    ):
        assert made.regularization is decay
        assert made._name in ("adam", "momentum", "lamb", "sgd", None)


def test_batch_samplers_of_1x_take_numbers_second() -> None:
    assert list(fluid.io.BatchSampler(None, [3, 1, 2], False, 2)) == [[3, 1], [2]]
    assert len(fluid.io.BatchSampler(indices=[3, 1, 2], batch_size=2, drop_last=True)) == 1
    assert sorted(n for batch in fluid.io.BatchSampler(indices=[3, 1, 2], shuffle=True) for n in batch) == [1, 2, 3]
    with pytest.raises(AssertionError, match="indices"):
        fluid.io.BatchSampler(range(3), [0, 1])


def test_samples_have_the_shapes_of_1x() -> None:
    """Two plain numbers give the shape that was asked for; otherwise the parameters' shape follows it."""
    made = [
        L.Normal(0.0, 3.0).sample([2, 5], seed=3), L.Normal([0.0, 1.0], [1.0, 2.0]).sample([3]), L.Uniform(0.0, 3.0).sample([3, 2]),
    ]  # fmt: skip
    found = run(made)
    assert [one.shape for one in found] == [(2, 5), (3, 2), (3, 2)]
    assert 0.0 <= found[2].min() <= found[2].max() < 3.0


def test_a_variable_is_loaded_whenever_the_program_runs(tmp_path: Path) -> None:
    w = L.create_parameter([2], "float32", default_initializer=fluid.initializer.Constant(1.0))
    L.load(w, str(tmp_path / "w"))
    from tstatic.formats import files, paddle_tensors

    files.write({tmp_path / "w": paddle_tensors.encode([np.array([2.5, 3.5], "float32")])})
    np.testing.assert_array_equal(run(w)[0], [2.5, 3.5])


def test_rows_behind_the_end_of_a_sequence_get_no_attention() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.random((2, 1, 3, 4)).astype("float32") for _ in range(3))
    made = fused.variable_length_memory_efficient_attention(
        const(q), const(k), const(v), const([[3], [2]], "int32"), const([[3], [2]], "int32"), causal=True
    )
    scores = q @ k.swapaxes(-1, -2) / 2.0
    scores = np.where(np.tril(np.ones((3, 3))) > 0, scores, -np.inf)
    scores[1, :, :, 2:] = -np.inf
    weights = np.exp(scores)
    wanted = weights / weights.sum(-1, keepdims=True) @ v
    wanted[1, :, 2:] = 0.0
    np.testing.assert_allclose(run(made)[0], wanted, rtol=1e-5)


def test_rotary_positions_turn_pairs() -> None:
    """Turning keeps the length of each pair, and the first position as it is."""
    q = np.arange(16).reshape(1, 2, 2, 4).astype("float32")
    turned, k, v = fused.fused_rotary_position_embedding(const(q))
    assert (k, v) == (None, None)
    found = run(turned)[0]
    np.testing.assert_allclose(found[:, 0], q[:, 0])
    np.testing.assert_allclose(
        np.hypot(found[..., ::2], found[..., 1::2]), np.hypot(q[..., ::2], q[..., 1::2]), rtol=1e-5
    )
    angle = 10000.0**-0.5
    np.testing.assert_allclose(
        found[0, 1, 0, 2], q[0, 1, 0, 2] * np.cos(angle) - q[0, 1, 0, 3] * np.sin(angle), rtol=1e-5
    )
    half, _, _ = fused.fused_rotary_position_embedding(
        const(q), sin=const(np.ones((2, 4))), cos=const(np.zeros((2, 4))), use_neox_rotary_style=False
    )
    np.testing.assert_allclose(run(half)[0], np.concatenate([-q[..., 2:], q[..., :2]], -1))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: paddle.XPUPlace(0), PlaceError),
        (lambda: fused.fused_layer_norm(x(), None, None, 1e-5, quant_scale=1.0), UnsupportedError),
        (lambda: fused.fused_feedforward(x(), x(), x(), ring_id=0), UnsupportedError),
        (
            lambda: fused.fused_rotary_position_embedding(const(np.ones((1, 2, 2, 4))), use_neox_rotary_style=False),
            UnsupportedError,
        ),
        (lambda: L.auc(x(), const([[1]], "int64"), ins_tag_weight=x()), UnsupportedError),
        (lambda: paddle.grad(paddle.sum(const([1.0])), static.data("unused", [1])), ProgramError),
        (lambda: paddle.grad(const([1.0]), const([1.0]), only_inputs=False), UnsupportedError),
        (lambda: fused.fused_ec_moe(), UnsupportedError),
    ],
)
def test_what_is_not_supported_says_so(call: Callable[[], Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        call()


def test_compat_converts_texts() -> None:
    """1.8.5 and 2.4.2 give these."""
    assert paddle.compat.to_text([b"a", {b"b": "c"}, 1]) == ["a", {"b": "c"}, 1]
    kept = ["a"]
    assert paddle.compat.to_bytes(kept, inplace=True) is kept
    assert kept == [b"a"]
    assert [paddle.compat.round(v) for v in (0.5, 1.5, -2.5, 0.0)] == [1.0, 2.0, -3.0, 0.0]
    assert paddle.compat.floor_division(7, 2) == 3
    assert paddle.compat.get_exception_message(ValueError("x")) == "x"
