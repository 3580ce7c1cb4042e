"""Figures read from text: accesses are traced to their parameter, nothing missing passes for a zero."""

from __future__ import annotations

import pytest

from tstatic.chips.sass import Access, Resources, read_log, read_ptx, read_sass, threads_per_block

PARAMETERS = [("x", True), ("index", True), ("n", False), ("o", True)]
HEAD = """
.version 8.7
.target sm_90a
.visible .entry kernel(
	.param .u64 .ptr .global .align 1 kernel_param_0,
	.param .u64 .ptr .global .align 1 kernel_param_1,
	.param .u32 kernel_param_2,
	.param .u64 .ptr .global .align 1 kernel_param_3
)
.reqntid 384
{
	.reg .b64 	%rd<9>;
	.loc	1 8 0                           // k.py:8:0
$L__func_begin0:
	ld.param.b64 	%rd1, [kernel_param_0];
	ld.param.b64 	%rd2, [kernel_param_1];
	ld.param.b32 	%r1, [kernel_param_2];
	ld.param.b64 	%rd3, [kernel_param_3];
	.loc	1 9 22                          // k.py:9:22
"""
TAIL = '\tret;\n}\n\t.file\t1 "k.py"\n'


def accesses(body: str) -> dict[tuple[str, str, int], int]:
    found, traps = read_ptx(HEAD + body + TAIL, PARAMETERS)
    assert traps == 0
    return {(a.origin, a.action, a.bits): a.count for a in found}


def test_accesses_are_traced_through_arithmetic() -> None:
    body = """
	mad.wide.s32 	%rd4, %r1, 4, %rd1;
	add.s64 	%rd5, %rd4, 2048;
	// begin inline asm
	mov.u32 %r2, 0x0;
	@%p1 ld.global.v4.b32 { %r2, %r3, %r4, %r5 }, [ %rd4 + 0 ];
	// end inline asm
	@%p2 ld.global.L1::evict_last.v2.b64 { %rd6, %rd7 }, [ %rd5 + 0 ];
	@!%p2 st.global.v4.b16 [ %rd3 + 0 ], { %rs1, %rs2, %rs3, %rs4 };
	st.global.b8 	[%rd3+1], %rs1;
	red.global.add.f32 	[%rd3], %f1;
"""
    assert accesses(body) == {
        ("x", "load", 128): 2,
        ("o", "store", 64): 1,
        ("o", "store", 8): 1,
        ("o", "atomic", 32): 1,
    }


def test_gathered_rows_belong_to_the_table_and_not_to_the_index() -> None:
    body = """
	ld.global.b32 { %r2 }, [ %rd2 + 0 ];
	mul.wide.s32 	%rd4, %r2, 4;
	add.s64 	%rd5, %rd1, %rd4;
	ld.global.b32 { %r3 }, [ %rd5 + 0 ];
"""
    assert accesses(body) == {("index", "load", 32): 1, ("x", "load", 32): 1}


def test_pointers_that_move_in_a_loop_are_followed() -> None:
    body = """
	mov.b64 	%rd4, %rd1;
$L__BB0_1:
	ld.global.b32 { %r3 }, [ %rd4 + 0 ];
	add.s64 	%rd4, %rd4, 64;
	@%p1 bra 	$L__BB0_1;
"""
    assert accesses(body) == {("x", "load", 32): 1}


def test_an_address_chosen_between_two_counts_for_both() -> None:
    body = "\tselp.b64 	%rd4, %rd1, %rd3, %p1;\n\tst.global.b32 [ %rd4 + 0 ], { %r3 };\n"
    assert accesses(body) == {("x", "store", 32): 1, ("o", "store", 32): 1}


def test_asynchronous_copies_are_told_from_loads() -> None:
    body = """
	cp.async.cg.shared.global [ %r12 + 0 ], [ %rd1 + 0 ], 0x10, %r13;
	cp.async.ca.shared.global [ %r12 + 0 ], [ %rd1 + 0 ], 0x4, 0x4;
	cp.async.commit_group;
"""
    assert accesses(body) == {("x", "copy", 128): 1, ("x", "copy", 32): 1}


def test_tables_have_their_own_name_and_lost_addresses_none() -> None:
    body = """
	mov.b64 	%rd4, __cudart_i2opi_f;
	ld.global.nc.b32 	%r57, [%rd4];
	ld.global.b32 	%r58, [%rd8];
"""
    assert accesses(body) == {("__cudart_i2opi_f", "load", 32): 1, ("", "load", 32): 1}


def test_braces_of_inline_assembly_end_no_body() -> None:
    body = "{\n\t.reg .pred complete;\n\tmbarrier.try_wait.b64 complete, [%r1], %r2;\n}\n\tst.global.b32 [ %rd3 + 0 ], { %r3 };\n"
    assert accesses(body) == {("o", "store", 32): 1}


def test_a_body_that_only_traps_is_counted() -> None:
    assert read_ptx(HEAD + "\ttrap;\n" + TAIL, PARAMETERS) == ((), 1)
    found, traps = read_ptx(HEAD + "\t@%p1 trap;\n\tst.global.b32 [ %rd3 + 0 ], { %r3 };\n" + TAIL, PARAMETERS)
    assert found == (Access("o", "store", 32, 1),)
    assert traps == 0, "an assertion that fails may trap"


def test_threads_are_those_of_the_block() -> None:
    assert threads_per_block(HEAD + TAIL) == 384
    assert threads_per_block(".maxntid 64, 2, 1\n") == 128


def test_words_of_ptxas() -> None:
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Function properties for helper
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
    40 bytes stack frame, 20 bytes spill stores, 28 bytes spill loads
ptxas info    : Used 96 registers, used 1 barriers, 40 bytes cumulative stack size
"""
    assert read_log(log) == Resources(registers=96, stack=48, spill_stores=24, spill_loads=40, barriers=1)


@pytest.mark.parametrize("log", ["", "ptxas info : Used 96 registers", "1 bytes stack frame, 2 bytes spill stores"])
def test_silence_of_ptxas_is_an_error(log: str) -> None:
    with pytest.raises(ValueError, match="name no registers or no spills"):
        read_log(log)


SASS = """
//--------------------- .text.k            --------------------------
	.section	.text.k,"ax",@progbits
k:
.text.k:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 LDG.E.128 R16, desc[UR4][R20.64] ;
        /*0020*/                   LDG.E.64.CONSTANT R12, desc[UR4][R22.64] ;
        /*0030*/                   LDG.E R4, desc[UR4][R20.64+0x800] ;
        /*0040*/                   LDG.E.U16 R4, desc[UR4][R20.64+0x800] ;
        /*0050*/                   LDG.E.ENL2.256 R4, R8, desc[UR4][R20.64+0x800] ;
        /*0060*/              @UP0 UTCHMMA gdesc[UR8], gdesc[UR10], tmem[UR12], tmem[UR14], idesc[UR15], !UPT ;
        /*0070*/                   HGMMA.64x128x8.F32.TF32 R24, gdesc[UR4], R24, !UPT ;
        /*0080*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0090*/                   IMAD.WIDE.U32 R2, R0, 0x4, R2 ;
        /*00a0*/                   STL.64 [R1+0x8], R2 ;
        /*00b0*/               @P1 STG.E.128 desc[UR4][R2.64], R12 ;
        /*00c0*/                   EXIT ;
.L_x_0:
        /*00d0*/                   BRA `(.L_x_0);
        /*00e0*/                   NOP;
.L_x_1:
"""


def test_disassembly_is_counted_by_opcode_and_width() -> None:
    sass = read_sass(SASS)
    assert sass.widths("LDG") == {16: 1, 32: 1, 64: 1, 128: 1, 256: 1}
    assert sass.widths("STG") == {128: 1}
    assert sass.count("STL", "LDL") == 1
    assert sass.matrix == 2
    assert sass.traps == 0
    wanted = {"instructions": 14, "ldg": 5, "ldg_128": 2, "bar": 1, "utcmma": 1, "hgmma": 1, "tf32": 1, "imad_wide": 1}
    figures = sass.figures()
    assert {name: figures[name] for name in wanted} == wanted


def test_a_disassembled_body_that_only_traps_is_counted() -> None:
    only = ".text.k:\n        /*0000*/                   BPT.TRAP 0x1 ;\n        /*0010*/                   EXIT ;\n"
    assert read_sass(SASS + only).traps == 1
    with pytest.raises(ValueError, match="holds no instruction"):
        read_sass("")
