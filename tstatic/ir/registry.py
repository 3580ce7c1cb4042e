"""Registries whose entries are loaded when they are asked for, and the index that says which module registers what.

Nobody edits the index: whoever imports all modules of a source tree writes it down, beside Python's own bytecode, with
checksums over the names, sizes and times of the sources. A wheel brings one along, and none is written there. An index that fits
the sources has every public name, so what it lacks does not exist. Of op types it only says where to look first. Without an
index everything is imported.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import zlib
from collections.abc import Iterator, MutableMapping
from importlib import import_module
from importlib.util import cache_from_source
from pathlib import Path
from pkgutil import get_data, walk_packages
from types import ModuleType
from typing import Any, TypeVar

from tstatic.aliases import WINGS, absent
from tstatic.forks import computing

V = TypeVar("V")

# The package's folder, in which `ir` lies.
ROOT = Path(__file__).parents[1]
SHIPPED = "index.json"
LEARNED = Path(cache_from_source(str(ROOT / "index.py"))).with_name(SHIPPED)

PACKAGES = ("ops", "nn", "autodiff", "optimizer", "comm", "static", "io", "metric", "extras", "tools.profiler")
"""All of their modules are imported to fill the registries."""
SOURCES = (*PACKAGES, "ir", "runtime")
"""Packages with modules that register something; the last two are imported by others."""
FACADES = ("fluid", "distributed")
"""Public modules that register nothing, but have names that an error message may suggest."""


# ---------------------------------------------------------------------------------------------------------------- index
def _fingerprint() -> tuple[int, int]:
    """Returns checksums over the names and sizes of the sources that register something, and over their times."""
    names, times = [], []
    pending = [one.replace(".", "/") for one in SOURCES]
    for folder in pending:
        with os.scandir(os.path.join(ROOT, folder)) as entries:
            for entry in sorted(entries, key=lambda e: e.name):
                if entry.name.endswith(".py"):
                    facts = entry.stat()
                    names.append(f"{folder}/{entry.name} {facts.st_size}")
                    times.append(str(facts.st_mtime_ns))
                elif entry.name != "__pycache__" and entry.is_dir():
                    pending.append(f"{folder}/{entry.name}")
    return zlib.crc32("\n".join(names).encode()), zlib.crc32("\n".join(times).encode())


def _read() -> dict[str, str]:
    """Returns key -> module from the first index that fits the sources; empty if there is none."""
    fingerprint: tuple[int, int] | None = None
    with contextlib.suppress(OSError):  # in a zip archive there is nothing to compare
        fingerprint = _fingerprint()
    for shipped in (False, True):
        try:
            text = (get_data("tstatic", SHIPPED) if shipped else LEARNED.read_bytes()) or b""
            found = json.loads(text)
            # Installers set times as they like, so what a wheel brings has none.
            if fingerprint is None or tuple(found["sources"]) == fingerprint[: 1 if shipped else 2]:
                return {key: module for module, keys in found["modules"].items() for key in keys}
        # A damaged index counts as none.
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            continue
    return {}


def _write(sources: tuple[int, ...]) -> None:
    """Writes down what is registered where; a folder that cannot be written to is left as it is.

    So is what came as a wheel: ``pip uninstall`` removes nothing but what the wheel brought.
    """
    if (ROOT / SHIPPED).exists():
        return
    modules: dict[str, list[str]] = {}
    for key, module in sorted(_registered.items()):
        modules.setdefault(module, []).append(key)
    text = json.dumps({"sources": sources, "modules": modules})
    # Written aside and renamed: readers find the old or the new one, and two writers do not share a file.
    temporary = LEARNED.with_name(f"{SHIPPED}.{os.getpid()}.{threading.get_ident()}")
    with contextlib.suppress(OSError):
        LEARNED.parent.mkdir(exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, LEARNED)


INDEX: dict[str, str] = _read()
"""Public name or op type -> the module that registers it."""
_registered: dict[str, str] = {}
_state = threading.local()
_complete = False


def load(module: str) -> ModuleType:
    """Imports a module; a fork in another thread waits for that, because the child would wait for ever to import it."""
    with computing():
        return import_module(module)


def load_all() -> None:
    """Imports every module that registers something.

    Several threads may do so at once: the only locks held are the import system's.
    """
    global _complete
    # By thread: a module's body that iterates over a registry while all are loaded sees what is there so far.
    if _complete or getattr(_state, "loading", False):
        return
    _state.loading = True
    try:
        sources: tuple[int, ...] = ()
        with contextlib.suppress(OSError):
            sources = _fingerprint()
        with computing():
            for name in (*PACKAGES, *FACADES):
                try:
                    module = import_module(f"tstatic.{name}")
                except ModuleNotFoundError as error:
                    if error.name not in WINGS:
                        raise
                    # What lies there does not exist in this process; others may have it.
                    sources = ()
                    continue
                for one in sorted(m.name for m in walk_packages(getattr(module, "__path__", ()), f"tstatic.{name}.")):
                    import_module(one)
        _complete = True
    finally:
        _state.loading = False
    if sources and any(INDEX.get(key) != module for key, module in _registered.items()):
        _write(sources)
        INDEX.update(_registered)


def _registering() -> dict[str, Any]:
    """Returns the globals of the module whose body is running: the one to import for what it registers."""
    # Past helpers of other modules (`unary_op`, `register_update`): the body that called them is what has to run again.
    frame = sys._getframe(2)
    while frame.f_code.co_name != "<module>" and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_globals


_whole: set[str] = set()
"""Modules that registered something and whose bodies have run to the end."""


def _is_whole(module: str) -> bool:
    """Returns whether a module's body has run to the end; after an import that failed, it has not."""
    if module not in _whole:
        found = sys.modules.get(module)
        if found is None or getattr(found.__spec__, "_initializing", False):
            return False
        _whole.add(module)
    return True


class Registry(MutableMapping[str, V]):
    """A dict that imports the module of a key that is asked for, and all of them before it is iterated over.

    Attributes:
        loaded: The entries of the modules that are imported already, and of those whose import is under way or failed.
        version: Another object after each entry that is added, replaced or removed; what is made from ``loaded`` is kept with it.
    """

    def __init__(self) -> None:
        self.loaded: dict[str, V] = {}
        self.version = object()
        # The globals of the bodies that registered them: each execution of a module has its own.
        self._bodies: dict[str, dict[str, Any]] = {}

    def add(self, key: str, value: V) -> None:
        """Registers an entry, from the body of the module that defines it.

        A body that runs again, because an exception (Ctrl-C, for one) broke off the import, replaces what it registered.
        """
        body = _registering()
        module = str(body.get("__name__", ""))
        if key in self.loaded:
            before = self._bodies.get(key, body)
            again = before is not body and before.get("__name__") == module
            assert again, f"{key} is registered twice"
        if module.startswith("tstatic."):
            _registered[key] = module
        self._bodies[key] = body
        self[key] = value

    def find(self, key: str) -> V | None:
        """Returns the entry if it is loaded or in the index; ``None`` says nothing about other modules.

        What a module has registered counts once its body has run to the end, or in the thread that runs it.
        """
        module = _registered.get(key) or INDEX.get(key)
        if module is not None and (key not in self.loaded or not _is_whole(module)):
            try:
                load(module)
            except ModuleNotFoundError as error:
                # An index may name a module that is gone; one that fails on an import of its own is an error.
                if error.name != module:
                    raise absent(key, error) from None
        return self.loaded.get(key)

    def is_final(self, key: str) -> bool:
        """Returns whether an entry is loaded, and no import that is under way or failed will replace it."""
        return key in self.loaded and _is_whole(_registered.get(key, __name__))

    def __contains__(self, key: object) -> bool:
        """Whether there is such an entry; for a public name that does not exist, loads nothing where an index fits."""
        if INDEX and "." in str(key) and key not in INDEX and key not in self.loaded:
            return False
        return super().__contains__(key)

    def below(self, prefix: str) -> list[str]:
        """Returns the public names ``prefix.name`` without the prefix, sorted; loads nothing where an index fits."""
        if not INDEX:
            load_all()
        start = f"{prefix}."
        found = {key[len(start) :] for key in (*INDEX, *self.loaded) if key.startswith(start)}
        return sorted(name for name in found if "." not in name)

    def __getitem__(self, key: str) -> V:
        found = self.find(key)
        if found is None:
            load_all()
            return self.loaded[key]
        return found

    def __setitem__(self, key: str, value: V) -> None:
        self.loaded[key] = value
        self.version = object()  # a number that two threads raise at once could come twice

    def __delitem__(self, key: str) -> None:
        del self.loaded[key]
        self.version = object()

    def __iter__(self) -> Iterator[str]:
        """Iterates in sorted order, whatever was loaded first."""
        load_all()
        return iter(sorted(self.loaded))

    def __len__(self) -> int:
        load_all()
        return len(self.loaded)
