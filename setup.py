"""Writes the stubs of ``tstatic``: what type checkers and editors see of names that are found at run time.

The sources are read and not imported, so that this runs before anything is installed. ``pip`` runs it in every build and
editable install; ``python setup.py stubs`` writes them by hand (``make stubs``).
"""

from __future__ import annotations

import ast
import builtins
import copy
import json
import runpy
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent
PACKAGE = ROOT / "tstatic"
HEAD = "# Made from the exports in the sources by setup.py.\n"
METHODS = ("Variable", "Program")
"""Classes with methods that are exported."""

Function = ast.FunctionDef
Found = tuple[str, str]
"""A module, and a name in it."""


# -------------------------------------------------------------------------------------------------------------- sources
@cache
def tree(module: str) -> ast.Module | None:
    """Returns a module's source; ``None`` for what is not of this package."""
    path = ROOT.joinpath(*module.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if module.partition(".")[0] == "tstatic" and file.exists():
            return ast.parse(file.read_text(encoding="utf-8"))
    return None


def modules() -> list[str]:
    """Returns the names of all modules of the package."""
    files = sorted(PACKAGE.rglob("*.py"))
    return [".".join(f.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for f in files]


@cache
def packages() -> frozenset[str]:
    """Returns the names of all packages."""
    return frozenset(".".join(f.parent.relative_to(ROOT).parts) for f in PACKAGE.rglob("__init__.py"))


@cache
def imported(module: str) -> dict[str, Found]:
    """Name in a module -> where it is imported from; the original name is empty for a module."""
    found: dict[str, Found] = {}
    source = tree(module)
    for node in ast.walk(source) if source else ():
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {a.asname or a.name: (node.module, a.name) for a in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.asname or a.name: (a.name, "") for a in node.names}
    return found


@cache
def defined(module: str) -> dict[str, ast.stmt]:
    """Name -> the last statement at the top of a module that defines it."""
    found: dict[str, ast.stmt] = {}
    source = tree(module)
    for node in source.body if source else ():
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
            for decorator in node.decorator_list:
                if isinstance(node, ast.FunctionDef) and calls(decorator, "parameters_of"):
                    node.args = found[decorator.args[0].id].args  # type: ignore[attr-defined]
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = node
    return found


def resolve(module: str, name: str) -> Found:
    """Follows imports within the package to where a name is defined."""
    while name not in defined(module) and name in imported(module):
        module, name = imported(module)[name]
    return module, name


def calls(node: ast.AST | None, name: str) -> bool:
    """Whether a node calls a function of that name."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def values(call: ast.expr) -> list[str]:
    """Returns the positional arguments of a call that are written out."""
    assert isinstance(call, ast.Call)
    return [a.value for a in call.args if isinstance(a, ast.Constant)]


# -------------------------------------------------------------------------------------------------------------- exports
@cache
def exports() -> dict[str, Found]:
    """Public name -> module and name of what is exported there."""
    found: dict[str, Found] = {}
    for module in modules():
        for name, node in defined(module).items():
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                for decorator in node.decorator_list:
                    if calls(decorator, "export"):
                        names = values(decorator)
                        found |= dict.fromkeys(names, (module, name))
                        if any(k.arg == "inplace" for k in decorator.keywords):  # type: ignore[attr-defined]
                            out = isinstance(node, ast.FunctionDef) and any(a.arg == "out" for a in node.args.args)
                            writing = [f"{n}_" for n in names if n.startswith(("tensor.", "Variable."))]
                            found |= dict.fromkeys(writing, (module, f"inplace({name})" if out else name))
                    elif calls(decorator, "respell"):
                        names = values(decorator)
                        found |= dict.fromkeys(names, (module, f"respell({names[0]})"))
            elif isinstance(node, ast.Assign) and calls(node.value, "functional_layer"):
                found[f"nn.{values(node.value)[0]}"] = (module, name)
        source = tree(module)
        for node in source.body if source else ():
            if isinstance(node, ast.Expr) and calls(node.value, "_legacy"):
                rule = node.value.args[0].id  # type: ignore[attr-defined]
                found |= dict.fromkeys(values(node.value)[1:], (module, f"_legacy({rule})"))
    return found


@cache
def respellings() -> dict[str, tuple[str, ast.Call]]:
    """First name of what is exported with other parameters -> the name that its original has in its module, and the decorator."""
    return {
        values(decorator)[0]: (name, decorator)
        for module in modules()
        for name, node in defined(module).items()
        for decorator in getattr(node, "decorator_list", ())
        if calls(decorator, "respell")
    }


def namespace(prefix: str) -> dict[str, Found]:
    """Returns what is exported as ``prefix.name``, by name."""
    start = f"{prefix}."
    return {n[len(start) :]: f for n, f in exports().items() if n.startswith(start) and "." not in n[len(start) :]}


# ---------------------------------------------------------------------------------------------------------------- types
class Types:
    """Writes types as text and collects the imports that the text needs.

    Args:
        within: Classes of other modules of the package become ``Any``, so that a stub of a low layer names no higher one.
    """

    def __init__(self, within: str = "tstatic.") -> None:
        self.within = within
        self.imports: set[str] = set()

    def add(self, module: str, name: str) -> str:
        self.imports.add(f"from {module} import {name}")
        return name

    def text(self, module: str, node: ast.expr | None) -> str:
        """Returns an annotation of a module as text; what is neither a class nor an alias of one is ``Any``."""
        if node is None:
            return self.add("typing", "Any")
        if isinstance(node, ast.BinOp):
            return f"{self.text(module, node.left)} | {self.text(module, node.right)}"
        if isinstance(node, ast.Subscript):
            return f"{self.text(module, node.value)}[{self.text(module, node.slice)}]"
        if isinstance(node, ast.Tuple | ast.List):
            inner = ", ".join(self.text(module, one) for one in node.elts)
            return inner if isinstance(node, ast.Tuple) else f"[{inner}]"
        if isinstance(node, ast.Constant):
            return "..." if node.value is Ellipsis else str(node.value)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner, name = imported(module)[node.value.id]
            return self.add(owner, node.attr) if not name else self.add("typing", "Any")
        assert isinstance(node, ast.Name), ast.unparse(node)
        home, name = resolve(module, node.id)
        if home == module and name not in defined(module) and hasattr(builtins, name):
            return name
        if tree(home) is None:
            return self.add(home, name)
        found = defined(home)[name]
        if isinstance(found, ast.ClassDef):
            return self.add(home, name) if home.startswith(self.within) else self.add("typing", "Any")
        if isinstance(found, ast.Assign) and not isinstance(found.value, ast.Call):
            return self.text(home, found.value)
        return self.add("typing", "Any")

    def parameters(self, module: str, rows: Iterable[tuple[ast.arg, bool]]) -> list[str]:
        """Returns ``name: type``, with ``= ...`` behind those that have a default."""
        return [f"{a.arg}: {self.text(module, a.annotation)}{' = ...' * given}" for a, given in rows]

    def signature(self, module: str, function: Function, method: bool = True) -> str:
        """Returns ``(self, x: int = ..., *, y: str) -> None``, with the first parameter of a method as ``self``."""
        args = function.args
        row = ["self"] * method + self.parameters(module, list(positional(function))[method:])
        if args.vararg:
            row.append(f"*{args.vararg.arg}: {self.text(module, args.vararg.annotation)}")
        elif args.kwonlyargs:
            row.append("*")
        row += self.parameters(module, zip(args.kwonlyargs, (d is not None for d in args.kw_defaults), strict=True))
        if args.kwarg:
            row.append(f"**{args.kwarg.arg}: {self.text(module, args.kwarg.annotation)}")
        return f"({', '.join(row)}) -> {self.text(module, function.returns)}"


def positional(function: Function) -> Iterator[tuple[ast.arg, bool]]:
    """Yields the parameters that may be given by position, and whether each has a default."""
    given = [*function.args.posonlyargs, *function.args.args]
    for i, one in enumerate(given):
        yield one, i >= len(given) - len(function.args.defaults)


# --------------------------------------------------------------------------------------------------------- made classes
def functional_layer(name: str, module: str, names: Types) -> str:
    """The stub of a class that ``functional_layer`` makes: the settings are parameters of the function that it calls."""
    made = defined(module)[name]
    assert isinstance(made, ast.Assign)
    assert isinstance(made.value, ast.Call)
    given = {k.arg: ast.literal_eval(k.value) for k in made.value.keywords}
    home, called = exports()[f"nn.functional.{values(made.value)[1]}"]
    function = defined(home)[called]
    assert isinstance(function, ast.FunctionDef)
    more = ((a, d is not None) for a, d in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True))
    rows = [*list(positional(function))[given.get("inputs", 1) :], *more]
    rows = [(a, d) for a, d in rows if a.arg not in (*given.get("without", ()), "training")]
    if "order" in given:
        rows.sort(key=lambda row: given["order"].index(row[0].arg))
    names.imports.add("from tstatic.nn.layer.functional_layer import FunctionalLayer as _FunctionalLayer")
    row = ", ".join(["self", *names.parameters(home, rows)])
    return f"class {name}(_FunctionalLayer):\n    def __init__({row}) -> None: ..."


def legacy(name: str, module: str, rule: str, names: Types) -> str:
    """The stub of an optimizer with the argument names of 1.x."""
    cls = defined(module)[rule]
    assert isinstance(cls, ast.ClassDef)
    init = next(n for n in cls.body if isinstance(n, ast.FunctionDef) and n.name == "__init__")
    old = ast.literal_eval(defined(module)["_TODAY"].value)  # type: ignore[attr-defined]
    renamed = {today: name for name, today in old.items()}
    own = {renamed.get(a.arg, a.arg): given for a, given in list(positional(init))[1:]}
    made = (n.value for n in tree(module).body if isinstance(n, ast.Expr) and calls(n.value, "_legacy"))  # type: ignore[union-attr]
    order = next(values(call)[0] for call in made if call.args[0].id == rule).split()  # type: ignore[attr-defined]
    for added in ("flatten_param_grads", "align_size", "regularization", *["use_global_beta_pow"] * (rule == "Adam")):
        own.setdefault(added, True)
    rows = [*order, "*", *(n for n in own if n not in order)]
    names.imports |= {f"from {module} import {rule} as _{rule}", "from typing import Any"}
    row = ", ".join(["self", *(n if n == "*" else f"{n}: Any{' = ...' * own[n]}" for n in rows)])
    return f"class {name}(_{rule}):\n    def __init__({row}) -> None: ..."


def constructor(module: str, name: str) -> Function | None:
    """Returns the ``__init__`` of a class, or that of its first base class with one in this package."""
    cls = defined(module).get(name)
    if not isinstance(cls, ast.ClassDef):
        return None
    own = next((n for n in cls.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    bases = (constructor(*resolve(module, base.id)) for base in cls.bases if isinstance(base, ast.Name))
    return own if own is not None else next(filter(None, bases), None)


def respelled(name: str, module: str, path: str, names: Types) -> str:
    """The stub of what ``respell`` makes: the parameters there, with the annotations of the original's."""
    original, decorator = respellings()[path]
    given = {k.arg: ast.literal_eval(k.value) for k in decorator.keywords}
    made = ast.parse(f"def {name}(self, {given['takes']}): pass").body[0]
    is_class = isinstance(defined(module)[original], ast.ClassDef)
    function = constructor(module, original) if is_class else defined(module)[original]
    assert isinstance(made, ast.FunctionDef)
    assert isinstance(function, ast.FunctionDef)
    notes = {a.arg: a.annotation for a in (*function.args.args, *function.args.kwonlyargs)}
    for one in (*made.args.args, *made.args.kwonlyargs):
        one.annotation = notes.get(given.get(one.arg, one.arg))
    made.returns = function.returns
    signature = names.signature(module, made)
    if not is_class:
        return f"def {name}{signature.replace('self, ', '', 1)}: ..."
    names.imports.add(f"from {module} import {original} as _{original}")
    return f"class {name}(_{original}):\n    def __init__{signature}: ..."


# ---------------------------------------------------------------------------------------------------------------- files
@cache
def facades() -> dict[str, ast.Call]:
    """Public module -> its call of ``facade``; modules that define something themselves are their own stubs.

    Modules without a file are calls of ``facade_module`` in their package.
    """
    found = {}
    for module in modules():
        source = tree(module)
        assert source is not None
        defines = any(isinstance(n, ast.FunctionDef | ast.ClassDef) for n in source.body)
        for node in source.body:
            call = getattr(node, "value", None)
            if isinstance(node, ast.Assign) and calls(call, "facade") and not defines:
                found[module] = call
            elif isinstance(node, ast.Expr) and calls(call, "facade_module"):
                found[place_of(f"tstatic.{values(call)[0]}")] = call
        for node in ast.walk(source):
            if calls(node, "facade_module") and not any(node is call for call in found.values()):
                raise ValueError(f"{module} calls facade_module within another statement, where no stub is made of it")
    return found


@cache
def aliases(table: str) -> dict[str, str]:
    """Returns a table of ``tstatic/aliases.py``: ``MOVED`` has old names of modules and packages, ``SAME`` has further ones."""
    made = defined("tstatic.aliases")[table]
    assert isinstance(made, ast.Assign)
    return {f"tstatic.{old}": f"tstatic.{now}" for old, now in ast.literal_eval(made.value).items()}


def renamed(module: str, names: dict[str, str]) -> str:
    """Returns another name of a module: that of the longest name in a table that it has or lies below."""
    parts = module.split(".")
    for length in range(len(parts), 1, -1):
        found = names.get(".".join(parts[:length]))
        if found is not None:
            return ".".join([found, *parts[length:]])
    return module


def place_of(module: str) -> str:
    """Returns where a module lies."""
    return renamed(module, aliases("MOVED") | aliases("SAME"))


def public_of(module: str) -> str:
    """Returns the name under which users know a module."""
    return renamed(module, {now: old for old, now in aliases("MOVED").items()})


def stub_path(module: str) -> Path:
    """Returns where a facade's stub stands; packages without files are known by what they contain."""
    path = ROOT.joinpath(*module.split("."))
    now = place_of(module)
    package = now in packages() or any(one.startswith(f"{now}.") for one in facades())
    return path / "__init__.pyi" if package else path.with_suffix(".pyi")


def facade(module: str, call: ast.Call) -> str:
    """The stub of a facade: each name from the module that defines it."""
    given = {k.arg: ast.literal_eval(k.value) for k in call.keywords}
    sources: dict[str, Found] = {name: (module, name) for name in given.get("modules", "").split()}
    for source, row in given.get("others", {}).items():
        sources |= {words[-1]: (source, words[0]) for words in map(str.split, row.split(","))}
    before = 2 if calls(call, "facade_module") else 0  # its name and docstring
    for prefix in values(call)[before:] or [public_of(module).partition(".")[2]]:
        chosen = given.get("only", "").split()
        sources |= {name: place for name, place in namespace(prefix).items() if not chosen or name in chosen}
    names = Types()
    parts = []
    for name, (source, original) in sorted(sources.items()):
        made = defined(source).get(original)
        if original.startswith("_legacy("):
            parts.append(legacy(name, source, original[len("_legacy(") : -1], names))
        elif original.startswith("inplace("):
            signature = names.signature(source, without_out(source, original), method=False)
            parts.append(f"def {name}{signature}: ...")
        elif original.startswith("respell("):
            parts.append(respelled(name, source, original[len("respell(") : -1], names))
        elif isinstance(made, ast.Assign) and calls(made.value, "functional_layer"):
            parts.append(functional_layer(original, source, names))
        else:
            names.imports.add(f"from {source} import {original} as {name}")
    listed = "\n".join(f'    "{name}",' for name in sorted(sources))
    return _file(names.imports, [*parts, f"__all__ = [\n{listed}\n]"])


def without_out(module: str, original: str) -> Function:
    """Returns the function that writes to its argument: the one that ``inplace(name)`` names, without its parameter ``out``."""
    function = copy.deepcopy(defined(module)[original[len("inplace(") : -1]])
    assert isinstance(function, ast.FunctionDef)
    at = next(i for i, a in enumerate(function.args.args) if a.arg == "out")
    del function.args.args[at], function.args.defaults[at - len(function.args.args) - 1]
    return function


def methods() -> str:
    """The stub of ``tstatic/ir/methods.py``: signatures are written out, since an import of the ops would be a circle."""
    names = Types(within="tstatic.ir.")
    parts = []
    for cls in METHODS:
        rows = []
        for name, (module, original) in sorted(namespace(cls).items()):
            writes = original.startswith("inplace(")
            function = without_out(module, original) if writes else defined(module)[original]
            assert isinstance(function, ast.FunctionDef)
            rows.append(f"    def {name}{names.signature(module, function)}: ...")
        parts.append(f"class {cls}Methods:\n" + "\n".join(rows))
    for name, function in defined("tstatic.ir.methods").items():
        if isinstance(function, ast.FunctionDef):
            parts.append(f"def {name}{names.signature('tstatic.ir.methods', function, method=False)}: ...")
    return _file(names.imports, parts)


def _file(imports: Iterable[str], parts: Iterable[str]) -> str:
    return HEAD + "\n".join(sorted(imports)) + "\n\n" + "\n\n".join(parts) + "\n"


def stubs() -> dict[Path, str]:
    """Returns every stub: path -> text. Modules with the same names pass on the stub of the first of them."""
    made = {PACKAGE / "ir" / "methods.pyi": methods()}
    written: dict[str, str] = {}
    for module, call in facades().items():
        text = facade(module, call)
        first = written.setdefault(text, module)
        made[stub_path(module)] = (
            f"{HEAD}from {first} import *\n" if first != module and text.count('",\n') > 1 else text
        )
    for module in sorted({*modules(), *facades()}):
        further = [renamed(module, {now: name}) for name, now in aliases("SAME").items()]
        for name in {public_of(module), *further} - {module}:
            made[stub_path(name)] = f"{HEAD}from {module} import *\n"
    return made


OPDEF = ("tstatic.ir.opdef", "OpDef")


def callee(module: str, call: ast.AST) -> Found:
    """Returns where the function that a call names is defined; a method of a class that is made there is ``Class.method``."""
    assert isinstance(call, ast.Call)
    function = call.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Call):
        home, name = callee(module, function.value)
        return home, f"{name}.{function.attr}"
    return resolve(module, function.id) if isinstance(function, ast.Name) else ("", "")


def functions(module: str) -> Iterator[tuple[str, Function, int]]:
    """Yields the functions of a module and the methods of its classes: name, source, and place of the first parameter."""
    for name, node in defined(module).items():
        if isinstance(node, ast.FunctionDef):
            yield name, node, 0
        for method in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(method, ast.FunctionDef):
                yield f"{name}.{method.name}", method, 1


@cache
def makers() -> frozenset[Found]:
    """Returns what defines an op of the type that is its first argument: it passes it on to OpDef, or to such a function."""
    passing = [
        ((module, name), callee(module, call))
        for module in modules()
        for name, node, first in functions(module)
        for call in (ast.walk(node) if len(node.args.args) > first else ())
        if isinstance(call, ast.Call) and call.args and getattr(call.args[0], "id", "") == node.args.args[first].arg
    ]
    found = {OPDEF}
    while more := {maker for maker, called in passing if called in found} - found:
        found |= more
    return frozenset(found)


def _types(module: str, node: ast.AST) -> Iterator[str]:
    """Yields the types of the ops that calls below a node define, outside of functions and classes."""
    for child in ast.iter_child_nodes(node):
        first = child.args[0] if isinstance(child, ast.Call) and child.args else None
        if isinstance(first, ast.Name):
            home, name = resolve(module, first.id)
            first = getattr(defined(home).get(name), "value", None)
        if isinstance(first, ast.Constant) and callee(module, child) in makers():
            yield str(first.value)
        if not isinstance(child, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            yield from _types(module, child)


def carried() -> dict[str, str]:
    """Op type -> module of an exported function that says that it is this op, if the module defines any.

    Functions that build an op type of Paddle from other ops are listed as ``"raw <type>"``.
    """
    found: dict[str, str] = {}
    for module in modules():
        made = (node for node in ast.walk(tree(module) or ast.Module()) if isinstance(node, ast.Call))
        defines = any(callee(module, call) in makers() for call in made)
        for node in defined(module).values():
            for decorator in getattr(node, "decorator_list", ()):
                if calls(decorator, "export") and defines:
                    found |= {k.value.value: module for k in decorator.keywords if k.arg == "op"}
                elif calls(decorator, "composed"):
                    found |= {f"raw {a.value}": module for a in decorator.args}
    return found


def index() -> str:
    """Returns the index that a wheel brings along: module -> public names and op types (see ``tstatic/ir/registry.py``).

    Types that are not written out, as in a loop, are those of the functions that are exported beside them. Who asks for a type
    that this lacks loads all modules.
    """
    registry = runpy.run_path(str(PACKAGE / "ir" / "registry.py"), run_name="registry")
    homes = {name: module for name, (module, _) in exports().items()} | carried()
    homes |= {text: module for module in modules() for text in _types(module, tree(module) or ast.Module())}
    found: dict[str, list[str]] = {}
    for key, module in sorted(homes.items()):
        found.setdefault(module, []).append(key)
    return json.dumps({"sources": registry["_fingerprint"]()[:1], "modules": found})


def write() -> None:
    """Writes the stubs that are not there or say something else, and removes those that nothing makes any more."""
    made = stubs()
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in set(PACKAGE.rglob("*.pyi")) - made.keys():
        path.unlink()


if __name__ == "__main__":
    write()
    if sys.argv[1:] != ["stubs"]:
        from setuptools import setup
        from setuptools.command.build_py import build_py

        class WithIndex(build_py):
            """Puts the index into the wheel; the source tree learns its own."""

            def run(self) -> None:
                super().run()
                if not self.editable_mode:
                    Path(self.build_lib, "tstatic", "index.json").write_text(index(), encoding="utf-8")

        setup(cmdclass={"build_py": WithIndex})
