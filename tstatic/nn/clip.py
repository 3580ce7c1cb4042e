"""Gradient clipping: by value, by norm, and by the norm of all gradients together."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any

from tstatic.errors import ProgramError
from tstatic.ir.attrs import GRAD
from tstatic.ir.build import emit
from tstatic.ir.checks import check_number, check_type
from tstatic.ir.declare import default_main_program
from tstatic.ir.export import notes_signatures, respell
from tstatic.ir.opdef import export
from tstatic.ir.operator import OpRole
from tstatic.ir.program import Block, Parameter, Program, Variable
from tstatic.no_effect import no_effect

Pair = tuple[Variable, Variable | None]


def _needs_clip(param: Variable) -> bool:
    return not isinstance(param, Parameter) or param.need_clip


class ClipGradBase:
    """Base class: ``clip(params_grads)`` emits the ops and returns the pairs with clipped gradients.

    As in Paddle, clips by value and by norm write each clipped gradient to a variable of its own, so that ``w@GRAD`` fetches the
    gradient before the clip. The clip by the global norm writes to ``w@GRAD`` itself.

    Attributes:
        need_clip: Says of a parameter whether its gradient is clipped, beside the parameter's own ``need_clip``.

    Example:
        >>> clip = paddle.nn.ClipGradByNorm(1.0)
        >>> grad = paddle.to_tensor([3.0, 4.0])
        >>> pairs = clip([(paddle.create_parameter([2], "float32"), grad)])
        >>> isinstance(clip, fluid.clip.GradientClipBase)
        True
        >>> static.Executor().run(fetch_list=[pairs[0][1]])[0]
        array([0.6, 0.8], dtype=float32)
    """

    need_clip: Callable[[Variable], bool] | None = None

    def __call__(self, params_grads: Sequence[Pair]) -> list[Pair]:
        """Emits the clipping ops; returns the pairs that have a gradient, with the clipped one where there is one."""
        chosen = self.need_clip or (lambda param: True)
        grads = [g for p, g in params_grads if g is not None and _needs_clip(p) and chosen(p)]
        clipped = dict(zip((g.name for g in grads), self._clip(grads), strict=True)) if grads else {}
        return [(p, clipped.get(g.name, g)) for p, g in params_grads if g is not None]

    def _clip(self, grads: Sequence[Variable]) -> Sequence[Variable]:
        """Emits the ops; returns the clipped gradients in the order of ``grads``."""
        raise NotImplementedError


@export("nn.ClipGradByValue", "fluid.clip.GradientClipByValue", "fluid.clip.ClipGradByValue")
class ClipGradByValue(ClipGradBase):
    """Cuts every element to ``[min, max]``; ``min`` defaults to ``-max``.

    Args:
        max: Upper limit; positive when ``min`` is left out.
        min: Lower limit.
        need_clip: Says of a parameter whether its gradient is clipped; all are if ``None``.

    Raises:
        ProgramError: If ``min`` exceeds ``max``, or ``max`` is not positive without ``min``.

    Example:
        >>> clip = paddle.nn.ClipGradByValue(max=3.5)
        >>> w = paddle.create_parameter([2], "float32", default_initializer=paddle.nn.initializer.Constant(0.0))
        >>> loss = paddle.sum(w * paddle.to_tensor([3.0, 4.0]))
        >>> _ = paddle.optimizer.SGD(learning_rate=1.0, grad_clip=clip).minimize(loss)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[w])[0]
        array([-3. , -3.5], dtype=float32)
    """

    def __init__(
        self, max: float, min: float | None = None, need_clip: Callable[[Variable], bool] | None = None
    ) -> None:
        self.need_clip = need_clip
        self.max = float(max)
        self.min = -check_number(max, "max", type(self).__name__, above=0, finite=False) if min is None else float(min)
        if self.min > self.max:
            raise ProgramError(
                "ClipGradByValue needs min <= max",
                expected="min <= max",
                received=f"min={self.min}, max={self.max}",
                fix=f"ClipGradByValue(max={self.min}, min={self.max})",
                op="clip",
            )

    def _clip(self, grads: Sequence[Variable]) -> Sequence[Variable]:
        return [emit("clip", {"X": g}, {"min": self.min, "max": self.max}) for g in grads]

    def __repr__(self) -> str:
        return f"Gradient Clip By Value, min = {self.min}, max = {self.max}"


@export("nn.ClipGradByNorm", "fluid.clip.GradientClipByNorm", "fluid.clip.ClipGradByNorm")
class ClipGradByNorm(ClipGradBase):
    """Scales each gradient so that its own L2 norm is at most ``clip_norm``.

    Args:
        clip_norm: The largest norm.
        need_clip: Says of a parameter whether its gradient is clipped; all are if ``None``.

    Example:
        >>> clip = paddle.nn.ClipGradByNorm(clip_norm=1.0)
        >>> w = paddle.create_parameter([2], "float32", default_initializer=paddle.nn.initializer.Constant(0.0))
        >>> loss = paddle.sum(w * paddle.to_tensor([3.0, 4.0]))
        >>> _ = paddle.optimizer.SGD(learning_rate=1.0, grad_clip=clip).minimize(loss)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[w])[0]
        array([-0.6, -0.8], dtype=float32)
    """

    def __init__(self, clip_norm: float, need_clip: Callable[[Variable], bool] | None = None) -> None:
        self.need_clip = need_clip
        self.clip_norm = check_number(clip_norm, "clip_norm", type(self).__name__, above=0, finite=False)

    def _clip(self, grads: Sequence[Variable]) -> Sequence[Variable]:
        return [emit("clip_by_norm", {"X": g}, {"max_norm": self.clip_norm}) for g in grads]

    def __repr__(self) -> str:
        return f"Gradient Clip By Norm, clip_norm={self.clip_norm}"


@export("nn.ClipGradByGlobalNorm", "fluid.clip.ClipGradByGlobalNorm")
@respell(
    "fluid.clip.GradientClipByGlobalNorm",
    takes="clip_norm, group_name='default_group', need_clip=None, auto_skip_clip=False",
)
@no_effect(auto_skip_clip="small gradients keep their bits in any case, because the factor is exactly 1")
class ClipGradByGlobalNorm(ClipGradBase):
    """Scales all gradients by ``clip_norm / max(clip_norm, norm of all of them)``.

    Args:
        clip_norm: The largest norm that is left as it is.
        group_name: Parameters given to :func:`set_gradient_clip` with clips of one name share one norm.
        need_clip: Says of a parameter whether its gradient is clipped; all are if ``None``.

    Example:
        >>> clip = paddle.nn.ClipGradByGlobalNorm(clip_norm=1.0)
        >>> w = paddle.create_parameter([2], "float32", default_initializer=paddle.nn.initializer.Constant(0.0))
        >>> loss = paddle.sum(w * paddle.to_tensor([3.0, 4.0]))
        >>> _ = paddle.optimizer.SGD(learning_rate=1.0, grad_clip=clip).minimize(loss)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[w])[0]
        array([-0.6, -0.8], dtype=float32)
    """

    def __init__(
        self,
        clip_norm: float,
        group_name: str = "default_group",
        auto_skip_clip: bool = False,
        need_clip: Callable[[Variable], bool] | None = None,
    ) -> None:
        self.need_clip = need_clip
        self.clip_norm = check_number(clip_norm, "clip_norm", type(self).__name__, above=0, finite=False)
        self.group_name = group_name
        self.auto_skip_clip = auto_skip_clip

    def _clip(self, grads: Sequence[Variable]) -> Sequence[Variable]:
        squares = []
        for g in grads:
            wide = emit("cast", {"X": g}, {"in_dtype": g.dtype, "out_dtype": "float32"}) if g.dtype.is_low else g
            squares.append(emit("squared_l2_norm", {"X": wide}))
        total = emit("sum", {"X": squares})
        norm = emit("sqrt", {"X": total})
        limit = emit("fill_constant", {}, {"shape": norm.shape, "dtype": norm.dtype, "value": self.clip_norm})
        ratio = emit("elementwise_div", {"X": limit, "Y": emit("elementwise_max", {"X": limit, "Y": norm})})
        for g in grads:
            factor = ratio
            if g.dtype is not ratio.dtype:
                factor = emit("cast", {"X": ratio}, {"in_dtype": ratio.dtype, "out_dtype": g.dtype})
            if not g.shape:
                # A factor of shape [1] would make the product of a single number [1], too.
                factor = emit("reshape2", {"X": factor}, {"shape": ()})
            emit("elementwise_mul", {"X": g, "Y": factor}, outputs={"Out": g})
        return grads

    def __repr__(self) -> str:
        return f"Gradient Clip By GlobalNorm, global_norm={self.clip_norm}"


@export("fluid.clip.ErrorClipByValue")
@notes_signatures()
class ErrorClipByValue:
    """Cuts the gradient of one variable to ``[min, max]`` on its way back; ``Variable._set_error_clip`` takes it (1.x).

    Args:
        max: Upper limit.
        min: Lower limit; ``-max`` if ``None``.

    Raises:
        ProgramError: If a limit is not a number, or ``min`` exceeds ``max``.

    Example:
        >>> w = paddle.create_parameter([1], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
        >>> y = w * 5.0
        >>> y._set_error_clip(fluid.clip.ErrorClipByValue(max=0.5))
        >>> _ = fluid.optimizer.SGD(learning_rate=1.0).minimize(paddle.sum(y))
        >>> _ = static.Executor().run(static.default_startup_program())
        >>> static.Executor().run(fetch_list=[w])[0]
        array([-1.5], dtype=float32)
    """

    def __init__(self, max: float, min: float | None = None) -> None:
        self.max = check_number(max, "max", "ErrorClipByValue")
        self.min = -self.max if min is None else check_number(min, "min", "ErrorClipByValue")
        if self.min > self.max:
            raise ProgramError(
                "ErrorClipByValue needs min <= max",
                expected="min <= max",
                received=f"min={self.min}, max={self.max}",
                fix="pass the smaller number as min=, or a positive max= alone",
                op="clip",
            )

    def __repr__(self) -> str:
        return f"ByValue, min={self.min}, max={self.max}"


@export("Variable._set_error_clip")
def set_error_clip(self: Variable, error_clip: ErrorClipByValue | None) -> None:
    """Says how the gradient of this variable is clipped where an optimizer appends the backward ops (1.x).

    Args:
        error_clip: An ``ErrorClipByValue``; ``None`` takes it back.

    Raises:
        ProgramTypeError: If it is something else.
    """
    expected = "fluid.clip.ErrorClipByValue(max=1.0)"
    check_type(error_clip, (ErrorClipByValue, NoneType), "error_clip", "_set_error_clip", expected=expected)
    clips = self.block.program.error_clips
    if error_clip is None:
        clips.pop(self.name, None)
    else:
        clips[self.name] = {"min": error_clip.min, "max": error_clip.max}


@export("fluid.clip.error_clip_callback")
def error_clip_callback(block: Block, context: Mapping[str, Any]) -> None:
    """Clips the gradients that a backward op wrote, of variables with an error clip; a callback of ``append_backward`` (1.x).

    Optimizers pass it themselves.

    Args:
        block: Where the op is.
        context: ``{"op": the op}``.
    """
    op, clips = context["op"], block.program.error_clips
    for name in op.output_arg_names:
        limits = clips.get(name.removesuffix(GRAD)) if name.endswith(GRAD) else None
        if limits is not None:
            at = next(i for i, one in enumerate(block.ops) if one is op)
            attrs = {**limits, "op_role": OpRole.Backward}
            block._insert_op(at + 1, type="clip", inputs={"X": [name]}, outputs={"Out": [name]}, attrs=attrs)


def check_clip(grad_clip: object, argument: str = "grad_clip") -> None:
    """Raises ProgramTypeError unless ``grad_clip`` is ``None`` or a clip object."""
    expected = "nn.ClipGradByValue, ClipGradByNorm or ClipGradByGlobalNorm, as in nn.ClipGradByGlobalNorm(1.0)"
    check_type(grad_clip, (ClipGradBase, NoneType), argument, "optimizer", expected=expected)


@export("fluid.clip.set_gradient_clip")
def set_gradient_clip(
    clip: ClipGradBase, param_list: Sequence[Variable | str] | None = None, program: Program | None = None
) -> None:
    """Clips the gradients of some parameters (1.x), unless the optimizer has its own ``grad_clip``.

    Call it after the network is built and before ``minimize``. A later call overrides an earlier one for the same
    parameters; gradients clipped by the global norm share one norm per ``group_name``.

    Args:
        clip: How; ``None`` takes back what an earlier call set.
        param_list: Parameters or their names; all that the program has by now if left out.
        program: Where they are; the default main program if left out.

    Raises:
        ProgramTypeError: If ``clip`` is not a clip object, or an entry of ``param_list`` is not a parameter.
        NotFoundError: If the program has no variable of a given name. No parameter is changed then.

    Warns:
        UserWarning: If the call comes too early or too late to have an effect.

    Example:
        >>> zero = paddle.nn.initializer.Constant(0.0)
        >>> w = paddle.create_parameter([2], "float32", name="w", default_initializer=zero)
        >>> fluid.clip.set_gradient_clip(fluid.clip.GradientClipByNorm(1.0))
        >>> _ = fluid.optimizer.SGD(learning_rate=1.0).minimize(paddle.sum(w * paddle.to_tensor([3.0, 4.0])))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> _ = exe.run()
        >>> np.array(static.global_scope().find_var("w").get_tensor())
        array([-0.6, -0.8], dtype=float32)
    """
    check_clip(clip)
    program = program or default_main_program()
    chosen = program.all_parameters() if param_list is None else _parameters(param_list, program)
    for param in chosen:
        param.gradient_clip_attr = clip
    if not chosen:
        warnings.warn("set_gradient_clip found no parameter; call it after the network is built", stacklevel=2)
        return
    names = {param.name for param in chosen}
    if any(not names.isdisjoint(op.output("ParamOut")) for op in program.global_block().ops):
        warnings.warn(
            "minimize came before set_gradient_clip, which does not change updates that are built already", stacklevel=2
        )


def _parameters(listed: Sequence[Variable | str], program: Program) -> list[Parameter]:
    """Returns the parameters of a ``param_list``.

    Raises:
        ProgramTypeError: If an entry is not a parameter.
        NotFoundError: If the program has no such variable.
    """
    found: list[Parameter] = []
    for entry in [listed] if isinstance(listed, str | Variable) else listed:
        var = program.global_block().var(entry) if isinstance(entry, str) else entry
        expected = "parameters of the program, or their names"
        param = check_type(var, Parameter, "param_list", "set_gradient_clip", expected=expected)
        found.append(param)
    return found


@export("fluid.clip.append_gradient_clip_ops")
def append_gradient_clip_ops(param_grads: Sequence[Pair]) -> list[Pair]:
    """Emits the ops of the clips set by :func:`set_gradient_clip` (1.x); returns the pairs with clipped gradients.

    Raises:
        ProgramError: If clips of one ``group_name`` have different ``clip_norm``.
    """
    groups: dict[object, tuple[Any, list[Pair]]] = {}
    for p, g in param_grads:
        clip = p.gradient_clip_attr if isinstance(p, Parameter) and g is not None else None
        if clip is None:
            continue
        key = ("group", clip.group_name) if isinstance(clip, ClipGradByGlobalNorm) else id(clip)
        first, pairs = groups.setdefault(key, (clip, []))
        if first is not clip and first.clip_norm != clip.clip_norm:
            raise ProgramError(
                "All parameters' 'clip_norm' of a same group should be the same",
                expected=f"clip_norm={first.clip_norm} for all of group {clip.group_name!r}",
                received=f"clip_norm={clip.clip_norm} for {p.name!r}",
                fix="give each clip its own group_name, or both the same clip_norm",
                op="clip",
                var=p.name,
            )
        pairs.append((p, g))
    clipped = {p.name: g for clip, pairs in groups.values() for p, g in clip(pairs)}
    return [(p, clipped.get(p.name, g)) for p, g in param_grads]
