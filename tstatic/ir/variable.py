"""Variable and Parameter: named values of a program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tstatic.errors import ProgramTypeError
from tstatic.ir import text
from tstatic.ir.methods import VariableMethods
from tstatic.ir.types import DType, Meta, Shape, dtype_of
from tstatic.ir.where import Where, show
from tstatic.logs import warn_user
from tstatic.no_effect import PRINTS, no_effect

if TYPE_CHECKING:
    from tstatic.ir.program import Block


class Variable(VariableMethods):
    """A named value of a program.

    Attributes:
        name: Unique within its block.
        shape: Sizes; ``-1`` is unknown.
        dtype: Element type.
        persistable: Lives in the scope between runs.
        stop_gradient: No gradient flows to or through it.
        is_data: Declared by ``static.data``.
        made_at: The user's file and line that made it.

    Example:
        >>> x = static.data("x", [None, 2])
        >>> y = paddle.matmul(x, x.transpose([1, 0])) + 1
        >>> y.shape, y.dtype, isinstance(y, paddle.Tensor)
        ((-1, -1), tstatic.float32, True)
        >>> static.Executor().run(feed={"x": np.array([[1, 2], [3, 4]], "float32")}, fetch_list=[y])[0]
        array([[ 6., 12.],
               [12., 26.]], dtype=float32)
    """

    # numpy must not turn ``array + variable`` into an object array; None makes it call our __radd__.
    __array_ufunc__ = None
    __array_priority__ = 100

    def __init__(
        self,
        block: Block,
        name: str,
        shape: Sequence[int] | None = None,
        dtype: Any = None,
        *,
        persistable: bool = False,
        stop_gradient: bool = False,
        is_data: bool = False,
        need_check_feed: bool = False,
        lod_level: int = 0,
        type: str = "dense_tensor",
        where: Where | None = None,
    ) -> None:
        self.block = block
        self.name = name
        self._shape: Shape | None = None if shape is None else tuple(int(s) for s in shape)
        self._dtype: DType | None = None if dtype is None else dtype_of(dtype)
        self._persistable = persistable
        self._stop_gradient = stop_gradient
        # What decided it: "" nothing yet, "inferred" the inputs of the op that writes it, "set" the user or a later op.
        self._stop_origin = "set" if stop_gradient else ""
        self.is_data = is_data
        self.need_check_feed = need_check_feed
        self.lod_level = lod_level
        self.type = type
        self.made_at = where
        # In a startup program: an op gives it its first value.
        self.initialised = False

    @property
    def stop_gradient(self) -> bool:
        return self._stop_gradient

    @stop_gradient.setter
    def stop_gradient(self, value: bool) -> None:
        self._stop_gradient, self._stop_origin = value, "set"

    def _infer_stop_gradient(self, stops: bool) -> None:
        """Takes over that all inputs of an op that writes this variable stop gradients (``stops``), or that one does not.

        What a user set stays. A variable that a gradient flows through stays open: ops that read its value before need it.
        """
        if self._persistable or self.is_data or self._stop_origin == "set":
            return
        if not stops:
            self._stop_gradient, self._stop_origin = not self.dtype.is_float, "set"
        elif self._stop_origin == "":
            self._stop_gradient, self._stop_origin = True, "inferred"

    def _reopen_gradient(self) -> None:
        """Lets gradients through again, unless it was the user who stopped them."""
        if self._stop_origin == "inferred" and self.dtype.is_float:
            self._stop_gradient, self._stop_origin = False, ""

    # Identity, because ``==`` builds an op.
    __hash__ = object.__hash__

    @property
    def shape(self) -> Shape:
        return () if self._shape is None else self._shape

    @shape.setter
    def shape(self, shape: Sequence[int]) -> None:
        self._shape = tuple(int(s) for s in shape)
        self.block.program._touch()

    @property
    def dtype(self) -> DType:
        return dtype_of("float32") if self._dtype is None else self._dtype

    @dtype.setter
    def dtype(self, dtype: Any) -> None:
        self._dtype = dtype_of(dtype)
        self.block.program._touch()

    @property
    def persistable(self) -> bool:
        return self._persistable

    @persistable.setter
    def persistable(self, value: bool) -> None:
        self._persistable = bool(value)
        self.block.program._touch()

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
        """The number of dimensions."""
        return len(self.shape)

    @property
    def T(self) -> Any:
        """The value with its axes reversed, as a new variable."""
        return self.transpose(list(range(self.ndim))[::-1])

    def _is_parameter(self) -> bool:
        return isinstance(self, Parameter)

    def __repr__(self) -> str:
        kind = "Parameter" if isinstance(self, Parameter) else "Var"
        marks = [m for m, on in (("feed", self.is_data), ("persistable", self.persistable)) if on]
        tail = f" ({', '.join(marks)})" if marks and not isinstance(self, Parameter) else ""
        place = f" @ {show(self.made_at)}" if self.made_at else ""
        return f"{kind} {self.name}: {self.dtype.name}{list(self.shape)}{tail}{place}"

    @no_effect(throw_on_error=PRINTS)
    def to_string(self, throw_on_error: bool = True, with_details: bool = False) -> str:
        """One readable line: name, dtype, shape, marks."""
        return text.variable_text(self, with_details)

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
        raise self._not_a_number("int")

    def __float__(self) -> float:
        raise self._not_a_number("float")

    def __index__(self) -> int:
        raise self._not_a_number("index")

    def numpy(self) -> Any:
        """Refuses: a variable has no value while the program is built."""
        raise self._not_a_number("array")

    def item(self) -> Any:
        """Refuses: a variable has no value while the program is built."""
        raise self._not_a_number("Python number")

    def backward(self, *args: Any, **kwargs: Any) -> None:
        """Not defined for graph variables: gradients are ops of the program."""
        raise ProgramTypeError(
            f"backward() is for eager tensors, '{self.name}' is a variable of a static program",
            expected="static.append_backward(loss) or optimizer.minimize(loss)",
            received=f"{self.name}.backward()",
            fix="call static.append_backward(loss) or optimizer.minimize(loss)",
            var=self.name,
        )

    def _not_a_number(self, what: str) -> ProgramTypeError:
        return ProgramTypeError(
            f"variable '{self.name}' has no value while the program is built, so it cannot become a {what}",
            expected=f"a Python {what}",
            received=repr(self),
            fix="fetch it: exe.run(program, feed=..., fetch_list=[variable])",
            var=self.name,
        )

    @property
    def place(self) -> str:
        """Variables of a program have no place of their own; the Executor's place decides."""
        return "undetermined until run"


class Parameter(Variable):
    """A persistable variable that optimizers update.

    Attributes:
        trainable: Whether ``minimize`` updates it.
        optimize_attr: ``{"learning_rate": multiplier}``.
        regularizer: Overrides the optimizer's weight decay.
        need_clip: Whether gradient clipping takes it in.
        gradient_clip_attr: How ``fluid.clip.set_gradient_clip`` clips its gradient.
        initializer: How its start value is made.

    Example:
        >>> y = static.nn.fc(static.data("x", [None, 3]), 2)
        >>> w, b = static.default_main_program().all_parameters()
        >>> w.name, w.shape, w.trainable, isinstance(w, static.Parameter)
        ('fc_0.w_0', (3, 2), True, True)
    """

    def __init__(
        self,
        block: Block,
        name: str,
        shape: Sequence[int],
        dtype: Any,
        *,
        trainable: bool = True,
        optimize_attr: dict[str, float] | None = None,
        regularizer: Any = None,
        do_model_average: bool | None = None,
        need_clip: bool = True,
        is_distributed: bool = False,
        initializer: Any = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("stop_gradient", not trainable)
        super().__init__(block, name, shape, dtype, persistable=True, **kwargs)
        self.trainable = trainable
        self.optimize_attr = {"learning_rate": 1.0} if optimize_attr is None else optimize_attr
        self.regularizer = regularizer
        self.do_model_average = do_model_average
        self.need_clip = need_clip
        self.is_distributed = is_distributed
        self.initializer = initializer
        self.gradient_clip_attr: Any = None
