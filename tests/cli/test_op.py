"""``tstatic op``: every form of every forward operator is there, or why it is not, and says what the definition says."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from tests.cli.cases import answer, tstatic
from tests.ops.sampler import run, samples
from tstatic.ir.onnx_form import reason_of
from tstatic.ir.opdef import OPS, GradOp, OpDef, find_op_def, op_def, with_
from tstatic.tools.cli.op import op
from tstatic.tools.cli.op_forms import FORMS, Form, forms_of
from tstatic.tools.cli.op_kernel import samples as samples_of_forms
from tstatic.tools.cli.op_sources import sources, tuned_calls

pytestmark = pytest.mark.numpy_device("the command plans and runs nothing")

ROOT = Path(__file__).parents[2]
FORWARD = sorted(type for type, definition in OPS.items() if not definition.of)


@pytest.fixture(scope="module")
def known() -> dict[str, dict[str, Form]]:
    """The forms of all forward operators."""
    return {type: forms_of(op_def(type)) for type in FORWARD}


def faults(type: str, forms: dict[str, Form]) -> list[str]:
    """What is missing from the forms of an operator."""
    found = [f"{type} lacks {title}" for title in FORMS if title not in forms]
    for title, form in forms.items():
        if bool(form.text.strip()) == bool(form.none.strip()):
            found.append(f"{type}: {title} has neither a text nor a reason, or both")
        if form.none and len(form.none.split()) < 3:
            found.append(f"{type}: {title} says no more than '{form.none}'")
        if " at 0x" in form.text:
            found.append(f"{type}: {title} shows an address")
    return found


def test_every_operator_has_every_form_or_says_why_not(known: dict[str, dict[str, Form]]) -> None:
    assert len(known) > 400
    assert [fault for type, forms in known.items() for fault in faults(type, forms)] == []


@pytest.mark.parametrize("wrong", [Form(), Form(none="none"), Form("text", "and a reason, too"), Form("<f at 0x7f>")])
def test_a_form_that_says_nothing_is_noticed(known: dict[str, dict[str, Form]], wrong: Form) -> None:
    assert len(faults("gelu", {**known["gelu"], "torch": wrong})) == 1
    assert faults("gelu", {n: f for n, f in known["gelu"].items() if n != "onnx"}) == ["gelu lacks onnx"]


def test_the_record_has_each_slot_and_each_attribute_with_what_it_is_without_effect_for(
    known: dict[str, dict[str, Form]],
) -> None:
    for type, forms in known.items():
        definition, data = op_def(type), forms["record"].data
        for side, slots in (("inputs", definition.inputs), ("outputs", definition.outputs)):
            assert [one["name"] for one in data[side]] == [slot.name for slot in slots]
        assert {n: a["no_effect"] for n, a in data["attributes"].items()} == {
            n: a.no_effect for n, a in definition.attrs.items()
        }
        assert all(one.no_effect in forms["record"].text for one in definition.attrs.values())
        assert ("random" in data["traits"]) == definition.random


def test_the_numpy_text_is_the_source_of_the_reference(known: dict[str, dict[str, Form]]) -> None:
    compared = 0
    for type, forms in known.items():
        for function in op_def(type).ref.functions:
            bare = inspect.unwrap(function)
            if not isinstance(bare, FunctionType) or bare.__name__ == "<lambda>":
                continue
            text = textwrap.dedent(inspect.getsource(bare)).rstrip()
            assert text in forms["numpy"].text, type
            assert f"{Path(inspect.getfile(bare)).relative_to(ROOT).as_posix()}:" in forms["numpy"].text
            compared += 1
    assert compared > 300


def test_each_lambda_is_shown_from_its_first_to_its_last_character() -> None:
    functions = [
        value
        for d in OPS.values()
        for value in (d.lower, d.onnx, d.infer, d.split, d.rows)
        if inspect.isfunction(value)
    ]
    found = [one for one in functions if one.__name__ == "<lambda>"]
    assert len(found) > 100
    for one in found:
        text = sources([one])[0].text
        outer = compile(f"({text})", "shown", "eval")
        shown = next(const for const in outer.co_consts if isinstance(const, CodeType))
        own = one.__code__
        assert shown.co_varnames == own.co_varnames, text
        # What it takes of the function around it is global where it stands alone.
        assert {*shown.co_names} == {*own.co_names, *own.co_freevars}, text


def test_the_text_of_the_numpy_code_of_an_expression_computes_what_the_reference_does() -> None:
    import numpy as np

    for type in ("tanh", "elementwise_sub", "square", "relu"):
        definition = op_def(type)
        (sample,) = samples(definition, limit=1, dtypes=["float64"])
        line = forms_of(definition)["numpy"].text.splitlines()[-1]
        scope = {"np": np} | {s.param: a for s, a in zip(definition.inputs, sample.ins, strict=True)}
        exec(line, scope)
        np.testing.assert_allclose(scope[definition.outputs[0].name], run(definition, sample)[0], 1e-12)


def test_the_triton_text_compiles_as_python_and_is_a_kernel(known: dict[str, dict[str, Form]]) -> None:
    texts = {type: forms["triton"].text for type, forms in known.items() if forms["triton"].text}
    assert len(texts) > 100
    for type, text in texts.items():
        names = [n.name for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef) and n.decorator_list]
        assert names, type
        compile(text, type, "exec")
    assert "tl.erf" in texts["gelu"]
    assert "tl.dot" in texts["matmul_v2"]
    assert "relu_depthwise_conv" in texts["depthwise_conv2d"]
    pointwise = {type for type in FORWARD if op_def(type).pointwise is not None}
    without = {type: known[type]["triton"].none for type in pointwise - texts.keys()}
    assert {
        why for why in without.values() if not re.search(r"form in kernels|whose last bits|has state", why)
    } == set()


def test_how_a_gradient_is_made_is_what_its_definition_states(known: dict[str, dict[str, Form]]) -> None:
    seen = set()
    for type, forms in known.items():
        rule, form = op_def(type).grad, forms["gradient"]
        assert bool(form.none) == (rule is None)
        if isinstance(rule, GradOp):
            assert form.data["how"] == ("written" if rule.pointwise is None else "by formula")
            assert f"{type}_grad: " in form.text
        elif rule is not None:
            assert form.data["how"] == "composed"
        seen.add(form.data.get("how"))
    assert seen == {None, "written", "by formula", "composed"}


def test_forms_of_other_formats_are_missing_where_the_definition_says_so(known: dict[str, dict[str, Form]]) -> None:
    for type, forms in known.items():
        definition = op_def(type)
        assert forms["onnx"].none == reason_of(definition)
        assert bool(forms["paddle"].none) == bool(definition.paddle is not None and definition.paddle.absent)
        assert bool(forms["torch"].none) == (definition.lower is None)
        assert bool(forms["amp"].text) == bool(definition.amp)
        assert set(forms["names"].data.get("are", ())) == {n.removeprefix("tensor.") for n in definition.api}


def test_names_are_found_through_functions_that_append_the_operator(known: dict[str, dict[str, Form]]) -> None:
    assert "optimizer.Adam" in known["adam"]["names"].data["append"]
    assert "static.nn.while_loop" in known["while"]["names"].text
    assert "tstatic/ops/conv/conv.py" in known["depthwise_conv2d"]["names"].none


def test_tests_that_name_an_operator_are_listed(known: dict[str, dict[str, Form]]) -> None:
    assert "tests/cli/test_op.py" in known["matmul_v2"]["tests"].data["files"]
    for type, forms in known.items():
        assert all((ROOT / file).is_file() for file in forms["tests"].data.get("files", ()))
        assert ("generic: " in forms["tests"].text) == (op_def(type).domain is not None)


def test_tuned_code_is_what_the_reference_calls() -> None:
    assert "tstatic.tuned.special.gelu" in tuned_calls(op_def("gelu").ref.functions)
    assert "tstatic.tuned.conv.conv2d_forward" in tuned_calls(op_def("conv2d").ref.functions)
    assert tuned_calls(op_def("transpose2").ref.functions) == []


def changed(**changes: Any) -> dict[str, Form]:
    return forms_of(with_(op_def("gelu"), **changes))


def test_reasons_follow_from_the_definition_and_not_from_the_name_of_the_operator() -> None:
    def other(definition: OpDef, title: str) -> str:
        return FORMS[title](definition).none

    gelu = op_def("gelu")
    assert "stop_gradient" in changed(grad=None)["gradient"].none
    assert "updates state" in changed(grad=None, update=True)["gradient"].none
    assert "float type" in other(with_(op_def("equal"), type="gelu"), "gradient")
    assert other(with_(gelu, lower=None), "torch") == "it runs on the host: it has no torch form"
    assert "replicas meet" in other(with_(gelu, lower=None, collective=True), "torch")
    assert other(with_(gelu, onnx="because"), "onnx") == "because"
    assert "states no expression" in other(with_(op_def("exp"), pointwise=None, ref=None), "triton")
    assert "no domain" in other(with_(gelu, domain=None), "triton")
    assert "on no list" in other(with_(gelu, amp=""), "amp")
    assert changed(amp="white")["amp"].text.startswith("white: ")


def test_backward_operators_are_shown_too() -> None:
    for type in ("gelu_grad", "conv2d_grad", "batch_norm_grad", "tanh_grad_grad"):
        definition = find_op_def(type)
        assert definition is not None
        assert faults(type, forms_of(definition)) == []


def test_samples_are_of_the_domain() -> None:
    for type in ("matmul_v2", "concat", "embedding_rows", "uniform_random"):
        definition = op_def(type)
        first = next(samples_of_forms(definition))
        assert len(first.ins) == len(definition.inputs)
        assert len(first.outs) == len(definition.outputs)


def test_the_command_prints_all_forms_as_text_and_as_json(tmp_path: Path) -> None:
    shown = tstatic(tmp_path, "op", "softmax")
    assert shown.returncode == 0, shown.stderr
    assert re.findall(r"^== (.+)$", shown.stdout, re.MULTILINE) == list(FORMS)
    assert shown.stderr == ""
    found = answer(tmp_path, "op", "while")
    assert list(found) == ["op", *FORMS]
    assert all(("text" in found[title]) != ("none" in found[title]) for title in FORMS)
    assert found["triton"]["none"].startswith("its definition has no domain")


def test_names_of_functions_lead_to_their_operator() -> None:
    for name in ("paddle.matmul", "nn.functional.gelu", "paddle.nn.functional.gelu", "matmul_v2"):
        assert op(name).data["op"] in ("matmul_v2", "gelu")


def test_a_wrong_name_is_a_wrong_call_with_near_names(tmp_path: Path) -> None:
    wrong = tstatic(tmp_path, "op", "gellu")
    assert wrong.returncode == 2
    assert 'Operator "gellu" has not been registered.' in wrong.stderr
    assert "did you mean 'gelu'" in wrong.stderr
    assert wrong.stdout == ""
    found = answer(tmp_path, "op", "matmull", code=2)
    assert found["exit_code"] == 2
    assert "'matmul" in found["error"]
