"""Takes back what a refused call has changed.

While a public call runs, a journal is open in its thread. Programs, blocks, variables, operators and name counters note in it,
before each edit, how to take it back. When an exception leaves the call, everything since its beginning is taken back, the last
edit first; calls inside it share the journal and take back their own part. An edit costs one entry of a list, and no program is
ever copied. Outside public calls nothing is noted.

An entry is a function with its arguments. It may be called twice, or for an edit that did not come about: an interrupt can fall
between any two steps.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, SupportsIndex, TypeVar

__all__ = [
    "ABSENT",
    "HERE",
    "Journal",
    "NotedAttributes",
    "NotedDict",
    "NotedList",
    "note_object",
    "put_back",
    "take_back",
    "undone_on_error",
]

T = TypeVar("T")
V = TypeVar("V")

Journal = list[tuple[Any, ...]]


class _Here(threading.local):
    """What each thread has of its own."""

    journal: Journal | None = None


HERE = _Here()
"""``HERE.journal`` is the journal of this thread's outermost public call that runs; ``None`` outside of such calls."""

ABSENT: Any = object()
"""The old value of a name that had none."""


def take_back(journal: Journal, mark: int) -> None:
    """Undoes the edits from entry ``mark`` on, the last one first; an interrupt waits until all are undone."""
    interrupt: KeyboardInterrupt | None = None
    while len(journal) > mark:
        try:
            undo, *args = journal[-1]
            undo(*args)
            del journal[-1]
        except KeyboardInterrupt as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt


@contextlib.contextmanager
def undone_on_error(*objects: Any) -> Iterator[None]:
    """Takes back what the body has changed if an exception leaves it, and puts back the attributes of objects.

    It stands around what users write in a ``with`` block, which runs after the call that returned the block.
    """
    opened = HERE.journal
    journal: Journal = [] if opened is None else opened
    mark = len(journal)
    try:
        HERE.journal = journal
        for one in objects:
            note_object(one)
        yield
    except BaseException:
        take_back(journal, mark)
        raise
    finally:
        if opened is None:
            HERE.journal = None


# ------------------------------------------------------------------------------------------------------- what undoes edits
def put_back(members: dict[Any, Any], key: Any, old: Any) -> None:
    """Gives a key of a dict its old value; one that had none is taken out."""
    if old is ABSENT:
        dict.pop(members, key, None)
    else:
        dict.__setitem__(members, key, old)


def take_off(block: Any, count: int, built: int) -> None:
    """Takes the ops behind the first ``count`` off a block, which then counts ``built``."""
    list.__delitem__(block.ops, slice(count, None))
    block.__dict__["built"] = built


def _put_back_ordered(members: OrderedDict[Any, Any], key: Any, old: Any) -> None:
    if old is ABSENT:
        if key in members:
            OrderedDict.__delitem__(members, key)
    else:
        OrderedDict.__setitem__(members, key, old)


def _refill_ordered(members: OrderedDict[Any, Any], old: list[tuple[Any, Any]]) -> None:
    OrderedDict.clear(members)
    for key, value in old:
        OrderedDict.__setitem__(members, key, value)


def _cut(items: list[Any], length: int) -> None:
    list.__delitem__(items, slice(length, None))


def _refill(items: list[Any], old: list[Any]) -> None:
    list.__setitem__(items, slice(None), old)


def _take_out(items: list[Any], index: int, length: int) -> None:
    if len(items) > length:
        list.__delitem__(items, index)


def _bring_back(items: list[Any], index: int, item: Any, length: int) -> None:
    if len(items) < length:
        list.insert(items, index, item)


# ------------------------------------------------------------------------------------------------------------- containers
class NotedList(list[T]):
    """A list whose edits a refused call takes back."""

    __slots__ = ()

    def append(self, item: T) -> None:
        journal = HERE.journal
        if journal is not None:
            journal.append((_cut, self, len(self)))
        list.append(self, item)

    def insert(self, index: SupportsIndex, item: T) -> None:
        journal = HERE.journal
        if journal is not None:
            at, length = index.__index__(), len(self)
            journal.append((_take_out, self, min(at, length) if at >= 0 else max(0, at + length), length))
        list.insert(self, index, item)

    def pop(self, index: SupportsIndex = -1) -> T:
        item = self[index]
        del self[index]
        return item

    def __delitem__(self, index: SupportsIndex | slice) -> None:
        journal = HERE.journal
        if journal is not None:
            if isinstance(index, slice):
                journal.append((_refill, self, list(self)))
            else:
                at = range(len(self))[index]
                journal.append((_bring_back, self, at, self[at], len(self)))
        list.__delitem__(self, index)

    def __reduce__(self) -> Any:
        return list, (list(self),)


def _noting_all(name: str) -> Callable[..., Any]:
    """Makes a method of lists that notes the whole list first, for those that are called once for many edits."""
    method = getattr(list, name)

    def edit(self: list[Any], *args: Any, **kwargs: Any) -> Any:
        journal = HERE.journal
        if journal is not None:
            journal.append((_refill, self, list(self)))
        return method(self, *args, **kwargs)

    edit.__name__, edit.__doc__ = name, method.__doc__
    return edit


for _name in ("__setitem__", "__iadd__", "__imul__", "clear", "extend", "remove", "reverse", "sort"):
    setattr(NotedList, _name, _noting_all(_name))


class NotedDict(OrderedDict[str, V]):
    """A dict whose edits a refused call takes back, the order of its keys included."""

    def __setitem__(self, key: str, value: V) -> None:
        journal = HERE.journal
        if journal is not None:
            journal.append((_put_back_ordered, self, key, self.get(key, ABSENT)))
        OrderedDict.__setitem__(self, key, value)

    def _note_all(self) -> None:
        journal = HERE.journal
        if journal is not None:
            journal.append((_refill_ordered, self, list(self.items())))

    def __delitem__(self, key: str) -> None:
        if key in self:
            self._note_all()
        OrderedDict.__delitem__(self, key)

    def drop(self, keys: Iterable[str]) -> None:
        """Deletes many keys as one edit: each ``del`` notes a copy of the whole dict, because it has to keep the order."""
        self._note_all()
        for key in keys:
            OrderedDict.__delitem__(self, key)

    def pop(self, key: str, *default: Any) -> Any:
        if key in self:
            self._note_all()
        return OrderedDict.pop(self, key, *default)

    def popitem(self, last: bool = True) -> tuple[str, V]:
        self._note_all()
        return OrderedDict.popitem(self, last)

    def clear(self) -> None:
        self._note_all()
        OrderedDict.clear(self)

    def move_to_end(self, key: str, last: bool = True) -> None:
        self._note_all()
        OrderedDict.move_to_end(self, key, last)


# -------------------------------------------------------------------------------------------------------------- attributes
class NotedAttributes:
    """Base class of objects whose attributes a refused call puts back.

    Constructors may write to ``vars(self)``, past this: a new object is forgotten as a whole.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        journal = HERE.journal
        if journal is not None:
            own = self.__dict__
            journal.append((put_back, own, name, own.get(name, ABSENT)))
        object.__setattr__(self, name, value)

    def _put(self, **values: Any) -> None:
        """Sets several attributes, which must be plain ones, at once."""
        journal, own = HERE.journal, self.__dict__
        if journal is not None:
            journal.extend((put_back, own, name, own.get(name, ABSENT)) for name in values)
        own.update(values)

    def __delattr__(self, name: str) -> None:
        journal = HERE.journal
        if journal is not None:
            own = self.__dict__
            journal.append((put_back, own, name, own.get(name, ABSENT)))
        object.__delattr__(self, name)


def note_object(value: Any) -> None:
    """Notes the attributes of any object, and the members of the lists, dicts and sets among them, before it is changed.

    It is for objects that are edited in few calls, such as optimizers: it costs a copy of their attributes.
    """
    journal = HERE.journal
    if journal is not None:
        own = vars(value)
        members = [(one, one.copy()) for one in own.values() if type(one) in (list, dict, set, OrderedDict)]
        journal.append((_restore, own, dict(own), members))


def _restore(own: dict[str, Any], old: dict[str, Any], members: Iterable[tuple[Any, Any]]) -> None:
    own.clear()
    own.update(old)
    for one, before in members:
        if isinstance(one, list):
            one[:] = before
        else:
            one.clear()
            one.update(before)
