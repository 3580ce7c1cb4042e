"""Runs work as a user who may write nothing: a forked child of root gives up its rights."""

from __future__ import annotations

import os
import shutil
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NOBODY = 65534
IS_ROOT = os.geteuid() == 0


def as_nobody(work: Callable[[], Any]) -> str:
    """Runs ``work`` in a forked child without rights; returns what it returned as text, or the traceback of what it raised.

    Where the tests run as another user than root, the child keeps that user's rights, and folders that must not be written
    need a mode that says so. What ``work`` imports must be imported already: the child may not be able to read it.
    """
    told, tell = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads, which are idle here
        child = os.fork()
    if child == 0:
        try:
            os.close(told)
            if IS_ROOT:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            text = str(work())
        except BaseException:
            text = traceback.format_exc()
        try:
            with os.fdopen(tell, "w", encoding="utf-8", errors="replace") as pipe:
                pipe.write(text)
        finally:
            os._exit(0)
    os.close(tell)
    with os.fdopen(told, encoding="utf-8", errors="replace") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


@contextmanager
def open_folder() -> Iterator[Path]:
    """Makes a folder that every user can read, unlike those below ``tmp_path``."""
    folder = Path(tempfile.mkdtemp(prefix="open-", dir="/tmp"))
    try:
        folder.chmod(0o755)
        yield folder
    finally:
        shutil.rmtree(folder)
