"""Legal calls of what lies beside the tensor functions: transforms, graphs, distributions, regions, sequences, recurrent layers."""

from __future__ import annotations

from typing import Any

from tests.parity.samples import Data, c, dist, f, i, layer, make, v

LOW = {"low": 0.5, "high": 3.0}


def z(*shape: int, **more: Any) -> Data:
    """A fed complex tensor."""
    return f(*shape, dtype="complex64", **more)


def rows(*shape: int, lod: list[list[int]], **more: Any) -> Data:
    """A fed tensor of rows that belong to sequences of these lengths."""
    return f(*shape, lod=lod, fixed=1, **more)


def words(values: list[Any], lod: list[list[int]], dtype: str = "int64") -> Data:
    """Fed integers that belong to sequences of these lengths."""
    return v(values, dtype, lod=lod, fixed=1)


def way(name: str, *init: Any, **init_kwargs: Any) -> Any:
    """A method or property of an object made with these arguments; the result is called with those of the method."""
    return lambda *args, **kwargs: {
        "init": list(init),
        "init_kwargs": init_kwargs,
        "args": list(args),
        "kwargs": kwargs,
        "method": name,
    }


# ---------------------------------------------------------------------------------------------------------------- numbers
FRAMES: dict[str, list[Data]] = {
    "signal.frame": [c(f(2, 9), 4, 2), c(f(9, 2, fixed=1), 3, 3, 0), c(i(2, 7, high=9), 3, 1), c(f(2, 9), 4, 0)],
    "signal.overlap_add": [c(f(2, 4, 3), 2), c(f(3, 4, 2, fixed=1), 3, 0), c(f(4, 3, fixed=1), 5), c(f(2, 4, 3), 0)],
}
FUSED: dict[str, list[Data]] = {
    "incubate.nn.functional.fused_dropout_add": [c(f(2, 3), f(2, 3), 0.0), c(f(2, 3), f(2, 3), 0.0, False)],
    "incubate.nn.functional.fused_linear": [c(f(2, 3), f(3, 4, fixed=1))],
    "incubate.nn.functional.fused_matmul_bias": [
        c(f(2, 3), f(3, 4, fixed=1)),
        c(f(3, 2, fixed=1), f(4, 3, fixed=1), None, True, True),
    ],
}
COMPLEX: dict[str, list[Data]] = {
    "angle": [c(z(2, 3)), c(f(2, 3))],
    "as_complex": [c(f(3, 2))],
    "as_real": [c(z(2, 3))],
    "complex": [c(f(2, 3), f(2, 3)), c(f(2, 3), f(3, fixed=1))],
    "conj": [c(z(2, 3)), c(f(2, 3))],
    "imag": [c(z(2, 3))],
    "polar": [c(f(2, 3, low=0.5), f(2, 3))],
    "real": [c(z(2, 3))],
    "linalg.eigvals": [c(v([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]]))],
}
_ONE = {
    name: [
        c(make_(2, 6)),
        c(make_(2, 6), n),
        c(make_(6, 2), axis=0),
        *(c(make_(2, 6), norm=how) for how in ("ortho", "forward")),
    ]
    for names, make_, n in (
        (("fft", "ifft"), z, 4),
        (("rfft", "ihfft"), f, 4),
        (("irfft", "hfft"), z, 7),
    )
    for name in names
}
_MANY = {
    name: [
        c(make_(2, 3, 4)),
        c(make_(2, 3, 4), axes=[0, 1]),
        c(make_(2, 3, 4), s=[2, 5]),
        c(make_(2, 3, 4), norm="ortho"),
    ]
    for names, make_ in ((("fft2", "ifft2", "irfft2", "hfft2"), z), (("rfft2", "ihfft2"), f))
    for name in names
} | {
    name: [
        c(make_(2, 3, 4)),
        c(make_(2, 3, 4), axes=[1, 2]),
        c(make_(2, 3, 4), [3, 4], [0, 2]),
        c(make_(2, 3, 4), norm="forward"),
    ]
    for names, make_ in ((("fftn", "ifftn", "irfftn", "hfftn"), z), (("rfftn", "ihfftn"), f))
    for name in names
}
FOURIER: dict[str, list[Data]] = {
    **{f"fft.{name}": calls for name, calls in (_ONE | _MANY).items()},
    "fft.fft": [*_ONE["fft"], c(f(2, 6))],
    "fft.fftshift": [c(f(2, 5)), c(f(2, 5), 1), c(z(2, 4))],
    "fft.ifftshift": [c(f(2, 5)), c(f(2, 5), [0]), c(z(2, 4))],
    "fft.fftfreq": [c(5), c(6, 0.5), c(4, dtype="float64")],
    "fft.rfftfreq": [c(5), c(6, 0.5), c(4, dtype="float64")],
    "signal.stft": [
        c(f(2, 16), 8),
        c(f(2, 16), 8, 4, 6, f(6, low=0.5, fixed=1)),
        c(f(2, 16), 8, center=False, onesided=False),
        c(f(2, 16), 8, pad_mode="constant", normalized=True),
        c(z(2, 16), 8, onesided=False),
    ],
    "signal.istft": [
        c(z(2, 5, 7), 8),
        c(z(2, 5, 7), 8, 4, 8, f(8, low=0.5, fixed=1, stop=1)),
        c(z(2, 5, 7), 8, normalized=True, length=10),
        c(z(2, 8, 7), 8, onesided=False, return_complex=True),
        c(z(2, 5, 7), 8, center=False),
    ],
}

# ----------------------------------------------------------------------------------------------------------------- graphs
IDS = v([0, 0, 1, 3, 3], "int64", fixed=1)
FROM, TO = v([0, 1, 2, 0], "int64", fixed=1), v([1, 2, 1, 0], "int64", fixed=1)
EDGES = v([3, 7, 0, 9, 1, 4, 2, 9, 3, 9, 1, 9, 7], "int64", fixed=1)
STARTS = v([0, 2, 4, 5, 6, 7, 9, 11, 11, 13, 13], "int64", fixed=1)
CENTERS = v([0, 8, 1, 2], "int64", fixed=1)
GRAPHS: dict[str, list[Data]] = {
    **{
        f"geometric.segment_{how}": [c(f(5, 3, fixed=1), IDS), c(i(5, 3, high=9, fixed=1), IDS)]
        for how in ("sum", "mean", "min", "max")
    },
    "geometric.send_u_recv": [
        *(c(f(3, 4, fixed=1), FROM, TO, how) for how in ("sum", "mean", "max", "min")),
        c(f(3, 4, fixed=1), FROM, TO, out_size=4),
    ],
    "geometric.send_ue_recv": [
        *(
            c(f(3, 4, fixed=1), f(4, 4, high=1.0, fixed=1), FROM, TO, message, how)
            for message in ("add", "sub", "mul", "div")
            for how in ("sum", "max")
        ),
        c(f(3, 4, fixed=1), f(4, 1, fixed=1), FROM, TO, "add", "mean", 4),
        c(f(3, 4, fixed=1), f(4, 1, fixed=1), FROM, TO, "mul", "min"),
    ],
    "geometric.send_uv": [
        c(f(3, 4, fixed=1), f(3, 4, low=0.5, fixed=1), FROM, TO, m) for m in ("add", "sub", "mul", "div")
    ],
    "geometric.reindex_graph": [
        c(v([0, 1, 2], "int64", fixed=1), v([8, 9, 0, 4, 7, 6, 7], "int64", fixed=1), v([2, 3, 2], "int32", fixed=1))
    ],
    "geometric.reindex_heter_graph": [
        c(
            v([0, 1, 2], "int64", fixed=1),
            [v([8, 9, 0, 4, 7, 6, 7], "int64", fixed=1), v([0, 2, 3, 5, 1], "int64", fixed=1)],
            [v([2, 3, 2], "int32", fixed=1), v([1, 3, 1], "int32", fixed=1)],
        ),
    ],
    "geometric.sample_neighbors": [
        c(EDGES, STARTS, CENTERS),
        c(EDGES, STARTS, CENTERS, eids=v(list(range(20, 33)), "int64", fixed=1), return_eids=True),
    ],
    "geometric.weighted_sample_neighbors": [c(EDGES, STARTS, f(13, low=0.1, fixed=1, stop=1), CENTERS)],
    "incubate.graph_send_recv": [c(f(3, 4, fixed=1), FROM, TO, how) for how in ("sum", "mean", "max", "min")],
    "incubate.graph_reindex": [
        c(v([0, 1, 2], "int64", fixed=1), v([8, 9, 0, 4, 7, 6, 7], "int64", fixed=1), v([2, 3, 2], "int32", fixed=1))
    ],
    "incubate.graph_sample_neighbors": [c(EDGES, STARTS, CENTERS)],
    "incubate.identity_loss": [c(f(2, 3), how) for how in ("none", "mean", "sum", 0, "nothing")],
    "incubate.softmax_mask_fuse": [c(f(2, 8, 3, 32), f(2, 1, 3, 32, stop=1))],
    "incubate.softmax_mask_fuse_upper_triangle": [c(f(2, 4, 32, 32))],
}

# ---------------------------------------------------------------------------------------------------------- distributions
_PLACE = {"loc": f(2, 3), "scale": f(2, 3, **LOW)}
_MADE: dict[str, tuple[list[Any], list[Any], Data]] = {
    "Normal": (list(_PLACE.values()), [f(2, 3), f(2, 3, **LOW)], f(2, 3)),
    "LogNormal": (list(_PLACE.values()), [f(2, 3), f(2, 3, **LOW)], f(2, 3, **LOW)),
    "Laplace": (list(_PLACE.values()), [f(2, 3), f(2, 3, **LOW)], f(2, 3)),
    "Gumbel": (list(_PLACE.values()), [], f(2, 3)),
    "Cauchy": (list(_PLACE.values()), [f(2, 3), f(2, 3, **LOW)], f(2, 3)),
    "Uniform": ([f(2, 3, low=-3, high=-2), f(2, 3, low=2, high=3)], [], f(2, 3, low=-1, high=1)),
    "Beta": ([f(2, 3, **LOW), f(2, 3, **LOW)], [f(2, 3, **LOW), f(2, 3, **LOW)], f(2, 3, low=0.1, high=0.9)),
    "Dirichlet": ([f(2, 3, **LOW)], [f(2, 3, **LOW)], dist(2, 3)),
    "Categorical": ([f(2, 3, **LOW)], [f(2, 3, **LOW)], v([2, 0], "int64", fixed=1)),
    "Multinomial": ([5, dist(2, 3)], [], v([[1.0, 3.0, 1.0], [0.0, 2.0, 3.0]], fixed=1, stop=1)),
    "Bernoulli": (
        [f(2, 3, low=0.2, high=0.8)],
        [f(2, 3, low=0.2, high=0.8)],
        v([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]], fixed=1, stop=1),
    ),
    "Geometric": ([f(2, 3, low=0.2, high=0.8)], [f(2, 3, low=0.2, high=0.8)], i(2, 3, high=3)),
}


def _distribution(name: str) -> list[Data]:
    init, other, value = _MADE[name]
    path = f"distribution.{name}"
    found = [way("entropy", *init)(), way("mean", *init)(), way("variance", *init)(), way("log_prob", *init)(value)]
    found += [way("prob" if name != "Geometric" else "pmf", *init)(value)]
    if other:
        found += [way("kl_divergence", *init)(make(path, *other))]
    if name in ("Normal", "Laplace", "Gumbel", "LogNormal", "Cauchy", "Bernoulli"):
        found += [way("cdf", *init)(value)] if name in ("Laplace", "Cauchy", "Bernoulli", "Gumbel") else []
    return found


_TRANSFORMS: dict[str, tuple[list[Any], Data, Data]] = {
    "AbsTransform": ([], f(2, 3), f(2, 3, **LOW)),
    "AffineTransform": ([f(3, fixed=1), f(3, low=0.5, fixed=1)], f(2, 3), f(2, 3)),
    "ChainTransform": (
        [[make("distribution.ExpTransform"), make("distribution.PowerTransform", f(1, low=2.0, fixed=1, stop=1))]],
        f(2, 3),
        f(2, 3, **LOW),
    ),
    "ExpTransform": ([], f(2, 3), f(2, 3, **LOW)),
    "IndependentTransform": ([make("distribution.ExpTransform"), 1], f(2, 3), f(2, 3, **LOW)),
    "PowerTransform": ([f(1, low=2.0, fixed=1)], f(2, 3, **LOW), f(2, 3, **LOW)),
    "ReshapeTransform": ([{"tuple": [2, 3]}, {"tuple": [3, 2]}], f(4, 2, 3), f(4, 3, 2)),
    "SigmoidTransform": ([], f(2, 3), f(2, 3, low=0.1, high=0.9)),
    "SoftmaxTransform": ([], f(2, 3), dist(2, 3)),
    "StackTransform": (
        [[make("distribution.ExpTransform"), make("distribution.TanhTransform")], 1],
        f(3, 2),
        f(3, 2, low=0.1, high=0.9),
    ),
    "StickBreakingTransform": ([], f(2, 3), dist(2, 4)),
    "TanhTransform": ([], f(2, 3), f(2, 3, low=-0.9, high=0.9)),
}
_NORMAL = make("distribution.Normal", f(2, 3), f(2, 3, **LOW))
DISTRIBUTIONS: dict[str, list[Data]] = {
    **{f"distribution.{name}": _distribution(name) for name in _MADE},
    **{
        f"distribution.{name}": [
            way("forward", *init)(x),
            way("inverse", *init)(y),
            way("forward_log_det_jacobian", *init)(x),
            way("inverse_log_det_jacobian", *init)(y),
        ]
        for name, (init, x, y) in _TRANSFORMS.items()
    },
    "distribution.Independent": [
        way(name, _NORMAL, 1)(*args)
        for name, args in (
            ("entropy", []),
            ("mean", []),
            ("variance", []),
            ("log_prob", [f(2, 3)]),
            ("prob", [f(2, 3)]),
        )
    ],
    "distribution.TransformedDistribution": [
        way("log_prob", _NORMAL, [make("distribution.ExpTransform")])(f(2, 3, **LOW)),
        way("prob", _NORMAL, [make("distribution.ExpTransform")])(f(2, 3, **LOW)),
        way("log_prob", _NORMAL, [make("distribution.AffineTransform", f(1, fixed=1), f(1, low=0.5, fixed=1))])(
            f(2, 3)
        ),
    ],
    "distribution.kl_divergence": [
        c(make(f"distribution.{n}", *o), make(f"distribution.{n}", *p)) for n, (o, p, _) in _MADE.items() if p
    ],
}

# ---------------------------------------------------------------------------------------------------------------- regions
BOXES = v([[0.5, 1.0, 6.0, 5.0], [2.0, 0.0, 5.0, 8.0], [-1.0, 2.0, 3.0, 6.0]], fixed=1, stop=1)
NUMBERS = v([2, 1], "int32", fixed=1)
CORNERS = v(
    [[0.0, 0.0, 4.0, 4.0], [0.5, 0.5, 4.5, 4.0], [5.0, 5.0, 8.0, 8.0], [5.0, 5.5, 8.0, 8.5], [1.0, 6.0, 2.0, 9.0]],
    fixed=1,
    stop=1,
)
ANCHORS = [10, 13, 16, 30, 33, 23]
REGIONS: dict[str, list[Data]] = {
    "vision.ops.deform_conv2d": [
        c(f(2, 2, 5, 4), f(2, 8, 4, 3), f(3, 2, 2, 2, fixed=1)),
        c(f(2, 2, 5, 4), f(2, 8, 4, 3), f(3, 2, 2, 2, fixed=1), f(3, fixed=1), mask=f(2, 4, 4, 3, low=0.1)),
        c(f(1, 4, 4, 4), f(1, 36, 2, 2), f(2, 2, 3, 3, fixed=1), None, 2, 1, 1, 2, 2, f(1, 18, 2, 2, low=0.1)),
        c(f(2, 2, 5, 4), f(2, 8, 4, 2), f(3, 2, 2, 2, fixed=1), dilation=[1, 2]),
    ],
    "vision.ops.DeformConv2D": [
        layer(2, 3, 2)(f(2, 2, 5, 4), f(2, 8, 4, 3)),
        layer(2, 3, 2, bias_attr=False)(f(2, 2, 5, 4), f(2, 8, 4, 3), f(2, 4, 4, 3, low=0.1)),
    ],
    "vision.ops.roi_align": [
        c(f(2, 3, 6, 5), BOXES, NUMBERS, 2),
        c(f(2, 3, 6, 5), BOXES, NUMBERS, {"tuple": [2, 3]}, 0.7),
        c(f(2, 3, 6, 5), BOXES, NUMBERS, 2, sampling_ratio=3, aligned=False),
    ],
    "vision.ops.RoIAlign": [layer(2)(f(2, 3, 6, 5), BOXES, NUMBERS), layer(2, 0.8)(f(2, 3, 6, 5), BOXES, NUMBERS)],
    "vision.ops.roi_pool": [
        c(f(2, 3, 6, 5), BOXES, NUMBERS, 2),
        c(f(2, 3, 6, 5), BOXES, NUMBERS, {"tuple": [2, 3]}, 0.7),
    ],
    "vision.ops.RoIPool": [layer(2)(f(2, 3, 6, 5), BOXES, NUMBERS), layer(2, 0.8)(f(2, 3, 6, 5), BOXES, NUMBERS)],
    "vision.ops.psroi_pool": [
        c(f(2, 12, 6, 5), BOXES, NUMBERS, 2),
        c(f(2, 12, 6, 5), BOXES, NUMBERS, {"tuple": [2, 3]}, 0.7),
    ],
    "vision.ops.PSRoIPool": [layer(2)(f(2, 12, 6, 5), BOXES, NUMBERS), layer(2, 0.8)(f(2, 12, 6, 5), BOXES, NUMBERS)],
    "vision.ops.box_coder": [
        c(CORNERS, [0.1, 0.1, 0.2, 0.2], BOXES),
        c(CORNERS, f(5, 4, low=0.1, high=0.5, fixed=1, stop=1), BOXES, box_normalized=False),
        c(CORNERS, [0.1, 0.1, 0.2, 0.2], f(3, 5, 4, fixed=1, stop=1), "decode_center_size"),
        c(BOXES, [0.1, 0.1, 0.2, 0.2], f(3, 5, 4, fixed=1, stop=1), "decode_center_size", axis=1),
    ],
    "vision.ops.nms": [
        c(CORNERS, 0.2),
        c(CORNERS, 0.2, v([0.3, 0.9, 0.2, 0.5, 0.6], fixed=1, stop=1)),
        c(CORNERS, 0.2, v([0.3, 0.9, 0.2, 0.5, 0.6], fixed=1, stop=1), v([0, 1, 0, 0, 1], "int64", fixed=1), [0, 1], 2),
    ],
    "vision.ops.matrix_nms": [
        c(f(2, 8, 4, low=0.0, stop=1), f(2, 3, 8, low=0.0, high=1.0, stop=1), 0.2, 0.1, 6, 7, return_index=True),
        c(
            f(2, 8, 4, low=0.0, stop=1),
            f(2, 3, 8, low=0.0, high=1.0, stop=1),
            0.2,
            0.0,
            -1,
            5,
            True,
            3.0,
            -1,
            False,
            True,
        ),
    ],
    "vision.ops.distribute_fpn_proposals": [
        c(CORNERS, 2, 5, 4, 4),
        c(CORNERS, 2, 5, 4, 4, True, v([3, 2], "int32", fixed=1)),
    ],
    "vision.ops.prior_box": [
        c(f(1, 2, 2, 3, stop=1), f(1, 3, 9, 8, stop=1), [2.0, 4.0], [5.0, 6.0], [1.0, 2.0], flip=True, clip=True),
        c(
            f(1, 2, 2, 3, stop=1),
            f(1, 3, 9, 8, stop=1),
            [2.0],
            [5.0],
            [2.0, 0.5],
            [0.2] * 4,
            steps=[3.0, 4.0],
            offset=0.25,
            min_max_aspect_ratios_order=True,
        ),
    ],
    "vision.ops.yolo_box": [
        c(f(2, 21, 3, 3, stop=1), v([[60, 50], [64, 96]], "int32", fixed=1), ANCHORS, 2, 0.3, 32),
        c(f(1, 21, 3, 3, stop=1), v([[60, 50]], "int32", fixed=1), ANCHORS, 2, 0.01, 32, False, None, 1.2),
        c(
            f(1, 24, 2, 3, stop=1),
            v([[60, 50]], "int32", fixed=1),
            ANCHORS,
            2,
            0.3,
            32,
            iou_aware=True,
            iou_aware_factor=0.4,
        ),
    ],
    "vision.ops.yolo_loss": [
        c(
            f(1, 14, 3, 3),
            v([[[0.2, 0.2, 0.1, 0.15], [0.5, 0.6, 0.4, 0.2]]], fixed=1, stop=1),
            v([[0, 1]], "int32", fixed=1),
            ANCHORS,
            [0, 2],
            2,
            0.3,
            32,
        ),
        c(
            f(1, 14, 3, 3),
            v([[[0.2, 0.2, 0.1, 0.15], [0.5, 0.6, 0.4, 0.2]]], fixed=1, stop=1),
            v([[0, 1]], "int32", fixed=1),
            ANCHORS,
            [0, 1],
            2,
            0.3,
            32,
            v([[0.7, 0.2]], fixed=1, stop=1),
            False,
            None,
            1.1,
        ),
    ],
    "vision.ops.generate_proposals": [
        c(
            f(1, 3, 3, 3, low=0.0, high=1.0, stop=1),
            f(1, 12, 3, 3, stop=1),
            v([[8.0, 7.0]], fixed=1, stop=1),
            f(3, 3, 3, 4, low=0.0, high=8.0, fixed=1, stop=1),
            f(3, 3, 3, 4, low=0.5, high=1.0, fixed=1, stop=1),
            20,
            6,
            0.4,
            0.5,
            return_rois_num=True,
        ),
    ],
}

# -------------------------------------------------------------------------------------------------------------- sequences
SIX = [[2, 1, 3]]
_X = rows(6, 3, lod=SIX)
SEQUENCES: dict[str, list[Data]] = {
    "sequence_concat": [c([rows(6, 3, lod=SIX), rows(4, 3, lod=[[1, 1, 2]])])],
    "sequence_conv": [c(_X, 4), c(_X, 4, 2, padding_start=-1, act="tanh"), c(_X, 4, bias_attr=False)],
    "sequence_enumerate": [
        c(words([[1], [2], [3], [4], [5], [6]], SIX), 2),
        c(words([[1], [2], [3], [4], [5], [6]], SIX), 3, 9),
    ],
    "sequence_expand": [
        c(rows(3, 2, lod=[[1, 1, 1]]), rows(6, 3, lod=SIX)),
        c(f(3, 2, fixed=1), rows(6, 3, lod=SIX), 0),
    ],
    "sequence_expand_as": [c(f(3, 2, fixed=1), rows(6, 3, lod=SIX))],
    "sequence_first_step": [c(_X)],
    "sequence_last_step": [c(_X)],
    "sequence_pad": [c(_X, v([0.5], fixed=1, stop=1)), c(_X, v([0.0], fixed=1, stop=1), 5)],
    "sequence_pool": [c(_X, how) for how in ("average", "sum", "sqrt", "max", "first", "last")]
    + [c(rows(6, 3, lod=[[2, 0, 4]]), "max", pad_value=1.5)],
    "sequence_reshape": [c(rows(6, 4, lod=[[2, 4]]), 2)],
    "sequence_reverse": [c(_X)],
    "sequence_scatter": [c(f(3, 5, fixed=1), words([[0], [2], [1], [0], [4], [2]], SIX), rows(6, 1, lod=SIX))],
    "sequence_slice": [c(_X, v([[0], [0], [1]], "int64", fixed=1), v([[1], [1], [2]], "int64", fixed=1))],
    "sequence_softmax": [c(rows(6, 1, lod=SIX))],
    "sequence_unpad": [c(f(3, 4, 2, fixed=1), v([2, 1, 4], "int64", fixed=1))],
    "row_conv": [c(rows(6, 3, lod=SIX), 2), c(rows(6, 3, lod=SIX), 1, act="tanh")],
}

# -------------------------------------------------------------------------------------------------------- layers and losses
_TIMES = f(2, 5, 3)
RECURRENT: dict[str, list[Data]] = {
    "nn.SimpleRNNCell": [
        layer(3, 4)(f(2, 3)),
        layer(3, 4, "relu")(f(2, 3), f(2, 4)),
        layer(3, 4, bias_hh_attr=False)(f(2, 3)),
    ],
    "nn.GRUCell": [layer(3, 4)(f(2, 3)), layer(3, 4)(f(2, 3), f(2, 4)), layer(3, 4, bias_ih_attr=False)(f(2, 3))],
    "nn.LSTMCell": [layer(3, 4)(f(2, 3)), layer(3, 4)(f(2, 3), {"tuple": [f(2, 4), f(2, 4)]})],
    "nn.RNN": [
        layer(make("nn.GRUCell", 3, 4))(_TIMES),
        layer(make("nn.SimpleRNNCell", 3, 4), True)(_TIMES),
        layer(make("nn.LSTMCell", 3, 4), time_major=True)(f(5, 2, 3, fixed=1)),
    ],
    "nn.BiRNN": [
        layer(make("nn.LSTMCell", 3, 4), make("nn.LSTMCell", 3, 4))(_TIMES),
        layer(make("nn.GRUCell", 3, 4), make("nn.GRUCell", 3, 4), True)(f(5, 2, 3, fixed=1)),
    ],
}
_CTC = (
    f(5, 2, 4, fixed=1),
    v([[1, 2], [3, 1]], "int32", fixed=1),
    v([5, 4], "int64", fixed=1),
    v([2, 1], "int64", fixed=1),
)
_CTC_LAST = (_CTC[0], v([[1, 2], [0, 1]], "int32", fixed=1), *_CTC[2:])
_SCORES = f(2, 4, 3)
LOSSES: dict[str, list[Data]] = {
    "nn.functional.ctc_loss": [
        c(*_CTC),
        c(*_CTC, reduction="none"),
        c(*_CTC, reduction="sum"),
        c(*_CTC_LAST, 3, norm_by_times=True),
        c(*_CTC, reduction="nothing"),
    ],
    "nn.CTCLoss": [layer()(*_CTC), layer(3, "sum")(*_CTC_LAST), layer(reduction="none")(*_CTC, norm_by_times=True)],
    "nn.functional.gather_tree": [
        c(i(3, 2, 2, high=9, fixed=1), v([[[0, 0], [1, 1]], [[1, 0], [1, 0]], [[0, 0], [0, 1]]], "int64", fixed=1))
    ],
    "nn.functional.sequence_mask": [
        c(i(3, low=1, high=4)),
        c(i(3, low=1, high=4), 5),
        c(i(3, low=1, high=4), 5, "float32"),
    ],
    "text.viterbi_decode": [
        c(_SCORES, f(3, 3, fixed=1), v([4, 3], "int64", fixed=1)),
        c(_SCORES, f(3, 3, fixed=1), v([4, 3], "int64", fixed=1), False),
    ],
    "text.ViterbiDecoder": [
        layer(f(3, 3, fixed=1))(_SCORES, v([4, 3], "int64", fixed=1)),
        layer(f(3, 3, fixed=1), False)(_SCORES, v([4, 3], "int64", fixed=1)),
    ],
}
STATIC: dict[str, list[Data]] = {
    **{f"static.nn.{name}": calls for name, calls in SEQUENCES.items()},
    "static.nn.data_norm": [
        c(f(3, 4)),
        c(f(3, 4), epsilon=0.0005, slot_dim=2),
        c(
            f(3, 4),
            enable_scale_and_shift=True,
            param_attr={
                "dict": {"scale_w": 2.0, "bias": 0.5, "batch_size": 10.0, "batch_sum": 1.0, "batch_square": 20.0}
            },
        ),
    ],
    "static.nn.deform_conv2d": [
        c(f(2, 2, 5, 4), f(2, 8, 4, 3), f(2, 4, 4, 3, low=0.1), 3, 2),
        c(f(2, 2, 5, 4), f(2, 8, 4, 3), None, 3, 2, bias_attr=False),
    ],
    "static.auc": [c(dist(4, 2), i(4, 1, high=1))],
    "static.ctr_metric_bundle": [c(f(4, 1, low=0.1, high=0.9, stop=1), i(4, 1, high=1))],
}

SAMPLES = {
    **COMPLEX,
    **FRAMES,
    **FUSED,
    **FOURIER,
    **GRAPHS,
    **DISTRIBUTIONS,
    **REGIONS,
    **RECURRENT,
    **LOSSES,
    **STATIC,
}
"""Public path below `paddle` -> its calls."""
