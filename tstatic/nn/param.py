"""ParamAttr, and how layers make parameters."""

from __future__ import annotations

from types import NoneType
from typing import Any

from tstatic.errors import ProgramError, ProgramTypeError, TstaticError, UnsupportedError, shown
from tstatic.ir import names
from tstatic.ir.build import LayerNamer, emit
from tstatic.ir.checks import check_type
from tstatic.ir.declare import check_shape, default_dtype, default_main_program, default_startup_program
from tstatic.ir.declare import create_parameter as add_parameter
from tstatic.ir.opdef import export, op_def
from tstatic.ir.program import Parameter, Program, Variable
from tstatic.ir.types import dtype_of
from tstatic.nn.clip import check_clip
from tstatic.nn.initializer import Constant, Initializer, default_initializer, global_initializer
from tstatic.no_effect import PLACE, no_effect


@export("tensor.ParamAttr", "static.ParamAttr", "fluid.ParamAttr", "fluid.param_attr.ParamAttr", "framework.ParamAttr")
class ParamAttr:
    """Settings of one parameter.

    Args:
        name: Its name, instead of a generated one.
        initializer: How its first value is made.
        learning_rate: Multiplier of the optimizer's learning rate.
        regularizer: Beats the optimizer's weight decay.
        trainable: Whether it is updated.
        do_model_average: Accepted for Paddle scripts; parameter averaging takes every parameter.
        need_clip: Whether gradient clipping takes it in.
        gradient_clip: How its gradient is clipped (1.x), unless the optimizer has a ``grad_clip``; see
            ``fluid.clip.set_gradient_clip``.

    Example:
        >>> attr = paddle.ParamAttr(name="w", initializer=paddle.nn.initializer.Constant(0.5), learning_rate=0.1)
        >>> y = static.nn.fc(paddle.ones([1, 4]), 2, weight_attr=attr)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([[2., 2.]], dtype=float32)
    """

    def __init__(
        self,
        name: str | None = None,
        initializer: Initializer | None = None,
        learning_rate: float = 1.0,
        regularizer: Any = None,
        trainable: bool = True,
        do_model_average: bool = True,
        need_clip: bool = True,
        gradient_clip: Any = None,
    ) -> None:
        check_type(name, (str, NoneType), "name", "ParamAttr")
        check_type(learning_rate, (int, float, NoneType), "learning_rate", "ParamAttr")
        for arg, flag in (("trainable", trainable), ("do_model_average", do_model_average), ("need_clip", need_clip)):
            check_type(flag, (bool, NoneType), arg, "ParamAttr")
        check_type(initializer, (Initializer, NoneType), "initializer", "ParamAttr")
        check_clip(gradient_clip, "gradient_clip")
        self.name = name or None
        self.initializer = initializer
        self.learning_rate = learning_rate
        self.regularizer = regularizer
        self.trainable = trainable
        self.do_model_average = do_model_average
        self.need_clip = need_clip
        self.gradient_clip = gradient_clip

    @staticmethod
    def _to_attr(arg: Any) -> Any:
        """Returns the ParamAttr of what layers accept: a ParamAttr, a name, an initializer, ``False`` (no parameter), ``None``, or
        a list of these.

        Raises:
            ProgramTypeError: For anything else.
        """
        if arg is None or arg is True:
            return ParamAttr()
        if arg is False or isinstance(arg, ParamAttr):
            return arg
        if isinstance(arg, list | tuple):
            return [ParamAttr._to_attr(a) for a in arg]
        if isinstance(arg, str):
            return ParamAttr(name=arg)
        if isinstance(arg, Initializer):
            return ParamAttr(initializer=arg)
        raise ProgramTypeError(
            f"{type(arg)} cast to ParamAttr",
            expected="a ParamAttr, a str, an Initializer, a bool or None",
            received=shown(arg),
            fix="pass for example ParamAttr(initializer=nn.initializer.Normal())",
            op="ParamAttr",
        )

    def __repr__(self) -> str:
        return f"ParamAttr(name={self.name!r}, initializer={self.initializer!r}, learning_rate={self.learning_rate})"


@export("static.WeightNormParamAttr", "fluid.param_attr.WeightNormParamAttr", "fluid.WeightNormParamAttr")
class WeightNormParamAttr(ParamAttr):
    """Not part of this release.

    Raises:
        UnsupportedError: Always, with what to use instead.

    Example:
        >>> start = paddle.nn.initializer.Assign([[3.0], [4.0]])
        >>> v = paddle.create_parameter([2, 1], "float32", default_initializer=start)
        >>> g = paddle.create_parameter([1], "float32", default_initializer=paddle.nn.initializer.Constant(2.0))
        >>> w = v * g / paddle.norm(v)  # instead of WeightNormParamAttr
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[w])[0]
        array([[1.2],
               [1.6]], dtype=float32)
    """

    def __init__(self, dim: int | None = None, **kwargs: Any) -> None:
        raise UnsupportedError(
            "WeightNormParamAttr is not part of tstatic",
            expected="ParamAttr",
            received="WeightNormParamAttr",
            fix="write the normalisation in the program: w * g / paddle.norm(w)",
        )


def startup_value(var: Variable, initializer: Initializer, startup: Program | None = None) -> None:
    """Appends the op that gives a persistable variable its first value, once."""
    block = (startup if startup is not None else default_startup_program()).global_block()
    old = block.vars.get(var.name)
    if old is not None and old.initialised:
        return
    if isinstance(var, Parameter):
        startup_var: Variable = add_parameter(
            block.program, shape=var.shape, dtype=var.dtype, name=var.name, trainable=var.trainable
        )
    else:
        startup_var = block.create_var(name=var.name, shape=var.shape, dtype=var.dtype, persistable=True)
    startup_var.made_at = var.made_at
    startup_var.initialised = True
    initializer(startup_var, block)


class LayerHelper(LayerNamer):
    """One layer call that makes parameters: names them after the layer and initialises them in the startup program.

    Example:
        >>> helper = fluid.layer_helper.LayerHelper("mine")
        >>> w = helper.create_parameter(None, [3, 2], "float32")
        >>> b = helper.create_parameter(None, [2], "float32", is_bias=True)
        >>> w.name, b.name
        ('mine_0.w_0', 'mine_0.b_0')
    """

    def __init__(self, prefix: str, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(prefix, name)
        self.kwargs = kwargs

    def create_parameter(
        self,
        attr: Any,
        shape: Any,
        dtype: Any = None,
        is_bias: bool = False,
        default: Initializer | None = None,
        stop_gradient: bool = False,
        default_initializer_: Initializer | None = None,
    ) -> Parameter:
        """Makes a parameter ``<layer>.w_N`` (or ``.b_N``) and its startup op.

        Raises:
            ShapeError, DTypeError: If the shape is not known, or the name is taken with another shape or dtype.
        """
        attr = ParamAttr._to_attr(attr)
        assert attr is not False
        name = attr.name
        if name is None:
            name = names.generate(f"{self.name}.{'b' if is_bias else 'w'}")
        initializer = (
            attr.initializer
            or global_initializer(is_bias)
            or default
            or default_initializer_
            or default_initializer(is_bias)
        )
        parameter = add_parameter(
            default_main_program(),
            shape=shape,
            dtype=default_dtype() if dtype is None else dtype_of(dtype),
            name=name,
            trainable=attr.trainable and not stop_gradient,
            optimize_attr={"learning_rate": float(attr.learning_rate)},
            regularizer=attr.regularizer,
            do_model_average=attr.do_model_average,
            need_clip=attr.need_clip,
            initializer=initializer,
        )
        parameter.gradient_clip_attr = attr.gradient_clip
        startup_value(parameter, initializer)
        return parameter

    def global_variable(self, name: str, shape: Any, dtype: Any, initializer: Initializer) -> Variable:
        """Makes a persistable variable that is not a parameter, and its startup op."""
        block = default_main_program().global_block()
        var = block.create_var(name=name, shape=shape, dtype=dtype, persistable=True, stop_gradient=True)
        startup_value(var, initializer)
        return var

    def append_activation(self, x: Any, act: Any) -> Any:
        """Appends an activation by name (or a dict ``{"type": name, ...attributes}``).

        Raises:
            NotFoundError: For a name that no op has.
        """
        return activate(self, x, act)


def activate(helper: LayerNamer, x: Any, act: Any) -> Any:
    """Appends the activation op ``act`` to ``x``, named after ``helper``'s layer."""
    if act is None:
        return x
    check_activation(act, helper.prefix)
    attrs = dict(act) if isinstance(act, dict) else {"type": act}
    return helper.emit(attrs.pop("type"), {"X": x}, attrs)


def check_activation(act: Any, function: str) -> None:
    """Refuses an activation that :func:`activate` could not append.

    Raises:
        ProgramTypeError: If it is not given by name.
        NotFoundError: For a name that no op has.
    """
    if act is None:
        return
    kind = act.get("type") if isinstance(act, dict) else act
    kind = check_type(kind, str, "act", function, expected="an op by name, such as 'relu', or None")
    try:
        op_def(kind)
    except TstaticError as error:
        raise error.add_context(op=function, var="act") from None


def check_enabled(attr: Any, arg: str, function: str) -> None:
    """Refuses ``False`` for a parameter that the layer cannot do without.

    Raises:
        ProgramError: If ``attr`` is ``False``.
    """
    if attr is False:
        raise ProgramError(
            f"{arg} should not be False in {function}: it has no meaning without that parameter",
            expected="a ParamAttr, a name, an initializer or None",
            received="False",
            fix=f"leave '{arg}' out, or fix the parameter with ParamAttr(trainable=False)",
            op=function,
            var=arg,
        )


@export("tensor.create_parameter", "static.create_parameter", "fluid.layers.create_parameter")
def create_parameter(
    shape: Any,
    dtype: Any,
    name: str | None = None,
    attr: Any = None,
    is_bias: bool = False,
    default_initializer: Initializer | None = None,
) -> Parameter:
    """Makes a parameter in the main program and its first value in the startup program.

    Args:
        shape: Positive sizes.
        dtype: Float type.
        name: Its name.
        attr: ParamAttr; its name beats ``name``.
        is_bias: Starts at 0 instead of Xavier uniform.
        default_initializer: Used if ``attr`` has none.

    Example:
        >>> half = paddle.nn.initializer.Constant(0.5)
        >>> w = paddle.create_parameter([2, 2], "float32", name="w", default_initializer=half)
        >>> y = paddle.matmul(paddle.ones([1, 2]), w)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([[1., 1.]], dtype=float32)
    """
    helper = LayerHelper("create_parameter", name)
    attr = ParamAttr._to_attr(attr)
    if attr is not False and attr.name is None and name is not None:
        attr = ParamAttr(
            name,
            attr.initializer,
            attr.learning_rate,
            attr.regularizer,
            attr.trainable,
            attr.do_model_average,
            attr.need_clip,
            attr.gradient_clip,
        )
    return helper.create_parameter(attr, shape, dtype, is_bias, default_initializer)


@export("static.create_global_var", "tensor.create_global_var", "fluid.layers.create_global_var",
         "fluid.layers.tensor.create_global_var")  # fmt: skip
@no_effect(force_cpu=PLACE)
def create_global_var(
    shape: Any, value: float, dtype: Any, persistable: bool = False, force_cpu: bool = False, name: str | None = None
) -> Variable:
    """Makes a variable of the main program that the startup program fills with ``value``.

    Args:
        shape: Sizes.
        value: Its first value.
        dtype: Element type.
        persistable: Whether it is state: it then keeps its value between runs and is saved. Without it the startup program's
            value is not seen by other programs, as in Paddle, and a run that reads the variable has to write it first.
        name: Its name.

    Example:
        >>> step = paddle.create_global_var([1], value=10.0, dtype="float32", persistable=True, name="step")
        >>> next_step = paddle.increment(step)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> [float(exe.run(fetch_list=[next_step])[0][0]) for _ in range(3)]
        [11.0, 12.0, 13.0]
    """
    if name is None:
        name = names.generate("global_var")
    shape = check_shape(shape, "create_global_var", name)
    block = default_main_program().global_block()
    var = block.create_var(name=name, shape=shape, dtype=dtype, persistable=bool(persistable), stop_gradient=True)
    startup_value(var, Constant(value))
    return var


__all__ = ["LayerHelper", "ParamAttr", "activate", "create_global_var", "create_parameter", "emit", "startup_value"]
