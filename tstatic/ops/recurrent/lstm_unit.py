"""The gates of one step of the 1.x LSTM as an operator."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir.checks import FLOATS, check_dtype, check_has_shape, check_rank, check_same_dtype
from tstatic.ir.opdef import GRAD, Case, Domain, GradOp, OpDef, register
from tstatic.ir.paddle_form import ABSENT
from tstatic.ir.types import Meta
from tstatic.ops._low import in_float32, torch_wide
from tstatic.ops.recurrent import _recurrent_onnx as _onnx
from tstatic.tuned._common import Array
from tstatic.tuned.recurrent_step import LstmGates, lstm_step, lstm_step_grad


def _infer(x: Meta, c: Meta) -> tuple[Meta, Meta]:
    check_dtype(x, FLOATS, "X")
    check_same_dtype([x, c], ["X", "C_prev"])
    check_rank(c, 2, "C_prev", layout="[batch, width]")
    check_has_shape(x, (c.shape[0], 4 * c.shape[1] if c.shape[1] > 0 else -1), "X", why="[batch, 4 * width]")
    return c, c


def _views(x: Array) -> LstmGates:
    """Returns the gates in the order input, forget, output, candidate."""
    width = x.shape[1] // 4
    i, f, o, g = (x[:, k * width : (k + 1) * width] for k in range(4))
    return LstmGates(i, f, g, o, (x[:, : 3 * width],))


def _activated(x: Array, c: Array, forget_bias: float) -> tuple[LstmGates, Array, Array]:
    gates = np.array(x, order="C")
    views = _views(gates)
    views.f[...] += views.f.dtype.type(forget_bias)
    made, h, work = (np.empty(c.shape, c.dtype) for _ in range(3))
    lstm_step(views, c, made, h, work)
    return views, made, h


@in_float32(outputs=2)
def _ref(x: Array, c: Array, out: Array, h: Array, forget_bias: float) -> None:
    _, made, hidden = _activated(x, c, forget_bias)
    np.copyto(out, made)
    np.copyto(h, hidden)


@in_float32(outputs=2)
def _grad_ref(
    x: Array,
    c: Array,
    dout: Array | None,
    dh: Array | None,
    dx: Array | None,
    dc: Array | None,
    forget_bias: float,
) -> None:
    gates, made, _ = _activated(x, c, forget_bias)
    arriving = np.zeros(c.shape, c.dtype) if dout is None else np.array(dout)
    through = np.zeros(c.shape, c.dtype) if dh is None else dh
    sums = np.empty(x.shape, x.dtype)
    work = np.empty(c.shape, c.dtype), np.empty(c.shape, c.dtype)
    lstm_step_grad(gates, c, made, through, arriving, _views(sums), work)
    if dx is not None:
        np.copyto(dx, sums)
    if dc is not None:
        np.copyto(dc, arriving)


def _lower(torch: Any, x: Any, c: Any, forget_bias: float) -> Any:
    i, f, o, g = torch_wide(x).chunk(4, 1)
    new = torch.sigmoid(f + forget_bias) * torch_wide(c) + torch.sigmoid(i) * torch.tanh(g)
    return new.to(c.dtype), (torch.sigmoid(o) * torch.tanh(new)).to(c.dtype)


def _grad_lower(torch: Any, x: Any, c: Any, dc: Any, dh: Any, forget_bias: float) -> Any:
    i, f, o, g = torch_wide(x).chunk(4, 1)
    i, f, o, g, before = (
        torch.sigmoid(i),
        torch.sigmoid(f + forget_bias),
        torch.sigmoid(o),
        torch.tanh(g),
        torch_wide(c),
    )
    cell = torch.tanh(f * before + i * g)
    total, through = (torch.zeros_like(before) if t is None else torch_wide(t) for t in (dc, dh))
    total = total + through * o * (1 - cell * cell)
    sums = (
        total * g * i * (1 - i),
        total * before * f * (1 - f),
        through * cell * o * (1 - o),
        total * i * (1 - g * g),
    )
    return torch.cat(sums, 1).to(x.dtype), (total * f).to(c.dtype)


register(OpDef(
    "lstm_unit", "X, C_prev -> C, H", attrs={"forget_bias": 0.0}, infer=_infer, ref=_ref, lower=_lower,
    paddle=ABSENT,
    grad=GradOp(
        f"X, C_prev, C{GRAD}?, H{GRAD}? -> X{GRAD}, C_prev{GRAD}", ref=_grad_ref, lower=_grad_lower,
        instead="write the step with matmul, sigmoid and tanh, or call nn.LSTMCell",
    ),
    domain=Domain(
        cases=(
            Case(((3, 8), (3, 2))), Case(((2, 12), (2, 3)), {"forget_bias": 1.0}), Case(((1, 4), (1, 1))),
            Case(((0, 4), (0, 1))), Case(((5, 28), (5, 7)), {"forget_bias": -0.5}),
        ),
        ulps=16.0,
    ), onnx=_onnx.lstm_unit,
))  # fmt: skip
