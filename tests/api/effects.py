"""Sets each parameter of a public function to other legal values, and compares what it builds or returns.

A base call is derived from the signature, from the shapes of the operator's domain and from defaults by name, or stands in
``samples.py``. The comparison is that of the whole program text, so a parameter that only ends in an attribute counts as
having an effect here; ``tests/ops/test_attributes.py`` sees to it that attributes have one.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tstatic as paddle
from tests.api import surface
from tests.api.samples import BASES, OTHERS, OWN_OTHERS, SAMPLES, Sample
from tests.ops.sampler import sites
from tests.parity import generate, runner
from tstatic import static
from tstatic.formats.text import variable_text
from tstatic.ir.opdef import OPS, PUBLIC_API, OpDef
from tstatic.ir.program import Variable
from tstatic.ir.respell import ORIGIN


def _respelled() -> None:
    """Adds the samples of what another name has with other parameters: the calls are those of the original, in its parameters."""
    first: dict[int, tuple[str, Any]] = {}
    for path, value in surface.walk():
        first.setdefault(id(value), (path, value))
    paths = {id(inspect.unwrap(value)): path for path, value in reversed(first.values())}
    for path, value in first.values():
        if ORIGIN not in getattr(inspect.unwrap(value), "__dict__", {}) or path in SAMPLES:
            continue
        original, targets = vars(inspect.unwrap(value))[ORIGIN]
        others = OWN_OTHERS.get(paths.get(id(original), ""), {})
        OWN_OTHERS[path] = {name: others[target] for name, target in targets.items() if target in others}
        sample = SAMPLES.get(paths.get(id(original), ""))
        if sample is None or sample.call is not None:
            continue
        names = {target: name for name, target in targets.items()}

        def renamed(make: Arguments, names: dict[str, str] = names) -> Arguments:
            return lambda: {names[key]: given for key, given in make().items() if key in names}

        SAMPLES[path] = Sample(
            renamed(sample.arguments), {names[k]: v for k, v in sample.others.items() if k in names}, sample.use,
            more=[renamed(make) for make in sample.more],
        )  # fmt: skip


SHAPES: tuple[tuple[int, ...], ...] = ((4, 6), (2, 4, 6), (2, 4, 6, 6), (2, 2, 4, 4, 4), (6,))
Arguments = Callable[[], dict[str, Any]]
OP_OF = {id(entry.function): entry.op for entry in PUBLIC_API.values()}


class NoSampleError(Exception):
    """A value for a required parameter is not known."""


@dataclass(frozen=True)
class Constant:
    """Makes the same value each time."""

    value: Any

    def __call__(self) -> Any:
        return self.value


FED = "another"


@dataclass(frozen=True)
class Fed:
    """Makes a Variable that is fed."""

    shape: Sequence[int]
    dtype: str

    def __call__(self) -> Variable:
        return static.data(FED, list(self.shape), self.dtype)


@dataclass
class Found:
    """What became of the parameters of one function.

    Attributes:
        sampled: Whether a base call was found.
        idle: Parameters that could be changed without an error and changed nothing.
        effective: Parameters that changed something.
    """

    sampled: bool = False
    idle: set[str] = field(default_factory=set)
    effective: set[str] = field(default_factory=set)


# ---------------------------------------------------------------------------------------------------------------- calls
def is_variable(parameter: inspect.Parameter) -> bool:
    return str(parameter.annotation).strip("'\"").startswith(("Variable", "Sequence[Variable", "list[Variable"))


def base_calls(path: str, function: Callable[..., Any]) -> Iterator[Arguments]:
    """Arguments of calls that may be legal, most likely first."""
    sample = SAMPLES.get(path)
    if sample is not None and sample.arguments is not None:
        yield sample.arguments
        yield from sample.more
        return
    parameters = parameters_of(function)
    definition = OPS.get(OP_OF.get(id(function), ""))
    if definition is not None and definition.domain is not None:
        for shapes, attrs in sites(definition, definition.domain)[:10]:
            yield _drawn(parameters, definition, shapes, attrs)
    for call in generate.described(path.removeprefix("tstatic.")):
        yield _described(function, call)
    for shape in SHAPES:
        yield _drawn(parameters, None, (shape,) * 5, {})


def _described(function: Callable[..., Any], call: dict[str, Any]) -> Arguments:
    """Arguments of a call that is described for the comparison with Paddle."""

    def arguments() -> dict[str, Any]:
        builder, told = runner.Builder(paddle, unknown=False), generate.seeded(call, [0])
        # Of a class, what its objects are made with.
        positional, named = ("init", "init_kwargs") if "init" in told else ("args", "kwargs")
        args, kwargs = builder.value(told[positional]), {k: builder.value(v) for k, v in told[named].items()}
        return dict(inspect.signature(function).bind(*args, **kwargs).arguments)

    return arguments


def parameters_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    found = inspect.signature(function).parameters
    stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: p for name, p in found.items() if p.kind not in stars and name != "self"}


def _drawn(
    parameters: Mapping[str, inspect.Parameter],
    definition: OpDef | None,
    shapes: Sequence[Any],
    attrs: Mapping[str, Any],
) -> Arguments:
    def arguments() -> dict[str, Any]:
        given: dict[str, Any] = {}
        slot = 0
        for name, p in parameters.items():
            if p.default is not p.empty:
                if name in attrs:
                    given[name] = attrs[name]
            elif is_variable(p):
                given[name] = _inputs(name, p, definition, shapes, slot)
                slot += 1
            elif name in attrs:
                given[name] = attrs[name]
            elif name in BASES:
                given[name] = BASES[name]
            else:
                raise NoSampleError(name)
        return given

    return arguments


def _inputs(name: str, p: inspect.Parameter, definition: OpDef | None, shapes: Sequence[Any], slot: int) -> Any:
    dtype, shape, many = "float32", shapes[min(slot, len(shapes) - 1)] if shapes else (4, 6), False
    if definition is not None and slot < len(definition.inputs):
        assert definition.domain is not None
        values = definition.domain.values.get(definition.inputs[slot].name)
        if values is not None and values.dtype != "float":
            dtype = values.dtype
        elif "float32" not in definition.domain.floats and definition.domain.others:
            dtype = definition.domain.others[0]
        many = definition.inputs[slot].many
    if shape is None:
        raise NoSampleError(name)
    if many and shape and isinstance(shape[0], tuple | list):
        return [static.data(f"{name}{i}", list(s), dtype) for i, s in enumerate(shape)]
    if "Sequence[Variable" in str(p.annotation) or "list[Variable" in str(p.annotation):
        return [static.data(f"{name}{i}", list(shape), dtype) for i in range(2)]
    return static.data(name, list(shape), dtype)


# --------------------------------------------------------------------------------------------------------------- values
_respelled()


def other_values(path: str, name: str, p: inspect.Parameter, base: Any) -> list[Callable[[], Any]]:
    """Makers of values other than the base's: those named for the function, for the parameter, and by the kind of value."""
    sample = SAMPLES.get(path)
    listed = [
        *(sample.others.get(name, ()) if sample else ()),
        *OWN_OTHERS.get(path, {}).get(name, ()),
        *OTHERS.get(name, ()),
    ]
    near: list[Any] = []
    if isinstance(base, bool):
        near = [not base]
    elif isinstance(base, int):
        near = [base + 1, base + 2, base - 1, 0, 1, 2, -1, [base + 1] * 2]
    elif isinstance(base, float):
        near = [base + 0.25, 2 * base + 0.1, base / 2, 0.5, 1.0]
    elif isinstance(base, str):
        near = [f"{base}_"]
    elif isinstance(base, list | tuple) and base and all(type(b) is int for b in base):
        near = [
            [b + 1 for b in base],
            [b - 1 for b in base],
            list(reversed(base)),
            list(base)[:-1],
            [0],
            [1],
            [*base, 1],
        ]
    elif base is None:
        near = [0, 1, 2, 0.5, [0], [1], [2, 2], True, "float64", "other"]
    made = [one if getattr(one, "__name__", "") == "<lambda>" else Constant(one) for one in (*listed, *near)]
    makers: list[Callable[[], Any]] = [
        one for one in made if not (isinstance(one, Constant) and repr(one.value) == repr(base))
    ]
    if isinstance(base, Variable):
        makers += [Fed(tuple(base.shape), d) for d in (base.dtype.name, "float64", "int64")]
        makers += [Fed((3,), base.dtype.name)]
    elif isinstance(base, list) and base and isinstance(base[0], Variable):
        makers += [lambda: list(reversed(base)), lambda: base[:1]]
    elif base is None and ("Variable" in str(p.annotation) or p.annotation == "Any"):
        shapes = ((1,), (), (6,), (4,), (2,), (3,), (4, 6), (2, 4, 6), (2, 4, 6, 6), (4, 1), (2, 4))
        makers += [Fed(s, d) for d in ("float32", "int64", "int32", "bool") for s in shapes]
    return makers


# -------------------------------------------------------------------------------------------------------------- effects
def outcome(
    function: Callable[..., Any], arguments: Arguments, use: Any, make: Callable[[], Any] = lambda: None, name: str = ""
) -> Any:
    """The programs that a call builds, and what it returns, as text; without a :class:`Fed` Variable that is as it was made.

    Args:
        function: What is called.
        arguments: Makes its arguments.
        use: What is done with the result.
        make: Makes another value, also where it is not used: a Variable is an entry of the program by itself.
        name: The parameter that gets the value.

    Raises:
        Exception: What the call raises.
    """
    main, startup = static.Program(), static.Program()
    said = io.StringIO()
    # Some initializers draw while the program is built.
    np.random.seed(7)
    main.random_seed = startup.random_seed = 7
    guards = (static.program_guard(main, startup), paddle.utils.unique_name.guard(), contextlib.redirect_stdout(said))
    with guards[0], guards[1], guards[2]:
        given = arguments()
        other = make()
        declared = variable_text(other, with_details=True).partition("  # ")[0] if isinstance(make, Fed) else ""
        if name:
            given[name] = other
        result = function(**given)
        if use is not None:
            result = use(result, given)
        elif isinstance(result, contextlib.AbstractContextManager):
            with result:
                result = paddle.scale(static.data("inside", [2]), 3.0)
    text = main.to_string(with_details=True)
    if declared:
        text = re.sub(rf"^    {re.escape(declared)}  # .*\n", "", text, flags=re.MULTILINE)
    variables = [
        (v.name, v.shape, v.dtype.name, v.stop_gradient, v.persistable)
        for v in main.list_vars() if not (declared and v.name == FED)
    ]  # fmt: skip
    return (
        text,
        startup.to_string(with_details=True),
        variables,
        shown(result),
        said.getvalue(),
    )


def shown(value: Any) -> Any:
    """A result as text that does not name addresses."""
    if isinstance(value, Variable):
        return value.name, value.shape, value.dtype.name, value.stop_gradient
    if isinstance(value, list | tuple):
        return [shown(v) for v in value]
    if isinstance(value, dict):
        return {k: shown(v) for k, v in value.items()}
    return repr(value).partition(" at 0x")[0]


def effects(path: str, function: Callable[..., Any], use: Any = None) -> Found:
    """Finds parameters that change nothing, over the first base calls that are legal."""
    found = Found()
    parameters = parameters_of(function)
    todo, tried = set(parameters), set[str]()
    sample = SAMPLES.get(path)
    function = sample.call if sample is not None and sample.call is not None else function
    use = sample.use if sample is not None and sample.use is not None else use
    legal = 0
    for arguments in base_calls(path, function):
        try:
            before = outcome(function, arguments, use)
        except Exception:  # not a legal call, whatever it ends in
            continue
        found.sampled = True
        legal += 1
        for name in sorted(todo):
            if _changes(path, function, arguments, name, parameters[name], before, use, tried):
                todo.discard(name)
        if not todo or legal == 3:
            break
    found.idle = todo & tried
    found.effective = set(parameters) - todo
    return found


def _changes(
    path: str, function: Callable[..., Any], arguments: Arguments, name: str, p: inspect.Parameter, before: Any, use: Any,
    tried: set[str],
) -> bool:  # fmt: skip
    with static.program_guard(static.Program(), static.Program()):
        base = arguments().get(name, p.default)
    for make in other_values(path, name, p, base):
        try:
            after = outcome(function, arguments, use, make, name)
        except Exception:  # a value that does not fit says nothing
            continue
        tried.add(name)
        # A second run with the value made but not used tells what making it adds; most often nothing is left to tell.
        if after != before and (isinstance(make, Constant) or after != outcome(function, arguments, use, make)):
            return True
    return False


__all__ = ["Found", "Sample", "effects", "other_values"]
