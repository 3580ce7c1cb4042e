"""First contact with a GPU, with a device that stands in for one: the whole flow, and all that can go wrong on the way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.bench.scripts import run, script

contact = script("contact")

CEILINGS = {"bytes_per_s": 4.0e12, "flops_per_s": 8.0e14}


class LostError(Exception):
    """What a device raises that is gone."""


class Stub:
    """A device of numpy arrays; ``before`` is called with the name of every step."""

    cache_bytes = 64

    def __init__(self, before: Callable[[str], None] = lambda step: None) -> None:
        self.before = before
        self.gone = False

    def empty(self, count: int, dtype: str) -> Any:
        return np.full(count, np.nan)

    def put(self, values: Any, dtype: str) -> Any:
        return np.array(values, np.float64).reshape(-1)

    def draw(self, count: int, dtype: str, kind: str) -> Any:
        return np.ones(count)

    def get(self, tensor: Any) -> Any:
        return tensor

    def bind(self, module: Any, launches: Any, tensors: Any) -> Any:
        self.before("bind")
        return [
            lambda one=one: getattr(module, one["function"])(*(tensors[a] for a in one["arguments"]))
            for one in launches
        ]

    def wait(self) -> None:
        if self.gone:
            raise LostError("gone")

    def facts(self) -> dict[str, Any]:
        return {"name": "stub"}

    def ceilings(self) -> dict[str, float]:
        return CEILINGS

    def seconds(self, sets: Any, expected: float) -> dict[str, float]:
        self.before("time")
        for calls in sets:
            for call in calls:
                call()
        return {"median_s": 2 * expected, "p20_s": expected, "p80_s": 3 * expected}


def variant(text: str, exact: bool) -> dict[str, Any]:
    """A kernel of six numbers that doubles."""
    arrays = (
        {"inputs": {"array": 0}, "outputs": {"array": 1, "bound": 1e-6}} if exact else {"inputs": {}, "outputs": {}}
    )
    shape = {"shape": [2, 3], "dtype": "float32"}
    return {
        "text": text, "kernel": "k", "bytes": 48, "flops": 0, "partials": {}, "tables": {},
        "launches": [{"function": "kernel", "grid": [1], "arguments": ["x", "y"], "constants": {}, "options": {"num_warps": 4}}],
        "inputs": {"x": {**shape, "kind": "normal", **arrays["inputs"]}}, "outputs": {"y": {**shape, **arrays["outputs"]}},
    }  # fmt: skip


def pack(*texts: str) -> dict[str, Any]:
    """A case per text."""
    x = np.arange(1.0, 7).reshape(2, 3)
    cases = [
        {
            "name": f"{i}.{text}",
            "fusion": "f",
            "template": "t",
            "check": variant(text, True),
            "time": variant(text, False),
        }
        for i, text in enumerate(texts)
    ]
    return {"cases": cases, "skipped": {"other": "why"}, "arrays": {"a0": x, "a1": 2 * x}}


def _right(x: Any, y: Any) -> None:
    y[:] = 2 * x


def _wrong(x: Any, y: Any) -> None:
    y[:] = 2 * x
    y[-1] += 1


def _short(x: Any, y: Any) -> None:
    y[:-1] = 2 * x[:-1]


def _short_when_timed(x: Any, y: Any) -> None:
    y[:] = 2 * x
    if x[0] == x[1]:
        y[-2:] = np.nan


KERNELS = {"right": _right, "wrong": _wrong, "short": _short, "short when timed": _short_when_timed}


def load(text: str, name: str) -> Any:
    if text not in KERNELS:
        raise SyntaxError("at 1:1: no such kernel")
    return SimpleNamespace(kernel=KERNELS[text])


def go(device: Stub, given: dict[str, Any], path: Path, **settings: Any) -> dict[str, Any]:
    """Runs, and returns what is on disk."""
    result = contact.run(device, given, path, load=load, say=lambda text: None, **settings)
    on_disk: dict[str, Any] = json.loads(path.read_text())
    assert on_disk == json.loads(json.dumps(result))
    return on_disk


# -------------------------------------------------------------------------------------------------------------- the flow
def test_a_prediction_is_on_disk_before_anything_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    seen = []

    def before(step: str) -> None:
        row = json.loads(path.read_text())["cases"][-1]
        assert "time" not in row
        assert "check" not in row
        seen.append((step, row["predicted_s"]))

    found = go(Stub(before), pack("right"), path)
    wanted = 48 / (0.93 * CEILINGS["bytes_per_s"]) + 2e-6
    assert [step for step, _ in seen] == ["bind", *["bind"] * found["cases"][0]["time"]["sets"], "time"]
    assert all(p == pytest.approx(wanted) for _, p in seen)
    assert found["facts"] == {"name": "stub"}
    assert found["skipped"] == {"other": "why"}
    assert found["ceilings"] == CEILINGS
    assert found["cases"][0]["time"]["median_s"] == pytest.approx(2 * wanted)
    assert found["cases"][0]["time"]["sets"] == 6, "four times the cache of 64 bytes"
    assert contact.good(found["cases"][0])


def test_arithmetic_may_be_what_takes_longer() -> None:
    one = variant("right", False) | {"flops": 8.6e9}
    assert contact.predicted(one, CEILINGS) == pytest.approx(8.6e9 / (0.86 * 8e14) + 2e-6)


@pytest.mark.parametrize("text", ["wrong", "short"])
def test_wrong_values_are_not_timed(text: str, tmp_path: Path) -> None:
    found = go(Stub(), pack(text, "right"), tmp_path / "found.json")
    assert found["cases"][0]["check"]["right"] is False
    assert "time" not in found["cases"][0]
    assert "WRONG: y" in contact.line(found["cases"][0])
    assert [contact.good(row) for row in found["cases"]] == [False, True]


def test_what_a_timed_kernel_leaves_unwritten_is_said(tmp_path: Path) -> None:
    found = go(Stub(), pack("short when timed"), tmp_path / "found.json")
    assert found["cases"][0]["time"]["unwritten"] == {"y": 2}
    assert "UNWRITTEN" in contact.line(found["cases"][0])
    assert not contact.good(found["cases"][0])


def test_a_kernel_that_does_not_compile_keeps_nothing_from_being_measured(tmp_path: Path) -> None:
    found = go(Stub(), pack("no kernel", "right"), tmp_path / "found.json")
    assert found["cases"][0]["error"] == "SyntaxError: at 1:1: no such kernel"
    assert "FAILED: SyntaxError" in contact.line(found["cases"][0])
    assert [contact.good(row) for row in found["cases"]] == [False, True]
    assert found["stopped"] == ""


def test_a_lost_device_ends_the_run(tmp_path: Path) -> None:
    device = Stub()

    def before(step: str) -> None:
        device.gone = True

    device.before = before
    found = go(device, pack("right", "right"), tmp_path / "found.json")
    assert len(found["cases"]) == 1
    assert found["stopped"] == "the device was lost at 0.right"


def test_the_time_limit_stops_with_what_there_is(tmp_path: Path) -> None:
    now = [100.0]

    def before(step: str) -> None:
        now[0] += 35.0 if step == "time" else 0.0

    found = go(Stub(before), pack(*["right"] * 8), tmp_path / "found.json", limit_s=80.0, clock=lambda: now[0])
    assert [contact.good(row) for row in found["cases"]] == [True] * 3
    assert found["stopped"] == "the time was up after 3 of 8 kernels"
    assert found["seconds"] == 105.0


# ---------------------------------------------------------------------------------------------------------- real kernels
@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack of real kernels, small enough for the interpreter."""
    path = tmp_path_factory.mktemp("pack") / "pack.npz"
    run("gpu/pack.py", str(path), "--tiny", "--only", "l")
    return path


def spoiled(path: Path, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The pack with its head changed."""
    given = contact.read_pack(path)
    arrays = given.pop("arrays")
    change(given)
    new = folder / "spoiled.npz"
    with new.open("wb") as file:
        np.savez(file, head=np.frombuffer(json.dumps(given).encode(), np.uint8), **arrays)
    return new


def test_real_kernels_are_right_and_cover_the_fusions(real: Path, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    path = tmp_path / "found.json"
    run("gpu/contact.py", "--fake", "--pack", str(real), "--output-json", str(path))
    found = json.loads(path.read_text())
    assert all(contact.good(row) for row in found["cases"])
    assert len(found["facts"]["libtriton_sha256"]) == 64
    templates = {row["template"] for row in found["cases"]}
    assert {"pointwise", "sum", "update", "relu_depthwise", "rows"} <= templates
    assert {row["fusion"] for row in found["cases"]} >= {"elewise_add_act", "compiler", "all_optimizer"}


def test_spoiled_kernels_are_found(real: Path, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    names: list[str] = []

    def change(given: dict[str, Any]) -> None:
        given["cases"] = [c for c in given["cases"] if c["name"].startswith("elewise/relu-full")] * 2
        names.extend(c["name"] for c in given["cases"])
        given["cases"] = [json.loads(json.dumps(c)) for c in given["cases"]]
        wrong, broken = given["cases"][:2]
        for one in (wrong["check"], wrong["time"]):
            assert "a0 + a1" in one["text"] or "+ a1" in one["text"]
            one["text"] = one["text"].replace("+ a1", "- a1").replace("a0 + a1", "a0 - a1")
        broken["check"]["text"] = broken["check"]["text"].replace("tl.load(", "tl.no_such_function(")

    path = tmp_path / "found.json"
    run("gpu/contact.py", "--fake", "--pack", str(spoiled(real, tmp_path, change)), "--output-json", str(path), code=1)
    rows = json.loads(path.read_text())["cases"]
    assert [row["name"] for row in rows] == names
    assert rows[0]["check"]["right"] is False
    assert "no_such_function" in rows[1]["error"]
    assert [contact.good(row) for row in rows] == [False, False, True, True]


def test_a_call_that_does_not_return_is_given_up(real: Path, tmp_path: Path) -> None:
    pytest.importorskip("triton")

    def change(given: dict[str, Any]) -> None:
        given["cases"] = given["cases"][:1]
        given["cases"][0]["check"]["text"] += "\nimport time\ntime.sleep(120)\n"

    path = tmp_path / "found.json"
    made = spoiled(real, tmp_path, change)
    settings = ("--limit", "8", "--grace", "0.1")
    done = run("gpu/contact.py", "--fake", "--pack", str(made), "--output-json", str(path), *settings, code=3)
    assert "does not return" in done.stderr
    assert json.loads(path.read_text())["cases"][0]["predicted_s"] > 0


def test_tstatic_itself_is_not_needed(real: Path, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('tstatic', 'ml_dtypes', 'msgspec', 'platformdirs', 'scipy'):\n"
        "            raise ImportError(f'{name} is absent')\n"
        "sys.meta_path.insert(0, Absent())\n"
    )

    def change(given: dict[str, Any]) -> None:
        given["cases"] = given["cases"][::8]

    path = tmp_path / "found.json"
    given = ("--pack", str(spoiled(real, tmp_path, change)), "--output-json", str(path))
    run("gpu/contact.py", "--fake", *given, PYTHONPATH=str(tmp_path))
    assert all(contact.good(row) for row in json.loads(path.read_text())["cases"])


def test_without_a_gpu_it_says_so(real: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert "no contact" in run("gpu/contact.py", "--pack", str(real), code=2).stderr
