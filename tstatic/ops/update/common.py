"""The common updates: sgd, momentum, adam, adamw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tstatic.ir.attrs import one_of
from tstatic.ir.opdef import Attr, Case, Domain
from tstatic.ir.opdef import ValueRange as Range
from tstatic.ops.update._slots import MULTI_PRECISION
from tstatic.ops.update._torch import adam_in_place, in_parts, torch_end, torch_start
from tstatic.ops.update._update import register_update

Attrs = Mapping[str, Any]

# Rates and epsilons are above 0.
POSITIVE = Range(0.01, 1.0)
# Powers of a decay rate lie below 1: updates divide by 1 less them.
ONE = Range(0.5, 0.95)
ROW = Range(0, "Param.0", dtype="int64")
"""Samples of the slot ``Rows``: one row."""
# Ranks 0 to 3, no element, one element; 129 is one more than a multiple of all vector registers.
SHAPES: tuple[tuple[int, ...], ...] = ((3, 4), (), (1,), (0, 3), (2, 3, 4), (129,))


def cases(pattern: str, *attrs: Attrs) -> tuple[Case, ...]:
    """Returns sample shapes for update ops.

    Args:
        pattern: A letter per slot: ``b`` of the parameter's shape, ``s`` one number.
        attrs: Attributes, each tried with every shape.
    """
    made = []
    for i, shape in enumerate(SHAPES):
        one = (1,) if i % 2 else ()
        made += [Case(tuple(shape if kind == "b" else one for kind in pattern), a) for a in attrs or ({},)]
    return tuple(made)


# ----------------------------------------------------------------------------------------------------------------- sgd
def _sgd_lower(torch: Any, param: Any, lr: Any, grad: Any, master: Any) -> Any:
    p, g = torch_start(torch, param, grad, master)
    new = p - lr.to(p.dtype).reshape(()) * g
    return torch_end([(param, new), (master, new)])


def _write_sgd(torch: Any, param: Any, lr: Any, grad: Any, master: Any, *, out: Any) -> bool:
    # torch writes to `out` where all types are one.
    if grad.shape != param.shape or master is not None or len({t.dtype for t in (param, grad, lr)}) > 1:
        return False
    torch.addcmul(param, grad, lr.reshape(()), value=-1, out=out[0])
    return True


register_update(
    "sgd",
    "Param, LearningRate, Grad, MasterParam? -> ParamOut, MasterParamOut?",
    {"multi_precision": MULTI_PRECISION},
    {"ParamOut": "param - grad * learningrate"},
    _sgd_lower,
    Domain(
        cases=(
            *cases("bsb"),
            Case(((5, 6), (), (5, 6), (5, 6)), {"multi_precision": True}),
            Case(((5, 6), (), (1, 6), None, None, (1,))),
        ),
        values={"LearningRate": POSITIVE, "Rows": ROW},
        ulps=2,
    ),
    rows=True,
    write=_write_sgd,
)


# ------------------------------------------------------------------------------------------------------------ momentum
def _momentum_lower(
    torch: Any, param: Any, grad: Any, velocity: Any, lr: Any, master: Any, *, mu: float, use_nesterov: bool,
    regularization_method: str, regularization_coeff: float, rescale_grad: float,
) -> Any:  # fmt: skip
    p, g = torch_start(torch, param, grad, master)
    rate = lr.to(p.dtype).reshape(())
    g = g * rescale_grad
    if regularization_method == "l2_decay":
        g = g + regularization_coeff * p
    v = mu * velocity.to(p.dtype) + g
    new = p - rate * ((g + mu * v) if use_nesterov else v)
    return torch_end([(param, new), (velocity, v), (master, new)])


def _write_momentum(
    torch: Any, param: Any, grad: Any, velocity: Any, lr: Any, master: Any, *, mu: float, use_nesterov: bool,
    regularization_method: str, regularization_coeff: float, rescale_grad: float, out: Any,
) -> bool:  # fmt: skip
    if master is not None or use_nesterov or out[0] is None or out[1] is None:
        return False
    if len({t.dtype for t in (param, grad, velocity, lr)}) > 1:
        return False
    decay = regularization_coeff if regularization_method == "l2_decay" else 0.0
    for p, g, old, new_p, new in in_parts(param, grad, velocity, out[0], out[1]):
        moved = torch.mul(old, mu, out=new).add_(g, alpha=rescale_grad)
        if decay:
            moved.add_(p, alpha=decay)
        torch.addcmul(p, moved, lr.reshape(()), value=-1, out=new_p)
    return True


register_update(
    "momentum",
    "Param, Grad, Velocity, LearningRate, MasterParam? -> ParamOut, VelocityOut, MasterParamOut?",
    {
        "mu": Attr(kind="float"),
        "use_nesterov": False,
        "regularization_method": Attr("", "str", one_of("", "l2_decay")),
        "regularization_coeff": 0.0,
        "multi_precision": MULTI_PRECISION,
        "rescale_grad": 1.0,
    },
    {
        "scaled": "grad * rescale_grad",
        "decayed": "where((regularization_method == 'l2_decay') & (regularization_coeff != 0),"
        " scaled + param * regularization_coeff, scaled)",
        "VelocityOut": "velocity * mu + decayed",
        "step": "where(use_nesterov, velocityout * mu + decayed, velocityout)",
        "ParamOut": "param - step * learningrate",
    },
    _momentum_lower,
    Domain(
        cases=(
            *cases(
                "bbbs",
                {"mu": 0.9},
                {"mu": 0.5, "use_nesterov": True},
                {"mu": 0.9, "regularization_method": "l2_decay", "regularization_coeff": 0.1, "rescale_grad": 0.25},
            ),
            Case(((5, 6),) * 3 + ((), (5, 6)), {"mu": 0.9, "multi_precision": True}),
        ),
        values={"LearningRate": POSITIVE},
        ulps=8,
    ),
    write=_write_momentum,
)


# --------------------------------------------------------------------------------------------------------- adam, adamw
ADAM_SLOTS = (
    "Param, Grad, LearningRate, Moment1, Moment2, Beta1Pow, Beta2Pow, MasterParam?, SkipUpdate?, Beta1Tensor?, "
    "Beta2Tensor?, EpsilonTensor?, RowMask? -> ParamOut, Moment1Out, Moment2Out, Beta1PowOut, Beta2PowOut, MasterParamOut?"
)
# Paddle's defaults, which are those of the paper.
ADAM_ATTRS = {
    "beta1": 0.9,
    "beta2": 0.999,
    "epsilon": 1e-8,
    "lazy_mode": False,
    "min_row_size_to_use_multithread": Attr.idle(1000, "the size of the work alone decides how it is cut"),
    "multi_precision": MULTI_PRECISION,
    "use_global_beta_pow": False,
}
POWERS = {"Beta1PowOut": "beta1pow * beta1", "Beta2PowOut": "beta2pow * beta2"}
MOMENTS = {
    "Moment1Out": "moment1 * beta1 + grad * (1 - beta1)",
    "Moment2Out": "moment2 * beta2 + grad * grad * (1 - beta2)",
}
# D. P. Kingma and J. Ba, 2015, with the corrections in the step size.
ADAM = {
    "rate": "learningrate",
    **MOMENTS,
    "correct": "sqrt(1 - beta2pow)",
    # epsilon is scaled, too: it means what it does beside the corrected root.
    "root": "sqrt(moment2out) + epsilon * correct",
    "step": "moment1out / root * (rate * correct / (1 - beta1pow))",
    "ParamOut": "param - step",
    **{n: f"where(use_global_beta_pow, {n[:-3].lower()}, {text})" for n, text in POWERS.items()},
}
# I. Loshchilov and F. Hutter, 2019.
ADAMW = {
    **ADAM,
    "rate": "learningrate * lr_ratio",
    "ParamOut": "where(with_decay & (coeff != 0), param * (1 - rate * coeff), param) - step",
}


def _number(tensor: Any, other: float) -> Any:
    return other if tensor is None else tensor.double().reshape(())


def _adam_lower(
    torch: Any, param: Any, grad: Any, lr: Any, m: Any, v: Any, pow1: Any, pow2: Any, master: Any, b1: Any,
    b2: Any, eps: Any, mask: Any, *, beta1: float, beta2: float, epsilon: float, lazy_mode: bool, use_global_beta_pow: bool,
    lr_ratio: float = 1.0, coeff: float = 0.0, with_decay: bool = False,
) -> Any:  # fmt: skip
    p, g = torch_start(torch, param, grad, master)
    rate = lr.double().reshape(()) * lr_ratio
    one, two, small = _number(b1, beta1), _number(b2, beta2), _number(eps, epsilon)
    if with_decay:
        # Decoupled: the decay does not pass through the moments.
        p = p * (1 - rate * coeff).to(p.dtype)
    new_m = one * m.to(p.dtype) + (1 - one) * g
    new_v = two * v.to(p.dtype) + (1 - two) * g * g
    m_hat = new_m / (1 - pow1.double().reshape(())).to(p.dtype)
    v_hat = new_v / (1 - pow2.double().reshape(())).to(p.dtype)
    new = p - rate.to(p.dtype) * m_hat / (torch.sqrt(v_hat) + small)
    next1, next2 = (pow1, pow2) if use_global_beta_pow else (pow1 * one, pow2 * two)

    def after(old: Any, changed: Any) -> tuple[Any, Any]:
        # Rows that no sample looked up keep their moments as well.
        if mask is None or not lazy_mode or old is None:
            return old, changed
        looked_up = (mask != 0).reshape(-1, *(1 for _ in p.shape[1:]))
        return old, torch.where(looked_up, changed.to(old.dtype), old)

    powers = [(old, power.to(p.dtype)) for old, power in ((pow1, next1), (pow2, next2))]
    return torch_end([after(param, new), after(m, new_m), after(v, new_v), *powers, after(master, new)])


def _write_adam(
    torch: Any, param: Any, grad: Any, lr: Any, m: Any, v: Any, pow1: Any, pow2: Any, master: Any, b1: Any,
    b2: Any, eps: Any, mask: Any, *, beta1: float, beta2: float, epsilon: float, lazy_mode: bool, use_global_beta_pow: bool,
    lr_ratio: float = 1.0, coeff: float = 0.0, with_decay: bool = False, out: Any,
) -> bool:  # fmt: skip
    # Numbers in tensors would have to be read on the host first.
    given = (b1, b2, eps, *((mask,) if lazy_mode else ()))
    if any(t is not None for t in given) or any(t is None for t in out[:3]):
        return False
    rounded, to_m, to_v, to_pow1, to_pow2, to_master = out
    kept, to_param = (param, rounded) if master is None else (master, to_master)
    # A 16-bit parameter without a float32 copy is computed in float32, by the other form.
    if to_param is None or kept.itemsize <= 2:
        return False
    rate, first, second = lr.reshape(()), pow1.reshape(()), pow2.reshape(())
    # As ADAM says: corrections in the step size walk over the moments once less.
    correct = (1 - second).sqrt_()
    size = rate * correct / (1 - first)
    decay = rate * (lr_ratio * coeff) if with_decay else None
    # torch's fused form writes over what it reads.
    in_place = all(a.data_ptr() == b.data_ptr() for a, b in ((kept, to_param), (m, to_m), (v, to_v)))
    alike = grad.dtype == kept.dtype
    if not (in_place and alike) or not adam_in_place(
        torch, (kept, grad, m, v), size * lr_ratio, correct, decay, beta1, beta2, epsilon
    ):
        for p, g, old_m, old_v, new_p, new_m, new_v in in_parts(kept, grad, m, v, to_param, to_m, to_v):
            if alike:
                torch.lerp(old_m, g, 1 - beta1, out=new_m)
            else:
                # A gradient of 16 bits is widened as it is read.
                torch.mul(old_m, beta1, out=new_m).add_(g, alpha=1 - beta1)
            torch.mul(old_v, beta2, out=new_v).addcmul_(g, g, value=1 - beta2)
            root = torch.sqrt(new_v).add_(correct, alpha=epsilon)
            step = torch.div(new_m, root, out=root)
            decayed = p if decay is None else torch.mul(p, 1 - decay, out=new_p)
            torch.addcmul(decayed, step, size, value=-lr_ratio, out=new_p)
    if master is not None:
        rounded.copy_(to_param)
    for old, new, beta in ((pow1, to_pow1, beta1), (pow2, to_pow2, beta2)):
        if new is not None:
            torch.mul(old, 1 if use_global_beta_pow else beta, out=new)
    return True


def _adam_cases(more: Attrs) -> tuple[Case, ...]:
    def shapes(s: tuple[int, ...], one: tuple[int, ...], *tail: Any) -> tuple[Any, ...]:
        return (s, s, one, s, s, one, one, *tail)

    odd = {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3}
    return (
        *(Case(shapes(s, (1,) if i % 2 else ()), more if i % 2 else {**more, **odd}) for i, s in enumerate(SHAPES)),
        Case(shapes((5, 6), (), (5, 6)), {**more, "multi_precision": True}),
        Case(shapes((5, 6), (1,), (5, 6), (1,)), {**more, "multi_precision": True}),
        Case(shapes((7,), (1,), None, None, (1,), (1,), (1,)), more),
        Case(shapes((7,), (1,)), {**more, "use_global_beta_pow": True}),
        Case(shapes((9, 4), (1,), *(None,) * 5, (9,)), {**more, "lazy_mode": True}),
        Case(shapes((9, 4), (1,), *(None,) * 5, (9,)), more),
        Case(shapes((6, 5), (1,), (6, 5), (1,), None, None, None, (6,)), {**more, "lazy_mode": True}),
        Case(((6, 5), (1, 5), (1,), (6, 5), (6, 5), (1,), (1,), *(None,) * 6, (1,)), {**more, "lazy_mode": True}),
    )


# The second moment is under a root: clear of 0, where its slope is infinite.
ADAM_VALUES = {
    "LearningRate": POSITIVE,
    "Moment2": Range(0.01, 2.0),
    "Beta1Pow": ONE,
    "Beta2Pow": ONE,
}


def _adam_domain(*more: Attrs) -> Domain:
    return Domain(
        cases=tuple(c for m in more for c in _adam_cases(m)),
        values={
            **ADAM_VALUES,
            "Beta1Tensor": ONE,
            "Beta2Tensor": ONE,
            "EpsilonTensor": POSITIVE,
            "RowMask": Range(0, 1, dtype="int64"),
            "Rows": ROW,
        },
        ulps=32,
    )


register_update("adam", ADAM_SLOTS, ADAM_ATTRS, ADAM, _adam_lower, _adam_domain({}), rows=True, write=_write_adam)
register_update(
    "adamw",
    ADAM_SLOTS,
    {**ADAM_ATTRS, "lr_ratio": 1.0, "coeff": 0.01, "with_decay": True},
    ADAMW,
    _adam_lower,
    _adam_domain({"coeff": 0.1}, {"coeff": 0.1, "lr_ratio": 0.5}, {"with_decay": False}),
    rows=True,
    write=_write_adam,
)
