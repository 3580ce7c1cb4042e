"""Functions composed of matrix products: ``linear``, ``addmm``, ``outer``, ``inner``, ``bilinear`` and cosine similarities."""

from __future__ import annotations

from tstatic.ir.build import LayerNamer, check_variable
from tstatic.ir.checks import check_rank
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.shape_checks import check_fit
from tstatic.ir.types import UNKNOWN
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.elementwise.scale import clip


@export("nn.functional.linear", op="matmul_v2")
def linear(x: Variable, weight: Variable, bias: Variable | None = None, name: str | None = None) -> Variable:
    """Returns ``x @ weight + bias``.

    Args:
        x: ``[..., i]``.
        weight: ``[i, k]``.
        bias: ``[k]`` (or whatever broadcasts to the result), or ``None``.
        name: Name of the layer.

    Returns:
        ``[..., k]``.
    """
    for arg, value in (("x", x), ("weight", weight), ("bias", bias)):
        if value is not None or arg != "bias":
            check_variable(value, arg, "linear")
    helper = LayerNamer("linear", name)
    result: Variable = helper.emit("matmul_v2", {"X": x, "Y": weight})
    if bias is not None:
        # Two ops, as in Paddle: fusions look for a product that is followed by a sum.
        result = helper.emit("elementwise_add", {"X": result, "Y": bias}, {"axis": -1})
    return result


@export("tensor.addmm", "Variable.addmm", inplace=True)
def addmm(
    input: Variable, x: Variable, y: Variable, beta: float = 1.0, alpha: float = 1.0, name: str | None = None
) -> Variable:
    """Returns ``beta * input + alpha * (x @ y)``.

    Args:
        input: Broadcasts to ``[m, n]``.
        x: ``[m, k]``.
        y: ``[k, n]``.
        beta: Factor of ``input``.
        alpha: Factor of the product.
        name: Name of the layer.

    Raises:
        ShapeError: If ``x`` or ``y`` is not a matrix, or the shapes do not fit.
    """
    for arg, value in (("input", input), ("x", x), ("y", y)):
        check_variable(value, arg, "addmm")
    check_rank(x, 2, "x", "addmm")
    check_rank(y, 2, "y", "addmm")
    helper = LayerNamer("addmm", name)
    product = helper.emit("matmul_v2", {"X": x, "Y": y})
    if alpha != 1.0:
        product = helper.emit("scale", {"X": product}, {"scale": float(alpha)})
    if beta != 1.0:
        input = helper.emit("scale", {"X": input}, {"scale": float(beta)})
    result: Variable = helper.emit("elementwise_add", {"X": product, "Y": input})
    # A sum would also stretch the product to a larger input; Paddle refuses that.
    check_fit(
        result.shape == product.shape or UNKNOWN in result.shape, (x, y, input), ("x", "y", "input"),
        "'input' of addmm does not broadcast to the product",
        f"an input that broadcasts to {list(product.shape)}", "reshape 'input'", "addmm",
    )  # fmt: skip
    return result


@export("tensor.outer", "Variable.outer")
def outer(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns the products ``[m, n]`` of all elements of ``x`` (``m`` of them, any shape) with all of ``y`` (``n``).

    Args:
        x, y: Any shapes, one dtype.
        name: Name of the layer.
    """
    check_variable(x, "x", "outer")
    check_variable(y, "y", "outer")
    helper = LayerNamer("outer", name)
    column = helper.emit("reshape2", {"X": x}, {"shape": (-1, 1)})
    row = helper.emit("reshape2", {"X": y}, {"shape": (1, -1)})
    result: Variable = helper.emit("matmul_v2", {"X": column, "Y": row})
    return result


@export("tensor.inner", "Variable.inner")
def inner(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns the sums of products along the last axes.

    Args:
        x: ``[a..., k]``, or ``[]``.
        y: ``[b..., k]``, or ``[]``.
        name: Name of the layer.

    Returns:
        ``[a..., b...]``; the plain product when one operand has rank 0.
    """
    check_variable(x, "x", "inner")
    check_variable(y, "y", "inner")
    helper = LayerNamer("inner", name)
    # Of a scalar there is no last axis: it scales.
    if not x.shape or not y.shape:
        scaled: Variable = helper.emit("elementwise_mul", {"X": x, "Y": y})
        return scaled
    flat = [v if len(v.shape) <= 2 else helper.emit("reshape2", {"X": v}, {"shape": (-1, v.shape[-1])}) for v in (x, y)]
    # As a vector the second operand is not transposed.
    result: Variable = helper.emit("matmul_v2", {"X": flat[0], "Y": flat[1]}, {"trans_y": len(y.shape) > 1})
    if len(x.shape) > 2 or len(y.shape) > 2:
        shape = (*x.shape[:-1], *y.shape[:-1])
        check_fit(
            shape.count(UNKNOWN) <= 1, (x, y), ("x", "y"), "inner cannot restore more than one unknown size",
            "at most one unknown size before the last axes", "reshape the operands to matrices first", "inner",
        )  # fmt: skip
        result = helper.emit("reshape2", {"X": result}, {"shape": shape})
    return result


@export("nn.functional.bilinear")
def bilinear(
    x1: Variable, x2: Variable, weight: Variable, bias: Variable | None = None, name: str | None = None
) -> Variable:
    """Returns ``out[n, k] = sum_ij x1[n, i] * weight[k, i, j] * x2[n, j] + bias[k]``.

    Args:
        x1: ``[n, i]``.
        x2: ``[n, j]``.
        weight: ``[k, i, j]``, with known sizes.
        bias: ``[1, k]`` or ``[k]``, or ``None``.
        name: Name of the layer.

    Returns:
        ``[n, k]``.
    """
    for arg, value, rank in (("x1", x1, 2), ("x2", x2, 2), ("weight", weight, 3)):
        check_rank(check_variable(value, arg, "bilinear"), rank, arg, "bilinear")
    if bias is not None:
        check_variable(bias, "bias", "bilinear")
    return bilinear_product(LayerNamer("bilinear", name), x1, x2, weight, bias)


def bilinear_product(
    helper: LayerNamer, x1: Variable, x2: Variable, weight: Variable, bias: Variable | None
) -> Variable:
    """Emits :func:`bilinear`; the result is named after ``helper``'s layer."""
    k, i, j = weight.shape
    # One product for all k: x1 with the k matrices side by side, instead of a batch of k.
    turned = emit_one("transpose2", {"X": weight}, {"axis": (1, 0, 2)})
    wide = emit_one("reshape2", {"X": turned}, {"shape": (i, k * j)})
    half = emit_one("reshape2", {"X": emit_one("matmul_v2", {"X": x1, "Y": wide})}, {"shape": (-1, k, j)})
    column = emit_one("unsqueeze2", {"X": x2}, {"axes": (2,)})
    out = emit_one("matmul_v2", {"X": half, "Y": column})
    last = {"X": out}, {"axes": (2,)}
    if bias is None:
        result: Variable = helper.emit("squeeze2", *last, drop=("XShape",))
    else:
        result = helper.emit("elementwise_add", {"X": emit_one("squeeze2", *last), "Y": bias})
    return result


@export("nn.functional.cosine_similarity")
def cosine_similarity(x1: Variable, x2: Variable, axis: int = 1, eps: float | Variable = 1e-8) -> Variable:
    """Returns ``sum(x1 * x2) / sqrt(max(sum(x1 * x1) * sum(x2 * x2), eps ** 2))`` along an axis, which is dropped.

    Args:
        x1, x2: Floats of shapes that broadcast.
        axis: Along which vectors lie.
        eps: Least product of the two lengths: a number, or a Variable of one.

    Example:
        >>> a, b = paddle.to_tensor([[1.0, 0.0], [1.0, 1.0]]), paddle.to_tensor([[0.0, 2.0], [3.0, 3.0]])
        >>> y = paddle.nn.functional.cosine_similarity(a, b, axis=1)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([0., 1.], dtype=float32)
    """
    check_variable(x1, "x1", "cosine_similarity")
    check_variable(x2, "x2", "cosine_similarity")
    sums = []
    for a, b in ((x1, x2), (x1, x1), (x2, x2)):
        product = emit_one("elementwise_mul", {"X": a, "Y": b})
        sums.append(emit_one("reduce_sum", {"X": product}, {"dim": (axis,)}))
    square = emit_one("elementwise_mul", {"X": sums[1], "Y": sums[2]})
    # Below eps both are taken for zero vectors, with a cosine of 0.
    square = clip(square, min=eps * eps)
    return emit_one("elementwise_div", {"X": sums[0], "Y": emit_one("sqrt", {"X": square})})


@export("fluid.layers.cos_sim")
def cos_sim(X: Variable, Y: Variable) -> Variable:
    """Returns the cosine of the angle between rows, ``[n, 1]``: ``X`` is ``[n, k]``, ``Y`` ``[n, k]`` or ``[1, k]``.

    Args:
        X, Y: Floats, ``[n, k]``; of more dimensions all but the first are one row. A single row in ``Y`` is compared
            with every row.

    Raises:
        ShapeError: If the shapes do not broadcast.
    """
    check_variable(X, "X", "cos_sim")
    check_variable(Y, "Y", "cos_sim")
    helper = LayerNamer("cos_sim")
    sums = []
    for a, b in ((X, Y), (X, X), (Y, Y)):
        product = helper.emit("elementwise_mul", {"X": a, "Y": b})
        attrs = {"dim": tuple(range(1, len(a.shape))), "keep_dim": True}
        sums.append(helper.emit("reduce_sum", {"X": product}, attrs))
    # Two roots: the product of the squares overflows float32 where each is above 1.8e19.
    norms = [helper.emit("sqrt", {"X": s}) for s in sums[1:]]
    size = helper.emit("elementwise_mul", {"X": norms[0], "Y": norms[1]})
    result: Variable = helper.emit("elementwise_div", {"X": sums[0], "Y": size})
    if len(result.shape) > 2:
        result = helper.emit("reshape2", {"X": result}, {"shape": (-1, 1)})
    return result
