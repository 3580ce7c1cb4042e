"""Dropout: modes, masks, edges, and what the functions refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic.errors import ProgramError, ProgramTypeError, ShapeError
from tstatic.ir.evaluate import evaluate
from tstatic.ir.opdef import PUBLIC_API, op_def
from tstatic.ir.rng import RngKey
from tstatic.tuned.philox import CHUNK

Array = np.ndarray[Any, Any]


def run(
    x: Array, type: str = "dropout", rng: Any = None, seed: Array | None = None, **attrs: Any
) -> tuple[Array, Array]:
    out, mask = evaluate(op_def(type), [x, seed], attrs, rng=rng or RngKey(3))
    return out, mask


UP, DOWN = {"dropout_implementation": "upscale_in_train"}, {"dropout_implementation": "downgrade_in_infer"}


def test_upscale_keeps_the_mean() -> None:
    x = np.ones((300, 400), np.float32)
    out, mask = run(x, dropout_prob=0.3, **UP)
    assert mask.dtype == np.uint8
    assert np.array_equal(out, mask * np.float32(1 / 0.7))
    assert abs(out.mean() - 1) < 5 * np.sqrt(0.3 / 0.7 / x.size)


def test_downgrade_leaves_training_unscaled() -> None:
    x = np.full((50, 40), 2.0)
    out, mask = run(x, dropout_prob=0.25, **DOWN)
    assert np.array_equal(out, 2.0 * mask)
    out, _ = run(x, dropout_prob=0.25, is_test=True, **DOWN)
    assert np.array_equal(out, np.full((50, 40), 1.5))
    out, _ = run(x, dropout_prob=0.25, is_test=True, **UP)
    assert np.array_equal(out, x)


@pytest.mark.parametrize("how", [UP, DOWN])
def test_ends(how: Any) -> None:
    x = np.ones(1000, np.float32)
    out, mask = run(x, dropout_prob=0.0, **how)
    assert np.array_equal(out, x)
    assert mask.all()
    out, mask = run(x, dropout_prob=1.0, **how)
    assert not out.any()
    assert not mask.any()


@pytest.mark.torch
@pytest.mark.parametrize("start", [0, 3, 13])
@pytest.mark.parametrize("p", [0.0, 1e-3, 2.0**-7, 0.1, 0.5, 1 - 2.0**-7, 0.995, 1.0])
def test_torch_keeps_the_same(p: float, start: int) -> None:
    torch = pytest.importorskip("torch")
    definition = op_def("dropout")
    key = RngKey(3, position=7)
    key = key.tile(start) if start else key
    attrs = definition.complete({"dropout_prob": p, **UP})
    x = np.ones((30, 41), np.float32)
    kept = run(x, rng=key, dropout_prob=p, **UP)[1]
    lower = {n: attrs[n] for n in ("dropout_prob", "is_test", "dropout_implementation", "seed")}
    mask = definition.lower(torch, torch.ones(30, 41), None, rng=key, **lower)[1]
    assert np.array_equal(mask.numpy(), kept)


@pytest.mark.parametrize("p", [1e-3, 0.3])
def test_tiles_keep_what_the_whole_keeps(p: float) -> None:
    x = np.ones(5000, np.float32)
    whole = run(x, rng=RngKey(3), dropout_prob=p)[1]
    for cut in (1, 3, 8, 12, 4001):
        tile = run(x[cut:], rng=RngKey(3).tile(cut), dropout_prob=p)[1]
        assert np.array_equal(tile, whole[cut:])


def test_mask_depends_on_the_key_alone() -> None:
    x = np.ones((2, CHUNK), np.float32)
    one, other = run(x)[1], run(x * 5)[1]
    assert np.array_equal(one, other)
    wide = run(np.ones((2, CHUNK)))[1]
    assert np.array_equal(one, wide)
    for key in (RngKey(4), RngKey(3, 1), RngKey(3, position=1), RngKey(3, run=1)):
        assert abs((run(x, rng=key)[1] == one).mean() - 0.5) < 0.02


def test_seed_replaces_the_programs() -> None:
    x = np.ones(4000)
    a = run(x, rng=RngKey(1), seed=None, dropout_prob=0.5)[1]
    b = run(x, rng=RngKey(9), dropout_prob=0.5)[1]
    assert not np.array_equal(a, b)
    assert np.array_equal(
        evaluate(op_def("dropout"), [x, None], {"seed": 5}, rng=RngKey(1))[1],
        evaluate(op_def("dropout"), [x, np.array([5])], {}, rng=RngKey(9))[1],
    )
    # Runs still differ: a seed fixes the stream, not the mask.
    later = evaluate(op_def("dropout"), [x, None], {"seed": 5}, rng=RngKey(1, run=1))[1]
    assert not np.array_equal(later, evaluate(op_def("dropout"), [x, None], {"seed": 5}, rng=RngKey(1))[1])


def test_mask_need_not_be_kept() -> None:
    x = np.random.default_rng(0).normal(size=(3, CHUNK)).astype(np.float32)
    out, mask = run(x)
    alone, none = evaluate(op_def("dropout"), [x, None], {}, [True, False], rng=RngKey(3))
    assert none is None
    assert np.array_equal(alone, out)
    odd = evaluate(op_def("dropout"), [x.T, None], {}, [True, False], rng=RngKey(3))[0]
    assert np.array_equal(odd == 0, (run(np.ascontiguousarray(x.T))[1]) == 0)
    assert mask.shape == x.shape


def test_dropped_nan_stays_nan() -> None:
    out, mask = run(np.array([np.nan, np.inf] * 50))
    assert not mask.all()
    assert np.isnan(out[0::2]).all()
    assert np.isnan(out[1::2][mask[1::2] == 0]).all()


@pytest.mark.parametrize(("axis", "shape"), [((0,), (40, 1, 1)), ((1, 2), (1, 6, 5)), ((-1,), (1, 1, 5))])
def test_axis_shares_a_draw(axis: tuple[int, ...], shape: tuple[int, ...]) -> None:
    x = np.ones((40, 6, 5))
    out, mask = run(x, "dropout_nd", axis=axis, dropout_prob=0.5, **UP)
    assert mask.shape == shape
    assert np.array_equal(out, x * mask * 2)
    assert 0 < mask.mean() < 1


# ------------------------------------------------------------------------------------------------------------ functions
def function(name: str) -> Any:
    return PUBLIC_API[name].function


def test_functions_build_the_ops() -> None:
    x = paddle.static.data("x", [None, 8, 4, 4])
    y = function("nn.functional.dropout")(x, 0.2)
    assert y.shape == (-1, 8, 4, 4)
    z = function("nn.functional.dropout2d")(x, 0.2, training=False)
    w = function("fluid.layers.dropout")(x, 0.2, seed=4)
    assert function("nn.functional.dropout")(x, 0) is x
    ops = paddle.static.default_main_program().global_block().ops
    assert [op.type for op in ops] == ["dropout", "dropout_nd", "dropout"]
    assert [op.attr("is_test") for op in ops] == [False, True, False]
    assert ops[0].attr("dropout_implementation") == "upscale_in_train"
    assert ops[1].attr("axis") == [0, 1]
    assert ops[2].attr("dropout_implementation") == "downgrade_in_infer"
    assert (y.name, z.name, w.name) == ("dropout_0.tmp_0", "dropout_1.tmp_0", "dropout_2.tmp_0")


def test_both_names_of_scaling_in_inference_mean_the_same() -> None:
    x = paddle.static.data("x", [3, 4])
    for mode in ("downscale_in_infer", "downgrade_in_infer"):
        function("nn.functional.dropout")(x, 0.5, mode=mode)
        function("nn.functional.dropout")(x, 0.5, axis=0, mode=mode)
    ops = paddle.static.default_main_program().global_block().ops
    assert [op.attr("dropout_implementation") for op in ops] == ["downgrade_in_infer"] * 4


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_probability_is_checked(p: float) -> None:
    x = paddle.static.data("x", [3])
    for name in ("nn.functional.dropout", "fluid.layers.dropout"):
        with pytest.raises(ProgramError):
            function(name)(x, p)


def test_arguments_are_checked() -> None:
    x = paddle.static.data("x", [3, 4])
    dropout = function("nn.functional.dropout")
    with pytest.raises(ProgramTypeError):
        dropout(x, "half")
    with pytest.raises(ProgramError, match="'mode' of dropout"):
        dropout(x, 0.5, mode="upscale")
    with pytest.raises(ShapeError):
        dropout(x, 0.5, axis=[0, 1, 2])
    with pytest.raises(ShapeError):
        dropout(x, 0.5, axis=7)
    with pytest.raises(ShapeError):
        function("nn.functional.dropout2d")(x)
    with pytest.raises(ProgramError, match="data_format"):
        function("nn.functional.dropout2d")(paddle.static.data("y", [1, 2, 3, 4]), data_format="CHWN")
    with pytest.raises(TypeError):
        dropout(paddle.static.data("i", [3], "int64"))
    with pytest.raises(TypeError):
        dropout(np.ones(3))


@pytest.mark.parametrize("word", ["downscale_in_infer", "downgrade_in_infer"])
def test_the_public_word_for_scaling_in_inference_is_the_operators(word: str) -> None:
    functional = paddle.nn.functional
    with paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()):
        x = paddle.static.data("x", [3])
        functional.dropout(x, 0.5, mode=word)
        paddle.nn.Dropout(0.5, mode=word)(x)
        functional.dropout(x, 0.5, axis=0, mode=word)
        modes = [op.attr("dropout_implementation") for op in x.block.ops if op.type.startswith("dropout")]
        assert modes == ["downgrade_in_infer"] * 3
        with pytest.raises(ProgramError, match="downscale_in_infer"):
            functional.dropout(x, 0.5, mode="upscale")
