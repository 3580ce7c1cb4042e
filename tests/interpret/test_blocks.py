"""Blocks that somebody asks for: each name that a kernel offers reaches the launch, and leaves the results right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.benchlib.fakes import FakeTimer
from tstatic import static
from tstatic.benchlib.cases import Case, build
from tstatic.benchlib.measure import Setting
from tstatic.benchlib.peers import tstatic
from tstatic.benchlib.rows import Row
from tstatic.benchlib.suite import Selection, Suite, chosen_rows
from tstatic.errors import ProgramError
from tstatic.fusion.codegen.loops import rows as rows_template
from tstatic.target import H200, Blocks, planning_with

SIZES = """
[[program]]
name = "pointwise"
inputs = { x = [8, 32], y = [8, 32] }
steps = ["h = elementwise_add(X=x, Y=y)", "z = tanh(X=h)"]
directions = ["fwd"]
[[program]]
name = "sum"
inputs = { x = [64, 40], y = [40] }
steps = ["h = elementwise_add(X=x, Y=y)", "z = tanh(X=h)"]
directions = ["bwd"]
[[program]]
name = "rows"
inputs = { x = [64, 24], y = [64, 24] }
steps = ["h = elementwise_add(X=x, Y=y)", "z = softmax(X=h)"]
directions = ["fwd"]
[[program]]
name = "long rows"
inputs = { x = [8, 70], y = [8, 70] }
steps = ["h = elementwise_add(X=x, Y=y)", "z = log_softmax(X=h)"]
directions = ["fwd"]
[[program]]
name = "product"
inputs = { x = [64, 80], w = [80, 64], b = [64] }
steps = ["h = matmul_v2(X=x, Y=w)", "s = elementwise_add(X=h, Y=b)", "y = gelu(X=s)"]
directions = ["fwd"]
[[program]]
name = "attention"
inputs = { q = [2, 64, 16], k = [2, 64, 16], v = [2, 64, 16] }
steps = ["s = matmul_v2(X=q, Y=k, trans_y=True)", "w = softmax(X=s)", "y = matmul_v2(X=w, Y=v)"]
directions = ["fwd_bwd"]
[[program]]
name = "channels"
inputs = { x = [16, 12], scale = [12], bias = [12], mean = [12], variance = { shape = [12], low = 0.5, high = 1.5 } }
steps = ["h = batch_norm(X=x, Scale=scale, Bias=bias, Mean=mean, Variance=variance)", "y = relu(X=h)"]
directions = ["fwd"]
[[program]]
name = "depthwise"
inputs = { x = [2, 4, 8, 8], w = [4, 1, 3, 3] }
steps = ["h = relu(X=x)", "z = depthwise_conv2d(Input=h, Filter=w, groups=4)"]
directions = ["fwd"]
[[program]]
name = "update"
inputs = { x = [8, 16], w = { shape = [16, 8], parameter = true }, b = { shape = [40], parameter = true } }
steps = ["h = matmul_v2(X=x, Y=w)", "m = reduce_mean(X=h, reduce_all=True)", "s = elementwise_add(X=b, Y=m)",
  "l = reduce_mean(X=s, reduce_all=True)"]
optimizer = "AdamW"
clip = 1.0
"""
TEMPLATES = {
    "pointwise",
    "sum",
    "rows",
    "long_rows",
    "gemm",
    "attention",
    "attention_grad",
    "batch_norm",
    "relu_depthwise",
    "update",
    "square_sum",
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    file = tmp_path_factory.mktemp("blocks") / "sizes.toml"
    file.write_text(SIZES)
    return list(chosen_rows(Selection(shapes=file)))


@pytest.fixture
def short_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of 70 elements is a long one, which goes over blocks of columns."""
    monkeypatch.setattr(rows_template, "LONGEST", 64)
    monkeypatch.setattr(rows_template, "BLOCK", 32)


def ran(case: Case, given: dict[str, int]) -> tuple[str, list[dict[str, Any]], Blocks]:
    """Runs a row with blocks; returns how its results differ, its kernels and the blocks that they offered."""
    blocks = Blocks(given)
    with planning_with(blocks):
        made = tstatic(case, FakeTimer(), 1)  # type: ignore[arg-type]
        difference = case.difference(made.results())
        return difference, made.kernels(), blocks


def sizes_of(kernels: list[dict[str, Any]]) -> Iterator[tuple[str, int]]:
    for one in kernels:
        yield from one["blocks"].items()


def test_every_block_that_a_kernel_offers_reaches_it_and_leaves_its_results_right(
    rows: list[Row], short_rows: None
) -> None:
    """Guards the class: a name that is offered and does nothing, or whose grid, partial sums or masks follow another size."""
    seen: set[str] = set()
    names: set[str] = set()
    for row in rows:
        case = build(row)
        _, chosen, blocks = ran(case, {})
        seen |= {one["kernel"] for one in chosen}
        assert blocks.offered, row.name
        for name in blocks.offered:
            mine = {size for n, size in sizes_of(chosen) if n == name}
            other = max(16, min(mine) // 2) if max(16, min(mine) // 2) not in mine else 2 * max(mine)
            difference, kernels, _ = ran(case, {name: other})
            assert difference == "", (row.name, name, other)
            assert (name, other) in set(sizes_of(kernels)), (row.name, name, other)
            names.add(name)
    assert seen >= TEMPLATES, TEMPLATES - seen
    assert names == {"BLOCK", "ROWS", "COLUMNS", "STEP"}


def test_a_run_of_the_benchmark_says_which_blocks_ran(rows: list[Row]) -> None:
    product = next(row for row in rows if row.subject == "product")
    suite = Suite(FakeTimer(calls=False), ["tstatic", "unfused"], Setting(repeats=12, seconds=1e-9))  # type: ignore[arg-type]
    given = [replace(product, blocks=(("ROWS", size),)) for size in (16, 64)]
    suite.check_blocks(given)
    record = suite.run([product, *given])
    assert [row["blocks"] for row in record["rows"]] == [{}, {"ROWS": 16}, {"ROWS": 64}]
    assert len({row["name"] for row in record["rows"]}) == 3, "rows of other blocks are other rows"
    for row in record["rows"][1:]:
        assert row["name"].endswith(f"fwd ROWS={row['blocks']['ROWS']}")
        (part, *_) = row["peers"]["tstatic"]["kernels"]
        assert part["blocks"]["ROWS"] == row["blocks"]["ROWS"]
        assert "kernels" not in row["peers"]["unfused"]
        assert row["peers"]["tstatic"]["state"] == "ok"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"FOO": 64}, "has a block of that name"),
        ({"ROWS": 8}, "a power of two from 16"),
        ({"STEP": 1 << 18}, "a power of two from 16"),
    ],
    ids=["name", "small", "large"],
)
def test_blocks_that_the_kernels_cannot_have_are_refused_before_anything_runs(
    rows: list[Row], given: dict[str, int], said: str
) -> None:
    product = next(row for row in rows if row.subject == "product")
    suite = Suite(FakeTimer(calls=False), ["tstatic"])  # type: ignore[arg-type]
    with pytest.raises(ProgramError) as error:
        suite.check_blocks([replace(product, blocks=tuple(given.items()))])
    text = str(error.value)
    assert said in text
    assert "--block" in text
    assert "product x [64, 80]" in text
    if "FOO" in given:
        assert "expected: ROWS, COLUMNS, STEP" in text


def test_a_block_beyond_the_shared_memory_of_a_chip_is_refused(rows: list[Row]) -> None:
    """On a chip the operands of each stage of the loop lie in shared memory; the interpreter has no such limit."""
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [256, 256], "float16")
        y = paddle.nn.functional.gelu(paddle.matmul(x, x))
    build_strategy = static.BuildStrategy()
    build_strategy.fuse_gemm_epilogue = True
    (kernel,) = static.CompiledProgram(main, build_strategy).explain([y]).kernels
    kernel.plan(replace(H200, blocks=Blocks({"STEP": 32})))
    with pytest.raises(ProgramError, match="more shared memory than a program has") as error:
        kernel.plan(replace(H200, blocks=Blocks({"STEP": 512})))
    assert "STEP=512" in str(error.value)
    assert kernel.plan(H200) == kernel.plan(replace(H200, blocks=Blocks())), "nothing asked for changes nothing"


def test_a_kernel_of_the_users_takes_blocks_that_its_launch_leaves_open() -> None:
    """A parameter of ``launch`` that has a default and the name of a constant is a block."""
    import triton
    import triton.language as tl

    from tests.helpers import user_kernels  # noqa: F401 - imports Triton as an interpreter

    sizes: list[int] = []

    def launch(x: Any, out: Any, BLOCK: int = 64) -> tuple[int, dict[str, int]]:
        sizes.append(BLOCK)
        return -(-x.numel // BLOCK), {"n": x.numel, "BLOCK": BLOCK}

    @paddle.register_kernel("test_blocks_double", "X -> Out", reference=lambda x: 2 * x, launch=launch)
    @triton.jit
    def double(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)

    y = double(static.data("x", [100]))
    exe, blocks = static.Executor(), Blocks({"BLOCK": 16})
    x = np.arange(100, dtype="float32")
    with planning_with(blocks):
        (found,) = exe.run(feed={"x": x}, fetch_list=[y])
    assert np.array_equal(found, 2 * x)
    assert 16 in sizes
    assert list(blocks.offered) == ["BLOCK"]
    sizes.clear()
    (again,) = exe.run(feed={"x": x}, fetch_list=[y])
    assert np.array_equal(again, found)
    assert set(sizes) == {64}, "outside, it is launched as before"


def test_files_of_sizes_are_read_as_they_stand(rows: list[Row], tmp_path: Path) -> None:
    (tmp_path / "sizes.toml").write_text(SIZES)
    chosen = Selection(shapes=tmp_path / "sizes.toml", ops=["product"], blocks=(("ROWS", 16),))
    assert [row.blocks for row in chosen_rows(chosen)] == [(("ROWS", 16),)]
