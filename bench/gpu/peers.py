"""What torch makes of the rows of first contact: the same results in 64 bits, and the peers that a kernel is timed beside.

Functions take a row's inputs in their order, shaped, and return its outputs in theirs. ``reference`` says what is right; it is
run on 64-bit floats. ``eager`` is what a user of torch would run, with the library's own kernels; torch.compile gets the same,
or ``flat``, for updates, which is faster than what it makes of many tensors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import attention_peers
import torch
import torch.nn.functional as F

aten: Any = torch.ops.aten
EPSILON = 1e-5
BETA1, BETA2, TINY = 0.9, 0.999, 1e-8
RATE, DECAY, MU = 0.01, 0.01, 0.9

Outputs = Sequence[Any]
Call = Callable[[], Any]


def _same(*ins: Any) -> Sequence[Any]:
    return ins


@dataclass(frozen=True)
class Peer:
    """How torch does what a kernel does.

    Attributes:
        reference: Inputs -> outputs; exact when it is given 64-bit floats.
        eager: Prepared inputs -> anything; by default ``reference``.
        prepare: Inputs -> those of ``eager``: what a step of torch would have kept from before.
        flat: Prepared inputs -> inputs of a function on few tensors for torch.compile, and that function.
        grouped: Inputs and outputs are lists, one per role, with an entry for each parameter.
    """

    reference: Callable[..., Outputs]
    eager: Callable[..., Any] | None = None
    prepare: Callable[..., Sequence[Any]] = _same
    flat: Callable[..., tuple[Sequence[Any], Callable[..., Any]]] | None = None
    grouped: bool = False

    def exact(self, variant: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name, in 64 bits."""
        wide = {n: t.double() if t.is_floating_point() else t for n, t in self._given(variant, tensors).items()}
        return self._outputs(variant, wide)

    def rounded(self, variant: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name, computed in the types that the inputs have."""
        return self._outputs(variant, self._given(variant, tensors))

    def _outputs(self, variant: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        with torch.no_grad():
            made = self.reference(*self._arguments(given))
        if not self.grouped:
            return dict(zip(variant["outputs"], made, strict=True))
        names = _roles(variant["outputs"])
        return {
            n: t for role, list_ in zip(names.values(), made, strict=True) for n, t in zip(role, list_, strict=True)
        }

    def _given(self, variant: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
        return {n: tensors[n].view(e["shape"]) for n, e in variant["inputs"].items()}

    def _arguments(self, given: Mapping[str, Any]) -> list[Any]:
        return [[given[n] for n in names] for names in _roles(given).values()] if self.grouped else list(given.values())

    def eager_calls(self, variant: Mapping[str, Any], sets: Sequence[Mapping[str, Any]]) -> list[list[Call]]:
        """Ready calls of the eager peer, one for each set of tensors."""
        function = self.eager or self.reference
        return [[_call(function, self._prepared(variant, tensors))] for tensors in sets]

    def compiled_calls(
        self, device: Any, variant: Mapping[str, Any], sets: Sequence[Mapping[str, Any]]
    ) -> list[list[Call]]:
        """The same through torch.compile."""
        given = [self._prepared(variant, tensors) for tensors in sets]
        function: Callable[..., Any] = self.eager or self.reference
        if self.flat is not None:
            made = [self.flat(*ins) for ins in given]
            given, function = [list(ins) for ins, _ in made], made[0][1]
        compiled = device.compiled(function)
        return [[_call(compiled, ins)] for ins in given]

    def _prepared(self, variant: Mapping[str, Any], tensors: Mapping[str, Any]) -> list[Any]:
        with torch.no_grad():
            return list(self.prepare(*self._arguments(self._given(variant, tensors))))


def _call(function: Callable[..., Any], ins: Sequence[Any]) -> Call:
    def call() -> Any:
        with torch.no_grad():
            return function(*ins)

    return call


def _roles(names: Any) -> dict[str, list[str]]:
    """Names by what is left when the parameter's own name is taken off."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(re.sub(r"^w\d+", "w", name), []).append(name)
    return found


# ---------------------------------------------------------------------------------------------------------- elementwise
def _relu_add(x: Any, y: Any) -> Outputs:
    return (F.relu(x + y),)


def _gelu_add(x: Any, b: Any) -> Outputs:
    return (F.gelu(x + b),)


def _gelu_add_grad(x: Any, b: Any, dy: Any) -> Outputs:
    dx = aten.gelu_backward(dy, x + b)
    return dx, dx.sum(0)


def _chain(x: Any, b: Any) -> Outputs:
    wide = F.gelu(x + b)
    wide = wide.to(torch.promote_types(wide.dtype, torch.float32))
    return ((torch.tanh(wide * 0.5) - torch.exp(-wide.square())).to(x.dtype) * x,)


# ----------------------------------------------------------------------------------------------------------- batch norm
def _norm_peers(channels_last: bool, residual: bool) -> tuple[Peer, Peer]:
    axes = (0, 1, 2) if channels_last else (0, 2, 3)
    shape = (1, 1, 1, -1) if channels_last else (1, -1, 1, 1)

    def seen(x: Any) -> Any:
        """The tensor as torch numbers its axes; the memory stays as it lies."""
        return x.permute(0, 3, 1, 2) if channels_last else x

    def wide(x: Any) -> Any:
        return x.to(torch.promote_types(x.dtype, torch.float32))

    def forward(x: Any, w: Any, b: Any, mean: Any, var: Any, z: Any = None) -> Outputs:
        here = wide(x)
        m = here.mean(axes)
        v = (here - m.view(shape)).square().mean(axes)
        inverse = (v + EPSILON).rsqrt()
        y = (here - m.view(shape)) * (inverse * w).view(shape) + b.view(shape)
        y = y if z is None else y + wide(z)
        return 0.9 * mean + 0.1 * m, 0.9 * var + 0.1 * v, m, inverse, F.relu(y).to(x.dtype)

    def eager(x: Any, w: Any, b: Any, mean: Any, var: Any, z: Any = None) -> Any:
        y = F.batch_norm(x, mean, var, w, b, True, 0.1, EPSILON)
        return F.relu(y if z is None else y + z)

    def prepare(x: Any, w: Any, b: Any, mean: Any, var: Any, z: Any = None) -> Sequence[Any]:
        # The running statistics are updated in place: not those that the kernel reads.
        return (seen(x), w, b, mean.clone(), var.clone(), *(() if z is None else (seen(z),)))

    def through(dz: Any, x: Any, w: Any, mean: Any, inverse: Any) -> Any:
        here, dz = wide(x), wide(dz)
        count = x.numel() // w.numel()
        hat = (here - mean.view(shape)) * inverse.view(shape)
        part = dz.sum(axes).view(shape) + hat * (dz * hat).sum(axes).view(shape)
        return ((w * inverse).view(shape) * (dz - part / count)).to(x.dtype)

    def kept(x: Any, w: Any, b: Any, mean: Any, inverse: Any) -> Any:
        return F.relu((wide(x) - mean.view(shape)) * (inverse * w).view(shape) + b.view(shape)).to(x.dtype)

    def plain_grad(x: Any, w: Any, b: Any, mean: Any, inverse: Any, dy: Any) -> Outputs:
        positive = (wide(x) - mean.view(shape)) * (inverse * w).view(shape) + b.view(shape) > 0
        return (through(torch.where(positive, dy, 0), x, w, mean, inverse),)

    def residual_grad(y: Any, dy: Any, x: Any, w: Any, mean: Any, inverse: Any) -> Outputs:
        dz = torch.where(y > 0, dy, 0)
        return dz, through(dz, x, w, mean, inverse)

    def eager_grad(y: Any, dy: Any, x: Any, w: Any, mean: Any, inverse: Any) -> Any:
        dz = aten.threshold_backward(dy, y, 0)
        return dz, aten.native_batch_norm_backward(
            dz, x, w, None, None, mean, inverse, True, EPSILON, [True, True, True]
        )

    def prepare_plain(x: Any, w: Any, b: Any, mean: Any, inverse: Any, dy: Any) -> Sequence[Any]:
        return seen(kept(x, w, b, mean, inverse)), seen(dy), seen(x), w, mean, inverse

    def prepare_residual(y: Any, dy: Any, x: Any, w: Any, mean: Any, inverse: Any) -> Sequence[Any]:
        return seen(y), seen(dy), seen(x), w, mean, inverse

    backward = (residual_grad, eager_grad, prepare_residual) if residual else (plain_grad, eager_grad, prepare_plain)
    return Peer(forward, eager, prepare), Peer(*backward)


# ----------------------------------------------------------------------------------------------------------------- rows
def _residual_norm(x: Any, z: Any, w: Any, b: Any) -> Outputs:
    h = x + z
    wide = h.to(torch.promote_types(h.dtype, torch.float32))
    mean = wide.mean(1)
    var = (wide - mean[:, None]).square().mean(1)
    y = (wide - mean[:, None]) * (var + EPSILON).rsqrt()[:, None] * w + b
    return h, y.to(x.dtype), mean, var


def _residual_norm_eager(x: Any, z: Any, w: Any, b: Any) -> Any:
    h = x + z
    return h, aten.native_layer_norm(h, [h.shape[1]], w, b, EPSILON)


def _residual_norm_typed(x: Any, z: Any, w: Any, b: Any) -> Sequence[Any]:
    # torch's own kernels want weights of the data's type.
    return x, z, w.to(x.dtype), b.to(x.dtype)


def _residual_norm_grad(h: Any, w: Any, mean: Any, var: Any, dy: Any, dh: Any) -> Outputs:
    wide = h.to(torch.promote_types(h.dtype, torch.float32))
    inverse = (var + EPSILON).rsqrt()[:, None]
    hat = (wide - mean[:, None]) * inverse
    dhat = dy.to(wide.dtype) * w
    dx = inverse * (dhat - dhat.mean(1, keepdim=True) - hat * (dhat * hat).mean(1, keepdim=True))
    return ((dx + dh).to(h.dtype),)


def _residual_norm_grad_eager(h: Any, w: Any, b: Any, mean: Any, inverse: Any, dy: Any, dh: Any) -> Any:
    made = aten.native_layer_norm_backward(dy, h, [h.shape[1]], mean, inverse, w, b, [True, True, True])
    return made[0] + dh, made[1], made[2]


def _residual_norm_grad_typed(h: Any, w: Any, mean: Any, var: Any, dy: Any, dh: Any) -> Sequence[Any]:
    w = w.to(h.dtype)
    b = torch.zeros_like(w)
    # Which type statistics have differs between torch's devices.
    kind = aten.native_layer_norm(h[:1], [h.shape[1]], w, b, EPSILON)[1].dtype
    return h, w, b, mean[:, None].to(kind), (var + EPSILON).rsqrt()[:, None].to(kind), dy, dh


def _masked_softmax(x: Any, mask: Any) -> Outputs:
    return (F.softmax(x * 0.125 + mask, -1),)


def _masked_softmax_grad(y: Any, dy: Any) -> Outputs:
    ds = aten._softmax_backward_data(dy, y, -1, y.dtype)
    return ds.sum(0), ds * 0.125


def _cross_entropy(x: Any, label: Any, start: Any) -> Outputs:
    log = F.log_softmax(x, -1)
    loss = -log.gather(1, label)
    ones = torch.zeros_like(log).scatter_(1, label, 1.0)
    return loss, (log.exp() - ones) * start


def _cross_entropy_eager(x: Any, label: Any, start: Any) -> Any:
    log = aten._log_softmax(x, -1, False)
    loss, weight = aten.nll_loss_forward(log, label, None, 0, -100)
    arriving = aten.nll_loss_backward(start, log, label, None, 0, -100, weight)
    return loss, aten._log_softmax_backward_data(arriving, log, -1, x.dtype)


def _flat_label(x: Any, label: Any, start: Any) -> Sequence[Any]:
    return x, label[:, 0], start[:, 0]


# ----------------------------------------------------------------------------------------------------------- depthwise
def _depthwise(x: Any, w: Any) -> Outputs:
    return (F.conv2d(F.relu(x), w, padding=1, groups=x.shape[1]),)


def _depthwise_grad(x: Any, w: Any, dy: Any) -> Outputs:
    ones, wanted = [1, 1], [True, False, False]
    dx = aten.convolution_backward(dy, F.relu(x), w, None, ones, ones, ones, False, [0, 0], x.shape[1], wanted)[0]
    return (aten.threshold_backward(dx, x, 0),)


# -------------------------------------------------------------------------------------------------------------- updates
def _joined(list_: Sequence[Any]) -> Any:
    return torch.cat([t.reshape(-1) for t in list_])


def _clip_factor(grads: Sequence[Any], limit: Any) -> Outputs:
    (most,) = limit
    return ([most / torch.maximum(sum(g.square().sum() for g in grads).sqrt(), most)],)


def _clip_factor_eager(grads: Sequence[Any], limit: Any) -> Any:
    (most,) = limit
    return most / torch.maximum(torch.stack(torch._foreach_norm(grads)).norm(), most)


def _clip_factor_flat(grads: Sequence[Any], limit: Any) -> Any:
    (most,) = limit
    return [_joined(grads)], lambda g: most / torch.maximum(g.norm(), most)


def _adam_step(p: Any, g: Any, m: Any, v: Any, b1: Any, b2: Any, rate: Any, decay: float) -> tuple[Any, Any, Any]:
    m, v = BETA1 * m + (1 - BETA1) * g, BETA2 * v + (1 - BETA2) * g * g
    p = p * (1 - rate * decay)
    return p - rate / (1 - b1) * m / ((v / (1 - b2)).sqrt() + TINY), m, v


def _adam(
    p: Any, g: Any, rate: Any, m: Any, v: Any, b1: Any, b2: Any, scale: Any = None, decay: float = 0.0
) -> Outputs:
    outs: tuple[list[Any], ...] = ([], [], [], [], [])
    for one in zip(p, g, m, v, b1, b2, strict=True):
        given = one[1] if scale is None else one[1] * scale[0]
        made = _adam_step(one[0], given, *one[2:], rate[0], decay)
        for out, value in zip(outs, (*made, one[4] * BETA1, one[5] * BETA2), strict=True):
            out.append(value)
    return outs


def _adamw(g: Any, scale: Any, p: Any, rate: Any, m: Any, v: Any, b1: Any, b2: Any) -> Outputs:
    return _adam(p, g, rate, m, v, b1, b2, scale, DECAY)


def _adam_prepared(decay: float) -> Callable[..., Sequence[Any]]:
    """Copies, for torch updates in place, and a count of steps in the place of powers; the scale does not let them grow."""

    def prepare(p: Any, g: Any, m: Any, v: Any) -> Sequence[Any]:
        copies = [[t.clone() for t in list_] for list_ in (p, g, m, v)]
        return (*copies, [torch.full((), 3.0, device=t.device) for t in p], decay)

    return prepare


def _adam_eager(p: Any, g: Any, m: Any, v: Any, steps: Any, decay: float) -> Any:
    function, scaled = (torch._fused_adamw_, True) if decay else (torch._fused_adam_, False)
    if scaled:
        torch._foreach_mul_(g, 1.0)
    return function(
        p, g, m, v, [], steps, lr=RATE, beta1=BETA1, beta2=BETA2, weight_decay=decay, eps=TINY, amsgrad=False, maximize=False
    )  # fmt: skip


def _adam_flat(p: Any, g: Any, m: Any, v: Any, steps: Any, decay: float) -> Any:
    scale = torch.ones((), device=p[0].device)

    def function(p: Any, g: Any, m: Any, v: Any, scale: Any, step: Any) -> Any:
        made = _adam_step(p, g * scale if decay else g, m, v, BETA1**step, BETA2**step, RATE, decay)
        for old, new in zip((p, m, v), made, strict=True):
            old.copy_(new)
        return step + 1

    return [*(_joined(t) for t in (p, g, m, v)), scale, steps[0].clone()], function


def _momentum(p: Any, g: Any, velocity: Any, rate: Any) -> Outputs:
    new = [MU * u + d for u, d in zip(velocity, g, strict=True)]
    return [a - rate[0] * u for a, u in zip(p, new, strict=True)], new


def _momentum_eager(p: Any, g: Any, velocity: Any) -> Any:
    return torch._fused_sgd_(
        p, g, velocity, weight_decay=0.0, momentum=MU, lr=RATE, dampening=0.0, nesterov=False, maximize=False, is_first_step=False
    )  # fmt: skip


def _momentum_flat(p: Any, g: Any, velocity: Any) -> Any:
    def function(p: Any, g: Any, velocity: Any) -> None:
        velocity.copy_(MU * velocity + g)
        p.copy_(p - RATE * velocity)

    return [_joined(t) for t in (p, g, velocity)], function


def _sgd(p: Any, rate: Any, g: Any) -> Outputs:
    return ([a - rate[0] * d for a, d in zip(p, g, strict=True)],)


def _sgd_eager(p: Any, g: Any) -> Any:
    return torch._fused_sgd_(
        p, g, [], weight_decay=0.0, momentum=0.0, lr=RATE, dampening=0.0, nesterov=False, maximize=False, is_first_step=False
    )  # fmt: skip


def _sgd_flat(p: Any, g: Any) -> Any:
    return [_joined(p), _joined(g)], lambda p, g: p.copy_(p - RATE * g)


def _copied(*lists: Any) -> Sequence[Any]:
    return [[t.clone() for t in list_] for list_ in lists]


# ------------------------------------------------------------------------------------------------------ matrix products
def _gelu_linear(x: Any, w: Any, b: Any) -> Outputs:
    z = torch.addmm(b, x, w)
    return z, F.gelu(z)


def _gelu_linear_alone(x: Any, w: Any, b: Any) -> Outputs:
    return (F.gelu(torch.addmm(b, x, w)),)


def _linear(x: Any, w: Any, b: Any) -> Outputs:
    return (torch.addmm(b, x, w),)


def _gelu_linear_grad(x: Any, w: Any, dy: Any, z: Any) -> Outputs:
    dz = aten.gelu_backward(dy @ w.T, z)
    return x.T @ dy, dz, dz.sum(0)


# ---------------------------------------------------------------------------------------------------------------- rows
def _all() -> dict[str, Peer]:
    found = {
        "elewise/relu-full/0": Peer(_relu_add), "elewise/relu-full-fp32/0": Peer(_relu_add),
        "elewise/gelu-bias/0": Peer(_gelu_add), "elewise/gelu-bias/1": Peer(_gelu_add_grad), "auto/chain/0": Peer(_chain),
        "compiler/softmax/0": Peer(_masked_softmax), "compiler/softmax/1": Peer(_masked_softmax_grad),
        "compiler/cross-entropy/0": Peer(_cross_entropy, _cross_entropy_eager, _flat_label),
        "relu_dwconv/k3/0": Peer(_depthwise), "relu_dwconv/k3/1": Peer(_depthwise_grad),
        "adamw/clip/0": Peer(_clip_factor, _clip_factor_eager, flat=_clip_factor_flat, grouped=True),
        "adamw/clip/1": Peer(
            _adamw, _adam_eager, lambda g, scale, p, rate, m, v, b1, b2: _adam_prepared(DECAY)(p, g, m, v), _adam_flat, True
        ),
        "all_optimizer/adam/0": Peer(
            _adam, _adam_eager, lambda p, g, rate, m, v, b1, b2: _adam_prepared(0.0)(p, g, m, v), _adam_flat, True
        ),
        "all_optimizer/momentum/0": Peer(
            _momentum, _momentum_eager, lambda p, g, velocity, rate: _copied(p, g, velocity), _momentum_flat, True
        ),
        "all_optimizer/sgd/0": Peer(_sgd, _sgd_eager, lambda p, rate, g: _copied(p, g), _sgd_flat, True),
    }  # fmt: skip
    for label in ("gemm/train-768", "gemm-4096/train-4096"):
        found |= {f"{label}/{i}": Peer(f) for i, f in enumerate((_gelu_linear, _linear, _gelu_linear_grad))}
    for label in ("gemm/infer-768", "gemm-infer-4096/infer-4096"):
        found |= {f"{label}/{i}": Peer(f) for i, f in enumerate((_gelu_linear_alone, _linear))}
    for label in ("residual-LN", "residual-LN-4096"):
        found[f"compiler/{label}/0"] = Peer(_residual_norm, _residual_norm_eager, _residual_norm_typed)
        found[f"compiler/{label}/1"] = Peer(_residual_norm_grad, _residual_norm_grad_eager, _residual_norm_grad_typed)
    for layout in ("NHWC", "NCHW"):
        for label, residual in (("bn_act", False), ("bn_add_act", True)):
            found |= {f"{label}/{layout}/{i}": p for i, p in enumerate(_norm_peers(layout == "NHWC", residual))}
    for label, row in attention_peers.ROWS.items():
        found[f"{label}/0"] = Peer(attention_peers.forward_of(row), attention_peers.library_of(row))
        eager, prepare = attention_peers.gradient_by_library(row)
        found[f"{label}/1"] = Peer(attention_peers.gradient_of(row), eager, prepare)
    return found


PEERS = _all()
"""By a case's name, less the op's type."""
