"""Users' kernels in the interpreter against their references, and what the checks of ``tstatic.testing`` see."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers import user_kernels as mine
from tests.interpret.test_script import run_here
from tstatic import static, testing
from tstatic.chips.aot import Source
from tstatic.chips.sources import sources
from tstatic.fusion.codegen.kernel import Kernel
from tstatic.ir.opdef import OPS

X = testing.sample((5, 13), seed=1)
Y = testing.sample((5, 13), seed=2)


def run(build: Any, feeds: dict[str, Any], guard: Any = None) -> tuple[list[Any], list[str]]:
    """Values, and the types of the ops that ran."""
    main = static.Program()
    with static.program_guard(main, static.Program()):
        inputs = [static.data(n, list(a.shape), a.dtype.name) for n, a in feeds.items()]
        if guard is None:
            found = build(*inputs)
        else:
            with guard:
                found = build(*inputs)
    fetches = list(found) if isinstance(found, tuple) else [found]
    compiled = static.CompiledProgram(main)
    values = static.Executor("cpu").run(compiled, feed=feeds, fetch_list=fetches)
    return values, [op.type for op in compiled.program.global_block().ops]


def test_the_kernel_runs_and_no_fuse_keeps_the_reference() -> None:
    (made,), types = run(mine.wrong, {"x": X})
    np.testing.assert_array_equal(made, X + 1)
    assert types == ["test_wrong_triton"]
    (kept,), types = run(mine.wrong, {"x": X}, static.no_fuse())
    np.testing.assert_array_equal(kept, X + 2)
    assert types == ["test_wrong"]


def test_results_of_several_outputs_and_attributes() -> None:
    (total, most), _ = run(mine.rows, {"x": X})
    np.testing.assert_allclose(total, X.sum(1), rtol=1e-5)
    np.testing.assert_array_equal(most, X.max(1))
    (out,), _ = run(lambda x, y: mine.squares(x, y, slope=2.0), {"x": X, "y": Y})
    np.testing.assert_allclose(out, X * X * 2 + Y + 1, rtol=1e-6)


def test_an_output_that_nobody_reads_is_written_elsewhere() -> None:
    (total,), _ = run(lambda x: mine.rows(x)[0], {"x": X})
    np.testing.assert_allclose(total, X.sum(1), rtol=1e-5)


def program(build: Any, dtype: str = "float32") -> Any:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [None, 13], dtype)
        y = static.data("y", [None, 13], dtype)
        x.stop_gradient = y.stop_gradient = False
        loss = paddle.mean(paddle.cast(build(x, y), "float32"))
        return main, [loss, *static.gradients([loss], [x, y])]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_assert_equivalent_passes_a_right_kernel(dtype: str) -> None:
    main, fetches = program(lambda x, y: mine.squares(paddle.tanh(x), y) * y, dtype)
    testing.assert_equivalent(main, fetch_list=fetches, examples=3)


def test_assert_equivalent_runs_gradient_kernels() -> None:
    main, fetches = program(lambda x, y: mine.cube(x) + y)
    compiled = static.CompiledProgram(main)
    made = compiled.explain(fetch_list=fetches, feed_shapes={"x": (3, 13), "y": (3, 13)})
    assert [a.op for a in made.applied] == ["test_cube_triton", "test_cube_back_triton"]
    testing.assert_equivalent(main, fetch_list=fetches, examples=3)


def test_assert_equivalent_tells_a_wrong_kernel() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        out = mine.wrong(static.data("x", [None, 4]))
    with pytest.raises(testing.EquivalenceError, match="differs under another strategy"):
        testing.assert_equivalent(main, fetch_list=[out], examples=2)


def test_gradients_are_checked() -> None:
    # These kernels compute in the type that they are given.
    x = testing.sample((3, 13), seed=3)
    assert testing.check_grads(mine.cube, {"x": x}) == 39
    assert testing.check_grads(lambda v: mine.rows(v)[0], {"v": x}) == 39


def explained(build: Any, inputs: int) -> Kernel:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        out = build(*(static.data(f"x{i}", [5, 13]) for i in range(inputs)))
        found = static.CompiledProgram(main).explain(fetch_list=list(out) if isinstance(out, tuple) else [out])
    (kernel,) = found.kernels
    return kernel


def test_explain_has_its_text_and_its_bytes() -> None:
    kernel = explained(mine.squares, 2)
    assert "def squared(a):" in kernel.code
    assert "SHIFT = triton.language.constexpr(1.0)" in kernel.code
    assert "# Rounded once, to what the output holds." in kernel.code
    assert "register_kernel" not in kernel.code
    assert kernel.nbytes == kernel.moved[0] == 3 * 4 * 65


def test_its_module_runs_alone_where_the_reference_has_a_text(tmp_path: Path) -> None:
    code, printed = run_here(explained(mine.rows, 1).text, tmp_path / "rows.py")
    assert (code, printed.split(":")[0]) == (0, "passed")
    code, printed = run_here(explained(mine.wrong, 1).text, tmp_path / "wrong.py")
    assert (code, printed.splitlines()[-1].split(":")[0]) == (1, "failed")
    assert "It does not run alone" in explained(mine.squares, 2).text, "its reference is a lambda"


def test_it_can_be_compiled_for_a_chip_that_is_not_here() -> None:
    ((name, source),) = sources(explained(mine.squares, 2))
    assert name == "squares"
    assert isinstance(source, Source)
    assert dict(source.signature) == {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "slope": "fp32"}
    assert source.constants == {"BLOCK": 64}


WRONG = """
import numpy as np
import triton
import triton.language as tl

import tstatic as paddle
from tstatic import static, testing

LIMIT = 3.0


def doubled(x):
    return np.minimum(x, LIMIT) * 2.0


@paddle.register_kernel(
    "wrong_double", "X -> Out", reference=lambda x, slope: doubled(x) * slope, attrs={"slope": 1.0},
    launch=lambda x, out: (-(-x.numel // 64), {"n": x.numel, "BLOCK": 64}),
    grad={"X@GRAD": "dout * 2 * slope"},
)
@triton.jit
def double(x, out, n, slope, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2.5 * slope, mask=at < n)


def failure():
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [8, 12])
        loss = paddle.mean(paddle.exp(double(paddle.tanh(x), slope=0.5)) * 2.0)
    testing.assert_equivalent(main, fetch_list=[loss], examples=1)
"""


@pytest.mark.slow
def test_the_script_of_a_failure_runs_alone_with_the_kernel_in_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(WRONG, encoding="utf-8")
    known = dict(OPS)
    try:
        module: dict[str, Any] = {"__name__": "mine"}
        exec(compile(WRONG, str(file), "exec"), module)
        with pytest.raises(testing.EquivalenceError) as found:
            module["failure"]()
    finally:
        OPS.clear()
        OPS.update(known)
    script = found.value.script
    assert "    return np.minimum(x, LIMIT) * 2.0" in script
    assert script.count("np.array") == 0, "one number shows the fault"
    plain = {n: v for n, v in os.environ.items() if n not in ("TSTATIC_CPU_BACKEND", "TRITON_INTERPRET")}
    ends = []
    for name, text in (("wrong.py", script), ("right.py", script.replace("* 2.5 *", "* 2.0 *"))):
        (tmp_path / name).write_text(text, encoding="utf-8")
        ends.append(subprocess.run([sys.executable, name], cwd=tmp_path, env=plain, capture_output=True, text=True))
    assert "EquivalenceError" in ends[0].stderr, script + ends[0].stderr
    assert ends[1].returncode == 0, ends[1].stderr
