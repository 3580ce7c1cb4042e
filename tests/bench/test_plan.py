"""Counting launches and bytes on paper: hand-counted kernels, the table's shapes, the models, and a long program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.bench.scripts import run, script
from tstatic import static
from tstatic.fusion.codegen.kernel import Kernel, KernelArgument, Launch, Launches, Table
from tstatic.ir.types import float32, int64

plan = script("plan")
count = script("plan_count")
floors = script("plan_floors")
page = script("plan_page")


def kernel(calls: Launches, inputs: dict[str, int], outputs: dict[str, int]) -> Kernel:
    """A kernel of float32 buffers with these numbers of elements."""
    first, second = (tuple(KernelArgument(v, float32, n) for v, n in side.items()) for side in (inputs, outputs))
    return Kernel("k", "", "t", (), first, second, lambda target: calls)


# ------------------------------------------------------------------------------------------------------------- counting
def test_a_launch_reads_and_writes_what_it_names_once() -> None:
    twice = Launch("kernel", (1024,), ("x", "x", "y"), {"BLOCK": 1024})
    assert count.moved(kernel(Launches((twice,), {}), {"x": 1000}, {"y": 500})) == 4 * 1500


def test_two_passes_count_twice_and_partial_sums_both_ways() -> None:
    launches = (
        Launch("sums", (4,), ("x", "partial:sum"), {"ROWS": 32, "COLUMNS": 64}),
        Launch("kernel", (16,), ("x", "partial:sum", "y"), {"ROWS": 32, "COLUMNS": 64}),
    )
    moved = count.moved(kernel(Launches(launches, {"partial:sum": (256, float32)}), {"x": 10_000}, {"y": 10_000}))
    assert moved == 4 * (3 * 10_000 + 2 * 256)


def test_what_merges_partial_sums_does_not_read_the_tensor() -> None:
    merge = Launch("merge", (2,), ("x", "partial:sum", "y"), {"STRIPS": 4, "COLUMNS": 32})
    found = count.moved(kernel(Launches((merge,), {"partial:sum": (256, float32)}), {"x": 10**6}, {"y": 64}))
    assert found == 4 * (256 + 256 + 64), "as many elements of x as its tiles hold"


def test_a_main_function_may_walk_over_more_than_its_tiles() -> None:
    rows = Launch("kernel", (2,), ("x", "partial:sum"), {"COLUMNS": 32})
    found = count.moved(kernel(Launches((rows,), {"partial:sum": (256, float32)}), {"x": 10**6}, {}))
    assert found == 4 * (10**6 + 256)


def test_what_a_table_points_to_counts_where_the_elements_are_worked_on() -> None:
    tables = {"table:addresses": Table(("w", "g", "w2")), "table:blocks": Table(numbers=np.zeros(8, np.int64))}
    launches = (
        Launch("prepare", (1,), ("table:addresses", "rate"), {"TENSORS": 16}),
        Launch("kernel", (9,), ("table:addresses", "table:blocks"), {"BLOCK": 1024}),
    )
    moved = count.moved(kernel(Launches(launches, {}, tables), {"w": 9000, "g": 9000}, {"w2": 9000}))
    assert moved == 4 * 3 * 9000 + 8 * (3 + 3 + 8)
    assert int64.itemsize == 8


# --------------------------------------------------------------------------------------------------- the table's shapes
@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, str], dict[str, Any]]:
    """The floors, by name and switch."""
    return {(r["what"], r["switch"]): r for r in floors.floors()}


HELD = (
    "add+relu full fwd", "add+relu full bwd", "add+relu bias fwd", "add+relu bias bwd", "add+gelu full fwd", "add+gelu full bwd",
    "add+gelu bias fwd", "add+gelu bias bwd", "BN+relu NHWC fwd", "BN+relu NCHW fwd", "BN+relu NHWC bwd", "BN+relu NCHW bwd",
    "BN+add+relu NHWC fwd", "BN+add+relu NCHW fwd", "BN+add+relu NHWC bwd", "BN+add+relu NCHW bwd", "residual+LN 32768 x 768 fwd",
    "residual+LN 32768 x 768 bwd", "residual+LN 8192 x 4096 fwd", "residual+LN 8192 x 4096 bwd",
    "linear+bias+gelu 32768 x 768 x 3072 fwd", "linear+bias+gelu 8192 x 4096 x 16384 fwd",
    "linear+bias+gelu 16384 x 1024 x 4096 fwd", "feed-forward 16384 x 1024 fwd",
)  # fmt: skip


@pytest.mark.parametrize("what", HELD)
def test_kernels_move_what_the_formulas_say(what: str, rows: dict[tuple[str, str], dict[str, Any]]) -> None:
    found = [r for (name, switch), r in rows.items() if name == what and switch != "enable_auto_fusion"]
    assert found
    for row in found:
        assert row["kernels"] == 1
        assert 0.99 <= row["ratio"] <= page.WANTED, f"reads {row['reads']}, writes {row['writes']}"


def test_an_op_that_is_left_over_spoils_a_row() -> None:
    """What no kernel computes has bytes, too."""
    (row,) = floors._single(
        "sorted", lambda x: paddle.sort(paddle.exp(x) + x), (((8, 4), "float32"),), "enable_auto_fusion", (1,)
    )
    assert row["kernels"] == 0
    (row,) = floors._single("alone", paddle.exp, (((8, 4), "float32"),), "enable_auto_fusion", (2 * 4 * 8 * 4,))
    assert (row["kernels"], row["launches"], row["ratio"]) == (1, 1, 1.0), "an op alone is a kernel like any other"


def test_unfused_batch_norms_are_counted_as_fused_ones() -> None:
    def build(_: Any) -> Any:
        x = static.data("x", [4, 3, 5, 5], "float32")
        return paddle.mean(static.nn.batch_norm(static.nn.batch_norm(x), is_test=True))

    main, loss = count.built(build)
    ops, _, metas = count.rewritten(main, count.strategy("-"), {"x": (4, 3, 5, 5)}, [loss.name])
    assert count.second_launches(ops) == 2, "given statistics take one launch"
    assert count.second_passes(ops, metas) == 4 * 3 * 25 * 4


def test_formulas_are_those_of_plain_arithmetic(rows: dict[tuple[str, str], dict[str, Any]]) -> None:
    n = 2 * 8192 * 4096
    assert rows["add+relu full fwd", "fuse_elewise_add_act_ops"]["least"] == 3 * n
    assert rows["BN+relu NHWC bwd", "fuse_bn_act_ops"]["least"] == 5 * 2 * 256 * 56 * 56 * 64


# -------------------------------------------------------------------------------------------------------------- programs
MOST: dict[str, dict[str, float]] = {
    "gpt": {"launches": 260, "bytes": 50e9, "arena": 6.8e9},
    "bert": {"launches": 300},
}
"""What a step may take at most."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt", "bert", "resnet"])
def test_models_learn_as_many_numbers_as_published_and_fusion_saves(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "bert":
        # Alone, each switch does there what it does in GPT, and each takes a compilation.
        monkeypatch.setattr(plan, "FUSIONS", plan.FUSIONS[:1])
    found = plan.model(name, lambda text: None)
    assert found["launches"]["fused"] < found["launches"]["unfused"]
    assert found["bytes"]["fused"] < found["bytes"]["unfused"]
    assert sum(found["applied"].values()) > 0
    assert set(found["alone"]) == {f.switch for f in plan.FUSIONS}
    update = {r["what"]: r for r in found["kernels"]}["momentum" if name == "resnet" else "AdamW"]
    streams = {"gpt": 28, "bert": 28, "resnet": 20}[name]
    assert update["least"] == streams * found["parameters"]
    assert sum(row["launches"] for row in found["kinds"]) == found["launches"]["fused"]
    # A step of ResNet takes 1 % more: partial sums of batch norms add to its peak, where nothing that fusion removes is alive.
    assert 0 < found["arena"]["fused"] < (1.02 if name == "resnet" else 1) * found["arena"]["unfused"]
    for row in found["kernels"]:
        if row["moved"] > 10**6:
            assert 0.97 <= row["moved"] / row["least"] <= row["worst"] <= page.WANTED, row["what"]
    assert update["worst"] <= page.WANTED
    for key, most in MOST.get(name, {}).items():
        assert found[key]["fused"] <= most, key


@pytest.mark.parametrize("name", ["gpt-bf16", "bert-bf16"])
def test_matrix_products_in_16_bits_move_what_the_formulas_say(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two layers: the others are the same. The formulas themselves are stated as numbers."""
    models = script("models")
    monkeypatch.setitem(models.GPT, "layers", 2)
    monkeypatch.setitem(models.BERT, "layers", 2)
    one = models.MODELS[name]
    main, loss = count.built(one.build)
    kernels = count.fused_kernels(main, count.strategy(), one.feeds, [loss.name])
    rows = {r["what"]: r for r in count.against_formulas(kernels)}
    # All of GPT's other products are in blocks of attentions and in the chunks of the loss.
    for what in ("feed-forward fwd", "feed-forward bwd", *(["linear+bias+act fwd"] if name == "bert-bf16" else [])):
        row = rows[what]
        assert row["table"]
        assert 1.0 <= row["worst"] <= page.WANTED
    # 8,192 tokens: both products, the argument of the activation kept and read again, and in BERT the rows behind them.
    e, m, d = 2, 8192, 768
    wide, narrow, token = e * (9 * m * d + 4 * d * d), e * (5 * m * d + 4 * d * d), e * m * d
    small = 100_000
    # BERT has a block of two small products, too, that the library makes.
    found = {count.matrix_bytes(op, metas) for op, _, metas in kernels if op.type == "fused_feedforward"}
    (forward,) = {nbytes for nbytes in found if nbytes > wide}
    behind = (8 if name == "bert-bf16" else 4) * token
    assert abs(forward - wide - narrow - behind) < small
    found = {count.matrix_bytes(op, metas) for op, _, metas in kernels if op.type == "fused_feedforward_grad"}
    before = {"gpt-bf16": (0, 3), "bert-bf16": (5,)}[name]
    for nbytes, streams in zip(sorted(n for n in found if n > wide), before, strict=True):
        # Three sums over rows of what comes before the products: partial sums of two programs per multiprocessor.
        partial = 3 * 2 * 264 * d * 4 if streams else 0
        # The library's product lies in memory before the activation's gradient is made of it.
        assert abs(nbytes - wide - 8 * token - 3 * narrow - streams * token - partial) < small


def test_a_program_is_compiled_within_a_shallow_stack(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    done = run("plan.py", "--only", "large", "--ops", "600", "--profile", "--output-json", str(path))
    row = json.loads(path.read_text())["large"]
    assert row["ops"] == 600 > 2 * row["depth"]
    assert 0 < row["fused_ops"] < 60
    assert sum(row["seconds"].values()) == pytest.approx(row["total_s"])
    assert len(row["profile"]) == 15
    assert "A program of 600 ops" in path.with_suffix(".md").read_text()
    assert "written to" in done.stdout


def test_what_is_not_as_wanted_is_said_and_fails_a_check(tmp_path: Path) -> None:
    kernels = [{"what": "BN", "table": True, "worst": 1.5}, {"what": "sum", "table": False, "worst": 9}]
    rows = [("a", 0, 0.0), ("b", 1, 1.03), ("c", 1, 1.02)]
    result = {
        "models": {"m": {"title": "M", "kernels": kernels, "launches": {"fused": 61, "unfused": 100}}},
        "floors": [{"what": what, "switch": "s", "kernels": n, "ratio": ratio} for what, n, ratio in rows],
        "large": {"ops": 7, "total_s": 60.0},
    }
    assert page.failures(result) == [
        "a (s): no kernel",
        "b (s): moves 1.030 times the formula",
        "M: BN moves 1.500 times the formula",
        "M: 61 of 100 launches are left",
        "7 ops: 60 s",
    ]
    patience = ("--only", "large", "--ops", "100000", "--patience", "0.5")
    done = run("plan.py", *patience, "--check", "--output-json", str(tmp_path / "p.json"), code=1)
    assert "not compiled: not done after 0.5 s" in done.stdout
