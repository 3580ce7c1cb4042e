"""Writes the generated pages of this folder anew; ``--check`` only says which are stale."""

from __future__ import annotations

import argparse
import enum
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE.parent / "bench" / "results"
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "bench"), str(HERE)]

import explanation_picture  # noqa: E402
import gallery  # noqa: E402
import plan_page  # noqa: E402 - the lines above make these importable for a script
import speed_table  # noqa: E402
import structure  # noqa: E402

from tests.api import arguments, coverage, surface  # noqa: E402
from tstatic import errors, flags, static, unsupported  # noqa: E402
from tstatic.ir.attrs import Slot  # noqa: E402
from tstatic.ir.build import KERNEL_ATTRS  # noqa: E402
from tstatic.ir.composed import COMPOSED  # noqa: E402
from tstatic.ir.opdef import DERIVE, OPS, PUBLIC_API, REQUIRED, GradOp, OpDef, op_def  # noqa: E402
from tstatic.no_effect import declared  # noqa: E402

# Modules that repeat what the package above them has.
REPEATS = ("tstatic.tensor", *(f"tstatic.fluid.layers.{name}" for name in ("nn", "ops", "tensor", "control_flow")))


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Returns the lines of a Markdown table; bars inside cells are escaped."""
    names = list(head)
    lines = [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    return lines + [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]


def sentence(doc: str | None) -> str:
    """Returns a docstring's first paragraph on one line, in Markdown."""
    return " ".join((doc or "").split("\n\n")[0].split()).replace("``", "`")


# --------------------------------------------------------------------------------------------------------------- errors
def errors_page() -> str:
    """Returns ``errors.md``: each class, what else it is, and when it is raised."""
    lines = [
        "# Errors",
        "",
        "Made from `tstatic/errors.py` by `make docs`; edit it there.",
        "",
        "A message has up to six parts: what is wrong, the operator and the variable concerned, what was expected,",
        "what was received, the file and line of the user's own statement, and a fix. They are attributes too:",
        "`error.what`, `error.op`, `error.var`, `error.expected`, `error.received`, `error.where`, `error.fix`.",
        "An error that a device found while it ran late also says after which run it was told: `error.noticed`",
        "([executor.md](executor.md#devices-whose-work-runs-late)).",
        "",
    ]
    rows = []
    for one in vars(errors).values():
        if isinstance(one, type) and issubclass(one, Exception) and one.__module__ == errors.__name__:
            also = ", ".join(f"`{base.__name__}`" for base in one.__bases__ if base is not Exception)
            rows.append((f"`{one.__name__}`", also, sentence(one.__doc__)))
    return "\n".join(lines + table(("Class", "Is also a", "When"), rows)) + "\n"


# ------------------------------------------------------------------------------------------------------------------ ops
def _slots(slots: Iterable[Slot]) -> str:
    marks = ((s.name, "*" * s.many, "~" if s.intermediate else "?" * s.optional) for s in slots)
    return ", ".join("".join(parts) for parts in marks) or "nothing"


def _attrs(definition: OpDef) -> str:
    rows = [n if a.default is REQUIRED else f"{n}={_default(a.default)}" for n, a in definition.attrs.items()]
    return f"`{', '.join(rows)}`" if rows else ""


def _default(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    return f"'{value.name}'" if hasattr(value, "itemsize") else repr(value)


def _backward(definition: OpDef) -> OpDef | None:
    stated = isinstance(definition.grad, GradOp) or definition.grad is DERIVE
    return op_def(f"{definition.type}_grad") if stated else None


def _gradient(definition: OpDef) -> str:
    backward = _backward(definition)
    if backward is not None:
        return f"`{_slots(backward.inputs)} -> {_slots(backward.outputs)}`"
    return "none" if definition.grad is None else "ordinary ops"


def _flags(definition: OpDef) -> str:
    backward = _backward(definition)
    marks = {
        "pointwise": definition.pointwise is not None,
        "split": definition.split is not None,
        "split backward": backward is not None and backward.split is not None,
        "view": definition.view is not None,
        "inplace": bool(definition.inplace),
        "state": bool(definition.state),
        "update": definition.update,
        "random": definition.random,
        "effects": definition.effects,
        f"dynamic ({definition.dynamic.why})" if definition.dynamic else "": bool(definition.dynamic),
        f"amp {definition.amp}": bool(definition.amp),
    }
    return ", ".join(name for name, on in marks.items() if on)


def _idle(definitions: Iterable[OpDef]) -> list[tuple[str, ...]]:
    """One row for each attribute that changes no result, and each reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for definition in definitions:
        for name, attr in definition.attrs.items():
            if attr.no_effect:
                found.setdefault((name, attr.no_effect), []).append(definition.type)
    return [(f"`{name}`", why, ", ".join(f"`{t}`" for t in types)) for (name, why), types in sorted(found.items())]


def ops_page() -> str:
    """Returns ``ops.md``: each op definition with its slots, attributes, gradient, public names and flags."""
    definitions = sorted((c for c in OPS.values() if not c.of), key=lambda c: c.type)
    rows = []
    for definition in definitions:
        names = ", ".join(f"`{n.removeprefix('tensor.')}`" for n in sorted(definition.api))
        slots = f"`{_slots(definition.inputs)} -> {_slots(definition.outputs)}`"
        rows.append(
            (f"`{definition.type}`", slots, _attrs(definition), _gradient(definition), names, _flags(definition))
        )
    lines = [
        "# Operators",
        "",
        "Made from the op definitions (`tstatic/ops/`) by `make docs`; edit them there.",
        "",
        f"{len(definitions)} operators. In the slots, `*` marks a list, `?` one that may be absent, `~` an output made for the",
        "backward op only. An attribute without a default must be given. The gradient is the slots of the backward op",
        "`<type>_grad`, or *ordinary ops*, or *none*. Public names stand below `paddle`; `Variable.x` is a method.",
        "",
        "Flags: *pointwise* states an expression that fusions can use; *split* (forward, backward): heavy work is cut into",
        "pieces of fixed size; *view* needs no work where strides allow; *inplace* may write over a dying input; *state*",
        "reads and writes persistable variables, *update* after the commit point; *random* draws counted numbers;",
        "*effects* is never removed or merged; *dynamic*: the result's shape depends on values, and on which; *amp* is the list",
        "of mixed precision that it stands on.",
        "",
        *table(("Operator", "Slots", "Attributes", "Gradient", "Public names", "Flags"), rows),
        "",
        "## Attributes without effect",
        "",
        "These are accepted and kept in programs, and change no result of the operator. Every operator that lacks them also",
        f"accepts and drops {', '.join(f'`{n}`' for n in sorted(KERNEL_ATTRS))} and all whose names begin with",
        "`fuse_`: the device chooses the kernel, and results do not depend on it. Any other attribute that an operator lacks is",
        "an error which names the nearest that it has.",
        "",
        *table(("Attribute", "Why", "Operators"), _idle(definitions)),
        "",
        "## Operators built from others",
        "",
        "Raw `append_op`, and files of Paddle, may also have these. They become ordinary operators of the program, through which",
        "gradients flow. Where the type has a definition above, they serve the slots and attributes that it lacks.",
        "",
        *table(("Type", "Inputs", "Attributes", "Without effect"), _composed()),
    ]
    return "\n".join(lines) + "\n"


def _composed() -> Iterator[tuple[str, str, str, str]]:
    """Yields type, inputs, attributes and those without effect, of op types that are built from others."""
    for key in sorted(COMPOSED):
        entry = COMPOSED[key]
        slots = [f"{n}{'*' * (n in entry.many)}{'?' * (n not in entry.needed)}" for n in entry.slots]
        given = inspect.signature(entry.build).parameters
        attrs = [n if n in entry.needed else f"{n}={given[n].default!r}" for n in entry.attrs]
        idle = [f"`{name}`: {why}" for name, why in declared(entry.build).items()]
        cells = (f"`{row}`" if row else "" for row in (", ".join(slots), ", ".join(attrs)))
        yield f"`{key.removeprefix('raw ')}`", *cells, "; ".join(idle)


# ------------------------------------------------------------------------------------------------------------------ api
def _rows() -> Iterator[tuple[str, ...]]:
    """One row for each public object: its names in Paddle, its first one here, the op, what it does."""
    groups: dict[int, list[str]] = {}
    values: dict[int, Any] = {}
    for path, value in surface.walk():
        shared = inspect.isroutine(value) or inspect.isclass(value)
        if shared and path.rpartition(".")[0] not in REPEATS:
            groups.setdefault(id(value), []).append(path)
            values[id(value)] = value
    op_of = {id(entry.function): entry.op for entry in PUBLIC_API.values()}
    for key, paths in groups.items():
        calls = ", ".join(f"`{p.replace('tstatic.', 'paddle.', 1)}`" for p in paths)
        op = op_of.get(key, "")
        advice = unsupported.advice(paths[0].removeprefix("tstatic."))
        state = f"refused. {advice}" if advice else "works"
        yield calls, f"`{paths[0]}`", f"`{op}`" if op else "", state


def _coverage_rows() -> Iterator[tuple[str, ...]]:
    """One row for each module of Paddle: how many of its names are there, and which are not."""
    for one in coverage.measure():
        counts = (len(one.have), len(one.missing), len(one.declined))
        share = f"{one.percent:.0f} %" if one.have or one.missing else ""
        missing = ", ".join(f"`{name}`" for name in one.missing)
        yield f"`{f'paddle.{one.module}'.rstrip('.')}`", *map(str, counts), share, missing


def _idle_arguments() -> list[tuple[str, ...]]:
    """One row for each public function or class that declares arguments to be without effect, and each reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for path, _, owner in arguments.callables():
        for name, why in arguments.declarations(owner).items():
            found.setdefault((path.replace("tstatic.", "paddle.", 1), why), []).append(f"`{name}`")
    return [(f"`{path}`", ", ".join(names), why.replace("``", "`")) for (path, why), names in sorted(found.items())]


def api_page() -> str:
    """Returns ``api.md``: what Paddle calls are here, and what to use instead of those that are not."""
    missing = [
        (", ".join(f"`{name}`" for name in entry.names), entry.why, entry.use) for entry in unsupported.UNSUPPORTED
    ]
    lines = [
        "# Paddle calls",
        "",
        "Made from the registry of public names and `tstatic/unsupported.py` by `make docs`; edit them there.",
        "",
        "`import tstatic as paddle` makes every name below the name that scripts use. `python -m tstatic.as_paddle script.py`",
        "runs a script unchanged. Arguments and defaults are frozen in `tests/api/signatures.txt`. The functions of",
        "`fluid.layers` can also be imported from `fluid.layers.nn`, `.ops`, `.tensor` and `.control_flow`.",
        "A value of an argument that tstatic does not take raises `UnsupportedError` (see [errors.md](errors.md)).",
        "",
        "## How much of Paddle's API is there",
        "",
        "The names that Paddle 2.6.2 lists in `__all__` of its modules, and the methods of its tensors. Declined names are not",
        "part of static-graph training in one program; they count neither for nor against.",
        "",
        *table(("Module", "Have", "Have not", "Declined", "Share", "Missing names"), _coverage_rows()),
        "",
        "## Not in this release",
        "",
        "Asking for one of these names, or for one below it, says the same.",
        "",
        *table(("Paddle call", "Why", "Use instead"), missing),
        "",
        "## Arguments without effect",
        "",
        "These are accepted, so that scripts run unchanged, and change nothing.",
        "",
        *table(("Paddle call", "Argument", "Why"), _idle_arguments()),
        "",
        "## What is there",
        "",
        *table(("Paddle call", "tstatic", "Op", "State"), _rows()),
    ]
    return "\n".join(lines) + "\n"


# ----------------------------------------------------------------------------------------------------------- strategies
def strategies_page() -> str:
    """Returns ``strategies.md``: every property of both strategies, what it does and what it does in this release."""
    lines = [
        "# Strategies",
        "",
        "Made from `tstatic/static/strategy/__init__.py` by `make docs`; edit it there.",
        "",
        "`print(compiled.explain())` says the same of the strategies of one compiled program. *active*: it acts.",
        "*not yet active*: it is accepted, checked and remembered, and a later release makes it act. *no effect*:",
        "there is nothing to switch. A value of the wrong type, a value out of range and a name that is not a property are errors.",
    ]
    for strategy in (static.BuildStrategy, static.ExecutionStrategy):
        rows = [
            (f"`{p.name}`", f"{p.kind.expected}; {_default(p.default)}", p.doc, f"**{p.status}**: {p.reason}", p.since)
            for p in strategy.properties()
        ]
        lines += ["", f"## {strategy.__name__}", "", sentence(strategy.__doc__), ""]
        lines += table(("Property", "Type; default", "What it does", "In this release", "Since Paddle"), rows)
    return "\n".join(lines) + "\n"


# ----------------------------------------------------------------------------------------------------------------- plans
def plan_table() -> str:
    """Returns ``plan.md``: launches and bytes of training steps, as last counted by ``make plan``."""
    newest = max(RESULTS.glob("plan-*.json"))
    lines = plan_page.markdown(json.loads(newest.read_text(encoding="utf-8"))).splitlines()
    origin = f"Made from `bench/results/{newest.name}` by `make docs`; `make plan` counts anew."
    return "\n".join([lines[0], "", origin, *lines[1:]]) + "\n"


def flags_page() -> str:
    """Returns the page ``flags.md``."""
    lines = [
        "# Flags",
        "",
        "Made from `tstatic/flags.py` by `make docs`; edit it there.",
        "",
        "Set them in the environment (`FLAGS_check_nan_inf=1 python train.py`) or with `paddle.set_flags({...})`, which",
        "wins; read them with `paddle.get_flags`. The environment is read at the first use of a flag. A flag marked",
        "*key* is part of the executor's cache key: changing it compiles a program again at its next run.",
        "",
        "| Flag | Type | Default | Key | What it does |",
        "|---|---|---|---|---|",
    ]
    for one in sorted(flags.REGISTRY.values(), key=lambda f: not f.effect):
        mark = "key" if one.compiled else ""
        lines.append(f"| `{one.name}` | {one.type.__name__} | `{one.default!r}` | {mark} | {one.help} |")
    return "\n".join(lines) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "api.md": api_page,
    "errors.md": errors_page,
    "flags.md": flags_page,
    "gallery.md": gallery.page,
    "ops.md": ops_page,
    "plan.md": plan_table,
    "strategies.md": strategies_page,
    "speed.md": speed_table.speed_page,
    "pictures/explanation.svg": explanation_picture.picture,
    "pictures/structure.svg": structure.picture,
    "architecture.md": structure.page,
    "../README.md": speed_table.readme,
}


def stale(names: Iterable[str] = PAGES) -> dict[str, str]:
    """Returns the pages that do not say what their source says: name -> text."""
    texts = {name: PAGES[name]() for name in names}
    return {
        name: text
        for name, text in texts.items()
        if not (HERE / name).exists() or (HERE / name).read_text(encoding="utf-8") != text
    }


def main() -> int:
    """Writes what is stale, or with ``--check`` names it and returns 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is stale")
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"of {', '.join(PAGES)}; by default all")
    given = parser.parse_args()
    unknown = [name for name in given.pages if name not in PAGES]
    if unknown:
        parser.error(f"no generated page is called {unknown[0]}; there are {', '.join(PAGES)}")
    found = stale(given.pages or PAGES)
    for name, text in found.items():
        print(f"{name} is stale; run `make docs`" if given.check else f"wrote docs/{name}")
        if not given.check:
            (HERE / name).write_text(text, encoding="utf-8")
    return int(given.check and bool(found))


if __name__ == "__main__":
    sys.exit(main())
