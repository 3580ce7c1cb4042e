"""The text of an explanation answers first, in at most 40 lines; what a notebook shows is escaped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static
from tstatic.display import html_table, preformatted, size
from tstatic.fusion.engine import Rejection
from tstatic.fusion.engine.reasons import REASONS
from tstatic.static.amp.rewrite import Converted
from tstatic.static.explain import WIDTH, Explanation, OffSwitch, OnHost
from tstatic.static.explain.property_status import PropertyStatus
from tstatic.static.explain.savings import Saving
from tstatic.testing.runner import everything_on


def gpt(layers: int = 3, width: int = 32) -> Any:
    """A small GPT with its training."""
    ids, label = static.data("ids", [None, 16], "int64"), static.data("label", [None, 16, 1], "int64")
    h = static.nn.embedding(ids, [50, width]) + static.create_parameter([16, width], "float32")
    mask = paddle.assign(np.triu(np.full((16, 16), -1e9, "float32"), 1))
    for _ in range(layers):
        layer = paddle.nn.TransformerEncoderLayer(width, 2, 4 * width, 0.1, "gelu", normalize_before=True)
        h = layer(h, mask)
    logits = static.nn.fc(static.nn.layer_norm(h, begin_norm_axis=2), 50, num_flatten_dims=2)
    loss = paddle.mean(paddle.nn.functional.cross_entropy(logits, label))
    paddle.optimizer.AdamW(0.01, grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0)).minimize(loss)
    return loss


def explained(loss: Any, strategy: static.BuildStrategy | None = None, **given: Any) -> Explanation:
    return static.CompiledProgram(static.default_main_program(), strategy).explain([loss], **given)


def test_a_gpt_of_three_layers_has_at_most_forty_lines() -> None:
    loss = gpt()
    found = explained(loss, everything_on())
    lines = str(found).splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= WIDTH
    t = found.traffic
    assert lines[0] == f"launches: {t.launches_before} -> {t.launches_after} a step"
    assert lines[1].startswith(f"bytes:    {size(t.bytes_before)} -> ")
    assert lines[2].startswith(f"memory:   {size(t.memory_before)} -> ")
    assert t.memory_before > 0
    assert t.launches_after < t.launches_before / 2
    assert len(found.to_text(verbose=True).splitlines()) > 400
    assert str(explained(loss, everything_on(), verbose=True)) == found.to_text(verbose=True)


def test_every_switch_that_would_help_is_named_in_full() -> None:
    found = explained(gpt())
    text = str(found)
    assert len(found.off()) > 4
    assert [one.switch for one in found.off() if one.switch not in text] == []


def test_fusions_and_refusals_are_ranked_and_grouped() -> None:
    found = explained(gpt(), everything_on())
    lines = str(found).splitlines()

    units = {"bytes": 1, "kB": 1e3, "MB": 1e6}
    start = lines.index("fusions, by bytes saved:") + 1
    made = [line.split() for line in lines[start : start + 5]]
    saved = [float(row[0]) * units[row[1]] for row in made]
    assert saved == sorted(saved, reverse=True)
    assert sum(one.nbytes for one in found.saved) == pytest.approx(
        found.traffic.bytes_before - found.traffic.bytes_after, rel=0.02
    ), "what the fusions save is what the step saves, but for ops that simplifying left out"
    codes = {r.code for r in found.refused}
    for code in codes:
        count = sum(r.code == code for r in found.refused)
        assert f"{count} x {code}" in str(found), code
    assert "CYCLE" in codes
    assert any(line.strip().startswith("to allow it: ") for line in lines)


def test_properties_are_only_those_that_were_set() -> None:
    loss = gpt(1)
    plain = str(explained(loss))
    assert "num_threads" not in plain
    assert "enable_inplace" not in plain
    assert "switches that are off, by what each would save by itself:" in plain
    strategy = static.BuildStrategy()
    strategy.enable_auto_fusion = True
    strategy.memory_optimize = False
    strategy.fuse_relu_depthwise_conv = True
    some = explained(loss, strategy)
    times = sum(a.switch == "enable_auto_fusion" for a in some.applied)
    assert f"switches on, and fusions made: enable_auto_fusion ({times})" in str(some)
    assert "on, and made no fusion:\n  fuse_relu_depthwise_conv: no operator of its kinds stands in the program" in str(
        some
    )
    assert "also set: memory_optimize = False (active)" in str(some)


def test_what_a_switch_that_is_off_would_save_is_what_it_saves() -> None:
    loss = gpt(1)
    promised = {one.switch: one for one in explained(loss).off()}
    assert list(promised.values()) == sorted(promised.values(), key=lambda one: -one.saving.nbytes)
    for switch in ("fuse_dot_product_attention", "build_cinn_pass"):
        strategy = static.BuildStrategy()
        setattr(strategy, switch, True)
        found = explained(loss, strategy)
        assert sum(one.nbytes for one in found.saved) == promised[switch].saving.nbytes
        assert sum(a.kernel is not None for a in found.applied) == promised[switch].count


def test_cures_name_operators() -> None:
    found = explained(gpt(), everything_on())
    cycles = [r for r in found.refused if r.code == "CYCLE"]
    assert cycles
    for one in found.refused:
        assert " - " not in one.change
        assert "the operator between them" not in one.change
    assert any(" -> " in one.change for one in cycles), "the operator that prevents it, by what it writes"
    text = found.to_text(verbose=True)
    assert "fusion_group + " not in "".join(line for line in text.splitlines() if ": not " in line)


def test_why_names_every_switch_that_would_do_it() -> None:
    x = static.data("x", [None, 16])
    y = static.nn.fc(x, 8, activation="relu")
    ops = static.default_main_program().global_block().ops
    product, bias, relu = ops
    answer = explained(y).why(product, bias)
    assert answer.code == "OFF"
    assert answer.change == "build_strategy.fuse_gemm_epilogue = True"
    both = explained(y).why(bias, relu)
    for switch in ("fuse_elewise_add_act_ops", "fuse_gemm_epilogue", "enable_auto_fusion", "build_cinn_pass"):
        assert switch in both.text
    strategy = static.BuildStrategy()
    strategy.fuse_elewise_add_act_ops = True
    fetched = static.CompiledProgram(static.default_main_program(), strategy).explain([y, bias.output_arg_names[0]])
    refused = fetched.why(bias, relu)
    assert refused.code == "FETCHED"
    assert refused.change.startswith("do not fetch ")
    assert "build_strategy.enable_auto_fusion = True" in refused.change or "build_cinn_pass" in refused.change


def test_open_sizes_are_said() -> None:
    main = static.default_main_program()
    y = paddle.exp(static.data("x", [None, 4]))
    assert "Sizes that the program leaves open were assumed: x [16, 4]." in str(explained(y))
    assert "assumed" not in str(static.CompiledProgram(main).explain([y], {"x": (3, 4)}))


HOSTILE = "<script>alert('x')</script>"


def test_reprs_are_one_line_and_html_is_escaped() -> None:
    x = static.data(f"x{HOSTILE}", [4])
    y = paddle.tanh(x * 2.0 + 1.0)
    main = static.default_main_program()
    strategy = static.BuildStrategy()
    strategy.enable_auto_fusion = True
    compiled = static.CompiledProgram(main, strategy)
    found = compiled.explain([y])
    report = compiled.memory_report({x.name: (4,)}, [y])
    shown = (found, found.kernels[0], report, compiled.plan, main, x)
    for one in shown:
        assert "\n" not in repr(one), type(one)
        assert len(repr(one)) < 200, type(one)
        html = one._repr_html_()
        assert HOSTILE not in html, type(one)
        assert "<script>" not in html, type(one)
    assert repr(found) == "<Explanation: fusions 1, rejected 0, launches 3 -> 1, moved 96 bytes -> 32 bytes>"
    assert repr(compiled.plan).startswith("<Plan: ")
    assert repr(report).startswith("<MemoryReport: peak ")
    assert repr(found.kernels[0]).startswith("<Kernel pointwise_")
    assert "@triton.jit" in found.kernels[0]._repr_html_()


def test_lines_of_a_plan_stay_short() -> None:
    gpt(1)
    compiled = static.CompiledProgram(static.default_main_program(), everything_on())
    compiled.memory_report({"ids": (2, 16), "label": (2, 16, 1)})
    assert max(map(len, str(compiled.plan).splitlines())) < 450


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"),
     (1000, "1.00 kB"), (12_345, "12.3 kB"), (999_600, "1.00 MB"), (123e6, "123 MB"),
     (4.5e9, "4.50 GB"), (2e12, "2.00 TB"), (-2048, "-2.05 kB")],
)  # fmt: skip
def test_sizes_have_units(nbytes: float, text: str) -> None:
    assert size(nbytes) == text


def test_html_helpers_escape() -> None:
    assert "&lt;b&gt;" in preformatted("<b>")
    assert "<b>" not in html_table("<b>", ["<b>"], [["<b>"]])


def test_whatever_there_is_to_say_fits_into_forty_lines() -> None:
    y = paddle.exp(static.data("x", [8]) * 2.0 + 1.0)
    strategy = static.BuildStrategy()
    strategy.enable_auto_fusion = True
    found = explained(y, strategy)
    (one,) = found.applied
    applied = tuple(replace(one, op=f"op_{i}", switch=f"switch_{i}") for i in range(50))
    refused = tuple(
        Rejection("auto", "enable_auto_fusion", code, one.members, "a reason " * 40, "a change " * 40)
        for code in REASONS
        for _ in range(3)
    )
    verdicts = [
        PropertyStatus("BuildStrategy", f"{kind}_{'long_name_' * 8}{i}", value, None, "active", "why")
        for i in range(40)
        for kind, value in (("on", True), ("off", False))
    ]
    verdicts += [PropertyStatus("BuildStrategy", f"switch_{i}", True, False, "active", "why") for i in range(50)]
    host = tuple(OnHost(m, "sizes depend on values") for m in one.members * 20)
    cast = tuple(Converted(f"op_{i}", (f"v_{i}",), f"type_{i}", "", (), None) for i in range(60))
    crowded = replace(
        found, verdicts=tuple(verdicts), applied=applied, refused=refused, saved=(Saving(10**6, 1),) * 50,
        possible=(Saving(10**5, 1),) * len(refused), note="Sizes were assumed: " + "x [16], " * 90, on_host=host, precision=cast,
        _off=lambda: tuple(OffSwitch(f"off_{i}", i, Saving(i, i)) for i in range(30)),
    )  # fmt: skip
    lines = str(crowded).splitlines()
    assert 35 < len(lines) < 40, "one line more says what replicas exchange"
    assert max(map(len, lines)) <= WIDTH
    assert len(crowded.to_text(verbose=True).splitlines()) > 500
