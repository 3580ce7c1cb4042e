"""Trains DeepFM, the recommender, on real tables: its first-order, factorization and deep parts see columns as categories.

    python examples/deepfm.py [--table breast_cancer] [--epochs 10] [--amp bf16] [--places 2]

Tables of clicks do not come with a library; scikit-learn brings three tables of measurements. Each column is cut at the quantiles
of the training rows into bins, so that a row becomes a list of categories, as in an advertisement's log: one id per column.
Embeddings have sparse gradients: a step touches the rows of its ids only.

- ``breast_cancer``: 569 tumours, 30 columns; is it benign? (goal: AUC of 0.985 on held-out rows)
- ``wine``: 178 wines, 13 columns; is it of the second of three cultivars? (0.985)
- ``diabetes``: 442 patients, 10 columns; does the disease progress faster than in the median patient? (0.75)
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import training
from sklearn import datasets
from sklearn.metrics import roc_curve
from sklearn.model_selection import train_test_split

import tstatic as paddle
import tstatic.nn.functional as F
from tstatic import static

GOALS = {"breast_cancer": 0.985, "wine": 0.985, "diabetes": 0.75}
BATCH = 32
BINS = 8
WIDTH = 8
"""Of an embedding."""


# ----------------------------------------------------------------------------------------------------------------- data
@dataclass(frozen=True)
class Table:
    """Ids [n, fields] and answers [n, 1], 0 or 1, of training and held-out rows (a quarter)."""

    fields: list[str]
    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


def table(name: str) -> Table:
    """Returns one of scikit-learn's tables with binned columns; field f has the ids f * BINS to f * BINS + BINS - 1."""
    data = getattr(datasets, f"load_{name}")()
    positive = {
        "breast_cancer": data.target == 1,
        "wine": data.target == 1,
        "diabetes": data.target > np.median(data.target),
    }[name]
    train_x, test_x, train_y, test_y = train_test_split(
        data.data, positive.astype("float32")[:, None], random_state=0, stratify=positive
    )
    # The bins' borders come from the training rows alone.
    borders = np.quantile(train_x, np.arange(1, BINS) / BINS, axis=0)

    def ids(rows: np.ndarray) -> np.ndarray:
        bins = (rows[:, None] > borders).sum(1)
        return (bins + np.arange(rows.shape[1]) * BINS).astype("int64")

    return Table(list(data.feature_names), ids(train_x), train_y, ids(test_x), test_y)


# -------------------------------------------------------------------------------------------------------------- network
def network(ids: static.Variable, fields: int, dropout: float) -> static.Variable:
    """DeepFM [Guo et al. 2017]; ids [batch, fields] give logits [batch, 1]."""
    small = paddle.ParamAttr(initializer=paddle.nn.initializer.Normal(0.0, 0.05))
    first = static.nn.embedding(ids, [fields * BINS, 1], is_sparse=True, param_attr=small)
    vectors = static.nn.embedding(ids, [fields * BINS, WIDTH], is_sparse=True, param_attr=small)
    # The sum over all pairs of fields of their vectors' products: (square of the sum - sum of the squares) / 2.
    pairs = 0.5 * (paddle.square(paddle.sum(vectors, axis=1)) - paddle.sum(paddle.square(vectors), axis=1))
    deep = paddle.reshape(vectors, [-1, fields * WIDTH])
    for size in (64, 32):
        deep = F.dropout(static.nn.fc(deep, size, activation="relu"), p=dropout)
    return paddle.sum(first, axis=1) + paddle.sum(pairs, axis=1, keepdim=True) + static.nn.fc(deep, 1)


@dataclass(frozen=True)
class Model:
    """The programs, and what stands in them."""

    main: static.Program
    test: static.Program
    startup: static.Program
    loss: static.Variable
    chance: static.Variable


def build(fields: int, amp: str = "", dropout: float = 0.3) -> Model:
    """Builds the programs for tables of so many columns."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        ids = static.data("ids", [None, fields], "int64")
        label = static.data("label", [None, 1], "float32")
        logit = network(ids, fields, dropout)
        loss = F.binary_cross_entropy_with_logits(logit, label)
        chance = F.sigmoid(logit)
        test = main.clone(for_test=True)
        training.mixed_precision(paddle.optimizer.Adam(2e-3, lazy_mode=True), amp).minimize(loss)
    return Model(main, test, startup, loss, chance)


# ------------------------------------------------------------------------------------------------------------- training
def auc(chances: np.ndarray, labels: np.ndarray) -> float:
    """Returns the area under the ROC curve: how often a positive row gets a higher chance than a negative one."""
    metric = paddle.metric.Auc()
    metric.update(np.concatenate([1 - chances, chances], axis=1), labels.astype("int64"))
    return float(metric.accumulate())


def train(given: argparse.Namespace) -> training.History:
    """Trains and tests; draws the ROC curve, and what each column is worth."""
    paddle.seed(given.seed)
    data = table(given.table)
    model = build(len(data.fields), given.amp)
    exe = static.Executor(given.place)
    exe.run(model.startup)
    program = training.on_places(model.main, model.loss, given)

    def step(number: int) -> dict[str, Any]:
        rows, _ = training.shuffled(len(data.train_x), BATCH, number, given.seed)
        feed = {"ids": data.train_x[rows], "label": data.train_y[rows]}
        (loss,) = exe.run(program, feed=feed, fetch_list=[model.loss])
        return {"loss": loss}

    def chances(ids: np.ndarray) -> np.ndarray:
        feed = {"ids": ids, "label": data.test_y}
        (found,) = exe.run(model.test, feed=feed, fetch_list=[model.chance.name])
        return np.asarray(found)

    def test() -> dict[str, Any]:
        return {"held-out AUC": auc(chances(data.test_x), data.test_y)}

    per_epoch = len(data.train_x) // BATCH
    history = training.fit(given, "deepfm", [model.main], step, test, per_epoch, "held-out AUC")
    lost = importance(data, chances, np.random.default_rng(given.seed))
    plot(given, data, chances(data.test_x), lost)
    return history


def importance(data: Table, chances: Any, rng: np.random.Generator, times: int = 20) -> np.ndarray:
    """Returns how much AUC is lost when the values of a column are dealt to other rows: mean of several times, per column."""
    whole = auc(chances(data.test_x), data.test_y)
    lost = np.zeros((len(data.fields), times))
    for field in range(len(data.fields)):
        for time in range(times):
            mixed = data.test_x.copy()
            mixed[:, field] = rng.permutation(mixed[:, field])
            lost[field, time] = whole - auc(chances(mixed), data.test_y)
    return lost.mean(1)


def plot(given: argparse.Namespace, data: Table, chances: np.ndarray, lost: np.ndarray) -> None:
    """Draws the ROC curve, and the columns that matter most."""
    wrong, right, _ = roc_curve(data.test_y[:, 0], chances[:, 0])
    title = f"DeepFM on {given.table}, held-out rows: AUC {auc(chances, data.test_y):.3f}"
    with training.picture(given.out / "deepfm_roc.png", title, size=(5.0, 4.0)) as axes:
        training.curves(
            axes, wrong, {"DeepFM": right}, "share of negatives called positive", "share of positives found"
        )
        axes.plot([0, 1], [0, 1], color="0.6", linestyle=":", label="guessing")
        axes.legend(loc="lower right")
    most = np.argsort(lost)[-10:]
    with training.picture(given.out / "deepfm_columns.png", f"What columns of {given.table} are worth") as axes:
        axes.barh([data.fields[n] for n in most], lost[most], color="0.4")
        axes.set_xlabel("AUC lost when the column is shuffled")


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = training.parser(__doc__, epochs=10)
    parser.add_argument("--table", choices=list(GOALS), default="breast_cancer")
    given = parser.parse_args(arguments)
    history = train(given)
    reached = history.tests[-1]["held-out AUC"]
    goal = GOALS[given.table]
    return training.verdict(given.out, "deepfm", "held-out AUC", reached, goal, training.is_whole(given))


if __name__ == "__main__":
    sys.exit(main())
