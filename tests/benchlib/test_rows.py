"""Rows: every op has one or a reason, every fusion has a program in which it acts, files of sizes say what is wrong with them."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from pathlib import Path

import pytest

from tstatic.benchlib import rows
from tstatic.benchlib.cases import build
from tstatic.benchlib.fusions import example_rows
from tstatic.benchlib.peers import PEERS, PeerMissingError
from tstatic.benchlib.rows import DIRECTIONS, FORWARD, Row, refusal, rows_from_domain
from tstatic.benchlib.shapes import SHIPPED, Sizes
from tstatic.benchlib.suite import Selection, chosen_peers, chosen_rows
from tstatic.benchlib.timers import CpuTimer
from tstatic.errors import NotFoundError, ProgramError
from tstatic.fusion import FUSIONS
from tstatic.ir.opdef import OPS
from tstatic.static.run.compiled_program import CompiledProgram
from tstatic.static.strategy import BuildStrategy

pytestmark = pytest.mark.numpy_device("looks at results of the references")

TYPES = sorted(t for t in OPS if not OPS[t].of)


IN_THE_FILE = {name for name in Sizes(SHIPPED).subjects() if name in OPS}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "ELEMENTS", 256)
    monkeypatch.setattr(rows, "FLAT", (8, 16))


def test_every_op_has_a_row_or_a_reason(small: None) -> None:
    count: Counter[str] = Counter()
    for type in TYPES:
        if refusal(OPS[type]):
            count["refused"] += 1
            continue
        found = list(rows_from_domain(type, ["float32"], DIRECTIONS))
        if "float32" in OPS[type].domain.floats:  # type: ignore[union-attr]
            assert found, type
            assert found[0].direction == FORWARD
            assert len({row.name for row in found}) == len(found)
        count.update(row.direction for row in found)
    assert count["fwd"] > 300
    assert count["bwd"] == count["fwd_bwd"] > 200
    assert count["refused"] < 110


# All that the file of sizes measures, and each twelfth op, other ones than the other peers' tests draw from; all of them were run
# by hand when the peers were written.
@pytest.mark.torch
@pytest.mark.parametrize("type", sorted({*TYPES[::12], *IN_THE_FILE}))
def test_peers_agree_on_every_direction(small: None, type: str) -> None:
    refused = type not in IN_THE_FILE and refusal(OPS[type])
    for row in () if refused else rows_from_domain(type, ["float32"], DIRECTIONS):
        case = build(row)
        for name in ("tstatic", "unfused", "numpy", "torch"):
            competitor = None
            with contextlib.suppress(PeerMissingError):
                competitor = PEERS[name].prepare(case, CpuTimer(1), 1)
            if competitor is None:
                assert name == "torch", row.name
                continue
            assert case.difference(competitor.results(), name == "torch") == "", (row.name, name)
            for run in competitor.runs:
                run()


def test_a_first_axis_is_made_longer_where_the_op_allows_it() -> None:
    (softmax,) = rows_from_domain("softmax", ["float32"], [FORWARD])
    assert softmax.recipe.inputs[0].shape == (rows.ELEMENTS // 12 * 3, 4)
    (product,) = rows_from_domain("matmul_v2", ["float32"], [FORWARD])
    assert product.recipe.inputs[0].shape[0] > 10_000
    assert product.recipe.inputs[1].shape == (4, 5)


def acts(row: Row) -> bool:
    """Whether the fusion of a row is made in its program."""
    strategy = BuildStrategy()
    setattr(strategy, row.switch, True)
    case = build(row)
    return any(
        one.fusion == row.fusion
        for one in CompiledProgram(case.program, build_strategy=strategy).explain(case.fetches).applied
    )


@pytest.mark.parametrize("fusion", FUSIONS, ids=lambda f: f.name)
def test_every_fusion_acts_in_one_of_its_programs(fusion: object) -> None:
    sizes = Sizes(SHIPPED)
    name = fusion.name  # type: ignore[attr-defined]
    own = [e["name"] for e in sizes.programs if e.get("fusion") == name]
    found = [row for one in dict.fromkeys(own) for row in sizes.rows(one, "cpu", (), ("fwd", "fwd_bwd"))]
    assert found, f"the file of sizes lacks a program for '{name}', which has no pattern of forward operators"
    assert any(acts(row) for row in found)


@pytest.mark.parametrize("fusion", [f for f in FUSIONS if f.finder.patterns], ids=lambda f: f.name)
def test_a_fusion_with_patterns_needs_no_program(fusion: object) -> None:
    found = list(example_rows(fusion, ["float32"], ["fwd", "fwd_bwd"]))  # type: ignore[arg-type]
    assert len(found) == 2
    assert acts(found[0])
    case = build(found[1])
    assert case.difference(PEERS["tstatic"].prepare(case, CpuTimer(1), 1).results()) == ""


def test_the_shipped_sizes_name_what_people_ask_for() -> None:
    sizes = Sizes(SHIPPED)
    assert {"matmul_v2", "softmax", "layer_norm", "gelu", "dropout", "softmax_with_cross_entropy", "lookup_table_v2", "conv2d",
            "batch_norm", "adamw", "attention"} <= set(sizes.subjects())  # fmt: skip
    for device in ("cpu", "cuda"):
        assert len([row for name in sizes.subjects() for row in sizes.rows(name, device, (), ())]) > 40


WRONG = {
    "no table": ("[[ops]]\nop = 'relu'\n", "no table 'ops'"),
    "a key": ("[[op]]\nop = 'relu'\nshape = {}\nshapes = {}\n", "did you mean 'shapes'"),
    "no key": ("[[op]]\nop = 'relu'\n", "lacks the key 'shapes'"),
    "no op": ("[[op]]\nop = 'rleu'\nshapes = {}\n", "did you mean 'relu"),
    "a slot": ("[[op]]\nop = 'relu'\nshapes = { Y = [2] }\n", "shapes of 'relu' has 'Y'"),
    "an attribute": ("[[op]]\nop = 'relu'\nshapes = { X = [2] }\nattrs = { beta = 1 }\n", "attrs of 'relu' has 'beta'"),
    "a direction": ("[[op]]\nop = 'relu'\nshapes = { X = [2] }\ndirections = ['back']\n", "directions is 'back'"),
    "a fusion": (
        "[[program]]\nname = 'a'\ninputs = {}\nsteps = []\nfusion = 'gem_epilogue'\n",
        "did you mean 'gemm_epilogue'",
    ),
    "an optimizer": ("[[program]]\nname = 'a'\ninputs = {}\nsteps = []\noptimizer = 'AdamV'\n", "did you mean 'Adam"),
    "no call": ("[[program]]\nname = 'a'\ninputs = { x = [2] }\nsteps = ['y = x']\n", "not a call"),
    "no text": ("[[program]]\nname = 'a'\ninputs = { x = [2] }\nsteps = ['y = relu(']\n", "cannot be read"),
    "no name": ("[[program]]\nname = 'a'\ninputs = { x = [2] }\nsteps = ['y = relu(X=z)']\n", "'z' is neither"),
    "two stars": ("[[program]]\nname = 'a'\ninputs = { x = [2] }\nsteps = ['y = relu(**x)']\n", "need names"),
    "a value": (
        "[[program]]\nname = 'a'\ninputs = { x = [2] }\nsteps = ['y = scale(X=x, scale=open(\"f\"))']\n",
        "is not a number",
    ),
    "a slot of a step": (
        "[[program]]\nname = 'a'\ninputs = { x = [2] }\nsteps = ['y = relu(Z=x)']\n",
        "'Z' is neither a slot",
    ),
    "an input": (
        "[[program]]\nname = 'a'\ninputs = { x = { size = [2] } }\nsteps = ['y = relu(X=x)']\n",
        "has the key 'size'",
    ),
    "not TOML": ("[[op]\n", "cannot be read as sizes"),
}


@pytest.mark.parametrize(("text", "said"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_in_a_file_of_sizes_is_said(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "own.toml").write_text(text)
    with pytest.raises((ProgramError, NotFoundError)) as caught:
        list(chosen_rows(Selection(shapes=tmp_path / "own.toml")))
    assert said in str(caught.value)


def test_a_file_of_ones_own_may_be_json(tmp_path: Path) -> None:
    step = {"name": "mine", "inputs": {"x": [4, 6], "ids": {"shape": [3], "dtype": "int64", "high": 4}},
            "steps": ["y = gather(X=x, Index=ids)", "z = tanh(X=y)"]}  # fmt: skip
    (tmp_path / "own.json").write_text(json.dumps({"op": [{"op": "relu", "shapes": {"X": [3, 5]}}], "program": [step]}))
    found = list(chosen_rows(Selection(shapes=tmp_path / "own.json")))
    assert [(row.subject, row.direction) for row in found] == [(s, d) for s in ("relu", "mine") for d in DIRECTIONS]
    for row in found:
        case = build(row)
        assert case.difference(PEERS["tstatic"].prepare(case, CpuTimer(1), 1).results()) == ""


def test_rows_and_peers_are_chosen_by_tritonbenchs_words() -> None:
    names = {row.subject for row in chosen_rows(Selection(ops=["softmax", "gemm_epilogue"], directions=["fwd"]))}
    assert names == {"softmax", "linear_gelu"}
    only = list(chosen_rows(Selection(ops=["softmax"], only=["*bwd"], skip=["*fwd_bwd"])))
    assert [row.direction for row in only] == ["bwd"]
    assert chosen_peers(Selection()) == ["tstatic", "unfused", "numpy", "torch"]
    assert chosen_peers(Selection(only=["torch", "tstatic"])) == ["torch", "tstatic"]
    assert chosen_peers(Selection(skip=["torch", "numpy"])) == ["tstatic", "unfused"]
    assert [row.dtype for row in chosen_rows(Selection(ops=["relu"], dtypes=["float64"], directions=["fwd"]))] == [
        "float64"
    ]
    for wrong in (Selection(ops=["sofmax"]), Selection(ops=["while"])):
        with pytest.raises((NotFoundError, ProgramError)):
            list(chosen_rows(wrong))
    with pytest.raises(NotFoundError, match="tstatik"):
        chosen_peers(Selection(peers=["tstatik"]))
    with pytest.raises(ProgramError, match="no peer"):
        chosen_peers(Selection(peers=["torch"], skip=["torch"]))
