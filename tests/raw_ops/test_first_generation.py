"""Raw operators of Paddle's first generation give what Paddle 1.8.5 gives; attributes that choose kernels are dropped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.raw_ops import described
from tstatic import errors, fluid, static

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("recorded.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", RECORDED)
def test_an_operator_gives_what_paddle_gives(name: str) -> None:
    found = described.run(fluid, name)
    for slot, expected in RECORDED[name].items():
        assert np.shape(found[slot]) == np.shape(expected), slot
        np.testing.assert_allclose(found[slot], expected, rtol=2e-5, atol=1e-6, err_msg=slot)


def test_almost_all_operators_are_recorded() -> None:
    assert len(RECORDED) >= len(described.OPS) - 2
    assert set(RECORDED) <= set(described.OPS)


def test_a_gradient_flows_through_an_operator_that_is_composed() -> None:
    x = static.data("x", [2, 3])
    x.stop_gradient = False
    block = static.default_main_program().global_block()
    out = block.create_var(name="out", dtype="float32")
    block.append_op(type="norm", inputs={"X": x}, outputs={"Out": out}, attrs={"axis": 1})
    (gradient,) = static.gradients([out], [x])
    value = np.array([[3.0, 4.0, 0.0], [0.0, 1.0, 0.0]], "float32")
    (got,) = static.Executor().run(feed={"x": value}, fetch_list=[gradient])
    length = np.sqrt((value**2).sum(1, keepdims=True))
    np.testing.assert_allclose(got, 1 / length - value * value.sum(1, keepdims=True) / length**3, rtol=1e-5, atol=1e-6)


def test_kernel_attributes_are_dropped_and_others_refused() -> None:
    x = static.data("x", [2, 3])
    block = static.default_main_program().global_block()
    out = block.create_var(name="out", dtype="float32")
    attrs = {
        "use_cudnn": False,
        "use_mkldnn": True,
        "is_test": True,
        "fuse_relu": False,
        "workspace_size_MB": 4,
        "data_format": "AnyLayout",
    }
    op = block.append_op(type="relu", inputs={"X": [x]}, outputs={"Out": [out]}, attrs=attrs)
    assert not set(attrs) & set(op.all_attrs())
    ops = len(block.ops)
    for type_, slots, given in (
        ("relu", {"X": x}, {"slope": 1}),
        ("minus", {"X": x, "Y": x}, {"axis": 1}),
        ("minus", {"Z": x}, {}),
    ):
        with pytest.raises(errors.ProgramError, match="has no"):
            block.append_op(type=type_, inputs=slots, outputs={"Out": out}, attrs=given)
    with pytest.raises(errors.ProgramError, match="given no output"):
        block.append_op(type="minus", inputs={"X": x, "Y": x}, outputs={})
    assert len(block.ops) >= ops


def test_a_dtype_is_paddles_number() -> None:
    kinds = fluid.core.VarDesc.VarType
    assert [int(k) for k in (kinds.BOOL, kinds.INT64, kinds.FP16, kinds.FP32, kinds.FP64, kinds.BF16)] == [
        0,
        3,
        4,
        5,
        6,
        22,
    ]
    assert kinds.FP32 == 5
    assert kinds.FP32 != 6
    assert fluid.layers.cast(static.data("x", [2]), 3).dtype == "int64"
