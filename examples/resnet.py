"""Trains a residual network with batch norm on scikit-learn's handwritten digits, and shows which ones are hardest to it.

    python examples/resnet.py [--epochs 20] [--amp bf16] [--places 2]
    python examples/resnet.py --resume --epochs 30

Training images are moved by up to one pixel in each direction, anew in each epoch: 1,437 images become thirteen thousand.
A fifth of the 1,797 is held out; the goal is an accuracy of 0.985 on it. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import training
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import tstatic as paddle
import tstatic.nn.functional as F
from tstatic import static

GOAL = 0.985
BATCH = 64
RATE = 0.1


# ----------------------------------------------------------------------------------------------------------------- data
def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns images [n, 1, 8, 8] in [0, 1] and labels [n, 1], for training and for the test (a fifth)."""
    data = load_digits()
    images = (data.images[:, None] / 16.0).astype("float32")
    labels = data.target[:, None].astype("int64")
    train_x, test_x, train_y, test_y = train_test_split(
        images, labels, test_size=0.2, random_state=0, stratify=data.target
    )
    return train_x, train_y, test_x, test_y


def moved(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Returns the images, each shifted by up to one pixel; what leaves is lost, what enters is empty."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    shifts = rng.integers(0, 3, size=(len(images), 2))
    return np.stack([image[:, y : y + 8, x : x + 8] for image, (y, x) in zip(padded, shifts, strict=True)])


# -------------------------------------------------------------------------------------------------------------- network
def conv_bn(x: static.Variable, filters: int, size: int, stride: int = 1, act: str | None = None) -> static.Variable:
    """Convolution without bias, batch norm, activation."""
    x = static.nn.conv2d(x, filters, size, stride, padding=size // 2, bias_attr=False)
    return static.nn.batch_norm(x, act=act)


def residual(x: static.Variable, filters: int, stride: int) -> static.Variable:
    """Two convolutions beside a shortcut, which is projected where the shape changes."""
    shortcut = x if stride == 1 and x.shape[1] == filters else conv_bn(x, filters, 1, stride)
    y = conv_bn(x, filters, 3, stride, act="relu")
    y = conv_bn(y, filters, 3)
    return F.relu(y + shortcut)


def network(image: static.Variable) -> static.Variable:
    """A stem and three residual blocks from 8 x 8 down to 2 x 2 pixels; returns logits [batch, 10]."""
    x = conv_bn(image, 16, 3, act="relu")
    x = residual(x, 16, 1)
    x = residual(x, 32, 2)
    x = residual(x, 64, 2)
    x = F.adaptive_avg_pool2d(x, 1)
    return static.nn.fc(paddle.flatten(x, start_axis=1), 10)


@dataclass(frozen=True)
class Model:
    """The programs, and what stands in them."""

    main: static.Program
    test: static.Program
    startup: static.Program
    loss: static.Variable
    logits: static.Variable
    accuracy: static.Variable
    scheduler: Any


def build(steps: int, amp: str = "", rate: float = RATE) -> Model:
    """Builds the programs; the learning rate falls to zero over so many steps."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        image = static.data("image", [None, 1, 8, 8], "float32")
        label = static.data("label", [None, 1], "int64")
        logits = network(image)
        loss = F.cross_entropy(logits, label)
        accuracy = static.accuracy(logits, label)
        test = main.clone(for_test=True)
        scheduler = paddle.optimizer.lr.CosineAnnealingDecay(rate, steps)
        optimizer = paddle.optimizer.Momentum(
            scheduler, momentum=0.9, use_nesterov=True, weight_decay=paddle.regularizer.L2Decay(5e-4)
        )
        training.mixed_precision(optimizer, amp).minimize(loss)
    return Model(main, test, startup, loss, logits, accuracy, scheduler)


# ------------------------------------------------------------------------------------------------------------- training
def train(given: argparse.Namespace) -> training.History:
    """Trains and tests; draws the course and the hardest digits."""
    paddle.seed(given.seed)
    train_x, train_y, test_x, test_y = digits()
    per_epoch = len(train_x) // BATCH
    model = build(max(given.steps or 0, given.epochs * per_epoch), given.amp)
    exe = static.Executor(given.place)
    exe.run(model.startup)
    program = training.on_places(model.main, model.loss, given)

    def step(number: int) -> dict[str, Any]:
        rows, rng = training.shuffled(len(train_x), BATCH, number, given.seed)
        feed = {"image": moved(train_x[rows], rng), "label": train_y[rows]}
        (loss,) = exe.run(program, feed=feed, fetch_list=[model.loss])
        model.scheduler.step()
        return {"loss": loss}

    def test() -> dict[str, Any]:
        feed = {"image": test_x, "label": test_y}
        loss, accuracy = exe.run(model.test, feed=feed, fetch_list=[model.loss.name, model.accuracy.name])
        return {"test loss": loss, "test accuracy": accuracy}

    history = training.fit(
        given, "resnet", [model.main], step, test, per_epoch, "test accuracy", scheduler=model.scheduler
    )
    (logits,) = exe.run(model.test, feed={"image": test_x, "label": test_y}, fetch_list=[model.logits.name])
    plot(given, history, per_epoch, test_x[:, 0], test_y[:, 0], logits)
    return history


def plot(
    given: argparse.Namespace,
    history: training.History,
    per_epoch: int,
    images: np.ndarray,
    labels: np.ndarray,
    logits: np.ndarray,
) -> None:
    """Draws losses over epochs, and the test digits whose own score is furthest below another one, or least above."""
    epochs = [test["step"] / per_epoch for test in history.tests]
    ends = [0, *(int(test["step"]) for test in history.tests)]
    losses = [step["loss"] for step in history.steps]
    lines = {
        "training (moved images)": [float(np.mean(losses[a:b])) for a, b in pairwise(ends)],
        "test": [test["test loss"] for test in history.tests],
    }
    with training.picture(given.out / "resnet.png", "Residual network on digits: loss per epoch") as axes:
        training.curves(axes, epochs, lines, "epoch", "cross entropy (nats)")
        axes.set_yscale("log")
        axes.xaxis.get_major_locator().set_params(integer=True)
    answers = logits.argmax(1)
    own = np.eye(10, dtype=bool)[labels]
    hardest = np.argsort(logits[own] - np.where(own, -np.inf, logits).max(1))
    title = f"The hardest test digits; {np.sum(answers != labels)} of {len(labels)} are misread"
    with training.picture(given.out / "resnet_hardest.png", title, columns=8, size=(10.0, 2.0)) as row:
        for axes, n in zip(row, hardest, strict=False):
            axes.imshow(images[n])
            axes.axis("off")
            axes.set_title(f"{labels[n]}" if answers[n] == labels[n] else f"{labels[n]} read as {answers[n]}")


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    given = training.parser(__doc__, epochs=20).parse_args(arguments)
    history = train(given)
    reached = history.tests[-1]["test accuracy"]
    return training.verdict(given.out, "resnet", "test accuracy", reached, GOAL, training.is_whole(given))


if __name__ == "__main__":
    sys.exit(main())
