"""What a kernel must not do: each limit, measured against wanted."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.kernels.limits import Kind, violations
from tstatic.chips.report import SHARED_LIMIT, Report
from tstatic.chips.sass import Access, Sass

GOOD = Report(
    name="k",
    chip=90,
    triton="3.7.1",
    registers=32,
    threads=128,
    accesses=(Access("o", "store", 128, 1), Access("x", "load", 128, 2)),
    streams={"x": 32, "o": 32},
    sass=Sass({"EXIT": 1, "LDG.E.128": 2, "STG.E.128": 1}, traps=0),
)
KINDS: tuple[Kind, ...] = ("pointwise", "reduction")


def change(**changes: Any) -> Report:
    return dataclasses.replace(GOOD, **changes)


def test_a_good_kernel_violates_nothing() -> None:
    assert violations(GOOD, kind="pointwise") == []
    assert violations(GOOD, kind="reduction") == []
    assert violations(change(sass=None), kind="pointwise") == []
    assert violations(change(stack=32), kind="pointwise") == [], "a local array is not a spill"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"spill_stores": 24}, "24 bytes of spill stores, 0 of spill loads (0 STL, 0 LDL); wanted 0"),
        ({"spill_loads": 4, "sass": None}, "0 bytes of spill stores, 4 of spill loads; wanted 0"),
        ({"shared": 232_449}, "232449 bytes of shared memory; wanted at most 232448"),
        ({"chip": 80, "shared": 166_913}, "166913 bytes of shared memory; wanted at most 166912"),
        ({"tensor_memory": 672}, "672 columns of tensor memory; wanted at most 512"),
        ({"traps": 1}, "1 function bodies that trap and write nothing; wanted 0"),
        ({"error": "ptxas died"}, "does not compile: ptxas died"),
    ],
)
def test_limits_of_every_kernel(kind: Kind, changes: dict[str, Any], wanted: str) -> None:
    report = change(**changes)
    found = violations(report, kind=kind)
    assert f"k on sm_{report.chip} (triton 3.7.1): {wanted}" in found
    if kind == "reduction":
        assert len(found) == 1


@pytest.mark.parametrize("chip", sorted(SHARED_LIMIT))
def test_shared_memory_up_to_the_limit_is_allowed(chip: int) -> None:
    assert violations(change(chip=chip, shared=SHARED_LIMIT[chip]), kind="reduction") == []


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"shared": 16}, ["16 bytes of shared memory (a hidden change of layout); wanted 0"]),
        ({"barriers": 1}, ["1 barriers (BAR); wanted 0"]),
        ({"sass": Sass({"BAR.SYNC": 3, "LDG.E.128": 2}, 0)}, ["3 barriers (BAR); wanted 0"]),
        ({"accesses": ()}, ["no global access to any stream; wanted at least one"]),
        (
            {"accesses": (*GOOD.accesses, Access("", "load", 128, 1))},
            ["1 global accesses of unknown origin; wanted each to be traced to a parameter"],
        ),
        (
            {"accesses": (Access("o", "store", 128, 1), Access("x", "load", 32, 8), Access("x", "load", 64, 1))},
            ["x: 8 loads of 32 bits and 1 loads of 64 bits; wanted 128 bits"],
        ),
        # Both 16-bit: nothing wider that would justify 64 bits.
        (
            {"streams": {"x": 16, "o": 16}, "accesses": (Access("o", "store", 128, 1), Access("x", "load", 64, 1))},
            ["x: 1 loads of 64 bits; wanted 128 bits"],
        ),
        (
            {"streams": {"x": 16, "o": 32}, "accesses": (Access("o", "store", 128, 1), Access("x", "load", 32, 1))},
            ["x: 1 loads of 32 bits; wanted 64 bits"],
        ),
        # What the PTX asked for, ptxas may have split.
        ({"sass": Sass({"LDG.E": 4, "STG.E.64": 2}, 0)}, ["4 LDG narrower than 128", "2 STG narrower than 128"]),
    ],
)
def test_limits_of_pointwise_kernels(changes: dict[str, Any], wanted: list[str]) -> None:
    report = change(**changes)
    found = violations(report, kind="pointwise")
    assert len(found) == len(wanted)
    assert all(text in line for text, line in zip(wanted, found, strict=True)), found
    assert violations(report, kind="reduction") == []


@pytest.mark.parametrize(
    ("streams", "accesses"),
    [
        # The 16-bit partner of a 32-bit stream, and a mask of bytes beside one.
        ({"x": 16, "o": 32}, (Access("o", "store", 128, 1), Access("x", "load", 64, 1))),
        ({"x": 8, "o": 32}, (Access("o", "store", 128, 1), Access("x", "load", 32, 1))),
        # 32 bytes at a time (sm_100).
        ({"x": 32, "o": 32}, (Access("o", "store", 256, 1), Access("x", "load", 256, 1))),
        # A scalar beside the streams, and a table of libdevice.
        ({"o": 32}, (Access("o", "store", 128, 1), Access("s", "load", 32, 1))),
        ({"o": 32}, (Access("__table", "load", 32, 4), Access("o", "store", 128, 1))),
    ],
)
def test_widths_that_are_allowed(streams: dict[str, int], accesses: tuple[Access, ...]) -> None:
    assert violations(change(streams=streams, accesses=accesses, sass=None), kind="pointwise") == []


def test_of_a_number_of_a_table_half_may_be_read() -> None:
    made = change(streams={"o": 32}, accesses=(Access("o", "store", 128, 1), Access("table", "load", 64, 1)))
    assert violations(dataclasses.replace(made, sass=Sass({"LDG.E": 1, "STG.E.128": 1}, 0)), kind="pointwise") == []
    (found,) = violations(dataclasses.replace(made, sass=Sass({"LDG.E": 1, "STG.E": 4}, 0)), kind="pointwise")
    assert "4 STG narrower" in found


def test_tensors_in_tables_have_wide_accesses_too() -> None:
    behind = {"streams": {}, "behind": (16, 32), "sass": None}
    wide = (Access("", "load", 128, 2), Access("", "load", 64, 1), Access("", "store", 128, 1))
    small = (Access("blocks", "load", 32, 3),)
    assert violations(change(**behind, accesses=(*wide, *small)), kind="pointwise") == []
    (found,) = violations(change(**behind, accesses=(*wide, Access("", "store", 32, 4))), kind="pointwise")
    assert "tensors in tables: 4 stores of 32 bits; wanted at least 64 bits" in found
    (found,) = violations(change(**behind, accesses=small), kind="pointwise")
    assert "no global access to any stream" in found
    (found,) = violations(change(streams={}, behind=(32,), sass=None, accesses=wide), kind="pointwise")
    assert "1 loads of 64 bits; wanted at least 128 bits" in found


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(AssertionError, match="unknown kind"):
        violations(GOOD, kind="other")  # type: ignore[arg-type]
