"""Weights that each call of a layer computes from other parameters: ``weight_norm`` and ``spectral_norm``."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import NotFoundError, ProgramError
from tstatic.ir.build import emit
from tstatic.ir.checks import check_axis, check_int, check_number, check_type
from tstatic.ir.declare import program_guard
from tstatic.ir.export import export
from tstatic.ir.program import Parameter, Variable
from tstatic.nn.initializer import Initializer, Normal
from tstatic.nn.layer.common import Linear
from tstatic.nn.layer.conv import Conv1DTranspose, Conv2DTranspose, Conv3DTranspose
from tstatic.nn.layer.layers import HookRemover, Layer
from tstatic.nn.param import ParamAttr, StartOf, lengths_of, with_length
from tstatic.nn.static_norm import power_iterations, spectral_matrix, spectral_sizes
from tstatic.undo import note_object


class _WeightHook:
    """Sets an attribute of a layer before each call; what is in the parameter of that name is kept in ``weight``."""

    name: str
    function: str

    def __init__(self, layer: Layer, name: str, function: str) -> None:
        check_type(layer, Layer, "layer", function)
        note_object(layer)
        for hook in layer._forward_pre_hooks:
            if isinstance(hook, _WeightHook) and hook.name == name:
                raise ProgramError(
                    f"the parameter '{name}' of {type(layer).__name__} has a hook of {hook.function} already",
                    expected="a parameter without one",
                    received=f"{function}(layer, {name!r})",
                    fix=f"call {function} once, or nn.utils.remove_weight_norm first",
                    op=function,
                )
        weight = layer._parameters.get(name)
        if weight is None:
            raise NotFoundError(
                f"{type(layer).__name__} has no parameter '{name}'",
                expected=f"one of {list(layer._parameters)}",
                received=repr(name),
                fix="pass the name of a parameter of this layer itself, not of a layer inside it",
                op=function,
            )
        self.name, self.function = name, function
        self.weight: Parameter = weight

    def compute(self, layer: Layer) -> Variable:
        raise NotImplementedError

    def register(self, layer: Layer, first: Variable) -> None:
        """Takes the parameter's name for what is computed in each call, and for ``first`` until then."""
        setattr(layer, self.name, first)
        self.handle: HookRemover = layer.register_forward_pre_hook(self)

    def __call__(self, layer: Layer, inputs: Any) -> None:
        note_object(layer)
        setattr(layer, self.name, self.compute(layer))


# ------------------------------------------------------------------------------------------------------- direction, length
class _LengthOf(StartOf):
    """Starts the length as the norm of the weight."""

    def __init__(self, weight: Variable, dim: int | None) -> None:
        super().__init__(weight.name)
        self._dim = dim

    def value(self, source: Variable) -> Variable:
        shape = (-1,) if self._dim is not None else ()
        return emit("reshape2", {"X": lengths_of(source, self._dim)}, {"shape": shape})  # type: ignore[no-any-return]


class WeightNorm(_WeightHook):
    """What :func:`weight_norm` registers."""

    def __init__(self, layer: Layer, name: str, dim: int | None) -> None:
        super().__init__(layer, name, "weight_norm")
        # As in Paddle, -1 is one length, not the last axis.
        self.dim = None if dim in (None, -1) else check_axis(dim, self.weight, "dim", self.function)
        w = self.weight
        sizes = () if self.dim is None else (w.shape[self.dim],)
        v = layer.create_parameter(w.shape, self._settings(StartOf(w.name)), w.dtype)
        g = layer.create_parameter(sizes, self._settings(_LengthOf(w, self.dim)), w.dtype)
        del layer._parameters[name]
        layer.add_parameter(f"{name}_v", v)
        layer.add_parameter(f"{name}_g", g)
        self.register(layer, self.compute(layer))

    def _settings(self, start: Initializer) -> ParamAttr:
        w = self.weight
        rate = w.optimize_attr["learning_rate"]
        return ParamAttr(None, start, rate, w.regularizer, w.trainable, w.do_model_average is not False, w.need_clip)

    def compute(self, layer: Layer) -> Variable:
        v, g = getattr(layer, f"{self.name}_v"), getattr(layer, f"{self.name}_g")
        kept = [size if axis == self.dim else 1 for axis, size in enumerate(v.shape)]
        return with_length(v, emit("reshape2", {"X": g}, {"shape": kept}), self.dim)

    def remove(self, layer: Layer) -> None:
        self.handle.remove()
        v, g = getattr(layer, f"{self.name}_v"), getattr(layer, f"{self.name}_g")
        for name in (self.name, f"{self.name}_v", f"{self.name}_g"):
            delattr(layer, name)
        layer.add_parameter(self.name, self.weight)
        try:
            direction, length = np.asarray(v.get_value()), np.asarray(g.get_value())
        except NotFoundError:
            # Nothing has run yet: the startup program fills the weight as it fills what is removed.
            return
        axes = tuple(a for a in range(direction.ndim) if a != self.dim)
        norm = np.sqrt((direction * direction).sum(axes, keepdims=True))
        self.weight.set_value(direction * (length.reshape(norm.shape) / norm))


@export("nn.utils.weight_norm", "nn.weight_norm")
def weight_norm(layer: Layer, name: str = "weight", dim: int | None = 0) -> Layer:
    """Makes a layer learn a weight as a direction v and a length g: ``w = g * v / |v|`` (Salimans and Kingma, 2016).

    The parameters ``<name>_v`` and ``<name>_g`` take the place of the weight. The startup program starts them as its direction
    and length, so that the first outputs are those without this. ``static.WeightNormParamAttr`` does the same for layers that are
    functions.

    Args:
        layer: A layer, before it is called.
        name: One of its parameters.
        dim: The axis along which lengths are separate, ``g`` of shape ``[size]``; ``None`` or -1 for one length, ``[]``.

    Returns:
        The layer.

    Raises:
        NotFoundError: If the layer has no such parameter.
        ProgramError: If the parameter has a hook of this kind already.

    Example:
        >>> start = paddle.nn.initializer.Assign([[3.0], [4.0]])
        >>> layer = paddle.nn.utils.weight_norm(paddle.nn.Linear(2, 1, weight_attr=start, bias_attr=False), dim=1)
        >>> y = layer(paddle.to_tensor([[1.0, 1.0]]))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> [a.tolist() for a in exe.run(fetch_list=[y, layer.weight_g])]
        [[[7.0]], [5.0]]
    """
    WeightNorm(layer, name, dim)
    return layer


@export("nn.utils.remove_weight_norm", "nn.remove_weight_norm")
def remove_weight_norm(layer: Layer, name: str = "weight") -> Layer:
    """Takes :func:`weight_norm` off: the layer has its parameter again, with the value that direction and length give.

    Programs that the layer was called in stay as they are.

    Args:
        layer: A layer with a normalised weight.
        name: The parameter's name.

    Returns:
        The layer.

    Raises:
        NotFoundError: If the parameter is not normalised.

    Example:
        >>> layer = paddle.nn.utils.weight_norm(paddle.nn.Linear(2, 1))
        >>> [name for name, _ in paddle.nn.utils.remove_weight_norm(layer).named_parameters()]
        ['bias', 'weight']
    """
    check_type(layer, Layer, "layer", "remove_weight_norm")
    note_object(layer)
    for hook in layer._forward_pre_hooks:
        if isinstance(hook, WeightNorm) and hook.name == name:
            hook.remove(layer)
            return layer
    raise NotFoundError(
        f"weight_norm of '{name}' not found in {type(layer).__name__}",
        expected="a parameter that nn.utils.weight_norm was called for",
        received=repr(name),
        fix="pass the layer and the name that weight_norm was given",
        op="remove_weight_norm",
    )


# ------------------------------------------------------------------------------------------------- largest singular value
class _UnitVector(Normal):
    """Starts a vector in a random direction, with length 1."""

    def __call__(self, var: Variable, block: Any = None) -> Any:
        super().__call__(var, block)
        with program_guard(block.program, block.program):
            start = block.var(var.name)
            return emit("elementwise_div", {"X": start, "Y": lengths_of(start, None)}, outputs={"Out": start})


class SpectralNormHook(_WeightHook):
    """What :func:`spectral_norm` registers."""

    def __init__(self, layer: Layer, name: str, power_iters: int, eps: float, dim: int | None) -> None:
        super().__init__(layer, name, "spectral_norm")
        if dim is None:
            dim = int(isinstance(layer, Conv1DTranspose | Conv2DTranspose | Conv3DTranspose | Linear))
        self.dim = check_axis(dim, self.weight, "dim", self.function)
        self.power_iters = check_int(power_iters, "n_power_iterations", self.function, 1)
        self.eps = check_number(eps, "eps", self.function)
        start = ParamAttr(initializer=_UnitVector(0.0, 1.0), trainable=False)
        vectors = [
            layer.create_parameter((size,), start, self.weight.dtype)
            for size in spectral_sizes(self.weight.shape, self.dim)
        ]
        del layer._parameters[name]
        layer.add_parameter(f"{name}_orig", self.weight)
        for part, vector in zip("uv", vectors, strict=True):
            layer.register_buffer(f"{name}_{part}", vector)
        # Not what a call computes, which would be one more iteration in each run.
        self.register(layer, emit("assign", {"X": self.weight}))

    def compute(self, layer: Layer) -> Variable:
        u, v = getattr(layer, f"{self.name}_u"), getattr(layer, f"{self.name}_v")
        weight = getattr(layer, f"{self.name}_orig")
        left, right, sigma = power_iterations(
            spectral_matrix(weight, self.dim), u, v, self.power_iters if layer.training else 0, self.eps
        )
        if layer.training:
            for vector, found in ((u, left), (v, right)):
                emit("assign", {"X": found}, outputs={"Out": vector})
        return emit("elementwise_div", {"X": weight, "Y": sigma})  # type: ignore[no-any-return]


@export("nn.utils.spectral_norm", "nn.spectral_norm")
def spectral_norm(
    layer: Layer, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Layer:
    """Makes a layer divide a weight by its largest singular value, as power iterations find it (Miyato et al., 2018).

    The layer has the parameter ``<name>_orig`` in the place of the weight, and the buffers ``<name>_u`` and ``<name>_v``, unit
    vectors that start at random. Each run of a program that the layer was called in while ``training`` goes on with the iterations.

    Args:
        layer: A layer, before it is called.
        name: One of its parameters, of rank 2 or more.
        n_power_iterations: Iterations in each run.
        eps: Added to norms.
        dim: The axis of rows; 1 for ``Linear`` and transposed convolutions, else 0, if ``None``.

    Returns:
        The layer.

    Raises:
        NotFoundError: If the layer has no such parameter.
        ProgramError: If the parameter has a hook of this kind already.

    Example:
        >>> start = paddle.nn.initializer.Assign([[3.0, 0.0], [0.0, 6.0]])
        >>> linear = paddle.nn.Linear(2, 2, weight_attr=start, bias_attr=False)
        >>> layer = paddle.nn.utils.spectral_norm(linear, n_power_iterations=20)
        >>> y = layer(paddle.to_tensor([[1.0, 1.0]]))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([[0.5, 1. ]], dtype=float32)
    """
    SpectralNormHook(layer, name, n_power_iterations, eps, dim)
    return layer
