"""A Sphinx extension: writes the pages of the API reference from the registry of public names, and resolves names in them.

Pages are written to ``docs/reference/*.rst`` (not in git) before a build. Each public object has one entry, under its first public
name; further names of it are links to that entry. ``PAGES`` says which modules share a page.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.domains.python import ObjectEntry, PythonDomain
from sphinx.environment import BuildEnvironment

from tests.api import surface
from tstatic import errors, testing
from tstatic.aliases import public_of
from tstatic.ir.program import Variable
from tstatic.ir.respell import ORIGIN

FOLDER = Path(__file__).parent / "reference"

# Page -> its title, and the modules on it. A module belongs to the page that names it or the nearest package above it.
PAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "tstatic": ("tstatic: tensors and settings", ("tstatic",)),
    "variable": ("Variable: methods", ("Variable",)),
    "static": ("tstatic.static: programs, running, saving", ("tstatic.static", "tstatic.static.io")),
    "static_nn": ("tstatic.static.nn: layers as functions", ("tstatic.static.nn",)),
    "amp": ("tstatic.static.amp: mixed precision", ("tstatic.static.amp", "tstatic.amp")),
    "nn": ("tstatic.nn: layers", ("tstatic.nn",)),
    "functional": ("tstatic.nn.functional", ("tstatic.nn.functional",)),
    "initializer": ("tstatic.nn.initializer, regularizer", ("tstatic.nn.initializer", "tstatic.regularizer")),
    "optimizer": ("tstatic.optimizer: update rules and learning rates", ("tstatic.optimizer", "tstatic.incubate")),
    "metric": ("tstatic.metric", ("tstatic.metric",)),
    "io": ("tstatic.io: data", ("tstatic.io", "tstatic.reader")),
    "callbacks": ("tstatic.callbacks: training loops", ("tstatic.callbacks",)),
    "testing": ("tstatic.testing: proofs about programs", ("tstatic.testing",)),
    "profiler": ("tstatic.profiler", ("tstatic.profiler", "tstatic.utils.profiler")),
    "distributed": ("tstatic.distributed: processes, fleet, collectives", ("tstatic.distributed",)),
    "inference": ("tstatic.inference, onnx", ("tstatic.inference", "tstatic.onnx")),
    "linalg": (
        "tstatic.linalg, fft, signal, geometric",
        ("tstatic.linalg", "tstatic.fft", "tstatic.signal", "tstatic.geometric"),
    ),
    "distribution": ("tstatic.distribution", ("tstatic.distribution",)),
    "vision": ("tstatic.vision", ("tstatic.vision",)),
    "text": ("tstatic.text", ("tstatic.text",)),
    "device": (
        "tstatic.device, framework, utils, compat, version",
        ("tstatic.device", "tstatic.framework", "tstatic.utils", "tstatic.compat", "tstatic.version"),
    ),
    "results": ("What calls return, and further classes", ("",)),
    "errors": ("tstatic.errors", ("tstatic.errors",)),
    "fluid": ("tstatic.fluid: the names of Paddle 1.x", ("tstatic.fluid",)),
    "fluid_layers": ("tstatic.fluid.layers", ("tstatic.fluid.layers",)),
}

# Classes that users get from calls and do not make themselves, then those that are public under other names only. Sphinx documents
# a class under the name that its definition has.
RESULTS = (
    "tstatic.static.explain.Explanation",
    "tstatic.static.explain.property_status.PropertyStatus",
    "tstatic.static.explain.FusionAnswer",
    "tstatic.static.compile.ledger.CompileRecord",
    "tstatic.static.files.checkpoint_manager.Restored",
    "tstatic.plan.report.MemoryReport",
    "tstatic.plan.plan.Plan",
    "tstatic.tools.profiler.recording.Profile",
    "tstatic.tools.profiler.paddle_trace.ProfilerResult",
    "tstatic.tools.testing.equivalence.Equivalence",
    "tstatic.tools.testing.recipe.Built",
    "tstatic.tools.testing.tolerance.Difference",
    "tstatic.runtime.scope.ScopeVar",
    "tstatic.runtime.random.RandomState",
    "tstatic.comm.process_collectives.Group",
    "tstatic.nn.layer.layers.HookRemover",
    "tstatic.tools.interop.from_torch.TorchProgram",
    "tstatic.ir.types.DType",
    "tstatic.distributed.fleet.older.OlderRoleMaker",
    "tstatic.optimizer.averages.FluidModelAverage",
)

# Modules whose names are all on the page of the package above them, or in other words of Paddle.
REPEATS = ("tstatic.tensor",)

FAMILIES = {
    "elementwise": "Element by element",
    "reduce": "Reductions and order",
    "matmul": "Products of matrices",
    "shape": "Shapes and layout",
    "indexing": "Indexing",
    "random": "Random numbers",
    "control": "Control flow",
    "creation": "Creation",
}
"""Package of ops below ``tstatic/ops`` -> heading on the page of the top module."""


@cache
def names() -> dict[str, Any]:
    """Returns every public path and what it leads to, those of ``tstatic.testing``, all errors and ``RESULTS`` too."""
    found = dict(surface.walk())
    found |= {f"tstatic.testing.{name}": getattr(testing, name) for name in testing.__all__}
    raised = {n: v for n, v in vars(errors).items() if isinstance(v, type) and v.__module__ == errors.__name__}
    found |= {f"tstatic.errors.{name}": value for name, value in raised.items() if issubclass(value, Exception)}
    found |= {path: imported(path) for path in RESULTS}
    found |= {
        f"{e.__module__}.{e.__name__}": e for e in below(errors.TstaticError) if e.__module__ == "tstatic.io.errors"
    }
    return {path: value for path, value in found.items() if not path.startswith(tuple(f"{r}." for r in REPEATS))}


def below(cls: type) -> Iterator[type]:
    """Yields all classes that derive from one, and are in the package."""
    for one in cls.__subclasses__():
        if one.__module__.startswith("tstatic."):
            yield one
            yield from below(one)


def imported(path: str) -> Any:
    """Returns what a dotted path leads to, or ``None``."""
    module, _, name = path.rpartition(".")
    if not module:
        return None
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


def is_shared(value: Any) -> bool:
    """Whether an object is documented once, however many names it has."""
    return inspect.isroutine(value) or inspect.isclass(value)


@cache
def first_names() -> dict[int, str]:
    """Returns the first public path of each function, and of each class the first that ends in its own name, by ``id``."""
    found: dict[int, str] = {}
    for path, value in names().items():
        if is_shared(value):
            found.setdefault(id(value), path)
            known = found[id(value)].rpartition(".")[2]
            if inspect.isclass(value) and known != value.__name__ == path.rpartition(".")[2]:
                found[id(value)] = path
    return found


@cache
def targets() -> dict[str, str]:
    """Returns where names that appear in docstrings and annotations are documented: name -> first public path.

    The names are all public paths, the paths of the definitions (``tstatic.ir.program.Variable``), and the last part of either:
    of several objects with one last part, that of the earliest of ``PREFERRED``.
    """
    found: dict[str, str] = {}
    last: dict[str, set[str]] = {}
    for path, value in names().items():
        if is_shared(value):
            first = first_names()[id(value)]
            for name in (path, *(f"{m}.{value.__qualname__}" for m in (value.__module__, public_of(value.__module__)))):
                found.setdefault(name, first)
                last.setdefault(name.rpartition(".")[2], set()).add(first)
    for name, firsts in last.items():
        found.setdefault(name, min(firsts, key=_preference))
    return found


PREFERRED = ("tstatic.errors", "tstatic.nn.functional", "tstatic", "tstatic.static", "tstatic.static.nn", "tstatic.nn")


def _preference(path: str) -> tuple[int, str]:
    module = path.rpartition(".")[0]
    return PREFERRED.index(module) if module in PREFERRED else len(PREFERRED), path


# ---------------------------------------------------------------------------------------------------------------- pages
def page_of(module: str) -> str:
    """Returns the page that a module is on: the page that names it, or the nearest package above it."""
    pages = {name: page for page, (_, modules) in PAGES.items() for name in modules}
    at = module
    while at not in pages and "." in at:
        at = at.rpartition(".")[0]
    if not module:
        return "results"
    return pages[at] if at in pages and (at != "tstatic" or module == "tstatic") else _not_placed(module)


def _not_placed(module: str) -> str:
    raise LookupError(f"the public module {module} is on no page of the API reference: add it to PAGES in {__file__}")


def write() -> None:
    """Writes all pages; a page whose text has not changed keeps its time, so that Sphinx does not read it again."""
    by_module: dict[str, dict[str, Any]] = {}
    for path, value in names().items():
        module, _, name = path.rpartition(".") if path not in RESULTS else ("", "", path)
        by_module.setdefault(module, {})[name] = value
    on_page: dict[str, list[str]] = {}
    for module in by_module:
        on_page.setdefault(page_of(module), []).append(module)
    for page, (title, _) in PAGES.items():
        lines = [title, "=" * len(title), ""]
        for module in on_page[page]:
            special = {"variable": _variable, "results": _results}.get(page)
            lines += special(by_module[module]) if special else _module(module, by_module[module])
        text = "\n".join(lines) + "\n"
        path = FOLDER / f"{page}.rst"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def _heading(text: str, line: str) -> list[str]:
    return [text, line * len(text), ""]


def _module(module: str, members: dict[str, Any]) -> Iterator[str]:
    """Yields the lines of a module: its own objects, then its values, then names of objects that are documented elsewhere."""
    own = {n: v for n, v in members.items() if is_shared(v) and first_names()[id(v)] == f"{module}.{n}"}
    others = {n: v for n, v in members.items() if is_shared(v) and n not in own}
    values = [n for n, v in members.items() if not is_shared(v)]
    if module != PAGES[page_of(module)][0]:  # else the page has this heading already
        yield from _heading(module, "-")
    yield from (f".. py:module:: {module}", "")
    if len(own) > 6:  # what there is, on one screen; a page's own list of contents has the headings only
        yield from (" · ".join(f":py:obj:`{name} <{module}.{name}>`" for name in own), "")
    groups: dict[str, dict[str, Any]] = {}
    for name, value in own.items():
        groups.setdefault(_group(value) if module == "tstatic" else "", {})[name] = value
    for heading in sorted(groups, key=lambda h: (h not in FAMILIES.values(), h)):
        if heading:
            yield from _heading(heading, "~")
        for name, value in groups[heading].items():
            yield from _entry(f"{module}.{name}", value)
    if values:
        yield from ("Values: " + ", ".join(f"``{name}``" for name in values) + ".", "")
    if others:
        links = (f":py:obj:`{name} <{first_names()[id(value)]}>`" for name, value in others.items())
        yield from (f"Names of ``{module}`` that are documented elsewhere: " + ", ".join(links) + ".", "")


def _group(value: Any) -> str:
    """Returns the heading under which a function of the top module stands."""
    parts = getattr(value, "__module__", "").split(".")
    return FAMILIES.get(parts[2], "Other functions of tensors") if parts[:2] == ["tstatic", "ops"] else "Settings"


def _entry(path: str, value: Any, arguments: str = "") -> Iterator[str]:
    if not inspect.isclass(value):
        yield from (f".. autofunction:: {path}", "")
        return
    yield f".. autoclass:: {path}{arguments}"
    yield "   :members:"
    if ORIGIN in vars(value):  # the same class with older parameters: its definition has one entry, under the original
        yield "   :no-index:"
    if issubclass(value, enum.Enum):
        yield "   :undoc-members:"
    elsewhere = [
        n for n, v in vars(value).items() if inspect.isclass(v) and v.__qualname__ != f"{value.__qualname__}.{n}"
    ]
    if elsewhere:  # classes that are attributes, and defined outside
        yield f"   :exclude-members: {', '.join(elsewhere)}"
    yield ""


def _results(members: dict[str, Any]) -> Iterator[str]:
    """Yields the lines of the classes that users get from calls: without arguments, because users do not make them."""
    for path, value in members.items():
        yield from _entry(path, value, arguments="()")


def _variable(members: dict[str, Any]) -> Iterator[str]:
    """Yields the lines of the methods of Variables; those that are functions too are links."""
    variable = first_names()[id(Variable)]
    yield "A Variable is what layers return and take: the name of a value in a program, with shape and dtype."
    yield f"The class is :py:class:`{variable}`."
    yield "``x.method(...)`` is the function with ``x`` as its first argument."
    yield "Operators (``x + y``, ``x @ y``, ``x[1:3]``) build ops, too."
    yield ""
    functions, methods = [], []
    for name, value in members.items():
        first = first_names().get(id(value), "")
        if first and not first.startswith("Variable."):
            functions.append(f":py:obj:`{name} <{first}>`")
        elif not name.startswith("__") and inspect.isroutine(value) and value.__doc__:
            methods.append(name)
    yield from _heading("Methods that are functions as well", "-")
    yield from (" · ".join(functions), "")
    documented = {name for name in methods if name in vars(Variable)}  # on the page of the class
    yield from _heading("Methods", "-")
    yield from (" · ".join(f":py:obj:`{name} <{variable}.{name}>`" for name in sorted(documented)), "")
    for name in sorted(set(methods) - documented):
        yield from (f".. automethod:: {variable}.{name}", "")


# ----------------------------------------------------------------------------------------------------------- resolution
class PublicNames(PythonDomain):
    """Sphinx's domain of Python without its search for names that end alike, which takes minutes; ``resolve`` replaces it."""

    def find_obj(
        self,
        env: BuildEnvironment,
        modname: str | None,
        classname: str | None,
        name: str,
        type: str | None,
        searchmode: int = 0,
    ) -> list[tuple[str, ObjectEntry]]:
        """Finds objects by exact name."""
        return super().find_obj(env, modname, classname, name, type, 0)


def resolve(app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element) -> nodes.Element | None:
    """Resolves a Python name that Sphinx did not find: to the entry under the object's first public name.

    What exists and is not public becomes plain text; what does not exist is a warning.
    """
    if node.get("refdomain") != "py":
        return None
    name = re.sub(r"^paddle\.", "tstatic.", node["reftarget"].lstrip("."))
    for target in _candidates(name, node):
        found = env.domains.python_domain.resolve_xref(env, node["refdoc"], app.builder, "obj", target, node, content)
        if found is not None:
            return found
    is_prose = node["reftype"] == "class" and (
        node.get("refspecific") or not name.replace(".", "").isidentifier()
    )  # "Returns: Losses, by step: ..." read as a type
    return content if is_prose or _is_internal(name, node) else None


def _is_internal(name: str, node: pending_xref) -> bool:
    """Whether a name exists and is not public: by its full path, in the class at hand, or beside that in its file."""
    cls = names().get(f"{node.get('py:module')}.{node.get('py:class')}")
    beside = imported(f"{cls.__module__}.{name}") if inspect.isclass(cls) else None
    return imported(name) is not None or beside is not None or hasattr(cls, name)


def _candidates(name: str, node: pending_xref) -> Iterator[str]:
    known = targets()
    for at in (name, f"tstatic.{name}", name.rpartition(".")[2] if name.startswith("tstatic.") else name):
        if at in known:
            yield known[at]
    # A method that the class at hand, or one that is named, has from one of its bases.
    owner, _, method = name.rpartition(".")
    path = known.get(owner) or known.get(f"tstatic.{owner}") or f"{node.get('py:module')}.{node.get('py:class')}"
    for base in getattr(names().get(path), "__mro__", ()):
        if id(base) in first_names():
            yield f"{first_names()[id(base)]}.{method}"


def say_what_it_is(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Keeps napoleon from reading the docstring of a property, ``Losses, by step: ...``, as a type and its description."""
    if what in ("property", "attribute", "data"):
        lines.insert(0, "")


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the extension."""
    app.connect("autodoc-process-docstring", say_what_it_is, priority=400)
    app.add_domain(PublicNames, override=True)
    app.connect("builder-inited", lambda app: write())
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
