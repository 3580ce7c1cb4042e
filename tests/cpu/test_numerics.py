"""Numerics of a CompiledProgram: what it is given beats the flag, is part of the key, and reaches all that runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import flags, static
from tstatic.errors import ProgramError
from tstatic.fusion.codegen.kernel import Launch
from tstatic.fusion.engine import kernels_of
from tstatic.static.explain.strict_cost import StrictRefusal
from tstatic.target import H200
from tstatic.testing.runner import baseline_of, everything_on

F = paddle.nn.functional


def attention(dtype: str = "float32") -> tuple[Any, Any]:
    """A program with a fusion that strict numerics refuse, and another that they make otherwise."""
    main = static.Program()
    with static.program_guard(main, static.Program()):
        q, w, b = (static.data(n, s, dtype) for n, s in (("q", [2, 2, 16, 8]), ("w", [8, 4]), ("b", [4])))
        y = paddle.matmul(F.softmax(paddle.matmul(q, q, transpose_y=True)), q)
        z = F.relu(paddle.matmul(paddle.reshape(y, [64, 8]), w) + b)
    return main, z


def refused(compiled: Any, fetch: Any) -> set[str]:
    return {r.switch for r in compiled.explain(fetch_list=[fetch]).refused if r.code == "NUM_STRICT"}


@pytest.mark.parametrize("value", ["exact", "Strict", "", 1, True, b"strict", ["strict"]])
def test_other_values_are_refused(value: Any) -> None:
    main, _ = attention()
    with pytest.raises(ProgramError) as caught:
        static.CompiledProgram(main, numerics=value)
    text = str(caught.value)
    assert "numerics" in text
    assert "'default', 'strict' or None" in text
    assert "fix:" in text


@pytest.mark.parametrize("flag", flags.NUMERICS)
@pytest.mark.parametrize("given", [None, *flags.NUMERICS])
def test_what_is_given_beats_the_flag(flag: str, given: str | None) -> None:
    paddle.set_flags({"FLAGS_numerics": flag})
    main, z = attention()
    compiled = static.CompiledProgram(main, everything_on(), numerics=given)
    strict = (given or flag) == "strict"
    assert refused(compiled, z) == ({"fuse_dot_product_attention"} if strict else set())
    told = compiled.explain(fetch_list=[z])
    assert (told.strict is not None) == strict
    # What is asked later is answered for the same numerics.
    softmax = next(op for op in main.global_block().ops if op.type == "softmax")
    last = [op for op in main.global_block().ops if op.type == "matmul_v2"][1]
    assert told.why(softmax, last).code == ("NUM_STRICT" if strict else "APPLIED")
    assert flags.numerics() == flag


def test_kernels_are_those_of_the_numerics_given() -> None:
    main, z = attention()
    kernels = {}
    for numerics in flags.NUMERICS:
        told = static.CompiledProgram(main, everything_on(), numerics=numerics).explain(fetch_list=[z])
        kernels[numerics] = {k.template: k for k in told.kernels}
    assert "attention" in kernels["default"]
    assert "attention" not in kernels["strict"]
    for numerics, contract in (("default", True), ("strict", False)):
        # Planned here, under the flag.
        launches = kernels[numerics]["gemm"].plan(H200).launches
        assert [one.function for one in launches] == ["library product", "combine"]
        assert {one.contract for one in launches if isinstance(one, Launch)} == {contract}


def test_programs_of_both_numerics_are_compiled_apart() -> None:
    main, z = attention()
    rng = np.random.default_rng(0)
    feed = {n: rng.standard_normal(s).astype("f4") for n, s in (("q", (2, 2, 16, 8)), ("w", (8, 4)), ("b", (4,)))}
    exe = static.Executor()
    results = []
    for numerics in ("strict", "default", None, "strict"):
        compiled = static.CompiledProgram(main, everything_on(), numerics=numerics)
        results.append(exe.run(compiled, feed=feed, fetch_list=[z])[0])
        last = compiled._history.compilation
        assert last is not None
        fused = {op.type for op in last.first.after.ops if op.body}
        assert ("fused_dot_product_attention" in fused) == (numerics != "strict")
        assert kernels_of(last.first.after, last.first.metas)
    assert len(exe._cache) == 3
    (unfused,) = exe.run(static.CompiledProgram(main, baseline_of(everything_on())), feed=feed, fetch_list=[z])
    # Without kernels fused operators run as what they replace.
    for result in results:
        assert result.tobytes() == unfused.tobytes()


def test_what_runs_sees_the_numerics_of_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order in which processes add, and the libraries' settings, are chosen at run time."""
    seen: list[str] = []
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [None, 2])
        y = static.py_func(
            lambda a: (seen.append(flags.numerics()), np.array(a))[1],
            x,
            x.block.create_var(name="y", shape=[-1, 2], dtype="float32"),
        )
    feed = {"x": np.ones((4, 2), "f4")}
    exe = static.Executor()
    exe.run(static.CompiledProgram(main, numerics="strict"), feed=feed, fetch_list=[y])
    exe.run(static.CompiledProgram(main), feed=feed, fetch_list=[y])
    parallel = static.CompiledProgram(main, numerics="strict").with_data_parallel(places=static.cpu_places(2))
    exe.run(parallel, feed=feed, fetch_list=[y])
    assert seen == ["strict", "default", "strict", "strict"]


def test_a_refusal_says_what_it_costs() -> None:
    # On a chip one launch; of float32 the library would make the products.
    main, z = attention("bfloat16")
    told = static.CompiledProgram(main, everything_on(), numerics="strict").explain(fetch_list=[z])
    assert told.strict is not None
    (one,) = told.strict.refused
    assert isinstance(one, StrictRefusal)
    default = static.CompiledProgram(main, everything_on()).explain(fetch_list=[z])
    assert one.launches > 0
    assert one.bytes > 0
    assert told.strict.bytes == told.traffic.bytes_after - default.traffic.bytes_after
    assert f"would save {one.launches} launches" in told.to_text(verbose=True)
