"""Commands that look at a program without running it: explain, kernels, memory, summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tstatic.display import counted, size
from tstatic.errors import NotFoundError, ProgramError
from tstatic.formats.report_files import make_folder, write_report
from tstatic.fusion.codegen.kernel import Kernel
from tstatic.ir.types import UNKNOWN
from tstatic.plan.capacity import capacity, chip_of
from tstatic.static.explain import Explanation
from tstatic.target import DEFAULT_TARGET
from tstatic.tools.cli.outcome import FINDING, OK, CommandError, Outcome, Table
from tstatic.tools.cli.show import said
from tstatic.tools.cli.subjects import Subject, subject_of
from tstatic.tools.cli.targets import check_output
from tstatic.tools.testing.feeds import data_variables
from tstatic.where import show


def explained(
    target: str,
    arguments: Sequence[str] = (),
    program: int = 0,
    first: int = 0,
    every: bool = False,
    switches: Sequence[str] = (),
    batch: int = 0,
    feeds: Sequence[str] = (),
) -> tuple[Subject, Explanation]:
    """Returns the program that a target names, and its explanation."""
    subject = subject_of(target, arguments, program, first)
    if every or switches:
        subject = subject.switched(every, switches)
    shapes, _ = subject.sizes(batch, feeds) if batch or feeds or subject.feed_shapes else ({}, "")
    return subject, subject.compiled().explain(list(subject.fetches), shapes)


def explain(why: Sequence[str] = (), verbose: bool = False, html: str = "", **given: Any) -> Outcome:
    """Says what was fused, what not and why."""
    check_output(html=html)
    subject, found = explained(**given)
    if html:
        found.save_html(html)
    if why:
        try:
            answer = found.why(*why)
        except NotFoundError as error:
            raise CommandError(said(error)) from None
        data = {"fused": answer.fused, "code": answer.code, "text": answer.text, "change": answer.change}
        return Outcome(data, (str(answer),), OK if answer.fused else FINDING)
    off = [
        {
            "switch": one.switch,
            "fusions": one.count,
            "bytes_saved": one.saving.nbytes,
            "launches_saved": one.saving.launches,
        }
        for one in found.off()
    ]
    parts = (f"{subject.label}: {subject.program!r}\n{found.to_text(verbose)}",)
    return Outcome({"program": subject.label, **found.to_dict(), "off": off}, parts)


# --------------------------------------------------------------------------------------------------------------- kernels
def kernels(show_one: str = "", write: str = "", **given: Any) -> Outcome:
    """Lists the generated kernels of a program, shows one, or writes each to a file that runs by itself."""
    subject, found = explained(**given)
    made = [(a, a.kernel) for a in found.applied if a.kernel is not None]
    if show_one:
        kernel = _chosen([k for _, k in made], show_one)
        return Outcome({"name": kernel.name, "text": kernel.text}, (kernel.text,))
    rows = [
        (i, k.name, a.op, found.operators_of(a), len(k.plan(DEFAULT_TARGET).launches), size(k.nbytes))
        for i, (a, k) in enumerate(made, 1)
    ]
    data: dict[str, Any] = {
        "program": subject.label,
        "kernels": [
            {"name": k.name, "op": a.op, "switch": a.switch, "template": k.template, "operators": [m.type for m in a.members],
             "where": show(a.members[0].where), "launches": len(k.plan(DEFAULT_TARGET).launches), "bytes": k.nbytes}
            for a, k in made
        ],
    }  # fmt: skip
    parts: list[str | Table] = [
        Table(f"Kernels of {subject.label}", ("", "name", "op", "operators", "launches", "moves"), rows)
        if rows
        else f"{subject.label}: no kernels, because no fusion was made. --all turns every fusion on; tstatic explain says what "
        "each switch would do."
    ]
    if write:
        folder = make_folder(write, "the kernels")
        for _, kernel in made:
            write_report(folder / f"{kernel.name}.py", kernel.text, "the kernel")
        data["folder"] = str(folder)
        parts.append(
            f"{counted(len({k.name for _, k in made}), 'file')} in {folder}; each checks itself: TRITON_INTERPRET=1 python FILE"
        )
    return Outcome(data, parts)


def _chosen(kernels: Sequence[Kernel], name: str) -> Kernel:
    if name.isdigit() and 0 < int(name) <= len(kernels):
        return kernels[int(name) - 1]
    for kernel in kernels:
        if kernel.name == name:
            return kernel
    known = ", ".join(k.name for k in kernels) or "none"
    raise CommandError(f"there is no kernel '{name}': give a number from 1 to {len(kernels)}, or a name ({known})")


# ---------------------------------------------------------------------------------------------------------------- memory
def memory(top: int = 10, fits: str = "", **given: Any) -> Outcome:
    """Says what memory a run takes, and whether it fits in one, without running the program."""
    batch, feeds, every, switches = given.pop("batch"), given.pop("feeds"), given.pop("every"), given.pop("switches")
    if fits:
        _check_memory(fits)
    subject = subject_of(**given)
    if every or switches:
        subject = subject.switched(every, switches)
    shapes, note = subject.sizes(batch, feeds)
    # A chip is planned for with its kernels.
    report = subject.compiled().memory_report(shapes, list(subject.fetches), subject.scope, chip_of(fits))
    fit = report.fits(fits) if fits else None
    most = sorted(report.by_op, key=lambda one: -one.live_bytes)[:top]
    parts: list[str | Table] = [
        "\n".join(
            filter(None, (f"{subject.label}: {subject.program!r}", note, str(report), "" if fit is None else str(fit)))
        ),
        Table(
            "Operators at which most is live",
            ("step", "operator", "live", "its results", "line"),
            [(one.step, one.op, size(one.live_bytes), size(one.result_bytes), one.where) for one in most],
        ),
    ]
    data = {"program": subject.label, "feed_shapes": {n: list(s) for n, s in shapes.items()}, **report.to_dict()}
    if fit is None:
        return Outcome(data, parts)
    return Outcome(data | {"fit": fit.to_dict()}, parts, OK if fit else FINDING)


def _check_memory(text: str) -> None:
    """Raises CommandError if a text names no memory, before the script runs."""
    try:
        capacity(text)
    except ProgramError as error:
        raise CommandError(f"--fits: {error.what}; {error.fix}") from None


# --------------------------------------------------------------------------------------------------------------- summary
def summary(target: str, arguments: Sequence[str] = (), program: int = 0, first: int = 0) -> Outcome:
    """Lists inputs, results, parameters and operators of a program."""
    subject = subject_of(target, arguments, program, first)
    parameters = subject.program.all_parameters()
    counts = Counter(op.type for block in subject.program.blocks for op in block.ops)
    numbers = sum(_elements(p.shape) for p in parameters)
    nbytes = sum(_elements(p.shape) * p.dtype.itemsize for p in parameters)
    trainable = sum(_elements(p.shape) for p in parameters if p.trainable)
    data = {
        "program": subject.label,
        "inputs": [
            {"name": v.name, "shape": list(v.shape), "dtype": v.dtype.name} for v in data_variables(subject.program)
        ],
        "fetches": list(subject.fetches),
        "parameters": [
            {"name": p.name, "shape": list(p.shape), "dtype": p.dtype.name, "trainable": p.trainable}
            for p in parameters
        ],
        "parameter_count": numbers,
        "trainable_count": trainable,
        "parameter_bytes": nbytes,
        "operators": dict(counts.most_common()),
    }
    inputs = ", ".join(f"{v.name} {v.dtype.name}{list(v.shape)}" for v in data_variables(subject.program)) or "none"
    head = (
        f"{subject.label}: {subject.program!r}",
        f"inputs:     {inputs}",
        f"fetched:    {', '.join(subject.fetches) or 'nothing'}",
        f"parameters: {numbers:,} ({trainable:,} trainable), {size(nbytes)}",
        f"operators:  {sum(counts.values())} of {len(counts)} types",
    )
    parts: list[str | Table] = [
        "\n".join(head),
        Table(
            "Parameters",
            ("name", "shape", "type", "numbers"),
            [(p.name, list(p.shape), p.dtype.name, f"{_elements(p.shape):,}") for p in parameters],
        ),
        Table("Operators", ("type", "count"), counts.most_common()),
    ]
    return Outcome(data, parts)


def _elements(shape: Sequence[int]) -> int:
    count = 1
    for one in shape:
        count *= 1 if one == UNKNOWN else one
    return count
