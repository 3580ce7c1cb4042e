"""Every form of an op: its record, its reference, its gradient, and what it is in torch, Triton, ONNX and Paddle's files."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tstatic.display import counted
from tstatic.ir.attrs import REQUIRED, Slot
from tstatic.ir.composed import COMPOSED
from tstatic.ir.expr import parse
from tstatic.ir.formula import to_python
from tstatic.ir.onnx_form import reason_of
from tstatic.ir.opdef import DERIVE, Domain, GradOp, GradRule, OpDef, find_op_def
from tstatic.ir.split import Split
from tstatic.ir.traits import MultipliesMatrices, Waits
from tstatic.tools.cli.op_kernel import Sample, SampleKernel, fusions_naming, kernel_of_sample, samples, stated_texts
from tstatic.tools.cli.op_sources import (
    PACKAGE,
    files_calling,
    files_naming,
    functions_in,
    names_reaching,
    place,
    sources,
    text_of_sources,
    tuned_calls,
)


@dataclass(frozen=True)
class Form:
    """One form of an op.

    Attributes:
        text: The form; empty where the op has none.
        none: Why it has none; empty where it has one.
        data: Further facts for programs.
    """

    text: str = ""
    none: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


def lines(*parts: str) -> str:
    """Joins the parts that are not empty."""
    return "\n".join(filter(None, parts))


def _texts(texts: Mapping[str, str]) -> str:
    return "\n".join(f"{name} = {text}" for name, text in texts.items())


# ---------------------------------------------------------------------------------------------------------------- record
def _slot(slot: Slot) -> str:
    return slot.name + "*" * slot.many + ("~" if slot.intermediate else "?" * slot.optional)


def _slots(slots: Iterable[Slot]) -> str:
    return ", ".join(map(_slot, slots)) or "none"


_SHOWN = {
    "type", "slots", "attrs", "infer", "ref", "lower", "grad", "pointwise", "split", "view", "amp", "float32_inputs", "domain",
    "rows", "channels", "drawn", "traits", "formula", "paddle", "onnx", "of",
}  # fmt: skip
"""Fields of an OpDef that have a form of their own, or a line of the record."""


def _said(value: Any) -> str:
    """Returns a trait's value: where a function stands, or the value as text."""
    places = [one.place for one in sources([value])]
    return ", ".join(places) or ("" if value is True else repr(value))


def record(definition: OpDef) -> Form:
    """Returns slots, attributes and traits."""
    attrs = {}
    for name, one in definition.attrs.items():
        default = "must be given" if one.default is REQUIRED else f"{one.default!r}"
        attrs[name] = {"kind": one.kind, "default": default, "no_effect": one.no_effect}
    traits = {
        one.name: _said(value) for one in fields(definition)
        if one.name not in _SHOWN and (value := getattr(definition, one.name)) not in (None, "", (), False)
    }  # fmt: skip
    for one in definition.traits:
        traits[type(one).__name__] = ", ".join(_said(getattr(one, f.name)) for f in fields(one) if getattr(one, f.name))
    shown = [
        f"{name}: {a['kind']}, {a['default']}" + (f"; without effect: {a['no_effect']}" if a["no_effect"] else "")
        for name, a in attrs.items()
    ]
    text = lines(
        f"inputs:  {_slots(definition.inputs)}",
        f"outputs: {_slots(definition.outputs)}",
        "attributes:" if shown else "attributes: none",
        *(f"  {one}" for one in shown),
        "traits:" if traits else "traits: none",
        *(f"  {name}" + (f": {value}" if value else "") for name, value in traits.items()),
    )
    slots = {
        side: [{"name": s.name, "list": s.many, "optional": s.optional, "intermediate": s.intermediate} for s in given]
        for side, given in (("inputs", definition.inputs), ("outputs", definition.outputs))
    }
    return Form(text, data={**slots, "attributes": attrs, "traits": traits})


def shapes(definition: OpDef) -> Form:
    """Returns the shape rule, and what it answers for a sample."""
    if definition.infer is None:
        return Form(none="its definition states no shape rule: its results have the sizes that their variables declare")
    sample = next(samples(definition), None)
    shown = "" if sample is None else f"{sample.label(definition)} -> {_result(definition, sample)}"
    return Form(lines(shown, text_of_sources(definition.infer)))


def _result(definition: OpDef, sample: Sample) -> str:
    found = [
        f"{slot.name} {m.dtype.name}{list(m.shape)}"
        for slot, entry in zip(definition.outputs, sample.outs, strict=True)
        for m in (entry if isinstance(entry, list | tuple) else [entry])
        if m is not None
    ]
    return ", ".join(found) or "nothing"


# ------------------------------------------------------------------------------------------------- expression, reference
def expression(definition: OpDef) -> Form:
    """Returns what the op states as expressions, from which kernels follow."""
    if definition.pointwise is not None:
        return Form(_texts(definition.pointwise))
    if definition.formula is not None:
        return Form(lines("# a formula of an update", _texts(definition.formula.texts)))
    stated = stated_texts(definition)
    if stated is not None:
        kind, texts, label = stated
        return Form(lines(f"# {kind}, for {label}", _texts(texts)))
    if definition.expression is not None:
        nodes = {definition.outputs[i].name: repr(node) for i, node in definition.expression.nodes.items()}
        return Form(lines(f"# of one step ({type(definition.ref).__name__})", _texts(nodes)))
    if (product := definition.trait(MultipliesMatrices)) is not None:
        return Form(lines("# a product of matrices", text_of_sources(product.of)))
    return Form(
        none="its definition states none: neither per element, along rows, on channels, as a product nor as an update's formula"
    )


def reference(definition: OpDef) -> Form:
    """Returns the numpy code that defines the op."""
    if definition.ref.functions:
        return Form(text_of_sources(*definition.ref.functions), data={"kind": type(definition.ref).__name__})
    kind = type(definition.ref)
    where = place(inspect.getsourcefile(kind) or "", inspect.getsourcelines(kind)[1])
    if definition.pointwise is not None:
        code = {n: to_python(parse(t), str, arrays=True) for n, t in definition.pointwise.items()}
        return Form(lines(f"# from the expression, as calls of ufuncs ({kind.__name__}, {where})", _texts(code)))
    if definition.formula is not None:
        return Form(lines(f"# from the formula ({kind.__name__}, {where})", _texts(definition.formula.texts)))
    methods = [vars(kind)[name] for name in ("bind_arrays", "compute") if name in vars(kind)]
    return Form(lines(f"# {kind.__name__}, {where}", text_of_sources(*methods)), data={"kind": kind.__name__})


def on_cpu(definition: OpDef) -> Form:
    """Returns how the CPU runs the reference: tuned code, tiles, views."""
    tuned = tuned_calls(definition.ref.functions)
    parts = [f"tuned code: {', '.join(tuned)}"] if tuned else []
    if definition.view is not None:
        parts.append(f"a view of the first input where strides allow:\n{text_of_sources(definition.view)}")
    if isinstance(definition.split, Split):
        entries = ", ".join(map(str, definition.split.entries))
        parts.append(f"tiles of {definition.split.size.work:,.0f} units of work, cut along: {entries}")
    elif definition.split is not None:
        parts.append(f"tiles, cut by:\n{text_of_sources(definition.split)}")
    elif definition.pointwise is not None:
        parts.append("tiles: anywhere, as every element is computed by itself")
    if not parts:
        return Form(
            none="its reference runs as it stands, whole: it calls no tuned code, and its definition states no split or view"
        )
    return Form("\n".join(parts), data={"tuned": tuned})


# -------------------------------------------------------------------------------------------------------------- gradient
def gradient(definition: OpDef) -> Form:
    """Returns the backward op, or the rule that answers with ordinary ops."""
    rule = definition.grad
    if rule is None:
        return Form(none=_no_gradient(definition))
    how = _how(rule)
    # Each order of a derived gradient has one of the next order: only the first is asked for.
    backward = find_op_def(f"{definition.type}_grad")
    if how == "composed":
        also = "" if backward is None else f"# among them may be {backward.type}, which is registered beside it"
        return Form(
            lines("# composed: a rule that answers with ordinary ops", also, text_of_sources(rule)), data={"how": how}
        )
    if backward is None:
        return Form(none="its expression depends on no input")
    head = f"# {how}, as {backward.type}: {_slots(backward.inputs)} -> {_slots(backward.outputs)}"
    again = "" if backward.grad is None else f"# of second order: {_how(backward.grad)}"
    text = reference(backward).text if backward.pointwise is None else _texts(backward.pointwise)
    return Form(lines(head, again, text), data={"how": how})


def _how(rule: GradRule) -> str:
    """Returns how a gradient is stated."""
    if rule is DERIVE:
        return "derived"
    if isinstance(rule, GradOp):
        return "written" if rule.pointwise is None else "by formula"
    return "composed"


def _no_gradient(definition: OpDef) -> str:
    """Returns why an op has no gradient, by what its definition states."""
    if definition.of:
        return f"it is the backward op of {definition.of}, and states no gradient of second order"
    if definition.update:
        return "it updates state, after the gradients are computed"
    if definition.collective:
        return "the replicas meet in it, and exchange gradients that are computed already"
    sample = next(samples(definition), None)
    if sample is not None and not _has_floats(sample.outs):
        return "none of its results is of a float type"
    if sample is not None and not _has_floats(sample.ins):
        return "none of its inputs is of a float type"
    return "its definition states none: what it makes has stop_gradient, and no gradient passes it"


def _has_floats(entries: Iterable[Any]) -> bool:
    return any(
        m.dtype.is_float or m.dtype.is_complex
        for entry in entries
        for m in (entry if isinstance(entry, list | tuple) else [entry])
        if m is not None
    )


# ------------------------------------------------------------------------------------------------------- torch, Triton
def in_torch(definition: OpDef) -> Form:
    """Returns the torch form, and whether it runs on a GPU."""
    if definition.lower is None:
        block = any(one.kind == "block" for one in definition.attrs.values())
        for reason, holds in (
            ("the replicas meet in it: their transport moves the values", definition.collective),
            ("it runs a block of operators, each of which has its own form", block),
        ):
            if holds:
                return Form(none=reason)
        return Form(none=f"it runs on the host: {definition.host_reason}")
    runs = f"# on a GPU its reference runs on the host: {definition.host_reason}" if definition.host_reason else ""
    why = definition.why(Waits)
    waits = f"# the host waits for the GPU in it: {why}" if why else ""
    if definition.pointwise is not None and not sources_outside(definition.lower, "tstatic/ir/pointwise.py"):
        return Form(
            lines(runs, waits, "# the expression, evaluated with functions of torch", _texts(definition.pointwise))
        )
    return Form(lines(runs, waits, text_of_sources(definition.lower)))


def sources_outside(function: Any, file: str) -> bool:
    """Returns whether a function itself stands in another file than one."""
    return any(place(one.__code__.co_filename) != file for one in functions_in(function))


def in_triton(definition: OpDef) -> Form:
    """Returns the kernel of a sample, and the fusions of which the op is part."""
    names = [one.name for one in fusions_naming(definition.type)]
    data: dict[str, Any] = {"fusions": names}
    if definition.kernel is not None:
        return Form(f"# a kernel of the user's\n{definition.kernel}", data=data)
    if definition.domain is None:
        return Form(none="its definition has no domain, so that there is no sample: programs show it", data=data)
    found = kernel_of_sample(definition)
    if isinstance(found, SampleKernel):
        data |= {"name": found.kernel.name, "template": found.kernel.template, "sample": found.made_for}
        head = lines(f"# {found.made_for}", f"# also in patterns of: {', '.join(names)}" if names else "")
        return Form(lines(head, found.kernel.code), data=data)
    return Form(none=found or "its definition has no sample", data=data)


# ----------------------------------------------------------------------------------------------------- ONNX and Paddle
def in_onnx(definition: OpDef) -> Form:
    """Returns the form in ONNX."""
    reason = reason_of(definition)
    if reason:
        return Form(none=reason)
    if definition.onnx is not None:
        return Form(text_of_sources(definition.onnx))
    assert definition.pointwise is not None
    return Form(
        lines("# the expression, translated node by node (tstatic/ir/onnx_expr.py)", _texts(definition.pointwise))
    )


def in_paddle_files(definition: OpDef) -> Form:
    """Returns how the op stands in Paddle's files."""
    builder = COMPOSED.find(f"raw {definition.type}")
    built = (
        f"# with slots or attributes that the definition lacks it is built from other ops:\n{text_of_sources(builder.build)}"
        if builder is not None
        else ""
    )
    form = definition.paddle
    if form is not None and form.absent:
        return Form(none="Paddle has no such operator, and none that it could be written as")
    if form is None or (form.read is None and form.write is None):
        same = f"the same: type {definition.type}, and its slots and attributes"
    else:
        same = ""
    return Form(
        lines(
            same,
            f"# read by:\n{text_of_sources(form.read)}" if form is not None and form.read else "",
            f"# written by:\n{text_of_sources(form.write)}" if form is not None and form.write else "",
            f"# Paddle converts whole numbers to {form.wide.name}" if form is not None and form.wide else "",
            f"# whole numbers in Paddle: {', '.join(form.whole)}" if form is not None and form.whole else "",
            f"# attributes that Paddle lacks: {', '.join(form.lacks)}" if form is not None and form.lacks else "",
            built,
        )
    )


def public_names(definition: OpDef) -> Form:
    """Returns the names below ``paddle`` that are the op, and those whose functions append it among others."""
    own = sorted(name.removeprefix("tensor.") for name in definition.api)
    found = names_reaching().get(definition.type, ())
    others = sorted({name.removeprefix("tensor.") for name in found} - set(own))
    if not own and not others:
        files = files_naming(PACKAGE, "*.py").get(definition.type, ())
        return Form(none=f"no public function names it; it stands in {', '.join(files) or 'no file by its name'}")
    return Form(
        lines(
            f"are it: {', '.join(own)}" if own else "",
            f"append it among others: {', '.join(others)}" if others else "",
        ),
        data={"are": own, "append": others},
    )


# --------------------------------------------------------------------------------------------------- precision, tests
_LISTS = {
    "white": "white: runs in 16 bits",
    "black": "black: runs in float32; at level O2 in 16 bits",
    "gray": "gray: runs in the precision of its inputs",
    "float32": "black: runs in float32, at level O2 too, because 16 bits gain nothing",
}


def in_mixed_precision(definition: OpDef) -> Form:
    """Returns the list of mixed precision that the op is on."""
    if definition.update:
        return Form(
            none="it is an update: mixed precision rewrites the forward part, and updates are appended behind it"
        )
    if not definition.amp:
        low = definition.domain is not None and {"float16", "bfloat16"} & set(definition.domain.floats)
        runs = (
            "float32 at level O1, in 16 bits at level O2"
            if low
            else "float32, at level O2 too, as it does not compute in 16 bits"
        )
        return Form(none=f"its definition puts it on no list: it runs in {runs}")
    kept = f"; {', '.join(definition.float32_inputs)} stay in float32" if definition.float32_inputs else ""
    return Form(_LISTS[definition.amp] + kept)


def covered_by(definition: OpDef) -> Form:
    """Returns the tests that cover the op; they are in a checkout only."""
    tests = PACKAGE.parent / "tests"
    if not (tests / "ops").is_dir():
        return Form(none="tests are in a checkout of the project, not in an installed package")
    found = files_naming(tests, "test_*.py").get(definition.type, ())
    names = sorted({name.rpartition(".")[2] for name in (*definition.api, *names_reaching().get(definition.type, ()))})
    called = () if found else files_calling(tests, "test_*.py", names)
    domain = definition.domain
    parts = [] if domain is None else [f"generic: tests/ops samples its domain ({_sampled(domain)})"]
    parts += ["by its type:", *(f"  {one}" for one in found)] if found else []
    parts += [f"by {', '.join(names)}:", *(f"  {one}" for one in called)] if called else []
    if not parts:
        return Form(
            none="no file of tests names it or a function that appends it, and its definition has no domain for generic ones"
        )
    return Form(lines(*parts), data={"files": list(found or called)})


def _sampled(domain: Domain) -> str:
    if domain.family == "cases":
        return counted(len(domain.cases), "case")
    return f"{domain.family}: {'any shape' if domain.family == 'unary' else 'any two shapes that broadcast'}"


FORMS: Mapping[str, Callable[[OpDef], Form]] = {
    "record": record,
    "shapes": shapes,
    "expression": expression,
    "numpy": reference,
    "cpu": on_cpu,
    "gradient": gradient,
    "torch": in_torch,
    "triton": in_triton,
    "onnx": in_onnx,
    "paddle": in_paddle_files,
    "names": public_names,
    "amp": in_mixed_precision,
    "tests": covered_by,
}
"""What ``tstatic op`` prints, in order."""


def forms_of(definition: OpDef) -> dict[str, Form]:
    """Returns every form of an op."""
    return {title: make(definition) for title, make in FORMS.items()}


__all__ = ["FORMS", "Form", "forms_of"]
