"""Figures on record: written, read, compared, and a step back is told."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.kernels import environments, golden, registry, sample_kernels
from tests.kernels.environments import ALL
from tests.kernels.limits import Kind
from tests.kernels.test_limits import GOOD
from tstatic.chips.aot import Source, compile_all
from tstatic.chips.sass import Access

CHIPS = (80, 90, 100)


def test_figures_on_record_are_those_written(tmp_path: Path) -> None:
    other = dataclasses.replace(GOOD, chip=100, sass=None)
    file = golden.write("9.9.9", [GOOD, other], tmp_path)
    assert file.name == "9.9.9-h200.json"
    read = golden.read("9.9.9", tmp_path)
    assert read == golden.collect([other, GOOD])
    assert read["k"]["90"]["sass_ldg_128"] == 2
    assert read["k"]["100"] == {
        "registers": 32,
        "threads": 128,
        "loads": 2,
        "loads_128": 2,
        "stores": 1,
        "stores_128": 1,
    }
    assert golden.regressions(read, [GOOD, other]) == []
    assert golden.read("0.0.0", tmp_path) == {}


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"registers": 36}, "registers was 32, now 36"),
        ({"spill_stores": 4}, "spill_stores was 0, now 4"),
        ({"stack": 8}, "stack was 0, now 8"),
        ({"shared": 16}, "shared was 0, now 16"),
        ({"barriers": 1}, "barriers was 0, now 1"),
        (
            {"accesses": (Access("o", "store", 128, 1), Access("x", "load", 128, 1), Access("x", "load", 32, 4))},
            "loads_128 was 2, now 1",
        ),
        ({"error": "no"}, "does not compile: no"),
        ({"name": "new"}, "no figures on record"),
    ],
)
def test_a_step_back_is_told(changes: dict[str, Any], wanted: str) -> None:
    record = golden.collect([GOOD])
    found = golden.regressions(record, [dataclasses.replace(GOOD, **changes)])
    assert wanted in found[0]
    assert len(found) == 1 + ("name" in changes), "a kernel that is gone is told as well"


@pytest.mark.parametrize("changes", [{"registers": 35}, {"registers": 20}, {"triton": "x", "seconds": 9.0}])
def test_small_steps_and_steps_forward_are_none(changes: dict[str, Any]) -> None:
    assert golden.regressions(golden.collect([GOOD]), [dataclasses.replace(GOOD, **changes)]) == []


def test_a_kernel_that_is_gone_is_told() -> None:
    assert golden.regressions(golden.collect([GOOD]), []) == ["k on sm_90: on record, but no such kernel was compiled"]


@cache
def registered() -> dict[str, tuple[Kind, Source]]:
    """The kernels of the registry, made once for all versions."""
    return {name: (kind, source) for name, kind, source in registry.kernels(slow=ALL)}


@pytest.mark.timeout(3600 if ALL else 900)
@pytest.mark.parametrize("which", ["pinned", "3.6"])
def test_kernels_are_as_good_as_on_record(which: str) -> None:
    python = environments.python(which)
    kernels = registered()
    assert len(kernels) > 250
    triton = environments.triton(which)
    known: set[str] = set()
    if not ALL:
        known = golden.unchanged({n: source for n, (_, source) in kernels.items()}, golden.read_sources(triton))
        print(f"{len(known)} of {len(kernels)} kernels have not changed")
    # SASS costs twice as much as compiling: the chip of this generation, with the pinned compiler.
    shown = CHIPS if ALL else (90,) if which == "pinned" else ()
    chips = {name: registry.chips(name, pinned=which == "pinned") for name in kernels if name not in known}
    reports = compile_all({n: kernels[n][1] for n in chips}, chips, python, sass=shown)
    assert {r.triton for r in reports} == {triton}
    kinds = {name: kernels[name][0] for name in chips if chips[name]}
    bad, refused = golden.judge(reports, kinds)
    assert bad == []
    assert golden.changes(golden.read_refused(triton), refused, kinds) == []
    record = {name: chips for name, chips in golden.read(triton).items() if ALL or not registry.slow(name)}
    gone = [name for name in record if name not in kernels]
    assert gone == []
    record = {name: chips for name, chips in record.items() if name not in known}
    assert golden.regressions(record, [r for r in reports if r.name not in refused]) == []


def test_what_has_not_changed_is_known() -> None:
    source = sample_kernels.add_relu()
    kernels = {f"k{i}": dataclasses.replace(source, text=f"{source.text}\nN = {i}") for i in range(80)}
    digests = {name: golden.digest(one) for name, one in kernels.items()}
    known = golden.unchanged(kernels, digests)
    # The twentieth that is compiled in any case depends on the sources alone.
    assert 70 <= len(known) < 80
    assert golden.unchanged(kernels, {}) == set()
    commented = {n: dataclasses.replace(k, text=f'"""Line 7."""\n{k.text}  # 8') for n, k in kernels.items()}
    assert golden.unchanged(commented, digests) == known
    changed = {**kernels, **{n: dataclasses.replace(kernels[n], num_warps=8) for n in ("k0", "k1", "k2")}}
    assert golden.unchanged(changed, digests) == known - {"k0", "k1", "k2"}


def test_a_bad_kernel_is_refused_where_it_is_planned_nowhere() -> None:
    bad = dataclasses.replace(GOOD, name="gemm/linear@sm_90~generated.kernel", spill_stores=8, sass=None)
    dead = dataclasses.replace(bad, name="gemm/linear@sm_90~wide.kernel", error="it took longer\nthan 60 s")
    planned = dataclasses.replace(GOOD, name="gemm/linear@sm_90.combine")
    kinds: dict[str, Kind] = dict.fromkeys((bad.name, dead.name, planned.name), "reduction")
    found, refused = golden.judge([bad, dead, planned], kinds)
    assert found == []
    assert refused == {
        bad.name: ["8 bytes of spill stores, 0 of spill loads; wanted 0"],
        dead.name: ["does not compile: it took longer"],
    }
    assert golden.changes(refused, refused, kinds) == []
    assert golden.changes({}, refused, kinds)[1] == f"{dead.name} is refused: does not compile: it took longer"
    assert golden.changes(refused, {bad.name: []}, kinds) == [f"{dead.name}: on record as refused, but is not"]
    assert golden.changes(refused, {}, []) == [], "what was not compiled is not told"
    found, refused = golden.judge([dataclasses.replace(dead, name=planned.name)], kinds)
    assert len(found) == 1, "a planned kernel must be good"
    assert refused == {}


@pytest.mark.parametrize(
    ("name", "pinned", "older"),
    [
        ("auto/chain/0.kernel", CHIPS, CHIPS),
        ("gemm/linear@sm_90.kernel", (90,), (90,)),
        ("gemm/linear@sm_100~generated.kernel", (100,), ()),
    ],
)
def test_chips_are_those_of_the_name(name: str, pinned: tuple[int, ...], older: tuple[int, ...]) -> None:
    assert registry.chips(name) == pinned
    assert registry.chips(name, pinned=False) == older


def test_the_command_writes_then_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--python", environments.pinned(), "--folder", str(tmp_path), "--registry", f"{__name__}:one_kernel"]
    assert golden.main([*common, "--write"]) == 0
    assert capsys.readouterr().out.startswith("wrote ")
    (file,) = tmp_path.glob("*-h200.json")
    assert golden.read_sources(environments.triton("pinned"), tmp_path) == {"one": golden.digest(one_kernel()[0][2])}
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('"loads_128": 4', '"loads_128": 5', 1), encoding="utf-8")
    assert golden.main(common) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert "on sm_80" in line
    assert "loads_128 was 5, now 4" in line


def test_the_command_puts_no_bad_kernel_on_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--python", environments.pinned(), "--folder", str(tmp_path), "--registry", f"{__name__}:bad_kernel"]
    assert golden.main([*common, "--write"]) == 1
    assert "wanted 128 bits" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def one_kernel() -> list[tuple[str, Kind, Source]]:
    return [("one", "pointwise", sample_kernels.add_relu())]


def bad_kernel() -> list[tuple[str, Kind, Source]]:
    return [("bad", "pointwise", sample_kernels.add_relu(aligned=False))]
