"""The torch forms of optimizer updates: the type that is computed in, steps that are skipped, and updates of some rows."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tstatic.ops.update._slots import ROWS, SCALARS


def torch_start(torch: Any, param: Any, grad: Any, master: Any) -> tuple[Any, Any]:
    """Returns parameter and gradient in the type that is computed in."""
    p = param if master is None else master
    wide = torch.float32 if p.dtype in (torch.float16, torch.bfloat16) else p.dtype
    return p.to(wide), grad.to(wide)


def torch_end(pairs: Sequence[tuple[Any, Any]]) -> tuple[Any, ...]:
    """Returns outputs from (old, new) pairs: rounded to the old one's type."""
    return tuple(None if old is None else new.to(old.dtype).reshape(old.shape) for old, new in pairs)


PART = 1 << 17
"""Elements of a part: those of five tensors of float32 are in a core's caches when the next call reads them."""


def in_parts(*tensors: Any) -> Iterator[Sequence[Any]]:
    """Yields tensors of one size in parts, of which several calls walk over each before the next; whole ones on a GPU.

    On a CPU a call on large tensors waits for memory. A GPU would wait for the launches.
    """
    size = tensors[0].numel()
    if (
        tensors[0].device.type != "cpu"
        or size <= PART
        or not all(t.numel() == size and t.is_contiguous() for t in tensors)
    ):
        yield tensors
    else:
        yield from zip(*(t.view(-1).split(PART) for t in tensors), strict=True)


def adam_in_place(
    torch: Any, tensors: Sequence[Any], step: Any, correct: Any, decay: Any, beta1: float, beta2: float, epsilon: float
) -> bool:
    """Updates tensors of a CPU by torch's fused Adam, which walks over them once; returns False where it cannot.

    It computes ``param -= lr / (1 - beta1**t) * m / (sqrt(v) / sqrt(1 - beta2**t) + eps)`` for a count ``t``. The ops have no count
    but powers, which a user may set to anything: with a count of 1, its ``lr`` and ``eps`` are chosen so that the update is
    ``param -= step * m / (sqrt(v) + correct * epsilon)``.

    Args:
        torch: The module.
        tensors: Parameter, gradient and both moments, new in the memory of the old.
        step, correct: One number each.
        decay: What the parameter loses before, as a share; ``None`` for nothing.
        beta1, beta2, epsilon: As Adam has them.
    """
    param = tensors[0]
    if param.device.type != "cpu" or not all(t.is_contiguous() and t.shape == param.shape for t in tensors):
        return False
    # torch divides by 1 - beta.
    if not (0 <= beta1 < 1 and 0 <= beta2 < 1):
        return False
    numbers = [float(n) for n in (step, correct, 0.0 if decay is None else decay)]
    # torch corrects for its step count, which is 1 here, by 1 - beta1 and sqrt(1 - beta2): the rate takes both out again.
    root = math.sqrt(1 - beta2)
    rate = numbers[0] * (1 - beta1) / root
    # Without a rate nothing scales the decay.
    if not (math.isfinite(rate) and rate > 0 and math.isfinite(numbers[2])):
        return False
    count = torch.ones((), dtype=torch.float32)
    lists = [[t] for t in tensors]
    more = {"weight_decay": numbers[2] / rate, "eps": epsilon * numbers[1] / root, "amsgrad": False, "maximize": False}
    torch.ops.aten._fused_adamw_.default(*lists, [], [count], lr=rate, beta1=beta1, beta2=beta2, **more)
    return True


def with_skip(lower: Callable[..., Any], pairs: Sequence[tuple[str, str]], inputs: Sequence[str]) -> Callable[..., Any]:
    """Returns the torch form with ``SkipUpdate`` among its inputs: the old values where the step is skipped."""
    old, at = [inputs.index(i) for i, _ in pairs], inputs.index("SkipUpdate")

    @functools.wraps(lower)
    def skipping(torch: Any, *values: Any, **attrs: Any) -> Any:
        news = lower(torch, *values[:at], *values[at + 1 :], **attrs)
        # Computed in any case: the flag stays on the device, which chooses.
        skip = values[at]
        if skip is None:
            return news
        return tuple(
            None if new is None else torch.where(skip.reshape(()), values[i], new)
            for i, new in zip(old, news, strict=True)
        )

    return skipping


def with_out(lower: Callable[..., Any], write: Callable[..., bool], without: Sequence[int]) -> Callable[..., Any]:
    """Returns the torch form that writes its results where it is told.

    Args:
        lower: The form that returns them.
        write: ``(torch, *inputs, out, **attrs)`` writes the results in place, or answers False where it cannot.
        without: Positions of inputs that ``write`` does not get, and without which only it is called.
    """
    signature = inspect.signature(lower)
    place = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None)
    named = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    rest = [p for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD]

    def form(torch: Any, *values: Any, out: Any = None, **attrs: Any) -> Any:
        if out is not None and all(values[i] is None for i in without):
            given = [v for i, v in enumerate(values) if i not in without]
            # That of the state; parameters with a copy of it, and their gradients, may have 16 bits.
            wide = {t.dtype for t in (*given, *out) if t is not None and t.itemsize > 2}
            if len(wide) == 1 and write(torch, *given, out=out, **attrs):
                return out
        news = lower(torch, *values, **attrs)
        if out is None:
            return news
        for to, new in zip(out, news, strict=True):
            if to is not None and new is not None:
                to.copy_(new)
        return out

    form.__signature__ = signature.replace(parameters=[*named, place, *rest])  # type: ignore[attr-defined]
    return form


def with_rows(lower: Callable[..., Any], pairs: Sequence[tuple[str, str]], inputs: Sequence[str]) -> Callable[..., Any]:
    """Returns the torch form with ``Rows`` among its inputs: these rows are gathered, updated and put back."""
    at, grad, param = (inputs.index(n) for n in (ROWS, "Grad", "Param"))
    old = [inputs.index(i) for i, _ in pairs]
    bodies = {inputs.index(i) for i, _ in pairs if i not in SCALARS}

    @functools.wraps(lower)
    def on_rows(torch: Any, *values: Any, **attrs: Any) -> Any:
        rows, rest = values[at], [*values[:at], *values[at + 1 :]]
        if rows is None:
            return lower(torch, *rest, **attrs)
        count = values[param].shape[0]
        # Numbers from the count on name no row. Only the device knows how many there are, so each is computed as the first row once
        # more, and written there once more; where no row is named, that one keeps its old value.
        rows = rows.long() if count else rows[:0].long()
        given = rows < count
        source = torch.where(given, torch.arange(len(rows), device=rows.device), 0)
        index = rows.index_select(0, source).clamp(max=count - 1)
        tables = [i for i in bodies if values[i] is not None]
        gathered = list(values)
        gathered[grad] = values[grad].index_select(0, source)
        for i in tables:
            gathered[i] = values[i].index_select(0, index)
        news = lower(torch, *gathered[:at], *gathered[at + 1 :], **attrs)

        def put(i: int, new: Any) -> Any:
            some = given[:1].reshape(-1, *[1] * (new.dim() - 1))
            return values[i].index_copy(0, index, torch.where(some, new, gathered[i].to(new.dtype)))

        return tuple(put(i, new) if i in tables and new is not None else new for i, new in zip(old, news, strict=True))

    return on_rows
