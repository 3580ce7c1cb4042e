"""What a variable is by itself, without its block; what only a value could answer is refused."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from tstatic.errors import DTypeError, ProgramError, ProgramTypeError, ShapeError, TstaticError, near, shown
from tstatic.ir.export import PUBLIC_API
from tstatic.ir.methods import VariableMethods
from tstatic.ir.types import UNKNOWN, DType, Meta, Shape, dtype_of, is_addressable
from tstatic.logs import warn_user
from tstatic.undo import HERE, NotedAttributes

_REFLECTED = {
    np.add: "__radd__", np.subtract: "__rsub__", np.multiply: "__rmul__", np.true_divide: "__rtruediv__",
    np.floor_divide: "__rfloordiv__", np.remainder: "__rmod__", np.power: "__rpow__", np.equal: "__eq__",
    np.not_equal: "__ne__", np.less: "__gt__", np.less_equal: "__ge__", np.greater: "__lt__", np.greater_equal: "__le__",
    np.bitwise_and: "__rand__", np.bitwise_or: "__ror__", np.bitwise_xor: "__rxor__",
}  # fmt: skip
"""numpy's function of an operator -> the method of the right operand that answers it."""


StopOrigin = Literal["", "inferred", "set"]
"""What decided ``stop_gradient``: nothing yet; ``inferred``: the inputs of the op that writes the variable; ``set``: the user or a
later op."""


def _undecide(own: dict[str, Any], stops: bool, origin: StopOrigin) -> None:
    """Undoes :meth:`VariableBase._decide`."""
    own["_stop_gradient"], own["_stop_origin"] = stops, origin


def check_shape(shape: Any, function: str, name: str) -> tuple[int, ...]:
    """Returns a declared shape as a tuple of ints, -1 for unknown sizes; messages name ``function`` and ``name``.

    Raises:
        ProgramTypeError: If it is not a list, or holds something else than ints and ``None``.
        ShapeError: For a size below -1, or more elements than can be addressed.
    """

    def wrong(error: type[TstaticError], what: str, expected: str, received: str, fix: str) -> TstaticError:
        return error(what, expected=expected, received=received, fix=fix, op=function, var=name)

    # One number is the size of one axis.
    if isinstance(shape, int | np.integer) and not isinstance(shape, bool):
        shape = [shape]
    if not isinstance(shape, list | tuple):
        what = f"The type of 'shape' in {function} must be list or tuple"
        ints = "a list of ints; None or -1 for an unknown size"
        raise wrong(ProgramTypeError, what, ints, shown(shape), "pass shape=[None, 3], for example")
    done = []
    fix = "replace it by a number, None or -1"
    for size in shape:
        if size is None:
            size = UNKNOWN
        if not isinstance(size, int | np.integer):
            what = f"The type of 'item of shape' in {function} must be int"
            raise wrong(ProgramTypeError, what, "ints; None or -1 for an unknown size", shown(size), fix)
        if isinstance(size, bool) or size < UNKNOWN:
            what = f"'shape' in {function} holds something that is not a size"
            raise wrong(ShapeError, what, "ints of at least 0; None or -1 for an unknown size", repr(shape), fix)
        done.append(int(size))
    if not is_addressable(done):
        what = f"the shape in {function} has more elements than can be addressed"
        raise wrong(ShapeError, what, "fewer than 2**60 elements", repr(shape), "check the sizes")
    return tuple(done)


class VariableBase(VariableMethods, NotedAttributes):
    """The part of :class:`~tstatic.ir.program.Variable` that needs no block."""

    __array_priority__ = 100

    name: str
    is_data: bool
    lod_level: int
    # Names of the variables of row offsets, from the outermost level of sequences inwards (``ir/lod.py``).
    lod: tuple[str, ...] = ()
    _shape: Shape | None
    _dtype: DType | None
    # The first op that writes it may give it another dtype than it was made with.
    _dtype_is_inferred = False
    _shape_is_inferred = False
    _persistable: bool
    _stop_gradient: bool
    # A later op may change what was inferred, never what was set.
    _stop_origin: StopOrigin

    def _touch(self) -> None:
        """Records that the program has changed."""
        raise NotImplementedError

    def _check_same(self, **declared: Any) -> None:
        """Refuses another declaration of this variable that gives it other properties; those that are left out may be any.

        Raises:
            ShapeError, DTypeError: If it has another shape or dtype.
            ProgramError: If it has another ``lod_level`` or ``persistable``.
        """
        properties: dict[str, tuple[type[TstaticError], object, Callable[[Any], object]]] = {
            "shape": (ShapeError, self._shape, lambda shape: check_shape(shape, "create_var", self.name)),
            "dtype": (DTypeError, self._dtype, dtype_of),
            "lod_level": (ProgramError, self.lod_level, int),
            "persistable": (ProgramError, self.persistable, bool),
        }
        for what, (error, has, read) in properties.items():
            given = declared.get(what)
            if given is not None and has is not None and read(given) != has:
                raise error(
                    f"a variable named '{self.name}' exists already with another {what}",
                    expected=f"{what}={has}", received=f"{what}={read(given)}", var=self.name, op="create_var",
                    fix="give the variable another name, or declare it as it is; block.var(name) returns it",
                )  # fmt: skip

    def _repr_html_(self) -> str:
        return f"<code>{html.escape(repr(self))}</code>"

    @property
    def stop_gradient(self) -> bool:
        return self._stop_gradient

    @stop_gradient.setter
    def stop_gradient(self, value: bool) -> None:
        self._decide(value, "set")

    def _decide(self, stops: bool, origin: StopOrigin) -> None:
        # Past `__setattr__`, which takes longer: it is called for each result of an op.
        journal, own = HERE.journal, self.__dict__
        if journal is not None:
            journal.append((_undecide, own, own["_stop_gradient"], own["_stop_origin"]))
        own["_stop_gradient"], own["_stop_origin"] = stops, origin

    def _infer_stop_gradient(self, stops: bool) -> None:
        """Records whether all inputs of an op that writes this variable stop gradients (``stops``).

        What a user set stays. A variable that a gradient flows through stays open: ops that read its value before need it.
        """
        if self._persistable or self.is_data or self._stop_origin == "set":
            return
        if not stops:
            self._decide(not self.dtype.is_inexact, "set")
        elif self._stop_origin == "":
            self._decide(True, "inferred")

    def _reopen_gradient(self) -> None:
        """Lets gradients through again, unless it was the user who stopped them."""
        if self._stop_origin == "inferred" and self.dtype.is_inexact:
            self._decide(False, "")

    # Identity, because ``==`` builds an op.
    __hash__ = object.__hash__

    @property
    def shape(self) -> Shape:
        return () if self._shape is None else self._shape

    @shape.setter
    def shape(self, shape: Sequence[int]) -> None:
        self._shape = check_shape(shape, "Variable.shape", self.name)
        self._touch()

    @property
    def dtype(self) -> DType:
        return dtype_of("float32") if self._dtype is None else self._dtype

    @dtype.setter
    def dtype(self, dtype: Any) -> None:
        self._dtype = dtype_of(dtype)
        self._touch()

    @property
    def persistable(self) -> bool:
        return self._persistable

    @persistable.setter
    def persistable(self, value: bool) -> None:
        self._persistable = bool(value)
        self._touch()

    @property
    def meta(self) -> Meta:
        return Meta(self.shape, self.dtype)

    @property
    def grad_name(self) -> str:
        return f"{self.name}@GRAD"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def dim(self) -> int:
        """Returns the number of dimensions."""
        return len(self.shape)

    ndimension = dim

    @property
    def T(self) -> Any:
        """The value with its axes reversed, as a new variable."""
        return self.transpose(list(range(self.ndim))[::-1])

    def __bool__(self) -> bool:
        if self.dtype.name != "bool":
            # Scripts ask so whether an optional input was given.
            warn_user(
                "the truth of a graph variable that is not bool is always True: its values are not known while the program "
                "is built. Write 'is not None' to ask whether there is one, static.nn.cond to branch on its values"
            )
            return True
        raise ProgramTypeError(
            f"a graph variable has no truth value while the program is built ('{self.name}')",
            expected="a Python bool",
            received=repr(self),
            fix="use static.nn.cond(pred, true_fn, false_fn) to branch on a variable",
            var=self.name,
        )

    def __len__(self) -> int:
        raise ProgramTypeError(
            f"len() of a graph variable is not defined ('{self.name}')",
            expected="a Python sequence",
            received=repr(self),
            fix="use x.shape[0] for the static size or paddle.shape(x)[0] for the run-time size",
            var=self.name,
        )

    def __iter__(self) -> Iterator[Any]:
        if not self.shape or self.shape[0] < 0:
            raise ProgramTypeError(
                f"variable '{self.name}' cannot be iterated over: the size of its first dimension is not known",
                expected="a variable whose first dimension is known",
                received=repr(self),
                fix="use static.nn.while_loop, or give the first dimension a size",
                var=self.name,
            )
        return iter([self[i] for i in range(self.shape[0])])

    def __int__(self) -> int:
        raise self._not_a_number("an int")

    def __float__(self) -> float:
        raise self._not_a_number("a float")

    def __index__(self) -> int:
        raise self._not_a_number("an index")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **given: Any) -> Any:
        """Makes ``array + variable`` an op, as ``variable + array`` is; refuses other functions of numpy."""
        operator = _REFLECTED.get(ufunc)
        # ``array += variable`` comes with the array as ``out``.
        plain = not given or (list(given) == ["out"] and given["out"][0] is inputs[0])
        # ``np.add(x, y)`` of two Variables is not written as an operator: it is refused like ``np.exp(x)``.
        left = len(inputs) == 2 and inputs[1] is self and not isinstance(inputs[0], VariableBase)
        if method == "__call__" and operator is not None and plain and left:
            return getattr(self, operator)(inputs[0])
        raise self._not_for_numpy(ufunc.__name__)

    def __array_function__(self, function: Any, types: Any, args: Any, given: Any) -> Any:
        """Answers what shapes alone decide; refuses other functions of numpy."""
        if function in (np.shape, np.ndim):
            return self.shape if function is np.shape else self.ndim
        raise self._not_for_numpy(function.__name__)

    def _not_for_numpy(self, name: str) -> ProgramTypeError:
        known = PUBLIC_API.below("tensor")
        # np.arcsin is paddle.asin; np.absolute, np.concatenate and np.less begin as Paddle's names do, or those as they.
        same = name if name in known else name.replace("arc", "a", 1)
        alike = sorted({k for k in known if (len(k) > 2 and name.startswith(k)) or k.startswith(f"{name}_")}, key=len)
        likely = f"did you mean {' or '.join(f'paddle.{k}' for k in alike[-3:])}?" if alike else near(name, known)
        fix = f"use paddle.{same}" if same in known else likely
        return ProgramTypeError(
            f"np.{name} takes values, and '{self.name}' is a variable, which has none while the program is built",
            expected=f"paddle.{same}, which builds an operator" if same in known else "a function of paddle",
            received=repr(self),
            fix=fix or "fetch the variable, and call numpy on what Executor.run returns",
            var=self.name,
        )

    def numpy(self) -> Any:
        """Raises: a variable has no value while the program is built."""
        raise self._not_a_number("an array")

    def item(self) -> Any:
        """Raises: a variable has no value while the program is built."""
        raise self._not_a_number("a number")

    def backward(self, *args: Any, **kwargs: Any) -> None:
        """Raises: gradients are ops of the program, made by ``append_backward`` or ``minimize``."""
        raise ProgramTypeError(
            f"backward() is for eager tensors, '{self.name}' is a variable of a static program",
            expected="static.append_backward(loss) or optimizer.minimize(loss)",
            received=f"{self.name}.backward()",
            fix="call static.append_backward(loss) or optimizer.minimize(loss)",
            var=self.name,
        )

    def _not_a_number(self, what: str) -> ProgramTypeError:
        return ProgramTypeError(
            f"variable '{self.name}' has no value while the program is built, so it cannot become {what}",
            expected=f"a value, to become {what}",
            received=repr(self),
            fix="fetch it: exe.run(program, feed=..., fetch_list=[variable])",
            var=self.name,
        )

    @property
    def place(self) -> str:
        """Variables of a program have no place of their own; the Executor's place decides."""
        return "undetermined until run"
