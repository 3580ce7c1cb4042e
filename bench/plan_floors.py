"""Single fusions at the shapes of the table of floors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from plan_count import Row, built, kernel_of, moved, paddle, rewritten, static, strategy

from tstatic.ir.operator import OpRole
from tstatic.target import DEFAULT_TARGET


def _act(name: str) -> Callable[[Any], Any]:
    found: Callable[[Any], Any] = getattr(paddle.nn.functional, name)
    return found


def build_program(
    compute: Callable[..., Any], given: Sequence[tuple[Sequence[int], str]], train: bool, last: bool = False
) -> Any:
    """Builds a function of inputs and, to train, all gradients; after the ``last`` op of a model nothing comes in between."""

    def build(_: Any) -> tuple[list[str], list[str]]:
        inputs = [static.data(f"x{i}", list(shape), dtype) for i, (shape, dtype) in enumerate(given)]
        floats = [v for v, (_, dtype) in zip(inputs, given, strict=True) if "float" in dtype]
        for v in floats:
            v.stop_gradient = False
        made = compute(*inputs)
        outs = list(made) if isinstance(made, tuple) else [made]
        if not train:
            return [v.name for v in inputs], [o.name for o in outs]
        # As the ops around it do in a model, these stand before and behind the gradients: no fusion takes them in.
        if last:
            fed = [static.data(f"start{i}", list(o.shape), o.dtype) for i, o in enumerate(outs)]
            inputs += fed
        starts = fed if last else [paddle.flip(o, [0]) for o in outs]
        wanted = [paddle.flip(g, [0]).name for g in static.gradients(outs, floats, starts) if g is not None]
        return [v.name for v in inputs], [*(o.name for o in outs), *wanted]

    return build


def floors() -> list[Row]:
    """Single fusions at the shapes of the table: each kernel's bytes against the formula."""
    rows: list[Row] = []
    big, e, half = (8192, 4096), 2, "bfloat16"
    n = e * math.prod(big)
    for act in ("relu", "gelu"):
        for form, other in (("full", big), ("bias", (4096,))):
            forward = 3 * n if form == "full" else 2 * n
            backward = 4 * n if (act, form) == ("gelu", "full") else 3 * n
            compute = lambda x, y, act=act: _act(act)(x + y)  # noqa: E731
            given = ((big, half), (other, half))
            switch = "fuse_elewise_add_act_ops"
            rows += _single(f"add+{act} {form}", compute, given, switch, (forward, backward))
            rows += _single(f"add+{act} {form}", compute, given, "enable_auto_fusion", (forward,))
    for layout, shape, residual in (
        ("NHWC", (256, 56, 56, 64), False),
        ("NCHW", (256, 64, 56, 56), False),
        ("NHWC", (256, 56, 56, 256), True),
        ("NCHW", (256, 256, 56, 56), True),
    ):
        label = f"BN{'+add' if residual else ''}+relu {layout}"

        def compute_norm(x: Any, z: Any = None, layout: str = layout) -> Any:
            y = static.nn.batch_norm(x, data_layout=layout)
            return _act("relu")(y if z is None else y + z)

        size = e * math.prod(shape)
        wanted = (4 * size, 7 * size) if residual else (3 * size, 5 * size)
        switch = "fuse_bn_add_act_ops" if residual else "fuse_bn_act_ops"
        rows += _single(label, compute_norm, ((shape, half),) * (1 + residual), switch, wanted)
    for m, width in ((32768, 768), (8192, 4096)):
        size = e * m * width

        def residual_norm(x: Any, z: Any) -> Any:
            h = x + z
            return h, static.nn.layer_norm(h, begin_norm_axis=1)

        given = (((m, width), half),) * 2
        rows += _single(f"residual+LN {m} x {width}", residual_norm, given, "build_cinn_pass", (4 * size, 4 * size))
    rows += _matrices()
    m, words = 8192, 50304

    def cross_entropy(x: Any, label: Any) -> Any:
        return paddle.nn.functional.softmax_with_cross_entropy(x, label)

    given = (((m, words), half), ((m, 1), "int64"))
    return rows + _single(
        f"CE {m} x {words} fwd+bwd", cross_entropy, given, "build_cinn_pass", (2 * e * m * words,), True
    )


def _matrices() -> list[Row]:
    """Products with what is around them: a layer whose activation keeps its argument, and a block of two with its gradient."""
    rows: list[Row] = []
    e, half = 2, "bfloat16"

    def layer(x: Any, w: Any, b: Any) -> Any:
        return _act("gelu")(paddle.matmul(x, w) + b)

    for m, k, n in ((32768, 768, 3072), (8192, 4096, 16384), (16384, 1024, 4096)):
        shapes = ((m, k), half), ((k, n), half), ((n,), half)
        # The library writes the argument, and a kernel reads it.
        least = e * (m * k + k * n + 3 * m * n)
        rows += _single(f"linear+bias+gelu {m} x {k} x {n}", layer, shapes, "fuse_gemm_epilogue", (least,), train=True)

    def block(x: Any, w: Any, b: Any, w2: Any, b2: Any) -> Any:
        return paddle.matmul(layer(x, w, b), w2) + b2

    m, d = 16384, 1024
    # With the argument of the activation, which its gradient reads; the second bias's gradient by itself. The library's products
    # between are written and read: the argument is, and backward what its gradient is made of.
    wide, narrow = m * d + 4 * d * d + 8 * m * d, 5 * m * d + 4 * d * d
    given = (((m, d), half), ((d, 4 * d), half), ((4 * d,), half), ((4 * d, d), half), ((d,), half))
    wanted = e * (wide + narrow + 4 * m * d), e * (wide + 3 * narrow + 9 * m * d)
    return rows + _single(f"feed-forward {m} x {d}", block, given, "fused_feedforward", wanted)


def _single(
    label: str,
    compute: Callable[..., Any],
    given: Sequence[tuple[Sequence[int], str]],
    switch: str,
    wanted: tuple[int, ...],
    together: bool = False,
    train: bool = False,
) -> list[Row]:
    """Forward and backward by themselves; the forward alone where one formula is given, or both added up.

    All ops but the flips around them count: fused ones, and alone those that state an expression. There is no row's kernel
    where another op is left over.
    """
    main, (feeds, fetches) = built(build_program(compute, given, len(wanted) > 1 or together or train, together))
    block = main.global_block()
    shapes_of = {f: [int(s) for s in block.var(f).shape] for f in feeds}
    _, ops, metas = rewritten(main, strategy(switch), shapes_of, fetches)
    ops = tuple(op for op in ops if op.type != "flip")
    found = []
    for direction, least in zip(("fwd", "bwd"), wanted, strict=False):
        mine = [op for op in ops if together or bool(op.role & OpRole.Backward) == (direction == "bwd")]
        kernels = [kernel for op in mine if (kernel := kernel_of(op, metas)) is not None]
        if len(kernels) < len(mine):
            kernels = []
        total = sum(moved(k) for k in kernels)
        found.append(
            {
                "what": label if together else f"{label} {direction}", "switch": switch, "kernels": len(kernels),
                "launches": sum(len(k.plan(DEFAULT_TARGET).launches) for k in kernels), "moved": total, "least": least,
                "ratio": total / least, "reads": [b.value for k in kernels for b in k.inputs],
                "writes": [b.value for k in kernels for b in k.outputs],
            }
        )  # fmt: skip
    return found
