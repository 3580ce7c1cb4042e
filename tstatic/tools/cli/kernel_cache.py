"""The command ``cache``: generated kernels on disk."""

from __future__ import annotations

import time
from typing import Any

from tstatic.display import counted, size
from tstatic.fusion.engine import cache
from tstatic.tools.cli.outcome import ENVIRONMENT, OK, CommandError, Outcome, Table

ACTIONS = ("list", "size", "clear")
SHOWN = 20
"""Kernels in the table, those that were used last."""


def kernel_cache(action: str = "list") -> Outcome:
    """Lists the generated kernels on disk, says how much they take, or removes them."""
    if action not in ACTIONS:
        raise CommandError(f"cache takes one of {', '.join(ACTIONS)}, and not {action!r}")
    folder, reason = cache.objection()
    if action == "clear":
        removed = cache.clear()
        return Outcome(
            {"folder": str(folder), "removed_bytes": removed}, (f"removed {size(removed)} from {folder.parent}",)
        )
    found = sorted(cache.entries(), key=lambda one: -one[1].st_mtime)
    total = sum(info.st_size for _, info in found)
    data: dict[str, Any] = {
        "folder": str(folder),
        "not_used_because": reason,
        "bytes": total,
        "limit_bytes": cache.LIMIT_BYTES,
        "count": len(found),
    }
    if action == "list":
        data["kernels"] = [{"file": str(path), "bytes": info.st_size, "used": info.st_mtime} for path, info in found]
    head = f"{folder.parent}: {counted(len(found), 'kernel')}, {size(total)} of at most {size(cache.LIMIT_BYTES)}"
    parts: list[str | Table] = [head] if reason is None else [head, f"The folder is not used: {reason}"]
    if action == "list" and found:
        rows = [
            (
                path.stem[:-52],
                path.parent.name,
                size(info.st_size),
                time.strftime("%Y-%m-%d %H:%M", time.localtime(info.st_mtime)),
            )
            for path, info in found[:SHOWN]
        ]
        parts.append(Table("", ("kernel", "folder", "size", "last used"), rows))
        if len(found) > SHOWN:
            parts.append(f"and {len(found) - SHOWN:,} that were used before; --json lists them, too")
    return Outcome(data, parts, OK if reason is None else ENVIRONMENT)
