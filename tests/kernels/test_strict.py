"""Kernels under strict numerics, compiled: every product and every sum is rounded by itself, and sums have a fixed order."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import count
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.bn_nets import SHAPES, residual
from tests.helpers.drawn import drawn
from tests.helpers.epilogue_programs import epilogue_recipe
from tests.helpers.seed import SEED
from tests.kernels import environments, registry
from tests.kernels.environments import ALL
from tests.kernels.golden import digest
from tstatic import static, testing
from tstatic.chips.aot import Source, compile_all
from tstatic.chips.report import Report
from tstatic.chips.sources import sources
from tstatic.flags import using_numerics
from tstatic.fusion.codegen.kernel import Kernel
from tstatic.fusion.engine import kernels_of
from tstatic.fusion.patterns.single_op import kernel_per_op
from tstatic.ir.types import Meta, dtype_of
from tstatic.runtime.scope import Scope
from tstatic.static.compile import compile_program
from tstatic.target import DEFAULT_TARGET
from tstatic.testing.runner import baseline_of, everything_on

COUNT = int(os.environ.get("TSTATIC_SAMPLE", "1000" if ALL else "40"))
KINDS: tuple[dict[str, Any], ...] = ({}, {"backward": True}, {"optimizer": True})

LIBRARY = frozenset(
    [f"{name} {dtype}" for name in ("log", "log2", "erf", "sin", "cos") for dtype in ("f32", "f64")]
    + ["exp f64", "exp2 f64"]
)
"""Functions of CUDA's library whose bodies hold fused multiply-adds. A division and a root that round once are one instruction
of the PTX each, which the assembler expands; in 32 bits exp and exp2 are an instruction, too."""

IN_LIBRARY = "fma.rn.ftz.f32"
"""How the library's functions of 32 bits write them: where the compiler joins a product and a sum, there is no ``ftz``."""


def kernels(main: Any, fetches: Any, feeds: Mapping[str, Any], strategy: Any) -> Iterator[Kernel]:
    """The kernels of a program, those of the operators that are in no group included."""
    known = {n: Meta(tuple(a.shape), dtype_of(a.dtype)) for n, a in feeds.items()}
    made = compile_program(main, strategy, [known], fetches, Scope(), numerics="strict").first
    with using_numerics("strict"):
        yield from kernels_of(kernel_per_op(made.after, made.metas), made.metas).values()


def programs(number: int) -> Iterator[tuple[Any, Any, Any]]:
    """Drawn programs without end: (program, fetches, feeds); products, batch norms and any others in turn."""
    for turn in count():
        kind = ("forward", "gradients")[turn % 2]
        recipes = [epilogue_recipe(100 * number + turn, kind)]
        recipes += drawn(testing.programs(max_ops=10, **KINDS[turn % len(KINDS)]), 4, 1000 * number + turn)
        for built in (recipe.build() for recipe in recipes):
            yield built.main, built.fetches, built.feeds
        layout = (*SHAPES,)[turn % len(SHAPES)]
        main, _, loss = residual("relu", layout)
        yield main, [loss.name], {"x": np.zeros(SHAPES[layout], np.float32)}


@cache
def drawn_sources() -> dict[str, Source]:
    """Those that are compiled, made once for both versions."""
    return kernel_sources(COUNT, int(SEED))


@cache
def sources_of_draws() -> dict[str, Source]:
    """Kernels of single operators that draw and whose products and sums stay apart, each once."""
    found: dict[str, Source] = {}
    for name, made in registry.draws():
        for source in (source for kernel in made for _, source in sources(kernel) if not source.contract):
            found.setdefault(digest(source), source)
        if name.startswith(("gaussian", "truncated", "uniform")):
            assert not any(source.contract for kernel in made for _, source in sources(kernel)), name
    return found


def kernel_sources(most: int, number: int) -> dict[str, Source]:
    """Kernels of drawn programs, fused and alone; each once."""
    found: dict[str, Source] = {}
    known: set[str] = set()
    on = everything_on()
    for turn, (main, fetches, feeds) in enumerate(programs(number)):
        if len(found) >= most:
            break
        # Half of them as a default program is: alone, too, an operator must not round once for two.
        for kernel in kernels(main, fetches, feeds, baseline_of(on) if turn % 4 == 3 else on):
            for function, source in sources(kernel, kernel.plan(DEFAULT_TARGET)):
                if repr(source) not in known and len(found) < most:
                    known.add(repr(source))
                    found[f"{len(found)}.{kernel.name}.{function}"] = source
    return found


def contracted(report: Report) -> dict[str, int]:
    """The fused multiply-adds that are in no body of a library's function."""
    inside = {dtype for name, dtype in (one.split() for one in LIBRARY.intersection(report.functions))}
    allowed = {IN_LIBRARY} if "f32" in inside else set()
    # In 64 bits those of the library look like any other.
    allowed |= {"fma.rn.f64"} if "f64" in inside else set()
    # This chip has no product of bfloat16: it is one with -0 added.
    allowed |= {"fma.rn.bf16", "fma.rn.bf16x2"} if report.chip == 80 else set()
    return {name: count for name, count in report.fused.items() if name not in allowed}


@pytest.fixture(scope="module", params=["pinned", "3.6"])
def reports(request: pytest.FixtureRequest) -> list[Report]:
    chips = (80, 90, 100) if ALL else (90,)
    return compile_all(drawn_sources(), chips, environments.python(request.param), sass=())


@pytest.mark.timeout(3600 if ALL else 600)
def test_products_and_sums_are_rounded_one_by_one(reports: list[Report]) -> None:
    assert len(reports) >= COUNT
    assert [f"{r.name}: {r.error}" for r in reports if r.error] == []
    assert {r.name: found for r in reports if (found := contracted(r))} == {}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("which", ["pinned", "3.6"])
def test_floats_are_drawn_with_roundings_of_their_own(which: str) -> None:
    """Whatever the numerics: the numbers of a kernel are the reference's in every bit."""
    reports = compile_all(sources_of_draws(), (90,), environments.python(which), sass=())
    assert len(reports) > 12
    assert {r.name: r.error or contracted(r) for r in reports if r.error or contracted(r)} == {}


def test_sums_of_a_tile_add_two_at_a_time(reports: list[Report]) -> None:
    lengths = [length for r in reports for length in r.summed]
    assert lengths, "some kernels sum"
    # More at a time are added in an order that follows from which thread holds what.
    assert set(lengths) <= {1, 2}


_ROUNDED_TWICE = """import triton
import triton.language as tl


@triton.jit
def kernel(x, y, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at)
    b = tl.load(y + at)
    tl.store(out + at, {0})
"""


def one(text: str, dtype: str = "fp32", contract: bool = False) -> Source:
    types = dict.fromkeys(("x", "y", "out"), f"*{dtype}")
    return Source(_ROUNDED_TWICE.format(text), "kernel", types, {"BLOCK": 1024}, (), contract=contract)


def test_the_check_sees_what_it_looks_for() -> None:
    """The list names the functions that have fused multiply-adds and no other; a contraction and a sum in one go are seen."""
    calls = {
        f"{name} f{bits}": one(f"tl.{name}(a)", f"fp{bits}")
        for name in ("log", "log2", "erf", "sin", "cos", "exp", "exp2", "sqrt", "rsqrt", "floor")
        for bits in (32, 64)
    }
    planted = {
        "contracted": one("a * b + a", contract=True),
        "contracted beside a function": one("tl.log(a) * b + a", contract=True),
        "asked for": one("tl.fma(a, b, a)"),
        "summed": one("a + tl.sum(b, 0)"),
        "apart": one("a * b + a"),
        "rounded once": one("tl.div_rn(a, tl.sqrt_rn(b))"),
    }
    found = {r.name: r for r in compile_all(calls | planted, (90,), environments.pinned(), sass=())}
    assert {r.error for r in found.values()} == {""}
    assert {name for name in calls if found[name].fused} == LIBRARY
    assert all(found[name].functions == (name,) for name in calls)
    assert all(not contracted(found[name]) for name in calls)
    assert {name for name in planted if contracted(found[name])} == {
        "contracted",
        "contracted beside a function",
        "asked for",
    }
    assert found["summed"].summed == (1024,)


def test_strict_kernels_say_so_to_the_compiler() -> None:
    """Whatever the flag says when they are planned."""
    paddle.set_flags({"FLAGS_numerics": "strict"})
    made = kernel_sources(12, 3)
    paddle.set_flags({"FLAGS_numerics": "default"})
    assert len(made) == 12
    assert not any(source.contract for source in made.values())
    strategy = static.BuildStrategy()
    strategy.build_cinn_pass = True
    main, _, loss = residual()
    loose = compile_program(
        main, strategy, [{"x": Meta(SHAPES["NCHW"], dtype_of("float32"))}], [loss.name], Scope()
    ).first
    assert any(s.contract for k in kernels_of(loose.after, loose.metas).values() for _, s in sources(k))
