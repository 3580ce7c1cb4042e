"""The command ``op``: every form of one op."""

from __future__ import annotations

from typing import Any

from tstatic.errors import NotFoundError
from tstatic.ir.opdef import OPS, PUBLIC_API, OpDef, op_def
from tstatic.tools.cli.op_forms import forms_of
from tstatic.tools.cli.outcome import CommandError, Outcome
from tstatic.tools.cli.show import said


def op(name: str) -> Outcome:
    """Prints every form of an op, or why it has none."""
    definition = _found(name)
    forms = forms_of(definition)
    data: dict[str, Any] = {"op": definition.type}
    parts = [f"operator {definition.type}"]
    for title, form in forms.items():
        data[title] = {"none": form.none, **form.data} if form.none else {"text": form.text, **form.data}
        parts.append(f"== {title}\nnone: {form.none}" if form.none else f"== {title}\n{form.text}")
    return Outcome(data, parts)


def _found(name: str) -> OpDef:
    """Returns the definition of an op type, or of the op that a public function is."""
    public = name.removeprefix("paddle.").removeprefix("tstatic.")
    if "." in name or name not in OPS:
        for known in (public, f"tensor.{public}"):
            entry = PUBLIC_API.get(known)
            if entry is not None and entry.op:
                return op_def(entry.op)
    try:
        return op_def(name)
    except NotFoundError as error:
        raise CommandError(said(error)) from None


__all__ = ["op"]
