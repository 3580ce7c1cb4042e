"""ParamAttr, and how layers make parameters."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType
from typing import Any

from tstatic.errors import ProgramError, ProgramTypeError, TstaticError, shown
from tstatic.ir import names
from tstatic.ir.build import LayerNamer, check_variable, emit
from tstatic.ir.checks import check_axis, check_int, check_length, check_type
from tstatic.ir.declare import create_parameter as add_parameter
from tstatic.ir.declare import default_dtype, default_main_program, default_startup_program, program_guard
from tstatic.ir.opdef import export, op_def
from tstatic.ir.program import Operator, Parameter, Program, Variable
from tstatic.ir.types import DType, dtype_of
from tstatic.ir.variable import check_shape
from tstatic.nn.clip import check_clip
from tstatic.nn.initializer import Constant, Initializer, global_initializer
from tstatic.nn.initializer import default_initializer as standard_initializer
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
        do_model_average: Whether ``ExponentialMovingAverage`` and ``ModelAverage`` take it in.
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
    """Settings of a parameter that is learned as a direction v and a length g: ``w = g * v / |v|`` (Salimans and Kingma, 2016).

    A layer with it has the parameters ``<name>_g`` and ``<name>_v`` in the place of its weight. v starts as the weight would,
    g as its norm, so that the first outputs are those without this.

    Args:
        dim: The axis along which lengths are separate, such as the outputs of a layer; ``None`` for one length.
        name, initializer, learning_rate, regularizer, trainable, do_model_average, need_clip: As of :class:`ParamAttr`.

    Raises:
        ProgramTypeError: If ``dim`` is not a whole number or ``None``.

    Example:
        >>> start = paddle.nn.initializer.Assign([[3.0], [4.0]])
        >>> attr = static.WeightNormParamAttr(dim=1, name="w", initializer=start)
        >>> y = static.nn.fc(static.data("x", [None, 2]), 1, weight_attr=attr, bias_attr=False)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> [a.tolist() for a in exe.run(feed={"x": np.ones((1, 2), "float32")}, fetch_list=[y, "w_g"])]
        [[[7.0]], [[5.0]]]
    """

    def __init__(
        self, dim: int | None = None, name: str | None = None, initializer: Initializer | None = None,
        learning_rate: float = 1.0, regularizer: Any = None, trainable: bool = True, do_model_average: bool = False,
        need_clip: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(name, initializer, learning_rate, regularizer, trainable, do_model_average, need_clip)
        self.dim = dim if dim is None else check_int(dim, "dim", "WeightNormParamAttr", error=ProgramTypeError)

    def _part(self, name: str, initializer: Initializer) -> ParamAttr:
        """Returns the settings of one of the two parameters."""
        return ParamAttr(
            name,
            initializer,
            self.learning_rate,
            self.regularizer,
            self.trainable,
            self.do_model_average,
            self.need_clip,
        )


def lengths_of(v: Variable, dim: int | None) -> Variable:
    """Emits the norm of a weight over all axes but one, which are kept with size 1."""
    rest = tuple(axis for axis in range(len(v.shape)) if dim is None or axis != dim % len(v.shape))
    squares = emit("elementwise_mul", {"X": v, "Y": v})
    if rest:
        squares = emit("reduce_sum", {"X": squares}, {"dim": rest, "keep_dim": True})
    return emit("sqrt", {"X": squares})  # type: ignore[no-any-return]


def with_length(v: Variable, g: Variable, dim: int | None) -> Variable:
    """Emits ``g * v / |v|``, where ``g`` has the shape of :func:`lengths_of`."""
    scale = emit("elementwise_div", {"X": g, "Y": lengths_of(v, dim)})
    return emit("elementwise_mul", {"X": v, "Y": scale})  # type: ignore[no-any-return]


class StartOf(Initializer):
    """Starts a parameter as another one, which the startup program has filled before."""

    def __init__(self, name: str) -> None:
        self._name = name

    def value(self, source: Variable) -> Variable:
        """Emits what the parameter starts as."""
        return source

    def __call__(self, var: Variable, block: Any = None) -> Any:
        with program_guard(block.program, block.program):
            return emit("assign", {"X": self.value(block.var(self._name))}, outputs={"Out": var})


class _LengthsOf(StartOf):
    """Starts a parameter as the norm of another one."""

    def __init__(self, name: str, dim: int | None) -> None:
        super().__init__(name)
        self._dim = dim

    def value(self, source: Variable) -> Variable:
        return lengths_of(source, self._dim)


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
    startup_var._put(made_at=var.made_at, initialised=True)
    initializer(startup_var, block)


class LayerHelper(LayerNamer):
    """Writes a layer into the default programs: generates its name, makes its parameters and appends its ops.

    ``helper = LayerHelper("mine", **locals())`` as the first line of a function takes the function's arguments.

    Args:
        layer_type: What the generated name begins with.
        **kwargs: Arguments of the layer. ``name`` replaces the generated name; the methods read ``act``, ``param_attr``,
            ``bias_attr`` and the inputs.

    Example:
        >>> def affine(input, size, act=None, bias_attr=None, name=None):
        ...     helper = fluid.layer_helper.LayerHelper("affine", **locals())
        ...     w = helper.create_parameter(helper.param_attr, [input.shape[1], size], helper.input_dtype())
        ...     out = helper.create_variable_for_type_inference(helper.input_dtype())
        ...     helper.append_op(type="mul", inputs={"X": input, "Y": w}, outputs={"Out": out})
        ...     return helper.append_activation(helper.append_bias_op(out))
        >>> affine(static.data("x", [None, 3]), 2, act="relu").name
        'affine_0.tmp_2'
    """

    def __init__(self, layer_type: str, **kwargs: Any) -> None:
        super().__init__(layer_type, kwargs.get("name"))
        # Generated here rather than at its first use: in Paddle a helper that names nothing counts, too.
        self.kwargs = {**kwargs, "name": self.name}

    @property
    def layer_type(self) -> str:
        return self.prefix

    @property
    def main_program(self) -> Program:
        return default_main_program()

    @property
    def startup_program(self) -> Program:
        return default_startup_program()

    # ----------------------------------------------------------------------------------------------- arguments of the layer
    def multiple_input(self, input_param_name: str = "input") -> list[Variable]:
        """Returns the Variables given as one argument of the layer; none if it is absent.

        Raises:
            ProgramTypeError: If one of them is not a Variable.
        """
        given = self.kwargs.get(input_param_name, [])
        row = given if isinstance(given, list | tuple) else [given]
        return [check_variable(x, input_param_name, self.layer_type) for x in row]

    def input(self, input_param_name: str = "input") -> Variable:
        """Returns the Variable given as one argument of the layer.

        Raises:
            ProgramTypeError: If there are several, or none, or it is not a Variable.
        """
        inputs = self.multiple_input(input_param_name)
        check_length(inputs, 1, input_param_name, self.layer_type, error=ProgramTypeError)
        return inputs[0]

    def input_dtype(self, input_param_name: str = "input") -> DType | None:
        """Returns the dtype that all inputs have; ``None`` if there are none.

        Raises:
            ProgramError: If their dtypes differ.
        """
        inputs = self.multiple_input(input_param_name)
        for x in inputs:
            if x.dtype is not inputs[0].dtype:
                raise ProgramError(
                    f"Data Type mismatch: {inputs[0].dtype.name} to {x.dtype.name}",
                    expected=f"inputs of one dtype, {inputs[0].dtype.name} as that of '{inputs[0].name}'",
                    received=f"'{x.name}' of {x.dtype.name}",
                    fix=f"convert it with paddle.cast({x.name}, '{inputs[0].dtype.name}')",
                    op=self.layer_type,
                    var=x.name,
                )
        return inputs[0].dtype if inputs else None

    @property
    def param_attr(self) -> Any:
        return ParamAttr._to_attr(self.kwargs.get("param_attr"))

    @property
    def bias_attr(self) -> Any:
        return ParamAttr._to_attr(self.kwargs.get("bias_attr"))

    def multiple_param_attr(self, length: int) -> list[Any]:
        """Returns ``length`` attributes: those of the list ``param_attr``, or copies of a single one.

        Raises:
            ProgramError: If the list has another length.
        """
        given = self.param_attr
        attrs = given if isinstance(given, list) else [given]
        if len(attrs) == 1:
            return [copy.copy(attrs[0]) for _ in range(length)]
        check_length(attrs, length, "param_attr", self.layer_type, why="one per input", error=ProgramError)
        return attrs

    def iter_inputs_and_params(self, input_param_name: str = "input") -> Iterator[tuple[Variable, Any]]:
        """Yields each input and the attribute of its parameter."""
        inputs = self.multiple_input(input_param_name)
        yield from zip(inputs, self.multiple_param_attr(len(inputs)), strict=True)

    # ----------------------------------------------------------------------------------------------- parameters and variables
    @no_effect(type="every variable is a dense tensor")
    def create_parameter(
        self,
        attr: Any,
        shape: Any,
        dtype: Any = None,
        is_bias: bool = False,
        default_initializer: Initializer | None = None,
        stop_gradient: bool = False,
        type: Any = None,
    ) -> Any:
        """Makes a parameter ``<layer>.w_N`` (or ``.b_N``) and its startup op.

        Args:
            attr: ParamAttr, name or initializer; ``False`` makes none and returns ``None``.
            shape: Positive sizes.
            dtype: Float type; the default dtype if ``None``.
            is_bias: Starts at 0 instead of Xavier uniform.
            default_initializer: Used if ``attr`` has none; one given to ``set_global_initializer`` beats it.
            stop_gradient: Makes a parameter that optimizers do not update.

        Raises:
            ShapeError, DTypeError: If the shape is not known, or the name is taken with another shape or dtype.
        """
        attr = ParamAttr._to_attr(attr)
        if attr is False:
            return None
        if isinstance(attr, list):
            raise ProgramTypeError(
                f"{self.prefix} makes one parameter here, and got a list of attributes",
                expected="a ParamAttr, a str, an Initializer, a bool or None",
                received=shown(attr),
                fix="pass one of them",
                op=self.prefix,
            )
        name = attr.name
        if name is None:
            name = names.generate(f"{self.name}.{'b' if is_bias else 'w'}")
        initializer = (
            attr.initializer or global_initializer(is_bias) or default_initializer or standard_initializer(is_bias)
        )
        if isinstance(attr, WeightNormParamAttr):
            return self._normalised_weight(attr, name, shape, dtype, initializer)
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

    def _normalised_weight(
        self, attr: WeightNormParamAttr, name: str, shape: Any, dtype: Any, initializer: Initializer
    ) -> Variable:
        """Makes direction and length of a weight, and emits the weight."""
        v = self.create_parameter(attr._part(f"{name}_v", initializer), shape, dtype)
        dim = None if attr.dim is None else check_axis(attr.dim, len(v.shape), "dim", "WeightNormParamAttr")
        sizes = [size if axis == dim else 1 for axis, size in enumerate(v.shape)]
        g = self.create_parameter(attr._part(f"{name}_g", _LengthsOf(v.name, dim)), sizes, dtype)
        return with_length(v, g, dim)

    def get_parameter(self, name: str) -> Parameter:
        """Returns the parameter of that name.

        Raises:
            NotFoundError: If the main program has no variable of that name.
            ProgramTypeError: If the variable is not a parameter.
        """
        return check_type(self.main_program.global_block().var(name), Parameter, name, self.layer_type)

    def create_variable_for_type_inference(
        self, dtype: Any, stop_gradient: bool = False, shape: Sequence[int] | None = None
    ) -> Variable:
        """Makes a variable ``<layer>.tmp_N`` of the current block for the result of an op.

        Args:
            dtype: Its dtype until an op writes it, which may give it another; the default dtype if ``None``.
            stop_gradient: Whether no gradient flows through it.
            shape: Its shape until an op writes it.
        """
        var = self.variable(default_dtype() if dtype is None else dtype, shape, stop_gradient)
        var._dtype_is_inferred = True
        return var

    def create_variable(self, **kwargs: Any) -> Variable:
        """Makes a variable of the current block; the arguments are those of ``Block.create_var``."""
        return self.block.create_var(**kwargs)

    def create_global_variable(self, persistable: bool = False, **kwargs: Any) -> Variable:
        """Makes a variable of the main program's first block.

        Args:
            persistable: Whether it is state, which keeps its value between runs.
            **kwargs: Further arguments of ``Block.create_var``.
        """
        return self.main_program.global_block().create_var(persistable=persistable, **kwargs)

    def create_or_get_global_variable(self, name: str, **kwargs: Any) -> tuple[Variable, bool]:
        """Returns the variable of that name in the main program's first block, and whether it was made by this call.

        Args:
            name: Its name.
            **kwargs: Arguments of :meth:`create_global_variable`.
        """
        block = self.main_program.global_block()
        if block.has_var(name):
            return block.var(name), False
        return self.create_global_variable(name=name, **kwargs), True

    def set_variable_initializer(self, var: Variable, initializer: Initializer) -> None:
        """Makes the startup program give a variable its first value.

        Args:
            var: A variable of the main program.
            initializer: What appends the startup op.
        """
        startup_value(check_variable(var, "var", self.layer_type), initializer)

    # ------------------------------------------------------------------------------------------------------------------- ops
    def append_op(
        self,
        type: str,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
        attrs: Mapping[str, Any] | None = None,
        stop_gradient: bool | None = None,
    ) -> Operator:
        """Appends an op to the current block of the main program.

        Args:
            type: Op type.
            inputs: Slot -> Variable, its name, or a list of them.
            outputs: The same, for variables that exist.
            attrs: Attributes; the others have their defaults.
            stop_gradient: Set on all outputs if given.

        Raises:
            NotFoundError, ProgramError, ProgramTypeError, ShapeError, DTypeError: What the op refuses; nothing is changed.
        """
        return self.block.append_op(type, inputs, outputs, attrs, stop_gradient=stop_gradient)

    def append_bias_op(self, input_var: Variable, dim_start: int = 1, dim_end: int | None = None) -> Variable:
        """Adds a bias parameter; returns ``input_var`` if the layer's ``bias_attr`` is ``False``.

        Args:
            input_var: What to add to.
            dim_start: First axis of ``input_var`` that the bias has.
            dim_end: The axis behind the last one; all from ``dim_start`` on if ``None``.

        Raises:
            ShapeError: If the size of one of these axes is unknown.
        """
        shape = input_var.shape[dim_start:dim_end]
        bias = self.create_parameter(self.bias_attr, shape, input_var.dtype, is_bias=True)
        if bias is None:
            return input_var
        return self.emit("elementwise_add", {"X": input_var, "Y": bias}, {"axis": dim_start})  # type: ignore[no-any-return]

    def append_activation(self, input_var: Variable) -> Variable:
        """Applies the layer's ``act``: an op type, or a dict of it as ``type`` and of attributes; ``None`` returns ``input_var``.

        Raises:
            ProgramTypeError: If ``act`` is neither.
            NotFoundError: For a name that no op has.
        """
        return activate(self, input_var, self.kwargs.get("act"))


def activate(helper: LayerNamer, x: Variable, act: Any) -> Variable:
    """Appends the activation op ``act`` to ``x``, named after ``helper``'s layer."""
    if act is None:
        return x
    check_activation(act, helper.prefix)
    attrs = dict(act) if isinstance(act, dict) else {"type": act}
    return helper.emit(attrs.pop("type"), {"X": x}, attrs)  # type: ignore[no-any-return]


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


@export(
    "tensor.create_parameter", "static.create_parameter", "static.nn.create_parameter", "fluid.layers.create_parameter"
)
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
        name: Its name; with an ``attr`` that has none, the generated name begins with it: ``<name>.w_0``.
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
    helper = LayerHelper("create_parameter", name=name)
    attr = ParamAttr(name) if attr is None else attr
    return helper.create_parameter(attr, shape, dtype, is_bias, default_initializer)  # type: ignore[no-any-return]


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
