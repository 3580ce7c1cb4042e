"""Attentions, losses and statistics by name on special values: generated kernels give what the unfused operators give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.drawn import BY_NAME, only
from tests.helpers.linear_loss_programs import short_chunks
from tests.helpers.soak import SOAK
from tests.helpers.special_values import differing
from tests.interpret.test_special_fusions import excused, unlike
from tstatic import static

Array = np.ndarray[Any, Any]
Feeds = dict[str, Array]
F = paddle.nn.functional
VALUES = (np.nan, np.inf, -np.inf, -0.0)


def both(main: Any, switch: str, fetches: list[Any], feeds: Feeds) -> tuple[list[Array], list[Array]]:
    """The unfused and the fused results."""
    compiled = static.CompiledProgram(main, only(switch))
    # Each in a scope of its own: dropouts draw the same.
    scopes = static.Scope(), static.Scope()
    runs = [
        static.Executor().run(what, feed=feeds, fetch_list=fetches, scope=scope)
        for what, scope in zip((main, compiled), scopes, strict=True)
    ]
    return runs[0], runs[1]


def fused(main: Any, switch: str, fetches: list[Any]) -> set[str]:
    """The types of the operators that the switch fuses."""
    told = static.CompiledProgram(main, only(switch)).explain(fetch_list=fetches)
    return {member.type for one in told.applied for member in one.members}


def placed(feeds: Feeds, names: Sequence[str], first: int = 0) -> Iterator[tuple[str, Feeds]]:
    """The feeds with one special value in one input, where and which in words; with ``TSTATIC_SOAK`` each value in each.

    Args:
        feeds: Ordinary numbers.
        names: The inputs.
        first: Which inputs get NaN otherwise, and which infinity.
    """
    rng = np.random.default_rng(4)
    for number, name in enumerate(names, first):
        for value in VALUES if SOAK else (VALUES[number % 2],):
            array = feeds[name].copy()
            array.reshape(-1)[rng.integers(array.size)] = value
            yield f"{value} in {name}", {**feeds, name: array}


# ------------------------------------------------------------------------------------------------------------ attentions
ROWS, KEYS, SIZE = 9, 13, 8


def never(s: Any) -> Any:
    return s


def causal(value: float) -> Callable[[Any], Any]:
    return lambda s: s + paddle.triu(paddle.full(s.shape[-2:], value, s.dtype), 1)


def padding(s: Any) -> Any:
    """The second sequence ends after five keys."""
    mask = np.zeros((2, 1, 1, s.shape[-1]), "f4")
    mask[1, ..., 5:] = -np.inf
    return s + paddle.assign(mask).astype(s.dtype)


def whole_rows(s: Any) -> Any:
    """The last three queries see nothing: all that they make is NaN."""
    mask = np.zeros(tuple(s.shape[-2:]), "f4")
    mask[-3:] = -np.inf
    return s + paddle.assign(mask).astype(s.dtype)


ATTENTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "cross": {"keys": KEYS},
    "grouped": {"heads": 1},
    "padding": {"mask": padding},
    "whole rows": {"mask": whole_rows, "keys": KEYS},
    "causal": {"mask": causal(float("-inf"))},
    "causal, finite": {"mask": causal(-1e9)},
    "causal, grouped": {"mask": causal(float("-inf")), "heads": 1},
    "dropout": {"dropout": 0.25},
    "float16": {"dtype": "float16", "mask": padding},
}


def attention(
    keys: int = ROWS,
    heads: int = 2,
    mask: Callable[[Any], Any] = never,
    dropout: float = 0.0,
    dtype: str = "float32",
    scale: float | None = 0.35,
) -> tuple[Any, list[Any], Feeds]:
    """An attention, its gradients by queries, keys and values of what arrives, and feeds."""
    main = static.Program()
    main.random_seed = 7
    shapes = {"q": (2, 2, ROWS, SIZE), "k": (2, heads, keys, SIZE), "v": (2, heads, keys, SIZE)}
    with paddle.utils.unique_name.guard(), static.program_guard(main, static.Program()):
        q, k, v = (static.data(name, list(shape), dtype) for name, shape in shapes.items())
        for one in (q, k, v):
            one.stop_gradient = False
        scores = paddle.matmul(q, k, transpose_y=True)
        weights = F.softmax(mask(scores if scale is None else paddle.scale(scores, scale)))
        out = paddle.matmul(F.dropout(weights, dropout) if dropout else weights, v)
        fetches = [out, *static.gradients([out], [q, k, v], [static.data("given", list(out.shape), dtype)])]
    rng = np.random.default_rng(1)
    feeds = {n: rng.standard_normal(s).astype(dtype) for n, s in (shapes | {"given": tuple(out.shape)}).items()}
    return main, fetches, feeds


CORE = BY_NAME["dot_product_attention"]


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attentions(name: str) -> None:
    """What reaches a result as NaN or infinity does so fused; under a causal mask, only from keys that a query sees."""
    main, fetches, feeds = attention(**ATTENTIONS[name])
    assert {"softmax", "softmax_grad"} <= fused(main, CORE.switch, fetches)
    seen = set()
    for words, given in placed(feeds, list(feeds), list(ATTENTIONS).index(name)):
        conditions = ["causal"] * name.startswith("causal") + ["infinite gradient"] * words.endswith("inf in given")
        unfused, result = both(main, CORE.switch, fetches, given)
        for what, u, f in zip(["output", "dq", "dk", "dv"], unfused, result, strict=True):
            bad = differing(f, u, None, zeros=False)
            allowed = excused("infinite", CORE.name, u, f, *conditions)
            seen |= set(conditions) if (bad & allowed).any() else set()
            assert not (bad & ~allowed).any(), (words, what, np.argwhere(bad & ~allowed)[:3].tolist())
            a, b = f.astype("f8"), u.astype("f8")
            both_finite = np.isfinite(a) & np.isfinite(b)
            close = {"float32": 1e-4, "float16": 0.02}[u.dtype.name] * np.abs(b[both_finite]).max(initial=0.0)
            np.testing.assert_allclose(
                a[both_finite], b[both_finite], rtol=0, atol=close + 1e-30, err_msg=f"{words}: {what}"
            )
    assert "causal" not in seen or name.startswith("causal")


def block(mask: Callable[[Any], Any] = never, rows: int = ROWS, dtype: str = "float32") -> tuple[Any, list[Any], Feeds]:
    """A whole attention block with its projections, the gradients by its weights of what arrives, and feeds."""
    main = static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, static.Program()):
        x = static.data("x", [2, rows, SIZE], dtype)
        weights = [static.data(name, [SIZE, SIZE], dtype) for name in ("wq", "wk", "wv", "wo")]
        for weight in weights:
            weight.stop_gradient = False
        shape = [2, rows, 2, SIZE // 2]
        q, k, v = (paddle.transpose(paddle.reshape(paddle.matmul(x, w), shape), [0, 2, 1, 3]) for w in weights[:3])
        made = paddle.matmul(F.softmax(mask(paddle.scale(paddle.matmul(q, k, transpose_y=True), 0.5))), v)
        joined = paddle.reshape(paddle.transpose(made, [0, 2, 1, 3]), [2, rows, SIZE])
        out = paddle.matmul(joined, weights[3])
        fetches = [out, *static.gradients([out], weights, [static.data("given", list(out.shape), dtype)])]
    rng = np.random.default_rng(3)
    feeds = {"x": rng.standard_normal((2, rows, SIZE)), "given": rng.standard_normal((2, rows, SIZE))}
    feeds |= {weight.name: 0.3 * rng.standard_normal((SIZE, SIZE)) for weight in weights}
    return main, fetches, {name: array.astype(dtype) for name, array in feeds.items()}


def test_whole_blocks() -> None:
    switch = BY_NAME["attention"].switch
    main, fetches, feeds = block()
    assert {"softmax", "softmax_grad"} <= fused(main, switch, fetches)
    for first in range(2 if SOAK else 1):
        for words, given in placed(feeds, list(feeds), first):
            for u, f in zip(*both(main, switch, fetches, given), strict=True):
                bad = unlike(u, f, "infinite", low=False)
                assert not bad.any(), (words, u[bad][:3], f[bad][:3])


@pytest.mark.parametrize("value", [1e30, -1e30, 3.38e38])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_masks_of_large_finite_numbers(dtype: str, value: float) -> None:
    """No NaN where all of a row, a part of it, or one key of it is masked by a number of any size; results are the unfused ones."""

    def masked(s: Any) -> Any:
        mask = np.zeros((2, 1, ROWS, ROWS), "f4")
        mask[0, 0, :3] = value
        mask[0, 0, 3:5, ::2] = value
        mask[1, 0, :, 4] = value
        return s + paddle.assign(mask).astype(s.dtype)

    main, fetches, feeds = attention(mask=masked, dtype=dtype)
    assert {"softmax", "softmax_grad"} <= fused(main, CORE.switch, fetches)
    for u, f in zip(*both(main, CORE.switch, fetches, feeds), strict=True):
        assert np.isfinite(u.astype("f8")).all()
        assert np.isfinite(f.astype("f8")).all()
        # The interpreter rounds bfloat16 towards zero. In float64 the page has a sentence about rows that are masked whole.
        if dtype == "float64":
            u, f = u[1:], f[1:]
        close = {"float32": 1e-5, "float64": 1e-12, "bfloat16": 0.1}[dtype]
        np.testing.assert_allclose(f.astype("f8"), u.astype("f8"), rtol=close, atol=close)


# ---------------------------------------------------------------------------------------------------------------- losses
N, CLASSES = 6, 5


def hard() -> Any:
    return static.data("label", [N, 1], "int64")


def soft() -> Any:
    return static.data("soft", [N, CLASSES])


def signs() -> Any:
    return static.data("signs", [N, CLASSES])


def linear(x: Any) -> Any:
    """A layer and its loss, in chunks of rows."""
    weight = static.data("weight", [CLASSES, 7])
    weight.stop_gradient = False
    return F.softmax_with_cross_entropy(paddle.matmul(x, weight), hard())


ROWWISE, ELEMENTS, CHUNKS = "build_cinn_pass", "enable_auto_fusion", "fuse_linear_cross_entropy"
LOSSES: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "hard labels": (ROWWISE, "softmax_with_cross_entropy", lambda x: F.softmax_with_cross_entropy(x, hard())),
    "soft labels": (
        ROWWISE, "softmax_with_cross_entropy", lambda x: F.softmax_with_cross_entropy(x, soft(), soft_label=True)
    ),
    "one label ignored": (
        ROWWISE, "softmax_with_cross_entropy", lambda x: F.softmax_with_cross_entropy(x, hard(), ignore_index=2)
    ),
    "mean": (ROWWISE, "softmax_with_cross_entropy", lambda x: F.cross_entropy(x, hard())),
    "in chunks": (CHUNKS, "softmax_with_cross_entropy", linear),
    "nll": (ROWWISE, "log_softmax", lambda x: F.nll_loss(F.log_softmax(x), paddle.reshape(hard(), [N]))),
    "divergence": (ROWWISE, "log_softmax", lambda x: F.kl_div(F.log_softmax(x), soft())),
    "binary": (ROWWISE, "bce_loss", lambda x: F.binary_cross_entropy(F.sigmoid(x), soft(), reduction="none")),
    "binary, elements": (ELEMENTS, "bce_loss", lambda x: F.binary_cross_entropy(F.sigmoid(x), soft(), reduction="none")),
    "logarithm": (ELEMENTS, "log_loss", lambda x: F.log_loss(F.sigmoid(x), soft())),
    "focal": (ELEMENTS, "pow", lambda x: F.sigmoid_focal_loss(x, soft(), reduction="none")),
    "huber": (ROWWISE, "huber_loss", lambda x: F.smooth_l1_loss(x, soft())),
    "squares": (ROWWISE, "square", lambda x: F.mse_loss(x, soft())),
    "absolute": (ROWWISE, "abs", lambda x: F.l1_loss(x, soft())),
    "ranking": (ROWWISE, "relu", lambda x: F.margin_ranking_loss(x, soft(), signs())),
    "hinge": (ROWWISE, "where", lambda x: F.hinge_embedding_loss(x, signs())),
    "soft margin": (ROWWISE, "logsigmoid", lambda x: F.soft_margin_loss(x, signs())),
}  # fmt: skip
"""Loss -> switch, an operator that is fused, function. Of logits, the binary cross entropy has no generated kernel."""


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str) -> None:
    switch, op, loss = LOSSES[name]
    main = static.Program()
    with short_chunks(), paddle.utils.unique_name.guard(), static.program_guard(main, static.Program()):
        x = static.data("x", [N, CLASSES])
        x.stop_gradient = False
        y = loss(x)
        block = main.global_block()
        wanted = [x, block.var("weight")] if block.has_var("weight") else [x]
        fetches = [y, *static.gradients([y], wanted, [static.data("given", list(y.shape))])]
        assert op in fused(main, switch, fetches)
        rng = np.random.default_rng(2)
        made: Feeds = {
            "x": rng.standard_normal((N, CLASSES)).astype("f4"),
            "given": rng.standard_normal(tuple(y.shape)).astype("f4"),
            "soft": rng.dirichlet(np.ones(CLASSES), N).astype("f4"),
            "label": np.array([[0], [2], [1], [4], [2], [3]]),
            "signs": rng.choice([-1.0, 1.0], (N, CLASSES)).astype("f4"),
            "weight": rng.standard_normal((CLASSES, 7)).astype("f4"),
        }
        feeds = {n: a for n, a in made.items() if block.has_var(n)}
        special = 0
        for words, given in placed(feeds, [n for n in feeds if n not in ("label", "signs")]):
            unfused, result = both(main, switch, fetches, given)
            special += any(not np.isfinite(u).all() for u in unfused)
            for what, u, f in zip(["loss", *wanted], unfused, result, strict=True):
                bad = unlike(u, f, "infinite", low=False)
                assert not bad.any(), (words, what, u[bad][:3], f[bad][:3])
        assert special


# ------------------------------------------------------------------------------------------------------------ statistics
TOP = float(np.finfo("f4").max)


@pytest.mark.parametrize(
    "values",
    [[TOP], [TOP, TOP], [TOP, -1.0, TOP], [-TOP, 1.0, -TOP, -TOP], [TOP, TOP, TOP, -TOP], [-TOP, -TOP, -TOP, TOP, TOP]],
    ids=str,
)
@pytest.mark.parametrize("residual", [False, True])
def test_running_means_of_several_huge_numbers(values: list[float], residual: bool) -> None:
    """The first number is what deviations are taken from; a deviation that overflows must not decide the mean's sign."""
    main, startup = static.Program(), static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
        x = static.data("x", [9, 3])
        y = static.nn.batch_norm(x)
        out = F.relu(y + x if residual else y)
    (norm,) = (op for op in main.global_block().ops if op.type == "batch_norm")
    fetches = [out, *norm.output("MeanOut"), *norm.output("VarianceOut")]
    array = np.random.default_rng(0).standard_normal((9, 3)).astype("f4")
    array[: len(values), 1] = values
    switch = "fuse_bn_add_act_ops" if residual else "fuse_bn_act_ops"
    assert "batch_norm" in fused(main, switch, fetches)
    found = []
    for program in (main, static.CompiledProgram(main, only(switch))):
        scope = static.Scope()
        with static.scope_guard(scope):
            static.Executor().run(startup)
            found.append(static.Executor().run(program, feed={"x": array}, fetch_list=fetches))
    for i, (u, f) in enumerate(zip(*found, strict=True)):
        bad = unlike(u, f, "huge", low=False)
        if i == 2 and np.isinf(found[0][1][1]):
            # The page's sentence about variances.
            bad[1] = np.isfinite(u[1]) or np.isfinite(f[1])
        assert not bad.any(), (u, f)
        np.testing.assert_allclose(f[..., [0, 2]], u[..., [0, 2]], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("momentum", [-TOP, TOP])
def test_running_variances_of_a_huge_momentum(momentum: float) -> None:
    """Momentum and the correction of a small batch are factors of their own: their product overflows, a variance's does not."""
    main = static.Program()
    block = main.global_block()
    values = {
        "x": np.array([[0.0, 0.1], [0.2, -0.1], [0.4, 0.3]], "f4"),
        **{n: np.ones(2, "f4") for n in ("scale", "bias", "mean", "variance")},
        "momentum": np.array([momentum], "f4"),
    }
    with static.program_guard(main, static.Program()):
        given = {n: static.data(n, list(a.shape)) for n, a in values.items()}
        slots = ("Y", "MeanOut", "VarianceOut", "SavedMean", "SavedVariance")
        made = {slot: block.create_var(name=slot, dtype="float32") for slot in slots}
        names = {
            "X": "x",
            "Scale": "scale",
            "Bias": "bias",
            "Mean": "mean",
            "Variance": "variance",
            "MomentumTensor": "momentum",
        }
        attrs = {"unbiased_variance": True}
        block.append_op(type="batch_norm", inputs={s: given[n] for s, n in names.items()}, outputs=made, attrs=attrs)
        out = F.relu(made["Y"])
    fetches = [out, made["MeanOut"], made["VarianceOut"]]
    assert "batch_norm" in fused(main, "fuse_bn_act_ops", fetches)
    for u, f in zip(*both(main, "fuse_bn_act_ops", fetches, values), strict=True):
        assert not np.isnan(u).any()
        np.testing.assert_allclose(f, u, rtol=1e-5, atol=1e-6)
