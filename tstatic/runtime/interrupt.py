"""Marks state that is being written, so that what is broken off leaves it torn, and later runs refuse to use it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Collection, Iterator
from types import TracebackType

from tstatic.errors import DeviceError, ForkedProcessError
from tstatic.runtime.scope import Scope
from tstatic.shield import shield

PATIENCE = 10.0
"""Seconds that replicas have to complete a running update when a step is interrupted: far more than it takes."""


class Writing:
    """Defers signals while the block writes state, so that it writes all of it or nothing.

    Any other exception (raised by an operator, or set in this thread by another one) leaves the variables *torn*:
    :func:`check_whole` refuses to use them until each was completely written again.

    Args:
        scope: The scope that has the variables, or whose parents have them.
        names: The variables that the block writes completely.
        what: What the block does, for the error: ``a step``, ``a load``.
        alone: Whether the variables are whole when the block ends well; otherwise :meth:`mend` is called when all blocks have.
    """

    __slots__ = ("alone", "names", "scope", "what")

    def __init__(self, scope: Scope, names: Collection[str], what: str, alone: bool = True) -> None:
        self.scope = scope
        self.names = names
        self.what = what
        self.alone = alone

    def __enter__(self) -> None:
        # First: if an exception prevents `__exit__` from running, this entry stays.
        _open[threading.get_ident()] = self
        try:
            shield.__enter__()
        except BaseException:
            # Raised by a handler: nothing is written yet.
            _open.pop(threading.get_ident(), None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None:
                self.tear(f"{self.what} that {type(error).__name__} broke off")
            # Asked first: in most programs nothing is torn, and every step would look all its variables up.
            elif self.alone and self.scope.torn:
                self.mend()
            # Behind the marks: until they are made, this entry is what tells that the block did not end.
            _open.pop(threading.get_ident(), None)
        finally:
            shield.__exit__()

    def mend(self) -> None:
        """Removes the marks of the variables, which were all written."""
        if self.scope.torn:
            self.scope._mend(self.names)

    def tear(self, reason: str) -> None:
        """Marks the variables as possibly half written."""
        self.scope._tear(self.names, reason)


_open: dict[int, Writing] = {}
"""What each thread is writing now."""


def still_writing(scopes: Collection[Scope]) -> list[Writing]:
    """Returns what threads are writing to these scopes now."""
    return [writing for writing in list(_open.values()) if writing.scope in scopes]


@contextlib.contextmanager
def wait_for_writes(scopes: Collection[Scope]) -> Iterator[None]:
    """When a parallel step is interrupted, waits until no replica writes; marks what is still being written as torn."""
    try:
        yield
    except BaseException as error:
        deadline = time.monotonic() + PATIENCE
        with shield:
            # The writers are other threads, which the shield of this one does not stop.
            while (left := still_writing(scopes)) and time.monotonic() < deadline:
                time.sleep(0.001)
            for writing in left:
                writing.tear(f"a step that {type(error).__name__} broke off")
        raise


def check_whole(scope: Scope, names: Collection[str], use: str) -> None:
    """Checks that no variable was left half written.

    Args:
        scope: The scope that has the variables.
        names: The variables that will be read.
        use: What reads them, as the subject of a sentence: ``this run``, ``static.save``.

    Raises:
        DeviceError: If one of them is torn.
        ForkedProcessError: If one of them was copied by a fork while a thread of the parent wrote it.
    """
    left = _open.pop(threading.get_ident(), None)
    if left is not None:
        left.tear(f"{left.what} that was broken off")
    if not scope.torn:
        return
    torn = [(name, reason) for name in names if (reason := scope._torn_by(name))]
    if torn:
        name, reason = torn[0]
        more = f" and {len(torn) - 1} more" if len(torn) > 1 else ""
        kind = ForkedProcessError if reason.endswith(_FORKED) else DeviceError
        raise kind(
            f"{use} would use values that are half written: '{name}'{more}",
            expected="values that one step, load or startup program wrote completely",
            received=f"what is left of {reason}",
            fix="load the last good checkpoint (static.load, set_state_dict), or run the startup program again",
            var=name,
        )


_FORKED = "of a thread of the parent process, in the middle of which this process was forked"


def _after_fork() -> None:
    mine = threading.get_ident()
    if mine not in _open:
        shield.forget()
    # Only the forking thread lives on in the child: what others were writing stays as it was at that moment.
    for ident, writing in list(_open.items()):
        if ident != mine:
            writing.tear(f"{writing.what} {_FORKED}")
            del _open[ident]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
