"""Products of feature maps: how two layers of a network go together (Yim et al., 2017)."""

from __future__ import annotations

from tstatic.ir.build import check_variable
from tstatic.ir.checks import FLOATS, check_rank, check_same_dtype, check_static_dim, same_shape
from tstatic.ir.export import export
from tstatic.ir.program import Variable
from tstatic.ir.shape_checks import check_fit
from tstatic.ops.matmul.matmul import matmul
from tstatic.ops.shape.reshape import flatten


@export("fluid.layers.fsp_matrix")
def fsp_matrix(x: Variable, y: Variable) -> Variable:
    """Returns the mean over all pixels of the products of each channel of ``x`` with each of ``y``.

    Args:
        x: ``[batch, c, h, w]``; floats, ``h`` and ``w`` known.
        y: ``[batch, d, h, w]`` of the same dtype.

    Returns:
        ``[batch, c, d]``.

    Raises:
        ShapeError, DTypeError: If the values do not fit together.

    Example:
        >>> m = fluid.layers.fsp_matrix(paddle.full([1, 2, 4, 4], 3.0), paddle.full([1, 1, 4, 4], 2.0))
        >>> static.Executor().run(fetch_list=[m])[0].tolist()
        [[[6.0], [6.0]]]
    """
    function = "fsp_matrix"
    for value, arg in ((x, "x"), (y, "y")):
        check_rank(check_variable(value, arg, function, FLOATS), 4, arg, function, layout="[batch, channels, h, w]")
    check_same_dtype((x, y), ("x", "y"), function)
    check_fit(
        same_shape(x.shape[2:], y.shape[2:]), (x, y), ("x", "y"), "the feature maps differ in their sizes",
        "equal heights and widths", "resize one of them", function,
    )  # fmt: skip
    pixels = [check_static_dim(size, x, "a size of the maps", function) for size in x.shape[2:]]
    # The factor after the product: there it scales channels x channels numbers, not pixels.
    product: Variable = matmul(flatten(x, 2), flatten(y, 2), transpose_y=True) * (1.0 / (pixels[0] * pixels[1]))
    return product
