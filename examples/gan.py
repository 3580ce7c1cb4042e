"""Trains two networks against each other on scikit-learn's digits: one draws, one tells real from drawn.

    python examples/gan.py [--epochs 30] [--amp bf16] [--places 2]

Both are convolutional (DCGAN) and know which digit is meant; the discriminator also says which one it sees, and both networks are
better off if that is right (AC-GAN). There are two programs over the same parameters: one updates the discriminator's, one the
generator's. The judge has no part in that: a support vector machine that was trained on digits the networks never saw. The goal: it
reads 0.95 of the drawn digits as they were asked for, and each of the ten in 0.8 of its drawings. "Variety" is how much drawings of
a digit differ, where real ones have 1.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import training
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

import tstatic as paddle
import tstatic.nn.functional as F
from tstatic import static

GOAL, GOAL_OF_EACH = 0.95, 0.8
BATCH = 64
NOISE = 8
RATE = 1e-3


# ----------------------------------------------------------------------------------------------------------------- data
def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns images [n, 1, 8, 8] in [0, 1] and labels [n, 1], for the networks and for the judge (a fifth)."""
    data = load_digits()
    images = (data.images[:, None] / 16.0).astype("float32")
    labels = data.target[:, None].astype("int64")
    train_x, judge_x, train_y, judge_y = train_test_split(
        images, labels, test_size=0.2, random_state=0, stratify=data.target
    )
    return train_x, train_y, judge_x, judge_y


# ------------------------------------------------------------------------------------------------------------- networks
def names(prefix: str) -> dict[str, Any]:
    """Arguments that name a layer's weight and bias: layers of the same names share them, in all programs."""
    return {"param_attr": paddle.ParamAttr(name=f"{prefix}.w"), "bias_attr": paddle.ParamAttr(name=f"{prefix}.b")}


def batch_norm(x: static.Variable, prefix: str) -> static.Variable:
    """Batch norm with relu, whose statistics have names, too."""
    return static.nn.batch_norm(
        x, act="relu", moving_mean_name=f"{prefix}.mean", moving_variance_name=f"{prefix}.variance", **names(prefix)
    )


def generator(noise: static.Variable, label: static.Variable) -> static.Variable:
    """Noise [batch, NOISE] and the digit that is asked for; returns an image [batch, 1, 8, 8]."""
    asked = F.one_hot(paddle.flatten(label), 10)
    x = paddle.concat([noise, asked], axis=1)
    x = paddle.reshape(static.nn.fc(x, 64 * 2 * 2, weight_attr="generator.fc.w", bias_attr=False), [-1, 64, 2, 2])
    x = batch_norm(x, "generator.norm1")
    x = static.nn.conv2d_transpose(
        x, 32, filter_size=4, stride=2, padding=1, param_attr="generator.conv1.w", bias_attr=False
    )
    x = batch_norm(x, "generator.norm2")
    x = static.nn.conv2d_transpose(x, 1, filter_size=4, stride=2, padding=1, **names("generator.conv2"))
    return F.sigmoid(x)


def discriminator(image: static.Variable, label: static.Variable) -> tuple[static.Variable, static.Variable]:
    """An image and the digit that it is said to be.

    Returns:
        The logit of "a real one of that digit" [batch, 1], and logits of which digit it is [batch, 10].
    """
    x = static.nn.conv2d(image, 32, filter_size=3, padding=1, **names("discriminator.conv1"))
    x = F.leaky_relu(x, 0.2)
    x = static.nn.conv2d(x, 64, filter_size=4, stride=2, padding=1, **names("discriminator.conv2"))
    x = paddle.flatten(F.leaky_relu(x, 0.2), start_axis=1)
    real = static.nn.fc(x, 10, weight_attr="discriminator.real.w", bias_attr="discriminator.real.b")
    real = paddle.sum(real * F.one_hot(paddle.flatten(label), 10), axis=1, keepdim=True)
    return real, static.nn.fc(x, 10, weight_attr="discriminator.digit.w", bias_attr="discriminator.digit.b")


def against(logit: static.Variable, target: float) -> static.Variable:
    """Mean cross entropy of logits where the answer is always the same."""
    return F.binary_cross_entropy_with_logits(logit, paddle.full_like(logit, target))


@dataclass(frozen=True)
class Model:
    """The programs, and what stands in them."""

    of_discriminator: static.Program
    of_generator: static.Program
    draw: static.Program
    startup: static.Program
    d_loss: static.Variable
    g_loss: static.Variable
    drawn: static.Variable
    scheduler: Any


def build(steps: int, amp: str = "", rate: float = RATE) -> Model:
    """Builds both training programs and the one that only draws; the learning rates fall to zero over so many steps."""
    scheduler = paddle.optimizer.lr.PolynomialDecay(rate, steps, end_lr=0.0)
    of_discriminator, of_generator, startup = static.Program(), static.Program(), static.Program()
    with paddle.utils.unique_name.guard():
        with static.program_guard(of_discriminator, startup):
            noise = static.data("noise", [None, NOISE], "float32")
            image = static.data("image", [None, 1, 8, 8], "float32")
            label = static.data("label", [None, 1], "int64")
            real, digit = discriminator(image, label)
            fake, _ = discriminator(generator(noise, label), label)
            # Real images are called 0.9 real: a discriminator that is too sure teaches nothing.
            d_loss = against(real, 0.9) + against(fake, 0.0) + F.cross_entropy(digit, label)
            update(d_loss, of_discriminator, startup, "discriminator", scheduler, amp)
        with static.program_guard(of_generator, startup):
            noise = static.data("noise", [None, NOISE], "float32")
            label = static.data("label", [None, 1], "int64")
            drawn = generator(noise, label)
            draw = of_generator.clone(for_test=True)
            fake, digit = discriminator(drawn, label)
            g_loss = against(fake, 1.0) + F.cross_entropy(digit, label)
            update(g_loss, of_generator, startup, "generator", scheduler, amp)
    return Model(of_discriminator, of_generator, draw, startup, d_loss, g_loss, drawn, scheduler)


def update(
    loss: static.Variable, program: static.Program, startup: static.Program, whose: str, rate: Any, amp: str
) -> None:
    """Appends gradients and updates of one network's parameters; the other's stay as they are."""
    mine = [p for p in program.all_parameters() if p.name.startswith(whose)]
    optimizer = training.mixed_precision(paddle.optimizer.Adam(rate, beta1=0.5), amp)
    optimizer.minimize(loss, startup, mine)


# ------------------------------------------------------------------------------------------------------------- training
def train(given: argparse.Namespace) -> training.History:
    """Trains; after every epoch the judge reads a thousand drawings. Draws the drawings over the epochs."""
    paddle.seed(given.seed)
    train_x, train_y, judge_x, judge_y = digits()
    judge = SVC(C=10.0, gamma=0.06).fit(judge_x.reshape(len(judge_x), -1), judge_y[:, 0])
    per_epoch = len(train_x) // BATCH
    model = build(max(given.steps or 0, given.epochs * per_epoch), given.amp)
    exe = static.Executor(given.place)
    exe.run(model.startup)
    d_program = training.on_places(model.of_discriminator, model.d_loss, given)
    g_program = training.on_places(model.of_generator, model.g_loss, given)

    def step(number: int) -> dict[str, Any]:
        rows, rng = training.shuffled(len(train_x), BATCH, number, given.seed)
        label = train_y[rows]
        noise = rng.standard_normal((2, BATCH, NOISE), dtype="float32")
        feed = {"noise": noise[0], "image": train_x[rows], "label": label}
        (d_loss,) = exe.run(d_program, feed=feed, fetch_list=[model.d_loss])
        (g_loss,) = exe.run(g_program, feed={"noise": noise[1], "label": label}, fetch_list=[model.g_loss])
        model.scheduler.step()
        return {"discriminator": d_loss, "generator": g_loss}

    asked = np.tile(np.arange(10), 100)[:, None]
    noise = np.random.default_rng(given.seed).standard_normal((len(asked), NOISE), dtype="float32")
    drawings: list[np.ndarray] = []

    def test() -> dict[str, Any]:
        (images,) = exe.run(model.draw, feed={"noise": noise, "label": asked}, fetch_list=[model.drawn.name])
        drawings.append(np.hstack(np.pad(images[:10, 0], ((0, 0), (1, 1), (1, 1)))))
        right = (judge.predict(images.reshape(len(images), -1)) == asked[:, 0]).reshape(-1, 10)
        variety = spread(images, asked) / spread(train_x, train_y)
        return {"read as asked": right.mean(), "worst digit": right.mean(0).min(), "variety": variety}

    programs = [model.of_discriminator, model.of_generator]
    history = training.fit(given, "gan", programs, step, test, per_epoch, "read as asked", scheduler=model.scheduler)
    plot(given, history, per_epoch, drawings, judge.score(train_x.reshape(len(train_x), -1), train_y[:, 0]))
    return history


def spread(images: np.ndarray, labels: np.ndarray) -> float:
    """Returns how much images of the same digit differ: the standard deviation of a pixel, mean over pixels and digits."""
    return float(np.mean([images[labels[:, 0] == digit].std(0) for digit in range(10)]))


def plot(
    given: argparse.Namespace, history: training.History, per_epoch: int, drawings: list[np.ndarray], ceiling: float
) -> None:
    """Draws how often drawings are read as asked, and drawings of this run from the same noise after more and more epochs."""
    epochs = np.array([test["step"] / per_epoch for test in history.tests])
    title = "GAN on digits: how often a judge reads what was asked for"
    with training.picture(given.out / "gan.png", title) as axes:
        keys = {"all digits": "read as asked", "the digit that does worst": "worst digit"}
        lines = {label: [test[key] for test in history.tests] for label, key in keys.items()}
        training.curves(axes, epochs, lines | {"real digits": [ceiling] * len(epochs)}, "epoch", "share of drawings")
    if drawings:
        chosen = np.unique(np.geomspace(1, len(drawings), 8).astype(int)) - 1
        title = "GAN on digits: the same noise after more and more epochs"
        with training.picture(given.out / "gan_drawings.png", title, size=(7.0, 6.2)) as axes:
            axes.imshow(np.vstack([drawings[n] for n in chosen]))
            axes.grid(visible=False)
            axes.set_xticks(np.arange(10) * 10 + 4.5, [str(digit) for digit in range(10)])
            axes.set_yticks(np.arange(len(chosen)) * 10 + 4.5, [f"{epochs[-len(drawings) :][n]:.3g}" for n in chosen])
            axes.set(xlabel="digit that was asked for", ylabel="epoch")


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    given = training.parser(__doc__, epochs=30).parse_args(arguments)
    history = train(given)
    last, whole = history.tests[-1], training.is_whole(given)
    covered = training.verdict(given.out, "gan", "worst digit, read as asked", last["worst digit"], GOAL_OF_EACH, whole)
    return covered | training.verdict(
        given.out, "gan", "drawn digits read as asked", last["read as asked"], GOAL, whole
    )


if __name__ == "__main__":
    sys.exit(main())
