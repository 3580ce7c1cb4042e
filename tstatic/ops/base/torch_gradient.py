"""Lowerings of backward ops by torch's own differentiation of the forward op's lowering."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tstatic.ir.ref import pick


def torch_gradient(function: Callable[..., Any], inputs: int, wanted: Sequence[int]) -> Callable[..., Any]:
    """Returns the lowering of a backward op whose slots are the forward op's inputs and the gradients of its outputs.

    Args:
        function: The forward op's lowering.
        inputs: How many input slots the forward op has.
        wanted: Positions of those that have gradients, in the order of the backward op's outputs.
    """

    def lower(torch: Any, *tensors: Any, **attrs: Any) -> Any:
        ins, arriving = list(tensors[:inputs]), tensors[inputs:]
        for at in wanted:
            if ins[at] is not None:
                # Leaves of a new graph: the plan's tensors belong to none, and a form may write over its inputs.
                ins[at] = ins[at].detach().clone().requires_grad_()
        leaves = [ins[at] for at in wanted if ins[at] is not None]
        with torch.enable_grad():
            results = function(torch, *ins, **pick(function, attrs))
        results = results if isinstance(results, tuple) else (results,)
        pairs = [
            (r, g)
            for r, g in zip(results, arriving, strict=False)
            if g is not None and r is not None and r.requires_grad
        ]
        found = [None] * len(leaves)
        if pairs:
            found = torch.autograd.grad([r for r, _ in pairs], leaves, [g for _, g in pairs], allow_unused=True)
        # An input that no result depends on has the gradient 0.
        each = iter([torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)])
        made = tuple(None if ins[at] is None else next(each) for at in wanted)
        return made if len(made) > 1 else made[0]

    return lower
