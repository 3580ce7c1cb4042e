"""Every name that an error, a page or a docstring offers exists."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tstatic
import tstatic.testing
from tests.helpers import source
from tstatic import logs, static, unsupported
from tstatic.distributed import fleet
from tstatic.distributed.fleet import older
from tstatic.fusion.engine import reasons

ROOT = source.ROOT
LIBRARY = source.files()
PAGES = [
    p
    for p in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
    if p.name != "api.md"
]
DOTTED = re.compile(r"(?<![\w./'\"<>-])([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?![\w/*])")
SPAN = re.compile(r"``?([^`\n]+)``?")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
DECLINED = re.compile(
    rf"^\|[^|]*(?=\| (?:{'|'.join(re.escape(entry.why) for entry in unsupported.UNSUPPORTED)}) \|)",
    re.MULTILINE | re.IGNORECASE,
)
"""The names in a row of a table that says why tstatic does not have them."""

# What the first part of a dotted name means in messages and pages: a module, or what samples call such a thing.
ROOTS: dict[str, tuple[Any, ...]] = {
    "paddle": (tstatic,),
    "tstatic": (tstatic,),
    **{name: (getattr(tstatic, name),) for name in ("static", "nn", "fluid", "io", "distributed", "metric", "testing")},
    "optimizer": (tstatic.optimizer, tstatic.optimizer.Optimizer),
    "initializer": (tstatic.nn.initializer,),
    **dict.fromkeys(("exe", "executor", "Executor"), (static.Executor,)),
    **dict.fromkeys(("compiled", "CompiledProgram"), (static.CompiledProgram,)),
    **dict.fromkeys(("program", "Program"), (static.Program,)),
    **dict.fromkeys(("build_strategy", "BuildStrategy"), (static.BuildStrategy,)),
    **dict.fromkeys(("exec_strategy", "ExecutionStrategy"), (static.ExecutionStrategy,)),
    "fleet": (tstatic.distributed.fleet, older.fleet),
    "strategy": (
        static.BuildStrategy,
        static.ExecutionStrategy,
        fleet.DistributedStrategy(),
        older.DistributedStrategy,
    ),
    "Variable": (static.Variable,),
}
LOGGERS = set(logs.TOPICS.values())


def exists(value: Any, parts: Sequence[str]) -> bool:
    """Whether attributes lead on from ``value``; what an instance has besides its class's names is known only as it runs."""
    for part in parts:
        if not hasattr(value, part):
            if not isinstance(value, ModuleType):
                return False
            try:
                value = importlib.import_module(f"{value.__name__}.{part}")
            except ImportError:
                return False
            continue
        value = getattr(value, part)
        if not isinstance(value, (type, ModuleType)):
            break
    return True


def missing(name: str) -> str:
    """The name, if its first part is one of ours and the rest leads nowhere; a last part ``x`` or ``name`` stands for any."""
    first, *rest = name.split(".")
    if name in LOGGERS or rest[-1] in ("x", "name") or any(exists(root, rest) for root in ROOTS.get(first, ())):
        return ""
    return name if first in ROOTS else ""


def advice_of(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The literal texts of all ``fix=`` arguments."""
    for node in nodes:
        if isinstance(node, ast.keyword) and node.arg == "fix":
            parts = [n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
            yield " ".join(parts)


def docstrings_of(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            yield from SPAN.findall(ast.get_docstring(node) or "")


def texts(path: Path) -> list[str]:
    """What a file offers: advice and docstrings of a module, code in the prose of a page."""
    if path.suffix == ".md":
        return SPAN.findall(DECLINED.sub("", FENCE.sub("", source.text(path))))
    return [*advice_of(source.nodes(path)), *docstrings_of(source.nodes(path))]


def dotted(text: str) -> list[str]:
    return [name for name in DOTTED.findall(text) if not name.endswith((".py", ".md", ".npz", ".json", ".txt"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_names_on_a_page_exist(page: Path) -> None:
    assert [m for text in texts(page) for name in dotted(text) if (m := missing(name))] == []


def test_names_that_a_table_declines_are_not_offered() -> None:
    why = unsupported.UNSUPPORTED[0].why
    assert DECLINED.sub("", f"| `paddle.relu6x` | {why} | `paddle.relux` |") == f"| {why} | `paddle.relux` |"
    assert "relu6x" in DECLINED.sub("", "| `paddle.relu6x` | It is fast | `paddle.relux` |")


def test_names_in_errors_and_docstrings_exist() -> None:
    found = [f"{p.relative_to(ROOT)}: {m}" for p in LIBRARY for t in texts(p) for n in dotted(t) if (m := missing(n))]
    assert found == []


@pytest.mark.parametrize("entry", unsupported.UNSUPPORTED, ids=lambda e: e.names[0])
def test_what_stands_instead_of_a_missing_name_exists(entry: unsupported.Unsupported) -> None:
    assert [m for name in dotted(entry.use) if (m := missing(name))] == []


def test_what_the_reasons_of_fusions_advise_exists() -> None:
    advised = [reasons.explain_code(code, value="x", reader="relu")[1] for code in sorted(reasons.REASONS)]
    assert advised
    assert [m for text in advised for name in dotted(text) if (m := missing(name))] == []


@pytest.mark.parametrize("name", ["paddle.relu6x", "static.nn.sequence_nothing", "exe.runs", "build_strategy.fuse_all"])
def test_a_name_that_does_not_exist_is_noticed(name: str) -> None:
    assert missing(name)


@pytest.mark.parametrize("module", [tstatic, static, tstatic.nn, tstatic.fluid, tstatic.io, tstatic.optimizer])
def test_dir_lists_public_names_alone(module: ModuleType) -> None:
    names = [name for name in dir(module) if not name.startswith("__")]
    assert len(names) > 5
    assert {"facade", "facade_module", "compiled_program", "annotations", "Any", "np"}.isdisjoint(names)
