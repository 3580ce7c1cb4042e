"""Kernels are compiled in other processes, by both versions of triton, and crashes there harm nobody."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.kernels import environments, sample_kernels
from tests.kernels.limits import Kind, violations
from tstatic.chips.aot import Report, Source, compile_all
from tstatic.chips.sass import Access
from tstatic.chips.sources import extract_function
from tstatic.errors import UnsupportedError

CHIPS = (80, 90, 100)
Reports = dict[tuple[str, int], Report]


def by_name(reports: list[Report]) -> Reports:
    return {(r.name, r.chip): r for r in reports}


def sources() -> dict[str, Source]:
    """The good sample kernels and the bad ones."""
    return {name: source for name, _, source in sample_kernels.kernels()} | {
        "unaligned": sample_kernels.add_relu(aligned=False),
        "short_bf16": sample_kernels.add_relu("*bf16", block=512),
        "mixed_layouts": sample_kernels.add_relu("*bf16", "*fp32", block=1024),
        "scalar_as_stream": sample_kernels.scaled(small=False),
        "spilling": sample_kernels.spilling(),
        "broken": sample_kernels.plain(sample_kernels.BROKEN, "broken"),
        "trap": sample_kernels.plain(sample_kernels.TRAP, "trap"),
    }


@pytest.fixture(scope="module", params=["pinned", "3.6"])
def compiled(request: pytest.FixtureRequest) -> Reports:
    """Every sample kernel, for every chip by the pinned version, for one by the older; sm_90 disassembled."""
    chips = CHIPS if request.param == "pinned" else (90,)
    return by_name(compile_all(sources(), chips, environments.python(request.param)))


def chips_of(compiled: Reports) -> list[int]:
    return sorted({chip for _, chip in compiled})


def test_every_kernel_has_its_report(compiled: Reports) -> None:
    assert list(compiled) == [(name, chip) for name in sources() for chip in chips_of(compiled)]
    for (name, chip), report in compiled.items():
        assert bool(report.error) == (name == "broken"), report
        if not report.error:
            assert 0 < report.registers <= 255
            assert report.threads == 32 * sources()[name].num_warps
            assert report.seconds > 0
            assert (report.sass is not None) == (chip == 90)


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, kind, _ in sample_kernels.kernels()])
def test_good_kernels_violate_nothing(compiled: Reports, name: str, kind: Kind) -> None:
    for chip in chips_of(compiled):
        assert violations(compiled[name, chip], kind=kind) == []


def test_a_padded_length_gives_128_bit_accesses_only(compiled: Reports) -> None:
    report = compiled["add_relu_fp32", 90]
    assert report.sass is not None
    assert report.sass.widths("LDG") == {128: 4}
    assert report.sass.widths("STG") == {128: 2}
    assert report.sass.count("BAR", "STL", "LDL") == 0
    for chip in chips_of(compiled):
        assert compiled["add_relu_fp32", chip].accesses == (
            Access("o", "store", 128, 2),
            Access("x", "load", 128, 2),
            Access("y", "load", 128, 2),
        )


def test_an_unknown_length_loses_them(compiled: Reports) -> None:
    for chip in chips_of(compiled):
        report = compiled["unaligned", chip]
        found = violations(report, kind="pointwise")
        assert len(found) == 3
        assert all("of 32 bits; wanted 128 bits" in text for text in found), found
        if report.sass is not None:
            assert report.sass.widths("LDG") == {32: 16}
            assert report.sass.widths("STG") == {32: 8}


def test_sixteen_bits_need_eight_elements_a_thread_unless_beside_wider_ones(compiled: Reports) -> None:
    for chip in chips_of(compiled):
        assert all(
            "of 64 bits; wanted 128 bits" in v for v in violations(compiled["short_bf16", chip], kind="pointwise")
        )
        assert len(violations(compiled["short_bf16", chip], kind="pointwise")) == 3
        widths = {(a.origin, a.bits) for a in compiled["add_relu_bf16_to_fp32", chip].accesses}
        assert widths == {("x", 64), ("y", 64), ("o", 128)}


def test_a_hidden_change_of_layout_is_told(compiled: Reports) -> None:
    for chip in chips_of(compiled):
        found = "\n".join(violations(compiled["mixed_layouts", chip], kind="pointwise"))
        assert "bytes of shared memory (a hidden change of layout); wanted 0" in found
        assert "barriers (BAR); wanted 0" in found


def test_a_scalar_must_be_declared(compiled: Reports) -> None:
    for chip in chips_of(compiled):
        (found,) = violations(compiled["scalar_as_stream", chip], kind="pointwise")
        assert "s: 1 loads of 32 bits; wanted 128 bits" in found


def test_spills_are_told_also_without_disassembly(compiled: Reports) -> None:
    for chip in chips_of(compiled):
        report = compiled["spilling", chip]
        assert report.spill_stores > 0
        assert report.spill_loads > 0
        assert report.stack > 0
        (found,) = violations(report, kind="reduction")
        assert f"{report.spill_stores} bytes of spill stores" in found
        if report.sass is not None:
            assert report.sass.count("STL") > 0
            assert f"({report.sass.count('STL')} STL, {report.sass.count('LDL')} LDL)" in found


def test_local_arrays_are_no_spills(compiled: Reports) -> None:
    report = compiled["sine", 90]
    assert report.sass is not None
    assert report.sass.count("STL") > 0
    assert report.stack > 0
    assert report.spill_stores == report.spill_loads == 0


def test_a_reduction_is_not_pointwise(compiled: Reports) -> None:
    for chip in chips_of(compiled):
        found = "\n".join(violations(compiled["row_softmax", chip], kind="pointwise"))
        assert "barriers" in found
        assert "shared memory" in found


def test_what_does_not_compile_says_why(compiled: Reports) -> None:
    for chip in chips_of(compiled):
        (found,) = violations(compiled["broken", chip], kind="pointwise")
        assert "incompatible dimensions" in found
        assert "tl.store" in found


def test_a_kernel_that_only_traps_is_told(compiled: Reports) -> None:
    for chip in chips_of(compiled):
        assert compiled["trap", chip].traps == 1
        assert "trap and write nothing" in violations(compiled["trap", chip], kind="reduction")[0]


def test_both_versions_are_read(compiled: Reports, request: pytest.FixtureRequest) -> None:
    which = request.node.callspec.params["compiled"]
    versions = {r.triton for r in compiled.values()}
    assert len(versions) == 1
    if which == "3.6":
        assert versions == {"3.6.0"}


def test_matrix_instructions_are_those_of_the_chip() -> None:
    kernels = {"bf16": sample_kernels.dot(), "fp32": sample_kernels.dot("*fp32")}
    reports = by_name(compile_all(kernels, python=environments.pinned(), sass=CHIPS))
    for (name, chip), report in reports.items():
        assert report.error == ""
        assert report.sass is not None
        figures = report.sass.figures()
        used = {word for word in ("hmma", "hgmma", "utcmma") if figures[word]}
        assert used == {{80: "hmma", 90: "hgmma", 100: "utcmma"}[chip]}
        assert figures["ldgsts"] > 0
        assert report.shared > 0
        assert (report.tensor_memory > 0) == (chip == 100)
        if chip < 100:  # on sm_100 the type of the operands is in a descriptor, not in the opcode
            assert (figures["tf32"] > 0) == (name == "fp32")


def test_a_product_and_a_sum_stay_two_operations_where_the_bits_must() -> None:
    kernels = {"one": sample_kernels.product_sum(contract=True), "two": sample_kernels.product_sum(contract=False)}
    reports = by_name(compile_all(kernels, (90,), environments.pinned()))
    counts = {name: r.sass.count("FFMA", "FMUL") for (name, _), r in reports.items() if r.sass is not None}
    fused = {name: r.sass.count("FFMA") for (name, _), r in reports.items() if r.sass is not None}
    assert fused["one"] > 0
    assert fused["two"] == 0
    assert counts["two"] == counts["one"]


def test_equal_kernels_are_compiled_once_and_chips_may_be_named_by_kernel() -> None:
    source = sample_kernels.add_relu()
    other = dataclasses.replace(source, small=("x",))
    kernels = {"a": source, "b": other, "c": sample_kernels.add_relu(block=2048)}
    reports = compile_all(kernels, {"a": (90, 80), "b": (90,), "c": (80,)}, environments.pinned(), sass=())
    assert [(r.name, r.chip) for r in reports] == [("a", 90), ("a", 80), ("b", 90), ("c", 80)]
    first, _, second, _ = reports
    assert first.seconds == second.seconds, "one compilation, two reports"
    assert first.figures() == second.figures()
    assert set(first.streams) - set(second.streams) == {"x"}


def test_a_crash_of_the_compiler_is_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    # Triton would interpret, and compile nothing, if this reached the workers.
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("PTXAS_OPTIONS", "--no-such-option")
    kernels = {
        "before": sample_kernels.add_relu(),
        "abort": sample_kernels.plain(sample_kernels.ABORTING, "k"),
        "exit": sample_kernels.plain("import sys\nsys.exit(3)\n", "k"),
        "loud": sample_kernels.plain("import os\nprint('{}')\nos.write(1, b'noise')\nos._exit(4)\n", "k"),
        "wrong": Source(sample_kernels.ADD_RELU, "add_relu", {"x": "*fp32", "z": "i32"}, {"BLOCK": 8}, ()),
        "after": sample_kernels.add_relu(),
    }
    reports = by_name(compile_all(kernels, (90,), environments.pinned(), workers=1, sass=()))
    errors = {name: report.error for (name, _), report in reports.items()}
    assert errors["before"] == ""
    assert errors["after"] == ""
    assert "was killed by SIGABRT" in errors["abort"]
    assert "about to abort" in errors["abort"]
    assert "SystemExit: 3" in errors["exit"]
    assert "exited with status 4" in errors["loud"]
    assert "noise" in errors["loud"]
    assert "without type or constant: ['n', 'o', 'y']; given but not in the function: ['z']" in errors["wrong"]
    assert reports["after", 90].figures() == reports["before", 90].figures()


def test_a_compiler_that_hangs_is_killed() -> None:
    source = sample_kernels.plain(sample_kernels.HANGING, "k")
    reports = compile_all([source], (80, 90), environments.pinned(), workers=1, timeout=1.0)
    assert [r.chip for r in reports] == [80, 90]
    assert all("took longer than 1 s and was killed" in r.error for r in reports)


def test_a_compiler_has_its_time_by_the_processor_and_more_by_the_clock() -> None:
    slow = dataclasses.replace(sample_kernels.add_relu(), text=sample_kernels.SLOW)
    (report,) = compile_all([slow], (90,), environments.pinned(), sass=(), timeout=2.0)
    assert report.error == ""
    sleeping = sample_kernels.plain(sample_kernels.SLEEPING, "k")
    (report,) = compile_all([sleeping], (90,), environments.pinned(), timeout=0.4)
    assert "took longer than 0.4 s and was killed" in report.error


def test_a_local_variable_may_be_called_like_a_function() -> None:
    text = "def part(a):\n    return a\n\n\ndef whole(a):\n    for part in a:\n        other(part)\n\n\ndef other(a):\n    pass\n"
    text = text.replace("def ", "@jit\ndef ")
    found = extract_function(text, "whole")
    assert "def other" in found
    assert "def part" not in found
    assert "def part" in extract_function(
        text.replace("other(part)", "pass").replace("for part in", "for b in part,"), "whole"
    )


def test_triton_stays_out_of_the_caller(tmp_path: Path) -> None:
    environments.pinned()
    script = """
import sys
from pathlib import Path
from tests.kernels import sample_kernels
from tstatic.chips.aot import compile_all
(report,) = compile_all([sample_kernels.add_relu()], (90,), sass=(), cache=Path(sys.argv[1]))
assert report.error == "" and report.name == "add_relu", report
assert "triton" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=environments.ROOT, check=True, timeout=120)
    assert list(tmp_path.rglob("*.cubin")), "a cache that is named is filled"


def test_an_interpreter_without_triton_is_named(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    python = str(tmp_path / "bare" / "bin" / "python")
    with pytest.raises(UnsupportedError, match=r"cannot import triton(.|\n)*bare/bin/python(.|\n)*No module named"):
        compile_all([sample_kernels.add_relu()], (90,), python)
    with pytest.raises(UnsupportedError, match="cannot be started"):
        compile_all([sample_kernels.add_relu()], (90,), str(tmp_path / "none"))


def test_an_unknown_chip_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="limits are not known"):
        compile_all([sample_kernels.add_relu()], (70,))


def test_contradictions_in_a_source_are_refused() -> None:
    with pytest.raises(AssertionError, match="not in the signature"):
        Source("", "k", {"x": "*fp32"}, {}, ("y",))
    with pytest.raises(AssertionError, match="not both"):
        Source("", "k", {"x": "i32"}, {"x": 1}, ())


def test_elements_take_whole_bytes_in_memory() -> None:
    kinds = {"a": "*fp32", "b": "*bf16", "c": "*i1", "d": "*fp8e4nv", "e": "*i64", "n": "i32"}
    assert Source("", "k", kinds, {}, ()).streams == {"a": 32, "b": 16, "c": 8, "d": 8, "e": 64}
    assert "a" not in Source("", "k", kinds, {}, (), small=("a",)).streams
