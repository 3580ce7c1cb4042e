"""On numpy a fused batch norm runs the ops that it stands for: every bit stays."""

from __future__ import annotations

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.bn_nets import SHAPES, gradients_of, residual, trained
from tstatic import static
from tstatic.fusion.rewrites.shape_readers import shapes_from_contents
from tstatic.ir.frozen import freeze
from tstatic.ir.types import Meta
from tstatic.plan.known_values import infer_program


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("act", ["relu", "gelu", "silu", "leaky_relu"])
def test_same_bits(act: str, layout: str) -> None:
    program = residual(act, layout)
    fetches = gradients_of(program[0])
    unfused, expected, _ = trained(program, False, fetches, layout=layout)
    fused, found, told = trained(program, True, fetches, layout=layout)
    assert sorted(a.op for a in told.applied) == [
        "fused_batch_norm_act", "fused_batch_norm_act_grad", "fused_bn_add_activation", "fused_bn_add_activation_grad",
    ]  # fmt: skip
    assert told.kernel_kind == "reference"
    for a, b in zip(fused, unfused, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], name)


def test_slots_and_types_are_as_in_paddle() -> None:
    program = residual()
    _, _, told = trained(program, True, [], steps=1)
    by_type = {a.op: a for a in told.applied}
    assert [m.type for m in by_type["fused_batch_norm_act"].members] == ["batch_norm", "relu"]
    assert [m.type for m in by_type["fused_bn_add_activation_grad"].members] == [
        "relu_grad", "elementwise_add_grad", "batch_norm_grad",
    ]  # fmt: skip


def test_every_inner_value_can_be_fetched() -> None:
    """With the switches on; what is fetched is then not fused away."""
    main, _, loss = program = residual()
    block = main.global_block()
    names = [n for op in block.ops for n in op.output_arg_names if not n.endswith("XShape")]
    fetches = [n for n in dict.fromkeys(names) if n != loss.name and not block.var(n).persistable]
    unfused, _, _ = trained(program, False, fetches, steps=1)
    fused, _, _ = trained(program, True, fetches, steps=1)
    for name, a, b in zip([loss.name, *fetches], fused[0], unfused[0], strict=True):
        np.testing.assert_array_equal(a, b, name)


def test_shapes_are_taken_from_what_is_read_anyway() -> None:
    """The gradient of an add asks for shapes only; of equal ones it takes the gradient's, of others the operand's."""
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x, y, b = (static.data(n, s) for n, s in (("x", [2, 3]), ("y", [2, 3]), ("b", [3])))
        for v in (x, y, b):
            v.stop_gradient = False
        loss = paddle.mean((x + y) + b)
        static.gradients([loss], [x, y, b])
    frozen = freeze(main, ["x", "y", "b"], [loss.name, "x@GRAD", "y@GRAD", "b@GRAD"])
    metas = infer_program(frozen, {n: main.global_block().var(n).meta for n in ("x", "y", "b")})
    changed = shapes_from_contents(frozen, metas)
    adds = [op for op in changed.ops if op.type == "elementwise_add_grad"]
    assert len(adds) == 2
    for op in adds:
        assert op.input("X") == op.input("Out@GRAD")
    assert {op.input("Y") for op in adds} == {"b", adds[1].input("Out@GRAD")}
    assert shapes_from_contents(changed, metas) is changed


def test_a_fill_of_a_known_shape_reads_nothing() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x, batch = static.data("x", [2, 3], "float16"), static.data("batch", [None, 3])
        made = [
            paddle.full_like(x, 2.5), paddle.full_like(x, 3, "int64"), paddle.zeros_like(batch),
            paddle.fluid.layers.zeros_like(x), paddle.fluid.layers.fill_constant_batch_size_like(batch, [7, 2], "int32", 4),
        ]  # fmt: skip
    feed = {"x": np.zeros((2, 3), np.float16), "batch": np.zeros((5, 3), np.float32)}
    frozen = freeze(main, ["x", "batch"], [v.name for v in made])
    metas = {"x": Meta((2, 3), main.global_block().var("x").meta.dtype), "batch": Meta((5, 3), made[2].dtype)}
    changed = shapes_from_contents(frozen, infer_program(frozen, metas))
    assert [op.type for op in changed.ops] == ["fill_constant"] * 5
    assert not any(list(op.reads()) for op in changed.ops)
    strategy = static.BuildStrategy()
    strategy.enable_auto_fusion = True
    a, b = (
        static.Executor("cpu").run(p, feed=feed, fetch_list=made)
        for p in (main, static.CompiledProgram(main, build_strategy=strategy))
    )
    for one, other in zip(a, b, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
    open_ = shapes_from_contents(frozen, infer_program(frozen, {n: main.global_block().var(n).meta for n in feed}))
    assert [op.type == "fill_constant" for op in open_.ops] == [True, True, False, True, False]


def test_the_default_switch() -> None:
    """fuse_bn_add_act_ops is on unless it is switched off; fuse_bn_act_ops is not."""
    main, _, loss = residual()
    told = static.CompiledProgram(main).explain(fetch_list=[loss], feed_shapes={"x": SHAPES["NCHW"]})
    assert {a.switch for a in told.applied} == {"fuse_bn_add_act_ops"}
