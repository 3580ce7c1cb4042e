"""Ops that are matrix products: which matrices they multiply, and how these lie in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported, LoopNest, Operand
from tstatic.fusion.codegen.text.reference import Reference
from tstatic.fusion.codegen.text.size_names import SizeNames
from tstatic.ir.frozen import Entry, FrozenOp
from tstatic.ir.opdef import GRAD, OpDef, op_def
from tstatic.ir.traits import MultipliesMatrices
from tstatic.ir.types import DType, Meta, Shape


@dataclass(frozen=True, slots=True)
class Product:
    """``out = op(a) @ op(b)``, all as matrices in contiguous memory.

    Attributes:
        a, b, out: Values.
        rows, columns, depth: Sizes.
        trans_a: The memory of ``a`` is ``[depth, rows]``, else ``[rows, depth]``.
        trans_b: The memory of ``b`` is ``[columns, depth]``, else ``[depth, columns]``.
        dtype: Of all three.
    """

    a: str
    b: str
    out: str
    rows: int
    columns: int
    depth: int
    trans_a: bool
    trans_b: bool
    dtype: DType

    @property
    def wide_offsets(self) -> bool:
        """Whether an offset may not fit in 32 bits."""
        largest = max(self.rows * self.depth, self.depth * self.columns, self.rows * self.columns)
        return largest >= 1 << 30

    @property
    def aligned(self) -> bool:
        """Whether each row of each matrix begins at a multiple of 16 bytes."""
        inner = (
            self.rows if self.trans_a else self.depth,
            self.depth if self.trans_b else self.columns,
            self.columns,
        )
        return all(size * self.dtype.itemsize % 16 == 0 for size in inner)

    def named_rows(self, sizes: SizeNames) -> str:
        """Returns the name of the number of rows in the text of a kernel."""
        return sizes("OUT_ROWS", self.rows, "rows of the product")

    def named_columns(self, sizes: SizeNames) -> str:
        """Returns the name of the number of columns."""
        return sizes("OUT_COLUMNS", self.columns, "columns of the product")

    def named_depth(self, sizes: SizeNames) -> str:
        """Returns the name of the depth."""
        return sizes("TERMS", self.depth, "terms of each sum of the product: its depth")


def is_product(definition: OpDef) -> bool:
    """Returns whether an op multiplies two matrices."""
    return definition.has(MultipliesMatrices)


def is_product_gradient(definition: OpDef) -> bool:
    """Returns whether an op makes the gradients of such an op."""
    return (
        bool(definition.of)
        and op_def(definition.of).has(MultipliesMatrices)
        and definition.type == f"{definition.of}_grad"
    )


def multiplies(op: FrozenOp) -> bool:
    """Returns whether an op makes a matrix product, or those of its gradients."""
    return is_product(op.definition) or is_product_gradient(op.definition)


def products_of(op: FrozenOp, metas: Mapping[str, Meta]) -> tuple[Product, ...]:
    """Returns the products that an op makes: one, or one per gradient that is wanted.

    Raises:
        CodegenUnsupported: If an operand is not a matrix, or there is nothing to multiply.
    """
    definition = op.definition
    forward = op_def(definition.of) if definition.of else definition
    x, y = (metas[_one(op.input(slot))] for slot in ("X", "Y"))
    matrices = forward.needs(MultipliesMatrices).of
    found = matrices(x, y, **forward.pick(matrices, op.attrs))
    if found is None:
        raise CodegenUnsupported("NOT_A_MATRIX", f"an operand of {op.type} is a batch of matrices or a vector", op)
    rows, columns, depth, trans_x, trans_y = (
        found.rows, found.columns, found.depth, found.trans_x, found.trans_y
    )  # fmt: skip
    if 0 in (rows, columns, depth):
        raise CodegenUnsupported("EMPTY", f"{op.type} has no elements", op)
    if not x.dtype.is_float:
        raise CodegenUnsupported("NO_KERNEL_FORM", f"{op.type} multiplies {x.dtype.name}", op)

    def product(a: Entry, b: Entry, out: Entry, sizes: tuple[int, int, int], turned: tuple[bool, bool]) -> Product:
        return Product(_one(a), _one(b), _one(out), *sizes, *turned, x.dtype)

    first, second = op.input("X"), op.input("Y")
    if not definition.of:
        return (product(first, second, op.output("Out"), (rows, columns, depth), (trans_x, trans_y)),)
    # The gradients of a product are products: dX = dOut Y', dY = X' dOut, each turned where its operand was.
    given, to_x, to_y = op.input(f"Out{GRAD}"), op.output(f"X{GRAD}"), op.output(f"Y{GRAD}")
    made = []
    if to_x is not None:
        if trans_x:
            made.append(product(second, given, to_x, (depth, rows, columns), (trans_y, True)))
        else:
            made.append(product(given, second, to_x, (rows, depth, columns), (False, not trans_y)))
    if to_y is not None:
        if trans_y:
            made.append(product(given, first, to_y, (columns, depth, rows), (True, trans_x)))
        else:
            made.append(product(first, given, to_y, (depth, columns, rows), (not trans_x, False)))
    return tuple(made)


def _one(entry: Entry) -> str:
    """Returns the value of a slot that must hold one."""
    assert isinstance(entry, str), "a slot that must hold one value"
    return entry


def numpy_products(reference: Reference, op: FrozenOp) -> None:
    """Writes the products of an op in numpy."""
    for product in products_of(op, reference.metas):
        a = _matrix(reference, product.a, (product.rows, product.depth), product.trans_a)
        b = _matrix(reference, product.b, (product.depth, product.columns), product.trans_b)
        shape = reference.metas[product.out].shape
        text = f"({a} @ {b}).reshape({shape!r})"
        # What follows reads what memory holds.
        if product.dtype.is_low and product.out in reference.written and product.out in reference.read:
            text = f"rounded({text}, torch.{product.dtype.name})"
        reference.put(product.out, text)


def _matrix(reference: Reference, value: str, shape: Shape, turned: bool) -> str:
    text = reference.of(value).text
    return f"{text}.reshape({shape[::-1]!r}).T" if turned else f"{text}.reshape({shape!r})"


def lone_addend(product: Product, group: LoopNest) -> Operand | None:
    """Returns what is added to a product where nothing else follows it, which a library does; ``None`` for any other tail."""
    if (
        len(group.ops) != 1
        or len(group.inputs) != 2
        or len(group.outputs) != 1
        or min(product.rows, product.columns) < 2
    ):
        return None
    ((_, body),) = group.ops
    (node,) = body.nodes.values()
    if node.op != "add" or any(one.op != "var" for one in node.args):
        return None
    (found,) = (one for one in group.inputs if one.value != product.out)
    return found if {one.dtype for one in (found, *group.outputs)} == {product.dtype} else None


def tails_of(body: Sequence[FrozenOp], op: FrozenOp, products: Sequence[Product]) -> list[list[FrozenOp]]:
    """Returns the ops behind each product.

    Raises:
        CodegenUnsupported: If an op needs two products.
    """
    made = {product.out: {index} for index, product in enumerate(products)}
    others = [o for o in body if o is not op]
    for other in others:
        behind = set[int]().union(*(made.get(v, set()) for v in other.reads()))
        made |= dict.fromkeys(other.writes(), behind)
    # What depends on no product (a sum that is computed again) belongs to its reader.
    for other in reversed(others):
        if not made[next(iter(other.writes()))]:
            readers = [made[next(iter(o.writes()))] for o in others if not set(other.writes()).isdisjoint(o.reads())]
            made |= dict.fromkeys(other.writes(), set[int]().union(*readers))
    tails: list[list[FrozenOp]] = [[] for _ in products]
    for other in others:
        behind = made[next(iter(other.writes()))]
        if len(behind) != 1:
            raise CodegenUnsupported("TWO_PRODUCTS", f"{other.type} does not belong to one matrix product", other)
        tails[next(iter(behind))].append(other)
    return tails
