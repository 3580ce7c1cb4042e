"""The file of kernels that goes to a machine with a GPU: how it is written and read, and the lines that results are made of.

Only the arrays need numpy: what goes wrong with it must still be said in a line.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]

HEAD = "head.json"
MADE = "made"
"""The kind of an input that the kernel before must have made: numbers at random would make no sense of it."""
MARGIN = 3.0
"""How much farther from the exact values than the ops themselves a kernel may be."""
MOST_BYTES = 8 * 2**20
"""What a pack may take: it is carried to another machine."""
LIBTRITON = "GPU_BENCH_LIBTRITON"
"""Variable by which a process that knows the hash of Triton's library tells it to those it starts: it takes a second each."""
MOST_FOLDER_BYTES = 40 * 2**20
"""What its folder may take, with all that travels in it."""


def write(path: Path, head: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Writes the cases and the arrays that they name."""
    import numpy as np

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr(HEAD, json.dumps(head))


def folder_bytes(folder: Path) -> int:
    """Bytes of all files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def read_head(path: Path) -> Json:
    """``commit``, ``cases`` and ``skipped``; needs no library."""
    with zipfile.ZipFile(path) as file:
        head: Json = json.loads(file.read(HEAD))
    return head


def read(path: Path) -> Json:
    """The head, and ``arrays``."""
    import numpy as np

    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files if name != HEAD}
    return {**read_head(path), "arrays": arrays}


def digest(case: Mapping[str, Any]) -> str:
    """The same for cases whose kernels are: their texts, launches and ways, at both sizes."""
    parts = [
        [case[size].get(k) for k in ("text", "launches", "ways", "inputs", "outputs")] for size in ("check", "time")
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def changed(cases: Sequence[Json], record: Path | None) -> list[Json]:
    """The cases that a record of first contact does not have, or not with these kernels, or not as good ones."""
    lines = Lines(record.parent, record.stem, 0.0).read() if record is not None else []
    known = {
        line["name"]: line.get("digest")
        for line in lines
        if line["what"] == "case" and "error" not in line and line.get("check", {}).get("right")
    }
    return [case for case in cases if known.get(case["name"]) != digest(case)]


class Lines:
    """A file that gets a line of JSON for each thing that is known, and is on disk after each.

    Several processes may append at once: a line is one write.

    Args:
        folder: The folder of results; it is made.
        name: Of the file, without its ending.
        begun: When the seconds of ``at`` began (``time.time``).
    """

    def __init__(self, folder: Path, name: str, begun: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{name}.jsonl"
        self.begun = begun

    def add(self, what: str, **content: Any) -> None:
        """Appends a line."""
        line = json.dumps({"what": what, "at": round(time.time() - self.begun, 3), **content}, default=str)
        with self.path.open("ab", buffering=0) as file:
            file.write(f"{line}\n".encode())
            os.fsync(file.fileno())

    def read(self) -> list[Json]:
        """All lines; one that a killed process left unfinished is left out."""
        found = []
        for line in self.path.read_text().splitlines() if self.path.exists() else []:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found


def described(error: BaseException) -> str:
    """An exception in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:2000]
