"""Matrix products in tiles against the whole, over shapes large enough to be cut, with an error bound per element."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tstatic.ops  # noqa: F401 - fills the registry
from tstatic.ir.evaluate import allocate, call_ref, infer_outputs, metas_of
from tstatic.ir.opdef import PARTIAL_SUM, WHOLE, op_def

Array = np.ndarray[Any, Any]


def part(entry: Any, array: Any) -> Any:
    """What a tile's entry makes of an array."""
    if entry is None or array is None:
        return None
    return array if entry is WHOLE else array[entry]


def run_tiles(
    type: str, ins: list[Array], attrs: dict[str, Any], wanted: list[bool] | None = None
) -> tuple[list[Any], int]:
    """Runs an op tile by tile; every output element must be written exactly once unless the output is summed."""
    definition = op_def(type)
    done = definition.complete(attrs)
    metas = infer_outputs(definition, metas_of(ins), done)
    if wanted is not None:
        metas = [m if w else None for m, w in zip(metas, wanted, strict=True)]
    assert definition.split is not None
    tiles = definition.split(*metas_of(ins), *metas, **definition.pick(definition.split, done))
    if tiles is None:
        tiles = [(WHOLE,) * (len(ins) + len(metas))]
    outs = allocate(metas)
    written = [None if o is None else np.zeros(o.shape, int) for o in outs]
    for tile in tiles:
        assert len(tile) == len(ins) + len(outs)
        given = [part(e, a) for e, a in zip(tile, ins, strict=False)]
        entries = tile[len(ins) :]
        targets = [
            None if e is None or o is None else np.empty_like(o) if e is PARTIAL_SUM else part(e, o)
            for e, o in zip(entries, outs, strict=True)
        ]
        call_ref(definition, given, targets, done)
        for entry, target, count, out in zip(entries, targets, written, outs, strict=True):
            if entry is PARTIAL_SUM and count is not None:
                out[...] = target if not count.any() else out + target
                count[...] = 1
            elif target is not None and count is not None:
                count[... if entry is WHOLE else entry] += 1
    assert all(c is None or (c == 1).all() for c in written), "an element is written never, or twice"
    return outs, len(tiles)


PRODUCTS = [
    ((128, 784), (784, 1024), False, False),
    ((1024, 64), (64, 96), False, False),
    ((784, 128), (784, 1024), True, False),
    ((128, 784), (1024, 784), False, True),
    ((16, 64, 96), (96, 200), False, False),
    ((16, 96, 64), (200, 96), True, True),
    ((2, 300, 96), (96, 200), False, False),
    ((64, 48, 40), (64, 40, 56), False, False),
    ((4, 16, 48, 40), (4, 16, 56, 40), False, True),
    ((4, 16, 40, 48), (4, 1, 40, 56), True, False),
    ((1, 48, 40), (64, 40, 56), False, False),
    ((200, 100), (16, 100, 60), False, False),
    ((2, 200, 300), (2, 300, 100), False, False),
    ((8, 12, 40, 30), (12, 30, 50), False, False),
]


def exact(x: Array, y: Array, trans_x: bool, trans_y: bool) -> tuple[Array, Array]:
    """The product in float64, and that of the magnitudes."""
    a, b = (
        np.swapaxes(v.astype(np.float64), -1, -2) if t else v.astype(np.float64)
        for v, t in ((x, trans_x), (y, trans_y))
    )
    return a @ b, np.abs(a) @ np.abs(b)


def unbroadcast(full: Array, shape: tuple[int, ...]) -> Array:
    axes = tuple(range(full.ndim - len(shape)))
    full = full.sum(axes)
    return full.sum(tuple(i for i, s in enumerate(shape) if s == 1 and full.shape[i] != 1), keepdims=True)


def check(found: Array, right: Array, size: Array, terms: int) -> None:
    """Error at most ``4 + log2(terms)`` units of the sum of magnitudes."""
    bound = (4 + np.log2(terms)) * 2.0**-24 * 2 * size
    assert (np.abs(found - right) <= bound).all(), float((np.abs(found - right) / bound).max())


@pytest.mark.parametrize(("x_shape", "y_shape", "trans_x", "trans_y"), PRODUCTS)
def test_matmul_in_pieces(x_shape: Any, y_shape: Any, trans_x: bool, trans_y: bool) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(s, dtype=np.float32) for s in (x_shape, y_shape))
    attrs = {"trans_x": trans_x, "trans_y": trans_y}
    (out,), count = run_tiles("matmul_v2", [x, y], attrs)
    assert count > 1
    check(out, *exact(x, y, trans_x, trans_y), terms=x_shape[-2 if trans_x else -1])
    dout = rng.standard_normal(out.shape, dtype=np.float32)
    (dx, dy), count = run_tiles("matmul_v2_grad", [x, y, dout], attrs)
    assert count > 3
    right = exact(dout, y, False, not trans_y)
    left = exact(x, dout, not trans_x, False)
    for got, (value, size), flip, like in ((dx, right, trans_x, x), (dy, left, trans_y, y)):
        value, size = (np.swapaxes(v, -1, -2) if flip else v for v in (value, size))
        terms = dout.size // max(1, got.size) * got.shape[-1] + dout.shape[-1]
        check(got, unbroadcast(value, like.shape), unbroadcast(size, like.shape), max(2, terms))
    for wanted in ([True, False], [False, True]):
        alone, _ = run_tiles("matmul_v2_grad", [x, y, dout], attrs, wanted)
        for only, both, asked in zip(alone, (dx, dy), wanted, strict=True):
            assert (only is None) == (not asked)
            assert only is None or np.array_equal(only, both)


@pytest.mark.parametrize(
    ("x_shape", "y_shape", "columns"),
    [
        ((128, 784), (784, 1024), (1, 1)),
        ((64, 1, 28, 28), (784, 512), (1, 1)),
        ((16, 64, 96), (96, 200), (2, 1)),
        ((400, 6, 20), (4, 30, 128), (1, 2)),
        ((96, 120), (120, 16, 16), (1, 1)),
        ((2000, 32), (32, 40), (1, 1)),
    ],
)
def test_mul_in_pieces(x_shape: Any, y_shape: Any, columns: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal(s, dtype=np.float32) for s in (x_shape, y_shape))
    attrs = {"x_num_col_dims": columns[0], "y_num_col_dims": columns[1]}
    (out,), count = run_tiles("mul", [x, y], attrs)
    assert count > 1
    dout = rng.standard_normal(out.shape, dtype=np.float32)
    (dx, dy), count = run_tiles("mul_grad", [x, y, dout], attrs)
    assert count > 3
    inner = int(np.prod(x_shape[columns[0] :]))
    a, b = x.reshape(-1, inner), y.reshape(inner, -1)
    g = dout.reshape(len(a), -1)
    for got, args, terms in (
        (out, (a, b, False, False), inner),
        (dx, (g, b, False, True), g.shape[1]),
        (dy, (a, g, True, False), len(a)),
    ):
        value, size = exact(*args)
        check(got.reshape(value.shape), value, size, terms)


def test_small_products_stay_whole() -> None:
    x, y = np.ones((8, 16), np.float32), np.ones((16, 32), np.float32)
    assert run_tiles("mul", [x, y], {})[1] == 1
    assert run_tiles("matmul_v2", [x, y], {})[1] == 1
    assert run_tiles("matmul_v2_grad", [x, y, np.ones((8, 32), np.float32)], {}, [True, False])[1] == 1


def test_pieces_depend_on_shapes_alone() -> None:
    definition = op_def("matmul_v2")
    assert definition.split is not None
    for count, dtype in itertools.product((1, 2), (np.float32, np.float64)):
        x, y = np.ones((256, 256), dtype), np.ones((256, 512 * count), dtype)
        metas = metas_of([x, y, x @ y])
        assert definition.split(*metas) == definition.split(*metas)
        assert len(definition.split(*metas)) == 2
    counts = [len(definition.split(*metas_of([np.ones((n, n), np.float32)] * 3))) for n in (256, 512, 1024, 2048)]
    assert counts == [2, 2, 8, 16], "more work, more tiles"
