"""The registry of ATen operators, and what a converter is given: arguments as Variables, and metadata of the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tstatic.errors import DTypeError, UnsupportedError
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, DType, dtype_of
from tstatic.ops.base.mixed import cast_to
from tstatic.where import Where, show

Converter = Callable[..., Any]
FAMILIES: dict[str, dict[str, Converter]] = {}
"""Family -> ATen operator with its overload, as ``"aten.linear.default"`` -> function of a :class:`Call` and its arguments."""

FUNCTION = "from_torch"
MEMORY = ("device", "layout", "pin_memory", "memory_format", "non_blocking", "copy")
"""Arguments of ATen operators that say where a tensor lies, which a program leaves to its device."""


def family(name: str) -> Callable[..., Callable[[Converter], Converter]]:
    """Returns the decorator that registers the converters of a family.

    A module says ``converts = family("norms")``, and above a function ``@converts("layer_norm.default")``.

    It takes ATen operators, with their overloads. The function that it registers takes the :class:`Call` and then the operator's
    arguments by its schema: Variables in the place of tensors, :class:`Size` in the place of sizes that are known when the
    program runs. It returns a Variable, or a list of them.
    """
    own = FAMILIES.setdefault(name, {})

    def converts(*operators: str) -> Callable[[Converter], Converter]:
        def add(function: Converter) -> Converter:
            for operator in operators:
                assert converter_of(f"aten.{operator}") is None, operator
                own[f"aten.{operator}"] = function
            return function

        return add

    return converts


def converter_of(operator: str) -> Converter | None:
    """Returns the converter of an ATen operator, ``None`` if it has none."""
    return next((own[operator] for own in FAMILIES.values() if operator in own), None)


def each(function: Callable[[Variable], Variable]) -> Converter:
    """Returns the converter of a function of each element, which is computed in the result's dtype."""

    def convert(c: Call, x: Variable) -> Variable:
        return function(c.cast(x))

    return convert


@dataclass(eq=False)
class Size:
    """A size that is known when the program runs, or whole numbers computed from such sizes.

    Attributes:
        text: torch's expression of it; equal texts are equal sizes.
        make: Builds the operators that compute it.
    """

    text: str
    make: Callable[[], Variable]
    _made: Variable | None = field(default=None, repr=False)

    def variable(self) -> Variable:
        """Returns it as an int64 Variable ``[]``, built at the first call."""
        if self._made is None:
            self._made = self.make()
        return self._made


def torch_dtype(dtype: Any, where: str | None = None) -> DType:
    """Returns the dtype of the same name as one of torch.

    Raises:
        DTypeError: If there is none, as for 8-bit floats.
    """
    name = str(dtype).removeprefix("torch.")
    try:
        return dtype_of(name)
    except DTypeError:
        raise DTypeError(
            f"torch's dtype '{name}' has no counterpart",
            expected="floats of 16 to 64 bits, integers of 8 to 64 bits (unsigned: 8), bool, complex64 or complex128",
            received=name,
            fix="convert the tensor to one of these in the module",
            op=FUNCTION,
            where=where,
        ) from None


@dataclass(frozen=True)
class Result:
    """What torch says about one result.

    Attributes:
        sizes: Its sizes, ints, and texts of those that are known when the program runs.
        dtype: Its element type.
    """

    sizes: tuple[int | str, ...]
    dtype: DType

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes, -1 for unknown ones."""
        return tuple(size if isinstance(size, int) else UNKNOWN for size in self.sizes)


def sizes_of(value: Any) -> tuple[int | str, ...]:
    """Returns the sizes of a tensor that ``torch.export`` made: ints, and texts of symbolic ones."""
    return tuple(size if type(size) is int else str(size) for size in value.shape)


@dataclass(frozen=True)
class Call:
    """One call of an ATen operator.

    Attributes:
        name: The operator, as ``"aten.linear.default"``.
        results: What torch says about the results that are tensors.
        inputs: Name of a Variable -> what torch says about it.
        where: The line of the module's code.
    """

    name: str
    results: tuple[Result, ...]
    inputs: Mapping[str, Result]
    where: Where | None

    @property
    def dtype(self) -> DType:
        """Element type of the first result."""
        return self.results[0].dtype

    @property
    def sizes(self) -> tuple[int | str, ...]:
        """Sizes of the first result, texts for unknown ones."""
        return self.results[0].sizes

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the first result, -1 for unknown ones."""
        return self.results[0].shape

    def sizes_of(self, x: Variable) -> tuple[int | str, ...]:
        """Returns the sizes of an argument, texts for unknown ones."""
        known = self.inputs.get(x.name)
        return known.sizes if known is not None else x.shape

    def refuse(self, what: str, expected: object, received: object, fix: str = "") -> UnsupportedError:
        """Returns the error for arguments that the converter does not take; the caller raises it."""
        return UnsupportedError(
            f"'{self.name}' cannot be converted: {what}",
            expected=expected,
            received=received,
            fix=fix or "write this part of the module with other functions",
            op=self.name,
            where=show(self.where) if self.where else None,
        )

    def cast(self, x: Any) -> Variable:
        """Returns an operand in the result's dtype; a number or a :class:`Size` as it is needed beside a Variable."""
        return self.as_type(x, self.dtype)

    def as_type(self, x: Any, dtype: DType) -> Any:
        """Returns a Variable in a dtype; numbers stay numbers."""
        if isinstance(x, Size):
            x = x.variable()
        return cast_to(x, dtype) if isinstance(x, Variable) else x

    def sizes_given(self, given: Sequence[Any]) -> list[Any]:
        """Returns sizes for the builders of ops: ints, and Variables for those that are known when the program runs."""
        return [size.variable() if isinstance(size, Size) else size for size in given]
