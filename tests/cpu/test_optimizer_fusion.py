"""Optimizer fusions on numpy: bitwise the unfused steps, the right groups, and a reason for what stays apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.optimizer_programs import CASES, CLIPPED, SHAPES, Case, same, state, train, training
from tstatic import static
from tstatic.ir.build import emit

opt = paddle.optimizer
BOTH = ("fuse_adamw", "fuse_all_optimizer_ops")


def explained(main: Any, fetch: Any, *switches: str) -> Any:
    strategy = static.BuildStrategy()
    for name in switches:
        setattr(strategy, name, True)
    shapes = {v.name: [4 if s < 0 else int(s) for s in v.shape] for v in main.list_vars() if v.is_data}
    return static.CompiledProgram(main, strategy).explain(fetch_list=fetch, feed_shapes=shapes)


def groups(found: Any) -> list[tuple[str, int]]:
    return [(a.op, len(a.members)) for a in found.applied]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_steps_are_bitwise_the_unfused_ones(case: Case) -> None:
    one = training(case.make, case.dtype, case.shapes)
    plain, wanted, _ = train(one)
    values, found, compiled = train(one, [case.switch])
    assert all(same(a, b) for a, b in zip(values, plain, strict=True))
    assert all(same(found[n], wanted[n]) for n in wanted)
    types = [op.type for op in compiled.program.global_block().ops]
    assert [t for t in types if t in set(case.fused)] == list(case.fused)


def test_counts() -> None:
    n = len(SHAPES)
    found = explained(training(lambda: opt.Momentum(0.1)).main, [], *BOTH)
    assert groups(found) == [("momentum", n)]
    assert not found.refused
    decays = {"w0", "w3"}
    make = lambda: opt.AdamW(0.1, apply_decay_param_fun=lambda name: name in decays)  # noqa: E731
    found = explained(training(make).main, [], *BOTH)
    assert sorted(groups(found)) == [("fused_adam", 2), ("fused_adam", n - 2)]
    assert {a.fusion for a in found.applied} == {"adamw"}
    assert explained(training(make).main, []).applied == ()


def test_adamw_alone_is_a_group_for_its_own_switch_only() -> None:
    one = training(lambda: opt.AdamW(0.1), shapes=((3,),))
    assert groups(explained(one.main, [], "fuse_adamw")) == [("fused_adam", 1)]
    assert groups(explained(one.main, [], "fuse_all_optimizer_ops")) == []


def test_each_switch_has_its_ops() -> None:
    adam = training(lambda: opt.Adam(0.1)).main
    assert groups(explained(adam, [], "fuse_adamw")) == []
    assert groups(explained(adam, [], "fuse_all_optimizer_ops")) == [("adam", len(SHAPES))]


def test_slots_and_attributes_of_fused_adam() -> None:
    one = training(lambda: opt.AdamW(0.1, beta1=0.8, weight_decay=0.05), shapes=((3,), (4, 2)))
    _, _, compiled = train(one, ["fuse_adamw"], steps=1)
    (op,) = [o for o in compiled.program.global_block().ops if o.type == "fused_adam"]
    assert op.input("Params") == ["w0", "w1"]
    assert op.input("Grads") == ["w0@GRAD", "w1@GRAD"]
    assert op.input("Moments1") == ["w0_moment1_0", "w1_moment1_0"]
    assert op.input("LearningRate") == ["learning_rate_0"]
    assert op.output("Beta2PowsOut") == ["w0_beta2_pow_acc_0", "w1_beta2_pow_acc_0"]
    attrs = {n: op.attr(n) for n in ("beta1", "beta2", "weight_decay", "use_adamw", "chunk_size")}
    assert attrs == {"beta1": 0.8, "beta2": 0.999, "weight_decay": 0.05, "use_adamw": True, "chunk_size": 32768}


# ------------------------------------------------------------------------------------------------------------ near misses
def test_learning_rates_of_parameters_make_groups() -> None:
    rates = {1: {"learning_rate": 0.5}, 2: {"learning_rate": 0.5}, 4: {"learning_rate": 2.0}}
    one = training(lambda: opt.SGD(0.1), attrs=rates)
    found = explained(one.main, [], "fuse_all_optimizer_ops")
    assert sorted(groups(found)) == [("sgd", 2), ("sgd", len(SHAPES) - 3)]
    (refused,) = found.refused
    assert refused.code == "ATTRIBUTE"
    assert "LearningRate" in refused.reason
    assert refused.members[-1].outputs == ("w4#1",)
    assert all(same(a, b) for a, b in zip(train(one)[0], train(one, BOTH)[0], strict=True))


def test_decay_of_parameters_makes_groups() -> None:
    """Paddle's fused momentum loses L2 decay, which stands in an attribute of each op."""
    own = {1: {"regularizer": paddle.regularizer.L2Decay(0.5)}}
    one = training(lambda: opt.Momentum(0.1), attrs=own)
    found = explained(one.main, [], "fuse_all_optimizer_ops")
    assert groups(found) == [("momentum", len(SHAPES) - 1)]
    (refused,) = found.refused
    assert refused.code == "ATTRIBUTE"
    assert "regularization_coeff" in refused.reason
    plain, wanted, _ = train(one)
    values, state_, _ = train(one, BOTH)
    assert all(same(a, b) for a, b in zip(values, plain, strict=True))
    assert all(same(state_[n], wanted[n]) for n in wanted)


def test_two_types_make_groups() -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [4], "float32")
        ws = [
            static.create_parameter([4], d, attr=paddle.ParamAttr(name=f"w{i}"))
            for i, d in enumerate(("float32", "float64", "float32", "float64"))
        ]
        loss = paddle.sum(sum((w.astype("float32") * x for w in ws[1:]), ws[0] * x))
        opt.SGD(0.1).minimize(loss)
    found = explained(main, [], "fuse_all_optimizer_ops")
    assert groups(found) == [("sgd", 2), ("sgd", 2)]


def test_two_optimizers_make_groups() -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [4], "float32")
        ws = [static.create_parameter([4], "float32", attr=paddle.ParamAttr(name=f"w{i}")) for i in range(4)]
        loss = paddle.sum((ws[0] + ws[1]) * (ws[2] + ws[3]) * x)
        opt.SGD(0.1, parameters=ws[:2]).minimize(loss, parameters=ws[:2])
        opt.Adam(0.1, parameters=ws[2:]).minimize(loss, parameters=ws[2:])
    found = explained(main, [], "fuse_all_optimizer_ops")
    assert sorted(groups(found)) == [("adam", 2), ("sgd", 2)]


def test_an_updated_parameter_that_is_read_again_stays_apart() -> None:
    one = training(lambda: opt.SGD(0.1))
    with static.program_guard(one.main, one.startup):
        w = one.main.global_block().var("w1")
        after = paddle.sum(w * 2.0)
    found = explained(one.main, [after], "fuse_all_optimizer_ops")
    assert groups(found) == [("sgd", len(SHAPES) - 1)]
    (refused,) = found.refused
    assert refused.code == "EXTRA_READER"
    plain, wanted, _ = train(one, fetch=[after])
    values, state_, _ = train(one, BOTH, fetch=[after])
    assert all(same(a, b) for a, b in zip(values, plain, strict=True))
    assert all(same(state_[n], wanted[n]) for n in wanted)


def test_a_second_step_of_the_same_parameters_is_a_group_of_its_own() -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [4], "float32")
        ws = [static.create_parameter([4], "float32", attr=paddle.ParamAttr(name=f"w{i}")) for i in range(3)]
        sgd = opt.SGD(0.1)
        sgd.minimize(paddle.sum(sum(ws[1:], ws[0]) * x))
        sgd.minimize(paddle.sum(ws[0] * ws[1] * ws[2] * x))
    found = explained(main, [], "fuse_all_optimizer_ops")
    # The first steps are read by the second loss, and are not at the end.
    assert groups(found) == [("sgd", 3)]
    assert {r.code for r in found.refused} == {"EXTRA_READER"}


def test_a_forbidden_update_leaves_the_others_together() -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [4], "float32")
        ws = [static.create_parameter([4], "float32", attr=paddle.ParamAttr(name=f"w{i}")) for i in range(4)]
        loss = paddle.sum(sum(ws[1:], ws[0]) * x)
        sgd = opt.SGD(0.1)
        pairs = sgd.backward(loss)
        with static.no_fuse():
            sgd.apply_gradients(pairs[:1])
        sgd.apply_gradients(pairs[1:])
    assert groups(explained(main, [], "fuse_all_optimizer_ops")) == [("sgd", 3)]


def test_a_gradient_can_be_fetched() -> None:
    one = training(lambda: opt.Adam(0.1))
    names = [f"w{i}@GRAD" for i in range(len(SHAPES))]
    assert groups(explained(one.main, names, *BOTH)) == [("adam", len(SHAPES))]
    plain, _, _ = train(one, fetch=names)
    values, _, _ = train(one, BOTH, fetch=names)
    assert all(same(a, b) for a, b in zip(values, plain, strict=True))


# --------------------------------------------------------------------------------------------------------------- clipping
def test_clipping_is_part_of_the_groups() -> None:
    clip = paddle.nn.ClipGradByGlobalNorm(0.5)
    one = training(
        lambda: opt.Adam(0.1, grad_clip=clip), shapes=CLIPPED, attrs={1: {"need_clip": False}, 2: {"need_clip": False}}
    )
    found = explained(one.main, [], "fuse_all_optimizer_ops")
    n = len(CLIPPED) - 2
    # The norm of each, their sum and three ops for the factor; the product and the update of each; the updates of the others.
    assert groups(found) == [("squared_l2_norm", n + 4), ("adam", 2 * n), ("adam", 2)]
    plain, wanted, _ = train(one)
    values, after, _ = train(one, BOTH)
    assert all(same(a, b) for a, b in zip(values, plain, strict=True))
    assert all(same(after[n], wanted[n]) for n in wanted)


def test_a_clipped_gradient_that_is_fetched_is_not_folded_in() -> None:
    one = training(lambda: opt.SGD(0.1, grad_clip=paddle.nn.ClipGradByGlobalNorm(0.5)), shapes=CLIPPED)
    found = explained(one.main, ["w0@GRAD"], "fuse_all_optimizer_ops")
    n = len(CLIPPED)
    assert groups(found) == [("squared_l2_norm", n + 4), ("sgd", 2 * (n - 1))]
    (refused,) = found.refused
    assert "factor" in refused.reason
    plain, _, _ = train(one, fetch=["w0@GRAD"])
    values, _, _ = train(one, BOTH, fetch=["w0@GRAD"])
    assert all(same(a, b) for a, b in zip(values, plain, strict=True))


def test_a_norm_that_is_fetched_stays() -> None:
    one = training(lambda: opt.SGD(0.1, grad_clip=paddle.nn.ClipGradByGlobalNorm(0.5)), shapes=CLIPPED)
    (name,) = next(op for op in one.main.global_block().ops if op.type == "squared_l2_norm").output_arg_names
    found = explained(one.main, [name], "fuse_all_optimizer_ops")
    assert [op for op, _ in groups(found)] == ["sgd"]
    assert [r.code for r in found.refused] == ["FETCHED"]


def clipping(make: Any = opt.SGD) -> tuple[Any, dict[str, str]]:
    """A training with clipping, and what its ops behind the norms write, by type."""
    one = training(lambda: make(0.1, grad_clip=paddle.nn.ClipGradByGlobalNorm(0.5)), shapes=CLIPPED)
    ops = one.main.global_block().ops
    first = next(i for i, op in enumerate(ops) if op.type == "squared_l2_norm")
    kinds = ("sum", "sqrt", "elementwise_max", "elementwise_div")
    return one, {op.type: op.output_arg_names[0] for op in ops[first:] if op.type in kinds}


def test_numbers_behind_the_norm_are_written_where_they_are_read() -> None:
    one, names = clipping()
    wanted = [names["sum"], names["sqrt"], names["elementwise_div"]]
    found = explained(one.main, wanted, "fuse_all_optimizer_ops")
    n = len(CLIPPED)
    assert groups(found) == [("squared_l2_norm", n + 4), ("sgd", 2 * n)]
    assert not {names["sum"], names["sqrt"]} & {*found.applied[0].gone}
    assert names["elementwise_max"] in found.applied[0].gone
    plain, _, _ = train(one, fetch=wanted)
    values, _, _ = train(one, BOTH, fetch=wanted)
    assert all(same(a, b) for a, b in zip(values, plain, strict=True))


@pytest.mark.parametrize("make", [opt.AdamW, opt.SGD])
def test_the_general_compilers_leave_the_norm_and_single_gradients_to_the_updates(make: Any) -> None:
    one, _ = clipping(make)
    general = ("build_cinn_pass", "enable_auto_fusion")
    for fetch in ([one.loss], []):
        found = explained(one.main, fetch, *BOTH, *general)
        own = [group for group in groups(found) if group[0] != "fusion_group"]
        assert own == groups(explained(one.main, fetch, *BOTH))
        assert all(a.written for a in found.applied), "a loss that nobody fetches has no kernel"


def test_what_may_not_be_fused_or_is_no_number_stays_behind_the_norm() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        many, few = static.data("many", [4]), static.data("few", [3])
        total = paddle.add_n([emit("squared_l2_norm", {"X": v}) for v in (many, few)])
        with static.no_fuse():
            apart = paddle.sqrt(total)
        spread = static.data("other", [4]) * total
        # No kernel looks for a place, and what needs it cannot be in the launch before it.
        last = paddle.cast(paddle.argmax(total, axis=0), "float32") + total
        taken = paddle.exp(total)
        w = static.create_parameter([2], "float32")
        opt.SGD(0.1).minimize(paddle.mean(w))
    found = explained(main, [apart, spread, last, taken], "fuse_all_optimizer_ops")
    assert [m.type for m in found.applied[0].members] == ["squared_l2_norm", "squared_l2_norm", "sum", "exp"]
    with static.program_guard(main), static.no_fuse():
        total = paddle.add_n([emit("squared_l2_norm", {"X": v}) for v in (few, many)])
    refused = explained(main, [total], "fuse_all_optimizer_ops").refused
    assert [r.code for r in refused] == ["FORBIDDEN"]


# ---------------------------------------------------------------------------------------------------------- lazy updates
@pytest.mark.parametrize(("rule", "switch"), [("Adam", "fuse_all_optimizer_ops"), ("AdamW", "fuse_adamw")])
def test_updates_that_leave_rows_alone_stay_by_themselves(rule: str, switch: str) -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        ids = static.data("ids", [-1], "int64")
        parts = [static.nn.embedding(ids, [4, 2], is_sparse=i < 2) for i in range(4)]
        getattr(opt, rule)(0.1, lazy_mode=True).minimize(paddle.mean(paddle.add_n(parts)))
    found = explained(main, [], switch)
    kind = "fused_adam" if switch == "fuse_adamw" else "adam"
    assert groups(found) == [(kind, 2)]
    assert ["lazy_mode" in r.reason for r in found.refused] == [True, True]


# ----------------------------------------------------------------------------------------------------------- flat buffers
def flats(scope: Any, name: str) -> Any:
    return scope.find_var(name).get_tensor().flat


def started(one: Any) -> tuple[Any, Any, Any]:
    scope = static.Scope()
    exe = static.Executor(paddle.CPUPlace())
    exe.run(one.startup, scope=scope)
    exe.run(one.main, feed=one.feed(0), fetch_list=[one.loss], scope=scope)
    return scope, exe, one


@pytest.mark.numpy_device
@pytest.mark.parametrize("make", [lambda: opt.AdamW(0.1, multi_precision=True), lambda: opt.Momentum(0.1)])
def test_state_lies_in_flat_buffers(make: Any) -> None:
    one = training(make, "bfloat16")
    scope, _, _ = started(one)
    slots = {"Param": "w{}"}
    names = list(scope.local_var_names())
    slots.update(
        {s: n for s, n in (("Moment1", "w{}_moment1_0"), ("Velocity", "w{}_velocity_0")) if n.format(0) in names}
    )
    assert len(slots) == 2
    orders = []
    for stream, pattern in slots.items():
        flat = flats(scope, pattern.format(0))
        assert flat.stream == stream
        assert len(flat.names) == len(SHAPES)
        assert flat.array.ctypes.data % 256 == 0
        used = np.zeros(flat.array.size, bool)
        for name, offset in zip(flat.names, flat.offsets, strict=True):
            array = scope.array(name)
            assert flats(scope, name) is flat
            assert offset % 1024 == 0
            assert np.shares_memory(array, flat.array)
            assert array.ctypes.data == flat.array.ctypes.data + offset * flat.array.itemsize
            used[offset : offset + array.size] = True
        assert (flat.array[~used].astype(np.float32) == 0).all()
        orders.append([n.split("_")[0] for n in flat.names])
    assert orders[0] == orders[1]


def test_the_order_is_that_of_the_backward_reversed() -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [2, 4], "float32")
        for i in range(3):
            x = static.nn.fc(x, 4, weight_attr=paddle.ParamAttr(name=f"layer{i}"), bias_attr=False)
        opt.SGD(0.1).minimize(paddle.mean(x))
    scope = static.Scope()
    exe = static.Executor(paddle.CPUPlace())
    exe.run(startup, scope=scope)
    exe.run(main, feed={"x": np.ones((2, 4), np.float32)}, scope=scope)
    assert flats(scope, "layer0").names == ("layer0", "layer1", "layer2")


@pytest.mark.numpy_device
def test_set_writes_through_and_another_shape_leaves() -> None:
    scope, exe, one = started(training(lambda: opt.SGD(0.0)))
    flat = flats(scope, "w0")
    new = np.arange(35, dtype=np.float32).reshape(7, 5)
    scope.var("w0").get_tensor().set(new, paddle.CPUPlace())
    at = flat.offsets[flat.names.index("w0")]
    assert (flat.array[at : at + 35].reshape(7, 5) == new).all()
    layout = scope.layout
    (value,) = exe.run(one.main, feed=one.feed(1), fetch_list=["w0"], scope=scope)
    assert (value == new).all()
    assert scope.layout == layout
    scope.var("w0").get_tensor().set(np.zeros(3, np.float32))
    assert flats(scope, "w0") is None
    assert scope.layout > layout


@pytest.mark.numpy_device
def test_programs_that_share_parameters_share_buffers() -> None:
    one = training(lambda: opt.SGD(0.1))
    other = static.Program()
    with static.program_guard(other, static.Program()):
        w = static.create_parameter([7, 5], "float32", attr=paddle.ParamAttr(name="w0"))
        more = static.create_parameter(
            [9], "float32", attr=paddle.ParamAttr(name="more", initializer=paddle.nn.initializer.Constant(1.0))
        )
        opt.SGD(0.1).minimize(paddle.sum(w) + paddle.sum(more))
    scope, exe, _ = started(one)
    flat, layout = flats(scope, "w0"), scope.layout
    before = np.array(scope.array("w0"))
    scope.var("more").get_tensor().set(np.ones(9, np.float32))
    scope.var("learning_rate_1").get_tensor().set(np.full(1, 0.1, np.float32))
    for name in [v.name for v in other.list_vars() if v.persistable and scope.array(v.name) is None]:
        scope.var(name).get_tensor().set(np.full(1, 0.1, np.float32))
    exe.run(other, scope=scope)
    assert flats(scope, "w0") is flat
    assert np.allclose(scope.array("w0"), before - 0.1)
    assert flats(scope, "more").names == ("more",)
    assert scope.layout > layout
    exe.run(one.main, feed=one.feed(1), scope=scope)
    assert flats(scope, "w0") is flat


def test_inference_moves_nothing() -> None:
    one = training(lambda: opt.SGD(0.1))
    scope = static.Scope()
    exe = static.Executor(paddle.CPUPlace())
    exe.run(one.startup, scope=scope)
    exe.run(one.main.clone(for_test=True), feed=one.feed(0), fetch_list=[one.loss.name], scope=scope)
    assert flats(scope, "w0") is None


def test_a_failed_first_step_leaves_the_values() -> None:
    one = training(lambda: opt.Adam(0.1))
    scope = static.Scope()
    exe = static.Executor(paddle.CPUPlace())
    exe.run(one.startup, scope=scope)
    before = state(one.main, scope)
    paddle.set_flags({"FLAGS_check_nan_inf": True})
    feed = one.feed(0)
    feed["x0"] = np.full((7, 5), np.nan, np.float32)
    with pytest.raises(paddle.errors.NumericsError):
        exe.run(one.main, feed=feed, fetch_list=[one.loss], scope=scope)
    after = state(one.main, scope)
    assert all(same(before[n], after[n]) for n in before)
