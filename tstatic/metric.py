"""``paddle.metric``: accuracy and area under the curve as ops of the program."""

from tstatic import static
from tstatic.ir.opdef import namespace

globals().update(namespace("metric"))
__all__ = sorted(namespace("metric"))  # noqa: PLE0605 - the names are those of the registry
assert static
