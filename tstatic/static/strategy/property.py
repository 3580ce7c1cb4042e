"""Records of strategy properties, and the base class that validates, prints, compares and copies by them."""

from __future__ import annotations

import enum
import reprlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar, overload

import numpy as np

from tstatic.errors import StrategyTypeError, StrategyValueError, TstaticError, UnknownPropertyError, near

__all__ = ["Effect", "Kind", "Outcome", "Property", "Status", "Strategy"]

T = TypeVar("T")
E = TypeVar("E", bound=enum.Enum)
S = TypeVar("S", bound="Strategy")

Status = Literal["active", "not yet active", "no effect"]
Effect = Literal[
    "compiler",
    "debug",
    "distributed",
    "fusion",
    "GPU",
    "memory",
    "multi-device",
    "optimizer fusion",
    "order",
    "rewrite",
]

# Paddle keeps these numbers in a C int; a larger one is a mistake in every case.
MOST = 2**31 - 1


@dataclass(frozen=True)
class Kind(Generic[T]):
    """The kind of values that a property takes.

    Args:
        expected: The accepted values in the user's spelling, as error messages and help show them.
        read: Returns the value as it is stored (a copy where it is mutable); raises ``TypeError`` for a wrong type
            and ``ValueError`` for a number out of range.
        fix: What to do after a wrong value.
        freeze: Returns a hashable equal of a stored value.
    """

    expected: str
    read: Callable[[object], T]
    fix: str
    freeze: Callable[[T], Hashable] = lambda value: value


def _read_bool(value: object) -> bool:
    # An int is rejected on purpose: a number of threads given for a switch, or 3 for True, must not pass silently.
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise TypeError


def _read_optional_bool(value: object) -> bool | None:
    return None if value is None else _read_bool(value)


def _read_text(value: object) -> str:
    if isinstance(value, str):
        return str(value)
    raise TypeError


def _read_text_set(value: object) -> set[str]:
    if isinstance(value, set | frozenset):
        return {_read_text(item) for item in value}
    raise TypeError


def _read_text_list(value: object) -> list[str]:
    if isinstance(value, list):
        return [_read_text(item) for item in value]
    raise TypeError


BOOL = Kind("bool", _read_bool, "set True or False")
OPTIONAL_BOOL = Kind("None, True or False", _read_optional_bool, "set True or False, or None to leave the choice open")
TEXT = Kind("str", _read_text, "set a str; the empty string turns it off")
TEXT_SET = Kind("set of str", _read_text_set, "set a set of str, such as {'relu'}", frozenset)
TEXT_LIST = Kind("list of str", _read_text_list, "set a list of str, such as ['127.0.0.1:6170']", tuple)


def check_int(least: int) -> Kind[int]:
    """Returns the kind of the whole numbers from ``least`` up; a bool is not one of them."""

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise TypeError
        if not least <= value <= MOST:
            raise ValueError
        return int(value)

    return Kind(f"int, {least} <= value <= {MOST}", read, f"set a whole number that is at least {least}")


def member(cls: type[E]) -> Kind[E]:
    """Returns the kind of the members of the enum ``cls``; their numbers and names are refused."""

    def read(value: object) -> E:
        if isinstance(value, cls):
            return value
        raise TypeError

    names = ", ".join(f"{cls.__name__}.{item.name}" for item in cls)
    example = f"{cls.__qualname__}.{next(iter(cls)).name}"
    return Kind(f"one of {names}", read, f"set a member of the enum, such as {example}")


class Outcome(NamedTuple):
    """What a property does in this release, as ``explain`` and help report it: a status, and a sentence that says why or where."""

    status: Status
    reason: str


active = partial(Outcome, "active")
later = partial(Outcome, "not yet active")
no_effect = partial(Outcome, "no effect")


@dataclass(frozen=True, eq=False)
class Property(Generic[T]):
    """One property of a strategy: the single source for validation, help, ``repr`` and ``explain``.

    It is also the descriptor that gets and sets the value, so that ``help()`` shows it and type checkers know its type.

    Args:
        kind: The kind of its values.
        default: The documented default.
        since: The first Paddle release that had it.
        effect: What it acts on.
        doc: One sentence that describes its effect.
        outcome: What it does in this release.
        freezes: True if setting it after the strategy was finalized is an error.
    """

    kind: Kind[T]
    default: T
    since: str
    effect: Effect
    doc: str
    outcome: Outcome
    freezes: bool = False
    name: str = field(default="", init=False)
    owner: str = field(default="", init=False)

    @property
    def status(self) -> Status:
        return self.outcome.status

    @property
    def reason(self) -> str:
        return self.outcome.reason

    @property
    def initial(self) -> Any:
        """What a new strategy holds."""
        # Read anew, so that each strategy has a list or set that no other one changes.
        return self.kind.read(self.default)

    def __set_name__(self, owner: type, name: str) -> None:
        assert self.kind.read(self.default) == self.default, f"{name}: the default is not a value of its kind"
        lines = [self.doc, "", f"Type: {self.kind.expected}. Default: {self.default!r}. Since Paddle {self.since}."]
        if self.freezes:
            lines.append("Cannot be set once the strategy has been finalized.")
        lines.append(f"In this release: {self.status}: {self.reason}")
        # The record is frozen, but its name is known only now.
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "owner", owner.__name__)
        object.__setattr__(self, "__doc__", "\n".join(lines))

    @overload
    def __get__(self, strategy: None, owner: type) -> Property[T]: ...
    @overload
    def __get__(self, strategy: Strategy, owner: type) -> T: ...
    def __get__(self, strategy: Strategy | None, owner: type) -> Property[T] | T:
        # On the class it is the record itself, which `help` shows.
        if strategy is None:
            return self
        value: T = strategy._values[self.name]
        return value

    def __set__(self, strategy: Strategy, value: T) -> None:
        if self.freezes and strategy._finalized:
            raise TstaticError(
                f"{self.owner} has been finalized, so its property '{self.name}' cannot be configured again",
                expected=f"'{self.name}' to be set before the strategy is finalized",
                received=reprlib.repr(value),
                fix="set it earlier, or configure strategy.copy(), which is not finalized",
            )
        strategy._values[self.name] = self.read(value)
        # What `key` keeps is of the old value.
        object.__setattr__(strategy, "_key", None)

    def read(self, value: object) -> T:
        """Returns ``value`` as it is stored.

        Raises:
            StrategyTypeError: The value is of another type than ``kind`` takes.
            StrategyValueError: It is of that type and out of range.
        """
        try:
            return self.kind.read(value)
        except TypeError:
            raise self._wrong(StrategyTypeError, "of the wrong type", value) from None
        except ValueError:
            raise self._wrong(StrategyValueError, "out of range", value) from None

    def _wrong(self, cls: type[TstaticError], what: str, value: object) -> TstaticError:
        return cls(
            f"the value given to {self.owner}.{self.name} is {what}",
            expected=self.kind.expected,
            received=f"{reprlib.repr(value)} ({type(value).__name__})",
            fix=self.kind.fix,
        )


class OpenSwitch(Property[bool]):
    """A switch that reads as its default until it is set, and leaves the choice open so long: :meth:`Strategy.chosen` tells."""

    @property
    def initial(self) -> Any:
        return None

    def __get__(self, strategy: Strategy | None, owner: type) -> Any:
        if strategy is None:
            return self
        value = strategy._values[self.name]
        return self.default if value is None else value


class Strategy:
    """Base class of the strategies: attributes are checked when they are set, and only the listed ones exist."""

    __slots__ = ("__weakref__", "_finalized", "_key", "_values")
    _table: ClassVar[dict[str, Property[Any]]] = {}
    _values: dict[str, Any]
    _finalized: bool
    _key: tuple[tuple[tuple[Any, tuple[Any, ...]], ...], tuple[Hashable, ...]] | None

    def __init_subclass__(cls) -> None:
        # Those of the base class come first; a subclass that replaces one leaves it in its place.
        cls._table = cls._table | {name: item for name, item in vars(cls).items() if isinstance(item, Property)}

    def __init__(self) -> None:
        object.__setattr__(self, "_values", {name: item.initial for name, item in self._table.items()})
        object.__setattr__(self, "_finalized", False)
        object.__setattr__(self, "_key", None)

    @classmethod
    def properties(cls) -> tuple[Property[Any], ...]:
        """Returns the records of all properties, in the order in which they are printed."""
        return tuple(cls._table.values())

    def changed(self) -> dict[str, Any]:
        """Returns the properties whose value is not the default, by name."""
        return {name: self._values[name] for name, item in self._table.items() if self._values[name] != item.initial}

    def chosen(self, name: str) -> Any:
        """Returns the value of a property; ``None`` for an open switch that was not set."""
        return self._values[name]

    def key(self) -> tuple[Hashable, ...]:
        """Returns all values in table order, hashable; two strategies have the same key if and only if they are equal.

        Raises:
            StrategyTypeError: A list or set was changed in place and now holds something that is not a str.
        """
        # Called before every run. Only lists and sets can change in place, so only those are read again.
        if self._key is not None:
            lists, values = self._key
            for live, was in lists:
                # A set that was not changed gives its items in the same order.
                if tuple(live) != was:
                    break
            else:
                return values
        values = tuple(self._table[name].kind.freeze(value) for name, value in self._copied().items())
        lists = tuple((value, tuple(value)) for value in self._values.values() if isinstance(value, list | set))
        object.__setattr__(self, "_key", (lists, values))
        return values

    def copy(self: S) -> S:
        """Returns an independent copy that is not finalized."""
        other = type(self)()
        other._values.update(self._copied())
        return other

    _copy = copy

    def _copied(self) -> dict[str, Any]:
        """Returns all values, checked once more and copied where they are mutable."""
        # None leaves a choice open, whatever else a property takes.
        return {n: None if (v := self._values[n]) is None else item.read(v) for n, item in self._table.items()}

    def __setattr__(self, name: str, value: object) -> None:
        item = self._table.get(name)
        if item is None:
            raise self._unknown(name)
        item.__set__(self, value)

    def __getattr__(self, name: str) -> Any:
        raise self._unknown(name)

    def __delattr__(self, name: str) -> None:
        if name not in self._table:
            raise self._unknown(name)
        raise UnknownPropertyError(
            f"the property '{name}' of {type(self).__name__} cannot be deleted",
            fix=f"set it to its default, {self._table[name].default!r}",
        )

    def _unknown(self, name: str) -> UnknownPropertyError:
        cls = type(self).__name__
        # Python itself asks for dunder names (copy, pickle, numpy): no need to search for near ones.
        close = "" if name.startswith("__") else near(name, self._table)
        return UnknownPropertyError(
            f"{cls} has no property '{name}'",
            expected=f"one of the {len(self._table)} properties of {cls}",
            received=f"'{name}'",
            fix=close or f"print({cls}()) lists them all",
        )

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values == other._values

    # Equal by value and mutable: key() is what a dict can hold.
    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> dict[str, Any]:
        return {"values": self._copied(), "finalized": self._finalized}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A pickle of an older release lacks newer properties, which then have their defaults.
        Strategy.__init__(self)
        for name, value in state["values"].items():
            # `__init__` has left such choices open.
            if value is not None:
                setattr(self, name, value)
        # Last: a finalized strategy would refuse its own values.
        object.__setattr__(self, "_finalized", bool(state["finalized"]))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={_show(value)}' for name, value in self.changed().items())})"

    def __str__(self) -> str:
        changed = self.changed()
        width = max(map(len, self._table), default=0)
        lines = [f"{type(self).__name__}{' (finalized)' if self._finalized else ''}: {len(changed)} changed, marked *"]
        for name, item in self._table.items():
            line = f"{'*' if name in changed else ' '} {name:<{width}} = {_show(getattr(self, name))}"
            lines.append(f"{line}  (default {_show(item.default)})" if name in changed else line)
        return "\n".join(lines)


def _show(value: object) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, set) and value:
        return "{" + ", ".join(sorted(map(repr, value))) + "}"
    return repr(value)
