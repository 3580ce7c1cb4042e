"""Reads, finishes and removes what saves leave in a folder when their process ends early.

Two folders may be left (docs/design/0006-one-commit-for-files.md): ``.tstatic-save`` with the files of a committed save, and
``.tstatic-1f0c62ab.tmp`` with those of a save that was not committed. Anyone who can write to the folder can also make folders
with these names, and archives and checkouts bring them along. So nothing in them is believed without a check:

- A reader looks for a file in a committed folder of its own user, of root, or of the owner of the folder around it, whose files
  it reads anyway. It changes nothing.
- A saver moves or removes files only in a real folder of its own user, only regular files, and only those that the manifest
  lists. Before anything is moved, everything is checked.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import stat
from collections.abc import Collection, Iterable
from pathlib import Path

from tstatic.errors import CheckpointError
from tstatic.regular import kind_of, open_regular

COMMITTED = ".tstatic-save"
MANIFEST = ".tstatic-manifest"
"""The file in a staging folder that lists the others; earlier versions of the library wrote none."""
PREFIX = ".tstatic-"
# In full: a user's own hidden file that only begins so must never be taken for a leftover.
_STAGED = re.compile(r"\.tstatic-[0-9a-f]{8}\.tmp")
_EARLIER = re.compile(r"\.(.+)\.[a-z0-9_]{8}\.tmp")
"""A file that an earlier version of the library staged, without a folder."""
_SUFFIX = re.compile(r".+\.pd(params|model|iparams|opt)", re.DOTALL)
_FORM = re.compile(rb"tstatic-program |.{4}\0{4}\{|\x80[\x02-\x05]|\0{4}|\n[\x80-\xff]{0,9}[\0-\x7f]\x08", re.DOTALL)
"""How a saved file begins: a program, values, a pickle, and tensors and programs of Paddle. No text begins so but a program."""
_MOST = 1 << 26
"""The longest manifest that is read, in bytes: names of a million files; a forged one must not fill the memory."""


# --------------------------------------------------------------------------------------------------------------- reading
def open_committed(path: Path) -> int | None:
    """Opens a file in the committed folder beside it.

    Args:
        path: The place of the file, with all links resolved.

    Returns:
        A descriptor; ``None`` if no committed save holds the file.

    Raises:
        CheckpointError: If the committed folder belongs to someone who cannot be trusted with the file.
        OSError: If the file cannot be opened, or is not a regular file.
    """
    done = _for_reading(path.parent)
    if done is None:
        return None
    try:
        # Before the file is opened: a stranger's file is not even read.
        _check_reader(path, done)
        return open_regular(path.name, done, follow=False)
    except FileNotFoundError:
        return None
    finally:
        os.close(done)


def holds(path: Path) -> bool:
    """Returns whether a committed save has a file for this place; links in the path must be resolved."""
    done = _for_reading(path.parent)
    if done is None:
        return False
    try:
        os.stat(path.name, dir_fd=done, follow_symlinks=False)
    except FileNotFoundError:
        return False
    finally:
        os.close(done)
    return True


def names_in(folder: Path) -> list[str]:
    """Returns the names of the regular files in the committed folder of a folder."""
    done = _for_reading(folder)
    if done is None:
        return []
    try:
        names = [name for name in os.listdir(done) if not name.startswith(PREFIX)]
        return [name for name in names if _is_regular(name, done)]
    finally:
        os.close(done)


def _for_reading(folder: Path) -> int | None:
    """Opens the committed folder; ``None`` if there is none. A link or a file of that name is none: no save makes it.

    Raises:
        CheckpointError: If it cannot be opened.
    """
    try:
        return _open_folder(folder / COMMITTED)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise CheckpointError(
            f"could not read {folder}: {folder / COMMITTED}, which may hold newer files, cannot be opened",
            expected="a folder that can be read",
            received=error.strerror or str(error),
            fix="let its owner save there again, which finishes the save; or move the folder away to read the older files",
        ) from error


def _check_reader(path: Path, done: int) -> None:
    """Checks that a reader may take a file from a committed folder.

    Raises:
        CheckpointError: If the committed folder holds the file and belongs to someone else.
        FileNotFoundError: If it does not hold the file.
    """
    owner = os.fstat(done).st_uid
    if owner in (os.geteuid(), 0) or owner == path.parent.stat().st_uid:
        return
    os.stat(path.name, dir_fd=done, follow_symlinks=False)
    raise CheckpointError(
        f"could not read {path}: {path.parent / COMMITTED} holds a newer one that belongs to user {owner}",
        expected=f"a folder of user {os.geteuid()}, of root, or of the owner of {path.parent}",
        received=f"a folder of user {owner}",
        fix="let that user save there again, which finishes the save; or move the folder away to read the older file",
    )


def _open_folder(path: str | Path, parent: int | None = None) -> int:
    """Opens a real folder; a link to one is a NotADirectoryError."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotADirectoryError(errno.ENOTDIR, "it is a link", str(path)) from error
        raise


def _is_regular(name: str, folder: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


# ------------------------------------------------------------------------------------------------------------- finishing
def is_reserved(name: str) -> bool:
    """Returns whether a name in a folder belongs to saves themselves."""
    return name in (COMMITTED, MANIFEST) or _STAGED.fullmatch(name) is not None


def manifest(names: Iterable[str]) -> bytes:
    """Returns the manifest of a staging folder that gets these files."""
    return json.dumps({"format": 1, "files": list(names)}).encode()


def finish(folder: Path, handle: int, owner: int, ours: tuple[int, int] | None = None) -> None:
    """Moves committed files to their places. Several processes may do so at once; each skips what another one moved.

    Args:
        folder: The folder, for messages.
        handle: Its descriptor.
        owner: The user that the committed folder must belong to.
        ours: Device and inode of the staging folder that the caller committed; its files need no check.

    Raises:
        CheckpointError: If the committed folder is not one that a save of this user left; nothing is moved then.
        OSError: If a file cannot be moved.
    """
    try:
        done = _open_folder(COMMITTED, handle)
    except FileNotFoundError:
        return
    except NotADirectoryError as error:
        info = os.stat(COMMITTED, dir_fd=handle, follow_symlinks=False)
        raise _refused(folder, f"it is {kind_of(info) or 'a file'}") from error
    try:
        if identity(os.fstat(done)) == ours:
            # Without a manifest, another process has moved them all.
            names: Iterable[str] = _listed(done) or ()
        else:
            names = _checked(folder, handle, done, owner)
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.replace(name, name, src_dir_fd=done, dst_dir_fd=handle)
        # The files' new places must be durable before the folder that lists them as committed goes.
        os.fsync(handle)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(MANIFEST, dir_fd=done)
    finally:
        os.close(done)
    try:
        os.rmdir(COMMITTED, dir_fd=handle)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
            raise


def _checked(folder: Path, handle: int, done: int, owner: int) -> list[str]:
    """Returns the names of the files in a committed folder, all of which may be moved.

    Raises:
        CheckpointError: If one may not.
    """
    found = os.fstat(done).st_uid
    if found != owner:
        raise _refused(
            folder,
            f"it belongs to user {found}, not to user {owner}",
            "let that user save there again, or move it away",
        )
    try:
        listed = _listed(done)
    except (ValueError, RecursionError, OSError) as error:
        raise _refused(folder, f"its manifest cannot be read: {error}") from error
    names = [name for name in os.listdir(done) if name != MANIFEST]
    for name in names:
        if listed is not None and name not in listed:
            raise _refused(folder, f"its manifest does not list {name!r}")
        if not _is_name(name):
            raise _refused(folder, f"no save writes a file {name!r}")
        # A file of any name may be a variable's. Its content, and that of the file that it replaces, say more.
        for where, words in ((done, f"{name!r} in it"), (handle, f"{name!r}, which it would replace,")):
            objection = _objection(name, where)
            if objection is not None:
                raise _refused(folder, f"{words} {objection}")
    return names


def _listed(done: int) -> frozenset[str] | None:
    """Returns the names in a manifest; ``None`` if there is none.

    Raises:
        ValueError: If it is not one, or has a name that no save gives.
        OSError: If it cannot be read.
    """
    try:
        handle = open_regular(MANIFEST, done, follow=False)
    except FileNotFoundError:
        return None
    with open(handle, "rb") as file:
        data = file.read(_MOST + 1)
    found = json.loads(data) if len(data) <= _MOST else None
    names = found.get("files") if isinstance(found, dict) and found.get("format") == 1 else None
    if not isinstance(names, list):
        raise ValueError("it is not of format 1")
    for name in names:
        if not isinstance(name, str) or not _is_name(name):
            raise ValueError(f"no save writes a file {str(name)[:100]!r}")
    return frozenset(names)


def _is_name(name: str) -> bool:
    """Returns whether a save may give a file this name."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name and not is_reserved(name)


def _objection(name: str, folder: int, by_suffix: bool = True) -> str | None:
    """Returns why a file is not one that a save wrote; ``None`` if it can be one, or if it is not there.

    Args:
        name: Its name.
        folder: Descriptor of its folder.
        by_suffix: Whether a suffix that only saves use is enough, so that damaged files count as well.
    """
    try:
        if by_suffix and _SUFFIX.fullmatch(name):
            kind = kind_of(os.stat(name, dir_fd=folder, follow_symlinks=False))
            return None if kind is None else f"is {kind}"
        handle = open_regular(name, folder, follow=False)
        try:
            # As many bytes as `_FORM` looks at.
            head = os.read(handle, 16)
        finally:
            os.close(handle)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    return None if not head or _FORM.match(head) else "does not begin as a file of a save does"


def _refused(
    folder: Path, why: str, fix: str = "move it away, or remove it if nothing in it is needed"
) -> CheckpointError:
    return CheckpointError(
        f"could not write to {folder}: {folder / COMMITTED} is not what an earlier save left",
        expected="a folder with the files of a save, left by this user",
        received=why,
        fix=f"{fix}; nothing was written",
    )


def identity(info: os.stat_result) -> tuple[int, int]:
    """Returns device and inode."""
    return info.st_dev, info.st_ino


# -------------------------------------------------------------------------------------------------------------- removing
def open_stage(name: str, parent: int, held: list[int]) -> int | None:
    """Opens and locks a staging folder that was just made; ``None`` if another save has removed it as a leftover.

    Args:
        name: Its name.
        parent: Descriptor of the folder that it is in.
        held: Gets the descriptor before it is locked: one that a signal's exception loses would keep the lock.
    """
    try:
        held.append(_open_folder(name, parent))
    except FileNotFoundError:
        return None
    # Some file systems have no locks: leftovers stay there.
    with contextlib.suppress(OSError):
        fcntl.flock(held[-1], fcntl.LOCK_EX)
    # Asked under the lock: a save that took the folder for a leftover removed it before, or will find it locked.
    return held[-1] if _is_at(name, parent, held[-1]) else None


def remove_stage(name: str, parent: int, handle: int) -> None:
    """Removes a staging folder unless it was committed, or holds anything that no save puts there."""
    if not _is_at(name, parent, handle):
        return
    listed: Collection[str] = ()
    # The process may have ended while it wrote the manifest.
    with contextlib.suppress(ValueError, RecursionError, OSError):
        listed = _listed(handle) or ()
    names = os.listdir(handle)
    for one in names:
        known = one == MANIFEST or one in listed
        if not (_is_regular(one, handle) if known else _is_name(one) and _objection(one, handle) is None):
            return
    # The manifest goes last: if this breaks off, the next save still knows what the others are.
    for one in sorted(names, key=MANIFEST.__eq__):
        os.unlink(one, dir_fd=handle)
    os.rmdir(name, dir_fd=parent)


def sweep(handle: int, owner: int, names: Collection[str]) -> None:
    """Removes the staged files of processes that ended before they committed.

    Args:
        handle: Descriptor of the folder.
        owner: The user whose leftovers are removed.
        names: Names of the files that are being saved.
    """
    for name in os.listdir(handle):
        # What cannot be removed stays.
        with contextlib.suppress(OSError):
            if _STAGED.fullmatch(name):
                _remove_unlocked(name, handle, owner)
            elif (match := _EARLIER.fullmatch(name)) and match[1] in names:
                info = os.stat(name, dir_fd=handle, follow_symlinks=False)
                if stat.S_ISREG(info.st_mode) and info.st_uid == owner:
                    os.unlink(name, dir_fd=handle)


def _remove_unlocked(name: str, parent: int, owner: int) -> None:
    stage = _open_folder(name, parent)
    try:
        if os.fstat(stage).st_uid == owner:
            # Fails at once while the saving process lives; the kernel drops a dead process's lock.
            fcntl.flock(stage, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_stage(name, parent, stage)
    finally:
        os.close(stage)


def remove(folder: Path, names: Iterable[str]) -> None:
    """Removes files that saves wrote from a folder, in this order; links and whatever no save wrote stay."""
    with contextlib.suppress(FileNotFoundError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in names:
                if _is_name(name) and _objection(name, handle, by_suffix=False) is None:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=handle)
        finally:
            os.close(handle)


def _is_at(name: str, parent: int, handle: int) -> bool:
    """Returns whether a folder is still where it was made."""
    try:
        return identity(os.stat(name, dir_fd=parent, follow_symlinks=False)) == identity(os.fstat(handle))
    except FileNotFoundError:
        return False
