"""Stores generated kernel modules as files: one per text, named by its hash, in a folder that only the user can write.

Triton reads a kernel's source with ``inspect``, so a kernel needs real text under a real path. The file serves readers,
debuggers and the next process. It is never trusted: its bytes are compared with the text just generated, and the compared
bytes are compiled. Neither a flipped bit nor another user can change what runs.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.abc
import importlib.util
import io
import linecache
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from tstatic.errors import TstaticError
from tstatic.fusion.codegen.kernel import Kernel
from tstatic.logs import get_logger, warn_once
from tstatic.version import __version__

__all__ = ["clear", "entries", "folder", "load", "objection", "shared", "store", "trim"]

_log = get_logger("kernels")

# About 14,000 modules: 17,000 that tests have made are of 19 KB in the mean.
LIMIT_BYTES = 256 * 2**20
# No younger file is removed: another process may have written but not yet read it, and clocks in a cluster differ.
YOUNG_SECONDS = 3600.0
# `_ENTRY` takes that many characters; with the hash's 64 they stay far below the 255 of a file name.
NAME_LENGTH = 40

# Only files with such names are ever removed, so other files in TSTATIC_CACHE_DIR are safe.
_ENTRY = re.compile(r"[a-z0-9_]{1,40}_[0-9a-f]{64}\.py")
_STAGED = re.compile(r"stage-[a-z0-9_]{8}\.tmp")
_FOLDERS = "kernels-*-py3.*"

# One attempt may fail because a folder is refused, one because a file changed; a third failure has another cause.
_ATTEMPTS = 3

# Unbounded: a module cannot be unloaded while its functions are referenced, a program has tens of kernels, not
# thousands, and each takes about as much memory as its text. No lock: a forked child could inherit it locked for ever.
_modules: dict[str, ModuleType] = {}
_shared: dict[bytes, tuple[str, str]] = {}
_given_up: dict[Path, str] = {}
_private: Path | None = None
_trimmed = False


class _Verified(importlib.abc.SourceLoader):
    """Imports checked bytes. It has no ``path_stats``, so ``importlib`` neither reads nor writes a pyc file."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self.data = data

    def get_filename(self, fullname: str) -> str:
        return self.path

    def get_data(self, path: bytes | str) -> bytes:
        return self.data


def folder() -> Path:
    """Returns the folder for kernels of this version of tstatic and Python; creates it, with mode 0700, if it is missing.

    It is in ``TSTATIC_CACHE_DIR``, else in the user's cache folder (``platformdirs``, or without it ``tstatic-<uid>`` in
    the folder for temporary files). A folder that belongs to another user, that others can write, or that cannot be
    written is refused: one warning says why, and this process uses a temporary folder of its own.

    Raises:
        OSError: If the folder was refused and no temporary folder can be created either.
    """
    own, reason = objection()
    if reason is None:
        return own
    private = _private_folder()
    warn_once(
        ("kernel cache refused", own),
        f"kernel cache {own} is not used: {reason}. Kernels of this process are kept in {private} and generated again by "
        "the next; set TSTATIC_CACHE_DIR to a folder that only you can write",
        topic="kernels",
    )
    return private


def store(text: str, name: str) -> Path:
    """Writes a kernel module, unless its file exists, and returns the path.

    Processes that race write the same bytes under the same name, each through its own temporary file that is renamed when
    complete. An existing file with the right bytes is only marked as used; one with other bytes is replaced, with a
    warning.

    Args:
        text: The module's source.
        name: A word for readers; characters other than ``[a-z0-9_]`` become ``_``, and 40 are kept.

    Raises:
        TstaticError: If neither the cache nor a temporary folder can be written.
    """
    data = _encode(text)
    try:
        return _place(data, _stem(data, name))
    except OSError as error:
        raise TstaticError(
            "a generated kernel could not be written to disk",
            received=str(error),
            fix="free some space, or set TSTATIC_CACHE_DIR to a folder that you can write",
        ) from error


def load(text: str, name: str) -> ModuleType:
    """Imports a kernel module from the cache, and adds it first if it is new; the same text gives the same module.

    The file is compared with ``text`` right before the import, and the compared bytes are compiled: no file, and no pyc
    beside it, is run unchecked. ``inspect.getsource`` works on the module's functions, even after the file
    is gone. If no disk can be written, the module is imported from memory, with one warning.

    Args:
        text: The module's source.
        name: A word for readers, as in ``store``; it is part of the module's name, ``tstatic_kernels.<name>_<hash12>``.

    Raises:
        Exception: Any error that the module's own text raises.
    """
    data = _encode(text)
    stem = _stem(data, name)
    known = _modules.get(stem)
    if known is not None:
        return known
    module = _import(_ensure_entry(data, stem), data, stem[: -64 + 12])
    # Two threads may both have imported it: both use the first module.
    winner = _modules.setdefault(stem, module)
    sys.modules[winner.__name__] = winner
    return winner


def shared(kernel: Kernel) -> tuple[str, str]:
    """Returns the text and the name of the module that a kernel loads.

    Kernels that have the same functions, and differ in the sizes that their scripts run with, load the module of the first of them:
    to load one costs as much as hundreds of launches, and the text is written once.
    """
    key = hashlib.sha256(_encode(kernel.code)).digest()
    found = _shared.get(key)
    return _shared.setdefault(key, (kernel.text, kernel.name)) if found is None else found


def trim(limit_bytes: int = LIMIT_BYTES) -> int:
    """Removes the least recently used entries until at most ``limit_bytes`` are left, and files that killed writers left.

    It covers the folders of all versions, because an old version's folder would never be cleaned otherwise. Files younger
    than an hour stay, whatever the limit.

    Args:
        limit_bytes: The most bytes that the entries of all versions may take together.

    Returns:
        The number of bytes removed.
    """
    own = folder()
    if own == _private:
        return 0  # it is removed when the process ends
    removed = total = 0
    entries: list[tuple[float, int, Path]] = []
    before = time.time() - YOUNG_SECONDS
    for path, info in _files(own.parent):
        if _ENTRY.fullmatch(path.name):
            total += info.st_size
            entries.append((info.st_atime, info.st_size, path))
        elif info.st_mtime < before:
            removed += _remove(path, info.st_atime) * info.st_size
    for used, size, entry in sorted(entries):
        if total <= limit_bytes or used >= before:
            break
        gone = _remove(entry, used) * size
        total -= gone
        removed += gone
    return removed


def entries() -> list[tuple[Path, os.stat_result]]:
    """Returns the kernel modules of all versions in the cache, each with its size and, as ``st_mtime``, when it was last used."""
    found = [(path, info) for path, info in _files(_base()) if _ENTRY.fullmatch(path.name)]
    return [(path, os.stat_result(info[:10], {"st_mtime": info.st_atime})) for path, info in found]


def clear() -> int:
    """Removes all kernel modules of all versions, and what killed writers left; returns the bytes removed.

    A running process that uses one goes on: it holds the text in memory, and writes the file again when it needs it.
    """
    return sum(_remove(path, info.st_atime) * info.st_size for path, info in _files(_base()))


def objection() -> tuple[Path, str | None]:
    """Returns the folder for kernels of this version, and why it is not used; ``None`` if it is. Creates it if it is missing."""
    base = _base()
    own = _own(base)
    return own, _given_up.get(own) or _objection(base, own)


# ------------------------------------------------------------------------------------------------------------ the folder
def _own(base: Path) -> Path:
    """Returns the folder of this version of tstatic and Python."""
    version = re.sub(r"[^0-9A-Za-z.+]", "_", __version__)
    return base / f"kernels-{version}-py{sys.version_info.major}.{sys.version_info.minor}"


def _base() -> Path:
    """Returns the parent of all versions' folders, as an absolute path, so that a later chdir does not change it."""
    chosen = os.environ.get("TSTATIC_CACHE_DIR")
    if chosen:
        return Path(os.path.abspath(os.path.expanduser(chosen)))
    try:
        import platformdirs  # here because it may be missing, and is not needed if the variable is set
    except ImportError:
        return Path(tempfile.gettempdir(), f"tstatic-{os.geteuid()}")
    return platformdirs.user_cache_path("tstatic").absolute()


def _objection(base: Path, own: Path) -> str | None:
    """Creates the folder if it is missing; returns why it may not be used, or ``None`` if it may."""
    try:
        for path in reversed([p for p in (own, *own.parents) if not os.path.exists(p)]):
            with suppress(FileExistsError):  # created by another process meanwhile, or a broken link: stat tells
                os.mkdir(path, 0o700)
        outer, inner = os.stat(base), os.lstat(own)
    except OSError as error:
        return str(error)
    if not stat.S_ISDIR(inner.st_mode):
        return f"{own} is not a folder"
    me = os.geteuid()
    # The base may belong to root, or be shared like /tmp, where the sticky bit keeps others from replacing our folder.
    for path, info, owners, shared in ((base, outer, (me, 0), outer.st_mode & stat.S_ISVTX), (own, inner, (me,), 0)):
        if info.st_uid not in owners:
            return f"{path} belongs to user {info.st_uid}, not to you (user {me})"
        if info.st_mode & 0o022 and not shared:
            return f"others can write {path} (mode {stat.S_IMODE(info.st_mode):04o}; `chmod go-w` it)"
    if not os.access(own, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
        return f"{own} cannot be written"
    return None


def _private_folder() -> Path:
    """Returns a temporary folder of this process; a forked child uses its parent's as long as that exists."""
    global _private
    if _private is None or not _private.is_dir():
        _private = Path(tempfile.mkdtemp(prefix="tstatic-kernels-"))
        atexit.register(_discard, _private, os.getpid())
    return _private


def _discard(private: Path, pid: int) -> None:
    if os.getpid() == pid:  # a forked child inherits the call, and its parent still needs the folder
        shutil.rmtree(private, ignore_errors=True)


# ------------------------------------------------------------------------------------------------------------- the files
def _encode(text: str) -> bytes:
    # A comment may quote a path that is not UTF-8, which Python stores with lone surrogates: they are written escaped.
    return text.encode("utf-8", "backslashreplace")


def _stem(data: bytes, name: str) -> str:
    word = re.sub(r"[^a-z0-9_]", "_", name[:NAME_LENGTH].lower())[:NAME_LENGTH] or "kernel"
    return f"{word}_{hashlib.sha256(data).hexdigest()}"


def _state(path: Path, data: bytes) -> str:
    """Returns whether ``path`` is ``"absent"``, ``"right"`` or ``"wrong"``: not this user's regular file with these bytes."""
    try:
        with open(path, "rb", opener=_open) as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_size != len(data):
                return "wrong"
            return "right" if file.read(len(data) + 1) == data else "wrong"
    except FileNotFoundError:
        return "absent"
    except OSError:  # a link, a folder, an unreadable sector
        return "wrong"


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _place(data: bytes, stem: str) -> Path:
    """Ensures that the file exists with the right bytes; gives up a folder that cannot be written, for this process."""
    global _trimmed
    problem: OSError = FileNotFoundError(f"the folder of {stem}.py disappears as often as it is made")
    for _ in range(_ATTEMPTS):
        own = folder()
        try:
            path = own / f"{stem}.py"
            written = _check_or_write(path, data)
        except FileNotFoundError as error:  # another process emptied the cache: the folder is created again
            problem = error
        except OSError as error:
            if own == _private:
                raise
            _given_up[own] = str(error)
        else:
            if written and not _trimmed:
                _trimmed = True
                with suppress(OSError):
                    trim()
            return path
    raise problem


def _check_or_write(path: Path, data: bytes) -> bool:
    """Ensures that a file has the right bytes; returns whether it was written."""
    state = _state(path, data)
    if state == "right":
        with suppress(OSError):  # the time of use decides only how long the file is kept
            info = os.lstat(path)
            # The time of access, so that reading leaves the file as it was written.
            os.utime(path, ns=(time.time_ns(), info.st_mtime_ns), follow_symlinks=False)
        _log.debug("%s is in the cache", path)
        return False
    if state == "wrong":
        warn_once(
            ("kernel cache entry", path),
            f"kernel cache entry {path} does not hold what was written there; it is not used, and is written again",
            topic="kernels",
        )
    _write(path, data)
    _log.debug("%s is generated", path)
    return True


def _write(path: Path, data: bytes) -> None:
    """Writes through a staged file. The folder is not synced: after a power cut an entry may be missing, but not partial."""
    handle, staged = tempfile.mkstemp(prefix="stage-", suffix=".tmp", dir=path.parent)
    try:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(handle, rest) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(staged, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(staged)
        raise


def _files(base: Path) -> list[tuple[Path, os.stat_result]]:
    """Lists the entries and staged files of all versions; a folder or file that does not belong to the user is skipped."""
    found: list[tuple[Path, os.stat_result]] = []
    for own in base.glob(_FOLDERS):
        with suppress(OSError):
            info = os.lstat(own)
            if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
                continue
            for entry in os.listdir(own):
                path = own / entry
                if _ENTRY.fullmatch(entry) or _STAGED.fullmatch(entry):
                    with suppress(FileNotFoundError):  # another process trims as well
                        info = os.lstat(path)
                        if stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid():
                            found.append((path, info))
    return found


def _remove(path: Path, used: float) -> bool:
    """Removes a file, unless it was used since it was listed; returns whether it did."""
    try:
        # From the folder's descriptor: a link that has taken the folder's place since then leads nowhere.
        own = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            info = os.stat(path.name, dir_fd=own, follow_symlinks=False)
            if os.fstat(own).st_uid != os.geteuid() or not stat.S_ISREG(info.st_mode) or info.st_atime != used:
                return False
            os.unlink(path.name, dir_fd=own)
        finally:
            os.close(own)
    except OSError:
        return False
    return True


# ------------------------------------------------------------------------------------------------------------ the import
def _ensure_entry(data: bytes, stem: str) -> str:
    """Returns the path of a file just checked to hold ``data``; a name in angle brackets if no disk can hold it."""
    reason = "what is written there does not stay as it was written"
    try:
        for _ in range(_ATTEMPTS):
            path = _place(data, stem)
            if _state(path, data) == "right":
                return str(path)
    except OSError as error:
        reason = str(error)
    warn_once(
        "kernel cache in memory",
        f"generated kernels are kept in memory only: {reason}. Set TSTATIC_CACHE_DIR to a folder that you can write",
        topic="kernels",
    )
    return f"<{stem}>"


def _import(path: str, data: bytes, name: str) -> ModuleType:
    fullname = f"tstatic_kernels.{name}"
    spec = importlib.util.spec_from_loader(fullname, _Verified(path, data))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Without a modification time, linecache never compares an entry with the disk: Triton, which reads the source while the
    # module is imported, gets the checked text, even if the file is changed or trimmed meanwhile.
    lines = io.StringIO(importlib.util.decode_source(data)).readlines()
    linecache.cache[path] = (len(data), None, lines, path)
    sys.modules[fullname] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if sys.modules.get(fullname) is module:
            del sys.modules[fullname]
        raise
    return module


def _reset_for_tests() -> None:
    """Resets what this process loaded and decided, as if it had just started."""
    global _private, _trimmed
    for module in _modules.values():
        sys.modules.pop(module.__name__, None)
    _modules.clear()
    _shared.clear()
    _given_up.clear()
    if _private is not None:
        shutil.rmtree(_private, ignore_errors=True)
    _private, _trimmed = None, False
