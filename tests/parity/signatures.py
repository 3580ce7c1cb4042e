"""Records the signatures of Paddle's public names: ``python -m tests.parity.signatures PYTHON ...`` asks those environments.

`make parity` asks the Paddles that ``bench/paddle_env.py`` installs, 2.6.2 and 1.8.5. Of 2.4.2, the last version with both
``fluid`` and the 2.x modules, there is no wheel for CPUs any more, so its record stays as it is.
"""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded" / "signatures.json.xz"
ASKED = Path(__file__).with_name("installed.py")
MODULES = (
    "", "amp", "callbacks", "compat", "device", "distributed", "distributed.fleet", "distributed.fleet.base.role_maker",
    "distributed.fleet.meta_optimizers.common", "distributed.fleet.metrics", "distributed.fleet.utils", "distributed.io",
    "distribution", "fft", "framework", "framework.io_utils", "framework.random", "geometric", "incubate", "incubate.nn",
    "incubate.nn.functional", "incubate.optimizer", "inference", "io", "linalg", "metric", "nn", "nn.functional",
    "nn.initializer", "nn.utils", "onnx", "optimizer", "optimizer.lr", "profiler", "profiler.profiler", "reader",
    "regularizer", "signal", "static", "static.amp", "static.amp.bf16", "static.amp.bf16.amp_lists",
    "static.amp.bf16.amp_utils", "static.amp.bf16.decorator", "static.amp.decorator", "static.amp.fp16_lists",
    "static.amp.fp16_utils", "static.io", "static.nn", "tensor", "text", "utils", "utils.dlpack", "utils.profiler", "version",
    "vision", "vision.datasets", "vision.models", "vision.models.resnet", "vision.ops", "vision.transforms",
    "fluid", "fluid.average", "fluid.backward", "fluid.clip", "fluid.compiler", "fluid.contrib", "fluid.contrib.layers",
    "fluid.contrib.mixed_precision", "fluid.contrib.mixed_precision.bf16", "fluid.contrib.mixed_precision.decorator",
    "fluid.contrib.mixed_precision.fp16_lists", "fluid.contrib.mixed_precision.fp16_utils", "fluid.core", "fluid.data_feeder",
    "fluid.dataset", "fluid.dygraph", "fluid.dygraph.nn", "fluid.evaluator", "fluid.executor", "fluid.framework",
    "fluid.generator", "fluid.incubate", "fluid.incubate.data_generator", "fluid.incubate.fleet",
    "fluid.incubate.fleet.base", "fluid.incubate.fleet.base.role_maker", "fluid.incubate.fleet.collective",
    "fluid.initializer", "fluid.input", "fluid.install_check", "fluid.io", "fluid.layer_helper", "fluid.layers",
    "fluid.layers.collective", "fluid.layers.control_flow", "fluid.layers.detection", "fluid.layers.device", "fluid.layers.io",
    "fluid.layers.learning_rate_scheduler", "fluid.layers.loss", "fluid.layers.metric_op", "fluid.layers.nn",
    "fluid.layers.ops", "fluid.layers.sequence_lod", "fluid.layers.tensor", "fluid.lod_tensor", "fluid.metrics", "fluid.nets",
    "fluid.optimizer", "fluid.parallel_executor", "fluid.param_attr", "fluid.profiler", "fluid.reader", "fluid.regularizer",
    "fluid.transpiler", "fluid.transpiler.details", "fluid.transpiler.details.program_utils", "fluid.unique_name",
)  # fmt: skip
"""Public modules of tstatic, below ``paddle``, that a Paddle has, too."""
Parameters = list[list[str]]
"""``[name, default]`` of each parameter; ``[name]`` without a default, ``["*name"]`` and ``["**name"]`` for the rest."""
Record = dict[str, dict[str, dict[str, Any]]]
"""Version -> module -> name -> parameters, as of ``installed.py``."""


def ask(python: str) -> tuple[str, dict[str, dict[str, Any]]]:
    """Returns the version of another environment's Paddle, and what ``installed.py`` prints there."""
    done = subprocess.run([python, str(ASKED), *MODULES], capture_output=True, text=True, check=True, cwd=ASKED.parent)
    version, found = json.loads(done.stdout.splitlines()[-1])
    return version, found


def save(record: Record) -> None:
    """Writes the record."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    RECORDED.write_bytes(lzma.compress(text.encode(), preset=9))


@cache
def load() -> Record:
    """Reads the record."""
    found: Record = json.loads(lzma.decompress(RECORDED.read_bytes()))
    return found


if __name__ == "__main__":
    save({**(load() if RECORDED.exists() else {}), **dict(map(ask, sys.argv[1:]))})
