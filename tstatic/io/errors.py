"""What the readers and loaders of data raise; Paddle's classes are among their bases, so that scripts can catch those."""

from tstatic.errors import TstaticError
from tstatic.ir.export import export


class DataError(TstaticError, ValueError):
    """Samples, sizes or settings that do not fit what reads them."""


class DataTypeError(DataError, TypeError):
    """Something of a type that a reader or loader does not take."""


class DataUseError(DataError, AssertionError):
    """A loader that is not set up, or that is used in a way which its settings exclude."""


@export("reader.ComposeNotAligned", "fluid.io.ComposeNotAligned")
class ComposeNotAligned(DataError):  # noqa: N818 - Paddle's name
    """Readers that :func:`compose` joins do not have equally many samples.

    Takes the arguments of :class:`TstaticError`.

    Example:
        >>> pairs = paddle.reader.compose(lambda: iter([1, 2]), lambda: iter([3]))
        >>> try:
        ...     list(pairs())
        ... except paddle.reader.ComposeNotAligned as error:
        ...     print(error.what)
        outputs of readers are not aligned.
    """
