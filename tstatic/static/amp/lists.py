"""Which ops run in 16 bits and which in float32: sets that follow from the op definitions, and the user's changes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache
from typing import Any

from tstatic.errors import ProgramError
from tstatic.ir.opdef import OPS, export
from tstatic.ir.types import DType, dtype_of

Names = Iterable[str] | None

__all__ = ["AutoMixedPrecisionLists"]


@cache
def marked(mark: str) -> set[str]:
    """Returns the types of the forward ops with a mark of mixed precision."""
    # Backward ops follow their forward ops, and are on no list.
    return {type for type in OPS if OPS[type].amp == mark and not OPS[type].of}


@cache
def unsupported(dtype: str) -> frozenset[str]:
    """Returns the types of the ops that do not compute in a 16-bit type."""
    # Where tests sample nothing in a type, nobody knows that it is computed right.
    return frozenset(type for type in OPS if (domain := OPS[type].domain) is None or dtype not in domain.floats)


# For type checkers, some of which do not look through ``__getattr__``: no value, so that it is asked.
white_list: set[str]
black_list: set[str]
gray_list: set[str]
_PUBLIC = {"white_list": "white", "black_list": "black", "gray_list": "gray"}


def __getattr__(name: str) -> set[str]:
    """Returns ``white_list``, ``black_list`` or ``gray_list`` (``static.amp.fp16_lists``): all op definitions are loaded then."""
    if name in _PUBLIC:
        return marked(_PUBLIC[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=None)


def low_dtype(value: Any) -> DType:
    """Returns the 16-bit type that a value names.

    Raises:
        ProgramError: For any other type.
    """
    name = value.lower() if isinstance(value, str) else dtype_of(value).name
    if name not in ("float16", "bfloat16"):
        raise ProgramError(
            "If enable AMP, dtype should be 'float16' or 'bfloat16'.",
            expected="'float16' or 'bfloat16'",
            received=repr(value),
            fix="pass dtype='bfloat16', which needs no loss scaling, or 'float16'",
        )
    return dtype_of(name)


def changed(
    white: set[str], black: set[str], gray: set[str], to_white: Collection[str], to_black: Collection[str]
) -> None:
    """Moves ops to the white and the black list, from whichever list they are on."""
    for names, target, others in ((to_white, white, (black, gray)), (to_black, black, (white, gray))):
        for other in others:
            other.difference_update(names)
        target.update(names)


@export("static.amp.AutoMixedPrecisionLists", "static.amp.CustomOpLists")
class AutoMixedPrecisionLists:
    """Says for each op type whether it runs in 16 bits.

    Args:
        custom_white_list: Types of ops that are to run in 16 bits.
        custom_black_list: Types of ops that are to run in float32, at level O2 too.
        custom_black_varnames: Names of variables; ops that read or write one run in float32.
        dtype: ``"float16"`` or ``"bfloat16"``.

    Attributes:
        white_list: Types that always run in 16 bits.
        black_list: Types that run in float32; at level O2 only those that gain nothing from 16 bits, and the user's.
        gray_list: Types that run in the precision of their inputs.
        black_varnames: Names of variables whose ops run in float32.
        unsupported_list: Types that have no kernel for the 16-bit type, and the user's black list.
        all_list: All types.

    Raises:
        ProgramError: If a type is on both custom lists, or ``dtype`` is another type.

    Example:
        >>> lists = static.amp.AutoMixedPrecisionLists(custom_black_list=["matmul_v2"], dtype="bfloat16")
        >>> "matmul_v2" in lists.white_list, "matmul_v2" in lists.black_list
        (False, True)
        >>> sorted(lists.white_list)
        ['conv2d', 'max_pool2d_with_index', 'mul']
    """

    def __init__(
        self,
        custom_white_list: Names = None,
        custom_black_list: Names = None,
        custom_black_varnames: Names = None,
        dtype: Any = "float16",
    ) -> None:
        self.amp_dtype = low_dtype(dtype).name
        to_white, to_black = frozenset(custom_white_list or ()), frozenset(custom_black_list or ())
        self._refuse_overlap(to_white, to_black)
        # Copies: `marked` is cached, and `changed` edits the lists in place.
        self.white_list = set(marked("white"))
        self.black_list = marked("black") | marked("float32")
        self.gray_list = set(marked("gray"))
        changed(self.white_list, self.black_list, self.gray_list, to_white, to_black)
        self.black_varnames = set(custom_black_varnames or ())
        # `keeps` asks this list alone, so that a custom black op stays in float32 at level O2, too.
        self.unsupported_list = unsupported(self.amp_dtype) | to_black
        self.all_list = {type for type in OPS if not OPS[type].of}
        self.custom = to_white | to_black

    def _refuse_overlap(self, to_white: Collection[str], to_black: Collection[str]) -> None:
        both = sorted(set(to_white).intersection(to_black))
        if both:
            raise ProgramError(
                f"The given custom_white_list overlaps custom_black_list with < {both[0]} >!",
                expected="each type on one list at most",
                received=", ".join(both),
                fix="take it out of one of the lists",
            )


def level_of(value: Any) -> str:
    """Returns a level of mixed precision, ``O0``, ``OD``, ``O1`` or ``O2``, in capitals.

    Raises:
        ProgramError: For any other.
    """
    given = value.upper() if isinstance(value, str) else value
    if given not in ("O0", "OD", "O1", "O2"):
        raise ProgramError(
            "level should be O0, OD, O1 or O2.",
            expected="'O1' for 16 bits where it is safe, 'O2' for all but a few ops",
            received=repr(value),
            fix="pass level='O1'",
        )
    return str(given)
