"""One tree of loggers under ``tstatic``, and the switch ``TSTATIC_LOGS`` that turns topics of it on.

========== ==================== =================================================================
topic      logger               says
========== ==================== =================================================================
fusion     tstatic.fusion       what each fusion matched, and why it did not
recompiles tstatic.compile      every plan built: which part of the key differed, what it cost
compile    tstatic.first_step   a time line of the first step of each plan
kernels    tstatic.kernels      kernels generated, and kernels found in the cache
memory     tstatic.memory       arenas and other buffers allocated and freed, in bytes
steps      tstatic.executor     every run of an executor, with its time
passes     tstatic.passes       every pass that changed a program, with op counts
dist       tstatic.dist         process groups, ranks, collectives
all        tstatic              all of the above
========== ==================== =================================================================

``TSTATIC_LOGS=fusion,recompiles python train.py`` prints both to stderr. A program that configures ``logging`` itself
leaves the variable unset and sets levels on the loggers named above.

Nothing is printed unless asked for, except warnings: a warning that nobody sees helps nobody, so the tree carries no
``NullHandler`` and Python's handler of last resort writes warnings to stderr where the program has set up no logging.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Hashable

from tstatic.errors import near
from tstatic.locks import lock
from tstatic.shield import shield
from tstatic.where import user_line

__all__ = ["TOPICS", "enable", "get_logger", "warn_once", "warn_user"]

# The words of TSTATIC_LOGS and of get_logger, and the logger of each.
TOPICS = {
    "fusion": "tstatic.fusion",
    "recompiles": "tstatic.compile",
    "compile": "tstatic.first_step",
    "kernels": "tstatic.kernels",
    "memory": "tstatic.memory",
    "steps": "tstatic.executor",
    "passes": "tstatic.passes",
    "dist": "tstatic.dist",
    "all": "tstatic",
}

_said: set[Hashable] = set()
_lock = lock()


class _Stderr(logging.Handler):
    """Writes to whatever ``sys.stderr`` is now, so that a redirection after the import is followed."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except Exception:  # as every handler of the standard library: logging never stops the program
            self.handleError(record)


_handler = _Stderr()
_handler.setFormatter(logging.Formatter("%(levelname).1s %(name)s: %(message)s"))


def get_logger(topic: str = "all") -> logging.Logger:
    """Returns the logger of a topic (``"recompiles"``) or of a name below ``tstatic`` (``"executor"``)."""
    name = TOPICS[topic] if topic in TOPICS else f"tstatic.{topic.removeprefix('tstatic.')}"
    # Before Python 3.13, Ctrl-C in here can leave logging's lock taken, for which every fork waits. What is asked once is then
    # known without the lock, so that runs do not take it.
    with shield:
        found = logging.getLogger(name)
        found.isEnabledFor(logging.DEBUG)
    return found


def enable(topics: str) -> list[str]:
    """Prints these topics to stderr from now on; what ``TSTATIC_LOGS`` holds is given here at import.

    Args:
        topics: Words of ``TOPICS``, separated by commas. An unknown word is named in one warning and left out.

    Returns:
        The topics that were switched on.
    """
    words = [word for word in (part.strip().lower() for part in topics.split(",")) if word]
    known = [word for word in words if word in TOPICS]
    for word in known:
        logging.getLogger(TOPICS[word]).setLevel(logging.DEBUG)
    if known:
        logging.getLogger("tstatic").addHandler(_handler)  # adding it twice is the same as once
    for word in words:
        if word not in TOPICS:
            hint = near(word, TOPICS) or f"known topics: {', '.join(TOPICS)}"
            warn_once(("TSTATIC_LOGS", word), f"TSTATIC_LOGS names the unknown topic '{word}'; {hint}")
    return known


def warn_once(key: Hashable, message: str, *, topic: str = "all", level: int = logging.WARNING) -> bool:
    """Logs ``message`` the first time that ``key`` is seen in this process; returns whether it did."""
    with _lock:
        if key in _said:
            return False
        _said.add(key)
    get_logger(topic).log(level, "%s", message)
    return True


def leave_unsaid(key: Hashable) -> None:
    """Keeps ``warn_once`` from saying what a caller says in its own way."""
    with _lock:
        _said.add(key)


def warn_user(message: str, *, category: type[Warning] = UserWarning) -> None:
    """Issues a Python warning that points at the user's own line, once for each line and text."""
    where = user_line() or ("unknown", 0)
    key = (where, category, message)
    if key in _said:
        return
    warnings.warn_explicit(message, category, *where)
    with _lock:
        _said.add(key)


def forget_warnings() -> None:
    """Lets ``warn_once`` and ``warn_user`` say everything again; for tests."""
    with _lock:
        _said.clear()


enable(os.environ.get("TSTATIC_LOGS", ""))
