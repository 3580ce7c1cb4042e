"""Peers from a user's file: what they are given, that wrong ones have no time, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.benchlib.fakes import FakeTimer
from tstatic.benchlib import results
from tstatic.benchlib.measure import Setting
from tstatic.benchlib.own import register_own
from tstatic.benchlib.peers import PEERS
from tstatic.benchlib.rows import Row
from tstatic.benchlib.suite import Selection, Suite, chosen_rows
from tstatic.devices import HOST
from tstatic.errors import ProgramError

pytestmark = pytest.mark.numpy_device("looks at results of the references")

SIZES = """
[[op]]
op = "softmax"
shapes = { X = [8, 6] }
attrs = { axis = 0 }
[[program]]
name = "scaled"
inputs = { x = [4, 6], y = [6] }
steps = ["s = elementwise_add(X=x, Y=y)", "z = tanh(X=s)"]
directions = ["fwd"]
"""
KERNELS = """
import numpy as np

def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)

def last_axis(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)

def unfinished(x):
    return x[:-1]

def careless(x, axis):
    made = softmax(x, axis)
    x[...] = 0.0
    return made

def of_two(x, y):
    return (np.tanh(x + y),)

NUMBER = 3
"""
TENSORS = """
import torch

def softmax(x: torch.Tensor, axis):
    return torch.softmax(x, axis)

def without_gradient(x: "torch.Tensor", axis):
    return torch.softmax(x.detach(), axis)
"""


@pytest.fixture
def rows(tmp_path: Path) -> dict[str, Row]:
    (tmp_path / "sizes.toml").write_text(SIZES)
    found = chosen_rows(Selection(shapes=tmp_path / "sizes.toml"))
    return {f"{row.subject} {row.direction}": row for row in found}


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    return path


def measured(row: Row, *names: str) -> dict[str, Any]:
    suite = Suite(FakeTimer(), ["tstatic", *names], Setting(repeats=12, seconds=1e-9))  # type: ignore[arg-type]
    peers: dict[str, Any] = suite.run([row])["rows"][0]["peers"]
    return peers


def test_a_function_gets_the_inputs_in_order_and_attributes_by_name(rows: dict[str, Row], kernels: Path) -> None:
    names = [register_own(f"{kernels}:{name}", HOST).name for name in ("softmax", "of_two")]
    assert names == ["kernels:softmax", "kernels:of_two"]
    found = measured(rows["softmax fwd"], names[0])[names[0]]
    assert found["state"] == "ok"
    assert len(found["seconds"]) == 12
    assert measured(rows["scaled fwd"], names[1])[names[1]]["state"] == "ok"


@pytest.mark.parametrize("name", ["last_axis", "unfinished"])
def test_a_wrong_kernel_has_no_time_and_is_a_finding(rows: dict[str, Row], kernels: Path, name: str) -> None:
    """Guards the promise: a benchmark never reports the time of a kernel whose results differ from the reference."""
    peer = register_own(f"{kernels}:{name}", HOST).name
    found = measured(rows["softmax fwd"], peer)
    assert found[peer]["state"] == "wrong"
    assert "seconds" not in found[peer]
    (finding,) = results.findings({"rows": [{"name": "row", "peers": found}]})
    assert finding.startswith(f"row: {peer}: wrong: ")


def test_a_function_that_writes_to_its_inputs_spoils_no_other_peers(rows: dict[str, Row], kernels: Path) -> None:
    peers = [register_own(f"{kernels}:{name}", HOST).name for name in ("careless", "softmax")]
    assert {one["state"] for one in measured(rows["softmax fwd"], *peers).values()} == {"ok"}


def test_a_function_of_arrays_has_no_gradient_and_says_so(rows: dict[str, Row], kernels: Path) -> None:
    peer = register_own(f"{kernels}:softmax", HOST).name
    for direction in ("bwd", "fwd_bwd"):
        found = measured(rows[f"softmax {direction}"], peer)[peer]
        assert found["state"] == "missing"
        assert "--direction fwd" in found["detail"]


@pytest.mark.torch
def test_a_function_annotated_with_tensors_gets_them_and_its_gradient_is_autograds(
    rows: dict[str, Row], tmp_path: Path
) -> None:
    (tmp_path / "tensors.py").write_text(TENSORS)
    own, without = (register_own(f"{tmp_path / 'tensors.py'}:{n}", HOST).name for n in ("softmax", "without_gradient"))
    for direction in ("fwd", "bwd", "fwd_bwd"):
        found = measured(rows[f"softmax {direction}"], own, without)
        assert found[own]["state"] == "ok", found[own]
        assert found[without]["state"] == ("ok" if direction == "fwd" else "missing"), found[without]


def test_a_function_that_does_not_fit_the_row_is_an_error_with_both(rows: dict[str, Row], kernels: Path) -> None:
    peer = register_own(f"{kernels}:of_two", HOST).name
    found = measured(rows["softmax fwd"], peer)[peer]
    assert found["state"] == "error"
    assert "of_two" in found["detail"]
    assert "a function of X" in found["detail"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kernels.py", "FILE.py:NAME"),
        ("kernels.txt:softmax", "FILE.py:NAME"),
        ("missing.py:softmax", "cannot be read"),
        ("kernels.py:sofmax", "did you mean 'softmax'"),
        ("kernels.py:NUMBER", "cannot be called"),
        ("broken.py:softmax", "raised ZeroDivisionError"),
    ],
)
def test_what_is_no_peer_is_refused(kernels: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str) -> None:
    monkeypatch.chdir(kernels.parent)
    (kernels.parent / "broken.py").write_text("1 / 0\n")
    before = dict(PEERS)
    with pytest.raises(ProgramError) as error:
        register_own(text, HOST)
    assert said in str(error.value)
    assert f"--peer {text}" in str(error.value)
    assert before == PEERS


def test_a_peer_is_given_once(kernels: Path) -> None:
    register_own(f"{kernels}:softmax", HOST)
    with pytest.raises(ProgramError, match="give each peer once"):
        register_own(f"{kernels}:softmax", HOST)


def test_a_changed_file_does_not_continue_a_result(rows: dict[str, Row], kernels: Path, tmp_path: Path) -> None:
    """Guards the record: rows that an earlier text of the file was measured with are not taken for its own."""

    def run() -> dict[str, Any]:
        PEERS.pop("kernels:softmax", None)
        own = register_own(f"{kernels}:softmax", HOST)
        timer: Any = FakeTimer()
        suite = Suite(
            timer, ["tstatic", own.name], Setting(repeats=11, seconds=1e-9), path=tmp_path / "r.json",
            sources={own.name: own.digest},
        )  # fmt: skip
        return suite.run([rows["softmax fwd"]])

    first = run()
    assert run()["rows"] == first["rows"], "the same file continues"
    kernels.write_text(f"{KERNELS}\n# changed\n")
    with pytest.raises(ProgramError, match="setting, sources"):
        run()


@pytest.mark.torch
def test_a_triton_kernel_needs_a_launch_and_a_registered_one_a_device_that_runs_it(tmp_path: Path) -> None:
    """On a CPU place without the interpreter the reference would run, and its time would pass for the kernel's."""
    pytest.importorskip("triton")
    file = tmp_path / "mine.py"
    file.write_text(
        "import triton\nimport triton.language as tl\nimport tstatic as paddle\n\n"
        "@triton.jit\ndef bare(x, out, n, BLOCK: tl.constexpr):\n    pass\n\n"
        "@paddle.register_kernel('test_own_twice', 'X -> Out', reference=lambda x: 2 * x,\n"
        "                        launch=lambda x, out: (1, {'n': x.numel, 'BLOCK': 64}))\n"
        "@triton.jit\ndef twice(x, out, n, BLOCK: tl.constexpr):\n    pass\n"
    )
    with pytest.raises(ProgramError, match="nothing says how to launch this kernel"):
        register_own(f"{file}:bare", HOST)
    with pytest.raises(ProgramError, match="no kernel runs on this device") as error:
        register_own(f"{file}:twice", HOST)
    assert "TSTATIC_CPU_BACKEND=interpret" in str(error.value)
