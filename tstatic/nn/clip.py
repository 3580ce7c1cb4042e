"""Gradient clipping: by value, by norm, and by the norm of all gradients together."""

from __future__ import annotations

from collections.abc import Sequence

from tstatic.errors import ProgramError, ProgramTypeError
from tstatic.ir.build import emit
from tstatic.ir.opdef import spelled
from tstatic.ir.program import Parameter, Program, Variable, default_main_program
from tstatic.ir.where import show, user_line

Pair = tuple[Variable, Variable | None]


def _needs_clip(param: Variable) -> bool:
    return not isinstance(param, Parameter) or param.need_clip


def _positive(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ProgramError(
            f"'{name}' of gradient clipping must be positive",
            expected="a float > 0",
            received=repr(value),
            fix=f"pass for example {name}=1.0",
            op="clip",
            where=show(user_line()),
        )
    return float(value)


class ClipGradBase:
    """Base class; ``clip(params_grads)`` emits the ops and returns the pairs with clipped gradients."""

    def __call__(self, params_grads: Sequence[Pair]) -> list[Pair]:
        """Emits the clipping ops; the clipped value is written back to the gradient's own name."""
        raise NotImplementedError


@spelled("nn.ClipGradByValue", "fluid.clip.GradientClipByValue", "fluid.clip.ClipGradByValue")
class ClipGradByValue(ClipGradBase):
    """Cuts every element to ``[min, max]``; ``min`` defaults to ``-max``."""

    def __init__(self, max: float, min: float | None = None) -> None:
        self.max = float(max)
        self.min = -_positive("max", max) if min is None else float(min)
        if self.min > self.max:
            raise ProgramError(
                "ClipGradByValue needs min <= max",
                expected="min <= max",
                received=f"min={self.min}, max={self.max}",
                fix="swap them",
                op="clip",
                where=show(user_line()),
            )

    def __call__(self, params_grads: Sequence[Pair]) -> list[Pair]:
        for p, g in params_grads:
            if g is not None and _needs_clip(p):
                emit("clip", {"X": g}, {"min": self.min, "max": self.max}, outputs={"Out": g})
        return list(params_grads)

    def __repr__(self) -> str:
        return f"Gradient Clip By Value, min = {self.min}, max = {self.max}"


@spelled("nn.ClipGradByNorm", "fluid.clip.GradientClipByNorm", "fluid.clip.ClipGradByNorm")
class ClipGradByNorm(ClipGradBase):
    """Scales each gradient so that its own L2 norm is at most ``clip_norm``."""

    def __init__(self, clip_norm: float) -> None:
        self.clip_norm = _positive("clip_norm", clip_norm)

    def __call__(self, params_grads: Sequence[Pair]) -> list[Pair]:
        for p, g in params_grads:
            if g is not None and _needs_clip(p):
                emit("clip_by_norm", {"X": g}, {"max_norm": self.clip_norm}, outputs={"Out": g})
        return list(params_grads)

    def __repr__(self) -> str:
        return f"Gradient Clip By Norm, clip_norm={self.clip_norm}"


@spelled("nn.ClipGradByGlobalNorm", "fluid.clip.GradientClipByGlobalNorm", "fluid.clip.ClipGradByGlobalNorm")
class ClipGradByGlobalNorm(ClipGradBase):
    """Scales all gradients by ``clip_norm / max(clip_norm, norm of all of them)``."""

    def __init__(self, clip_norm: float, group_name: str = "default_group", auto_skip_clip: bool = False) -> None:
        self.clip_norm = _positive("clip_norm", clip_norm)
        self.group_name = group_name
        self.auto_skip_clip = auto_skip_clip

    def __call__(self, params_grads: Sequence[Pair]) -> list[Pair]:
        taken = [(p, g) for p, g in params_grads if g is not None and _needs_clip(p)]
        if not taken:
            return list(params_grads)
        squares = []
        for _, g in taken:
            wide = emit("cast", {"X": g}, {"in_dtype": g.dtype, "out_dtype": "float32"}) if g.dtype.is_low else g
            squares.append(emit("squared_l2_norm", {"X": wide}))
        total = emit("sum", {"X": squares})
        norm = emit("sqrt", {"X": total})
        limit = emit("fill_constant", {}, {"shape": norm.shape, "dtype": norm.dtype, "value": self.clip_norm})
        ratio = emit("elementwise_div", {"X": limit, "Y": emit("elementwise_max", {"X": limit, "Y": norm})})
        for _, g in taken:
            factor = ratio
            if g.dtype is not ratio.dtype:
                factor = emit("cast", {"X": ratio}, {"in_dtype": ratio.dtype, "out_dtype": g.dtype})
            if not g.shape:
                # A factor of shape [1] would make the product of a single number [1], too.
                factor = emit("reshape2", {"X": factor}, {"shape": ()})
            emit("elementwise_mul", {"X": g, "Y": factor}, outputs={"Out": g})
        return list(params_grads)

    def __repr__(self) -> str:
        return f"Gradient Clip By GlobalNorm, global_norm={self.clip_norm}"


def check_clip(grad_clip: object) -> None:
    """Raises ProgramTypeError unless ``grad_clip`` is ``None`` or a clip object."""
    if grad_clip is not None and not isinstance(grad_clip, ClipGradBase):
        raise ProgramTypeError(
            "'grad_clip' should be an instance of GradientClipBase's derived class",
            expected="nn.ClipGradByValue, ClipGradByNorm or ClipGradByGlobalNorm",
            received=f"{grad_clip!r} of type {type(grad_clip).__name__}",
            fix="pass for example nn.ClipGradByGlobalNorm(1.0)",
            op="optimizer",
            where=show(user_line()),
        )


@spelled("fluid.clip.set_gradient_clip")
def set_gradient_clip(clip: ClipGradBase, param_list: object = None, program: Program | None = None) -> None:
    """1.x spelling: clips the gradients of a program's parameters whatever the optimizer says."""
    check_clip(clip)
    (program or default_main_program()).__dict__["_gradient_clip"] = clip


@spelled("fluid.clip.append_gradient_clip_ops")
def append_gradient_clip_ops(params_grads: Sequence[Pair]) -> list[Pair]:
    """1.x spelling: emits the ops of the clip set by :func:`set_gradient_clip`."""
    clip = program_clip(default_main_program())
    return clip(params_grads) if clip is not None else list(params_grads)


def program_clip(program: Program) -> ClipGradBase | None:
    """What :func:`set_gradient_clip` set on a program."""
    found: ClipGradBase | None = program.__dict__.get("_gradient_clip")
    return found
