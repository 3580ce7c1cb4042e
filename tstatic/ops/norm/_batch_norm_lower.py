"""Batch normalisation in torch, with Paddle's running statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tstatic.ops.base.low import torch_wide
from tstatic.ops.base.norm import running_factor, uses_running_statistics
from tstatic.ops.base.sliding import is_last


def lower_batch_norm(
    torch: Any,
    x: Any,
    scale: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    momentum_tensor: Any,
    *,
    out: Any = None,
    **attrs: Any,
) -> Any:
    """Torch lowering of ``batch_norm``."""
    if out is not None and _is_direct(x, (scale, bias, mean, variance), momentum_tensor, attrs):
        return _write_batch_norm(torch, x, scale, bias, mean, variance, out, **attrs)
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
        # Without running statistics: torch updates them by the unbiased variance and by its own momentum.
        y = torch.batch_norm(source, scale_, bias_, None, None, True, 0.0, epsilon, False)
        axes = [0, *range(2, source.dim())]
        spread, center = torch.var_mean(source, axes, correction=0)
        keep = attrs["momentum"] if momentum_tensor is None else torch_wide(momentum_tensor).reshape(())
        factor = running_factor(source.numel() // max(1, source.shape[1]), attrs)
        # Paddle's momentum is the weight of the old value, and its running variance is the biased one.
        result = (
            keep * mean_ + (1 - keep) * center,
            # `1 - keep` last, as in the expression: its product with the factor may overflow.
            keep * variance_ + (1 - keep) * (factor * spread),
            center,
            torch.rsqrt(spread + epsilon),
        )
    y = (y.movedim(1, -1) if last else y).to(x.dtype)
    found = y, result[0].to(mean.dtype), result[1].to(variance.dtype), result[2], result[3], None
    if out is None:
        return found
    for place, value in zip(out, found, strict=True):
        if place is not None and value is not None:
            place.copy_(value)
    return out


def _is_direct(x: Any, parameters: Sequence[Any], momentum_tensor: Any, attrs: Mapping[str, Any]) -> bool:
    """Whether torch's own function does what Paddle's does, but for the size of the running variance."""
    channels = x.shape[1] if x.dim() > 1 and not is_last(attrs["data_layout"]) else x.shape[-1]
    count = x.numel() // max(1, channels)  # 0 without channels, which torch's own function refuses
    kinds = {t.dtype for t in parameters if t is not None}
    fit = kinds == {x.dtype} or (x.itemsize == 2 and all(k.itemsize == 4 for k in kinds))
    # Of a single value per channel torch's running variance would be divided by count - 1, which is 0.
    return (
        fit and x.itemsize in (2, 4, 8) and all(k.itemsize > 2 for k in kinds) and count > 1 and momentum_tensor is None
    )


def _write_batch_norm(
    torch: Any, x: Any, scale: Any, bias: Any, mean: Any, variance: Any, out: Any, *, epsilon: float, momentum: float,
    data_layout: str, **attrs: Any,
) -> Any:  # fmt: skip
    y, new_mean, new_variance, saved_mean, saved_inverse, _ = out
    last = is_last(data_layout) and x.dim() > 2
    source, place = (t.movedim(-1, 1) if last else t for t in (x, y))
    if not (source.is_contiguous() or place.stride() == source.stride()):
        source = source.contiguous()
    count = x.numel() // source.shape[1]
    training = not uses_running_statistics({**attrs, "epsilon": epsilon, "momentum": momentum})
    for old, new in ((mean, new_mean), (variance, new_variance)):
        # In place the new statistics are the old ones already; torch's function updates whatever it is given.
        if new is not None and new.data_ptr() != old.data_ptr():
            new.copy_(old)
    if not training:
        # For inference torch fills neither saved statistic, so both are written below.
        torch.ops.aten.native_batch_norm.out(
            source, scale, bias, mean, variance, False, 0.0, epsilon, out=place, save_mean=_nothing(torch, mean),
            save_invstd=_nothing(torch, mean),
        )  # fmt: skip
        if saved_mean is not None:
            saved_mean.copy_(mean)
        if saved_inverse is not None:
            torch.add(variance, epsilon, out=saved_inverse).rsqrt_()
        return out
    running = new_mean is not None and new_variance is not None
    biased = running and not attrs["unbiased_variance"]
    if biased:
        # Paddle's running variance is that of the batch, torch's the estimate of a larger set: count / (count - 1) times it.
        new_variance.mul_(count / (count - 1))
    torch.ops.aten.native_batch_norm.out(
        source, scale, bias, new_mean if running else None, new_variance if running else None, True, 1 - momentum, epsilon,
        out=place, save_mean=_nothing(torch, mean) if saved_mean is None else saved_mean,
        save_invstd=_nothing(torch, mean) if saved_inverse is None else saved_inverse,
    )  # fmt: skip
    # The scaled old value is weighted by torch, so one factor brings both summands back.
    if biased:
        new_variance.mul_((count - 1) / count)
    return out


def _nothing(torch: Any, like: Any) -> Any:
    """A place for a result that nobody reads."""
    return torch.empty_like(like)


def lower_batch_norm_grad(
    torch: Any,
    x: Any,
    scale: Any,
    bias: Any,
    saved_mean: Any,
    saved_inverse: Any,
    dy: Any,
    wanted: Sequence[bool] = (True, True, True),
    **attrs: Any,
) -> Any:
    """Torch lowering of ``batch_norm_grad``."""
    last = is_last(attrs["data_layout"]) and x.dim() > 2
    source, gradient = (t.movedim(-1, 1) if last else t for t in (x, dy))
    # torch's backward takes scale and statistics of one type; beside a 16-bit scale the formula below does it.
    if not uses_running_statistics(attrs) and x.numel() and (scale is None or scale.dtype == saved_mean.dtype):
        asked = tuple(w and t is not None for w, t in zip(wanted, (x, scale, bias), strict=True))
        dx, dscale, dbias = torch.ops.aten.native_batch_norm_backward(
            gradient, source, scale, None, None, saved_mean, saved_inverse, True, attrs["epsilon"], asked
        )
        dx = dx.movedim(1, -1) if last and dx is not None else dx
        return (
            dx,
            None if dscale is None or not asked[1] else dscale.to(scale.dtype),
            None if dbias is None or not asked[2] else dbias.to(bias.dtype),
        )
    source, gradient = torch_wide(source), torch_wide(gradient)
    axes = [0, *range(2, source.dim())]
    wide = (1, -1, *[1] * (source.dim() - 2))
    hat = (source - saved_mean.reshape(wide)) * saved_inverse.reshape(wide)
    dbias, dscale = gradient.sum(axes), (gradient * hat).sum(axes)
    factor = saved_inverse if scale is None else saved_inverse * torch_wide(scale)
    dx = gradient
    # With running statistics the mean and the deviation are constants: only the factor is left.
    if not uses_running_statistics(attrs):
        count = max(1, source.numel() // max(1, source.shape[1]))
        dx = gradient - dbias.reshape(wide) / count - hat * dscale.reshape(wide) / count
    dx = dx * factor.reshape(wide)
    return (
        (dx.movedim(1, -1) if last else dx).to(x.dtype),
        None if scale is None else dscale.to(scale.dtype),
        None if bias is None else dbias.to(bias.dtype),
    )
