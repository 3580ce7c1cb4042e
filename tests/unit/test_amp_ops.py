"""Loss scaling: what counts as not finite, and how the scale moves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tstatic.ir.evaluate import evaluate
from tstatic.ir.opdef import op_def
from tstatic.ops.update.loss_scaling import next_scale
from tstatic.tuned._common import BLOCK


def check(xs: list[Any], scale: float) -> tuple[list[Any], bool]:
    with np.errstate(all="ignore"):
        outs, found = evaluate(op_def("check_finite_and_unscale"), [xs, np.array([scale], np.float32)])
    return outs, bool(found[0])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_unscales(dtype: Any) -> None:
    xs = [np.arange(6, dtype=dtype).reshape(2, 3), np.full(2 * BLOCK + 5, 8, dtype)[::-1]]
    outs, found = check(xs, 4.0)
    assert not found
    assert np.array_equal(outs[0], xs[0] / 4)
    assert (outs[1] == 2).all()
    assert outs[1].dtype == dtype


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [(0, 0), (1, BLOCK + 7), (1, -1)])
def test_finds_what_is_not_finite(bad: float, at: tuple[int, int]) -> None:
    xs = [np.ones(3, np.float32), np.ones(BLOCK + 9, np.float32)]
    assert not check(xs, 1.0)[1]
    xs[at[0]][at[1]] = bad
    assert check(xs, 1.0)[1]


def test_large_values_are_finite() -> None:
    assert not check([np.full(3, 3e38, np.float32), np.full(3, 65504, np.float16)], 0.5)[1]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_scale_of_zero_gives_infinities_and_says_so(dtype: Any) -> None:
    outs, found = check([np.array([2, -3, 0], dtype), np.zeros((0, 2), dtype)], 0.0)
    assert found
    np.testing.assert_array_equal(outs[0], np.array([np.inf, -np.inf, np.nan], dtype))
    assert outs[0].dtype == dtype
    assert check([np.zeros((0, 2), dtype)], 0.0)[1]
    assert check([np.ones(2, dtype)], -0.0)[1]


def test_a_scale_whose_inverse_overflows_says_so() -> None:
    (out, wide), found = check([np.ones(2, np.float32), np.ones(2, np.float64)], 1e-40)
    assert found
    assert np.isinf(out).all()
    assert np.isfinite(wide).all()
    assert not check([np.ones(2, np.float64)], 1e-40)[1]
    assert not check([np.ones(2, np.float32)], np.inf)[1]
    assert check([np.ones(2, np.float32)], np.nan)[1]


@pytest.mark.parametrize("scale", [0.0, 1e-40, np.inf, np.nan, 4.0])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_torch_agrees_on_unusual_scales(dtype: Any, scale: float) -> None:
    torch = pytest.importorskip("torch")
    x = np.array([2, -3, 0, 0.5], dtype)
    (out,), found = check([x], scale)
    given = torch.from_numpy(x), torch.tensor([scale], dtype=torch.float32)
    (wanted,), flag = op_def("check_finite_and_unscale").lower(torch, [given[0]], given[1])
    assert found == bool(flag)
    np.testing.assert_array_equal(out, wanted.numpy())


def test_scale_moves() -> None:
    scale, good, bad = 8.0, 0, 0
    history = []
    for found in (False, False, False, True, False, True, True, True, False):
        scale, good, bad = next_scale(found, scale, good, bad, 3, 2, 2.0, 0.25)
        history.append((scale, good, bad))
    assert history == [
        (8, 1, 0),
        (8, 2, 0),
        (16, 0, 0),
        (16, 0, 1),
        (16, 1, 0),
        (16, 0, 1),
        (4, 0, 0),
        (4, 0, 1),
        (4, 1, 0),
    ]
    assert next_scale(True, 1.5, 0, 0, 3, 1, 2.0, 0.5)[0] == 1.0
    assert next_scale(False, 3e38, 2, 0, 3, 1, 2.0, 0.5) == (3e38, 0, 0)


@pytest.mark.parametrize(
    ("found", "before", "after"),
    [(True, 3.0, 1.5), (True, 1.5, 1.0), (True, 1.0, 1.0), (True, 0.5, 1.0), (False, 1e38, 2e38), (False, 3e38, 3e38)],
)
def test_the_scale_stops_where_it_stops_in_paddle(found: bool, before: float, after: float) -> None:
    """Never below 1, nor at infinity; recorded from Paddle 2.6.2, and the same in torch."""
    torch = pytest.importorskip("torch")
    attrs = {
        "incr_every_n_steps": 1,
        "decr_every_n_nan_or_inf": 1,
        "incr_ratio": 2.0,
        "decr_ratio": 0.5,
        "stop_update": False,
    }
    state = [np.array([found]), np.array([before], np.float32), np.zeros(1, np.int32), np.zeros(1, np.int32)]
    definition = op_def("update_loss_scaling")
    assert evaluate(definition, [[np.ones(2, np.float32)], *state], attrs)[1] == np.float32(after)
    assert definition.lower(torch, [torch.ones(2)], *map(torch.from_numpy, state), **attrs)[1] == np.float32(after)


@pytest.mark.parametrize("found", [True, False])
@pytest.mark.parametrize("stop", [True, False])
def test_update(found: bool, stop: bool) -> None:
    x = np.array([1.0, np.nan], np.float32)
    state = [np.array([8.0], np.float32), np.array([4], np.int32), np.array([1], np.int32)]
    attrs = {
        "incr_every_n_steps": 5,
        "decr_every_n_nan_or_inf": 2,
        "incr_ratio": 2.0,
        "decr_ratio": 0.5,
        "stop_update": stop,
    }
    outs, scale, good, bad = evaluate(op_def("update_loss_scaling"), [[x], np.array([found]), *state], attrs)
    assert np.array_equal(outs[0], [0, 0] if found else x, equal_nan=True)
    expected = (8, 4, 1) if stop else (4, 0, 0) if found else (16, 0, 0)
    assert (float(scale[0]), int(good[0]), int(bad[0])) == expected
    assert (scale.dtype, good.dtype) == (np.float32, np.int32)


def test_clip_by_norm() -> None:
    x = np.full(BLOCK + 100, 2.0, np.float32)
    (out,) = evaluate(op_def("clip_by_norm"), [x], {"max_norm": 1.0})
    assert np.linalg.norm(out.astype(np.float64)) == pytest.approx(1, rel=1e-6)
    (same,) = evaluate(op_def("clip_by_norm"), [x], {"max_norm": 1e6})
    assert np.array_equal(same, x)
    with pytest.raises(ValueError, match="max_norm"):
        evaluate(op_def("clip_by_norm"), [x], {"max_norm": 0.0})
