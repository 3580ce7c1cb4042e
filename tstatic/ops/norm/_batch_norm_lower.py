"""Batch normalisation in torch, with Paddle's running statistics."""

from __future__ import annotations

from typing import Any

from tstatic.ops._low import torch_wide
from tstatic.ops.conv._sliding import is_last
from tstatic.ops.norm._norm import uses_running_statistics


def lower_batch_norm(
    torch: Any,
    x: Any,
    scale: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    momentum_tensor: Any,
    **attrs: Any,
) -> Any:
    """Torch lowering of ``batch_norm``."""
    last, epsilon = is_last(attrs["data_layout"]) and x.dim() > 2, attrs["epsilon"]
    source = torch_wide(x.movedim(-1, 1) if last else x)
    wide = [torch_wide(t) for t in (scale, bias, mean, variance)]
    scale_, bias_, mean_, variance_ = wide
    if uses_running_statistics(attrs) or x.numel() == 0:
        y = (
            torch.batch_norm(source, scale_, bias_, mean_, variance_, False, 0.0, epsilon, False)
            if x.numel()
            else source
        )
        result = mean_, variance_, mean_.to(source.dtype), torch.rsqrt(variance_ + epsilon).to(source.dtype)
    else:
        y = torch.batch_norm(source, scale_, bias_, None, None, True, 0.0, epsilon, False)
        axes = [0, *range(2, source.dim())]
        spread, center = torch.var_mean(source, axes, correction=0)
        keep = attrs["momentum"] if momentum_tensor is None else torch_wide(momentum_tensor).reshape(())
        # Paddle's momentum is the weight of the old value, and its running variance is the biased one.
        result = (
            keep * mean_ + (1 - keep) * center,
            keep * variance_ + (1 - keep) * spread,
            center,
            torch.rsqrt(spread + epsilon),
        )
    y = (y.movedim(1, -1) if last else y).to(x.dtype)
    return y, result[0].to(mean.dtype), result[1].to(variance.dtype), result[2], result[3], None


def lower_batch_norm_grad(
    torch: Any,
    x: Any,
    scale: Any,
    bias: Any,
    saved_mean: Any,
    saved_inverse: Any,
    dy: Any,
    **attrs: Any,
) -> Any:
    """Torch lowering of ``batch_norm_grad``."""
    last = is_last(attrs["data_layout"]) and x.dim() > 2
    source, gradient = (torch_wide(t.movedim(-1, 1) if last else t) for t in (x, dy))
    axes = [0, *range(2, source.dim())]
    wide = (1, -1, *[1] * (source.dim() - 2))
    hat = (source - saved_mean.reshape(wide)) * saved_inverse.reshape(wide)
    dbias, dscale = gradient.sum(axes), (gradient * hat).sum(axes)
    factor = saved_inverse if scale is None else saved_inverse * torch_wide(scale)
    dx = gradient
    if not uses_running_statistics(attrs):
        count = max(1, source.numel() // max(1, source.shape[1]))
        dx = gradient - dbias.reshape(wide) / count - hat * dscale.reshape(wide) / count
    dx = dx * factor.reshape(wide)
    return (
        (dx.movedim(1, -1) if last else dx).to(x.dtype),
        None if scale is None else dscale.to(scale.dtype),
        None if bias is None else dbias.to(bias.dtype),
    )
