"""Stamps files with the save that wrote them, and checks whether files belong together."""

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
    """Identifies a save: its time (nanoseconds since 1970), a random word, and the number of files that it wrote."""

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
    """Returns the stamp of a save that is made now."""
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
