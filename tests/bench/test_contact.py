"""First contact with a GPU, with a device that stands in for one: the whole flow, and all that can go wrong on the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.bench.scripts import ROOT, hidden, run, script
from tests.helpers.patience import HANG
from tests.helpers.soak import SOAK

packfile, runner, compiling = (script(name) for name in ("packfile", "runner", "compiling"))

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

    def draw(self, count: int, dtype: str, kind: str, below: int) -> Any:
        return np.ones(count)

    def get(self, tensor: Any) -> Any:
        return tensor

    def bind_launches(self, module: Any, launches: Any, tensors: Any) -> Any:
        self.before("bind")
        return [
            lambda one=one: getattr(module, one["function"])(*(tensors[a] for a in one["arguments"]))
            for one in launches
        ]

    def wait(self) -> None:
        if self.gone:
            raise LostError("gone")

    def race(self, competitors: Any, expected: float) -> dict[str, Any]:
        self.before("time")
        for sets in competitors.values():
            for calls in sets:
                for call in calls:
                    call()
        return {name: {"median_s": 2 * expected, "p20_s": expected, "p80_s": 3 * expected} for name in competitors}


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


def _wrong_when_timed(x: Any, y: Any) -> None:
    y[:] = 2 * x + (x[0] == x[1])


def _short_when_timed(x: Any, y: Any) -> None:
    y[:] = 2 * x
    if x[0] == x[1]:
        y[-2:] = np.nan


KERNELS = {"right": _right, "wrong": _wrong, "short": _short, "short when timed": _short_when_timed,
           "wrong when timed": _wrong_when_timed}  # fmt: skip


class Values:
    """An array as tensors are used in comparisons."""

    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array)

    def reshape(self, *shape: int) -> Values:
        return Values(self.array.reshape(*shape))

    def double(self) -> Values:
        return self

    def __sub__(self, other: Values) -> Values:
        return Values(self.array - other.array)

    def __truediv__(self, other: Values) -> Values:
        return Values(self.array / other.array)

    def norm(self) -> Values:
        return Values(np.linalg.norm(self.array))

    def clamp_min(self, least: float) -> Values:
        return Values(np.maximum(self.array, least))


class Doubling:
    """What is right, and two peers of which one fails."""

    def exact(self, variant: Any, tensors: Any) -> Any:
        return {"y": Values(2 * tensors["x"].array)}

    rounded = exact

    def eager_calls(self, variant: Any, sets: Any) -> Any:
        return [[lambda: None]] * len(sets)

    def compiled_calls(self, device: Any, variant: Any, sets: Any) -> Any:
        raise NotImplementedError("no such op")


class StubOfValues(Stub):
    """The same with tensors that are compared on the device."""

    def empty(self, count: int, dtype: str) -> Any:
        return _Tensor(super().empty(count, dtype))

    def put(self, values: Any, dtype: str) -> Any:
        return _Tensor(super().put(values, dtype))

    def draw(self, count: int, dtype: str, kind: str, below: int) -> Any:
        return _Tensor(super().draw(count, dtype, kind, below))

    def get(self, tensor: Any) -> Any:
        return tensor.array

    def numbers(self, scalars: Any) -> list[float]:
        return [float(s.array) for s in scalars]


class _Tensor(Values):
    def __setitem__(self, key: Any, value: Any) -> None:
        self.array[key] = value.array if isinstance(value, Values) else value

    def __getitem__(self, key: Any) -> Any:
        return self.array[key]

    def __rmul__(self, factor: float) -> Any:
        return factor * self.array

    def __ne__(self, other: object) -> Any:
        return self.array != (other.array if isinstance(other, Values) else other)

    __hash__ = None  # type: ignore[assignment]


def load(text: str, name: str) -> Any:
    if text not in KERNELS:
        raise SyntaxError("at 1:1: no such kernel")
    return SimpleNamespace(kernel=KERNELS[text])


def go(device: Stub, given: dict[str, Any], folder: Path, peer: Any = None, **settings: Any) -> list[dict[str, Any]]:
    """Runs, and returns the rows that are on disk."""
    lines = packfile.Lines(folder, "contact", 0.0)
    bench = runner.Bench(device, given["arrays"], load, lambda case: peer)
    settings = {"ceilings": CEILINGS, "say": lambda text: None, **settings}
    code = runner.run(bench, given["cases"], lines, **settings)
    found = [line for line in lines.read() if line["what"] == "case"]
    assert code == (runner.LOST if getattr(device, "gone", False) else 0)
    return found


def why(folder: Path) -> list[str]:
    return [line["why"] for line in packfile.Lines(folder, "contact", 0.0).read() if line["what"] == "stopped"]


# -------------------------------------------------------------------------------------------------------------- the flow
def test_a_prediction_is_on_disk_before_anything_is_measured(tmp_path: Path) -> None:
    seen = []

    def before(step: str) -> None:
        last = packfile.Lines(tmp_path, "contact", 0.0).read()[-1]
        assert last["what"] == "begin"
        assert "time" not in last
        seen.append((step, last["predicted_s"]))

    [row] = go(Stub(before), pack("right"), tmp_path)
    wanted = 48 / (0.93 * CEILINGS["bytes_per_s"]) + 2e-6
    assert [step for step, _ in seen] == ["bind", "bind", *["bind"] * row["time"]["sets"], "time"]
    assert all(p == pytest.approx(wanted) for _, p in seen)
    assert row["time"]["median_s"] == pytest.approx(2 * wanted)
    assert row["time"]["sets"] == 6, "four times the cache of 64 bytes"
    assert runner.good(row)


def test_a_row_is_on_disk_before_the_next_begins(tmp_path: Path) -> None:
    numbers = []

    def before(step: str) -> None:
        rows = [line["name"] for line in packfile.Lines(tmp_path, "contact", 0.0).read() if line["what"] == "case"]
        numbers.append(len(rows))

    go(Stub(before), pack("right", "right"), tmp_path)
    assert sorted(set(numbers)) == [0, 1]


def test_arithmetic_may_be_what_takes_longer() -> None:
    one = variant("right", False) | {"flops": 8.6e9}
    assert runner.predicted(one, CEILINGS) == pytest.approx(8.6e9 / (0.86 * 8e14) + 2e-6)


@pytest.mark.parametrize("text", ["wrong", "short"])
def test_wrong_values_are_not_timed(text: str, tmp_path: Path) -> None:
    rows = go(Stub(), pack(text, "right"), tmp_path)
    assert rows[0]["check"]["right"] is False
    assert "time" not in rows[0]
    assert "WRONG: y" in runner.table_row(rows[0])
    assert [runner.good(row) for row in rows] == [False, True]


def test_what_is_wrong_at_the_timed_size_only_is_found(tmp_path: Path) -> None:
    rows = go(StubOfValues(), pack("wrong when timed", "right"), tmp_path, Doubling())
    assert rows[0]["check"]["right"] is True
    assert rows[0]["time"]["compared"]["right"] is False
    assert "median_s" not in rows[0]["time"]
    assert "WRONG at the timed size: y" in runner.table_row(rows[0])
    assert rows[1]["time"]["compared"]["right"] is True
    assert [runner.good(row) for row in rows] == [False, True]


def test_a_peer_that_fails_keeps_no_kernel_from_being_timed(tmp_path: Path) -> None:
    [row] = go(StubOfValues(), pack("right"), tmp_path, Doubling())
    assert row["time"]["peers"]["compiled"] == {"error": "NotImplementedError: no such op"}
    assert row["time"]["peers"]["eager"]["median_s"] == row["time"]["median_s"]
    assert runner.table_row(row).endswith("eager x1.00  compiled -") or "compiled -  eager x1.00" in runner.table_row(
        row
    )
    [row] = go(StubOfValues(), pack("right"), tmp_path / "late", Doubling(), compiled=lambda name: False)
    assert row["time"]["peers"]["compiled"] == {"error": "it was not compiled in time"}
    assert runner.good(row)


def test_what_a_timed_kernel_leaves_unwritten_is_said(tmp_path: Path) -> None:
    [row] = go(Stub(), pack("short when timed"), tmp_path)
    assert row["time"]["unwritten"] == {"y": 2}
    assert "UNWRITTEN" in runner.table_row(row)
    assert not runner.good(row)


def test_a_kernel_that_does_not_compile_keeps_nothing_from_being_measured(tmp_path: Path) -> None:
    rows = go(Stub(), pack("no kernel", "right", "right"), tmp_path, died=["1.right"])
    assert rows[0]["error"] == "SyntaxError: at 1:1: no such kernel"
    assert "FAILED: SyntaxError" in runner.table_row(rows[0])
    assert "the compiler's process ended" in rows[1]["error"], "it would end this one, too"
    assert [runner.good(row) for row in rows] == [False, False, True]
    assert why(tmp_path) == []


def test_a_lost_device_ends_the_process_and_the_next_goes_on_behind_it(tmp_path: Path) -> None:
    device = Stub()

    def before(step: str) -> None:
        device.gone = True

    device.before = before
    given = pack("right", "right", "right")
    rows = go(device, given, tmp_path)
    assert [row["name"] for row in rows] == ["0.right"]
    rows = go(Stub(), given, tmp_path, first=1)
    assert [row["number"] for row in rows] == [0, 1, 2]
    assert [runner.good(row) for row in rows] == [False, True, True]


def test_the_time_limit_stops_with_what_there_is(tmp_path: Path) -> None:
    now = [100.0]

    def before(step: str) -> None:
        now[0] += 35.0 if step == "time" else 0.0

    rows = go(Stub(before), pack(*["right"] * 8), tmp_path, end=180.0, clock=lambda: now[0])
    assert [runner.good(row) for row in rows] == [True] * 3
    assert why(tmp_path) == ["the time was up after 3 of 8 kernels"]


def test_a_line_that_was_cut_short_hides_no_other(tmp_path: Path) -> None:
    lines = packfile.Lines(tmp_path, "contact", 0.0)
    lines.add("one", number=1)
    with lines.path.open("a") as file:
        file.write('{"what": "two", "num')
    assert [line["what"] for line in lines.read()] == ["one"]


# ---------------------------------------------------------------------------------------------------------- real kernels
@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pack as it goes to a GPU."""
    path = tmp_path_factory.mktemp("pack") / "pack.npz"
    run("gpu/pack.py", str(path))
    return path


def changed(path: Path, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The pack with its head changed, and what is timed as small as what is checked."""
    given = packfile.read(path)
    arrays = given.pop("arrays")
    for case in given["cases"]:
        case["time"] = json.loads(json.dumps(case["check"]))
        for entry in case["time"]["inputs"].values():
            del entry["array"]
    change(given)
    new = folder / "changed.npz"
    packfile.write(new, given, arrays)
    return new


def dry_run(folder: Path, path: Path, *settings: str, code: int = 0, **environment: str) -> list[dict[str, Any]]:
    """The lines of a whole run without a GPU."""
    # A test that waits for a limit gives its own, behind these.
    settings = ("--dry-run", "--limit", "240", "--patience", "120", *settings)
    run("gpu/contact.py", str(folder), "--pack", str(path), *settings, code=code, **environment)
    found: list[dict[str, Any]] = packfile.Lines(folder, "contact", 0.0).read()
    assert found[0]["what"] == "start"
    assert found[-1]["what"] == "end"
    return found


def only(lines: list[dict[str, Any]], what: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["what"] == what]


def one_per_template(given: dict[str, Any]) -> None:
    """Leaves each template's smallest kernel; all in ``make proof``."""
    smallest: dict[str, dict[str, Any]] = {}
    for case in given["cases"]:
        other = smallest.setdefault(case["template"], case)
        if len(case["check"]["text"]) < len(other["check"]["text"]):
            smallest[case["template"]] = case
    if not SOAK:
        given["cases"] = [case for case in given["cases"] if case is smallest[case["template"]]]


def test_the_pack_has_kernels_of_all_kinds(whole: Path) -> None:
    assert whole.stat().st_size <= 8 * 2**20
    cases = packfile.read_head(whole)["cases"]
    assert {case["template"] for case in cases} >= {
        *("pointwise", "sum", "update", "relu_depthwise", "rows", "long_rows", "batch_norm")
    }
    assert {case["fusion"] for case in cases} >= {"elewise_add_act", "compiler", "all_optimizer", "bn_add_act"}
    assert {"compiler/cross-entropy", "compiler/residual-LN-4096"} <= {c["name"].rpartition("/")[0] for c in cases}


@pytest.mark.slow
def test_kernels_are_right_and_timed_beside_torch_with_few_libraries(whole: Path, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    path = changed(whole, tmp_path, one_per_template)
    given = packfile.read_head(path)["cases"]
    hide = hidden(
        tmp_path / "hide", "tstatic", "ml_dtypes", "msgspec", "platformdirs", "scipy", "pytest", "pytest_timeout"
    )
    lines = dry_run(tmp_path / "found", path, "--compile-most", "1", **hide)
    rows = only(lines, "case")
    assert only(lines, "error") == only(lines, "stopped") == []
    assert all(runner.good(row) for row in rows)
    for row in rows:
        told = row["time"]["compared"]
        # torch draws other numbers, so what an attention with dropout gives there is timed and not compared.
        unknown = "dropout" in row["name"] and "the weights that dropout keeps are not known" in told.get("error", "")
        assert told.get("right") is True or unknown, (row["name"], row["time"])
        assert all("median_s" in row["time"]["peers"][name] for name in ("eager", "compiled")), row["name"]
    assert [row["name"] for row in rows] == [case["name"] for case in given]
    assert {row["template"] for row in rows} == {case["template"] for case in packfile.read_head(whole)["cases"]}
    [made] = only(lines, "pack")
    assert made["commit"] == script("report").commit()
    assert made["skipped"] == {}
    [compiled] = only(lines, "compile")
    assert (compiled["compiled"], compiled["failed"], compiled["died"]) == (1, {}, [])
    [facts], [ceilings] = only(lines, "facts"), only(lines, "ceilings")
    assert len(facts["libtriton_sha256"]) == 64
    assert ceilings["bytes_per_s"] == max(ceilings["copies"].values())
    assert len((tmp_path / "found" / "contact.txt").read_text().splitlines()) == len(rows) + 4


@pytest.mark.slow
def test_kernels_that_are_wrong_hang_or_kill_keep_none_from_being_measured(whole: Path, tmp_path: Path) -> None:
    pytest.importorskip("triton")

    def change(given: dict[str, Any]) -> None:
        first = next(c for c in given["cases"] if c["name"].startswith("elewise/relu-full"))
        cases = [json.loads(json.dumps(first)) for _ in range(6)]
        for case, name in zip(cases, ("wrong", "broken", "hangs", "kills", "lies", "right"), strict=True):
            case["name"] = f"{name}/0.{name}"
        wrong, broken, hangs, kills, lies, _ = cases
        for one in (wrong["check"], wrong["time"], lies["time"]):
            assert "+ a1" in one["text"]
            one["text"] = one["text"].replace("+ a1", "- a1")
        broken["check"]["text"] = broken["check"]["text"].replace("tl.load(", "tl.no_such_function(")
        hangs["check"]["text"] += "\nimport time\ntime.sleep(120)\n"
        kills["check"]["text"] += "\nimport os\nos._exit(7)\n"
        lies["name"] = first["name"]
        given["cases"] = cases

    # As many times five seconds as processes wait for each core.
    patience = min(5 * max(1, round(os.getloadavg()[0] / (os.cpu_count() or 1))), 60)
    settings = ("--compile-most", "0", "--patience", str(patience))
    lines = dry_run(tmp_path / "found", changed(whole, tmp_path, change), *settings, code=1)
    wrong, broken, hangs, kills, lies, right = only(lines, "case")
    assert wrong["check"]["right"] is False
    assert "no_such_function" in broken["error"]
    assert hangs["error"] == f"it did not return within {patience} s"
    assert kills["error"] == "the process ended with code 7"
    assert lies["check"]["right"] is True
    assert lies["time"]["compared"]["right"] is False
    assert right["time"]["compared"] == {"error": "torch's version of this row is not known"}
    assert [row["number"] for row in only(lines, "case") if runner.good(row)] == [5]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torch", "numpy"])
def test_a_missing_library_is_a_line_and_kernels_are_compiled_all_the_same(
    name: str, whole: Path, tmp_path: Path
) -> None:
    pytest.importorskip("triton")
    path = changed(whole, tmp_path, lambda given: given["cases"].__delitem__(slice(1, None)))
    lines = dry_run(tmp_path / "found", path, "--compile-most", "1", code=2, **hidden(tmp_path / "hide", name))
    [error] = only(lines, "error")
    assert error["stage"] == "device"
    assert error["error"].startswith(f"ModuleNotFoundError: No module named '{name}")
    assert only(lines, "compile")[0]["compiled"] == 1


def test_without_a_pack_or_what_makes_it_a_line_says_so(tmp_path: Path) -> None:
    lines = dry_run(tmp_path / "found", tmp_path / "none.npz", code=2, **hidden(tmp_path / "hide", "tstatic"))
    [error] = only(lines, "error")
    assert error["stage"] == "pack"
    assert "none.npz" in error["error"]
    assert "No module named 'tstatic'" in error["error"]


@pytest.mark.slow
def test_without_a_gpu_it_says_so_and_keeps_what_an_earlier_run_found(whole: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    before = tmp_path / "contact.jsonl"
    before.write_text("what an earlier run found")
    command = ["make", "gpu", "PART=contact", f"GPU_PYTHON={sys.executable}"]
    settings = f"ARGS={tmp_path} --pack {whole} --compile-most 0"
    done = subprocess.run([*command, settings], cwd=ROOT, capture_output=True, text=True, timeout=HANG)
    assert done.returncode != 0
    assert "no CUDA device" in done.stderr
    [error] = only(packfile.Lines(tmp_path, "contact", 0.0).read(), "error")
    assert "no CUDA device" in error["error"]
    assert (tmp_path / "contact-1.jsonl").read_text() == "what an earlier run found"


def test_a_peer_is_compiled_at_the_timed_size_beforehand(whole: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    script("peers")
    device = script("device").DryRun()
    shapes = []

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*ins: Any) -> None:
            shapes.append([tuple(t.shape) for t in ins])
            function(*ins)

        return call

    device.compiled = compiled

    def change(given: dict[str, Any]) -> None:
        for case in given["cases"]:
            for entry in case["time"]["inputs"].values():
                entry["shape"] = [2 * n for n in entry["shape"]]

    path = changed(whole, tmp_path, change)
    compiling.compile_peer({"peer": "elewise/relu-full/0.fused_elemwise_add_activation"}, path, device)
    assert shapes == [[(66, 1030), (66, 1030)]]
    with pytest.raises(StopIteration):
        compiling.compile_peer({"peer": "no such case"}, path, device)


TWICE = """
import os, sys
from pathlib import Path
sys.path.insert(0, "bench/gpu")
import compiling, torch
compiling.worker.use_chip(90)
text = Path("bench/gpu/copying.py").read_text()
def job(n):
    arguments = [{"pointer": "float32"}, {"pointer": "bfloat16"}, {"value": n}]
    return {"text": text, "kernel": "copying", "function": "copy", "arguments": arguments, "constants": {"BLOCK": 256},
            "options": {"num_warps": 4}, "case": "copy"}
def entries():
    return len(os.listdir(os.environ["TRITON_CACHE_DIR"]))
alike = compiling.worker.alike
assert alike(job(1600)) == alike(job(3200)) != alike(job(1601))
compiling.compile_kernel(job(1600))
before = entries()
assert before > 0
function = compiling.load(text, "copying").copy
def launch(n):
    function.device_caches.clear()
    tensors = [torch.zeros(64, dtype=t) for t in (torch.float32, torch.bfloat16)]
    function.warmup(*tensors, n, BLOCK=256, grid=(1,), num_warps=4)
launch(3200)
assert entries() == before, "a launch with tensors would compile again"
launch(1601)
assert entries() > before
"""


@pytest.mark.slow
def test_a_launch_finds_what_was_compiled_beforehand(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    pytest.importorskip("torch")
    kept = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "TSTATIC_CPU_BACKEND")}
    done = subprocess.run(
        [sys.executable, "-c", TWICE],
        cwd=ROOT, env=kept | {"TRITON_CACHE_DIR": str(tmp_path)}, capture_output=True, text=True, timeout=HANG,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
