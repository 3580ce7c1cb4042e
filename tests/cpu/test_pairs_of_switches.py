"""Every two switches of fusions on one program that has something for each: who takes which ops, with the counts of explain."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import cache
from typing import Any

import pytest

import tstatic as paddle
from tests.parallel.golden import strategy
from tstatic import static
from tstatic.fusion import FUSIONS

F = paddle.nn.functional
SWITCHES = tuple(dict.fromkeys(f.switch for f in FUSIONS))
"""In the order in which fusions are applied."""
ALONE = {
    "fused_attention": 2,
    "fused_feedforward": 2,
    "fuse_dot_product_attention": 2,
    "fuse_linear_cross_entropy": 1,
    "fuse_embedding_grad_add": 1,
    "fuse_gemm_epilogue": 9,
    "fuse_relu_depthwise_conv": 2,
    "fuse_bn_act_ops": 2,
    "fuse_bn_add_act_ops": 2,
    "fuse_elewise_add_act_ops": 4,
    "build_cinn_pass": 13,
    "enable_auto_fusion": 11,
    "fuse_adamw": 1,
    "fuse_all_optimizer_ops": 2,
}
"""How often each acts when it is the only one: two is one forward and one backward."""
BEFORE: dict[tuple[str, str], tuple[int, int]] = {
    # A block has its four or two products, what stands between them, the dropout, and the residual.
    ("fused_attention", "fuse_dot_product_attention"): (2, 0),
    ("fused_attention", "fuse_gemm_epilogue"): (2, 4),
    ("fused_attention", "build_cinn_pass"): (2, 9),
    ("fused_attention", "enable_auto_fusion"): (2, 10),
    ("fused_feedforward", "fuse_gemm_epilogue"): (2, 5),
    ("fused_feedforward", "fuse_elewise_add_act_ops"): (2, 2),
    ("fused_feedforward", "build_cinn_pass"): (2, 11),
    ("fused_feedforward", "enable_auto_fusion"): (2, 7),
    ("fuse_dot_product_attention", "build_cinn_pass"): (2, 11),
    # Each of two chunks has a product and a loss; the second one's gradient of the weight is added to the first one's.
    ("fuse_linear_cross_entropy", "fuse_gemm_epilogue"): (1, 11),
    ("fuse_linear_cross_entropy", "build_cinn_pass"): (1, 14),
    # A product has the bias and the activation. Kernels along rows win the residual, and the bias of a library's product.
    ("fuse_gemm_epilogue", "fuse_elewise_add_act_ops"): (9, 2),
    ("fuse_gemm_epilogue", "build_cinn_pass"): (5, 11),
    ("fuse_gemm_epilogue", "enable_auto_fusion"): (9, 6),
    ("fuse_bn_act_ops", "build_cinn_pass"): (2, 12),
    ("fuse_bn_act_ops", "enable_auto_fusion"): (2, 10),
    ("fuse_bn_add_act_ops", "fuse_elewise_add_act_ops"): (2, 3),
    ("fuse_elewise_add_act_ops", "build_cinn_pass"): (4, 11),
    ("fuse_elewise_add_act_ops", "enable_auto_fusion"): (4, 9),
    # What works per element is in the groups of the compiler.
    ("build_cinn_pass", "enable_auto_fusion"): (13, 0),
    ("fuse_adamw", "fuse_all_optimizer_ops"): (1, 1),
}
"""Pairs that look for the same ops -> how often each acts then; others act as alone."""


@cache
def program() -> tuple[Any, list[str]]:
    """Convolutions trained by SGD; a block of a transformer, a linear layer with its loss, and a table, trained by AdamW."""
    main = static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, static.Program()):
        h = static.data("image", [4, 3, 6, 6])
        h = F.relu(static.nn.batch_norm(static.nn.conv2d(h, 8, 3, padding=1, bias_attr=False)))
        h = F.relu(static.nn.batch_norm(static.nn.conv2d(h, 8, 3, padding=1, bias_attr=False)) + h)
        h = static.nn.conv2d(F.relu(h - 0.5), 8, 3, groups=8, bias_attr=False)
        seen = paddle.mean(paddle.square(h))
        paddle.optimizer.SGD(0.1).minimize(seen)
        known = set(main.all_parameters())

        def linear(x: Any, columns: int) -> Any:
            return paddle.nn.Linear(x.shape[-1], columns)(x)

        def norm(x: Any) -> Any:
            return F.layer_norm(x, [8], *(paddle.create_parameter([8], "float32") for _ in range(2)))

        x = static.data("x", [4, 9, 8])
        x.stop_gradient = False
        q, k, v = (linear(x, 8) for _ in range(3))
        h = norm(x + linear(paddle.matmul(F.softmax(paddle.matmul(q, k, transpose_y=True) * 0.35), v), 8))
        h = h + F.dropout(linear(F.gelu(linear(h, 16)), 8), 0.1)
        read = paddle.mean(paddle.square(F.relu(norm(h) + x)))
        logits = linear(static.data("rows", [8192, 4]), 64)
        read = read + paddle.mean(F.softmax_with_cross_entropy(logits, static.data("label", [8192, 1], "int64")))
        table = paddle.create_parameter([5, 8], "float32")
        looked_up = F.embedding(static.data("ids", [4], "int64"), table)
        read = read + paddle.mean(paddle.cumsum(looked_up)) + paddle.mean(paddle.cumsum(table))
        own = [p for p in main.all_parameters() if p not in known]
        paddle.optimizer.AdamW(0.01).minimize(read, parameter_list=own)
    return main, [seen.name, read.name]


def told(*on: str) -> Any:
    main, fetches = program()
    chosen = {**dict.fromkeys(SWITCHES, False), **dict.fromkeys(on, True)}
    return static.CompiledProgram(main, strategy(**chosen)).explain(fetch_list=fetches)


def times(explained: Any, switch: str) -> int:
    """How often a switch acted; explain says it in words, too."""
    count = sum(a.switch == switch for a in explained.applied)
    assert explained[switch].reason.startswith(f"applied {count} time{'s' * (count != 1)}"), explained[switch].reason
    return count


@pytest.mark.parametrize("switch", SWITCHES)
def test_each_acts_alone(switch: str) -> None:
    explained = told(switch)
    assert {a.switch for a in explained.applied} == {switch}
    assert times(explained, switch) == ALONE[switch]


@pytest.mark.parametrize("pair", [*itertools.combinations(SWITCHES, 2)], ids=" ".join)
def test_every_pair_shares_the_ops(pair: tuple[str, str]) -> None:
    explained = told(*pair)
    found = tuple(times(explained, switch) for switch in pair)
    wanted = BEFORE.get(pair, (ALONE[pair[0]], ALONE[pair[1]]))
    assert found == wanted
    assert {a.switch for a in explained.applied} <= set(pair)
    members = Counter(v for a in explained.applied if a.kernel is not None for m in a.members for v in m.outputs)
    assert set(members.values()) <= {1}, "an op is in one fusion"
    for switch in set(SWITCHES) - set(pair):
        assert explained[switch].reason.startswith("off: ")
    refused = {r.code for r in explained.refused if r.switch == "fuse_gemm_epilogue"}
    assert ("ROWS_KERNEL" in refused) is (pair == ("fuse_gemm_epilogue", "build_cinn_pass"))
