"""Trains a convolutional classifier on scikit-learn's handwritten digits, saves it, reloads it, and draws what happened.

    python examples/digits.py [--epochs 14] [--place cpu] [--out examples/out]
    python examples/digits.py --resume --epochs 20

A checkpoint is written after every epoch; the last two and the best are kept. With ``--resume`` a run that was broken off goes on
as if nothing had happened, and a finished one is trained longer.

The data comes with scikit-learn: 1,797 real images of 8 x 8 pixels. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import training
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import tstatic as paddle
import tstatic.nn.functional as F
from tstatic import static

BATCH = 64
RATE = 2e-3
GOAL = 0.97


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns images [n, 1, 8, 8] in [0, 1] and labels [n, 1], for training and for the test (a fifth)."""
    data = load_digits()
    images = (data.images[:, None] / 16.0).astype("float32")
    labels = data.target[:, None].astype("int64")
    train_x, test_x, train_y, test_y = train_test_split(
        images, labels, test_size=0.2, random_state=0, stratify=data.target
    )
    return train_x, train_y, test_x, test_y


def network(image: static.Variable) -> static.Variable:
    """Two convolutions with batch norm and pooling, then two dense layers; returns logits [batch, 10]."""
    x = static.nn.conv2d(image, num_filters=32, filter_size=3, padding=1)
    x = static.nn.batch_norm(x, act="relu")
    x = static.nn.conv2d(x, num_filters=64, filter_size=3, padding=1)
    x = static.nn.batch_norm(x, act="relu")
    x = F.max_pool2d(x, kernel_size=2, stride=2)
    x = F.dropout(paddle.flatten(x, start_axis=1), p=0.3)
    x = static.nn.fc(x, size=128, activation="relu")
    return static.nn.fc(x, size=10)


def build(
    learning_rate: float | paddle.optimizer.lr.LRScheduler = RATE,
) -> tuple[static.Program, static.Program, static.Program, list[static.Variable]]:
    """Builds the training, test and startup programs; the variables are loss and accuracy."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        image = static.data("image", [None, 1, 8, 8], "float32")
        label = static.data("label", [None, 1], "int64")
        logits = network(image)
        loss = F.cross_entropy(logits, label)
        accuracy = static.accuracy(logits, label)
        test = main.clone(for_test=True)
        paddle.optimizer.Adam(learning_rate).minimize(loss)
    return main, test, startup, [loss, accuracy]


def batches(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> Iterator[dict[str, np.ndarray]]:
    """Feeds of BATCH rows in a new order, each image moved by up to one pixel."""
    order = rng.permutation(len(x))
    for start in range(0, len(x), BATCH):
        rows = order[start : start + BATCH]
        moved = np.roll(x[rows], tuple(rng.integers(-1, 2, size=2)), axis=(2, 3))
        yield {"image": np.ascontiguousarray(moved), "label": y[rows]}


def evaluate(exe: static.Executor, program: static.Program, fetch: list[str], x: np.ndarray, y: np.ndarray) -> float:
    """Accuracy over a whole set."""
    (accuracy,) = exe.run(program, feed={"image": x, "label": y}, fetch_list=fetch)
    return float(np.asarray(accuracy).reshape(()))


def train(epochs: int, place: str, out: Path, again: bool = False) -> tuple[float, float]:
    """Trains to the last epoch, saves, reloads in a second program; returns both test accuracies.

    With ``again`` it goes on from the newest checkpoint, if there is one.
    """
    out.mkdir(parents=True, exist_ok=True)
    paddle.seed(1)
    train_x, train_y, test_x, test_y = digits()
    # Smaller from epoch to epoch: what the last batches leave does not decide how good the network is.
    rate = paddle.optimizer.lr.ExponentialDecay(RATE, gamma=0.85)
    main, test, startup, fetch = build(rate)
    exe = static.Executor(place)
    exe.run(startup)
    rng = np.random.default_rng(0)
    history: list[tuple[float, float]] = []
    manager = static.CheckpointManager(out / "digits-checkpoints", main, keep=2, mode="max", name="epoch")
    found = manager.restore() if again else None
    if found is not None:
        history = [(loss, accuracy) for loss, accuracy in found.state["history"]]
        rng.bit_generator.state = found.state["rng"]
    start, begun = time.perf_counter(), len(history)
    with training.progress("digits", begun, epochs, "epoch") as advance:
        for epoch in range(begun, epochs):
            rate.step(epoch)
            losses = [
                float(exe.run(main, feed=feed, fetch_list=[fetch[0]])[0]) for feed in batches(train_x, train_y, rng)
            ]
            history.append((float(np.mean(losses)), evaluate(exe, test, [fetch[1].name], test_x, test_y)))
            manager.save(epoch + 1, metric=history[-1][1], history=history, rng=rng.bit_generator.state)
            advance(f"loss {history[-1][0]:.4f}, accuracy {history[-1][1]:.4f}", f"epoch {epoch + 1} of {epochs}")
    seconds = time.perf_counter() - start
    accuracy = history[-1][1]
    static.save(main, str(out / "digits"))
    reloaded = reload_and_test(out / "digits", place, test_x, test_y)
    plot(history, out / "digits.png")
    (out / "digits.svg").write_text(main.to_svg(folded=True), encoding="utf-8")
    print(f"trained {len(history) - begun} epochs of {len(train_x)} images in {seconds:.1f} s on {exe.place}", end="; ")
    print(f"{len(history)} in all, the best was epoch {manager.best()}")
    written = [training.short(out / f"digits.{suffix}") for suffix in ("pdparams", "png", "svg")]
    print("wrote", ", ".join(written))
    return accuracy, reloaded


def reload_and_test(path: Path, place: str, x: np.ndarray, y: np.ndarray) -> float:
    """Builds the program anew, in a scope of its own, loads the file and tests."""
    with static.scope_guard(static.Scope()):
        main, test, startup, fetch = build()
        exe = static.Executor(place)
        exe.run(startup)
        static.load(main, str(path))
        return evaluate(exe, test, [fetch[1].name], x, y)


def plot(history: list[tuple[float, float]], path: Path) -> None:
    """Loss and test accuracy over epochs, side by side."""
    epochs = range(1, len(history) + 1)
    with training.picture(path, "Digits: training loss and test accuracy", columns=2, size=(9.0, 3.6)) as (left, right):
        training.curves(left, epochs, {"loss": [loss for loss, _ in history]}, "epoch", "cross entropy (nats)")
        training.curves(
            right, epochs, {"accuracy": [accuracy for _, accuracy in history]}, "epoch", "share of test digits read"
        )


def main() -> int:
    """Command line; the exit code is 1 if a full run misses its goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--place", default="gpu:0" if paddle.is_compiled_with_cuda() else "cpu")
    parser.add_argument(
        "--resume", action="store_true", help="go on from the newest checkpoint in --out, if there is one"
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out")
    given = parser.parse_args()
    accuracy, reloaded = train(given.epochs, given.place, given.out, given.resume)
    print(f"test accuracy {accuracy:.4f} (reloaded {reloaded:.4f})")
    whole = given.epochs >= parser.get_default("epochs")
    return training.verdict(given.out, "digits", "test accuracy", accuracy, GOAL, whole)


if __name__ == "__main__":
    sys.exit(main())
