"""The one registry of public names: what a function is called in the API, and the op that it is."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any, TypeVar

from tstatic.aliases import place_of, public_of
from tstatic.errors import near
from tstatic.ir.refusal import refusal
from tstatic.ir.registry import Registry, load, load_all
from tstatic.ir.respell import respelled
from tstatic.undo import HERE, note_object, take_back
from tstatic.unsupported import add_namespace, advice, refuse


@dataclass(frozen=True, slots=True)
class Export:
    """A public function: where it lives in the API, and the op that it is."""

    function: Callable[..., Any]
    op: str


PUBLIC_API: Registry[Export] = Registry()
BUILT_WITH_FLUID: list[Callable[[Any], None]] = []
"""Called with the result of an outermost call of what only ``fluid`` has; ``ir/declare.py`` marks programs by it."""
METHODS: dict[str, type] = {}
"""First part of public names that are methods -> the class that has them."""
C = TypeVar("C")
F = TypeVar("F", bound=Callable[..., Any])
_MISSPELT = re.compile(r"unexpected keyword argument '(\w+)'")


def export(*names: str, op: str = "", inplace: bool = False) -> Callable[[F], F]:
    """Registers a function under public names such as ``"tensor.tanh"``, ``"nn.functional.tanh"``, ``"fluid.layers.tanh"``.

    ``"tensor.x"`` is also ``tstatic.x``; ``"Variable.x"`` is a method. Facades find their names here alone.

    Args:
        names: The public names.
        op: The op that the function is.
        inplace: It has its names below ``tensor`` and ``Variable`` with an underscore too: Paddle's functions that write to their
            argument. As there, they return a new Variable in a program, whose plan decides what shares memory.
    """

    def add(function: F) -> F:
        of_fluid = all(name.startswith("fluid.") for name in names)
        function = notes_signature(function, names[0].removeprefix("tensor."), of_fluid=of_fluid)
        written = [f"{name}_" for name in names if inplace and name.startswith(("tensor.", "Variable."))]
        writing = _without_out(function) if written else function
        for name in (*names, *written):
            PUBLIC_API.add(name, Export(writing if name in written else function, op))
            prefix, _, leaf = name.partition(".")
            # A method that the class defines itself stays.
            if prefix in METHODS and leaf not in vars(METHODS[prefix]):
                setattr(METHODS[prefix], leaf, Method(METHODS[prefix], name, leaf))
        return function

    return add


def _without_out(function: F) -> F:
    """Returns a function without its parameter ``out``: what writes to its argument is not told where to write."""
    parameters = inspect.signature(function).parameters.values()
    if all(p.name != "out" for p in parameters):
        return function
    takes = ", ".join(str(p.replace(annotation=p.empty)) for p in parameters if p.name != "out")
    name = f"{function.__name__}_"
    made: F = notes_signature(respelled(function, name, takes, {}), name)
    return made


def respell(*names: str, takes: str, op: str = "", **renamed: str) -> Callable[[F], F]:
    """Registers a function or class under further public names, where it takes other parameters; a decorator.

    Paddle 1.x and 2.x name and order the parameters of one function differently. Each name here has the parameters of the version
    that the name belongs to; the implementation is shared. A class gets a subclass, so that ``isinstance`` holds.

    Args:
        names: Public names, as of :func:`export`.
        takes: The parameters there, as in a ``def``: ``"input, index, name=None"``.
        op: The op that the function is.
        renamed: Parameter there -> the original's parameter, where the names differ.

    Example:
        >>> @export("tensor.gather_nd")
        ... @respell("fluid.layers.gather_nd", takes="input, index, name=None", input="x")
        ... def gather_nd(x, index, name=None): ...
    """

    def add(original: F) -> F:
        export(*names, op=op)(respelled(original, names[0].rpartition(".")[2], takes, renamed))
        return original

    return add


class Method:
    """A method whose module is imported when it is looked up, on the class or an object.

    The exported function replaces it then, not before: an import that Ctrl-C breaks off would leave a function of half a module.
    """

    def __init__(self, owner: type, key: str, leaf: str) -> None:
        self._owner = owner
        self._key = key
        self._leaf = leaf

    def __get__(self, obj: Any, cls: type) -> Any:
        function = PUBLIC_API[self._key].function
        if PUBLIC_API.is_final(self._key):
            setattr(self._owner, self._leaf, function)
        return function.__get__(obj, cls)


def namespace(prefix: str) -> dict[str, Any]:
    """Returns what is spelled ``prefix.name``, by name: what a facade module shows."""
    return {name: PUBLIC_API[f"{prefix}.{name}"].function for name in PUBLIC_API.below(prefix)}


def facade(
    module: str, *prefixes: str, modules: str = "", others: Mapping[str, str] | None = None, only: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns ``__getattr__`` and ``__dir__`` of a public module: its names are imported when they are asked for.

    Args:
        module: Its ``__name__``.
        prefixes: Namespaces whose exports it shows; by default the one that users know it by. The last one wins.
        modules: Names of those of its submodules that are public.
        others: Module -> what is imported from it, as after ``from module import``: ``"Executor, cpu_places as places"``.
        only: The exports that it shows; all if empty.
    """
    public = public_of(module)
    spaces = prefixes or (public.partition(".")[2],)
    chosen = frozenset(only.split())
    sources = {
        words[-1]: (source, words[0])
        for source, names in (others or {}).items()
        for words in (part.split() for part in names.split(","))
    }

    @functools.cache
    def names() -> list[str]:
        own = {
            n for n, v in vars(sys.modules[module]).items() if n[0] != "_" and getattr(v, "__module__", "") == module
        }
        exported = {name for space in spaces for name in PUBLIC_API.below(space)}
        return sorted({*own, *modules.split(), *sources, *(exported & chosen if chosen else exported)})

    def find(name: str) -> Any:
        """Returns what the name is; raises KeyError if no module has to be searched for it."""
        shown = spaces if not chosen or name in chosen else ()
        for space in reversed(shown):
            entry = PUBLIC_API.find(f"{space}.{name}")
            if entry is not None:
                return entry.function
        if name in sources:
            source, original = sources[name]
            return getattr(load(source), original)
        # There is no such name where advice is given: no module is searched for it.
        if not advice(f"{public}.{name}".partition(".")[2]):
            if hasattr(sys.modules[module], "__path__") and find_spec(f"{module}.{name}") is not None:
                return load(f"{module}.{name}")
            for space in reversed(shown):
                if f"{space}.{name}" in PUBLIC_API:
                    return PUBLIC_API[f"{space}.{name}"].function
        raise KeyError(name)

    def get(name: str) -> Any:
        if name == "__all__":
            return names()
        if name in sources or not name.startswith("__"):
            with suppress(KeyError):
                value = find(name)
                # Python asks for a name only until the module has it.
                setattr(sys.modules[module], name, value)
                return value
        return refuse(public, name, sys._getframe(1), load_all)

    def listed() -> list[str]:
        # Without the modules and functions that its own file needs.
        kept = (name for name, value in vars(sys.modules[module]).items() if not _is_needed(value))
        return sorted({*kept, *names()})

    add_namespace(public, names)
    return get, listed


def _is_needed(value: Any) -> bool:
    """Returns whether a public module has a value for its own use only."""
    return isinstance(value, ModuleType) or getattr(value, "__module__", "") in (__name__, "__future__", "typing")


def facade_module(
    name: str, doc: str, *prefixes: str, modules: str = "", others: Mapping[str, str] | None = None, only: str = ""
) -> None:
    """Makes a public module that only passes on names, and so has no file; its package calls this when it is imported.

    The import system finds such a module among those that are loaded already: whoever imports it imports the package first.

    Args:
        name: Its name below ``tstatic``, after that of the package it is in.
        doc: Its docstring.
        prefixes: As in :func:`facade`.
        modules: As in :func:`facade`; not empty for a package.
        others, only: As in :func:`facade`.
    """
    package, _, leaf = place_of(f"tstatic.{name}").rpartition(".")
    module = module_from_spec(ModuleSpec(f"{package}.{leaf}", None, is_package=bool(modules)))
    module.__doc__ = f"``{name}``: {doc}"
    vars(module)["__getattr__"], vars(module)["__dir__"] = facade(
        module.__name__, *prefixes, modules=modules, others=others, only=only
    )
    sys.modules[module.__name__] = module
    setattr(sys.modules[package], leaf, module)


# --------------------------------------------------------------------------------------------------- the door of public calls
def notes_signature(function: F, name: str, undo: bool = True, of_fluid: bool = False) -> F:
    """Makes a function or a class's public methods note what they take when arguments do not fit, and undo what they refuse.

    Python names the inner function and, before version 3.13, no keyword like the misspelt one.

    Args:
        function: A function, which is wrapped, or a class, whose own constructor and public methods are.
        name: What users call it: ``"fluid.layers.fc"``.
        undo: Whether an exception takes back what the call has changed (see ``tstatic/undo.py``). What runs programs for hours,
            with functions of the user's in between, keeps it.
        of_fluid: Whether only ``fluid`` has it, so that a program that it builds in is one of 1.x.

    Returns:
        What to call in place of ``function``; a class itself.

    Example:
        >>> import tstatic.fluid as fluid
        >>> fluid.layers.fc(input=None, sise=10)
        Traceback (most recent call last):
        TypeError: fluid_fc() got an unexpected keyword argument 'sise'
        did you mean 'size'? fluid.layers.fc(input, size, num_flatten_dims=1, ...)
    """
    if inspect.isfunction(function):
        wrapped: F = _door(function, function, name, undo, of_fluid=of_fluid)
        return wrapped
    if inspect.isclass(function):
        for base in function.__mro__:
            # What it inherits is its own as well, unless it stands in the base class of another package.
            if base.__module__.partition(".")[0] == __name__.partition(".")[0]:
                own = base is function
                _add_doors(base, name if own else base.__name__.lstrip("_"), undo, own and of_fluid)
    return function


def _add_doors(cls: type, name: str, undo: bool, of_fluid: bool) -> None:
    restored = undo and getattr(cls, "_is_restored", False)
    for member, value in list(vars(cls).items()):
        inner = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        if not inspect.isfunction(inner) or (member.startswith("_") and member not in _CALLED):
            continue
        if member == "__init__":
            made = _door(inner, cls, name, undo, of_fluid=of_fluid)
        else:
            called = name if member == "__call__" else f"{name}.{member}"
            made = _door(inner, inner, called, undo, restored and inner is value)
        setattr(cls, member, made if inner is value else type(value)(made))


def notes_signatures(undo: bool = True) -> Callable[[type[C]], type[C]]:
    """Makes a class and its public methods do what :func:`notes_signature` says; a class decorator."""
    return lambda cls: notes_signature(cls, cls.__name__, undo)


def door(name: str, undo: bool = True) -> Callable[[F], F]:
    """Makes a public function that is not exported here do what :func:`notes_signature` says; a decorator."""
    return lambda function: notes_signature(function, name, undo)


_CALLED = ("__init__", "__call__")
"""Methods that are public though their names begin with an underscore."""


def _door(call: Any, shown: Any, name: str, undo: bool, restored: bool = False, of_fluid: bool = False) -> Any:
    """Wraps a function whose arguments ``shown`` has, too.

    Args:
        call, shown, name, undo: As in :func:`notes_signature`.
        restored: It is a method, and its object's attributes are put back, too.
        of_fluid: As in :func:`notes_signature`.
    """
    # Wrapped before, as what a class inherits: two doors would note everything twice.
    if hasattr(call, "__wrapped__") and call.__code__.co_name in ("noting", "running"):
        return call

    def misfit(error: BaseException) -> None:
        # Raised by the call itself, not inside of it: there is no frame below that of the door.
        trace = error.__traceback__
        if isinstance(error, TypeError) and trace is not None and trace.tb_next is None:
            error.add_note(_note(str(error), inspect.signature(shown), name))

    def running(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except Exception as error:
            misfit(error)
            # With the caller's frame: errors of the library's own calls pass as they are.
            typed = refusal(error, sys._getframe(1), shown, name, args, kwargs)
            if typed is not None:
                raise typed from error
            raise

    def noting(*args: Any, **kwargs: Any) -> Any:
        opened = HERE.journal
        # A call inside another one adds to its journal, and takes back its own part alone.
        journal, mark = ([], 0) if opened is None else (opened, len(opened))
        try:
            if opened is None:
                HERE.journal = journal
            if restored and args:
                # A refused method leaves its object's attributes as they were.
                note_object(args[0])
            if not of_fluid or opened is not None:
                return call(*args, **kwargs)
            result = call(*args, **kwargs)
            for noticed in BUILT_WITH_FLUID:
                noticed(result)
            return result
        # An interrupt takes back, too: half a layer must not stay in the program.
        except BaseException as error:
            take_back(journal, mark)
            misfit(error)
            typed = refusal(error, sys._getframe(1), shown, name, args, kwargs)
            if typed is not None:
                raise typed from error
            raise
        finally:
            if opened is None:
                HERE.journal = None

    return functools.wraps(call)(noting if undo else running)


def _note(message: str, signature: inspect.Signature, name: str) -> str:
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values() if p.name != "self"]
    misspelt = _MISSPELT.search(message)
    keywords = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    close = near(misspelt[1], keywords) if misspelt else ""
    takes = signature.replace(parameters=parameters, return_annotation=signature.empty)
    return f"{close} {name}{takes}".lstrip()
