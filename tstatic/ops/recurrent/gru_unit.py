"""One step of the 1.x GRU as an operator."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir.attrs import one_of
from tstatic.ir.checks import FLOATS, check_dtype, check_has_shape, check_rank, check_same_dtype
from tstatic.ir.opdef import GRAD, Attr, Case, Domain, GradOp, OpDef, ValueRange, register
from tstatic.ir.types import Meta
from tstatic.ops._low import in_float32, torch_wide_on_host
from tstatic.ops.recurrent import _recurrent_onnx as _onnx
from tstatic.tuned._common import Array
from tstatic.tuned.recurrent_step import gru_unit_step, gru_unit_step_grad

_ACTIVATION = one_of("sigmoid", "tanh", "relu", "identity")


def _infer(x: Meta, hidden: Meta, weight: Meta, bias: Meta | None) -> tuple[Meta, Meta, Meta]:
    given = {"Input": x, "HiddenPrev": hidden, "Weight": weight, **({} if bias is None else {"Bias": bias})}
    check_dtype(x, FLOATS, "Input")
    check_same_dtype(list(given.values()), list(given))
    check_rank(weight, 2, "Weight", layout="[width, 3 * width]")
    width = weight.shape[0]
    columns = 3 * width if width > 0 else -1
    check_has_shape(weight, (width, columns), "Weight", why="[width, 3 * width]")
    check_has_shape(x, (hidden.shape[0] if hidden.shape else -1, columns), "Input", why="[batch, 3 * width]")
    check_has_shape(hidden, (x.shape[0], width), "HiddenPrev", why="[batch, width]")
    if bias is not None:
        check_has_shape(bias, (1, columns), "Bias", why="[1, 3 * width]")
    return x, hidden, hidden


@in_float32(outputs=3)
def _ref(
    x: Array,
    hidden: Array,
    weight: Array,
    bias: Array | None,
    gate: Array,
    reset: Array,
    out: Array,
    activation: str,
    gate_activation: str,
    origin_mode: bool,
) -> None:
    gates = x + bias if bias is not None else np.array(x)
    work = np.empty((len(x), 2 * weight.shape[0]), x.dtype)
    kept, made = np.empty_like(hidden), np.empty_like(hidden)
    gru_unit_step(gates, hidden, weight, kept, made, work, gate_activation, activation, origin_mode)
    for target, value in ((gate, gates), (reset, kept), (out, made)):
        np.copyto(target, value)


@in_float32(outputs=4)
def _grad_ref(
    x: Array,
    hidden: Array,
    weight: Array,
    bias: Array | None,
    gate: Array,
    reset: Array,
    dgate: Array | None,
    dreset: Array | None,
    dout: Array | None,
    dx: Array | None,
    dhidden: Array | None,
    dweight: Array | None,
    dbias: Array | None,
    activation: str,
    gate_activation: str,
    origin_mode: bool,
) -> None:
    width = weight.shape[0]
    sums, through, state = (
        np.zeros_like(like) if given is None else np.array(given)
        for like, given in ((gate, dgate), (hidden, dreset), (hidden, dout))
    )
    work = np.empty((len(x), 2 * width), x.dtype)
    gru_unit_step_grad(gate, hidden, weight, state, through, sums, work, gate_activation, activation, origin_mode)
    if dx is not None:
        np.copyto(dx, sums)
    if dhidden is not None:
        np.copyto(dhidden, state)
    if dweight is not None:
        # Packed one after the other in memory, as the weight is.
        parts = (hidden.T @ sums[:, : 2 * width], reset.T @ sums[:, 2 * width :])
        np.copyto(dweight, np.concatenate([part.reshape(-1) for part in parts]).reshape(dweight.shape))
    if dbias is not None:
        np.sum(sums, 0, out=dbias, keepdims=True)


def _act(torch: Any, name: str) -> Any:
    return {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "relu": torch.relu, "identity": lambda x: x}[name]


def _lower(
    torch: Any,
    x: Any,
    hidden: Any,
    weight: Any,
    bias: Any,
    activation: str,
    gate_activation: str,
    origin_mode: bool,
) -> Any:
    low, width = x.dtype, weight.shape[0]
    x, hidden, weight, bias = (None if t is None else torch_wide_on_host(t) for t in (x, hidden, weight, bias))
    packed = weight.reshape(-1)
    first, last = packed[: 2 * width * width].view(width, -1), packed[2 * width * width :].view(width, width)
    total = x if bias is None else x + bias
    u, r = _act(torch, gate_activation)(total[:, : 2 * width] + hidden @ first).split(width, 1)
    reset = r * hidden
    n = _act(torch, activation)(total[:, 2 * width :] + reset @ last)
    out = u * hidden + (1 - u) * n if origin_mode else (1 - u) * hidden + u * n
    return torch.cat([u, r, n], 1).to(low), reset.to(low), out.to(low)


def _times_slope(torch: Any, name: str, y: Any, gradient: Any) -> Any:
    """Returns a gradient times the slope of a function where its result is ``y``."""
    if name == "relu":
        return torch.where(y > 0, gradient, 0)
    return gradient * {"sigmoid": y * (1 - y), "tanh": 1 - y * y, "identity": 1}[name]


def _grad_lower(torch: Any, *given: Any, activation: str, gate_activation: str, origin_mode: bool) -> Any:
    weight, bias = given[2:4]
    wide: list[Any] = [None if t is None else torch_wide_on_host(t) for t in given]
    before, width = wide[1], weight.shape[0]
    packed = wide[2].reshape(-1)
    first, last = packed[: 2 * width * width].view(width, -1), packed[2 * width * width :].view(width, width)
    # From the inputs, because 16 bits have rounded what the forward op kept.
    total = wide[0] if bias is None else wide[0] + wide[3]
    u, r = _act(torch, gate_activation)(total[:, : 2 * width] + before @ first).split(width, 1)
    reset = r * before
    n = _act(torch, activation)(total[:, 2 * width :] + reset @ last)
    dgate, dreset, dout = (
        torch.zeros_like(like) if t is None else t
        for t, like in zip(wide[6:9], (torch.cat([u, r, n], 1), before, before), strict=True)
    )
    du, dr, dn = dgate.split(width, 1)
    new, old = (before, n) if origin_mode else (n, before)
    du = du + dout * (new - old)
    dn = _times_slope(torch, activation, n, dn + dout * ((1 - u) if origin_mode else u))
    dreset = dreset + dn @ last.mT
    du, dr = (_times_slope(torch, gate_activation, y, g) for y, g in ((u, du), (r, dr + dreset * before)))
    gates = torch.cat([du, dr], 1)
    dhidden = dout * (u if origin_mode else 1 - u) + dreset * r + gates @ first.mT
    sums = torch.cat([gates, dn], 1)
    dweight = torch.cat([(before.mT @ gates).reshape(-1), (reset.mT @ dn).reshape(-1)]).reshape(weight.shape)
    found = sums, dhidden, dweight, None if bias is None else sums.sum(0, keepdim=True)
    return tuple(None if t is None else f.to(t.dtype) for t, f in zip(given[:4], found, strict=True))


def _case(batch: int, width: int, bias: bool, **attrs: Any) -> Case:
    return Case(((batch, 3 * width), (batch, width), (width, 3 * width), (1, 3 * width) if bias else None), attrs)


register(OpDef(
    "gru_unit", "Input, HiddenPrev, Weight, Bias? -> Gate, ResetHiddenPrev, Hidden",
    attrs={
        "activation": Attr("tanh", "str", _ACTIVATION), "gate_activation": Attr("sigmoid", "str", _ACTIVATION),
        "origin_mode": False,
    },
    infer=_infer, ref=_ref, lower=_lower,
    grad=GradOp(
        f"Input, HiddenPrev, Weight, Bias?, Gate, ResetHiddenPrev, Gate{GRAD}?, ResetHiddenPrev{GRAD}?, Hidden{GRAD}? "
        f"-> Input{GRAD}, HiddenPrev{GRAD}, Weight{GRAD}, Bias{GRAD}",
        ref=_grad_ref, infer=lambda x, hidden, weight, bias, *rest: (x, hidden, weight, bias),
        lower=lambda torch, *given, activation, gate_activation, origin_mode: _grad_lower(
            torch, *given, activation=activation, gate_activation=gate_activation, origin_mode=origin_mode
        ),
        instead="write the step with matmul, sigmoid and tanh, or call nn.GRUCell",
    ),
    uses_blas=True,
    domain=Domain(
        cases=(
            _case(3, 2, True), _case(2, 3, False), _case(1, 1, True), _case(0, 2, True), _case(2, 3, True, origin_mode=True),
            _case(2, 2, True, activation="sigmoid", gate_activation="tanh"), _case(2, 2, True, activation="identity"),
        ),
        values={"Weight": ValueRange(-1.0, 1.0)}, ulps=32.0,
    ), onnx=_onnx.gru_unit,
))  # fmt: skip
