"""Programs that end in softmax with cross entropy; run by the numpy and the interpreter ring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tstatic as paddle
from tests.helpers.fusion_programs import Built
from tstatic import static

F = paddle.nn.functional


@dataclass(frozen=True)
class Head:
    """What follows a product: how logits, and how the loss is made of the losses per row.

    Attributes:
        logits: ``(product, bias) -> logits``.
        loss: ``(losses per row, softmax, weights per row) -> loss``.
        soft: Labels are distributions.
        kernels: Fused kernels that take in the op or its gradient.
    """

    loss: Callable[[Any, Any, Any], Any] = lambda rows, p, w: paddle.mean(rows)
    logits: Callable[[Any, Any], Any] = lambda x, b: x
    soft: bool = False
    kernels: int = 1


HEADS: dict[str, Head] = {
    "mean": Head(),
    "bias": Head(logits=lambda x, b: x + b),
    "scaled": Head(logits=lambda x, b: paddle.tanh(x * 0.5) * 30, loss=lambda rows, p, w: paddle.sum(rows) * 0.25),
    "weights per row": Head(loss=lambda rows, p, w: paddle.sum(rows * w)),
    "gradient depends on the loss": Head(loss=lambda rows, p, w: paddle.sum(rows * rows)),
    "gradient depends on other rows": Head(
        logits=lambda x, b: x + b, loss=lambda rows, p, w: paddle.sum(paddle.flip(rows, [0]) * rows * rows), kernels=2
    ),
    "softmax is used, too": Head(loss=lambda rows, p, w: paddle.mean(rows) + paddle.sum(p * p)),
    "soft": Head(soft=True),
    "soft, softmax is used, too": Head(soft=True, loss=lambda rows, p, w: paddle.mean(rows) + paddle.sum(p * p)),
}


def build(head: Head, shape: tuple[int, ...], dtype: str = "float32", ignore: int = -100) -> Built:
    """A product, a head, and the gradients of the product's operands, as ``append_backward`` makes them."""
    main, startup = static.Program(), static.Program()
    rng = np.random.default_rng(11)
    classes, width = shape[-1], 3
    feed: dict[str, Any] = {
        "h": rng.standard_normal((*shape[:-1], width)),
        "w": rng.standard_normal((width, classes)),
        "b": rng.standard_normal((classes,)),
        "rows": rng.uniform(0.5, 2.0, (*shape[:-1], 1)),
    }
    feed = {name: a.astype(np.float32) for name, a in feed.items()}
    with static.program_guard(main, startup):
        inputs = {name: static.data(name, list(a.shape), "float32") for name, a in feed.items()}
        for name in ("h", "w", "b"):
            inputs[name].stop_gradient = False
        given = {n: paddle.cast(v, dtype) if dtype != "float32" else v for n, v in inputs.items()}
        if head.soft:
            label = static.data("label", list(shape), "float32")
            raw = rng.uniform(0, 1, shape)
            feed["label"] = (raw / raw.sum(-1, keepdims=True)).astype(np.float32)
            label = paddle.cast(label, dtype) if dtype != "float32" else label
        else:
            label = static.data("label", [*shape[:-1], 1], "int64")
            feed["label"] = rng.integers(0, classes, (*shape[:-1], 1))
            feed["label"].reshape(-1)[:1] = ignore
        logits = head.logits(paddle.matmul(given["h"], given["w"]), given["b"])
        rows, p = F.softmax_with_cross_entropy(
            logits, label, soft_label=head.soft, ignore_index=ignore, return_softmax=True
        )
        loss = head.loss(rows, p, given["rows"])
        static.append_backward(paddle.cast(loss, "float32") if dtype != "float32" else loss)
        block = main.global_block()
        wanted = [f"{n}@GRAD" for n in ("h", "w", "b") if block.has_var(f"{n}@GRAD")]
    return Built(main, startup, feed, [loss.name, *wanted])


def vanishing(soft: bool, dtype: str) -> Built:
    """The cross entropy of a softmax that is exactly 0 for two of the labels, and the gradient of its input."""
    main, startup = static.Program(), static.Program()
    logits = np.array([[0, -200, 0.5, 1], [3, 0.5, -300, 2], [1, 2, 3, -1]])
    label = np.array([[1], [2], [0]]) if not soft else np.array([[0, 1, 0, 0], [0.25, 0.25, 0.5, 0], [0, 0, 0, 1.0]])
    feed = {"x": logits.astype(np.float32), "label": label.astype(np.float32 if soft else np.int64)}
    with static.program_guard(main, startup):
        x, given = (static.data(n, list(a.shape), str(a.dtype)) for n, a in feed.items())
        x.stop_gradient = False
        # Twice the logits: what the gradient goes to is made in the program.
        z = paddle.cast(x, dtype) * 2
        p = F.softmax(z)
        loss = F.cross_entropy(
            p, paddle.cast(given, dtype) if soft else given, reduction="none", soft_label=soft, use_softmax=False
        )
        (grad,) = static.gradients([loss], [x])
    return Built(main, startup, feed, [loss.name, p.name, grad.name])
