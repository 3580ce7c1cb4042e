"""``paddle.tensor``: the tensor functions, which are also names of the package itself."""

from tstatic import static
from tstatic.ir.opdef import namespace

globals().update(namespace("tensor"))
__all__ = sorted(namespace("tensor"))  # noqa: PLE0605 - the names are those of the registry
assert static
