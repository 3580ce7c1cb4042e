"""Small programs that one call cannot say: control flow, gradients, Python functions. `paddle` is the module under test."""

from __future__ import annotations

from typing import Any

import numpy as np


def cond_true(paddle: Any, x: Any, yes: Any) -> Any:
    return paddle.static.nn.cond(yes, lambda: x * 2, lambda: x + 1)


def cond_false(paddle: Any, x: Any, yes: Any) -> Any:
    return paddle.static.nn.cond(yes, lambda: x * 2, lambda: x * x)


def cond_without_false(paddle: Any, x: Any, yes: Any) -> Any:
    kept = paddle.assign(x)
    paddle.static.nn.cond(yes, lambda: paddle.assign(x * 3, output=kept))
    return kept


def cond_of_tuples(paddle: Any, x: Any, yes: Any) -> Any:
    return paddle.static.nn.cond(yes, lambda: (x * 2, paddle.sum(x)), lambda: (x, paddle.mean(x)))


def cond_nested(paddle: Any, x: Any, yes: Any, no: Any) -> Any:
    nn = paddle.static.nn
    return nn.cond(yes, lambda: nn.cond(no, lambda: x, lambda: x * 5), lambda: x - 1)


def case_first(paddle: Any, x: Any, u: Any) -> Any:
    return paddle.static.nn.case([(u < 0.5, lambda: x * 2), (u < 0.7, lambda: x * 3)], lambda: x * 4)


def case_default(paddle: Any, x: Any, u: Any) -> Any:
    return case_first(paddle, x, u)


def switch_two(paddle: Any, x: Any, k: Any) -> Any:
    return paddle.static.nn.switch_case(k, {1: lambda: x * 2, 2: lambda: x * 3}, lambda: x * 4)


def switch_default(paddle: Any, x: Any, k: Any) -> Any:
    return switch_two(paddle, x, k)


def while_sum(paddle: Any, x: Any) -> Any:
    i, total = paddle.full([1], 0, "int64"), paddle.full([1], 0.0, "float32")
    n = paddle.full([1], 4, "int64")
    return paddle.static.nn.while_loop(lambda i, s: i < n, lambda i, s: [i + 1, s + 0.5], [i, total])


def while_gradient(paddle: Any, x: Any) -> Any:
    i, n = paddle.full([1], 0, "int64"), paddle.full([1], 3, "int64")
    return paddle.static.nn.while_loop(lambda i, h: i < n, lambda i, h: [i + 1, paddle.tanh(h) * 1.5], [i, x * 1.0])[1]


def while_loop_tuple(paddle: Any, x: Any) -> Any:
    i = paddle.full([1], 0, "int64")
    return paddle.static.nn.while_loop(lambda i, h: i < 2, lambda i, h: (i + 1, h + x), (i, x))


def py_func_twice(paddle: Any, x: Any) -> Any:
    out = paddle.static.default_main_program().current_block().create_var(name="o", dtype="float32", shape=x.shape)
    return paddle.static.py_func(lambda a: np.asarray(a) * 2, x, out)


def py_func_gradient(paddle: Any, x: Any) -> Any:
    out = paddle.static.default_main_program().current_block().create_var(name="o", dtype="float32", shape=x.shape)
    back = lambda a, o, g: np.asarray(g) * 2 * np.asarray(a)  # noqa: E731
    return paddle.static.py_func(lambda a: np.asarray(a) ** 2, x * 1.0, out, back)


def print_through(paddle: Any, x: Any) -> Any:
    return x + 1


def assert_true(paddle: Any, x: Any) -> Any:
    paddle.static.nn.control_flow.Assert(paddle.all(x < 100.0)) if hasattr(
        paddle.static.nn, "control_flow"
    ) else paddle.static.nn.Assert(paddle.all(x < 100.0))
    return x * 2


def assert_false(paddle: Any, x: Any) -> Any:
    paddle.static.nn.control_flow.Assert(paddle.all(x > 100.0)) if hasattr(
        paddle.static.nn, "control_flow"
    ) else paddle.static.nn.Assert(paddle.all(x > 100.0))
    return x * 2


def stop_in_the_middle(paddle: Any, x: Any) -> Any:
    middle = x * 3
    middle.stop_gradient = True
    return middle * x


def gradient_of_gradient(paddle: Any, x: Any) -> Any:
    (first,) = paddle.static.gradients([paddle.sum(paddle.tanh(x))], [x])
    return first * x


def gradients_of_unreached(paddle: Any, x: Any) -> Any:
    other = x * 2
    return [g is None for g in paddle.static.gradients([paddle.sum(x)], [other])]


def gradients_of_stopped(paddle: Any, x: Any) -> Any:
    x.stop_gradient = True
    return [g is None for g in paddle.static.gradients([paddle.sum(x)], [x])]


def no_grad_set(paddle: Any, x: Any) -> Any:
    left = x * 2
    return paddle.static.gradients([paddle.sum(left * x)], [x], no_grad_set={left.name})


def detached(paddle: Any, x: Any) -> Any:
    return x.detach() * x


def setitem_row(paddle: Any, x: Any) -> Any:
    y = x * 1.0
    y[0] = 5.0
    return y


def setitem_column(paddle: Any, x: Any) -> Any:
    y = x * 1.0
    y[:, 1] = x[:, 0]
    return y


def assign_output(paddle: Any, x: Any) -> Any:
    kept = paddle.static.create_global_var([3, 2], 0.0, "float32", persistable=True)
    paddle.assign(x * 2, output=kept)
    return kept


def append_backward_pairs(paddle: Any, x: Any) -> Any:
    loss = paddle.mean(paddle.static.nn.fc(x, 2))
    return [(p.name, g.name, g) for p, g in paddle.static.append_backward(loss)]


def loss_of_several(paddle: Any, x: Any) -> Any:
    paddle.optimizer.SGD(0.1).minimize(paddle.static.nn.fc(x, 3))


def no_grad_set_of_text(paddle: Any, x: Any) -> Any:
    return paddle.static.append_backward(paddle.mean(paddle.static.nn.fc(x, 3)), no_grad_set="x")


def guard_of_a_second_cpu(paddle: Any, x: Any) -> Any:
    with paddle.static.device_guard("cpu:1"):
        return x + 1


def truth_of_variable(paddle: Any, x: Any) -> Any:
    return bool(x)


def len_of_variable(paddle: Any, x: Any) -> Any:
    return len(x)


def iterate_variable(paddle: Any, x: Any) -> Any:
    return [row for row, _ in zip(x, range(2), strict=False)]


def full_by_shape(paddle: Any, x: Any) -> Any:
    return paddle.full([paddle.shape(x)[0], 1, 4], 1.5)


def constant_stops(paddle: Any, x: Any) -> Any:
    one = paddle.full([1], 1.0)
    return [one, one + 1, paddle.ones([2]) * 2]


def array_of_variable(paddle: Any, x: Any) -> Any:
    return np.asarray(x).shape


def name_scopes(paddle: Any, x: Any) -> Any:
    with paddle.static.name_scope("block"):
        return paddle.static.nn.fc(x, 2), [p.name for p in paddle.static.default_main_program().all_parameters()]


def clone_for_test(paddle: Any, x: Any) -> Any:
    dropped = paddle.nn.functional.dropout(paddle.static.nn.fc(x, 3), 0.5)
    copy = paddle.static.default_main_program().clone(for_test=True)
    return dropped.shape, [op.type for op in copy.global_block().ops]


def two_losses(paddle: Any, x: Any) -> Any:
    h = paddle.static.nn.fc(x, 3)
    weights = paddle.static.default_main_program().all_parameters()
    return paddle.static.gradients([paddle.sum(h), paddle.sum(h * h)], weights)


def shared_parameter(paddle: Any, x: Any) -> Any:
    attr = paddle.ParamAttr(name="shared")
    return paddle.static.nn.fc(paddle.static.nn.fc(x, 2, weight_attr=attr), 2, weight_attr=attr)


def global_initializer(paddle: Any, x: Any) -> Any:
    initializer = paddle.nn.initializer
    initializer.set_global_initializer(initializer.Constant(0.5), initializer.Constant(0.25))
    try:
        return paddle.static.nn.fc(x, 2)
    finally:
        initializer.set_global_initializer(None)


def names_of_layers(paddle: Any, x: Any) -> Any:
    net = paddle.nn.Sequential(paddle.nn.Linear(2, 3), paddle.nn.LayerNorm(3), paddle.nn.Linear(3, 2))
    return net(x), sorted(net.state_dict()), [p.name for p in net.parameters()]


def softmax_then_loss(paddle: Any, x: Any) -> Any:
    label = paddle.full([3, 1], 1, "int64")
    wide = paddle.concat([x, x - 200.0, x + 1.0], axis=1)[:, 1:4]
    return paddle.nn.functional.cross_entropy(
        paddle.nn.functional.softmax(wide), label, use_softmax=False, reduction="none"
    )


def dropout_of_two_runs(paddle: Any, x: Any) -> Any:
    """Whether the second run of a seeded program draws the mask of the first."""
    main, static = paddle.static.Program(), paddle.static
    main.random_seed = 5
    with static.program_guard(main, static.Program()):
        kept = paddle.nn.functional.dropout(paddle.ones([64]), 0.5)
    exe = static.Executor(paddle.CPUPlace())
    first, second = (np.array(exe.run(main, fetch_list=[kept])[0]) for _ in range(2))
    return bool((first == second).all())


def sum_of_python(paddle: Any, x: Any) -> Any:
    return sum([x, x * 2]), 1 - x, 2 / (x + 3), -x


def initial(paddle: Any, shape: list[int], initializer: Any) -> Any:
    """The value that the startup program gives a parameter (read before the runner sets it: a copy of it)."""
    startup = paddle.static.default_startup_program()
    main = paddle.static.default_main_program()
    with paddle.static.program_guard(main, startup):
        parameter = paddle.create_parameter(shape, "float32", name="made", default_initializer=initializer)
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(startup)
    value = np.array(paddle.static.global_scope().find_var("made").get_tensor())
    kept = paddle.static.create_global_var([1], 0.0, "float32", persistable=True, name="kept")
    del kept, parameter
    return paddle.assign(value)


def squared_distance(x: Any, y: Any) -> Any:
    """A distance that a loss is given: `{"function": "squared_distance"}` of a call."""
    return ((x - y) * (x - y)).sum(-1)
