"""Small networks that the tests of mixed precision train, the same start values and batches for every precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import tstatic as paddle
from tstatic import static

Array = np.ndarray[Any, Any]
F = paddle.nn.functional


@dataclass
class Net:
    """A program that trains, in a scope of its own."""

    main: static.Program
    test: static.Program
    startup: static.Program
    loss: Any
    optimizer: Any
    scope: static.Scope

    def run(self, feed: dict[str, Array], program: Any = None, fetch: Any = None) -> Any:
        with static.scope_guard(self.scope):
            found = static.Executor().run(
                program if program is not None else self.main,
                feed=feed,
                fetch_list=[self.loss if fetch is None else fetch],
            )
        return found[0]

    def losses(self, feeds: Iterator[dict[str, Array]]) -> Array:
        return np.array([float(np.mean(self.run(feed).astype("float64"))) for feed in feeds])

    def state(self) -> dict[str, bytes]:
        """The bytes of everything that lives between runs."""
        return {
            v.name: np.asarray(self.scope.find_var(v.name).get_tensor()).tobytes()
            for v in self.main.list_vars()
            if v.persistable
        }

    def value(self, name: str) -> Array:
        return np.asarray(self.scope.find_var(name).get_tensor())


def build(model: Callable[[], Any], optimizer: Any, scope: static.Scope | None = None, **how: Any) -> Net:
    """Builds and starts a model.

    Args:
        model: Builds the loss.
        optimizer: The rule, which is decorated if there are settings.
        scope: Where it is started; a new one by default.
        how: Arguments of ``static.amp.decorate``.
    """
    main, startup = static.Program(), static.Program()
    main.random_seed = startup.random_seed = 7
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        loss = model()
        test = main.clone(for_test=True)
        if how:
            optimizer = static.amp.decorate(optimizer, **how)
        optimizer.minimize(loss)
    net = Net(main, test, startup, loss, optimizer, scope if scope is not None else static.Scope())
    with static.scope_guard(net.scope):
        static.Executor().run(startup)
        if how:
            optimizer.amp_init(paddle.CPUPlace(), test_program=test)
    return net


def mlp() -> Any:
    """A loss of ops of the white, the gray and the black list."""
    x, y = static.data("x", [None, 6]), static.data("y", [None, 1], "int64")
    h = static.nn.fc(x, 8, activation="relu")
    h = static.nn.layer_norm(h)
    return paddle.mean(F.cross_entropy(static.nn.fc(h, 4), y))


def mlp_feed(seed: int = 0, rows: int = 8) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {"x": rng.normal(size=(rows, 6)).astype("float32"), "y": rng.integers(0, 4, (rows, 1))}


TOKENS, BYTES = 6, 12


def gpt() -> Any:
    """One pre-norm transformer block under a causal mask."""
    ids, label = static.data("ids", [None, TOKENS], "int64"), static.data("label", [None, TOKENS, 1], "int64")
    h = static.nn.embedding(ids, [BYTES, 16])
    h = h + static.create_parameter([TOKENS, 16], "float32")
    mask = paddle.assign(np.triu(np.full((TOKENS,) * 2, -1e4, "float32"), 1))
    h = paddle.nn.TransformerEncoderLayer(16, 2, 32, 0.0, "gelu", normalize_before=True)(h, mask)
    logits = static.nn.fc(static.nn.layer_norm(h, begin_norm_axis=2), BYTES, num_flatten_dims=2)
    return paddle.mean(F.cross_entropy(logits, label))


def gpt_feeds(steps: int) -> Iterator[dict[str, Array]]:
    """Rows of a sequence whose next number follows from the last."""
    rng = np.random.default_rng(3)
    for _ in range(steps):
        rows = (rng.integers(0, BYTES, (8, 1)) + np.arange(TOKENS + 1) * 3) % BYTES
        yield {"ids": rows[:, :-1], "label": rows[:, 1:, None]}


def resnet() -> Any:
    """Two residual blocks with batch norm."""
    x, y = static.data("x", [None, 3, 8, 8]), static.data("y", [None, 1], "int64")
    h = static.nn.batch_norm(static.nn.conv2d(x, 8, 3, padding=1, bias_attr=False), act="relu")
    for _ in range(2):
        side = static.nn.batch_norm(static.nn.conv2d(h, 8, 3, padding=1, bias_attr=False), act="relu")
        side = static.nn.batch_norm(static.nn.conv2d(side, 8, 3, padding=1, bias_attr=False))
        h = F.relu(h + side)
    h = paddle.flatten(F.adaptive_avg_pool2d(h, 1), 1)
    return paddle.mean(F.cross_entropy(static.nn.fc(h, 4), y))


def resnet_feeds(steps: int) -> Iterator[dict[str, Array]]:
    rng = np.random.default_rng(5)
    kinds = rng.normal(size=(4, 3, 8, 8))
    for _ in range(steps):
        y = rng.integers(0, 4, (16, 1))
        yield {"x": (kinds[y[:, 0]] + 0.5 * rng.normal(size=(16, 3, 8, 8))).astype("float32"), "y": y}


def lstm() -> Any:
    """A long short-term memory cell of basic operators, unrolled over the tokens."""
    ids, label = static.data("ids", [None, TOKENS], "int64"), static.data("label", [None, TOKENS, 1], "int64")
    x = static.nn.embedding(ids, [BYTES, 16])
    weight = static.create_parameter([32, 64], "float32")
    h, c = (paddle.zeros_like(x[:, 0, :]) for _ in range(2))
    outs = []
    for t in range(TOKENS):
        gates = paddle.matmul(paddle.concat([x[:, t, :], h], 1), weight)
        i, f, o, g = paddle.split(gates, 4, axis=1)
        c = F.sigmoid(f + 1.0) * c + F.sigmoid(i) * paddle.tanh(g)
        h = F.sigmoid(o) * paddle.tanh(c)
        outs.append(h)
    logits = static.nn.fc(paddle.stack(outs, 1), BYTES, num_flatten_dims=2)
    return paddle.mean(F.cross_entropy(logits, label))
