"""Small nets that train in every way that a step knows, each with what a user does between its runs."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tstatic as paddle
from tests.helpers.captured_runs import Net, Turns
from tstatic import devices, fluid, nn, static

F, opt = nn.functional, paddle.optimizer
Feed = dict[str, Any]

RULES: dict[int, Any] = {}
"""Program's uid -> its optimizer."""
SCHEDULES: dict[int, Any] = {}
"""Program's uid -> the scheduler of its learning rate."""
TURNS: dict[int, tuple[list[Any], list[Any]]] = {}
"""Program's uid -> what its two kinds of runs fetch."""


# ---------------------------------------------------------------------------------------------------------------- feeds
def rows(*shape: int, name: str = "x") -> Callable[[int], Feed]:
    """Feeds of uniform numbers."""
    return lambda step: {name: np.random.default_rng(step).random(shape, "float32")}


def labelled(classes: int, *shape: int) -> Callable[[int], Feed]:
    """Feeds of uniform numbers, and a class for each row."""

    def feed(step: int) -> Feed:
        draw = np.random.default_rng(step)
        return {"x": draw.random(shape, "float32"), "y": draw.integers(0, classes, (shape[0], 1))}

    return feed


def positions(below: int, *shape: int) -> Callable[[int], Feed]:
    """Feeds of whole numbers."""
    return lambda step: {"ids": np.random.default_rng(step).integers(0, below, shape)}


# --------------------------------------------------------------------------------------------------------------- layers
def hidden(drop: float = 0.0, width: int = 8) -> Any:
    """Two dense layers over six features."""
    h = static.nn.fc(static.data("x", [None, 6]), width, activation="relu")
    return static.nn.fc(F.dropout(h, drop) if drop else h, 3)


def mean_square(h: Any) -> Any:
    return paddle.mean(paddle.square(h))


def dense(rule: Callable[[], Any], drop: float = 0.0) -> Callable[[], list[Any]]:
    """A net of two dense layers under an optimizer."""

    def build() -> list[Any]:
        h = hidden(drop)
        loss = mean_square(h)
        rule().minimize(loss)
        return [loss, h]

    return build


def all_rules() -> list[Any]:
    """Each rule trains layers of its own: their updates stand side by side in one region."""
    x = static.data("x", [None, 6])
    losses = []
    for rule in (
        opt.Adagrad(0.1),
        opt.RMSProp(0.01, momentum=0.9),
        opt.Lamb(0.01),
        opt.Adamax(0.01),
        opt.Adadelta(0.5),
    ):
        losses.append(mean_square(static.nn.fc(x, 3)))
        rule.minimize(losses[-1])
    return losses


# -------------------------------------------------------------------------------------------------------------- pictures
def convolutions(norm: str) -> Callable[[], list[Any]]:
    def build() -> list[Any]:
        x, y = static.data("x", [None, 2, 6, 6]), static.data("y", [None, 1], "int64")
        h = static.nn.conv2d(x, 4, 3, padding=1, bias_attr=False)
        h = F.relu(static.nn.batch_norm(h) if norm == "batch" else static.nn.instance_norm(static.nn.group_norm(h, 2)))
        h = static.nn.conv2d(h, 4, 3, groups=4, padding=1) + h
        h = F.adaptive_avg_pool2d(F.max_pool2d(h, 2), 1)
        logits = static.nn.fc(h, 4)
        loss = paddle.mean(F.cross_entropy(logits, y))
        opt.Momentum(0.05, 0.9, weight_decay=paddle.regularizer.L2Decay(1e-3), use_nesterov=True).minimize(loss)
        return [loss, logits]

    return build


# ----------------------------------------------------------------------------------------------------------------- words
def words(sparse: bool = False, drop: float = 0.0) -> Callable[[], list[Any]]:
    """Positions that are checked on the device, and an update that asks the words of the checks."""

    def build() -> list[Any]:
        ids = static.data("ids", [None, 3], "int64")
        h = F.layer_norm(static.nn.embedding(ids, [9, 4], is_sparse=sparse), [4])
        h = F.dropout(h, drop) if drop else h
        loss = paddle.mean(paddle.tanh(static.nn.fc(h, 2)))
        opt.Adam(0.05, lazy_mode=sparse).minimize(loss)
        return [loss]

    return build


def attention() -> list[Any]:
    """A causal block of a transformer, with dropout of the weights and of what it adds."""
    ids = static.data("ids", [2, 5], "int64")
    h = static.nn.embedding(ids, [9, 8])
    qkv = static.nn.fc(static.nn.layer_norm(h, begin_norm_axis=2), 24, num_flatten_dims=2)
    q, k, v = (
        paddle.transpose(paddle.reshape(part, [0, 0, 2, 4]), [0, 2, 1, 3]) for part in paddle.split(qkv, 3, axis=2)
    )
    mask = paddle.triu(paddle.full([5, 5], float("-inf"), "float32"), 1)
    weights = F.dropout(F.softmax(paddle.matmul(q, k, transpose_y=True) * 0.5 + mask), 0.2)
    mixed = paddle.reshape(paddle.transpose(paddle.matmul(weights, v), [0, 2, 1, 3]), [0, 0, 8])
    h = h + F.dropout(static.nn.fc(mixed, 8, num_flatten_dims=2), 0.1)
    loss = mean_square(F.gelu(static.nn.fc(h, 8, num_flatten_dims=2), approximate=True))
    opt.AdamW(0.01, grad_clip=nn.ClipGradByGlobalNorm(0.5)).minimize(loss)
    return [loss]


def lstm() -> list[Any]:
    x = static.data("x", [4, 2, 6])
    h = c = paddle.zeros([1, 2, 5])
    out, last, _ = fluid.layers.lstm(x, h, c, max_len=4, hidden_size=5, num_layers=1)
    loss = mean_square(static.nn.fc(out, 3, num_flatten_dims=2)) + paddle.mean(last)
    opt.Adam(0.02).minimize(loss)
    return [loss, last]


# --------------------------------------------------------------------------------------------------------- what the host does
def loop() -> list[Any]:
    """A loop between other steps, whose trips a value decides."""
    x = static.data("x", [None, 6])
    h = static.nn.fc(x, 4, activation="tanh")
    one, turn = paddle.full([1], 1, "int64"), paddle.full([1], 0, "int64")
    _, h = static.nn.while_loop(
        lambda i, s: paddle.less_than(i, one * 3), lambda i, s: [i + one, paddle.tanh(s * 2.0)], [turn, h]
    )
    loss = mean_square(static.nn.fc(h, 2))
    opt.SGD(0.1).minimize(loss)
    return [loss]


def branch() -> list[Any]:
    x = static.data("x", [None, 6])
    h = static.nn.fc(x, 4, activation="tanh")
    h = static.nn.cond(paddle.mean(x) > 0.5, lambda: h * 2.0, lambda: paddle.exp(h))
    loss = mean_square(static.nn.fc(h, 2))
    opt.Momentum(0.1, 0.9).minimize(loss)
    return [loss]


def sizes() -> list[Any]:
    """Sizes that values decide, beside a loss."""
    h = hidden()
    kept = paddle.nonzero(h > 0.0)
    loss = mean_square(paddle.tanh(h))
    opt.SGD(0.1).minimize(loss)
    return [loss, kept, paddle.masked_select(h, h > 0.0)]


def python() -> list[Any]:
    """A function of Python in the middle, with a gradient of its own."""
    h = hidden()
    out = static.default_main_program().current_block().create_var(name="cubed", dtype="float32", shape=[-1, 3])

    def cubed(a: Any) -> Any:
        if np.array(a).max() > 100:
            raise ArithmeticError("too large")
        return np.array(a) ** 3

    made = static.py_func(cubed, h, out, backward_func=lambda a, b, grad: 3 * np.array(a) ** 2 * np.array(grad))
    loss = mean_square(made)
    opt.SGD(0.1).minimize(loss)
    return [loss]


def draws() -> list[Any]:
    """Random numbers that kernels draw, and some that the host does."""
    h = hidden(0.3)
    noise = paddle.randn([4, 3]) * 0.1 + paddle.uniform([4, 3]) + paddle.cast(paddle.randint(0, 3, [4, 3]), "float32")
    loss = mean_square(h + noise) + 0.01 * paddle.mean(paddle.poisson(paddle.abs(h)))
    opt.Adam(0.02).minimize(loss)
    return [loss, noise]


# ------------------------------------------------------------------------------------------------------------- averages
def averaged(kind: str) -> Callable[[], list[Any]]:
    def build() -> list[Any]:
        h = hidden()
        loss = mean_square(h)
        rule: Any = opt.SGD(0.1)
        if kind == "lookahead":
            rule = paddle.incubate.LookAhead(rule, alpha=0.5, k=2)
        rule.minimize(loss)
        if kind == "ema":
            static.ExponentialMovingAverage(0.9).update()
        if kind == "mean":
            paddle.incubate.ModelAverage(0.5, min_average_window=2, max_average_window=3)
        return [loss]

    return build


def accumulated() -> list[Any]:
    h = hidden(0.2)
    loss = mean_square(h)
    fluid.optimizer.GradientMergeOptimizer(opt.Adam(0.05), k_steps=2).minimize(loss)
    return [loss]


def recomputed() -> list[Any]:
    x = static.data("x", [None, 6])
    middle = F.dropout(static.nn.fc(x, 8, activation="tanh"), 0.2)
    loss = mean_square(static.nn.fc(static.nn.fc(middle, 8, activation="gelu"), 3))
    rule = fluid.optimizer.RecomputeOptimizer(opt.Adam(0.05))
    rule._set_checkpoints([middle])
    rule.minimize(loss)
    return [loss]


# ------------------------------------------------------------------------------------------------------ mixed precision
def mixed(level: str, dtype: str, scale: float, dynamic: bool) -> Callable[[], list[Any]]:
    """Both precisions; where the scale is dynamic, one that is too large at first skips updates and shrinks."""

    def build() -> list[Any]:
        x, y = static.data("x", [None, 6]), static.data("y", [None, 1], "int64")
        loss = paddle.mean(F.softmax_with_cross_entropy(static.nn.fc(static.nn.fc(x, 8, activation="relu"), 4), y))
        rule = static.amp.decorate(
            opt.Adam(0.02), init_loss_scaling=scale, use_dynamic_loss_scaling=dynamic, incr_every_n_steps=2,
            decr_every_n_nan_or_inf=1, level=level, dtype=dtype,
        )  # fmt: skip
        rule.minimize(loss)
        RULES[loss.block.program.uid] = rule
        return [loss, *([rule.get_loss_scaling()] if dynamic else [])]

    return build


# ------------------------------------------------------------------------------------------------------------- schedules
def scheduled() -> list[Any]:
    """A rate that the host writes before each run."""
    loss = mean_square(hidden())
    rate = opt.lr.LinearWarmup(opt.lr.ExponentialDecay(0.1, 0.5), 2, 0.0, 0.1)
    opt.Momentum(rate, 0.9).minimize(loss)
    SCHEDULES[loss.block.program.uid] = rate
    return [loss]


def counted() -> list[Any]:
    """A rate that operators compute from a counter in the scope."""
    loss = mean_square(hidden())
    opt.SGD(fluid.layers.piecewise_decay([2, 3], [0.1, 0.05, 0.01])).minimize(loss)
    return [loss]


def noam() -> list[Any]:
    loss = mean_square(hidden())
    opt.Adam(fluid.layers.noam_decay(8, 2)).minimize(loss)
    return [loss]


def settable() -> list[Any]:
    loss = mean_square(hidden())
    rule = RULES[loss.block.program.uid] = opt.Adam(0.05)
    rule.minimize(loss)
    return [loss]


# ------------------------------------------------------------------------------------------------------- two optimizers
def adversaries() -> list[Any]:
    """Two losses, each with an optimizer for parameters of its own; runs take turns with them."""
    x = static.data("x", [None, 6])
    made = static.nn.fc(static.nn.fc(x, 6, activation="tanh", name="g"), 6, name="g")
    judged = [
        static.nn.fc(one, 1, weight_attr=paddle.ParamAttr(name="d.w"), bias_attr=paddle.ParamAttr(name="d.b"))
        for one in (made, x)
    ]
    fooled = mean_square(judged[0] - 1.0)
    told = mean_square(judged[0]) + mean_square(judged[1] - 1.0)
    parameters = static.default_main_program().all_parameters()
    mine = [p for p in parameters if not p.name.startswith("d.")]
    first = opt.Adam(0.02).minimize(fooled, parameters=mine)
    second = opt.RMSProp(0.02).minimize(told, parameters=[p for p in parameters if p.name.startswith("d.")])
    TURNS[static.default_main_program().uid] = [fooled, *first[0]], [told, *second[0]]
    return [fooled, told]


# --------------------------------------------------------------------------------------------------- what a user does
def takes_turns(turns: Turns) -> None:
    for number in range(8):
        turns.run(turns.main, turns.net.feed(number), TURNS[turns.main.uid][number % 2])


def follows_a_schedule(turns: Turns) -> None:
    for number in range(6):
        turns.step(number)
        SCHEDULES[turns.main.uid].step()


def sets_a_rate(turns: Turns) -> None:
    for number in range(6):
        if number in (2, 4):
            RULES[turns.main.uid].set_lr(0.1 / number)
        turns.step(number)


def alternates(turns: Turns) -> None:
    """Training and evaluation by turns, each with two batch sizes."""
    test = turns.main.clone(for_test=True)
    for number in range(8):
        feed = {name: value[: 4 - number // 4] for name, value in turns.net.feed(number).items()}
        turns.run(turns.compiled, feed, turns.fetches)
        turns.run(test, feed, turns.fetches)


def writes_values(turns: Turns) -> None:
    """A value that is set, also one of another executor's, the startup program again, and files in between."""
    weight = turns.scope.find_var(turns.main.all_parameters()[0].name).get_tensor()
    for number in range(10):
        turns.step(number)
        if number in (2, 3):
            weight.set(np.array(weight) * 0.5)
        if number == 5:
            turns.exe.run(turns.startup)
        if number == 7:
            weight.set(np.zeros(weight.shape(), "float32"), paddle.CPUPlace())


def saves_and_loads(turns: Turns) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "net")
        for number in range(7):
            turns.step(number)
            if number == 2:
                static.save(turns.main, path)
            if number == 4:
                static.load(turns.main, path, turns.exe)
            if number == 5:
                static.set_program_state(turns.main, static.load_program_state(path))


def runs_elsewhere(turns: Turns) -> None:
    """One run on another device, which takes all variables along."""
    for number in range(10):
        with devices.use("cpu") if number in (3, 6) else contextlib.nullcontext():
            turns.step(number)


def seeds_again(turns: Turns) -> None:
    for number in range(6):
        turns.step(0)
        if number == 3:
            paddle.seed(7)


def feeds(*steps: Feed) -> Callable[[Turns], None]:
    """Runs the net with feeds of which some hold what a step refuses."""

    def drive(turns: Turns) -> None:
        for number, changed in enumerate(steps):
            turns.step(number, **changed)

    return drive


def hunts_nan(turns: Turns) -> None:
    """Looks for infinite values for a while, and finds one behind the first layer."""
    bad = np.full((4, 6), 1e30, "float32")
    turns.step(0)
    turns.step(1)
    paddle.set_flags({"FLAGS_check_nan_inf": True})
    try:
        turns.step(2)
        turns.step(3, x=bad)
        turns.step(4)
    finally:
        paddle.set_flags({"FLAGS_check_nan_inf": False})
    turns.step(5)
    turns.step(6)


def overflows(turns: Turns) -> None:
    """A feed that overflows in the middle: its update is skipped, and the scale shrinks."""
    with static.program_guard(turns.main):
        RULES[turns.main.uid].amp_init(paddle.CPUPlace(), turns.scope)
    huge = np.full((4, 6), 60000, "float32")
    for number in range(7):
        turns.step(number, **({"x": huge} if number == 4 else {}))


OUT_OF_RANGE = {"ids": np.array([[1, 2, 3], [4, 5, 6], [7, 8, 77], [0, 0, 0]])}
ROWS = rows(4, 6)

NETS: dict[str, Net] = {
    "adamw, clipped by the global norm": Net(
        dense(lambda: opt.AdamW(0.05, grad_clip=nn.ClipGradByGlobalNorm(0.5))), ROWS
    ),
    "sgd, clipped by norm": Net(dense(lambda: opt.SGD(0.2, grad_clip=nn.ClipGradByNorm(0.1))), ROWS),
    "momentum, clipped by value": Net(dense(lambda: opt.Momentum(0.2, 0.9, grad_clip=nn.ClipGradByValue(0.01))), ROWS),
    "five rules": Net(all_rules, ROWS),
    "dropout": Net(dense(lambda: opt.Adam(0.05), 0.4), ROWS),
    "dropout, seeded again": Net(dense(lambda: opt.Adam(0.05), 0.4), ROWS, seeds_again),
    "convolutions and batch norm": Net(convolutions("batch"), labelled(4, 5, 2, 6, 6)),
    "convolutions and other norms": Net(convolutions("others"), labelled(4, 5, 2, 6, 6)),
    "embedding": Net(words(), positions(9, 4, 3)),
    "embedding with sparse gradients": Net(words(sparse=True), positions(9, 4, 3)),
    "attention": Net(attention, positions(9, 2, 5)),
    "lstm": Net(lstm, rows(4, 2, 6)),
    "loop": Net(loop, ROWS),
    "branch": Net(branch, ROWS),
    "sizes that values decide": Net(sizes, ROWS),
    "a function of python": Net(python, ROWS),
    "numbers that the host draws": Net(draws, ROWS),
    "moving average": Net(averaged("ema"), ROWS),
    "mean of parameters": Net(averaged("mean"), ROWS),
    "lookahead": Net(averaged("lookahead"), ROWS),
    "accumulated gradients": Net(accumulated, ROWS),
    "recomputation": Net(recomputed, ROWS),
    "bfloat16": Net(mixed("O1", "bfloat16", 1.0, False), labelled(4, 4, 6)),
    "float16 with a fixed scale": Net(mixed("O1", "float16", 128.0, False), labelled(4, 4, 6)),
    "float16 with a moving scale": Net(mixed("O2", "float16", 2.0**40, True), labelled(4, 4, 6), overflows),
    "scheduled rate": Net(scheduled, ROWS, follows_a_schedule),
    "rate of a counter": Net(counted, ROWS),
    "rate of noam": Net(noam, ROWS),
    "rate that is set": Net(settable, ROWS, sets_a_rate),
    "two optimizers by turns": Net(adversaries, ROWS, takes_turns),
    "training and evaluation": Net(convolutions("batch"), labelled(4, 4, 2, 6, 6), alternates),
    "values that are set": Net(dense(lambda: opt.Adam(0.05), 0.2), ROWS, writes_values),
    "another device in between": Net(dense(lambda: opt.Adam(0.05), 0.2), ROWS, runs_elsewhere),
    "files in between": Net(convolutions("batch"), labelled(4, 5, 2, 6, 6), saves_and_loads),
    "three iterations a run": Net(dense(lambda: opt.Adam(0.05), 0.2), ROWS, iterations=3),
    "bad positions with dropout": Net(words(drop=0.3), positions(9, 4, 3), feeds({}, {}, {}, OUT_OF_RANGE, {}, {}), errors=1),
    "bad positions": Net(words(), positions(9, 4, 3), feeds({}, {}, {}, OUT_OF_RANGE, {}, OUT_OF_RANGE, {}, {}), errors=2),
    "bad position in a first run": Net(words(), positions(9, 4, 3), feeds(OUT_OF_RANGE, OUT_OF_RANGE, {}, {}, {}), errors=2),
    "errors of python": Net(
        python, ROWS, feeds({}, {}, {"x": np.full((4, 6), 1e4, "float32")}, {}, {}), errors=1
    ),
    "not a number": Net(dense(lambda: opt.Adam(0.05)), ROWS, hunts_nan, errors=1),
}  # fmt: skip
