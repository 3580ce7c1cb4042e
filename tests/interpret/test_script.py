"""Generated modules run alone: inputs, launches, check; and the check sees faults."""

from __future__ import annotations

import io
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu import bn_nets, depthwise_nets
from tests.helpers import feedforward_programs
from tests.helpers.fusion_programs import CASES, Case, build
from tests.helpers.optimizer_programs import CASES as OPTIMIZERS
from tests.helpers.optimizer_programs import training
from tests.helpers.patience import HANG
from tests.interpret.test_composite import made as composite
from tstatic import static
from tstatic.fusion import FUSIONS
from tstatic.fusion.codegen.kernel import Kernel
from tstatic.fusion.codegen.update.segmenting import HELPER, segments
from tstatic.target import DEFAULT_TARGET, TINY

F = paddle.nn.functional


def explained(main: Any, switch: str, fetches: list[str], shapes: dict[str, tuple[int, ...]]) -> tuple[Kernel, ...]:
    strategy = static.BuildStrategy()
    for fusion in FUSIONS:
        setattr(strategy, fusion.switch, fusion.switch == switch)
    found = static.CompiledProgram(main, strategy).explain(fetch_list=fetches, feed_shapes=shapes).kernels
    return tuple(found)


def kernels(case: Case, switch: str, dtype: str = "float32") -> tuple[Kernel, ...]:
    built = build(case, dtype)
    return explained(built.main, switch, built.fetches, {n: a.shape for n, a in built.feed.items()})


def case(name: str) -> Case:
    return next(c for c in CASES if c.name == name)


# ------------------------------------------------------------------------------------------------ one of every template
def rows(x: Any, b: Any) -> Any:
    """Softmax, a sum of each row, and a normalisation, with a bias per column."""
    h = F.softmax(x * 0.5 + b)
    return static.nn.layer_norm(h + x, scale=False, shift=False, begin_norm_axis=1) * paddle.sum(
        h, axis=1, keepdim=True
    )


ALONG_ROWS = Case("rows", ((17, 33), (33,)), rows, 0)
DROPPED_ROWS = Case("dropped rows", ((9, 30), (30,)), lambda x, b: F.dropout(F.softmax(x + b), 0.25), 0)
LONG_ROWS = Case("long rows", ((2, 20001),), lambda x: F.softmax(x * 0.5), 0)


def feed_forward() -> Iterator[Kernel]:
    for dtype in ("float32", "bfloat16"):
        one = feedforward_programs.Block((17,), 19, 33, norm="pre", dropout=(0.3, 0.25), dtype=dtype)
        built = feedforward_programs.recipe(one, backward=True).build()
        shapes = {n: a.shape for n, a in built.feeds.items()}
        yield from explained(built.main, "fused_feedforward", built.fetches, shapes)


def losses(columns: int, dtype: str = "float32") -> tuple[Kernel, ...]:
    """Cross entropy with class numbers, and its gradient."""
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x, label = static.data("x", [5, columns], dtype), static.data("label", [5, 1], "int64")
        x.stop_gradient = False
        loss = F.cross_entropy(x * 0.5, label, reduction="none")
        (gradient,) = static.gradients([loss], [x])
    return explained(main, "build_cinn_pass", [loss.name, gradient.name], {"x": (5, columns), "label": (5, 1)})


def batch_norms(layout: str, **norm: Any) -> Iterator[Kernel]:
    for switch in ("fuse_bn_act_ops", "fuse_bn_add_act_ops"):
        main, _, loss = bn_nets.residual("tanh", layout, **norm)
        fetches = [loss.name, *bn_nets.gradients_of(main)]
        yield from explained(main, switch, fetches, {"x": bn_nets.SHAPES[layout]})


def depthwise(layout: str) -> tuple[Kernel, ...]:
    main, _, loss = depthwise_nets.net(layout)
    shape = (2, 3, 6, 5) if layout == "NCHW" else (2, 6, 5, 3)
    return explained(main, "fuse_relu_depthwise_conv", [loss.name], {"x": shape})


def updates() -> Iterator[Kernel]:
    for one in OPTIMIZERS:
        made = training(one.make, one.dtype, one.shapes)
        shapes = {n: a.shape for n, a in made.feed(0).items()}
        yield from explained(made.main, one.switch, [made.loss.name], shapes)


@cache
def all_templates() -> dict[str, tuple[Kernel, ...]]:
    """Template -> kernels whose texts differ."""
    found = [k for d in ("float32", "bfloat16", "float16") for k in kernels(ALONG_ROWS, "build_cinn_pass", d)]
    found += kernels(DROPPED_ROWS, "build_cinn_pass")
    found += [*kernels(LONG_ROWS, "build_cinn_pass"), *losses(33), *losses(33, "bfloat16"), *losses(20001)]
    found += [k for s in ("enable_auto_fusion", "build_cinn_pass") for k in kernels(case("chain"), s)]
    for layout in ("NCHW", "NHWC"):
        found += [*batch_norms(layout), *batch_norms(layout, is_test=True), *depthwise(layout)]
    found += [*updates(), composite(["y", "s"], ["d"])[1], composite(["mean", "d", "y", "s"], [])[1]]
    found += feed_forward()
    by_template: dict[str, dict[str, Kernel]] = {}
    for kernel in found:
        by_template.setdefault(kernel.template, {})[kernel.text] = kernel
    return {template: tuple(texts.values()) for template, texts in by_template.items()}


TEMPLATES = (
    "pointwise", "sum", "rows", "batch_norm", "batch_norm_grad", "relu_depthwise", "relu_depthwise_grad", "update",
    "square_sum", "long_rows", "composite",
)  # fmt: skip


def test_the_templates_are_all() -> None:
    root = Path(static.__file__).parents[1] / "fusion"
    stated = "".join(f.read_text() for f in sorted((root / "codegen").rglob("*.py")))
    named = set(re.findall(r'(?:finish|assemble|named)\([^"\n]*"([a-z_]+)"', stated)) - {""}
    assert named <= set(TEMPLATES)
    assert set(all_templates()) == set(TEMPLATES)


# ------------------------------------------------------------------------------------------------------------ they run
def run_here(text: str, file: Path, *arguments: str) -> tuple[int, str]:
    """Runs a module as a script in this process; returns its exit code and what it printed."""
    file.write_text(text, encoding="utf-8")
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(file), *arguments])
        with pytest.raises(SystemExit) as ended, redirect_stdout(printed):
            runpy.run_path(str(file), run_name="__main__")
    code = ended.value.code
    # A text is what Python prints before it ends with 1.
    return (1, code) if isinstance(code, str) else (int(code or 0), printed.getvalue())


@pytest.mark.parametrize("template", ["pointwise", pytest.param("update", marks=pytest.mark.slow)])
def test_a_module_runs_alone(template: str, tmp_path: Path) -> None:
    kernel = all_templates()[template][0]
    file = tmp_path / "alone.py"
    file.write_text(kernel.text, encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-I", str(file)], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=HANG
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"passed: {len({b.value for b in kernel.outputs})} outputs, largest error ")


def test_help_is_answered_without_a_gpu_and_an_interpreter(tmp_path: Path) -> None:
    code, printed = run_here(kernels(CASES[0], "enable_auto_fusion")[0].text, tmp_path / "alone.py", "--help")
    assert code == 0
    assert printed.startswith("usage: python FILE")
    assert "passed" not in printed


def test_without_a_gpu_and_an_interpreter_it_says_what_it_needs(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    file = tmp_path / "alone.py"
    file.write_text(kernels(CASES[0], "enable_auto_fusion")[0].text, encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, str(file)], env=environment, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 1
    assert "set TRITON_INTERPRET=1" in done.stderr


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_module_of_a_template_passes_its_own_check(template: str, tmp_path: Path) -> None:
    for number, kernel in enumerate(all_templates()[template]):
        code, printed = run_here(kernel.text, tmp_path / f"{kernel.name}_{number}.py")
        assert code == 0, f"{printed}\n{kernel.text}"
        assert printed.startswith("passed: ")


@pytest.mark.parametrize(
    ("which", "dtype"),
    [(c, d) for c in CASES for d in ("float32", "bfloat16", "float16") if d == "float32" or c in CASES[::3]],
    ids=lambda v: v if isinstance(v, str) else v.name,
)
def test_every_kernel_of_the_table_passes_its_own_check(which: Case, dtype: str, tmp_path: Path) -> None:
    if dtype != "float32" and ("conv" in which.name or "scale" in which.name):
        pytest.skip("one float type is enough where the layer makes float32 parameters")
    switches = "fuse_elewise_add_act_ops", "enable_auto_fusion", "build_cinn_pass"
    texts = {k.text: k for s in switches for k in kernels(which, s, dtype)}
    for text, kernel in texts.items():
        code, printed = run_here(text, tmp_path / f"{kernel.name}.py")
        assert code == 0, f"{printed}\n{text}"


def test_tables_that_a_text_makes_are_those_of_the_plan() -> None:
    sizes = [5, 0, 20, 1024, 4097]
    for block, step in ((16, 1), (16, 8), (1024, 16)):
        scope: dict[str, Any] = {"SIZES": sizes}
        exec(HELPER, scope)
        assert scope["blocks"](block, step) == segments(sizes, block, step).reshape(-1).tolist()
    for kernel in (*all_templates()["update"], *all_templates()["square_sum"]):
        for target in (TINY, DEFAULT_TARGET):
            for table in kernel.plan(target).tables.values():
                if table.numbers is not None:
                    lengths = [int(n) for n in re.findall(r"SIZES = \[([\d, \n]*)\]", kernel.text)[0].split(",")]
                    scope = {"SIZES": lengths, "np": np}
                    exec(HELPER, scope)
                    assert eval(table.text, scope) == table.numbers.tolist()


# ------------------------------------------------------------------------------------------------------ it sees faults
FAULTS = (
    ("pointwise", "tl.exp(", "tl.sin("),
    ("pointwise", "mask = offsets < n", "mask = offsets < n - 1"),
    ("pointwise", "= 7  # size of axis", "= 6  # size of axis"),
    ("pointwise", "tl.store(y0 + offsets, ", "tl.store(y0 + offsets, 1.0 - "),
    ("rows", "sums += tl.load(p + rows * kept", "sums -= tl.load(p + rows * kept"),
    ("sum", "tl.where(mask, ", "tl.where(mask, 1.1 * "),
    ("rows", "(columns < LENGTH)", "(columns < LENGTH - 2)"),
    ("rows", "tl.sum(tl.where(mask, ", "tl.sum(tl.where(mask, 1.001 * "),
    ("rows", "(columns < LENGTH)", "(columns < LENGTH - 1)"),
    ("batch_norm", "1 / tl.sqrt((spread_here", "1 / tl.sqrt((1.001 * spread_here"),
    ("batch_norm", "savedmean_here * 0.09999999999999998", "savedmean_here * 0.101"),
    ("batch_norm", "seen += 1", "seen += 2"),
    ("batch_norm_grad", "sum_along += ", "sum_along -= "),
    ("batch_norm_grad", "sum_dbias += tl.where(mask", "sum_dbias += tl.where(offsets > 0"),
    ("relu_depthwise", "a * w1[None, :]", "a * w0[None, :]"),
    ("relu_depthwise", ">= 0) &", ">= 1) &"),
    ("relu_depthwise_grad", "tl.where(a > 0, total, 0.0)", "total"),
    ("relu_depthwise_grad", "t1 += a * d", "t1 += d"),
    ("update", "paramout = param - ", "paramout = param + "),
    ("update", "own = offsets < ", "own = offsets + 1 < "),
    ("update", "tl.sqrt((1.0 - beta2pow))", "tl.sqrt((1.0 - 0.5 * beta2pow))"),
    ("square_sum", "tl.sum(x * x, 0)", "tl.sum(x, 0)"),
    ("square_sum", "for first in range(1, count, AT_ONCE)", "for first in range(3, count, AT_ONCE)"),
    ("square_sum", "tl.sqrt(result)", "tl.sqrt(result + result)"),
    ("square_sum", "a1 / v2", "a1 - v2"),
    ("composite", "sum_y1 += tl.where(mask, ", "sum_y1 += tl.where(mask, 1.1 * "),
)


@pytest.mark.parametrize(("template", "old", "new"), FAULTS)
def test_the_check_sees_faults(template: str, old: str, new: str, tmp_path: Path) -> None:
    tried = 0
    for kernel in all_templates()[template]:
        head, tail = kernel.text.split('if __name__ == "__main__":')
        if old not in head or tried == 3:
            continue
        tried += 1
        code, printed = run_here(f'{head.replace(old, new)}if __name__ == "__main__":{tail}', tmp_path / f"{tried}.py")
        assert code == 1, printed
        assert printed.splitlines()[-1].startswith("failed: "), printed
    assert tried, "no module has this text"
