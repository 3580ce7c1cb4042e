"""A script and saved programs that the commands are tried on, and a way to run one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.helpers import warm

SCRIPT = """
import sys
import numpy as np
import paddle
from paddle import static

paddle.enable_static()
paddle.seed(1)
x, y = static.data("x", [None, 6]), static.data("y", [None, 1], "int64")
hidden = paddle.nn.functional.gelu(static.nn.fc(x, 8))
out = paddle.nn.functional.softmax(static.nn.fc(hidden, 3))
loss = paddle.mean(paddle.nn.functional.cross_entropy(out, y, use_softmax=False))
paddle.optimizer.Adam(0.01).minimize(loss)
exe = static.Executor("cpu")
exe.run(static.default_startup_program())
for _ in range(2):
    (value,) = exe.run(feed={"x": np.ones((4, 6), "float32"), "y": np.zeros((4, 1), "int64")}, fetch_list=[loss])
    print("loss", float(value))
if len(sys.argv) > 1:
    static.save(static.default_main_program(), sys.argv[1] + "/trained")
    static.save_inference_model(sys.argv[1] + "/model", [x], [out], exe)
    paddle.fluid.io.save_inference_model(sys.argv[1] + "/old", ["x"], [out], exe)
"""


def write_script(folder: Path, text: str = SCRIPT, name: str = "net.py") -> Path:
    """Writes a script into a folder."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def tstatic(cwd: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Runs ``python -m tstatic`` in a process that has imported tstatic already."""
    return warm.run("tstatic", *arguments, cwd=cwd, module=True, **{"CPU_NUM": "1", **environ})


def answer(cwd: Path, *arguments: str, code: int = 0, **environ: str) -> dict[str, Any]:
    """Runs a command with ``--json``, checks its exit code, and returns what it printed: nothing but one object."""
    done = tstatic(cwd, *arguments, "--json", **environ)
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
