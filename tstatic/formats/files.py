"""Writes and reads sets of files that change together: a set is staged, committed by one rename and read as a whole.

During a save, two folders may exist beside its files (docs/design/0006-one-commit-for-files.md):

- ``.tstatic-1f0c62ab.tmp`` holds the staged files of a save and their manifest. The saving process holds a lock on it; a folder
  without a lock was left behind by a process that ended.
- ``.tstatic-save`` holds committed files that still have to be moved to their places. Renaming the first folder to the
  second is the commit.

:func:`read` looks into ``.tstatic-save`` first, so it sees all files of a set or none, whenever a crash happened. It changes
nothing on disk: a save that broke off is finished by the next one (``leftovers.py``).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tstatic.errors import CheckpointError
from tstatic.formats import leftovers
from tstatic.regular import kind_of, names_there, open_regular

# Bounded: the text comes from files that nobody vouches for. 19 digits of nanoseconds reach the year 2286.
_FORM = re.compile(r"([0-9]{1,19})-([0-9a-f]{8})-([0-9]{1,7})")


@dataclass(frozen=True, order=True)
class Stamp:
    """Identifies a save: its time (nanoseconds since 1970), a random word, and the number of files that it wrote."""

    time: int
    word: str
    files: int

    def __str__(self) -> str:
        return f"{self.time}-{self.word}-{self.files}"

    @property
    def when(self) -> str:
        """The time to the millisecond."""
        # The remainder keeps a forged time within the years that `datetime` has.
        return datetime.fromtimestamp(self.time // 10**9 % 10**11, UTC).strftime(
            f"%Y-%m-%d %H:%M:%S.{self.time // 10**6 % 1000:03} UTC"
        )


def new_stamp(files: int) -> Stamp:
    """Returns the stamp of a save that is made now."""
    # Four random bytes: they tell apart only saves of the same nanosecond, on several machines.
    return Stamp(time.time_ns(), os.urandom(4).hex(), files)


def parse_stamp(text: object) -> Stamp | None:
    """Parses a stamp; returns ``None`` if the text is not one."""
    found = _FORM.fullmatch(text) if isinstance(text, str) else None
    return Stamp(int(found[1]), found[2], int(found[3])) if found else None


def older(stamps: Mapping[str, Stamp]) -> list[str]:
    """Returns files that were restored over those of a newer save.

    A save may replace some files of an earlier one and leave the rest; that is valid. Files are a mixture if a save lacks
    more files than newer saves can have replaced: then files older than that save have come back.

    Args:
        stamps: The stamps of all files that may belong to the saves, by name.
    """
    saves: dict[Stamp, list[str]] = {}
    for name, stamp in stamps.items():
        saves.setdefault(stamp, []).append(name)
    newer = 0
    for stamp in sorted(saves, reverse=True):
        if stamp.files - len(saves[stamp]) > newer:
            return [name for name, other in stamps.items() if other < stamp]
        newer += len(saves[stamp])
    return []


DONE = leftovers.COMMITTED
MAX_TRIES = 20  # pauses grow by 10 ms: a reader gives up after 2 s; a saver, when 20 saves in a row were in its way
Mark = tuple[int, int, int, int]
"""Identifies a file's content: device, inode, time of the last change, size."""


# ----------------------------------------------------------------------------------------------------------------- write
def write(files: Mapping[Path, bytes]) -> None:
    """Writes all files or none. Files in one folder change at one point; those in several folders, folder by folder.

    Links are followed. A replaced file keeps its mode; a new one gets the mode that the umask allows. Leftovers of earlier
    saves are removed from the folders.

    Args:
        files: Content by path; missing folders are created.

    Raises:
        CheckpointError: If there is no room, a target is not a regular file or has a name that saves use themselves, an earlier
            save in the folder cannot be finished, or writing fails; the message says what is on disk then.
    """
    if not files:
        return
    path = next(iter(files))
    committed: list[Path] = []
    folders: dict[Path, dict[str, bytes]] = {}
    try:
        for path, data in files.items():
            real = Path(os.path.realpath(path))
            _check_target(path, real)
            folders.setdefault(real.parent, {})[real.name] = data
        with contextlib.ExitStack() as stack:
            stages: dict[Path, Stage] = {}
            for folder, contents in folders.items():
                folder.mkdir(parents=True, exist_ok=True)
                stage = stages[folder] = stack.enter_context(_staging(folder, tuple(contents)))
                leftovers.finish(folder, stage.parent, stage.owner)
                leftovers.sweep(stage.parent, stage.owner, contents)
            _check_room(folders)
            # Everything that can fail for want of room or rights happens before the first commit: all files of all folders are
            # staged and synced, and only renames are left.
            for folder, contents in folders.items():
                stage = stages[folder]
                # Runs before the stage is removed, even if an exception follows the commit.
                stack.callback(leftovers.finish, folder, stage.parent, stage.owner, stage.identity)
                for name, data in contents.items():
                    path = folder / name
                    _stage(stage.handle, name, data, _status(name, stage.parent))
            for folder, stage in stages.items():
                _commit(stage)
                committed.append(folder)
                # A rename is durable only once its folder is synced.
                os.fsync(stage.parent)
    except CheckpointError:
        raise  # an OSError, too
    except OSError as error:
        raise CheckpointError(
            f"could not write {path}",
            expected=f"{sum(map(len, files.values())):,} bytes written",
            received=f"{type(error).__name__}: {error.strerror or error}{_room(path) if _is_full(error) else ''}",
            fix=_fix(folders, committed),
        ) from error


def _fix(folders: Collection[Path], committed: Sequence[Path]) -> str:
    """Returns what is on disk after an error, and what to do."""
    if not committed:
        return _UNTOUCHED
    if len(committed) < len(folders):
        return f"the files in {', '.join(map(str, committed))} are new, the others old: save again"
    return "the new file is in its place, or the next save puts it there and loads find it; a power cut could undo it: save again"


_UNTOUCHED = "free space or choose another path; the old file, if any, is untouched"


def _check_target(path: Path, real: Path) -> None:
    """Checks that a target can be replaced by a file.

    Raises:
        CheckpointError: If it is a folder, a FIFO, a device or a socket, or if its name is one that saves use themselves.
    """
    for name in (real.name, real.parent.name):
        if leftovers.is_reserved(name):
            raise CheckpointError(
                f"could not write {path}",
                expected="another name",
                received=f"{name!r}, which saves use for files that are not in their places yet",
                fix="choose another path; nothing was written",
            )
    with contextlib.suppress(FileNotFoundError):
        kind = kind_of(real.lstat())
        if kind is not None:
            raise CheckpointError(
                f"could not write {path}",
                expected="a file, a link to one, or a new name",
                received=f"{real} is {kind}",
                fix="choose another path; nothing was written",
            )


def _check_room(folders: Mapping[Path, Mapping[str, bytes]]) -> None:
    """Checks that the disk can hold the new files beside those that they replace.

    Raises:
        CheckpointError: If it cannot; the message has the bytes needed and the bytes free.
    """
    needed: dict[int, int] = {}
    for folder, contents in folders.items():
        disk, device = os.statvfs(folder), os.stat(folder).st_dev
        block = disk.f_frsize or 1
        needed[device] = needed.get(device, 0) + sum(-(-len(data) // block) * block for data in contents.values())
        free = _free(disk)
        if disk.f_blocks and free < needed[device]:
            raise CheckpointError(
                f"could not write {folder / next(iter(contents))}",
                expected=f"room for {needed[device]:,} bytes, as old files stay until the new ones are complete",
                received=f"{free:,} bytes free in {folder}",
                fix=_UNTOUCHED,
            )


def _free(disk: os.statvfs_result) -> int:
    # The superuser may use the blocks that are reserved for root.
    return (disk.f_bavail if os.geteuid() else disk.f_bfree) * disk.f_frsize


def _is_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _room(path: Path) -> str:
    with contextlib.suppress(OSError):
        return f"; {_free(os.statvfs(path.parent)):,} bytes free"
    return ""


def _status(name: str, folder: int) -> os.stat_result | None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


@dataclass(frozen=True)
class Stage:
    """A locked staging folder.

    Attributes:
        folder: The folder that the files are for.
        parent: Its descriptor. All that a save does there starts from it, so that no link can lead elsewhere.
        name: The staging folder's name in it.
        handle: The staging folder's descriptor.
        owner: Who owns what this process makes there, which on some file systems is not the user that it runs as.
        names: The files that are staged.
    """

    folder: Path
    parent: int
    name: str
    handle: int
    owner: int
    names: tuple[str, ...]

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode, which a rename keeps."""
        return leftovers.identity(os.fstat(self.handle))


@contextlib.contextmanager
def _staging(folder: Path, names: tuple[str, ...] = ()) -> Iterator[Stage]:
    """Makes a folder that is locked while the block runs, and removes it with its remaining content afterwards."""
    name, handle, held = "", None, list[int]()
    parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        while handle is None:
            name = f"{leftovers.PREFIX}{os.urandom(4).hex()}.tmp"
            # Others may read what is committed, and nobody else may add to it.
            os.mkdir(name, 0o755, dir_fd=parent)
            # Before it is locked, another save may remove it as a leftover: make another one then.
            handle = leftovers.open_stage(name, parent, held)
        owner = _write_manifest(handle, names)
        yield Stage(folder, parent, name, handle, owner, names)
    finally:
        try:
            if held:
                with contextlib.suppress(OSError):
                    leftovers.remove_stage(name, parent, held[-1])
        finally:
            for one in (*held, parent):
                os.close(one)


def _write_manifest(stage: int, names: Collection[str]) -> int:
    """Writes the list of the files that a save may move or remove, before any of them; returns the owner of what it made."""
    handle = os.open(leftovers.MANIFEST, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=stage)
    try:
        with os.fdopen(handle, "wb", closefd=False) as file:
            file.write(leftovers.manifest(names))
        # The commit of a single file is a rename that does not need it.
        if len(names) > 1:
            os.fsync(handle)
        owner = os.fstat(handle).st_uid
    finally:
        os.close(handle)
    if os.fstat(stage).st_uid != owner:
        raise OSError(errno.EPERM, "another user has replaced the staging folder")
    return owner


def _stage(stage: int, name: str, data: bytes, old: os.stat_result | None) -> None:
    # A file that replaces another one is private until it has that one's owner and mode: nobody else may read it earlier.
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if old is None else 0o600, dir_fd=stage)
    try:
        if old is not None:
            # First the owner, since chown clears set-user-id bits; only the superuser may give files away.
            with contextlib.suppress(OSError):
                os.chown(handle, old.st_uid, old.st_gid)
            os.chmod(handle, stat.S_IMODE(old.st_mode))
        with os.fdopen(handle, "wb", closefd=False) as file:
            file.write(data)
        # Before the rename: else a power cut could leave the new name with no content.
        os.fsync(handle)
    finally:
        os.close(handle)


def _commit(stage: Stage) -> None:
    """Commits staged files: the one point at which the set changes."""
    if len(stage.names) == 1:
        # One rename is a commit by itself, and the staged file is already synced.
        (name,) = stage.names
        os.replace(name, name, src_dir_fd=stage.handle, dst_dir_fd=stage.parent)
        return
    # The names in the stage must be durable before the rename that commits them.
    os.fsync(stage.handle)
    for _ in range(MAX_TRIES):
        try:
            # Fails if the target holds files: a save that is committed and not moved yet is never overwritten.
            os.rename(stage.name, DONE, src_dir_fd=stage.parent, dst_dir_fd=stage.parent)
            return
        except OSError as error:
            # Another process has committed: help it to move its files, then try again.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        leftovers.finish(stage.folder, stage.parent, stage.owner)
    raise OSError(errno.ENOTEMPTY, f"{stage.folder / DONE} holds what cannot be moved", str(stage.folder / DONE))


# ------------------------------------------------------------------------------------------------------------------ read
def read(paths: Collection[Path], optional: Collection[Path] = (), writer: str = "static.save") -> dict[Path, bytes]:
    """Reads files as one save left them, even while another process saves; changes nothing on disk.

    Args:
        paths: Files that must be there.
        optional: Files that are left out of the result if they cannot be read.
        writer: What writes such files, for errors.

    Raises:
        CheckpointError: If a file does not exist, is not a regular file or cannot be read, or if they keep changing.
    """
    for attempt in range(MAX_TRIES):
        found: dict[Path, tuple[bytes, Mark]] = {}
        for path in paths:
            found[path] = _read(path, writer)
        for path in optional:
            with contextlib.suppress(CheckpointError):
                found[path] = _read(path, writer)
        # A single file is consistent by itself; of several, none may have changed since the first was opened.
        if len(found) <= 1 or all(_mark(path) == mark for path, (_, mark) in found.items()):
            return {path: data for path, (data, _) in found.items()}
        time.sleep(0.01 * attempt)
    raise CheckpointError(
        f"could not read {next(iter(found))}",
        expected=f"{len(found)} files of one save",
        received="files that another process keeps replacing",
        fix="load again when that process is done",
    )


def listed(folder: Path) -> list[Path]:
    """Returns the files of a folder, including committed files that are not in their places yet.

    Raises:
        CheckpointError: If there are committed files that cannot be read.
    """
    names = set(leftovers.names_in(Path(os.path.realpath(folder))))
    with contextlib.suppress(OSError):
        # An entry that cannot be looked at, such as a link to itself, hides no other one.
        names.update(name for name in os.listdir(folder) if os.path.isfile(os.path.join(folder, name)))
    return [folder / name for name in sorted(names)]


def exists(path: Path) -> bool:
    """Returns whether a file exists, or is committed and not in its place yet.

    Raises:
        CheckpointError: If there are committed files that cannot be read.
    """
    return leftovers.holds(Path(os.path.realpath(path))) or path.exists()


def _open(path: Path) -> int:
    place = Path(os.path.realpath(path))
    handle = leftovers.open_committed(place)
    # Where it is not among committed files, it is in its place: if another process moves it there now, it does so earlier.
    return open_regular(place) if handle is None else handle


def _mark(path: Path) -> Mark | None:
    try:
        handle = _open(path)
    except OSError:
        return None
    try:
        return _mark_of(os.fstat(handle))
    finally:
        os.close(handle)


def _mark_of(found: os.stat_result) -> Mark:
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _read(path: Path, writer: str) -> tuple[bytes, Mark]:
    try:
        handle = _open(path)
        try:
            found = os.fstat(handle)
            with os.fdopen(handle, "rb", closefd=False) as file:
                return file.read(), _mark_of(found)
        finally:
            os.close(handle)
    except CheckpointError:
        raise  # an OSError, too
    except OSError as error:
        raise CheckpointError(
            f"could not read {path}",
            expected=f"a file that {writer} wrote",
            received=f"{type(error).__name__}: {error.strerror or error}",
            fix=_where_to_look(path, writer, error),
        ) from error


def _where_to_look(path: Path, writer: str, error: OSError) -> str:
    """Returns the fix for a file that cannot be read."""
    if isinstance(error, PermissionError):
        return f"give this user the right to read it: chmod u+r {path}, and chmod u+x of the folders on the way"
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        return f"make {path} readable, or load a copy from another disk"
    return f"pass the path that was given to {writer}; {names_there(path)}"
