"""Runs of a program over all batches of a data set of files, and what they print on the way."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tstatic.errors import ProgramError, shown
from tstatic.ir.export import export
from tstatic.ir.program import Variable
from tstatic.static.compile.request import fetch_names


class Batches(Protocol):
    """What an Executor needs of a data set."""

    def batches(self) -> Iterator[Mapping[str, Any]]:
        """Yields the feed of each batch."""


@export("fluid.executor.FetchHandler")
class FetchHandler:
    """Gets values of variables from time to time during ``train_from_dataset``: define ``handler``.

    Args:
        var_dict: Names of one's own, each with a Variable.
        period_secs: Seconds between two calls.

    Example:
        >>> class Show(fluid.executor.FetchHandler):
        ...     def handler(self, res_dict):
        ...         print(sorted(res_dict))
        >>> handler = Show({"loss": static.data("x", [None, 1])}, period_secs=5)
        >>> handler.period_secs
        5
    """

    def __init__(self, var_dict: Mapping[str, Variable] | None = None, period_secs: float = 60) -> None:
        if var_dict is None:
            raise ProgramError(
                "FetchHandler needs the variables to fetch",
                expected="var_dict={'loss': loss}",
                received="None",
                fix="pass var_dict",
            )
        self.var_dict = var_dict
        self.period_secs = period_secs

    def handler(self, res_dict: Mapping[str, Any]) -> None:
        """Prints the first element of each value, ``{name: array}``; to be redefined."""
        for name, value in res_dict.items():
            print(f"{name}[0]: {np.ravel(value)[0]} ")


def run_batches(
    run: Any,
    dataset: Batches | None,
    fetch_list: Any,
    fetch_info: Sequence[str] | None,
    print_period: int,
    handler: FetchHandler | None,
) -> None:
    """Calls ``run(feed, fetch_list)`` for each batch, prints what is fetched, and calls the handler when it is time.

    Raises:
        ProgramError: If an argument is wrong (a ``RuntimeError``).
    """
    if not hasattr(dataset, "batches"):
        raise ProgramError(
            "dataset is need and should be initialized",
            expected="a distributed.InMemoryDataset or QueueDataset",
            received=shown(dataset),
            fix="pass dataset=...; for a DataLoader, loop over it and call exe.run(feed=batch)",
            op="train_from_dataset",
        )
    assert dataset is not None
    names, _ = fetch_names(fetch_list)
    labels = list(names if fetch_info is None else fetch_info)
    if len(labels) != len(names) or print_period < 1:
        raise ProgramError(
            "fetch_info and print_period do not fit",
            expected=f"{len(names)} texts, one for each of fetch_list, and print_period >= 1",
            received=f"{len(labels)} texts, print_period={print_period}",
            fix="leave fetch_info out to print the variables' names",
            op="train_from_dataset",
        )
    watched = {} if handler is None else {label: var.name for label, var in handler.var_dict.items()}
    # The handler is called first when a whole period is over.
    called = time.monotonic()
    batches = dataset.batches()
    try:
        for number, feed in enumerate(batches, 1):
            # Nested: what the handler watches comes after the user's own.
            values = run(feed, [[] if fetch_list is None else fetch_list, *watched.values()])
            if names and number % print_period == 0:
                print(_report(number, labels, values), flush=True)
            if handler is not None and time.monotonic() - called >= handler.period_secs:
                handler.handler(dict(zip(watched, values[len(names) :], strict=True)))
                called = time.monotonic()
    finally:
        # What stands behind it ends now, and not when the last traceback is forgotten.
        if isinstance(batches, Generator):
            batches.close()


def _report(number: int, labels: Sequence[str], values: Sequence[Any]) -> str:
    """Returns a line such as ``time: [2026-11-22 08:31:34], batch: [2], loss[1]:[6.5]``."""
    parts = [f"time: [{time.strftime('%Y-%m-%d %H:%M:%S')}]", f"batch: [{number}]"]
    for label, value in zip(labels, values, strict=False):
        array = np.ravel(np.asarray(value))
        # Kind V: numpy has no bfloat16, and that of ml_dtypes counts as void.
        form = "g" if array.dtype.kind in "fV" else "d"
        parts.append(f"{label}[{array.size}]:[{' '.join(format(item, form) for item in array.tolist())}]")
    return ", ".join(parts)
