"""Kernels of several parts that run one after the other: products with what stands behind them, and kernels around these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tstatic.fusion.codegen.define import works_on_rows
from tstatic.fusion.codegen.kernel import Kernel
from tstatic.fusion.codegen.matrix.gemm import gemm_kernel
from tstatic.fusion.codegen.matrix.products import multiplies, numpy_products
from tstatic.fusion.codegen.numerics import strict_numerics
from tstatic.fusion.codegen.text.composite import compose, sums_apart
from tstatic.fusion.engine import loop_nest
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import Meta


def kernel_in_turn(
    groups: Sequence[Sequence[FrozenOp]], body: Sequence[FrozenOp], metas: Mapping[str, Meta], needed: Sequence[str]
) -> Kernel:
    """Returns the kernel that computes groups of ops one after the other.

    Under strict numerics a sum over rows that stands among ops along rows, or behind a product, is a group of its own: there it
    is added up as it is alone.

    Args:
        groups: Each reads what was there before, or what earlier ones make.
        body: The ops that they compute together.
        metas: Metadata of all values.
        needed: Values that are written to memory.

    Raises:
        CodegenUnsupported: If a group has no kernel.
    """
    if strict_numerics():
        groups = [
            part for ops in groups for part in (sums_apart(ops, metas) if any(map(_has_own_order, ops)) else [ops])
        ]
    parts = []
    for number, ops in enumerate(groups):
        later = {v for group in groups[number + 1 :] for op in group for v in op.contents()}
        # What no later part reads stays in registers.
        kept = [v for op in ops for v in op.writes() if v in needed or v in later]
        make = gemm_kernel if any(multiplies(op) for op in ops) else loop_nest
        parts.append(make(ops, metas, kept))
    return parts[0] if len(parts) == 1 else compose(parts, body, metas, needed, numpy_products)


def product_kernel(body: Sequence[FrozenOp], metas: Mapping[str, Meta], needed: Sequence[str]) -> Kernel:
    """Returns the kernel of a matrix product, or of its gradients, and of ops per element that follow.

    Raises:
        CodegenUnsupported: As :func:`gemm_kernel` says.
    """
    return kernel_in_turn([body], body, metas, needed)


def _has_own_order(op: FrozenOp) -> bool:
    """Returns whether a kernel of an op adds sums over rows in the order of its own tiles."""
    return multiplies(op) or works_on_rows(op.definition)
