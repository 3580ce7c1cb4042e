"""Generated modules run alone: inputs, launch, check; and the check sees faults."""

from __future__ import annotations

import io
import os
import runpy
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from tests.fusion_programs import CASES, Case, build
from tstatic import static

TEMPLATES = ("pointwise", "sum")


def kernels(case: Case, switch: str, dtype: str = "float32") -> list[Any]:
    built = build(case, dtype)
    strategy = static.BuildStrategy()
    setattr(strategy, switch, True)
    shapes = {n: a.shape for n, a in built.feed.items()}
    found = static.CompiledProgram(built.main, strategy).explain(fetch_list=built.fetches, feed_shapes=shapes).kernels
    return [k for k in found if k.template in TEMPLATES]


def case(name: str) -> Case:
    return next(c for c in CASES if c.name == name)


def run_here(text: str, file: Path) -> tuple[int, str]:
    """Runs a module as a script in this process; returns its exit code and what it printed."""
    file.write_text(text, encoding="utf-8")
    printed = io.StringIO()
    with pytest.raises(SystemExit) as ended, redirect_stdout(printed):
        runpy.run_path(str(file), run_name="__main__")
    return int(ended.value.code or 0), printed.getvalue()


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_module_runs_alone(template: str, tmp_path: Path) -> None:
    (kernel, *_) = [k for k in kernels(case("chain"), "enable_auto_fusion") if k.template == template]
    file = tmp_path / "alone.py"
    file.write_text(kernel.text, encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-I", str(file)], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "passed"
    assert [line.split(":")[0] for line in lines[:-1]] == [f"y{i}" for i in range(len(kernel.outputs))]
    assert all("largest error" in line for line in lines[:-1])


def test_without_a_gpu_and_an_interpreter_it_says_what_it_needs(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    file = tmp_path / "alone.py"
    file.write_text(kernels(CASES[0], "enable_auto_fusion")[0].text, encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, str(file)], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "set TRITON_INTERPRET=1" in done.stderr


@pytest.mark.parametrize(
    ("which", "dtype"),
    [(c, d) for c in CASES for d in ("float32", "bfloat16", "float16") if d == "float32" or c in CASES[::3]],
    ids=lambda v: v if isinstance(v, str) else v.name,
)
def test_every_kernel_of_the_table_passes_its_own_check(which: Case, dtype: str, tmp_path: Path) -> None:
    if dtype != "float32" and ("conv" in which.name or "scale" in which.name):
        pytest.skip("one float type is enough where the layer makes float32 parameters")
    texts = {k.text: k for s in ("fuse_elewise_add_act_ops", "enable_auto_fusion") for k in kernels(which, s, dtype)}
    for text, kernel in texts.items():
        code, printed = run_here(text, tmp_path / f"{kernel.name}.py")
        assert code == 0, f"{printed}\n{text}"
        assert printed.endswith("passed\n")


FAULTS = (
    ("chain", "pointwise", "tl.exp(", "tl.sin("),
    ("chain", "sum", "total += tl.load(p + s * kept", "total -= tl.load(p + s * kept"),
    ("chain", "sum", "tl.where(mask, ", "tl.where(mask, 1.01 * "),
    ("relu(x+b) [3,1,1]", "pointwise", "mask = offsets < n", "mask = offsets < n - 1"),
    ("relu(x+b) [5]", "pointwise", "% 5", "% 4"),
    ("x+relu(y)", "pointwise", "tl.store(y0 + offsets, ", "tl.store(y0 + offsets, 1.0 - "),
)


@pytest.mark.parametrize(("name", "template", "old", "new"), FAULTS)
def test_the_check_sees_faults(name: str, template: str, old: str, new: str, tmp_path: Path) -> None:
    tried = 0
    for kernel in kernels(case(name), "enable_auto_fusion"):
        head, tail = kernel.text.split('if __name__ == "__main__":')
        if kernel.template != template or old not in head:
            continue
        tried += 1
        code, printed = run_here(f'{head.replace(old, new)}if __name__ == "__main__":{tail}', tmp_path / f"{tried}.py")
        assert (code, printed.splitlines()[-1]) == (1, "failed"), printed
    assert tried
