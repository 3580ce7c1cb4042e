"""Kernels with matrix products: what is read from their text, and every limit seen to fail by a kernel that breaks it."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import pytest

from tests.kernels import environments, sample_kernels
from tests.kernels.limits import violations
from tests.kernels.test_limits import GOOD
from tstatic.chips.aot import Report, Source, compile_all
from tstatic.chips.ir import BoxCopy, Dot, TensorCopies, read_copies, read_dots
from tstatic.chips.loops import Instruction, loops
from tstatic.chips.matrix import MatrixLoop, PtxMatrix, matrix_type, read_matrix
from tstatic.chips.sass import Access, Sass, read_sass


# --------------------------------------------------------------------------------------------------------------- loops
def code(text: str) -> list[Instruction]:
    """A function by its lines: "label:", "jump label" (always), "maybe label" (perhaps), "end", or any other word."""
    found: list[Instruction] = []
    labels: list[str] = []
    for line in text.split():
        if line.endswith(":"):
            labels.append(line[:-1])
            continue
        word, _, target = line.partition("->")
        found.append(Instruction(word, tuple(labels), target, word in ("jump", "end")))
        labels = []
    return found


def bodies(text: str) -> list[str]:
    """The operations in each loop, in the order of the text."""
    lines = code(text)
    return sorted(" ".join(lines[i].operation for i in sorted(body)) for body in loops(lines))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a b end", []),
        ("", []),
        ("a L: b c maybe->L d end", ["b c maybe"]),
        # One in another.
        ("a L: b M: c maybe->M d maybe->L e end", ["b c maybe d maybe", "c maybe"]),
        # Two behind each other, and a condition in the second.
        ("L: a maybe->L M: b maybe->N c N: d maybe->M end", ["a maybe", "b maybe c d maybe"]),
        # A wait that was moved behind the end belongs to no loop but its own and the one around it.
        ("L: a maybe->W B: b maybe->L c end W: w maybe->W jump->B", ["a maybe b maybe w maybe jump", "w maybe"]),
        # A jump back to what is also reached from elsewhere is none.
        ("maybe->B A: a B: b maybe->A end", []),
        # Two ways back to one head are one loop; nothing jumps to the dead end behind.
        ("L: a maybe->L b maybe->L end c jump->L", ["a maybe b maybe"]),
    ],
)
def test_loops_are_those_of_the_jumps(text: str, wanted: list[str]) -> None:
    assert bodies(text) == wanted


SASS = """
.text.k:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/                   FFMA R1, R2, R3, R4 ;
.L_x_1:
        /*0020*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4].tnspB, R24 ;
        /*0030*/              @!P4 BRA `(.L_x_3) ;
.L_x_2:
        /*0040*/                   FFMA2 R1, R2, R3, R4 ;
        /*0050*/               @P0 BRA `(.L_x_1) ;
        /*0060*/                   BRA.U UP0, `(.L_x_0) ;
        /*0070*/                   FFMA R1, R2, R3, R4 ;
        /*0080*/                   EXIT ;
.L_x_3:
        /*0090*/                   FFMA.FTZ R1, R2, R3, R4 ;
        /*00a0*/                   BRA `(.L_x_2) ;
.L_x_4:
        /*00b0*/                   BRA `(.L_x_4);
"""


def test_the_innermost_loop_of_machine_code_counts() -> None:
    sass = read_sass(SASS)
    assert sass.loops == (MatrixLoop(matrix=1, fma=2),)
    assert sass.figures()["loop_ffma"] == 2
    assert read_sass(SASS.replace("@P0 BRA `(.L_x_1)", "@P0 MOV R1, R2")).loops == (MatrixLoop(1, 3),)
    assert read_sass(SASS.replace("HGMMA", "IADD")).loops == ()


def test_matrix_instructions_have_types() -> None:
    assert matrix_type("HMMA.16816.F32") == matrix_type("HGMMA.64x64x16.F32") == "f16"
    assert matrix_type("HMMA.1688.F32.TF32") == "tf32"
    assert matrix_type("UTCHMMA") == matrix_type("UTCQMMA") == matrix_type("DMMA.884") == ""
    assert matrix_type("FFMA") is matrix_type("UTCBAR") is matrix_type("HFMA2.MMA") is None
    assert Sass({"HMMA.16816.F32.BF16": 3, "FFMA": 2}, 0).of_type("bf16") == 3


PTX = """
.visible .entry k(
	.param .u64 .ptr .global .align 1 k_param_0
)
.reqntid 384
{
	.reg .b64 	%rd<9>;
	.loc	1 8 0                           // k.py:8:0
	setmaxnreg.dec.sync.aligned.u32 	40;
	fma.rn.f32 	%f1, %f2, %f3, %f4;
$L__BB0_1:                              // =>This Inner Loop Header: Depth=1
	{
	.reg .pred complete;
	waitLoop:
	mbarrier.try_wait.parity.shared.b64 complete, [%r1], %r2;
	@!complete bra.uni waitLoop;
	}
	@%p1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];
	wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%r1,%r2}, %rd1, %rd2, 1, 1, 1, 0, 1;
	fma.rn.f32x2 	%rd1, %rd2, %rd3, %rd4;
	@%p1 bra 	$L__BB0_1;
	fma.rn.f32 	%f1, %f2, %f3, %f4;
	cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r1, %r2}], [%r3];
	mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 { %r1 }, { %r2 }, { %r3 }, { %r4 };
	@%p28 tcgen05.mma.cta_group::1.kind::f16 [ %r1 + 0 ], %rd1, %rd2, %r3, %p27;
	tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r2];
	wgmma.wait_group.sync.aligned 0;
	ret;
}
	.file	1 "k.py"
"""


def test_matrix_instructions_of_the_ptx_are_told_by_unit_and_type() -> None:
    found = read_matrix(PTX)
    assert found.counts == {"mma.tf32": 1, "tcgen05.mma.f16": 1, "wgmma.bf16": 1}
    assert found.loops == (MatrixLoop(matrix=1, fma=1),)
    assert (found.bulk_loads, found.bulk_stores, found.register_moves) == (1, 1, 1)
    assert found.of_unit("wgmma") == 1
    assert found.of_type("tf32", "f16") == 2


# --------------------------------------------------------------------------------------------------------------- forms
TTIR = """
module {
  tt.func public @k(%a: !tt.ptr<bf16> {tt.divisibility = 16 : i32} loc("a"(#loc)), %b: !tt.ptr<bf16>, %n: i32) {
    %p = tt.splat %a : !tt.ptr<bf16> -> tensor<64x32x!tt.ptr<bf16>>
    %d = tt.make_tensor_descriptor %b, [%n, %n], [%n, %n] : <bf16>, <tensor<32x128xbf16>>
    %r:2 = scf.for %k = %c0 to %n step %c2 iter_args(%acc = %z, %at = %p) -> (tensor<64x128xf32>, !tt.ptr<bf16>) : i32 {
      %x = tt.load %at, %mask : tensor<64x32x!tt.ptr<bf16>> loc(#loc120)
      %w = arith.extf %x : tensor<64x32xbf16> to tensor<64x32xf32>
      %y = tt.descriptor_load %d[%n, %k] : !tt.tensordesc<tensor<32x128xbf16>> -> tensor<32x128xbf16>
      %v = arith.extf %y : tensor<32x128xbf16> to tensor<32x128xf32>
      %s = tt.dot %w, %v, %acc, inputPrecision = tf32 : tensor<64x32xf32> * tensor<32x128xf32> -> tensor<64x128xf32>
      scf.yield %s, %at : tensor<64x128xf32>, tensor<64x32x!tt.ptr<bf16>>
    }
    tt.return
  }
}
"""


def test_products_are_traced_to_what_is_loaded() -> None:
    (dot,) = read_dots(TTIR, ["left", "right", "n"])
    assert dot == Dot("f32", "tf32", (64, 128, 32), ("bf16",), ("left", "right"), (("left",), ("right",)))
    assert dot.upcast
    assert not dot.exact
    (other,) = read_dots(TTIR.replace("%w, %v", "%x, %y").replace("<64x32xf32> *", "<64x32xbf16> *"), ["a", "b", "n"])
    assert (other.type, other.upcast, other.exact) == ("bf16", False, False)
    (ieee,) = read_dots(TTIR.replace(", inputPrecision = tf32", "").replace("bf16", "f32"), ["a", "b", "n"])
    assert (ieee.precision, ieee.loaded, ieee.upcast, ieee.exact) == ("ieee", ("f32",), False, True)
    with pytest.raises(ValueError, match="cannot be read"):
        read_dots(TTIR.replace("%w, %v, %acc", "[%w], [%v]"), ["a", "b", "n"])


BESIDE = """
module {
  tt.func public @kernel(%a: !tt.ptr<bf16>, %b: !tt.ptr<f32>) attributes {noinline = false} {
    %one = tt.splat %a : !tt.ptr<bf16> -> tensor<16x16x!tt.ptr<bf16>>
    %two = tt.splat %b : !tt.ptr<f32> -> tensor<16x16x!tt.ptr<f32>>
    %zero = arith.constant dense<0.0> : tensor<16x16xf32>
    %first = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %zero) -> (tensor<16x16xf32>) {
      %x = tt.load %one : tensor<16x16x!tt.ptr<bf16>>
      %s = tt.dot %x, %x, %acc : tensor<16x16xbf16> * tensor<16x16xbf16> -> tensor<16x16xf32>
      scf.yield %s : tensor<16x16xf32>
    }
    %second = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %first) -> (tensor<16x16xf32>) {
      %x = tt.load %two : tensor<16x16x!tt.ptr<f32>>
      %s = tt.dot %x, %x, %acc : tensor<16x16xf32> * tensor<16x16xf32> -> tensor<16x16xf32>
      scf.yield %s : tensor<16x16xf32>
    }
    tt.return
  }
}
"""


def test_regions_beside_each_other_use_names_again() -> None:
    first, second = read_dots(BESIDE, ["low", "wide"])
    assert (first.loaded, first.origins) == (("bf16",), ("low",))
    assert (second.loaded, second.origins) == (("f32",), ("wide",)), "%x of the second loop is not that of the first"


TTGIR = """
    ttng.barrier_expect %b0, 24576, %t : !ttg.memdesc<1xi64, #shared1, #smem, mutable>
    ttng.async_tma_copy_global_to_local %d[%r, %c] %m, %b0, %t : !tt.tensordesc<tensor<128x64xbf16, #shared>>, !ttg.memdesc<1xi64, #shared1, #smem, mutable> -> !ttg.memdesc<128x64xbf16, #shared, #smem, mutable>
    ttng.async_tma_copy_global_to_local %e[%r, %c] %m, %b0, %t : !tt.tensordesc<tensor<64x64xbf16, #shared>>, !ttg.memdesc<1xi64, #shared1, #smem, mutable> -> !ttg.memdesc<64x64xbf16, #shared, #smem, mutable>
    ttng.barrier_expect %b0, 8192, %t : !ttg.memdesc<1xi64, #shared1, #smem, mutable>
    ttng.async_tma_copy_global_to_local %e[%r, %c] %m, %b0, %t : !tt.tensordesc<64x64xbf16, #shared>, !ttg.memdesc<1xi64, #shared1, #smem, mutable> -> !ttg.memdesc<64x64xbf16, #shared, #smem, mutable>
    ttng.async_tma_copy_local_to_global %o[%r, %c] %2 : !tt.tensordesc<tensor<128x128xbf16, #shared>>, !ttg.memdesc<128x128xbf16, #shared, #smem, mutable>
"""  # noqa: E501


def test_boxes_and_what_barriers_wait_for() -> None:
    found = read_copies(TTGIR)
    assert found.boxes == tuple(BoxCopy(n, n) for n in (8192, 4096, 4096, 16384))
    assert found.awaited == ((24576, 24576), (8192, 8192))
    halved = read_copies(TTGIR.replace("memdesc<128x64x", "memdesc<64x64x", 1))
    assert halved.boxes[0] == BoxCopy(8192, 4096)
    assert halved.awaited == found.awaited, "the hardware brings the whole box"
    assert read_copies(TTGIR.replace("expect %b0, 8192", "expect %b1, 8192")).awaited == ((24576, 32768), (8192, 0))
    assert read_copies(TTGIR[TTGIR.index("ttng.async") :]).awaited == ((8192, 8192), (0, 24576))
    with pytest.raises(ValueError, match="cannot be read"):
        read_copies("ttng.async_tma_copy_global_to_local %d : !tt.tensordesc<?>")


# -------------------------------------------------------------------------------------------------------------- limits
DOT = Dot("bf16", "tf32", (128, 128, 64), ("bf16",), ("a", "b"))
MATRIX = PtxMatrix({"wgmma.bf16": 4}, (MatrixLoop(4, 0),), 0, 0, 0)
GEMM = dataclasses.replace(
    GOOD,
    threads=256,
    warps=8,
    stages=3,
    accesses=(Access("a", "copy", 128, 8), Access("b", "copy", 128, 8), Access("o", "store", 128, 1)),
    sass=Sass({"EXIT": 1, "HGMMA.64x128x16.F32.BF16": 4}, 0, (MatrixLoop(4, 0),)),
    dots=(DOT,),
    copies=TensorCopies(),
    matrix=MATRIX,
)
BOXES = dataclasses.replace(
    GEMM,
    accesses=(),
    sass=None,
    scratch=256,
    scratch_given=256,
    copies=TensorCopies((BoxCopy(8192, 8192),), ((16384, 16384),)),
    matrix=dataclasses.replace(MATRIX, bulk_loads=2),
)
EXACT = dataclasses.replace(DOT, type="f32", precision="ieee", loaded=("f32",))


def gemm_violations(report: Report, **changes: Any) -> list[str]:
    return [text.split(": ", 1)[1] for text in violations(dataclasses.replace(report, **changes), kind="gemm")]


def test_good_products_violate_nothing() -> None:
    assert gemm_violations(GEMM) == gemm_violations(BOXES) == []
    assert (
        gemm_violations(GEMM, chip=100, matrix=dataclasses.replace(MATRIX, counts={"tcgen05.mma.f16": 8}), sass=None)
        == []
    )
    # What boxes become in the SASS is not asked.
    assert gemm_violations(BOXES, sass=Sass({"FFMA": 3}, 0, (MatrixLoop(1, 3),))) == []


def test_products_in_full_precision_are_exempt_and_may_spill() -> None:
    none = PtxMatrix({}, (), 0, 0, 0)
    assert gemm_violations(GEMM, dots=(EXACT,), matrix=none, accesses=(), sass=None, spill_stores=8) == []
    assert gemm_violations(GEMM, dots=(EXACT,), shared=232_449) == [
        "232449 bytes of shared memory; wanted at most 232448"
    ]
    assert gemm_violations(GEMM, dots=(EXACT, DOT), spill_stores=8, spill_loads=0)[0].startswith("8 bytes of spill")


@pytest.mark.parametrize(
    ("report", "changes", "wanted"),
    [
        (GEMM, {"dots": ()}, "no matrix product; wanted at least one"),
        (GEMM, {"spill_stores": 8, "sass": None}, "8 bytes of spill stores, 0 of spill loads; wanted 0"),
        (GEMM, {"traps": 1}, "1 function bodies that trap and write nothing; wanted 0"),
        (GEMM, {"dots": (DOT,) * 5, "sass": None}, "4 wgmma of bf16 for 5 products; wanted one each"),
        (GEMM, {"matrix": PtxMatrix({"wgmma.f16": 4}, (), 0, 0, 0)}, "0 wgmma of bf16 for 1 products; wanted one each"),
        (
            GEMM,
            {"matrix": PtxMatrix({"wgmma.bf16": 4, "mma.bf16": 2}, (), 0, 0, 0)},
            "2 matrix instructions that are not wgmma; wanted 0",
        ),
        (GEMM, {"sass": Sass({"HMMA.16816.F32.BF16": 4}, 0)}, "0 HGMMA in the SASS for 1 products; wanted one each"),
        (
            GEMM,
            {"sass": Sass({"HGMMA.64x128x8.F32.TF32": 4}, 0)},
            "4 matrix instructions of TF32 for operands of 16 bits; wanted 0",
        ),
        (
            GEMM,
            {"matrix": PtxMatrix({"wgmma.bf16": 4}, (MatrixLoop(4, 7),), 0, 0, 0)},
            "7 FFMA in a loop around matrix instructions; wanted 0",
        ),
        (
            GEMM,
            {"sass": Sass({"HGMMA.64x128x16.F32.BF16": 4}, 0, (MatrixLoop(4, 6),))},
            "6 FFMA in a loop around matrix instructions; wanted 0",
        ),
        (
            GEMM,
            {"accesses": (Access("a", "copy", 128, 8), Access("b", "load", 16, 32))},
            "b: 32 loads of 16 bits; wanted asynchronous copies of 128 bits, or of boxes",
        ),
        (BOXES, {"scratch": 384}, "384 bytes of scratch per program; the launch gives 256"),
        (
            BOXES,
            {"copies": TensorCopies((BoxCopy(8192, 4096),), ())},
            "a box of 8192 elements is copied into a place of 4096; wanted as many",
        ),
        (
            BOXES,
            {"copies": TensorCopies((), ((8192, 16384),))},
            "a barrier expects 8192 bytes, its copies bring 16384; wanted as many",
        ),
    ],
)
def test_limits_of_products(report: Report, changes: dict[str, Any], wanted: str) -> None:
    assert gemm_violations(report, **changes) == [wanted]


# ------------------------------------------------------------------------------------------------------------ compiled
SAMPLES: dict[str, tuple[Source, tuple[int, ...]]] = {
    "bf16": (sample_kernels.gemm(), (80, 90, 100)),
    "fp16": (sample_kernels.gemm("*fp16"), (90,)),
    "fp32": (sample_kernels.gemm("*fp32", "ieee", (64, 64, 32)), (90,)),
    "boxes": (sample_kernels.boxes(), (90, 100)),
    "upcast": (sample_kernels.gemm(how="upcast", tile=(128, 128, 32)), (90, 100)),
    "unaligned": (sample_kernels.gemm(aligned=False), (90,)),
    "large": (sample_kernels.gemm(tile=(128, 256, 64), num_warps=4), (90,)),
    "deep": (sample_kernels.gemm(num_stages=8), (80, 90)),
    "scaled": (sample_kernels.gemm(how="scaled"), (90,)),
    "short": (sample_kernels.gemm(tile=(32, 128, 64), num_warps=4), (90,)),
    "wide": (sample_kernels.wide(), (100,)),
    "unasked": (sample_kernels.boxes(scratch=0), (90,)),
    "host": (sample_kernels.host_boxes(), (90,)),
}
"""Sample -> source and chips; the first four are good."""
GOOD_SAMPLES = ("bf16", "fp16", "fp32", "boxes")
BY_BOTH = ("bf16", "boxes", "host")
"""Those that the older version compiles, too: it refuses others, or none."""


Reports = dict[tuple[str, int], Report]


@cache
def compiled(which: str) -> Reports:
    """The samples, by name and chip."""
    chosen = {n: v for n, v in SAMPLES.items() if which == "pinned" or n in BY_BOTH}
    chips = {n: v[1] if which == "pinned" else (90,) for n, v in chosen.items()}
    reports = compile_all({n: v[0] for n, v in chosen.items()}, chips, environments.python(which))
    return {(r.name, r.chip): r for r in reports}


@pytest.mark.parametrize("which", ["pinned", "3.6"])
def test_good_samples_violate_nothing(which: str) -> None:
    good = [r for r in compiled(which).values() if r.name in GOOD_SAMPLES]
    assert [text for r in good for text in violations(r, kind="gemm")] == []
    report = compiled(which)["bf16", 90]
    assert report.matrix is not None
    assert report.matrix.counts == {"wgmma.bf16": 4}
    assert report.sass is not None
    assert report.sass.count("LDGSTS") > 0
    # The tail, behind the loop, is full of them.
    assert report.sass.count("FFMA") > 100
    boxes = compiled(which)["boxes", 90]
    assert (boxes.warps, boxes.threads, boxes.scratch) == (8, 256, 256)


@pytest.mark.parametrize(
    ("name", "chip", "wanted"),
    [
        ("upcast", 90, ["cast to 32", "matrix instructions of TF32"]),
        ("upcast", 100, ["cast to 32", "matrix instructions of TF32"]),
        (
            "unaligned",
            90,
            ["a: 32 loads of 16 bits; wanted asynchronous", "b: 32 loads of 16 bits; wanted asynchronous"],
        ),
        ("large", 90, ["bytes of spill stores"]),
        ("deep", 80, ["229376 bytes of shared memory; wanted at most 166912"]),
        ("deep", 90, ["262144 bytes of shared memory; wanted at most 232448"]),
        ("scaled", 90, ["64 FFMA in a loop"]),
        ("short", 90, ["0 wgmma of bf16 for 1 products; wanted one each (a tile of 32 rows; it takes at least 64)"]),
        (
            "wide",
            100,
            ["768 columns of tensor memory; wanted at most 512", "1 function bodies that trap and write nothing"],
        ),
        ("unasked", 90, ["256 bytes of scratch per program; the launch gives 0"]),
    ],
)
def test_bad_samples_are_told(name: str, chip: int, wanted: list[str]) -> None:
    found = "\n".join(violations(compiled("pinned")[name, chip], kind="gemm"))
    assert all(text in found for text in wanted), found


@pytest.mark.parametrize("which", ["pinned", "3.6"])
def test_a_box_made_by_the_host_for_half_as_many_rows_is_told(which: str) -> None:
    """Newer versions refuse it; the older one compiles it, and it would hang or be wrong."""
    report = compiled(which)["host", 90]
    found = "\n".join(violations(report, kind="gemm"))
    if report.triton.startswith("3.6"):
        assert not report.error
        assert "a box of 8192 elements is copied into a place of 4096; wanted as many" in found
        assert "a barrier expects 8192 bytes, its copies bring 16384; wanted as many" in found
    else:
        assert "does not compile" in found


# ---------------------------------------------------------------------------------------------------------- attentions
def turns(*fma: int) -> tuple[MatrixLoop, ...]:
    return tuple(MatrixLoop(2, one) for one in fma)


SCORES = Dot("bf16", "tf32", (128, 64, 64), ("bf16",), ("k", "q"), (("q",), ("k",)))
SMALLER = dataclasses.replace(SCORES, sizes=(32, 64, 64))
MIXED = Dot("bf16", "tf32", (128, 64, 64), ("bf16",), ("k", "q", "v"), (("k", "q"), ("v",)))
ATTENTION = dataclasses.replace(
    GEMM,
    threads=128,
    accesses=(Access("q", "load", 128, 8), Access("k", "copy", 128, 8), Access("v", "copy", 128, 8)),
    sass=Sass({"EXIT": 1, "HGMMA.64x64x16.F32.BF16": 4}, 0, (MatrixLoop(4, 384),)),
    dots=(SCORES, MIXED),
    matrix=dataclasses.replace(MATRIX, loops=(MatrixLoop(4, 384),)),
)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, None),
        ({"dots": ()}, "no matrix product; wanted at least one"),
        ({"spill_stores": 8, "sass": None}, "8 bytes of spill stores, 0 of spill loads; wanted 0"),
        ({"shared": 232_449}, "232449 bytes of shared memory; wanted at most 232448"),
        ({"tensor_memory": 513}, "513 columns of tensor memory; wanted at most 512"),
        (
            {"matrix": PtxMatrix({"wgmma.bf16": 4}, (MatrixLoop(4, 385),), 0, 0, 0)},
            "385 FFMA a loop turn, for 64 scores a thread; wanted at most 384",
        ),
        # Two kinds of programs, of 16 scores a thread and of 64, each with its loop.
        (
            {"dots": (SMALLER, SCORES), "sass": None, "matrix": PtxMatrix({"wgmma.bf16": 4}, turns(96, 384), 0, 0, 0)},
            None,
        ),
        (
            {"dots": (SMALLER, SCORES), "sass": None, "matrix": PtxMatrix({"wgmma.bf16": 4}, turns(97, 384), 0, 0, 0)},
            "97 FFMA a loop turn, for 16 scores a thread; wanted at most 96",
        ),
        (
            {"dots": (SMALLER, SCORES), "sass": None, "matrix": PtxMatrix({"wgmma.bf16": 4}, turns(96, 385), 0, 0, 0)},
            "385 FFMA a loop turn, for 64 scores a thread; wanted at most 384",
        ),
        ({"dots": (SCORES, MIXED) * 3, "sass": None}, "4 wgmma of bf16 for 6 products; wanted one each"),
        (
            {"sass": Sass({"HGMMA.64x128x8.F32.TF32": 4}, 0)},
            "4 matrix instructions of TF32 for operands of 16 bits; wanted 0",
        ),
        # One operand of the scores is loaded before the loop; both may not be, nor what is only there in the loop.
        (
            {"accesses": (Access("q", "load", 128, 8), Access("k", "load", 128, 8), Access("v", "copy", 128, 8))},
            "q and k: 8 loads of 128 bits; wanted asynchronous copies of 128 bits, or of boxes",
        ),
        (
            {"accesses": (Access("q", "load", 128, 8), Access("k", "copy", 128, 8), Access("v", "load", 128, 8))},
            "v: 8 loads of 128 bits; wanted asynchronous copies of 128 bits, or of boxes",
        ),
        (
            {"accesses": (Access("q", "load", 32, 8), Access("k", "copy", 128, 8), Access("v", "copy", 128, 8))},
            "q: 8 loads of 32 bits; wanted 128 bits",
        ),
    ],
)
def test_limits_of_attentions(changes: dict[str, Any], wanted: str | None) -> None:
    found = violations(dataclasses.replace(ATTENTION, **changes), kind="attention")
    assert [text.split(": ", 1)[1] for text in found] == ([] if wanted is None else [wanted])


ROUNDED = tuple(dataclasses.replace(one, type="f32", precision="tf32", loaded=("f32",)) for one in (SCORES, MIXED))
TF32_ATTENTION = dataclasses.replace(
    ATTENTION,
    accesses=(Access("q", "load", 128, 8), Access("k", "load", 128, 8), Access("v", "copy", 32, 64)),
    sass=None,
    dots=ROUNDED,
    matrix=PtxMatrix({"wgmma.tf32": 2}, (MatrixLoop(2, 384),), 0, 0, 0),
)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, None),
        ({"matrix": PtxMatrix({"mma.tf32": 8}, (MatrixLoop(8, 384),), 0, 0, 0)}, None),
        ({"spill_stores": 8}, "8 bytes of spill stores, 0 of spill loads; wanted 0"),
        (
            {"matrix": PtxMatrix({"wgmma.tf32": 1}, (MatrixLoop(1, 384),), 0, 0, 0)},
            "1 wgmma of tf32 for 2 products; wanted one each",
        ),
        (
            {"dots": (ROUNDED[0], MIXED), "matrix": PtxMatrix({"wgmma.tf32": 1, "wgmma.bf16": 1}, (), 0, 0, 0)},
            "1 matrix instructions of TF32 for operands of 16 bits; wanted 0",
        ),
    ],
)
def test_limits_of_attentions_that_are_rounded_to_tf32(changes: dict[str, Any], wanted: str | None) -> None:
    found = violations(dataclasses.replace(TF32_ATTENTION, **changes), kind="attention")
    assert [text.split(": ", 1)[1] for text in found][:1] == ([] if wanted is None else [wanted])
