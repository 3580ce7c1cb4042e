"""The doctor finds what is wrong with a machine, and says what to do."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.cli.cases import answer
from tstatic import version
from tstatic.chips import seen
from tstatic.chips.report import Report
from tstatic.cli import doctor
from tstatic.cli.doctor import Check

pytestmark = pytest.mark.numpy_device("the commands choose the device themselves")


def found(outcome: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {one["name"]: one for one in outcome["checks"]}


@pytest.fixture
def place(tmp_path: Path) -> dict[str, str]:
    return {"TSTATIC_CACHE_DIR": str(tmp_path / "kernels")}


@pytest.mark.slow
def test_a_machine_that_works(tmp_path: Path, place: dict[str, str]) -> None:
    outcome = answer(tmp_path, "doctor", **place)
    checks = found(outcome)
    assert outcome["ok"]
    working = (
        "programs on the CPU",
        "kernel cache",
        "torch",
        "Triton compiles",
        "Triton's interpreter",
        "gloo",
        "collectives",
    )
    for name in working:
        assert checks[name]["status"] == "ok", checks[name]
    assert "between processes" in checks["collectives"]["detail"]
    assert checks["NCCL"]["detail"]
    assert checks["GPU"]["status"] in ("absent", "note") or "GPU 0" in checks
    assert outcome["versions"]["numpy"]


def test_a_cache_that_others_can_write(tmp_path: Path, place: dict[str, str]) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels").chmod(0o777)
    checks = found(answer(tmp_path, "doctor", "--quick", code=3, **place))
    assert checks["kernel cache"]["status"] == "broken"
    assert "others can write" in checks["kernel cache"]["detail"]
    assert "TSTATIC_CACHE_DIR" in checks["kernel cache"]["remedy"]
    assert stat.S_IMODE(os.stat(tmp_path / "kernels").st_mode) == 0o777, "it looks and changes nothing"


def test_a_cache_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    checks = found(answer(tmp_path, "doctor", "--quick", code=3, TSTATIC_CACHE_DIR=str(tmp_path / "file")))
    assert checks["kernel cache"]["status"] == "broken"


def test_a_disk_that_is_full(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TSTATIC_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setattr(doctor, "LEAST_FREE", 1e30)
    (check,) = doctor._cache()
    assert check.status == "broken"
    assert "free some space" in check.remedy


def test_a_backend_that_is_none(tmp_path: Path, place: dict[str, str]) -> None:
    checks = found(answer(tmp_path, "doctor", "--quick", code=3, TSTATIC_CPU_BACKEND="abacus", **place))
    assert checks["TSTATIC_CPU_BACKEND"]["status"] == "broken"


def test_a_torch_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.99: cannot open shared object file')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    (check,) = doctor._torch()
    assert (check.name, check.status) == ("torch", "broken")
    assert "libcudart.so.99" in check.detail


def test_a_compiler_that_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        doctor, "compile_all", lambda *_, **__: [Report("kernel", 90, "3.7.1", error="ptxas died\nmore")]
    )
    (check,) = doctor._triton_compiles()
    assert (check.status, check.detail) == ("broken", "ptxas died")
    assert "TRITON_PTXAS_PATH" in check.remedy


def test_a_check_that_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "status 3" in doctor.probe("raise SystemExit(3)")["error"]
    monkeypatch.setattr(doctor, "SECONDS", 0.2)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    assert "no answer" in doctor.probe("import time; time.sleep(60)")["error"]


def test_a_check_that_fails_in_itself_is_a_finding() -> None:
    def _odd_disk() -> list[Check]:
        raise RuntimeError("no such device")

    assert doctor._guarded(_odd_disk) == [Check("odd disk", "broken", "RuntimeError: no such device")]


def test_it_says_what_has_run_on_gpus_in_the_words_of_their_one_source(tmp_path: Path, place: dict[str, str]) -> None:
    """Guards against a doctor that is silent on several GPUs while the pages say that nobody ever ran them."""
    check = found(answer(tmp_path, "doctor", "--quick", **place))["GPUs seen so far"]
    assert check["status"] == "note"
    assert check["detail"] == f"{seen.on_chips()} {seen.on_several()}"
    assert "docs/gpu_status.md" in check["remedy"]


def test_versions_are_those_that_the_package_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against a remedy that sends to versions of a page that names none."""
    monkeypatch.setattr(doctor, "probe", lambda *_: {"error": "no kernel ran"})
    (check,) = doctor._triton_runs()
    assert (
        check.remedy == f"compare the versions: tstatic asks for {version.asked('torch')} and {version.asked('triton')}"
    )
    assert ">=" in version.asked("torch")


DRIVER = {
    "name": "NVIDIA H200", "major": 9, "minor": 0, "multi_processor_count": 132, "total_memory": 150_000_000_000,
    "memory_clock_rate": 3_201_000, "memory_bus_width": 6144, "clock_rate": 1_980_000,
}  # fmt: skip
GPU = {"driver": DRIVER, "free": 130e9, "right": True}


@pytest.mark.parametrize(
    ("driver", "facts", "expected"),
    [
        (False, {"gpus": [], "cuda": None}, ("GPU", "absent")),
        (True, {"gpus": [], "cuda": None}, ("GPU", "broken")),
        (True, {"gpus": [], "cuda": "12.8"}, ("GPU", "broken")),
        (True, {"gpus": [GPU], "cuda": "12.8"}, ("GPU 0", "ok")),
        (True, {"gpus": [GPU | {"right": False}], "cuda": "12.8"}, ("GPU 0", "broken")),
    ],
)
def test_gpus(monkeypatch: pytest.MonkeyPatch, driver: bool, facts: dict[str, Any], expected: tuple[str, str]) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(os.path, "exists", lambda path: driver)
    monkeypatch.setattr(doctor, "probe", lambda script: json.loads('{"kernels": 1}'))
    first = doctor._gpus(facts)[0]
    assert (first.name, first.status) == expected


@pytest.mark.parametrize(("name", "known"), [("NVIDIA H200", True), ("NVIDIA H2000", False), ("NVIDIA B200", False)])
def test_a_chip_on_which_nothing_has_run_is_to_be_checked(
    monkeypatch: pytest.MonkeyPatch, name: str, known: bool
) -> None:
    monkeypatch.setattr(doctor, "probe", lambda script: {"kernels": 1})
    first = doctor._gpus({"gpus": [GPU | {"driver": DRIVER | {"name": name}}], "cuda": "12.8"})[0]
    assert first.status == "ok"
    assert first.remedy == ("" if known else "tstatic has not run on this chip: check it by make gpu PART=auto")


def test_it_says_what_the_driver_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against numbers of another chip: a GPU of which nothing is known is not an H200."""
    monkeypatch.setattr(doctor, "probe", lambda script: {"kernels": 1})

    def facts(**changed: Any) -> Check:
        return doctor._gpus({"gpus": [GPU | {"driver": DRIVER | changed}], "cuda": "12.8"})[1]

    known = facts()
    assert (known.name, known.status, known.remedy) == ("facts of GPU 0", "ok", "")
    for words in (
        "the driver says 132 multiprocessors, memory 150 GB", "clock 1,980 MHz", "memory clock 3,201 MHz", "memory bus 6144 bits",
        "bandwidth 4.92 TB/s (the driver)", "16-bit products 989.0 TFLOP/s", "float32 67.0 TFLOP/s", "taken for H200 SXM5 141 GB",
    ):  # fmt: skip
        assert words in known.detail
    assert "(the data sheet)" in facts(memory_clock_rate=0).detail
    other = facts(name="NVIDIA X", memory_clock_rate=0, clock_rate=0)
    assert other.status == "note"
    assert "bandwidth not known, 16-bit products not known, float32 not known; no data sheet at hand" in other.detail


def test_a_gpu_is_asked_only_for_what_the_installed_torch_has() -> None:
    """Runs the doctor's own text against a torch that has a GPU and tells only some of its facts."""
    told = SimpleNamespace(**{k: v for k, v in DRIVER.items() if k != "memory_bus_width"}, uuid="x")
    cuda = SimpleNamespace(
        is_available=lambda: True, device_count=lambda: 1, get_device_properties=lambda i: told, mem_get_info=lambda i: (7, 9)
    )  # fmt: skip
    text = (
        doctor.TORCH.partition("def ring")[0]
        .replace("import json, torch", "")
        .replace("import torch.distributed as dist", "")
    )
    torch = SimpleNamespace(
        __version__="2", version=SimpleNamespace(cuda="12"), cuda=cuda, ones=lambda *_, **__: np.ones(8)
    )
    space: dict[str, Any] = {"torch": torch}
    exec(text, space)
    [gpu] = space["found"]["gpus"]
    assert gpu == {"driver": {k: v for k, v in DRIVER.items() if k != "memory_bus_width"}, "free": 7, "right": True}


def test_gloo() -> None:
    assert doctor._gloo("works").status == "ok"
    assert doctor._gloo("").status == "absent"
    broken = doctor._gloo("RuntimeError: no socket interface found")
    assert (broken.status, "GLOO_SOCKET_IFNAME" in broken.remedy) == ("broken", True)


def test_a_probe_of_collectives_that_dies_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(doctor, "probe", lambda script: {"error": "SIGSEGV"})
    (check,) = doctor._collectives()
    assert (check.status, check.detail) == ("broken", "SIGSEGV")
