"""What is saved of a program, stated once: the fields from which files and texts are written, and programs made again.

A description is plain data. ``serial`` writes it as JSON and ``text`` as lines; both readers check it by :func:`checked_form`
before ``restore`` makes a program of it. Only checking needs msgspec.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import cache, reduce
from operator import attrgetter, or_
from types import UnionType
from typing import Annotated, Any, ClassVar, Self, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from tstatic.ir.attrs import NO_ATTRS
from tstatic.ir.export import PUBLIC_API
from tstatic.ir.learning_rate import SetRate
from tstatic.ir.program import Operator, Parameter, Program, Variable
from tstatic.logs import warn_once
from tstatic.where import Where

MAX_BLOCKS = 100_000
REGULARIZERS = ("L1Decay", "L2Decay")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a value, named as in ``msgspec.Meta``."""

    ge: int | None = None
    le: int | None = None
    lt: int | None = None
    min_length: int | None = None
    max_length: int | None = None


Name = Annotated[str, Limits(min_length=1, max_length=65_536)]
Count = Annotated[int, Limits(ge=0, lt=2**32)]
Index = Annotated[int, Limits(ge=-1, lt=MAX_BLOCKS)]
Size = Annotated[int, Limits(ge=-1, le=2**62)]
Real = float | str
"""A number; in a file ``"inf"``, ``"-inf"`` and ``"nan"`` are texts."""
Line = tuple[Count, Count]
"""Number of a file in ``ProgramDesc.files``, and a line in it."""


F = TypeVar("F", bound=Callable[..., Any])


def _once(function: F) -> F:
    """As ``functools.cache``, whose type admits no classes as arguments."""
    return cast(F, cache(function))


@dataclass(slots=True, eq=False)
class _Desc:
    """Base of descriptions. Fields are in the order of a file, which leaves out those at their default.

    Attributes:
        MARKS: The fields that a text writes as ``name = value``, in its order.
        SET_ONLY: Those that a text leaves out at their default even where it writes all details.
        STORED: Field -> attribute of the program's part that holds it, where the names differ.
        GIVEN: Marks that no attribute of the part holds as they are: the caller of :meth:`marks` gives them.
    """

    MARKS: ClassVar[tuple[str, ...]] = ()
    SET_ONLY: ClassVar[frozenset[str]] = frozenset()
    STORED: ClassVar[Mapping[str, str]] = {}
    GIVEN: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def of(cls, part: Any, **given: Any) -> Self:
        """Describes a part of a program as the :func:`checked_form` has it; ``given`` are fields that it does not store so."""
        for name, read, _, hint in _facts(cls):
            if name not in given:
                value = _plain(read(part), hint)
                given[name] = list(value) if isinstance(value, tuple) else value
        return cast("Self", checked_form(cls)(**given))

    @classmethod
    def marks(
        cls, part: Any, details: bool, given: Mapping[str, Any] = NO_ATTRS, usual: Mapping[str, Any] = NO_ATTRS
    ) -> list[tuple[str, Any]]:
        """Returns the marks of a part of a program: what differs from the default, or from ``usual``; all with ``details``."""
        found = []
        for name, read, default, hint in _facts(cls, True):
            value = given[name] if given and name in given else read(part)
            expected = usual.get(name, default)
            # Nearly all values stop here. That `1 == True` does no harm: both have the same text.
            if value == expected and not details:
                continue
            if type(value) is not hint:
                value = _plain(value, hint)
            if value != expected or (details and name not in cls.SET_ONLY):
                found.append((name, list(value) if isinstance(value, tuple) else value))
        return found

    @classmethod
    def all_at_default(cls, part: Any) -> bool:
        """Returns whether a part stores the default for every mark, by one comparison: true of most variables."""
        read, defaults = _stored_defaults(cls)
        return bool(read(part) == defaults)


_Fact = tuple[str, Callable[[Any], Any], Any, Any]


@_once
def _facts(description: Any, marks: bool = False) -> tuple[_Fact, ...]:
    """Returns field, reader of the attribute that holds it, default, and type, of all fields or of the marks."""
    hints = get_type_hints(description)
    found = {}
    for f in fields(description):
        default = f.default if f.default_factory is MISSING else f.default_factory()
        # Parts of a program hold tuples where a file has lists.
        default = tuple(default) if isinstance(default, list) else default
        found[f.name] = f.name, attrgetter(description.STORED.get(f.name, f.name)), default, hints[f.name]
    return tuple(found[name] for name in (description.MARKS if marks else found))


@_once
def _stored_defaults(description: Any) -> tuple[Callable[[Any], Any], tuple[Any, ...]]:
    names = [name for name in description.MARKS if name not in description.GIVEN]
    defaults = {name: default for name, _, default, _ in _facts(description)}
    return attrgetter(*(description.STORED.get(n, n) for n in names)), tuple(defaults[n] for n in names)


def _plain(value: Any, hint: Any) -> Any:
    """Returns a stored value in the type of its field, a list as a tuple.

    Scripts also store ``1`` or ``None`` for a bool, ``True`` for an int, and numpy's numbers. The program treats them as the plain
    value, so that is what is written. Anything else is returned unchanged: the reader, or the check of a file, refuses it.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list):
        return tuple(value)
    if hint is bool and isinstance(value, int | float | str | None):
        return bool(value)
    if hint == bool | None and isinstance(value, int | float | str):
        return bool(value)
    if hint is int and isinstance(value, int | float) and value == value // 1:
        return int(value)
    return value


@dataclass(slots=True, eq=False)
class ParameterDesc(_Desc):
    """What a parameter has beyond a variable; the initializer stays behind, its ops stand in the startup program."""

    trainable: bool = True
    optimize_attr: dict[str, Real] = field(default_factory=lambda: {"learning_rate": 1.0})
    regularizer: tuple[str, Real] | None = None
    do_model_average: bool | None = None
    need_clip: bool = True
    is_distributed: bool = False

    MARKS = ("trainable", "optimize_attr", "regularizer", "do_model_average", "need_clip", "is_distributed")
    SET_ONLY = GIVEN = frozenset({"regularizer"})
    IN_TEXT: ClassVar[Mapping[str, Any]] = {"do_model_average": True}
    """What a text leaves out where that is not the default."""


@dataclass(slots=True, eq=False)
class VarDesc(_Desc):
    """A variable; ``shape`` or ``dtype`` is ``None`` where it is not known yet."""

    name: Name
    shape: Annotated[list[Size], Limits(max_length=64)] | None
    dtype: str | None
    persistable: bool = False
    stop_gradient: bool = False
    is_data: bool = False
    need_check_feed: bool = False
    lod_level: Count = 0
    lod: list[Name] = field(default_factory=list)
    type: str = "dense_tensor"
    initialised: bool = False
    where: Line | None = None
    parameter: ParameterDesc | None = None

    MARKS = (
        "is_data", "need_check_feed", "persistable", "parameter", "stop_gradient", "lod_level", "lod", "type", "initialised",
    )  # fmt: skip
    SET_ONLY = frozenset({"parameter", "lod"})
    GIVEN = frozenset({"parameter"})
    # The last two are read behind their properties, which are slow calls for what printing reads of every variable.
    STORED = {  # noqa: RUF012 - a ClassVar of the base
        "shape": "_shape", "persistable": "_persistable", "stop_gradient": "_stop_gradient",
    }  # fmt: skip

    @staticmethod
    @cache
    def in_text(trainable: bool | None) -> Mapping[str, Any]:
        """Returns what a text leaves out of a parameter, or of a plain variable (``None``)."""
        return {"persistable": trainable is not None, "stop_gradient": trainable is not None and not trainable}


@dataclass(slots=True, eq=False)
class OpDesc(_Desc):
    """An op; ``attrs`` holds Python values here, their packed form in a file."""

    type: Name
    inputs: dict[str, list[Name]]
    outputs: dict[str, list[Name]]
    position: Count
    attrs: dict[str, Any] = field(default_factory=dict)
    role: Count = 0
    role_var: list[str] = field(default_factory=list)
    namescope: str = ""
    device: str = ""
    updates: list[Count] = field(default_factory=list)
    where: Line | None = None

    MARKS = ("role", "role_var", "namescope", "device", "updates", "position")


@dataclass(slots=True, eq=False)
class BlockDesc(_Desc):
    """A block; ``built`` counts the ops ever made in it."""

    vars: list[VarDesc]
    ops: list[OpDesc]
    built: Count
    parent: Index = -1
    forward: Index = -1
    grad_prefix: str = ""

    MARKS = ("parent", "forward", "built", "grad_prefix")
    STORED = {"parent": "parent_idx", "forward": "forward_block_idx"}  # noqa: RUF012


@dataclass(slots=True, eq=False)
class ProgramDesc(_Desc):
    """A whole program. ``process`` is set when ops call functions that only this process has."""

    blocks: Annotated[list[BlockDesc], Limits(min_length=1, max_length=MAX_BLOCKS)]
    files: list[str] = field(default_factory=list)
    random_seed: int = 0
    current_block: Count = 0
    is_test: bool = False
    loss: str | None = None
    learning_rate: str | list[str] | None = None
    feeds: list[str] = field(default_factory=list)
    fetches: list[str] = field(default_factory=list)
    process: str = ""

    MARKS = ("random_seed", "is_test", "loss", "learning_rate", "feeds", "fetches", "current_block", "process")
    SET_ONLY = frozenset({"loss", "learning_rate", "feeds", "fetches", "process"})
    GIVEN = frozenset({"learning_rate", "process"})
    STORED = {  # noqa: RUF012
        "random_seed": "_seed", "current_block": "current_block_idx", "is_test": "_is_test", "loss": "loss_name",
        "feeds": "feed_names", "fetches": "fetch_names",
    }  # fmt: skip


@_once
def checked_form(description: Any) -> Any:
    """Returns the msgspec struct with a description's fields: reading data as this type checks kinds, limits and names.

    Fields at their default are not written, unknown ones are refused.
    """
    import msgspec

    def checked(hint: Any) -> Any:
        if isinstance(hint, type) and issubclass(hint, _Desc):
            return checked_form(hint)
        origin, args = get_origin(hint), get_args(hint)
        if origin is Annotated:
            limits = {name: limit for name, limit in asdict(args[1]).items() if limit is not None}
            return Annotated[checked(args[0]), msgspec.Meta(**limits)]
        if origin is None:
            return hint
        parts = tuple(map(checked, args))
        return reduce(or_, parts) if origin in (Union, UnionType) else origin[parts]

    hints = get_type_hints(description, include_extras=True)
    rows: list[Any] = []
    for f in fields(description):
        default: Any = f.default
        if f.default_factory is not MISSING:
            default = msgspec.field(default_factory=f.default_factory)
        rows.append((f.name, checked(hints[f.name]), *(() if default is MISSING else (default,))))
    return msgspec.defstruct(description.__name__, rows, forbid_unknown_fields=True, omit_defaults=True)


# ------------------------------------------------------------------------------------------------------------ describe
def describe(program: Program) -> ProgramDesc:
    """Describes a program."""
    files: dict[str, int] = {}

    def line(where: Where | None) -> Line | None:
        return None if where is None else (files.setdefault(where[0], len(files)), where[1])

    def variable(var: Variable) -> VarDesc:
        parameter = None
        if isinstance(var, Parameter):
            parameter = ParameterDesc.of(var, optimize_attr=dict(var.optimize_attr), regularizer=regularizer_of(var))
        dtype = None if var._dtype is None else var._dtype.name
        return VarDesc.of(var, dtype=dtype, where=line(var.made_at), parameter=parameter)

    def op(op: Operator) -> OpDesc:
        inputs, outputs = ({slot: list(row) for slot, row in side.items()} for side in (op.inputs, op.outputs))
        return OpDesc.of(op, inputs=inputs, outputs=outputs, attrs=dict(op.attrs), where=line(op.where))

    blocks = [
        BlockDesc.of(block, vars=[variable(v) for v in block.vars.values()], ops=[op(o) for o in block.ops])
        for block in program.blocks
    ]
    rate = learning_rate_of(program)
    return ProgramDesc.of(program, blocks=blocks, files=list(files), learning_rate=rate, process=process_of(program))


def learning_rate_of(program: Program) -> str | list[str] | None:
    """Returns the name of the variable of a learning rate that is scheduled or was set; a list of several, ``None`` without."""
    found = [n for n, rate in program.learning_rates.items() if not isinstance(rate, SetRate) or rate.value is not None]
    return found if len(found) > 1 else found[0] if found else None


def regularizer_of(parameter: Parameter) -> tuple[str, float] | None:
    """Returns name and coefficient of a parameter's regularizer; one of your own class is left out, and the log says so."""
    found = parameter.regularizer
    if found is None:
        return None
    kind = type(found).__name__
    if kind not in REGULARIZERS or type(found) is not PUBLIC_API[f"regularizer.{kind}"].function:
        warn_once(
            ("regularizer", parameter.name, kind),
            f"the regularizer {kind} of parameter '{parameter.name}' is not part of the program's text or file: "
            f"only {' and '.join(REGULARIZERS)} are",
        )
        return None
    return kind, float(found.coeff)


@cache
def this_process() -> str:
    """Returns a word that no other process has: functions of ``py_func`` are numbered per process."""
    return os.urandom(8).hex()


def calls_functions(program: Program) -> bool:
    """Returns whether an op calls a Python function."""
    kinds: dict[str, list[Operator]] = {}
    for block in program.blocks:
        for op in block.ops:
            kinds.setdefault(op.type, []).append(op)
    return any(
        op.attrs.get(name, -1) >= 0
        for ops in kinds.values()
        for name, spec in ops[0].definition.attrs.items()
        if spec.kind == "function"
        for op in ops
    )


def process_of(program: Program) -> str:
    """Returns the mark of a saved program that only this process can run; empty if any process can."""
    return this_process() if calls_functions(program) else ""
