"""Records the public names of Paddle's modules: ``python -m tests.parity.names`` writes what an installed Paddle lists.

`make parity` runs it in Paddle's environment. Only the standard library and Paddle are imported.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

RECORDED = Path(__file__).parent / "recorded" / "names.json"
METHODS = "Tensor"
"""Key of the names that Paddle gives to Variables as methods."""
MODULES = (
    "", "amp", "autograd", "device", "device.cuda", "distributed", "distributed.fleet", "distributed.fleet.utils",
    "distribution", "fft", "geometric", "hub", "incubate", "inference", "io", "jit", "linalg", "metric", "nn",
    "nn.functional", "nn.initializer", "nn.utils", "onnx", "optimizer", "optimizer.lr", "profiler", "quantization",
    "regularizer", "signal", "sparse", "static", "static.nn", "text", "utils", "utils.dlpack", "utils.unique_name",
    "version", "vision", "vision.datasets", "vision.models", "vision.ops", "vision.transforms",
)  # fmt: skip
"""Modules whose ``__all__`` is compared, below ``paddle``."""


def installed() -> dict[str, list[str]]:
    """Returns module -> its names, sorted, of the Paddle that this process can import."""
    found = {}
    for name in MODULES:
        module = importlib.import_module(f"paddle.{name}".rstrip("."))
        found[name] = sorted(set(module.__all__))
    found[METHODS] = sorted(set(importlib.import_module("paddle.tensor").tensor_method_func))
    return found


def ask(python: str) -> dict[str, list[str]]:
    """Returns what another environment's Paddle lists."""
    code = f"import json; from {__name__} import installed; print(json.dumps(installed()))"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([python, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def save(names: dict[str, list[str]]) -> None:
    """Writes the record, a line per module."""
    lines = ",\n".join(f"{json.dumps(module)}: {json.dumps(listed)}" for module, listed in names.items())
    RECORDED.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def load() -> dict[str, list[str]]:
    """Reads the record."""
    found: dict[str, list[str]] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    save(ask(sys.argv[1] if len(sys.argv) > 1 else sys.executable))
