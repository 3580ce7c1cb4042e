"""Everything that a folder holds, for comparisons: content, kind, mode, owner, times and identity of each entry."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

Entry = tuple[object, ...]


def snapshot(*roots: Path) -> dict[str, Entry]:
    """Returns path -> what is known of it, for folders and all that is below them; links are not followed.

    Times of access are left out. A file is read without changing it; kinds that wait when they are opened are not opened.
    """
    found: dict[str, Entry] = {}
    pending = [str(root) for root in roots]
    for path in pending:
        info = os.lstat(path)
        content: object = None
        if stat.S_ISDIR(info.st_mode):
            names = sorted(os.listdir(path))
            content = tuple(names)
            pending += [os.path.join(path, name) for name in names]
        elif stat.S_ISLNK(info.st_mode):
            content = os.readlink(path)
        elif stat.S_ISREG(info.st_mode):
            content = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        found[path] = (
            info.st_mode, info.st_uid, info.st_gid, info.st_ino, info.st_dev, info.st_rdev, info.st_nlink, info.st_size,
            info.st_mtime_ns, info.st_ctime_ns, content,
        )  # fmt: skip
    return found
