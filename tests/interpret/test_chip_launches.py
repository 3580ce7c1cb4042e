"""What only a chip launches is checked without one: by a kernel's own file, and by ``assert_equivalent`` with a target."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import triton
import triton.language as tl

import tstatic as paddle
from tests.helpers.chip_functions import (
    ARCHITECTURES,
    FAULTS,
    LOW_BLOCK,
    PRODUCT,
    QUICK,
    SAMPLES,
    FunctionFault,
    dead,
    functions,
    missed,
    only_on_chips,
)
from tests.helpers.drawn import mixture, only
from tests.interpret.test_script import all_templates, run_here
from tests.kernels import registry
from tstatic import devices, flags, static, testing
from tstatic.devices.planned import PlannedDevice
from tstatic.errors import MissingPackageError, ProgramError
from tstatic.fusion.codegen.kernel import Kernel
from tstatic.fusion.codegen.text.emit import prelude_functions
from tstatic.fusion.engine import cache
from tstatic.runtime import generated
from tstatic.target import A100, H100, H200

PROOF = os.environ.get("TSTATIC_CHIP_FAULTS") == "all"
"""Every fault, on every architecture: minutes (``make proof``)."""

PLANTED = (
    [(fault, chip) for fault in FAULTS for chip in ARCHITECTURES]
    if PROOF
    else list(zip(QUICK, ARCHITECTURES, strict=True))
)


def planted(fault: FunctionFault) -> dict[str, str]:
    """Name of a module in which only chips launch the function -> its text with the fault."""
    texts = {
        k.name: (k.text, fault.plant(k.text)) for k in fault.sample.kernels() if fault.function in only_on_chips(k)
    }
    return {name: broken for name, (text, broken) in texts.items() if broken != text}


@pytest.mark.parametrize(("fault", "chip"), PLANTED, ids=str)
def test_a_fault_in_a_function_that_only_chips_launch_is_found(
    fault: FunctionFault, chip: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the file's check and by the comparison of the program; what the interpreter launches by itself passes."""
    broken = planted(fault)
    assert broken, "the fault is planted nowhere"
    for number, text in enumerate(broken.values()):
        for arguments, found in (((), 1), ((chip,), 1), (("interpreter",), 0)):
            code, printed = run_here(text, tmp_path / f"{number}.py", *arguments)
            assert code == found, f"{arguments}: {printed}"

    recipe, strategy = fault.sample.recipe, fault.sample.strategy
    # By name: texts say in which line of the test an operator was made.
    loading = SimpleNamespace(load=lambda text, name: cache.load(fault.plant(text) if name in broken else text, name))
    monkeypatch.setattr(generated, "cache", loading)
    with pytest.raises(testing.EquivalenceError, match=f"launched as on {chip}"):
        testing.assert_equivalent(recipe, strategy, shrink=False, target=chip)


@pytest.mark.skipif(not PROOF, reason="TSTATIC_CHIP_FAULTS=all compares all samples on all chips")
@pytest.mark.parametrize("chip", ARCHITECTURES)
@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_without_a_fault_files_and_programs_agree(sample: Any, chip: str, tmp_path: Path) -> None:
    for kernel in sample.kernels():
        for arguments in ((), (chip,)):
            code, printed = run_here(kernel.text, tmp_path / f"{kernel.name}.py", *arguments)
            assert code == 0, printed
    assert testing.assert_equivalent(sample.recipe, sample.strategy, target=chip).kernels


def test_files_of_blocks_of_16_bits_pass_and_compare_numbers(tmp_path: Path) -> None:
    """Guards against a check that knows nothing of rounding between products, and against one of nothing but NaN."""
    for kernel in LOW_BLOCK.kernels():
        code, printed = run_here(kernel.text, tmp_path / f"{kernel.name}.py")
        assert code == 0, printed
        assert "largest error 0 in" not in printed, "nothing was rounded: nothing was compared"


def reference(x: Any) -> Any:
    return x * 3.0


@paddle.register_kernel(
    "named_like_a_variable",
    "X -> Out",
    reference=reference,
    launch=lambda x, out: (-(-x.numel // 16), {"n": x.numel, "BLOCK": 16}),
)
@triton.jit
def values(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 3.0, mask=at < n)


def test_a_kernel_may_be_called_as_what_the_check_itself_uses(tmp_path: Path) -> None:
    y = values(static.data("x", [5, 7]))
    (kernel,) = static.CompiledProgram(static.default_main_program()).explain(fetch_list=[y]).kernels
    code, printed = run_here(kernel.text, tmp_path / "kernel.py")
    assert (code, printed.split(":")[0]) == (0, "passed")


def generated_kernels() -> Iterator[tuple[str, Kernel]]:
    """Kernels of every template, and of programs of all kinds; in the proof those of whole models, too."""
    for template, kernels in all_templates().items():
        yield from ((template, kernel) for kernel in kernels)
    for sample in SAMPLES:
        yield from ((sample.draw.__name__, kernel) for kernel in sample.kernels())
        with flags.using_numerics("strict"):
            yield from (("strict", kernel) for kernel in sample.kernels.__wrapped__(sample))
    for label, (make, widths) in registry.PRODUCTS.items():
        yield from ((label, make(widths[0], dtype)) for dtype in ("float32", "bfloat16"))
    for recipe, strategy in mixture(200 if PROOF else 30, 20):
        built = recipe.build()
        shapes = {name: np.shape(array) for name, array in built.feeds.items()}
        told = static.CompiledProgram(built.main, strategy).explain(fetch_list=built.fetches, feed_shapes=shapes)
        yield from (("drawn", kernel) for kernel in told.kernels)
    if PROOF:
        yield from ((name, kernel) for name, kernels in registry.models() for kernel in kernels)


def test_every_function_of_a_file_runs_somewhere() -> None:
    """Guards against functions that no plan and no candidate launches on any chip, nor the interpreter."""
    unused: dict[str, set[str]] = {}
    count = 0
    for label, kernel in generated_kernels():
        count += 1
        for name in dead(kernel):
            unused.setdefault(f"{label}: {kernel.template}", set()).add(name)
    assert unused == {}
    assert count > 100


def test_the_head_of_a_file_says_what_runs_where() -> None:
    kernel = next(k for k in PRODUCT.kernels() if only_on_chips(k) == {"combine"})
    head = kernel.text.split('"""')[1]
    told = dict(line.strip().split(": ") for line in head.split("Launches\n")[1].splitlines())
    assert told == {
        "in the interpreter": "kernel (product, tail)",
        "on sm_80, sm_90, sm_100": "library product, combine (tail)",
        "on sm_80, sm_90, sm_100, if it is faster there": "kernel (product, tail)",
    }
    for sample in SAMPLES:
        for one in sample.kernels():
            head = one.text.split('"""')[1]
            own = functions(one.code).keys() - prelude_functions()
            assert {name for name in own if not re.search(rf"\b{name}\b", head)} == set()


def test_every_function_that_only_chips_launch_has_a_fault() -> None:
    assert len(FAULTS) >= 12
    assert sorted(missed()) == []


# ----------------------------------------------------------------------------------------------------------- which chips
def test_a_file_runs_what_a_named_chip_launches(tmp_path: Path) -> None:
    kernel = PRODUCT.kernels()[0]
    text = kernel.text.replace("launch(memory)\n", "launch(memory); print(launch.__doc__)\n", 1)
    code, printed = run_here(text, tmp_path / "kernel.py", "sm_80")
    assert code == 0
    assert printed.splitlines()[:-1] == [", ".join(way.functions) for way in kernel.ways(A100)]


def test_a_file_names_the_chips_that_it_knows(tmp_path: Path) -> None:
    code, printed = run_here(PRODUCT.kernels()[0].text, tmp_path / "kernel.py", "sm_70")
    assert code == 1
    assert "sm_70 is none of interpreter, sm_80, sm_90, sm_100" in printed


def small() -> tuple[static.Program, Any]:
    """A program with one kernel."""
    main = static.Program()
    with static.program_guard(main, static.Program()):
        y = paddle.tanh(static.data("x", [3]) * 2.0)
    return main, y


def test_a_target_is_a_chip() -> None:
    main, y = small()
    for wrong in ("sm_70", "cpu", 90):
        with pytest.raises(ProgramError, match="runs what a chip launches, and this is none") as caught:
            testing.assert_equivalent(main, fetch_list=[y], target=wrong)  # type: ignore[arg-type]
        assert "sm_80, sm_90, sm_100" in str(caught.value)
    for name in ("sm_90", "h100", H100, replace(H200, l2_bytes=1 << 13)):
        made = testing.assert_equivalent(main, only("enable_auto_fusion"), fetch_list=[y], examples=1, target=name)
        assert made.kernels == 1


@pytest.mark.parametrize("package", ["triton", "torch"])
def test_a_target_needs_torch_and_triton(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    main, y = small()
    # Another chip than those of other tests: a device that was used has its packages.
    chip = replace(H200, name=f"a chip without {package}")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, package, None)
        with pytest.raises(MissingPackageError, match=f"needs the package '{package}'"):
            testing.assert_equivalent(main, fetch_list=[y], target=chip)


def test_a_process_that_compiles_kernels_cannot_run_a_target() -> None:
    code = """
        import triton, tstatic as paddle
        from tstatic import errors, static, testing
        y = paddle.tanh(static.data("x", [3]) * 2.0)
        try:
            testing.assert_equivalent(static.default_main_program(), fetch_list=[y], target="sm_90")
        except errors.DeviceError as error:
            print(error)
    """
    environment = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "TSTATIC_CPU_BACKEND")}
    code = "\n".join(line[8:] for line in code.splitlines())
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert "one process either interprets or compiles" in done.stdout, done.stderr


def test_other_threads_keep_their_device() -> None:
    """A chip stands in for CPU places in the thread that asks for it only."""
    seen: list[str] = []
    with devices.standing_in(PlannedDevice(H200)):
        thread = threading.Thread(target=lambda: seen.append(devices.cpu_device().name))
        thread.start()
        thread.join()
        seen.append(devices.cpu_device().name)
    seen.append(devices.cpu_device().name)
    assert seen[0] == seen[2] != seen[1] == "sm_90"


def test_the_script_of_a_difference_launches_as_on_the_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    main, y = small()
    load = lambda text, name: cache.load(re.sub(r"\* 2\.0", "* 2.5", text), name)  # noqa: E731
    monkeypatch.setattr(generated, "cache", SimpleNamespace(load=load))
    with pytest.raises(testing.EquivalenceError) as caught:
        testing.assert_equivalent(main, only("enable_auto_fusion"), fetch_list=[y], examples=1, target="sm_80")
    script = caught.value.script
    assert "os.environ['TRITON_INTERPRET'] = '1'" in script
    assert "target='sm_80'" in script
    compile(script, "script", "exec")
