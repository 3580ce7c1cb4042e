"""``variable[...]`` against torch (numpy where a step is negative), with known and unknown sizes, values and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.run_function import run_function, weights
from tstatic import static
from tstatic.errors import IndexRangeError, ShapeError, UnsupportedError
from tstatic.ir.types import Meta

_RNG = np.random.default_rng(7)
FEEDS: dict[str, Any] = {
    "x": _RNG.standard_normal((4, 3, 2)),
    "i": np.array([0, 2, -1]),
    "i2": _RNG.integers(0, 2, (4, 2)),
    "m": _RNG.random((4, 3, 2)) < 0.5,
    "m1": np.array([True, False, True, True]),
    "m2": _RNG.random((4, 3)) < 0.5,
    "s0": np.array(-1),
    "v": np.array([1], np.int32),
}
ITEMS = [
    "x[0]",
    "x[-1]",
    "x[1:3]",
    "x[1:3,0]",
    "x[:,::2]",
    "x[...,0]",
    "x[:,None]",
    "x[None,0,...,1:]",
    "x[i]",
    "x[i,:,i2[:3,0]]",
    "x[:,i]",
    "x[0,:,i2[0]]",
    "x[[0,2]]",
    "x[[0,2],[1,1]]",
    "x[m]",
    "x[m1]",
    "x[m1,0]",
    "x[[True,False,True,True]]",
    "x[True]",
    "x[False]",
    "x[v[0]]",
    "x[s0]",
    "x[s0,1]",
    "x[1,s0]",
    "x[:,s0,i2[0]]",
    "x[(0,1)]",
    "x[...]",
    "x[3:1]",
    "x[:,1:100]",
    "x[np.array([0,1])]",
    "x[np.int64(1)]",
    "x[:]",
    "x[1,2,0]",
    "x[i2]",
    "x[-1:]",
    "x[-3:-1,-1]",
    "x[m2]",
    "x[m2,1]",
    "x[:,:,i2[0]]",
    "x[None,None]",
    "x[i,None,1]",
    "x[i,...,0]",
    "x[:,i,1]",
    "x[[[0,1],[2,3]],1]",
    "x[:,[0,-1]]",
    "x[m1,:,1]",
    "x[0,m2[0]]",
    "x[:,m2[0]]",
    "x[s0,...,None]",
    "x[:,s0]",
    "x[i2,i2]",
    "x[None,i]",
    "x[m1,None]",
    "x[np.array(2)]",
    "x[1:-1,1:-1]",
    "x[-100:100]",
    "x[x>0]",
    "x[[]]",
    "x[np.array([-1,-2]),1:]",
]
BACKWARDS = [
    "x[::-1]",
    "x[::-2,::-1]",
    "x[3:0:-1]",
    "x[-2:-4:-1]",
    "x[:0:-1]",
    "x[:,::-1,0]",
    "x[3:-100:-1]",
    "x[0:2:-1]",
    "x[5::-2]",
]


def pick(text: str, names: dict[str, Any]) -> Any:
    return eval(text, {**names, "np": np})


@pytest.mark.parametrize("unknown", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize("text", ITEMS)
def test_getitem(text: str, unknown: bool) -> None:
    import torch

    tensors = {n: torch.from_numpy(np.array(a)) for n, a in FEEDS.items()}
    tensors["x"].requires_grad_()
    expected = pick(text, tensors)
    names = list(FEEDS)
    feeds = {**FEEDS, "v": FEEDS["v"]}
    found = run_function(lambda *v: pick(text, dict(zip(names, v, strict=True))), feeds, unknown=unknown, grads=True)
    np.testing.assert_array_equal(found[0], expected.detach().numpy())
    expected.backward(torch.from_numpy(weights(tuple(expected.shape))))
    np.testing.assert_allclose(found[1], tensors["x"].grad.numpy(), rtol=1e-12, atol=1e-12)


# Where the size is not known the operator stops before the first element in this case, as Paddle's does.
KNOWN_ONLY = ["x[3:-100:-1]"]


@pytest.mark.parametrize(
    ("text", "unknown"), [(t, u) for t in BACKWARDS for u in (False, True) if not (u and t in KNOWN_ONLY)]
)
def test_getitem_backwards(text: str, unknown: bool) -> None:
    x = FEEDS["x"]
    found = run_function(lambda x: pick(text, {"x": x}), {"x": x}, unknown=unknown, grads=True)
    expected = pick(text, {"x": x})
    np.testing.assert_array_equal(found[0], expected)
    gradient = np.zeros_like(x)
    pick(text, {"x": gradient})[...] = weights(expected.shape)
    np.testing.assert_array_equal(found[1], gradient)


def test_bounds_may_be_variables() -> None:
    x = FEEDS["x"]
    feeds = {"x": x, "a": np.array(1), "b": np.array([3], np.int32)}
    for build, expected in (
        (lambda x, a, b: x[a:b], x[1:3]),
        (lambda x, a, b: x[a:], x[1:]),
        (lambda x, a, b: x[:, :a], x[:, :1]),
        (lambda x, a, b: x[a : b + 0 : 2, 1], x[1:3:2, 1]),
        (lambda x, a, b: x[paddle.shape(x)[0] - 2 :], x[-2:]),
    ):
        found = run_function(build, feeds, unknown=False, grads=True)
        np.testing.assert_array_equal(found[0], expected)
        assert found[1].shape == x.shape
        assert np.count_nonzero(found[1]) == np.count_nonzero(weights(expected.shape))


def test_names_follow_the_value() -> None:
    x = static.data("x", [4, 3], "float32")
    assert [x[0].name, x[1].name, x[:, ::2].name] == ["x_slice_0", "x_slice_1", "x_strided_slice_0"]
    assert x[:] is x
    assert x[...] is x


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("x[5]", "out of range for axis 0 of size 4"),
        ("x[:, -4]", "out of range for axis 1 of size 3"),
        ("x[1.5]", "Valid index accept"),
        ("x['a']", "Valid index accept"),
        ("x[{}]", "Valid index accept"),
        ("x[0, 0, 0, 0]", "too many indices"),
        ("x[..., ...]", "single ellipsis"),
        ("x[::0]", "cannot be 0"),
        ("x[x]", "integers or truth values"),
        ("x[[0, 9]]", "out of range for axis 0"),
        ("x[[1.5]]", "integers or truth values"),
        ("x[[[0], [1, 2]]]", "integers or truth values"),
        ("x[1.5:]", "start of a slice"),
        ("x[:'a']", "stop of a slice"),
        ("x[[True, False]]", "shape of a bool index"),
    ],
)
def test_bad_items(text: str, match: str) -> None:
    x = static.data("x", [4, 3, 2], "float32")
    before = len(static.default_main_program().global_block().ops)
    with pytest.raises(IndexRangeError, match=match) as caught:
        pick(text, {"x": x})
    assert isinstance(caught.value, IndexError)
    assert caught.value.var == "x"
    assert caught.value.where is not None
    assert caught.value.fix
    assert len(static.default_main_program().global_block().ops) == before


def test_values_out_of_range_are_found_when_the_program_runs() -> None:
    for build in (lambda x, i: x[i], lambda x, i: x[:, i]):
        with pytest.raises(IndexRangeError, match="out of range"):
            run_function(build, {"x": FEEDS["x"], "i": np.array([0, 7])}, unknown=False)


def test_assignment_is_refused_with_advice() -> None:
    x = static.data("x", [4, 3], "float32")
    with pytest.raises(UnsupportedError, match=r"x\[") as caught:
        x[0] = 1.0
    assert "scatter" in str(caught.value)


BIG = 2**31 + 5
"""Above what 32 bits hold. Arrays of so many elements here have a stride of 0, and programs are not run on them."""


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("x[-3:]", 3),
        ("x[2**31 + 1:]", 4),
        ("x[:2**31 + 2:2**30]", 3),
        ("x[::-1]", BIG),
        ("x[-1:None:-1]", BIG),
        ("x[-1]", None),
        ("x[2**31 + 4]", None),
    ],
)
def test_slices_of_more_than_2_to_the_31_elements_have_64_bit_ends(text: str, length: int | None) -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [None], "float32")
        out = eval(text, {"x": x})
    copy = static.Program.parse_from_string(main.desc.serialize_to_string())
    for program in (main, copy):
        (op,) = program.global_block().ops
        array = np.broadcast_to(np.float32(1), (BIG,))
        none = [None] * (len(op.definition.inputs) - 1)
        assert op.definition.view is not None
        assert op.definition.infer is not None
        view = op.definition.view(array, **op.definition.pick(op.definition.view, op.attrs))
        meta = op.definition.infer(
            Meta(array.shape, x.dtype), *none, **op.definition.pick(op.definition.infer, op.attrs)
        )
        assert view is not None
        assert view.shape == meta.shape == (() if length is None else (length,))
    assert len(out.shape) == len(meta.shape)


def test_a_bound_beside_a_variable_may_need_64_bits() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x, n = static.data("x", [None, 4]), static.data("n", [1], "int64")
        out = x[n:, : 2**40]
    rows, first = np.arange(12, dtype=np.float32).reshape(3, 4), np.array([1])
    (found,) = static.Executor().run(main, feed={"x": rows, "n": first}, fetch_list=[out])
    np.testing.assert_array_equal(found, rows[1:])


def test_the_shape_of_more_than_2_to_the_31_elements_is_refused_with_advice() -> None:
    with static.program_guard(static.Program(), static.Program()):
        with pytest.raises(ShapeError, match="does not fit the int32") as caught:
            paddle.shape(static.data("x", [BIG, 2], "int8"))
        assert "numel" in str(caught.value)
        paddle.shape(static.data("y", [2**31 - 1, 2], "int8"))
