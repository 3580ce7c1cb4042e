"""Matrix products with what follows them, on numpy: what is fused, what is not and why, and who wins an add."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.parallel.golden import strategy
from tests.parallel.test_equality import Kind, Nets, batch_of, values
from tstatic import static
from tstatic.target import H200

F = paddle.nn.functional
GEMM = "fuse_gemm_epilogue"
Compute = Callable[[Any], Any]


def data(name: str, *shape: Any, dtype: str = "float32") -> Any:
    var = static.data(name, list(shape), dtype)
    var.stop_gradient = not dtype.startswith(("float", "bfloat"))
    return var


def program(compute: Compute, *shape: int, dtype: str = "float32", train: bool = False) -> tuple[Any, Any, Any]:
    """A program that computes something from ``x`` of a shape, with a loss and an optimizer if it trains."""
    main, startup = static.Program(), static.Program()
    main.random_seed = startup.random_seed = 3
    with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
        out = compute(data("x", *shape, dtype=dtype))
        if train:
            out = paddle.mean(paddle.sin(out))
            paddle.optimizer.SGD(0.1).minimize(out)
    return main, startup, out


def told(main: Any, fetches: Sequence[Any], **switches: bool) -> Any:
    return static.CompiledProgram(main, strategy(**(switches or {GEMM: True}))).explain(fetch_list=list(fetches))


def fused(explained: Any, op: str = "fused_gemm_epilogue") -> list[tuple[str, ...]]:
    return [tuple(m.type for m in a.members) for a in explained.applied if a.op == op]


def codes(explained: Any) -> list[str]:
    return sorted(r.code for r in explained.refused if r.switch == GEMM)


def run(main: Any, startup: Any, feed: dict[str, Any], fetches: Sequence[Any], steps: int = 1, **switches: bool) -> Any:
    """What the last step fetches, and all persistable values."""
    exe, scope = static.Executor(paddle.CPUPlace()), static.Scope()
    exe.run(startup, scope=scope)
    compiled = static.CompiledProgram(main, strategy(**switches))
    for _ in range(steps):
        found = exe.run(compiled, feed=feed, fetch_list=list(fetches), scope=scope)
    kept = {v.name: np.array(scope.find_var(v.name).get_tensor()) for v in main.list_vars() if v.persistable}
    return found, kept


def weight(*shape: int) -> Any:
    return paddle.create_parameter(list(shape), "float32")


def linear(x: Any, columns: int = 5) -> Any:
    return paddle.nn.Linear(x.shape[-1], columns)(x)


# ------------------------------------------------------------------------------------------------------------ what is fused
FORWARD: dict[str, tuple[tuple[int, ...], Compute, tuple[str, ...], str]] = {
    "fc": ((4, 6), lambda x: static.nn.fc(x, 5), ("mul", "elementwise_add"), "none"),
    "fc of rank 3": (
        (2, 3, 6),
        lambda x: static.nn.fc(x, 5, num_flatten_dims=2, activation="relu"),
        ("mul", "elementwise_add", "relu"),
        "relu",
    ),
    "linear": ((2, 3, 6), linear, ("matmul_v2", "elementwise_add"), "none"),
    "gelu": ((4, 6), lambda x: F.gelu(linear(x)), ("matmul_v2", "elementwise_add", "gelu"), "gelu"),
    "silu": ((4, 6), lambda x: F.silu(linear(x)), ("matmul_v2", "elementwise_add", "silu"), "silu"),
    "no bias": ((4, 6), lambda x: F.relu(paddle.matmul(x, weight(6, 5))), ("matmul_v2", "relu"), "relu"),
    "bias first": (
        (4, 6),
        lambda x: weight(5) + paddle.matmul(x, weight(6, 5)),
        ("matmul_v2", "elementwise_add"),
        "none",
    ),
    "both transposed": (
        (4, 6),
        lambda x: paddle.matmul(x, weight(5, 4), transpose_x=True, transpose_y=True) + weight(5),
        ("matmul_v2", "elementwise_add"),
        "none",
    ),
    "Paddle 1's matmul": (
        (4, 6),
        lambda x: F.relu(paddle.fluid.layers.matmul(x, weight(6, 5), alpha=2.0) + weight(5)),
        ("matmul_v2", "scale", "elementwise_add", "relu"),
        "relu",
    ),
    "whole tail": (
        (4, 6),
        lambda x: x + F.dropout(F.gelu(linear(x, 6), approximate=True), 0.25),
        ("matmul_v2", "elementwise_add", "gelu", "dropout", "elementwise_add"),
        "gelu",
    ),
}


@pytest.mark.parametrize("name", FORWARD)
def test_products_take_what_follows_them(name: str) -> None:
    shape, compute, members, activation = FORWARD[name]
    main, startup, out = program(compute, *shape)
    explained = told(main, [out])
    assert fused(explained) == [members]
    assert codes(explained) == []
    feed = {"x": np.random.default_rng(0).standard_normal(shape).astype("float32")}
    compiled = static.CompiledProgram(main, strategy(**{GEMM: True}))
    exe, scope = static.Executor("cpu"), static.Scope()
    exe.run(startup, scope=scope)
    (got,) = exe.run(compiled, feed=feed, fetch_list=[out], scope=scope)
    ((wanted,), _) = run(main, startup, feed, [out])
    assert got.tobytes() == wanted.tobytes()
    (op,) = [o for o in compiled.program.global_block().ops if o.type == "fused_gemm_epilogue"]
    assert op.attr("activation") == activation
    assert op.input("X") == ["x"]
    assert op.output("Out") == [out.name]
    assert bool(op.input("Bias")) == (name not in ("no bias", "Paddle 1's matmul"))
    assert op.attr("trans_x") is op.attr("trans_y") is (name == "both transposed")
    if activation == "gelu":
        assert op.attr("approximate") is (name == "whole tail")


def two_layers(act: Compute) -> Compute:
    return lambda x: paddle.matmul(act(linear(x, 8)), weight(8, 5))


BACKWARD: dict[str, tuple[Compute, tuple[str, ...], tuple[str, ...]]] = {
    "relu": (two_layers(F.relu), ("matmul_v2_grad", "relu_grad", "elementwise_add_grad"), ()),
    "gelu": (two_layers(F.gelu), ("matmul_v2_grad", "gelu_grad", "elementwise_add_grad"), ("linear_1.tmp_1",)),
    "dropout": (
        two_layers(lambda h: F.dropout(F.silu(h), 0.25)),
        ("matmul_v2_grad", "dropout_grad", "silu_grad", "elementwise_add_grad"),
        ("linear_1.tmp_1",),
    ),
}


@pytest.mark.parametrize("name", BACKWARD)
def test_gradients_take_the_activation_before(name: str) -> None:
    compute, members, kept = BACKWARD[name]
    main, startup, loss = program(compute, 4, 6, train=True)
    explained = told(main, [loss])
    assert fused(explained, "fused_gemm_epilogue_grad") == [members]
    # The gradient reads the output where that suffices, else the value before the activation; masks are drawn again.
    assert explained.applied[0].kept == kept
    compiled = static.CompiledProgram(main, strategy(**{GEMM: True}))
    feed = {"x": np.random.default_rng(0).standard_normal((4, 6)).astype("float32")}
    exe, scope = static.Executor("cpu"), static.Scope()
    exe.run(startup, scope=scope)
    exe.run(compiled, feed=feed, fetch_list=[loss], scope=scope)
    ops = compiled.program.global_block().ops
    (grad,) = [o for o in ops if o.type == "fused_gemm_epilogue_grad"]
    assert grad.attr("activation_grad") == f"{name if name != 'dropout' else 'silu'}_grad"
    (forward,) = [o for o in ops if o.type == "fused_gemm_epilogue" and o.attr("activation") != "none"]
    assert grad.input("ReserveSpace") == forward.output("ReserveSpace" if kept else "Out")
    assert grad.output("DBias") == ["linear_0.b_0@GRAD"]
    # The gradients of both parameters that it completes: data parallelism reads their names.
    assert {"linear_0.b_0", "linear_0.b_0@GRAD"} < set(grad.attr("op_role_var"))
    assert len(grad.attr("op_role_var")) == 4
    plain, state = run(main, startup, feed, [loss], 3)
    again, trained = run(main, startup, feed, [loss], 3, **{GEMM: True})
    assert plain[0].tobytes() == again[0].tobytes()
    assert all(state[n].tobytes() == trained[n].tobytes() for n in state)


def test_the_gradient_of_a_shared_weight_is_accumulated() -> None:
    def compute(x: Any) -> Any:
        w = weight(6, 6)
        return paddle.matmul(F.tanh(paddle.matmul(F.tanh(paddle.matmul(x, w)), w)), w)

    main, _, loss = program(compute, 4, 6, train=True)
    found = fused(told(main, [loss]), "fused_gemm_epilogue_grad")
    # The last product to be there adds the gradients of the others.
    assert found == [("matmul_v2_grad", "tanh_grad"), ("matmul_v2_grad", "tanh_grad"), ("matmul_v2_grad", "sum")]


# --------------------------------------------------------------------------------------------------------- near misses
def _persistable(x: Any) -> Any:
    out = paddle.matmul(x, weight(6, 5))
    out.persistable = True
    return out + weight(5)


def _read_twice(x: Any) -> Any:
    out = paddle.matmul(x, weight(6, 5))
    return F.relu(out + weight(5)) * paddle.cumsum(out, 0)


def _forbidden(x: Any) -> Any:
    with static.no_fuse():
        return F.relu(linear(x))


def _mul(x: Any, y: Any, columns: int) -> Any:
    return paddle.fluid.layers.mul(x, y, 1, columns)


MISSES: dict[str, tuple[tuple[Any, ...], Compute, str]] = {
    "bias of rank 2": ((4, 6), lambda x: paddle.matmul(x, weight(6, 5)) + weight(1, 5), "SHAPE_MISMATCH"),
    "bias at another axis": (
        (2, 5, 6),
        lambda x: paddle.fluid.layers.elementwise_add(paddle.matmul(x, weight(6, 5)), weight(5), axis=1),
        "SHAPE_MISMATCH",
    ),
    "bias per row": ((4, 6), lambda x: paddle.matmul(x, weight(6, 5)) + weight(4, 1), "SHAPE_MISMATCH"),
    "larger result": ((4, 6), lambda x: paddle.matmul(x, weight(6, 5)) + weight(2, 4, 5), "SHAPE_MISMATCH"),
    "weight of rank 3": ((4, 6), lambda x: F.relu(_mul(x, weight(2, 3, 5), 2)), "NOT_A_MATRIX"),
    "columns of rank 2": ((4, 6), lambda x: F.relu(_mul(x, weight(6, 3, 5), 1)), "NOT_A_MATRIX"),
    "transposed batch": (
        (2, 6, 4),
        lambda x: paddle.matmul(x, weight(6, 5), transpose_x=True) + weight(5),
        "NOT_A_MATRIX",
    ),
    "batched product": ((2, 4, 6), lambda x: F.relu(paddle.matmul(x, weight(2, 6, 5))), "NOT_A_MATRIX"),
    "vector": ((4, 6), lambda x: F.relu(paddle.matmul(x, weight(6))), "NOT_A_MATRIX"),
    "persistable": ((4, 6), _persistable, "PERSISTABLE"),
    "read twice": ((4, 6), _read_twice, "EXTRA_READER"),
    "forbidden": ((4, 6), _forbidden, "FORBIDDEN"),
    "no elements": ((0, 6), linear, "EMPTY"),
}


@pytest.mark.parametrize("name", MISSES)
def test_look_alikes_stay_unfused(name: str) -> None:
    shape, compute, code = MISSES[name]
    main, startup, out = program(compute, *shape)
    explained = told(main, [out])
    assert (fused(explained), codes(explained)) == ([], [code])
    # With gradients, too, nothing fails.
    main, startup, loss = program(compute, *shape, train=0 not in shape)
    feed = {"x": np.random.default_rng(0).standard_normal(shape).astype("float32")}
    a, b = (run(main, startup, feed, [loss], 2, **{GEMM: on}) for on in (False, True))
    assert a[0][0].tobytes() == b[0][0].tobytes()
    assert all(a[1][n].tobytes() == b[1][n].tobytes() for n in a[1])


def test_whole_numbers_and_unknown_sizes_stay_unfused() -> None:
    main, _, out = program(lambda x: paddle.matmul(x, data("y", 6, 5, dtype="int64")) + 1, 4, 6, dtype="int64")
    assert codes(told(main, [out])) == ["NO_KERNEL_FORM"]
    main, _, out = program(lambda x: F.relu(linear(paddle.masked_select(x, x > 0).reshape([-1, 3]))), 4, 6)
    assert codes(told(main, [out])) == ["DYNAMIC"]


ACTIVATED: dict[str, tuple[Compute, str]] = {
    "gelu of two readers": (lambda x: [s := linear(x), F.gelu(s) + paddle.cumsum(s, 0)][1], "EXTRA_READER"),
    "bias after": (lambda x: F.gelu(linear(x)) + weight(1, 5), "SHAPE_MISMATCH"),
    "scaled per row": (lambda x: F.gelu(linear(x)) * weight(4, 1), "SHAPE_MISMATCH"),
}


def test_a_part_is_fused_where_the_whole_is_not() -> None:
    main, _, out = program(lambda x: F.gelu(linear(x)), 4, 6)
    block = main.global_block()
    product, sums = (block.ops[i].output_arg_names[0] for i in (0, 1))
    explained = told(main, [out, sums])
    assert (fused(explained), codes(explained)) == ([("matmul_v2", "elementwise_add")], ["FETCHED"])
    explained = told(main, [out, product])
    assert (fused(explained), codes(explained)) == ([], ["FETCHED"])
    assert explained.why(product, sums).code == "FETCHED"
    block.var(sums).persistable = True
    main._touch()
    explained = told(main, [out])
    assert (fused(explained), codes(explained)) == ([("matmul_v2", "elementwise_add")], ["PERSISTABLE"])
    for compute, code in ACTIVATED.values():
        main, _, out = program(compute, 4, 6)
        explained = told(main, [out])
        assert codes(explained) == [code]
        assert len(fused(explained)) == 1


def test_every_inner_value_can_be_fetched() -> None:
    main, startup, _ = program(two_layers(lambda h: F.dropout(F.gelu(h), 0.25)), 4, 6, train=True)
    names = list(dict.fromkeys(n for op in main.global_block().ops for n in op.output_arg_names))
    feed = {"x": np.random.default_rng(0).standard_normal((4, 6)).astype("float32")}
    wanted, _ = run(main, startup, feed, names)
    counts = Counter[int]()
    for name, value in zip(names, wanted, strict=True):
        ((got,), _) = run(main, startup, feed, [name], **{GEMM: True})
        assert got.tobytes() == value.tobytes(), name
        explained = told(main, [name])
        assert name not in {v for a in explained.applied for v in a.gone}
        counts[sum(a.switch == GEMM for a in explained.applied)] += 1
    # Some stop a part of a fusion, most stop none.
    assert len(counts) > 1
    assert max(counts) == 3


# --------------------------------------------------------------------------------------------------- misses of gradients
def test_gradients_that_others_read_stay_unfused() -> None:
    main, _, loss = program(two_layers(F.gelu), 4, 6, train=True)
    block = main.global_block()
    grad = next(op for op in block.ops if op.type == "matmul_v2_grad")
    (act,) = [op for op in block.ops if op.type == "gelu_grad"]
    inner = grad.output("X@GRAD")[0], act.output("X@GRAD")[0]
    whole = ("matmul_v2_grad", "gelu_grad", "elementwise_add_grad")
    assert fused(told(main, [loss]), "fused_gemm_epilogue_grad") == [whole]
    for k, name in enumerate(inner):
        explained = told(main, [loss, name])
        assert fused(explained, "fused_gemm_epilogue_grad") == ([whole[:2]] if k else [])
        assert codes(explained) == ["FETCHED"]
    for k, name in enumerate(inner):
        block.var(name).persistable = True
        main._touch()
        explained = told(main, [loss])
        assert fused(explained, "fused_gemm_epilogue_grad") == ([whole[:2]] if k else [])
        assert codes(explained) == ["PERSISTABLE"]
        block.var(name).persistable = False
        main._touch()
    for k, name in enumerate(inner):
        copy = main.clone()
        with static.program_guard(copy, static.Program()):
            out = paddle.cumsum(copy.global_block().var(name), 0)
        explained = told(copy, [loss.name, out])
        assert fused(explained, "fused_gemm_epilogue_grad") == ([whole[:2]] if k else [])
        assert codes(explained) == ["EXTRA_READER"]


def forbidden_gradient(x: Any) -> Any:
    hidden = F.gelu(linear(x, 8))
    with static.no_fuse():
        return paddle.matmul(hidden, weight(8, 5))


def batched_gradient(x: Any) -> Any:
    hidden = F.gelu(linear(x, 8))
    return paddle.matmul(paddle.reshape(hidden, [2, 2, 8]), weight(2, 8, 5))


@pytest.mark.parametrize(
    ("compute", "code"), [(forbidden_gradient, "FORBIDDEN"), (batched_gradient, None)], ids=["forbidden", "batched"]
)
def test_gradients_that_almost_fit_stay_unfused(compute: Compute, code: str | None) -> None:
    main, startup, loss = program(compute, 4, 6, train=True)
    explained = told(main, [loss])
    assert fused(explained, "fused_gemm_epilogue_grad") == []
    assert code is None or code in codes(explained), codes(explained)
    feed = {"x": np.random.default_rng(0).standard_normal((4, 6)).astype("float32")}
    plain, state = run(main, startup, feed, [loss], 3)
    again, trained = run(main, startup, feed, [loss], 3, **{GEMM: True})
    assert plain[0].tobytes() == again[0].tobytes()
    assert all(state[n].tobytes() == trained[n].tobytes() for n in state)


def test_strict_numerics_fuse_the_same_and_add_as_the_operators_alone() -> None:
    main, _, loss = program(two_layers(F.gelu), 4000, 6, train=True)
    before = told(main, [loss])
    paddle.set_flags({"FLAGS_numerics": "strict"})
    try:
        explained = told(main, [loss])
    finally:
        paddle.set_flags({"FLAGS_numerics": "default"})
    made = [a for a in explained.applied if a.switch == GEMM]
    assert [a.members for a in made] == [a.members for a in before.applied if a.switch == GEMM]
    assert codes(explained) == codes(before)
    # The gradient of the bias is a sum behind the product, by the kernel that it has alone: one launch, and one to add strips.
    (backward,) = (a.kernel for a in made if a.op == "fused_gemm_epilogue_grad")
    assert backward is not None
    assert [one.function for one in backward.plan(H200).launches][-2:] == ["part1_kernel", "part1_finish"]
    assert explained.strict is not None
    assert explained.strict.launches > 0


# -------------------------------------------------------------------------------------------------------- who wins an add
def block_of(dtype: str) -> tuple[Any, Any]:
    """A feed-forward block with dropout, residual and layer norm, in a type; trained."""
    main, startup = static.Program(), static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
        x = paddle.cast(data("x", 4, 8), dtype)

        def make(*shape: int) -> Any:
            return paddle.create_parameter(list(shape), dtype)

        h = F.gelu(paddle.matmul(x, make(8, 16)) + make(16))
        h = x + F.dropout(paddle.matmul(h, make(16, 8)) + make(8), 0.1)
        out = F.layer_norm(h, [8], make(8), make(8))
        loss = paddle.mean(paddle.square(paddle.cast(out, "float32")))
        paddle.optimizer.SGD(0.1).minimize(loss)
    return main, loss


LAST = ("matmul_v2", "elementwise_add", "dropout", "elementwise_add")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_kernel_along_rows_wins_the_residual(dtype: str) -> None:
    main, loss = block_of(dtype)
    # Without a kernel along rows the product takes all.
    alone = told(main, [loss])
    assert LAST in fused(alone)
    assert codes(alone) == []
    both = told(main, [loss], **{GEMM: True, "build_cinn_pass": True})
    assert codes(both) == ["ROWS_KERNEL"]
    # A library's product would need one more pass for the bias alone.
    first = ("matmul_v2", "elementwise_add", "gelu")
    assert fused(both) == ([first] if dtype == "float32" else [first, LAST[:2]])
    groups = [tuple(m.type for m in a.members) for a in both.applied if a.switch == "build_cinn_pass"]
    wanted = ("elementwise_add", "dropout", "elementwise_add", "layer_norm")[dtype != "float32" :]
    assert any(g[: len(wanted)] == wanted for g in groups), groups
    # The gradient of its bias is a sum over what the kernel along rows makes, with the layer norm's own sums.
    assert any({"layer_norm_grad", "dropout_grad", "elementwise_add_grad"} <= {*g} for g in groups), groups
    (no,) = [r for r in both.refused if r.switch == GEMM]
    assert [m.type for m in no.members] == (
        ["matmul_v2", "elementwise_add"] if dtype == "float32" else ["elementwise_add", "dropout"]
    )
    assert "ROWS_KERNEL" in both["fuse_gemm_epilogue"].reason


PAIRED = (
    "fuse_elewise_add_act_ops",
    "enable_auto_fusion",
    "build_cinn_pass",
    "fuse_bn_act_ops",
    "fuse_all_optimizer_ops",
)


@pytest.mark.parametrize("pair", [*itertools.combinations((GEMM, *PAIRED), 2)], ids=" ".join)
def test_every_pair_of_switches_shares_the_ops(pair: tuple[str, str]) -> None:
    """No op is in two fusions of one level; products are fused as without the other switch, but for what rows win."""
    main, loss = block_of("float32")
    explained = told(main, [loss], **dict.fromkeys(pair, True))
    count = Counter(a.switch for a in explained.applied)
    assert set(count) <= set(pair)
    gemm = 0 if GEMM not in pair else 2 if "build_cinn_pass" in pair else 3
    assert count[GEMM] == gemm
    members = Counter(v for a in explained.applied for m in a.members for v in m.outputs if a.kernel is not None)
    assert set(members.values()) <= {1}
    if gemm:
        # What the product has taken, no other fusion finds: the first sum with its activation.
        adds = [a for a in explained.applied if a.switch == "fuse_elewise_add_act_ops"]
        assert [a.op for a in adds] == []
    for switch in set(pair) - {GEMM}:
        assert f"applied {count[switch]} time" in explained[switch].reason


@pytest.mark.parametrize("switch", [GEMM, "fused_feedforward"])
@pytest.mark.parametrize("kind", [Kind.AllReduce, Kind.Reduce], ids=lambda k: k.name)
def test_two_places_train_as_unfused(kind: Kind, switch: str) -> None:
    nets = Nets("momentum", "none")
    batch = batch_of(8, 2)
    found = []
    for on in (False, True):
        exe, scope, main, loss = nets.start(False)
        compiled = static.CompiledProgram(main).with_data_parallel(
            loss.name, strategy(reduce_strategy=kind, **{switch: on}), places=[paddle.CPUPlace()] * 2
        )
        losses = [exe.run(compiled, feed=batch, fetch_list=[loss], scope=scope)[0] for _ in range(3)]
        told_of = compiled.explain(fetch_list=[loss], feed_shapes={n: a.shape for n, a in batch.items()})
        assert any(a.switch == switch and a.op.endswith("_grad") for a in told_of.applied) is on
        found.append((np.array(losses), values(scope)))
    assert found[0][0].tobytes() == found[1][0].tobytes()
    assert all(found[0][1][n].tobytes() == found[1][1][n].tobytes() for n in found[0][1])
