"""Which save a file is from: the stamp that all files of one save carry, and whether files belong together."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

_FORM = re.compile(r"([0-9]{1,19})-([0-9a-f]{8})-([0-9]{1,7})")


@dataclass(frozen=True, order=True)
class Stamp:
    """When a save was made (nanoseconds since 1970), a random word, and how many files it wrote."""

    time: int
    word: str
    files: int

    def __str__(self) -> str:
        return f"{self.time}-{self.word}-{self.files}"

    @property
    def when(self) -> str:
        """The time to the millisecond."""
        return datetime.fromtimestamp(self.time // 10**9 % 10**11, UTC).strftime(
            f"%Y-%m-%d %H:%M:%S.{self.time // 10**6 % 1000:03} UTC"
        )


def new_stamp(files: int) -> Stamp:
    """The stamp of a save that is made now."""
    return Stamp(time.time_ns(), os.urandom(4).hex(), files)


def parse_stamp(text: object) -> Stamp | None:
    """The stamp that a file states; ``None`` if it states none."""
    found = _FORM.fullmatch(text) if isinstance(text, str) else None
    return Stamp(int(found[1]), found[2], int(found[3])) if found else None


def older(stamps: Mapping[str, Stamp]) -> list[str]:
    """Files that stand where a newer save put others.

    A save may replace some files of an earlier one and leave the rest; that is not a mixture. It is one if a save lacks files
    although no newer save accounts for them: then what is older than that save has come back.

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
