"""Calls every public function with one wrong argument at a time, and compares the world before and after those that are refused.

``python -m tests.api.refused`` makes all of them and prints what differs; ``--only NAME`` makes those of names that contain it.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import random
import resource
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np

import tstatic as paddle
from tests.api import plain_objects  # noqa: F401 - it adds to CALLS
from tests.api.effects import base_calls
from tests.api.picture import World
from tests.api.plain_calls import CALLS, OBJECTS, inside
from tests.api.samples import SAMPLES, Sample, use_of
from tests.helpers.patience import pace
from tstatic import static
from tstatic.errors import TstaticError
from tstatic.ir.export import _door

MEMORY = 12 << 30
"""Bytes of address space of a process that makes the calls."""
LONGEST = 20.0
"""Seconds after which a call counts as one that never ends, on a quiet machine; a call takes milliseconds."""


# --------------------------------------------------------------------------------------------------------- wrong values
def _foreign() -> Any:
    """A Variable of a program that is not being built."""
    with static.program_guard(static.Program(), static.Program()):
        return static.data("foreign", [2, 3])


def _data(shape: Sequence[int | None], dtype: str = "float32") -> Callable[[], Any]:
    return lambda: static.data(f"wrong_{dtype}_{len(shape)}", list(shape), dtype)


WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None, "a text": lambda: "x", "no text": lambda: "", "bytes": lambda: b"x", "another dtype": lambda: "float99",
    "-1": lambda: -1, "0": lambda: 0, "-7": lambda: -7, "99": lambda: 99, "2**31": lambda: 2**31, "2**63": lambda: 2**63,
    "-2**70": lambda: -(2**70), "1.5": lambda: 1.5, "-0.5": lambda: -0.5, "1e300": lambda: 1e300, "inf": lambda: float("inf"),
    "nan": lambda: float("nan"), "True": lambda: True, "a complex number": lambda: 1j, "a set": lambda: {1}, "...": lambda: ...,
    "no list": list, "a list in a list": lambda: [[]], "[None]": lambda: [None], "['x']": lambda: ["x"], "[-5]": lambda: [-5],
    "[2**63]": lambda: [2**63], "[1.5, 'x']": lambda: [1.5, "x"], "[0] * 9": lambda: [0] * 9, "(3, None)": lambda: (3, None),
    "a dict": lambda: {"x": 1}, "an object": object, "a class": lambda: int, "a function": lambda: lambda *a, **k: 0,
    "a slice": lambda: slice(None), "a generator": lambda: iter([1, "x"]), "an array": lambda: np.ones([2, 3]),
    "an empty array": lambda: np.zeros([0]), "an array of texts": lambda: np.array(["x"]),
    "an array of objects": lambda: np.array([None, "x"], object), "a float of rank 5": _data([1, 2, 3, 2, 1]),
    "ints": _data([3], "int64"), "bools": _data([7, 2], "bool"), "a scalar": _data([]), "unknown sizes": _data([None, None]),
    "complex numbers": _data([2], "complex64"), "a foreign Variable": _foreign, "a Program": static.Program,
    "foreign Variables": lambda: [_foreign(), _foreign()], "a dtype": lambda: paddle.float64,
}  # fmt: skip
"""Values that most parameters do not take, by the name that a report has for them."""


# ---------------------------------------------------------------------------------------------------------------- calls
@dataclass(frozen=True)
class Target:
    """A call that is made with one wrong argument.

    Attributes:
        path: The public function or class.
        door: 0 for itself; 1, 2, ... for the calls that using its result makes: a layer's or an optimizer's methods.
        parameter: The argument that is replaced.
        base: The number of the legal call among those that are known.
    """

    path: str
    door: int
    parameter: str
    base: int

    def __str__(self) -> str:
        return f"{self.path}{f' use {self.door}' if self.door else ''}: {self.parameter}"


class _Arrived(BaseException):
    """The public call is reached whose argument is replaced."""

    def __init__(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.call, self.args_, self.kwargs = call, args, kwargs


def _is_door(frame: FrameType) -> bool:
    return frame.f_code.co_qualname == "_door.<locals>.noting"


def _outermost(frame: FrameType) -> bool:
    above = frame.f_back
    while above is not None:
        if _is_door(above):
            return False
        above = above.f_back
    return True


@contextlib.contextmanager
def stopped_at(door: int) -> Iterator[None]:
    """Raises ``_Arrived`` where the body makes its public call of that number, counted from 1, instead of making it."""
    count = 0

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal count
        if event == "call" and _is_door(frame) and _outermost(frame):
            count += 1
            if count == door:
                sys.setprofile(None)
                given = frame.f_locals
                # The door itself is not among what it sees; one that is made alike does the same.
                again = _door(given["call"], given["shown"], given["name"], True, given["restored"])
                raise _Arrived(again, given["args"], given["kwargs"])

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(before)


@dataclass(frozen=True)
class Call:
    """A legal call that is ready to be made, with its arguments by name."""

    function: Callable[..., Any]
    given: dict[str, Any]
    mine: tuple[Any, ...] = ()
    """The object whose method it is."""

    def __call__(self) -> Any:
        return self.function(*self.mine, **self.given)

    @property
    def watched(self) -> list[Any]:
        """What the call may change of what it is given; a new object that cannot be made is gone."""
        new = getattr(self.function, "__name__", "") == "__init__"
        # An Executor keeps the plans that it made for a call, whatever becomes of the call.
        mine = [one for one in self.mine if not new and not isinstance(one, static.Executor)]
        return [self.function, *mine, *self.given.values()]


def _sample(path: str) -> Sample | None:
    return CALLS.get(path) or SAMPLES.get(path)


def _function(path: str, thing: Any) -> Callable[..., Any]:
    sample = _sample(path)
    return sample.call if sample is not None and sample.call is not None else thing


def _using(path: str, thing: Any) -> Any:
    sample = _sample(path)
    if sample is not None and sample.use is not None:
        return sample.use
    return use_of(thing) if inspect.isclass(thing) else None


def ready(path: str, thing: Any, base: int, door: int) -> Call | None:
    """Makes all that comes before a legal call; ``None`` if there is no such call.

    Raises:
        Exception: What a base call that is not legal raises.
    """
    for number, arguments in enumerate([CALLS[path].arguments] if path in CALLS else base_calls(path, thing)):
        if number != base:
            continue
        if path in OBJECTS:
            obj = OBJECTS[path]()
            return Call(getattr(type(obj), path.rpartition(".")[2]), arguments(), (obj,))
        function, given = _function(path, thing), arguments()
        if door == 0:
            return Call(function, given)
        use = _using(path, thing)
        result = function(**given)
        if use is None:
            return None
        try:
            with stopped_at(door):
                use(result, given)
        except _Arrived as at:
            bound = inspect.signature(at.call).bind(*at.args_, **at.kwargs)
            named = dict(bound.arguments)
            mine = (named.pop("self"),) if "self" in named else ()
            kinds = {p.name: p.kind for p in bound.signature.parameters.values()}
            if any(kinds[n] in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD) for n in named):
                return Call(_Spread(at.call, bound), _spread(bound))
            return Call(at.call, named, mine)
        return None
    return None


def _spread(bound: inspect.BoundArguments) -> dict[str, Any]:
    """The arguments of a call by name, those of ``*args`` and ``**kwargs`` one by one."""
    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            found |= {f"{name}[{i}]": v for i, v in enumerate(value)}
        elif kind is inspect.Parameter.VAR_KEYWORD:
            found |= value
        else:
            found[name] = value
    return found


class _Spread:
    """Calls a function whose arguments :func:`_spread` has named."""

    def __init__(self, function: Callable[..., Any], bound: inspect.BoundArguments) -> None:
        self._function, self._bound = function, bound

    def __call__(self, /, **given: Any) -> Any:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, value in self._bound.arguments.items():
            kind = self._bound.signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                args += [given[f"{name}[{i}]"] for i in range(len(value))]
            elif kind is inspect.Parameter.VAR_KEYWORD:
                kwargs |= {key: given[key] for key in value}
            else:
                args.append(given[name])
        return self._function(*args, **kwargs)


@contextlib.contextmanager
def fresh() -> Iterator[tuple[static.Program, static.Program]]:
    """Empty programs and names, no output, no warnings."""
    main, startup = static.Program(), static.Program()
    np.random.seed(7)
    with (
        static.program_guard(main, startup),
        paddle.utils.unique_name.guard(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
        static.scope_guard(static.Scope()),
        _process_as_before(),
        inside(),
    ):
        warnings.simplefilter("ignore")
        yield main, startup


@contextlib.contextmanager
def _process_as_before() -> Iterator[None]:
    """Sets back what a call that is accepted may have set for the process."""
    dtype, device, recording = paddle.get_default_dtype(), paddle.get_device(), paddle.is_grad_enabled()
    try:
        yield
    finally:
        paddle.set_default_dtype(dtype)
        paddle.set_device(device)
        paddle.set_grad_enabled(recording)
        paddle.set_printoptions(precision=8, threshold=1000, edgeitems=3, sci_mode=False, linewidth=80)
        paddle.vision.set_image_backend("pil")


SAMPLING = ("samples.py", "plain_calls.py", "plain_objects.py")
MOST_BASES = 1
# The one compares texts for messages, below programs; the sample of the other unpacks its argument. Both take a Variable
# apart outside any call that is refused.
SKIPPED = ("tstatic.errors.near", "tstatic.einsum")
MOST_DOORS = 3


def targets(path: str, thing: Any, doors: int = MOST_DOORS) -> Iterator[Target]:
    """Yields the arguments that can be replaced in the first legal call of a function and in the ``doors`` that use its result."""
    if path in CALLS:
        with fresh():
            call = ready(path, thing, 0, 0)
            assert call is not None
            yield from (Target(path, 0, name, 0) for name in _replaceable(call))
        return
    legal = 0
    for base in range(8) if path not in SKIPPED else ():
        try:
            with fresh():
                call = ready(path, thing, base, 0)
                if call is None:
                    return
                parameters = _replaceable(call)
                call()
        except Exception:  # not a legal call, whatever it ends in
            continue
        legal += 1
        yield from (Target(path, 0, name, base) for name in parameters)
        for door in range(1, doors + 1 if legal == 1 and _using(path, thing) is not None else 1):
            try:
                with fresh():
                    call = ready(path, thing, base, door)
            except Exception:
                break
            if call is None:
                break
            yield from (Target(path, door, name, base) for name in _replaceable(call) if name != "self")
        if legal == MOST_BASES:
            return


def _replaceable(call: Call) -> list[str]:
    stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    # What a sample calls in place of a function has arguments of its own.
    if isinstance(call.function, _Spread) or getattr(call.function, "__module__", "").startswith("tests.api."):
        return list(call.given)
    parameters = inspect.signature(call.function).parameters
    named = [name for name, p in parameters.items() if p.kind not in stars and name != "self"]
    return [*named, *(name for name in call.given if name not in named and name not in parameters)]


# ------------------------------------------------------------------------------------------------------------- refusals
@dataclass(frozen=True)
class Refusal:
    """What a refused call did.

    Attributes:
        target: The call and the argument.
        wrong: Name of the value in its place.
        error: What it raised.
        changed: What is not as it was before; empty if all is.
        typed: Whether the error is one of ``tstatic.errors``, or Python's own for a call that does not fit, with a note.
    """

    target: Target
    wrong: str
    error: BaseException
    changed: str
    typed: bool

    @property
    def place(self) -> str:
        """The line that raised, below the package."""
        last = traceback.extract_tb(self.error.__traceback__)[-1]
        return f"{last.filename.rpartition('tstatic/')[2]}:{last.lineno}"

    def __str__(self) -> str:
        try:
            text = str(self.error).splitlines()[:1]
        except Exception:
            text = ["?"]
        said = f"{type(self.error).__name__}: {''.join(text)[:90]}"
        return f"{self.target} = {self.wrong}: {self.changed or 'untyped'} ({said} at {self.place})"


class EndlessError(BaseException):
    """A call did not end."""


def _endless(number: int, frame: Any) -> None:
    raise EndlessError


def is_typed(error: BaseException) -> bool:
    """Whether an error says what it should."""
    if isinstance(error, TstaticError):
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    at_door = trace is not None and trace.tb_frame.f_code.co_name in ("noting", "running")
    return type(error) is TypeError and at_door and bool(getattr(error, "__notes__", ()))


def attempt(target: Target, thing: Any, wrong: str) -> Refusal | None:
    """Makes a call with a wrong argument; ``None`` if it is accepted, as some are."""
    with fresh() as programs:
        call = ready(target.path, thing, target.base, target.door)
        assert call is not None
        value = WRONG[wrong]()
        made = Call(call.function, {**call.given, target.parameter: value}, call.mine)
        world = World(programs, made.watched)
        before = world.picture()
        signal.signal(signal.SIGALRM, _endless)
        signal.setitimer(signal.ITIMER_REAL, LONGEST * pace())
        try:
            result = made()
            # A context manager is entered where it is used.
            if isinstance(result, contextlib.AbstractContextManager):
                with result:
                    pass
        except BaseException as error:
            signal.setitimer(signal.ITIMER_REAL, 0)
            if isinstance(error, KeyboardInterrupt):
                raise
            if traceback.extract_tb(error.__traceback__)[-1].filename.endswith(SAMPLING):
                return None  # it is what the sample does with the argument
            return Refusal(target, wrong, error, world.difference(before), is_typed(error))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    return None


class _Interrupting:
    """Raises a KeyboardInterrupt behind an edit of a program."""

    def __init__(self, at: int) -> None:
        self.count, self._at = 0, at

    def __enter__(self) -> _Interrupting:
        self._touch = static.Program._touch

        def touch(program: static.Program) -> None:
            self._touch(program)
            self.count += 1
            if self.count == self._at:
                raise KeyboardInterrupt

        static.Program._touch = touch  # type: ignore[method-assign]
        return self

    def __exit__(self, *error: object) -> None:
        static.Program._touch = self._touch  # type: ignore[method-assign]


def interrupted(path: str, thing: Any, draw: random.Random) -> list[str]:
    """Interrupts the first legal calls of a function, and those that use its result; returns what they left behind."""
    wrong: list[str] = []
    base = next((t.base for t in targets(path, thing, 0)), None)
    # What a sample calls in place of a function may be several public calls.
    if base is None or _function(path, thing) is not thing:
        return wrong
    for door in range(MOST_DOORS + 1):
        with fresh():
            try:
                call = ready(path, thing, base, door)
            except Exception:  # the result cannot be used with what the sample has
                return wrong
            if call is None:
                return wrong
            with _Interrupting(0) as edits:
                try:
                    call()
                except Exception:
                    return wrong
        for at in sorted({1, edits.count, draw.randint(1, edits.count)} if edits.count else ()):
            with fresh() as programs:
                call = ready(path, thing, base, door)
                assert call is not None
                world = World(programs, call.watched)
                before = world.picture()
                with _Interrupting(at), contextlib.suppress(KeyboardInterrupt):
                    call()
                    wrong.append(f"{path}: edit {at} of {edits.count} does not come when the call is made again")
                difference = world.difference(before)
                if difference:
                    wrong.append(f"{path}, call {door}, edit {at} of {edits.count}: {difference}")
    return wrong


def pick(found: Sequence[Target], each: int, seed: int) -> Iterator[tuple[Target, str]]:
    """Yields the arguments with ``each`` values in the place of each; the seed decides which."""
    for target in found:
        draw = random.Random(f"{seed} {target}")
        yield from ((target, wrong) for wrong in draw.sample(list(WRONG), min(each, len(WRONG))))


def callables() -> dict[str, Any]:
    """All that is called: by name, public functions and classes, and what only has a call in :data:`CALLS`."""
    from tests.api.test_effects import things

    return things() | dict.fromkeys(CALLS)


def main() -> int:
    """Makes the calls and prints those that leave something behind or raise an error without a type; returns 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of the names of functions")
    parser.add_argument("--each", type=int, default=12, help="how many wrong values each argument gets")
    parser.add_argument("--seed", type=int, default=0, help="decides which")
    parser.add_argument("--part", default="0/1", help="which of how many parts of the functions")
    chosen = parser.parse_args()
    # A call that asks for all memory there is shall be refused it, instead of ending something else.
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    part, parts = map(int, chosen.part.split("/"))
    refused = changed = untyped = 0
    for path, thing in list(callables().items())[part::parts]:
        if chosen.only not in path:
            continue
        for target, wrong in pick(list(targets(path, thing)), chosen.each, chosen.seed):
            found = attempt(target, thing, wrong)
            if found is None:
                continue
            refused, changed, untyped = refused + 1, changed + bool(found.changed), untyped + (not found.typed)
            if found.changed or not found.typed:
                print(found, flush=True)
    print(f"{refused} refused calls: {changed} changed something, {untyped} raised an error without a type")
    return 1 if changed or untyped else 0


if __name__ == "__main__":
    sys.exit(main())
