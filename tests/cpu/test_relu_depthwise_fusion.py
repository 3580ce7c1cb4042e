"""On numpy a fused depthwise convolution runs the ops that it stands for: every bit stays."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu.depthwise_nets import net, trained


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    ("groups", "twice", "fetches"), [(4, False, []), (4, True, []), (2, False, []), (4, False, ["relu_0.tmp_0"])]
)
def test_same_bits(layout: str, groups: int, twice: bool, fetches: list[str]) -> None:
    program = net(layout, groups, twice)
    unfused, expected, _ = trained(program, False, layout, fetches)
    fused, found, told = trained(program, True, layout, fetches)
    assert len(told.applied) == (2 if groups == 4 and not twice and not fetches else 0)
    assert [repr(v) for v in fused] == [repr(v) for v in unfused]
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, name)


def test_relu_is_taken_again_and_not_stored() -> None:
    """The op types stay, the relus vanish."""
    _, _, told = trained(net(), True, "NCHW")
    forward, backward = told.applied
    assert (forward.op, backward.op) in (("conv2d", "conv2d_grad"), ("depthwise_conv2d", "depthwise_conv2d_grad"))
    assert "relu_0.tmp_0" in forward.gone
    assert not forward.kept
    assert not backward.kept
