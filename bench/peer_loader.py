"""A worker for `bench/loader.py`: `python peer_loader.py tstatic|torch`; a step is an epoch of a DataLoader."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from peer import Case, serve

IMAGES, IMAGE_BATCH = 2048, 64
ROWS, ROW_BATCH = 32768, 256


class Images:
    """Images of 64 x 64 pixels, made floats channel by channel, with a label."""

    def __init__(self) -> None:
        numbers = np.random.default_rng(0)
        self.pixels = numbers.integers(0, 256, (IMAGES, 64, 64, 3), dtype=np.uint8)
        self.labels = numbers.integers(0, 10, IMAGES).tolist()

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, index: int) -> Any:
        image = self.pixels[index].transpose(2, 0, 1).astype(np.float32)
        image *= np.float32(1 / 255)
        return image, self.labels[index]


class Rows:
    """Rows of a recommender: 13 numbers, 26 ids and a label."""

    def __init__(self) -> None:
        numbers = np.random.default_rng(0)
        self.numbers = numbers.random((ROWS, 13), np.float32)
        self.ids = numbers.integers(0, 20_000, (ROWS, 26))
        self.labels = numbers.integers(0, 2, ROWS).tolist()

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> Any:
        return self.numbers[index], self.ids[index], self.labels[index]


def prepare(case: str, threads: int) -> Case:
    """Makes a case such as ``images:2``: what is loaded, and by how many workers; ``images:2:new`` starts them in each epoch."""
    kind, workers, *new = case.split(":")
    data, batch = (Images(), IMAGE_BATCH) if kind == "images" else (Rows(), ROW_BATCH)
    count = int(workers)
    options: dict[str, Any] = {
        "batch_size": batch, "shuffle": True, "num_workers": count, "persistent_workers": count > 0 and not new,
    }  # fmt: skip
    if sys.argv[1] == "torch":
        import torch
        from torch.utils.data import DataLoader

        torch.set_num_threads(threads)
        loader: Any = DataLoader(data, **options)  # type: ignore[arg-type]
    else:
        from tstatic import io

        loader = io.DataLoader(data, **options)

    def epoch() -> float:
        total = 0.0
        for fields in loader:
            # A program reads all that it is given; one look at each page is the part of it that depends on the loader.
            total += float(np.asarray(fields[0]).reshape(-1)[::1024].sum(dtype=np.float64))
        return total

    return Case(epoch, {"samples": len(data), "batch": batch})


def facts() -> dict[str, Any]:
    """Versions of what is measured."""
    found = {"python": sys.version.split()[0], "numpy": np.__version__}
    if sys.argv[1] == "torch":
        import torch

        found["torch"] = torch.__version__
    return found


if __name__ == "__main__":
    serve(prepare, facts)
