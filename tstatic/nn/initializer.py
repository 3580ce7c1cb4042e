"""How parameters get their first value: each initializer appends one op to the startup program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import NoneType
from typing import Any

import numpy as np

from tstatic.errors import DTypeError, ProgramTypeError, ShapeError, UnsupportedError, shown
from tstatic.ir.attrs import packed
from tstatic.ir.build import append_op
from tstatic.ir.checks import ANY_RANK, check_choice, check_rank, check_type
from tstatic.ir.export import door, notes_signatures, respell
from tstatic.ir.opdef import export
from tstatic.ir.program import Block, Variable
from tstatic.ir.types import dtype_of, plain
from tstatic.no_effect import NO_NAME, PLACE, no_effect


@notes_signatures()
class Initializer:
    """Base class; ``initializer(var, block)`` appends the op that fills ``var``.

    Example:
        >>> class Seven(paddle.nn.initializer.Initializer):
        ...     def op(self, var):
        ...         return "fill_constant", {"shape": var.shape, "dtype": var.dtype, "value": 7.0}
        >>> w = paddle.create_parameter([2], "float32", name="w", default_initializer=Seven())
        >>> _ = static.Executor().run(static.default_startup_program())
        >>> np.array(static.global_scope().find_var("w").get_tensor())
        array([7., 7.], dtype=float32)
    """

    def __call__(self, var: Variable, block: Block | None = None) -> Any:
        """Appends the op that fills ``var`` to ``block`` (the variable's own by default) and returns it."""
        type, attrs = self.op(var)
        return append_op(block if block is not None else var.block, type, {}, {"Out": var}, attrs)

    def op(self, var: Variable) -> tuple[str, dict[str, Any]]:
        """Returns the op type and the attributes for a variable."""
        raise UnsupportedError(
            f"{type(self).__name__} does not state how it fills a variable",
            expected="a class of paddle.nn.initializer, or one with a method op(var)",
            received=shown(self),
            fix="use for example paddle.nn.initializer.Constant(0.0)",
            op=type(self).__name__,
            var=var.name,
        )

    def __repr__(self) -> str:
        fields = ", ".join(f"{k}={v!r}" for k, v in self.__dict__.items() if not isinstance(v, np.ndarray))
        return f"{type(self).__name__}({fields})"


@door("nn.initializer.fans")
def fans(shape: Sequence[int]) -> tuple[int, int]:
    """Returns ``(fan_in, fan_out)``: the two sizes of a matrix; of convolution filters, times the receptive field."""
    if len(shape) < 2:
        size = int(shape[0]) if shape else 1
        return size, size
    if len(shape) == 2:
        return int(shape[0]), int(shape[1])
    field = math.prod(shape[2:])
    return int(shape[1]) * field, int(shape[0]) * field


@export("nn.initializer.Constant", "fluid.initializer.Constant", "fluid.initializer.ConstantInitializer")
@no_effect(force_cpu=PLACE)
class Constant(Initializer):
    """All elements ``value``.

    Args:
        value: A number.

    Example:
        >>> rule = paddle.nn.initializer.Constant(0.5)
        >>> w = paddle.create_parameter([2], "float32", name="w", default_initializer=rule)
        >>> _ = static.Executor().run(static.default_startup_program())
        >>> np.array(static.global_scope().find_var("w").get_tensor())
        array([0.5, 0.5], dtype=float32)
    """

    def __init__(self, value: float = 0.0, force_cpu: bool = False) -> None:
        self.value = value

    def op(self, var: Variable) -> tuple[str, dict[str, Any]]:
        return "fill_constant", {"shape": var.shape, "dtype": var.dtype, "value": float(self.value)}


@export("nn.initializer.Uniform")
@respell(
    "fluid.initializer.Uniform",
    "fluid.initializer.UniformInitializer",
    takes="low=-1.0, high=1.0, seed=0, diag_num=0, diag_step=0, diag_val=1.0",
)
@no_effect(name=NO_NAME)
class Uniform(Initializer):
    """Uniform in ``[low, high)``.

    Args:
        low, high: Bounds.
        seed: Replaces the program's seed when it is not 0.
        diag_num: Number of elements that are then set to ``diag_val``, each ``diag_step + 1`` elements after the one before.
        diag_step: The number of columns, for the diagonal of a matrix.
        diag_val: Their value.

    Example:
        >>> rule = paddle.nn.initializer.Uniform(low=-0.1, high=0.1)
        >>> w = paddle.create_parameter([1000], "float32", name="w", default_initializer=rule)
        >>> _ = static.Executor().run(static.default_startup_program())
        >>> value = np.array(static.global_scope().find_var("w").get_tensor())
        >>> bool(abs(value).max() <= 0.1)
        True
    """

    def __init__(
        self, low: float = -1.0, high: float = 1.0, name: str | None = None, seed: int = 0, diag_num: int = 0,
        diag_step: int = 0, diag_val: float = 1.0,
    ) -> None:  # fmt: skip
        if not low <= high:
            raise ShapeError(
                "Uniform needs low <= high",
                expected="low <= high",
                received=f"low={low}, high={high}",
                fix=f"Uniform(low={high}, high={low})",
            )
        self.low, self.high, self.seed = low, high, seed
        self.diagonal = {"diag_num": diag_num, "diag_step": diag_step, "diag_val": float(diag_val)}

    def op(self, var: Variable) -> tuple[str, dict[str, Any]]:
        return "uniform_random", {
            "shape": var.shape, "dtype": var.dtype, "min": float(self.low), "max": float(self.high), "seed": self.seed,
            **self.diagonal,
        }  # fmt: skip


@export("nn.initializer.Normal")
@respell(
    "fluid.initializer.Normal",
    "fluid.initializer.NormalInitializer",
    takes="loc=0.0, scale=1.0, seed=0",
    loc="mean",
    scale="std",
)
@no_effect(name=NO_NAME)
class Normal(Initializer):
    """Normal with mean ``mean`` and standard deviation ``std``.

    Args:
        mean: The mean.
        std: The standard deviation.
        seed: Replaces the program's seed when it is not 0.

    Example:
        >>> rule = paddle.nn.initializer.Normal(mean=1.0, std=0.1)
        >>> w = paddle.create_parameter([10000], "float32", name="w", default_initializer=rule)
        >>> _ = static.Executor().run(static.default_startup_program())
        >>> value = np.array(static.global_scope().find_var("w").get_tensor())
        >>> bool(abs(value.mean() - 1.0) < 0.01 and abs(value.std() - 0.1) < 0.01)
        True
    """

    def __init__(self, mean: float = 0.0, std: float = 1.0, name: str | None = None, seed: int = 0) -> None:
        self.mean, self.std, self.seed = mean, std, seed

    def op(self, var: Variable) -> tuple[str, dict[str, Any]]:
        return "gaussian_random", {
            "shape": var.shape, "dtype": var.dtype, "mean": float(self.mean), "std": float(self.std), "seed": self.seed,
        }  # fmt: skip


@export("nn.initializer.TruncatedNormal")
@respell(
    "fluid.initializer.TruncatedNormal",
    "fluid.initializer.TruncatedNormalInitializer",
    takes="loc=0.0, scale=1.0, seed=0",
    loc="mean",
    scale="std",
)
@no_effect(name=NO_NAME)
class TruncatedNormal(Normal):
    """Normal, cut at two standard deviations.

    Args:
        mean, std, seed: As of :class:`Normal`, before the cut.

    Example:
        >>> rule = paddle.nn.initializer.TruncatedNormal(mean=1.0, std=0.1)
        >>> w = paddle.create_parameter([10000], "float32", name="w", default_initializer=rule)
        >>> _ = static.Executor().run(static.default_startup_program())
        >>> value = np.array(static.global_scope().find_var("w").get_tensor())
        >>> bool(abs(value - 1.0).max() < 0.2001)
        True
    """

    def op(self, var: Variable) -> tuple[str, dict[str, Any]]:
        return "truncated_gaussian_random", super().op(var)[1]


class _Xavier(Initializer):
    uniform = True
    seed = 0

    def __init__(
        self, fan_in: float | None = None, fan_out: float | None = None, name: str | None = None, gain: float = 1.0
    ) -> None:
        self.fan_in, self.fan_out, self.gain = fan_in, fan_out, gain

    def op(self, var: Variable) -> tuple[str, dict[str, Any]]:
        found_in, found_out = fans(var.shape)
        total = (self.fan_in or found_in) + (self.fan_out or found_out)
        if self.uniform:
            return Uniform(*_symmetric(self.gain * math.sqrt(6.0 / total)), seed=self.seed).op(var)
        return Normal(0.0, self.gain * math.sqrt(2.0 / total), seed=self.seed).op(var)


def _symmetric(limit: float) -> tuple[float, float]:
    return -limit, limit


@export("nn.initializer.XavierUniform")
@no_effect(name=NO_NAME)
class XavierUniform(_Xavier):
    """Uniform within sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio, 2010).

    Args:
        fan_in: Inputs of a unit; ``None``: from the shape (the receptive field times the channels of a filter).
        fan_out: Outputs of a unit; the same.
        gain: Factor of the bound.

    Example:
        >>> rule = paddle.nn.initializer.XavierUniform()
        >>> w = paddle.create_parameter([50, 400], "float32", name="w", default_initializer=rule)
        >>> _ = static.Executor().run(static.default_startup_program())
        >>> value = np.array(static.global_scope().find_var("w").get_tensor())
        >>> bool(abs(value).max() <= (6 / 450) ** 0.5)
        True
    """


@export("nn.initializer.XavierNormal")
@no_effect(name=NO_NAME)
class XavierNormal(_Xavier):
    """Normal with variance 2 / (fan_in + fan_out) (Glorot and Bengio, 2010).

    Args:
        fan_in, fan_out: As of :class:`XavierUniform`.
        gain: Factor of the standard deviation.

    Example:
        >>> rule = paddle.nn.initializer.XavierNormal()
        >>> w = paddle.create_parameter([50, 400], "float32", name="w", default_initializer=rule)
        >>> _ = static.Executor().run(static.default_startup_program())
        >>> value = np.array(static.global_scope().find_var("w").get_tensor())
        >>> bool(abs(value.std() - (2 / 450) ** 0.5) < 0.01)
        True
    """

    uniform = False


@export("fluid.initializer.Xavier", "fluid.initializer.XavierInitializer")
class XavierInitializer(_Xavier):
    """1.x spelling of both Xavier initializers.

    Args:
        uniform: ``True`` draws as :class:`XavierUniform`, ``False`` as :class:`XavierNormal`.
        fan_in, fan_out: As there.
        seed: Replaces the program's seed when it is not 0.

    Example:
        >>> x = static.data("x", [None, 8])
        >>> y = fluid.layers.fc(x, size=16, param_attr=fluid.initializer.Xavier(), bias_attr=False)
        >>> _ = static.Executor().run(static.default_startup_program())
        >>> w = np.array(static.global_scope().find_var("fc_0.w_0").get_tensor())
        >>> bool(abs(w).max() <= (6 / (8 + 16)) ** 0.5)
        True
    """

    def __init__(
        self, uniform: bool = True, fan_in: float | None = None, fan_out: float | None = None, seed: int = 0
    ) -> None:
        super().__init__(fan_in, fan_out)
        self.uniform, self.seed = uniform, seed


@export("nn.initializer.calculate_gain")
def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Returns the recommended gain of a nonlinearity.

    Args:
        nonlinearity: ``"sigmoid"``, ``"tanh"``, ``"relu"``, ``"leaky_relu"``, ``"selu"``, ``"linear"``, or ``"conv1d"``
            to ``"conv3d"``, also with ``"_transpose"``.
        param: Slope of ``"leaky_relu"`` below 0; 0.01 if ``None``.

    Raises:
        ProgramTypeError: For a nonlinearity without a known gain.
    """
    gains = {"sigmoid": 1.0, "linear": 1.0, "conv1d": 1.0, "conv2d": 1.0, "conv3d": 1.0, "conv1d_transpose": 1.0,
             "conv2d_transpose": 1.0, "conv3d_transpose": 1.0, "tanh": 5.0 / 3.0, "relu": math.sqrt(2.0),
             "selu": 0.75}  # fmt: skip
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    check_choice(nonlinearity, (*gains, "leaky_relu"), "nonlinearity", "calculate_gain", error=ProgramTypeError)
    return gains[nonlinearity]


class _Kaiming(Initializer):
    uniform = True
    seed = 0

    def __init__(self, fan_in: float | None = None, negative_slope: float = 0.0, nonlinearity: str = "relu") -> None:
        self.fan_in, self.negative_slope, self.nonlinearity = fan_in, negative_slope, nonlinearity

    def op(self, var: Variable) -> tuple[str, dict[str, Any]]:
        fan_in = self.fan_in or fans(var.shape)[0]
        gain = calculate_gain(self.nonlinearity, self.negative_slope)
        if self.uniform:
            return Uniform(*_symmetric(gain * math.sqrt(3.0 / fan_in)), seed=self.seed).op(var)
        return Normal(0.0, gain / math.sqrt(fan_in), seed=self.seed).op(var)


@export("nn.initializer.KaimingUniform")
class KaimingUniform(_Kaiming):
    """Uniform within gain * sqrt(3 / fan_in) (He et al., 2015).

    Args:
        fan_in: Inputs of a unit; ``None``: from the shape.
        negative_slope: Slope of ``"leaky_relu"`` below 0.
        nonlinearity: What follows; it decides the gain, see :func:`calculate_gain`, which raises its errors when a
            parameter is made.

    Example:
        >>> rule = paddle.nn.initializer.KaimingUniform()
        >>> w = paddle.create_parameter([50, 400], "float32", name="w", default_initializer=rule)
        >>> _ = static.Executor().run(static.default_startup_program())
        >>> value = np.array(static.global_scope().find_var("w").get_tensor())
        >>> bool(abs(value).max() <= (6 / 50) ** 0.5)
        True
    """


@export("nn.initializer.KaimingNormal")
class KaimingNormal(_Kaiming):
    """Normal with standard deviation gain / sqrt(fan_in) (He et al., 2015).

    Args:
        fan_in, negative_slope, nonlinearity: As of :class:`KaimingUniform`.

    Example:
        >>> rule = paddle.nn.initializer.KaimingNormal()
        >>> w = paddle.create_parameter([50, 400], "float32", name="w", default_initializer=rule)
        >>> _ = static.Executor().run(static.default_startup_program())
        >>> value = np.array(static.global_scope().find_var("w").get_tensor())
        >>> bool(abs(value.std() - (2 / 50) ** 0.5) < 0.01)
        True
    """

    uniform = False


@export("fluid.initializer.MSRA", "fluid.initializer.MSRAInitializer")
class MSRAInitializer(_Kaiming):
    """1.x spelling of both Kaiming initializers.

    Args:
        uniform: ``True`` draws as :class:`KaimingUniform`, ``False`` as :class:`KaimingNormal`.
        fan_in, negative_slope, nonlinearity: As there.
        seed: Replaces the program's seed when it is not 0.

    Example:
        >>> x = static.data("x", [None, 8])
        >>> y = fluid.layers.fc(x, size=16, param_attr=fluid.initializer.MSRA(uniform=True), bias_attr=False)
        >>> _ = static.Executor().run(static.default_startup_program())
        >>> w = np.array(static.global_scope().find_var("fc_0.w_0").get_tensor())
        >>> bool(abs(w).max() <= (6 / 8) ** 0.5)
        True
    """

    def __init__(
        self, uniform: bool = True, fan_in: float | None = None, seed: int = 0, negative_slope: float = 0.0,
        nonlinearity: str = "relu",
    ) -> None:  # fmt: skip
        super().__init__(fan_in, negative_slope, nonlinearity)
        self.uniform, self.seed = uniform, seed


class _FromArray(Initializer):
    """Initializers whose values are computed while the program is built."""

    def value(self, var: Variable) -> np.ndarray[Any, Any]:
        raise NotImplementedError

    def op(self, var: Variable) -> tuple[str, dict[str, Any]]:
        array = np.asarray(self.value(var))
        if array.size != math.prod(var.shape):
            raise ShapeError(
                f"the values given for '{var.name}' do not fit its shape",
                expected=f"{list(var.shape)}",
                received=f"{list(array.shape)}",
                fix="give an array of the parameter's shape",
                var=var.name,
            )
        if array.dtype.kind == "c" and not var.dtype.is_complex:
            raise DTypeError(
                f"the values given for '{var.name}' are complex, and it is not",
                expected=var.dtype.name,
                received=array.dtype.name,
                fix="make the parameter with dtype='complex64', or give the real part of the values",
                var=var.name,
            )
        values = array.reshape(var.shape).astype(var.dtype.np)
        return "assign_value", {"shape": var.shape, "dtype": var.dtype, "values": packed(values)}


@export("nn.initializer.Assign", "fluid.initializer.NumpyArrayInitializer")
@no_effect(name=NO_NAME)
class Assign(_FromArray):
    """The given array, list or number.

    Example:
        >>> rule = paddle.nn.initializer.Assign([1.0, 2.0])
        >>> w = paddle.create_parameter([2], "float32", name="w", default_initializer=rule)
        >>> _ = static.Executor().run(static.default_startup_program())
        >>> np.array(static.global_scope().find_var("w").get_tensor())
        array([1., 2.], dtype=float32)
    """

    def __init__(self, value: Any, name: str | None = None) -> None:
        self.array = plain(value, "the value of Assign", "Assign")
        if self.array.dtype.kind in "OSUMm":
            dtype_of(self.array.dtype)

    def value(self, var: Variable) -> np.ndarray[Any, Any]:
        return np.broadcast_to(self.array, var.shape) if self.array.ndim == 0 else self.array


@export("nn.initializer.Bilinear", "fluid.initializer.Bilinear", "fluid.initializer.BilinearInitializer")
class Bilinear(_FromArray):
    """Bilinear upsampling kernels for transposed convolution; the shape is [out, in, k, k].

    Example:
        >>> rule = paddle.nn.initializer.Bilinear()
        >>> w = paddle.create_parameter([1, 1, 4, 4], "float32", name="w", default_initializer=rule)
        >>> _ = static.Executor().run(static.default_startup_program())
        >>> np.array(static.global_scope().find_var("w").get_tensor())[0, 0, 0]
        array([0.0625, 0.1875, 0.1875, 0.0625], dtype=float32)
    """

    def value(self, var: Variable) -> np.ndarray[Any, Any]:
        shape = var.shape
        if len(shape) != 4 or shape[2] != shape[3]:
            raise ShapeError(
                "the Bilinear initializer is for square convolution filters",
                expected="a shape [out, in, k, k]",
                received=list(shape),
                fix="pass a filter [out, in, k, k], or another initializer, such as initializer.XavierNormal()",
                var=var.name,
            )
        factor = math.ceil(shape[3] / 2.0)
        center = (2 * factor - 1 - factor % 2) / (2.0 * factor)
        line = 1 - np.abs(np.arange(shape[3]) / factor - center)
        return np.broadcast_to(line[:, None] * line[None, :], shape)


@export("nn.initializer.Dirac")
@no_effect(name=NO_NAME)
class Dirac(_FromArray):
    """Filters that pass channels through unchanged, ``groups`` times.

    Example:
        >>> rule = paddle.nn.initializer.Dirac()
        >>> w = paddle.create_parameter([1, 1, 3], "float32", name="w", default_initializer=rule)
        >>> _ = static.Executor().run(static.default_startup_program())
        >>> np.array(static.global_scope().find_var("w").get_tensor())
        array([[[0., 1., 0.]]], dtype=float32)
    """

    def __init__(self, groups: int = 1, name: str | None = None) -> None:
        self.groups = groups

    def value(self, var: Variable) -> np.ndarray[Any, Any]:
        shape = var.shape
        if len(shape) < 3 or shape[0] % self.groups:
            raise ShapeError(
                "the Dirac initializer is for convolution filters whose first size the groups divide",
                expected=f"rank 3 to 5, first size divisible by {self.groups}",
                received=list(shape),
                fix="use another initializer, or other groups",
                var=var.name,
            )
        array = np.zeros(shape)
        per = shape[0] // self.groups
        middle = tuple(s // 2 for s in shape[2:])
        for g in range(self.groups):
            for i in range(min(per, shape[1])):
                array[(g * per + i, i, *middle)] = 1.0
        return array


@export("nn.initializer.Orthogonal")
@no_effect(name=NO_NAME)
class Orthogonal(_FromArray):
    """A (semi-)orthogonal matrix times ``gain`` (Saxe et al., 2013); drawn while the program is built.

    Args:
        gain: Factor of the matrix.
        seed: Replaces the program's seed when it is not 0.

    Raises:
        ShapeError: If the parameter has fewer than two axes; those behind the first count as one.

    Example:
        >>> rule = paddle.nn.initializer.Orthogonal()
        >>> w = paddle.create_parameter([3, 3], "float32", name="w", default_initializer=rule)
        >>> _ = static.Executor().run(static.default_startup_program())
        >>> value = np.array(static.global_scope().find_var("w").get_tensor())
        >>> bool(np.allclose(value @ value.T, np.eye(3), atol=1e-5))
        True
    """

    def __init__(self, gain: float = 1.0, name: str | None = None, seed: int = 0) -> None:
        self.gain, self.seed = gain, seed

    def value(self, var: Variable) -> np.ndarray[Any, Any]:
        check_rank(var, range(2, ANY_RANK), "shape", "Orthogonal")
        rows, cols = var.shape[0], math.prod(var.shape[1:])
        seed = self.seed or var.block.program.random_seed
        draw = np.random.default_rng([seed, len(var.name), *map(ord, var.name)] if seed else None)
        flat = draw.standard_normal((max(rows, cols), min(rows, cols)))
        q, r = np.linalg.qr(flat)
        q *= np.sign(np.diag(r))
        return self.gain * (q if rows >= cols else q.T)


_weight: Initializer | None = None
_bias: Initializer | None = None


@export("nn.initializer.set_global_initializer", "fluid.set_global_initializer")
def set_global_initializer(weight_init: Initializer | None, bias_init: Initializer | None = None) -> None:
    """Replaces the default initializers of weights and biases; ``None`` restores Paddle's.

    Args:
        weight_init, bias_init: An initializer of weights, and one of biases. One that a ParamAttr names beats them.

    Raises:
        ProgramTypeError: If one is not an initializer.
    """
    global _weight, _bias
    for name, given in (("weight_init", weight_init), ("bias_init", bias_init)):
        check_type(given, (Initializer, NoneType), name, "set_global_initializer")
    _weight, _bias = weight_init, bias_init


def default_initializer(is_bias: bool) -> Initializer:
    """Returns the initializer of a parameter that names none: Xavier uniform for weights, 0 for biases."""
    chosen = _bias if is_bias else _weight
    if chosen is not None:
        return chosen
    return Constant(0.0) if is_bias else XavierUniform()


def global_initializer(is_bias: bool) -> Initializer | None:
    """Returns what :func:`set_global_initializer` set."""
    return _bias if is_bias else _weight


__all__ = ["Initializer", "default_initializer", "dtype_of", "fans", "set_global_initializer"]
