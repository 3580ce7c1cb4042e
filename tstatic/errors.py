"""Every exception class of tstatic, and how a message is put together."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from tstatic.where import show, user_line

__all__ = [
    "CheckpointError",
    "DTypeError",
    "DeviceError",
    "EOFException",
    "FeedError",
    "ForkedProcessError",
    "MissingPackageError",
    "NotFoundError",
    "NumericsError",
    "OutOfMemoryError",
    "ProgramError",
    "RankFailedError",
    "RankNumericsError",
    "ShapeError",
    "StrategyTypeError",
    "StrategyValueError",
    "TstaticError",
    "UnsupportedError",
    "near",
]


class TstaticError(RuntimeError):
    """Base class: a message in parts, so that each layer adds what it knows and nothing is said twice.

    Args:
        what: One sentence that says what is wrong.
        expected: What would have been accepted, in the user's spelling.
        received: What was given instead.
        fix: What to do about it.
        op: The operator's type, when one is concerned.
        var: The variable's name, when one is concerned.
        where: ``file:line`` of the user's own statement that built the op or made the call.

    Example:
        >>> x = static.data("x", [None, 3])
        >>> try:
        ...     paddle.matmul(x, paddle.ones([4, 2]))
        ... except paddle.errors.ShapeError as error:
        ...     print(error.op, isinstance(error, paddle.errors.TstaticError))
        matmul_v2 True
    """

    def __init__(
        self,
        what: str,
        *,
        expected: object = None,
        received: object = None,
        fix: str | None = None,
        op: str | None = None,
        var: str | None = None,
        where: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.expected = expected
        self.received = received
        self.fix = fix
        self.op = op
        self.var = var
        self.replica: str | None = None
        # When the host learned of an error of work that a device ran late.
        self.noticed: str | None = None
        self._where = where
        # The line of the user's own call, for errors that no op's line is known for.
        called = user_line()
        self._called = show(called) if called else None

    @property
    def where(self) -> str | None:
        """``file:line`` of the user's statement: the one that built the op, else the one that made the call."""
        return self._where or self._called

    def add_context(self, *, op: str | None = None, var: str | None = None, where: str | None = None) -> TstaticError:
        """Fills ``op``, ``var`` and ``where`` if they are still unknown; returns self, for ``raise error.add_context(...)``."""
        self.op = self.op or op
        self.var = self.var or var
        self._where = self._where or where
        return self

    def __str__(self) -> str:
        head = self.what
        subject = ", ".join(
            part
            for part in (
                self.op and f"operator '{self.op}'",
                self.var and f"variable '{self.var}'",
                self.replica and f"replica {self.replica}",
            )
            if part
        )
        lines = [head]
        if subject:
            lines.append(f"  in:       {subject}")
        if self.expected is not None:
            lines.append(f"  expected: {self.expected}")
        if self.received is not None:
            lines.append(f"  received: {self.received}")
        if self.where:
            lines.append(f"  at:       {self.where}")
        if self.noticed:
            lines.append(f"  noticed:  {self.noticed}")
        if self.fix:
            lines.append(f"  fix:      {self.fix}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.what, self.__dict__)


def _rebuild(cls: type[TstaticError], what: str, state: dict[str, Any]) -> TstaticError:
    error = cls(what)
    error.__dict__.update(state)
    return error


class FeedError(TstaticError, ValueError):
    """Something given in ``feed`` or asked for in ``fetch_list`` does not fit the program.

    Takes the arguments of :class:`TstaticError`.

    Example:
        >>> y = static.data("x", [None, 3]) * 2
        >>> try:
        ...     static.Executor().run(feed={"x": np.zeros((2, 4), "float32")}, fetch_list=[y])
        ... except paddle.errors.FeedError as error:
        ...     print(error.var, error.received)
        x shape [2, 4]
    """


class FeedTypeError(FeedError, TypeError):
    """A feed is of a type or dtype that cannot be used; it is both a ``ValueError`` and a ``TypeError``."""


class ShapeError(TstaticError, ValueError):
    """Shapes, ranks, axes or sizes that do not fit together.

    Takes the arguments of :class:`TstaticError`.

    Example:
        >>> try:
        ...     paddle.matmul(paddle.ones([2, 3]), paddle.ones([4, 2]))
        ... except paddle.errors.ShapeError as error:
        ...     print(error.op, isinstance(error, ValueError))
        matmul_v2 True
    """


class LossSizeError(ShapeError, AssertionError):
    """A loss of several elements is given to ``minimize``; Paddle raises an ``AssertionError`` there."""


class DTypeError(TstaticError, TypeError):
    """A dtype that an operator does not take, or dtypes that do not agree.

    Takes the arguments of :class:`TstaticError`.

    Example:
        >>> try:
        ...     paddle.tanh(static.data("x", [2], dtype="bool"))
        ... except paddle.errors.DTypeError as error:
        ...     print(error.op, error.received)
        tanh X of dtype bool
    """


class ProgramError(TstaticError, ValueError):
    """A program is built or edited in a way that has no meaning (use before definition, a bad attribute, ...).

    Takes the arguments of :class:`TstaticError`.

    Example:
        >>> try:
        ...     paddle.arange(0, 10, step=0)
        ... except paddle.errors.ProgramError as error:
        ...     print(error.expected)
        finite numbers, step != 0
    """


class CallOrderError(ProgramError, AssertionError):
    """A method is called before the one that it needs; Paddle raises an ``AssertionError`` there.

    Example:
        >>> optimizer = static.amp.decorate(paddle.optimizer.SGD(0.1))
        >>> try:
        ...     optimizer.get_loss_scaling()
        ... except paddle.errors.CallOrderError as error:
        ...     print(error.fix)
        call optimizer.minimize(loss) first
    """


class ProgramTypeError(ProgramError, TypeError):
    """An argument of a program-building call is of the wrong type."""


class EmptyNameError(ProgramTypeError, AssertionError):
    """The prefix of a ``name_scope`` is not a text, or is empty; Paddle raises an ``AssertionError`` there."""


class NotBoolError(ProgramTypeError, AssertionError):
    """A switch of ``to_string`` is not a bool; Paddle raises an ``AssertionError`` there."""


class NotFoundError(TstaticError, LookupError, ValueError):
    """A name that nothing has; near names are suggested.

    Takes the arguments of :class:`TstaticError`.

    Example:
        >>> try:
        ...     static.default_main_program().global_block().var("x")
        ... except paddle.errors.NotFoundError as error:
        ...     print(error.what, isinstance(error, ValueError))
        var x not in this block True
    """


class MissingFileError(NotFoundError, FileNotFoundError):
    """A path that is to be read leads nowhere; Paddle's readers raise a ``FileNotFoundError`` there."""


class IndexRangeError(TstaticError, IndexError):
    """An index or a block number that is out of range."""


class NumericsError(TstaticError, FloatingPointError):
    """A NaN or an infinity was found where ``FLAGS_check_nan_inf`` forbids it.

    Takes the arguments of :class:`TstaticError`.

    Example:
        >>> paddle.set_flags({"FLAGS_check_nan_inf": True})
        >>> y = paddle.log(static.data("x", [1]))
        >>> try:
        ...     static.Executor().run(feed={"x": np.array([-1], "float32")}, fetch_list=[y])
        ... except paddle.errors.NumericsError as error:
        ...     print(error.op, error.var)
        log log_0.tmp_0
        >>> paddle.set_flags({"FLAGS_check_nan_inf": False})
    """


class CheckpointError(TstaticError, OSError):
    """A saved file is damaged, incomplete or not what it says.

    Takes the arguments of :class:`TstaticError`.

    Example:
        >>> main = static.default_main_program()
        >>> try:
        ...     static.load(main, "absent")
        ... except paddle.errors.CheckpointError as error:
        ...     print(error.what)
        could not read absent.pdparams
    """

    # OSError defines __str__ and pickling of its own; the parts of TstaticError are what a user needs.
    __str__ = TstaticError.__str__
    __reduce__ = TstaticError.__reduce__


class LoadLimitError(CheckpointError):
    """Reading a file would take more memory or work than a file of its size may; ``FLAGS_load_limit_factor`` raises the limits.

    Takes the arguments of :class:`TstaticError`.
    """


class ReportError(TstaticError, OSError):
    """A report, a trace or a page could not be written; what was there before is as it was.

    Takes the arguments of :class:`TstaticError`.
    """

    __str__ = TstaticError.__str__
    __reduce__ = TstaticError.__reduce__


class DeviceError(TstaticError):
    """A place that this machine does not have, or a device that failed.

    Takes the arguments of :class:`TstaticError`.

    Example:
        >>> y = paddle.ones([2])
        >>> try:
        ...     static.Executor(paddle.CUDAPlace(1000)).run(fetch_list=[y])
        ... except paddle.errors.DeviceError as error:
        ...     print(error.expected)
        gpu:1000 to be present
    """


class NoRoomError(DeviceError):
    """A launch of a generated kernel for which the chip has too little shared memory, or too few registers or threads.

    Nothing has run when it is raised. An Executor takes the next way that the kernel has, so users see it if there is none.

    Takes the arguments of :class:`TstaticError`.

    Example:
        >>> issubclass(paddle.errors.NoRoomError, paddle.errors.DeviceError)
        True
    """


class OutOfMemoryError(TstaticError, MemoryError):
    """Memory could not be had; the variables of the scope are as before.

    Takes the arguments of :class:`TstaticError`.

    Attributes:
        wanted_bytes: Bytes of the allocation that failed; ``None`` if it has more than can be addressed.
        available_bytes: Bytes that the process could still have.

    Example:
        >>> y = paddle.sum(paddle.full([2**45], 1.0))
        >>> try:
        ...     static.Executor(paddle.CPUPlace()).run(fetch_list=[y])
        ... except paddle.errors.OutOfMemoryError as error:
        ...     print(error.wanted_bytes >= 2**47, isinstance(error, MemoryError))
        True True
    """

    wanted_bytes: int | None = None
    available_bytes: int = 0


class RankFailedError(TstaticError):
    """Another process of a distributed run died, stalled or runs something else.

    Takes the arguments of :class:`TstaticError`.
    """


class RankNumericsError(NumericsError):
    """A rank or place computed gradients with NaN or infinity; all ranks raise this error, before any parameter changes.

    The message names the rank or place. The group goes on: the next step may have finite gradients.

    Takes the arguments of :class:`TstaticError`.

    Example:
        >>> loss = paddle.mean(static.nn.fc(static.data("x", [None, 2]), 1))
        >>> optimizer = paddle.optimizer.SGD(0.1).minimize(loss)
        >>> exe = static.Executor(paddle.CPUPlace()); started = exe.run(static.default_startup_program())
        >>> both = static.CompiledProgram(static.default_main_program()).with_data_parallel(loss.name, places=["cpu"] * 2)
        >>> try:
        ...     step = exe.run(both, feed={"x": np.array([[1, 1], [np.nan, 1]], "float32")})
        ... except paddle.errors.RankNumericsError as error:
        ...     print(error.replica)
        1 of 2
    """


class ForkedProcessError(TstaticError):
    """An object that holds threads or device state was used in a forked child.

    Takes the arguments of :class:`TstaticError`.
    """


class MissingCheckpointsError(ProgramError, AssertionError):
    """``RecomputeOptimizer`` was given no checkpoints; Paddle raises an ``AssertionError`` there."""


class UnsupportedError(TstaticError, NotImplementedError):
    """A call that tstatic does not have; the message says what to use instead.

    Takes the arguments of :class:`TstaticError`.

    Example:
        >>> try:
        ...     fluid.profiler.cuda_profiler("file")
        ... except paddle.errors.UnsupportedError as error:
        ...     print(error.fix)
        use fluid.profiler.profiler, or start the script with 'nsys profile'
    """


class MissingPackageError(TstaticError, ImportError):
    """A call needs a package that is not installed.

    Takes the arguments of :class:`TstaticError`.
    """


class StrategyTypeError(TstaticError, TypeError):
    """A strategy property was set to a value of the wrong type.

    Takes the arguments of :class:`TstaticError`.

    Example:
        >>> strategy = static.BuildStrategy()
        >>> try:
        ...     strategy.fuse_all_optimizer_ops = "yes"
        ... except paddle.errors.StrategyTypeError as error:
        ...     print(error.expected, "|", error.received)
        bool | 'yes' (str)
    """


class StrategyValueError(TstaticError, ValueError):
    """A strategy property was set to a value that is out of range.

    Takes the arguments of :class:`TstaticError`.

    Example:
        >>> strategy = static.ExecutionStrategy()
        >>> try:
        ...     strategy.num_threads = -5
        ... except paddle.errors.StrategyValueError as error:
        ...     print(error.expected, "|", error.received)
        int, 0 <= value <= 2147483647 | -5 (int)
    """


class UnknownPropertyError(TstaticError, AttributeError):
    """A strategy has no property of that name."""


class UnknownFieldError(TstaticError, TypeError):
    """A DistributedStrategy has no field of that name; Paddle raises a ``TypeError`` there.

    Example:
        >>> from tstatic.distributed import fleet
        >>> try:
        ...     fleet.DistributedStrategy().ampp = True
        ... except paddle.errors.UnknownFieldError as error:
        ...     print(str(error).splitlines()[0])
        ampp is not a attribute of DistributedStrategy
    """


class UnknownConfigError(StrategyValueError, AssertionError):
    """A dict of settings has a key that the field does not have; Paddle raises an ``AssertionError`` there.

    Example:
        >>> from tstatic.distributed import fleet
        >>> try:
        ...     fleet.DistributedStrategy().amp_configs = {"scale": 2.0}
        ... except paddle.errors.UnknownConfigError as error:
        ...     print(str(error).splitlines()[0])
        key:scale not in amp_configs
    """


class FlagTypeError(TstaticError, TypeError):
    """A flag was given a value of the wrong type."""


class FlagValueError(TstaticError, ValueError):
    """A flag was given a value that is out of range."""


class PlaceError(TstaticError, ValueError):
    """A place that cannot exist: a bad device number, or a text that names no place."""


class PlaceTypeError(PlaceError, TypeError):
    """Something that is not a place was given where one is needed."""


class EOFException(Exception):  # noqa: N818 - Paddle's name, which scripts catch
    """A reader has no more data; Paddle scripts catch it as ``fluid.core.EOFException``."""


def near(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Returns a sentence with up to three names like ``name``, or the empty string when none is close.

    Args:
        name: What the user wrote; its first 200 characters count.
        known: The names that there are; the first 2000 of them, of up to 200 characters, are compared.
        cutoff: How alike a name must be, from 0 to 1 (the ratio of ``difflib``).
    """
    import difflib

    if (
        not isinstance(name, str)
        or isinstance(cutoff, bool)
        or not isinstance(cutoff, int | float)
        or not 0 <= cutoff <= 1
    ):
        raise ProgramTypeError(
            "near() compares a text with others", expected="a str, and a cutoff from 0 to 1",
            received=f"{shown(name)}, {shown(cutoff)}", fix="pass the text that the user wrote",
        )  # fmt: skip
    try:
        known = list(itertools.islice(known, 2000))
    except TypeError:
        known = [None]  # type: ignore[list-item]
    if not all(isinstance(other, str) for other in known):
        raise ProgramTypeError(
            "near() compares a text with others", expected="an iterable of texts", received="something else as 'known'",
            fix="pass the names that there are",
        )  # fmt: skip
    # Comparing takes 10 microseconds a name, and up to 0.3 ms for long ones that are made for it: of a million names from a strange
    # file the first few thousand will do.
    names = (other for other in known if len(other) <= 200)
    close = difflib.get_close_matches(name[:200], names, n=3, cutoff=cutoff)
    return f"did you mean {' or '.join(repr(c) for c in close)}?" if close else ""


def shown(value: object, most: int = 120) -> str:
    """A user's value and its type for a message, also if its ``repr`` raises."""
    try:
        text = repr(value)
    except Exception as error:
        text = f"<an object whose repr raises {type(error).__name__}>"
    return f"{text[:most]}{'...' * (len(text) > most)} of type {type(value).__name__}"


def reason(error: BaseException) -> str:
    """An exception's class and text for a message, also if its ``str`` raises."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


@contextlib.contextmanager
def needed_for(purpose: str) -> Iterator[None]:
    """Stands around the import of a package that only some calls need.

    Args:
        purpose: What needs it, as the subject of a sentence.

    Raises:
        MissingPackageError: If the package is not installed; it names the package.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise MissingPackageError(
            f"{purpose} needs the package '{package}'",
            expected=f"'{package}' among the installed packages",
            received=str(error),
            fix=f"pip install {package}",
        ) from None
