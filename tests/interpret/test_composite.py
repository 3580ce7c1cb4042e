"""Kernels of several parts: the bits of the parts run one by one, in memory that only the launches share."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.interpret.kernels import metas_by_name, run_kernel, run_ops
from tests.interpret.test_relu_depthwise_conv import op
from tstatic.chips.sources import sources
from tstatic.fusion.codegen.kernel import RNG, Kernel, KernelLocal
from tstatic.fusion.codegen.text.composite import compose
from tstatic.fusion.engine import loop_nest
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.rng import RngKey
from tstatic.target import DEFAULT_TARGET, TINY

ROWS, COLUMNS = 13, 21
KEY = RngKey(seed=7, run=3, place=0)


def _dropout(x: str, out: str, position: int) -> FrozenOp:
    made = op("dropout", {"X": x}, {"Out": out}, dropout_prob=0.3, dropout_implementation="upscale_in_train")
    return replace(made, position=position)


NORM = op(
    "layer_norm",
    {"X": "x", "Scale": "scale", "Bias": "bias"},
    {"Y": "n", "Mean": "mean", "Variance": "variance"},
    begin_norm_axis=1,
)
FIRST = [NORM, _dropout("n", "d", 3)]
SECOND = [
    op("gelu", {"X": "d"}, {"Out": "g"}),
    _dropout("g", "e", 5),
    op("elementwise_add", {"X": "e", "Y": "x"}, {"Out": "y"}),
    op("elementwise_add_grad", {"X": "x", "Y": "bias", "Out@GRAD": "y"}, {"Y@GRAD": "s"}),
]


def arrays(dtype: Any = np.float32) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "x": rng.standard_normal((ROWS, COLUMNS)).astype(dtype),
        "scale": rng.standard_normal(COLUMNS).astype(np.float32),
        "bias": rng.standard_normal(COLUMNS).astype(np.float32),
    }


def made(needed: list[str], inner: list[str]) -> tuple[list[Kernel], Kernel, dict[str, Any], Any]:
    given = arrays()
    ops = [*FIRST, *SECOND]
    values = {**given, **{v: np.zeros((ROWS, COLUMNS), np.float32) for v in ("n", "d", "g", "e", "y")}}
    values |= {
        "mean": np.zeros(ROWS, np.float32),
        "variance": np.zeros(ROWS, np.float32),
        "s": np.zeros(COLUMNS, np.float32),
    }
    metas = metas_by_name(values)
    own = [[v for v in (*needed, *inner) if v in {w for o in part for w in o.writes()}] for part in (FIRST, SECOND)]
    parts = [loop_nest(part, metas, kept) for part, kept in zip((FIRST, SECOND), own, strict=True)]
    return parts, compose(parts, ops, metas, needed), given, metas


@pytest.mark.parametrize("needed", [["y", "s"], ["mean", "d", "y", "s"]], ids=" ".join)
def test_the_bits_are_those_of_the_parts(needed: list[str]) -> None:
    parts, kernel, given, metas = made(needed, [] if "d" in needed else ["d"])
    values = dict(given)
    for part in parts:
        values |= run_kernel(part, values, {b.value: metas[b.value] for b in part.outputs}, rng=KEY)
    found = run_kernel(kernel, given, {n: metas[n] for n in needed}, rng=KEY)
    for name in needed:
        np.testing.assert_array_equal(found[name], values[name], name)
    # Both parts drew: each by its own position.
    dropped = values["d"] == 0
    assert 0 < dropped.sum() < dropped.size


def test_what_lies_between_is_no_output() -> None:
    parts, kernel, _, _ = made(["y", "s"], ["d"])
    assert [b.value for b in kernel.inputs] == ["x", "scale", "bias"]
    assert [b.value for b in kernel.outputs] == ["y", "s"]
    calls = kernel.plan(DEFAULT_TARGET)
    (between,) = kernel.between
    assert calls.partials[between.value] == (ROWS * COLUMNS, between.dtype)
    assert sum(between.value in one.arguments for one in calls.launches) == 2, "one writes it and one reads it"
    assert all(isinstance(n, KernelLocal) for n in (*calls.partials, *calls.tables))
    assert len(calls.tables) == 2, "each part has its own random numbers"
    assert calls.draws
    assert all(a == RNG or a in calls.partials or a in calls.tables or a in ("x", "scale", "bias", "y", "s")
               for one in calls.launches for a in one.arguments if isinstance(a, str))  # fmt: skip
    assert kernel.moved == tuple(n for part in parts for n in part.moved)
    assert sum(kernel.moved) > kernel.nbytes
    # Only the second part's pair: the first one's result is not of the program.
    assert kernel.inplace == (("x", "y"),)


def test_an_input_that_a_later_part_reads_is_not_overwritten() -> None:
    _, kernel, _, _ = made(["d", "y", "s"], [])
    assert ("x", "d") in made(["d", "y", "s"], [])[0][0].inplace
    assert kernel.inplace == (("x", "y"),)


def test_every_launch_says_its_types() -> None:
    _, kernel, _, _ = made(["y", "s"], ["d"])
    assert kernel.parameters == ()
    for target in (TINY, DEFAULT_TARGET):
        for one in kernel.plan(target).launches:
            assert len(one.types) == len(one.arguments), one.function
    found = sources(kernel)
    assert [name for name, _ in found] == ["part0_kernel", "part1_kernel", "part1_finish"]
    # What lies between is as large as the tensors: its accesses are as wide.
    assert "y0" not in found[0][1].small
    assert "x1" in found[0][1].small
    for _, source in found:
        compile(source.text, "module", "exec")


def test_functions_have_the_number_of_their_part() -> None:
    _, kernel, _, _ = made(["y", "s"], ["d"])
    functions = re.findall(r"^def (\w+)\(", kernel.code, re.M)
    assert len(functions) == len(set(functions)), "helpers are there once"
    assert {"part0_kernel", "part1_kernel", "part1_finish", "_half"} <= set(functions)
    assert kernel.template == "composite"


def test_one_part_is_changed_at_a_time() -> None:
    parts, _, _, metas = made(["y", "s"], ["d"])
    other = [replace(p, alternatives=lambda t, p=p: (replace(p.plan(t), name="other"),)) for p in parts]
    kernel = compose(other, [*FIRST, *SECOND], metas, ["y", "s"])
    names = [calls.name for calls in kernel.candidates(DEFAULT_TARGET)]
    assert names == ["generated", "part 0: other", "part 1: other"]


def test_the_ops_give_the_same() -> None:
    """Without dropout, as the references draw nothing here."""
    given, ops = (
        arrays(),
        [NORM, op("gelu", {"X": "n"}, {"Out": "g"}), op("elementwise_add", {"X": "g", "Y": "x"}, {"Out": "y"})],
    )
    wanted = run_ops(ops, given)
    metas = metas_by_name(wanted)
    parts = [loop_nest(ops[:1], metas, ["n"]), loop_nest(ops[1:], metas, ["y"])]
    found = run_kernel(compose(parts, ops, metas, ["y"]), given, {"y": metas["y"]})
    np.testing.assert_allclose(found["y"], wanted["y"], rtol=1e-5, atol=1e-5)
