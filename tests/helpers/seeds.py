"""Reads the samples of the seed documents: prompts removed, line breaks and indentation restored, nothing else changed."""

from __future__ import annotations

import os
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Sample:
    """One sample: the document it stands in, its number there, and its code."""

    document: str
    number: int
    code: str

    @property
    def name(self) -> str:
        return f"{self.document}-{self.number}"

    @property
    def data_parallel(self) -> bool:
        """Whether it names several devices."""
        return "ParallelExecutor(" in self.code or "with_data_parallel" in self.code


def folder() -> Path | None:
    """The folder that ``TSTATIC_SEEDS`` names."""
    named = os.environ.get("TSTATIC_SEEDS")
    return Path(named) if named and Path(named).is_dir() else None


def _from_prompts(text: str) -> list[str]:
    """Samples written as one line of ``>>> a >>> b ... c``."""
    samples = []
    for line in text.splitlines():
        if not line.startswith(">>> "):
            continue
        parts = re.split(r"(?:^|\s)(?:>>>|\.\.\.)\s", line)
        samples.append("\n".join(p.strip() for p in parts if p.strip()))
    return samples


def _from_lines(text: str) -> list[str]:
    """Samples whose lines lost their indentation: the line after one that ends in a colon belongs to it."""
    samples: list[list[str]] = []
    inside = False
    indent = ""
    for line in text.splitlines():
        if line.startswith(("import ", "from ")) and not inside:
            samples.append([])
            inside = True
        if inside:
            if not re.match(r"[ -~]*$", line) or line.startswith("- "):
                inside = False
                continue
            samples[-1].append(indent + line)
            if not line.startswith("#"):
                indent = "    " if line.rstrip().endswith(":") else ""
    return [_trim(s) for s in samples]


_NO_CODE = re.compile(r"^[a-z_]+¶?$")


def _trim(lines: list[str]) -> str:
    while lines and _NO_CODE.match(lines[-1]):
        lines = lines[:-1]
    return "\n".join(lines)


def _from_rst(text: str) -> list[str]:
    """Samples in ``code-block`` directives."""
    samples = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        if lines[at].strip() != ".. code-block:: python":
            at += 1
            continue
        at += 1
        block = []
        while at < len(lines) and (not lines[at].strip() or lines[at].startswith("    ")):
            block.append(lines[at])
            at += 1
        samples.append(textwrap.dedent("\n".join(block)).strip("\n"))
    return samples


def samples() -> list[Sample]:
    """All samples, without the document that stands there in two formats."""
    root = folder()
    if root is None:
        return []
    found = []
    for path in sorted(root.glob("*.txt")):
        document, format = path.name.split(".")[:2]
        if format == "html" and (root / f"{document}.rst.txt").exists():
            continue
        text = path.read_text(encoding="utf-8")
        codes = _from_rst(text) if format == "rst" else _from_prompts(text) or _from_lines(text)
        found += [Sample(document, i, code) for i, code in enumerate(codes, 1)]
    return found
