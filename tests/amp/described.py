"""Programs that are built with Paddle and with tstatic by the same calls, and what is compared of them as plain values."""

from __future__ import annotations

import inspect
from typing import Any


def dense(paddle: Any) -> Any:
    """Layers of all three lists."""
    x, y = paddle.static.data("x", [None, 6]), paddle.static.data("y", [None, 1], "int64")
    h = paddle.static.nn.fc(x, 8, activation="relu")
    h = paddle.static.nn.layer_norm(h)
    h = paddle.static.nn.fc(h, 4)
    return paddle.mean(paddle.nn.functional.softmax_with_cross_entropy(h, y))


def convolutions(paddle: Any) -> Any:
    """A residual block."""
    x = paddle.static.data("x", [None, 3, 8, 8])
    h = paddle.static.nn.conv2d(x, 4, 3, padding=1)
    side = paddle.static.nn.batch_norm(h, act="relu")
    side = paddle.static.nn.conv2d(side, 4, 3, padding=1, bias_attr=False)
    h = paddle.nn.functional.relu(h + side)
    h = paddle.nn.functional.max_pool2d(h, 2)
    return paddle.mean(paddle.static.nn.fc(paddle.reshape(h, [-1, 64]), 2))


def attention(paddle: Any) -> Any:
    """A table, attention over its rows, and a residual."""
    ids = paddle.static.data("ids", [None, 5], "int64")
    x = paddle.static.nn.embedding(ids, [10, 8])
    q = paddle.static.nn.fc(x, 8, num_flatten_dims=2)
    scores = paddle.scale(paddle.matmul(q, x, transpose_y=True), 0.35)
    h = paddle.matmul(paddle.nn.functional.softmax(scores), x)
    h = paddle.nn.functional.dropout(h, 0.1) + x
    h = paddle.concat([h, paddle.tanh(h)], 2)
    return paddle.mean(paddle.exp(paddle.sum(h, 2)))


def mixed(paddle: Any) -> Any:
    """Operators of two inputs between the lists, on no list, and conversions that the user wrote."""
    x = paddle.static.data("x", [4, 4])
    low, wide = paddle.matmul(x, x), paddle.exp(x)
    a, b = low + wide, wide * low
    c = paddle.flip(a, [0])
    d = paddle.cast(paddle.matmul(b, c), "float32")
    e = paddle.transpose(d, [1, 0]) + paddle.nn.functional.sigmoid(paddle.matmul(d, low))
    return paddle.mean(paddle.stack([paddle.static.nn.fc(e, 4), a]))


PROGRAMS = {f.__name__: f for f in (dense, convolutions, attention, mixed)}
HOW: dict[str, dict[str, Any]] = {
    "O1": {"level": "O1"},
    "O1 promote": {"level": "O1", "use_promote": True},
    "O1 custom": {
        "level": "O1",
        "lists": {"custom_white_list": ["softmax", "exp"], "custom_black_list": ["matmul_v2"]},
    },
    "O2": {"level": "O2"},
    "OD": {"level": "OD"},
}
SIGNATURES = (
    "amp.AutoMixedPrecisionLists", "amp.cast_model_to_fp16", "amp.cast_parameters_to_fp16", "amp.fp16_guard",
    "amp.bf16.AutoMixedPrecisionListsBF16", "amp.bf16.decorate_bf16", "amp.bf16.rewrite_program_bf16",
    "amp.bf16.cast_model_to_bf16", "amp.bf16.cast_parameters_to_bf16",
)  # fmt: skip
METHODS = ("minimize", "backward", "apply_gradients", "amp_init", "get_loss_scaling", "get_scaled_loss")


def dtype_name(var: Any) -> str:
    """The name of a variable's type, in Paddle or here."""
    name = str(getattr(var.dtype, "name", var.dtype)).rpartition(".")[2].lower()
    return {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "uint16": "bfloat16"}.get(name, name)


def forward(paddle: Any, program: str, how: str, dtype: str) -> list[list[Any]]:
    """The forward ops after a rewrite: type, inputs that are floats and outputs with their types, without names of temporaries.

    Casts stand with the type they make. The order of casts beside each other is left out.
    """
    settings = dict(HOW[how])
    lists = settings.pop("lists", None)
    static = paddle.static
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        loss = PROGRAMS[program](paddle)
        before = {op.type for op in main.global_block().ops}
        given = static.amp.AutoMixedPrecisionLists(dtype=dtype, **lists) if lists else None
        static.amp.decorate(
            paddle.optimizer.Momentum(0.1),
            given,
            dtype=dtype,
            init_loss_scaling=8.0,
            use_dynamic_loss_scaling=dtype == "float16",
            **settings,
        ).minimize(loss)
    block = main.global_block()
    found: list[list[Any]] = []
    for op in block.ops:
        if op.attr("op_role") & 0xFF or op.type not in before | {"cast"}:
            continue

        def types(names: Any) -> list[str]:
            made = [dtype_name(block._find_var_recursive(n)) for n in names]
            return sorted({m for m in made if "float" in m})

        found.append([op.type, types(op.input_arg_names), types(op.output_arg_names)])
    casts = sum(row[0] == "cast" for row in found)
    return [["casts", casts], *(row for row in found if row[0] != "cast")]


def roles(paddle: Any, level: str) -> list[str]:
    """The types of the ops behind the gradients, and the names of the state, of a program with loss scaling."""
    static = paddle.static
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        loss = dense(paddle)
        optimizer = static.amp.decorate(paddle.optimizer.Adam(0.1), level=level)
        optimizer.minimize(loss)
    names = sorted(v.name for v in main.list_vars() if v.persistable)
    return [n for n in names if "moment" not in n and "pow" not in n and "learning_rate" not in n]


def scales(paddle: Any) -> list[float]:
    """The scale after each of eight steps, of which the fourth has an infinity."""
    import numpy as np

    static = paddle.static
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = static.data("x", [2, 3])
        loss = paddle.mean(static.nn.fc(x, 2))
        optimizer = static.amp.decorate(
            paddle.optimizer.SGD(0.1), init_loss_scaling=8.0, incr_every_n_steps=2, use_dynamic_loss_scaling=True
        )
        optimizer.minimize(loss)
    exe = static.Executor(paddle.CPUPlace())
    found = []
    with static.scope_guard(static.Scope()):
        exe.run(startup)
        for step in range(8):
            feed = np.ones((2, 3), "float32")
            if step == 3:
                feed[0, 0] = np.inf
            (scale,) = exe.run(main, feed={"x": feed}, fetch_list=[optimizer.get_loss_scaling()])
            found.append(float(scale[0]))
    return found


def signatures(paddle: Any) -> dict[str, list[Any]]:
    """Names and defaults of parameters."""
    found = {}
    for path in SIGNATURES:
        thing = paddle.static
        for part in path.split("."):
            thing = getattr(thing, part)
        found[path] = parameters(thing)
    decorated = paddle.static.amp.decorate(paddle.optimizer.SGD(0.1))
    return {**found, **{f"decorated.{m}": parameters(getattr(decorated, m)) for m in METHODS}}


def parameters(function: Any) -> list[Any]:
    """A function's parameters with their defaults."""
    given = inspect.signature(function).parameters.values()
    return [[p.name, *([] if p.default is p.empty else [repr(p.default)])] for p in given]


def errors(paddle: Any) -> dict[str, list[str]]:
    """The kinds and messages of errors."""
    amp = paddle.static.amp
    calls = {
        "level": lambda: amp.decorate(paddle.optimizer.SGD(0.1), level="O3"),
        "dtype": lambda: amp.decorate(paddle.optimizer.SGD(0.1), dtype="float32"),
        "overlap": lambda: amp.AutoMixedPrecisionLists({"mul"}, {"mul"}),
        "overlap of bf16": lambda: amp.bf16.AutoMixedPrecisionListsBF16({"mul"}, {"mul"}),
        "scale": lambda: amp.decorate(paddle.optimizer.SGD(0.1)).get_loss_scaling(),
    }
    found = {}
    for name, call in calls.items():
        try:
            call()
        except Exception as error:
            kind = next(k for k in (AssertionError, ValueError, TypeError) if isinstance(error, k))
            found[name] = [kind.__name__, str(error).splitlines()[0]]
    return found
