# Made from the registry of public names by `make api`.
from tstatic.nn.clip import ClipGradByGlobalNorm as ClipGradByGlobalNorm
from tstatic.nn.clip import ClipGradByGlobalNorm as GradientClipByGlobalNorm
from tstatic.nn.clip import ClipGradByNorm as ClipGradByNorm
from tstatic.nn.clip import ClipGradByNorm as GradientClipByNorm
from tstatic.nn.clip import ClipGradByValue as ClipGradByValue
from tstatic.nn.clip import ClipGradByValue as GradientClipByValue
from tstatic.nn.clip import append_gradient_clip_ops as append_gradient_clip_ops
from tstatic.nn.clip import set_gradient_clip as set_gradient_clip

__all__ = [
    "ClipGradByGlobalNorm",
    "ClipGradByNorm",
    "ClipGradByValue",
    "GradientClipByGlobalNorm",
    "GradientClipByNorm",
    "GradientClipByValue",
    "append_gradient_clip_ops",
    "set_gradient_clip",
]
