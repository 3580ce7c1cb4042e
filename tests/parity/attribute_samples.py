"""Calls that give arguments another value than their default: `attributes.py` says which no other call gives."""

from __future__ import annotations

from tests.parity.samples import IMAGE, LINE, REGULAR, TALL, VOLUME, Data, b, c, dist, f, i, layer, make, sl, t, v

NAMED = make("ParamAttr", name="w")
HALF = make("ParamAttr", initializer=make("nn.initializer.Constant", 0.5))
STILL = make("ParamAttr", name="s", trainable=False)
LAST_IMAGE = f(2, 6, 6, 3)
LAST_LINE = f(2, 8, 3)
LAST_VOLUME = f(2, 3, 4, 4, 2)
_MASK = f(2, 1, 3, 3, stop=1)
_LEFT, _RIGHT = f(3, 4, low=0.1, high=0.9), f(3, 4, low=0, high=1, stop=1)
_POSITIONS = v([[[1, 2], [0, 3]]], "int32")
_ONES = f(4, low=0.5, fixed=1, stop=1)

SAMPLES: dict[str, list[Data]] = {
    # Tensors.
    "Variable.mean": [c(f(2, 3), 1, keepdim=True)],
    "Variable.sum": [c(f(2, 3), 1, "float64", True)],
    "diagonal_scatter": [c(f(2, 3, 3, fixed=1), f(2, 3, fixed=1), 0, 1, 2)],
    "empty_like": [c(f(2, 3), "float64")],
    "index_put_": [c(f(4, 3), t(v([0, 0], "int64"), v([1, 1], "int64")), v([1.0, 2.0]), accumulate=True)],
    "put_along_axis": [
        c(f(3, 4), i(3, 2, high=3), f(3, 2), 1, "add", True, False),
        c(f(3, 4), i(3, 2, high=3), f(3, 2), 1, "mul", include_self=False),
        c(f(3, 4), i(3, 2, high=3), f(3, 2), 1, "assign", broadcast=False),
    ],
    "take_along_axis": [c(f(3, 4), i(2, 4, high=2, fixed=1), 0, broadcast=False)],
    "rand": [c([40, 100], "float64")],
    "randn": [c([40, 100], "float64")],
    "standard_normal": [c([40, 100], "float64")],
    "uniform": [c([40, 100], "float64"), c([40, 100], "float32", -1.0, 1.0, 7)],
    "randint_like": [c(f(40, 100), 3, 9, "int64")],
    "randperm": [c(1000, "int32")],
    "stanh": [c(f(2, 3), 0.5, 1.2)],
    "topk": [c(f(2, 5), 2, sorted=False)],
    "to_tensor": [c([1.5, 2.0], stop_gradient=False)],
    "sum": [c(f(2, 3), 1, "float64", True)],
    "static.create_parameter": [c([2, 3], "float32", attr=HALF)],
    "static.data": [c("y", [None, 3], "float32", 1)],
    # Linear algebra.
    "linalg.cov": [c(f(3, 5), fweights=i(5, low=1, high=3, fixed=1))],
    "linalg.eigh": [c(REGULAR, "U")],
    "linalg.lstsq": [c(TALL, f(3, 2), driver=d) for d in ("gelsy", "gels", "gelsd", "gelss")] + [c(TALL, f(3, 2), 0.5)],
    "linalg.lu": [c(REGULAR, pivot=False)],
    "linalg.lu_unpack": [c(REGULAR, v([2, 3, 3], "int32"), False), c(REGULAR, v([2, 3, 3], "int32"), True, False)],
    "linalg.pinv": [c(TALL, 0.5)],
    "linalg.svd": [c(TALL, True)],
    "linalg.qr": [c(TALL, "complete")],
    # Functions of layers.
    "nn.functional.batch_norm": [
        c(
            f(4, 3, 2, 2),
            f(3, fixed=1, stop=1),
            f(3, low=0.5, fixed=1, stop=1),
            f(3, fixed=1),
            f(3, fixed=1),
            True,
            0.5,
            0.0005,
        ),
        c(
            f(4, 3, 2, 2),
            f(3, fixed=1, stop=1),
            f(3, low=0.5, fixed=1, stop=1),
            f(3, fixed=1),
            f(3, fixed=1),
            True,
            use_global_stats=True,
        ),
    ],
    "nn.functional.conv1d": [c(LAST_LINE, f(4, 3, 3, fixed=1), data_format="NLC")],
    "nn.functional.conv1d_transpose": [
        c(LAST_LINE, f(3, 2, 3, fixed=1), data_format="NLC"),
        c(f(2, 4, 8), f(4, 1, 3, fixed=1), groups=2),
        c(LINE, f(3, 2, 3, fixed=1), stride=2, output_size=18),
        c(LINE, f(3, 2, 3, fixed=1), dilation=2),
    ],
    "nn.functional.conv2d_transpose": [
        c(f(2, 4, 4, 3), f(3, 2, 3, 3, fixed=1), data_format="NHWC"),
        c(f(2, 3, 4, 4), f(3, 2, 3, 3, fixed=1), dilation=2),
    ],
    "nn.functional.conv3d": [
        c(LAST_VOLUME, f(3, 2, 2, 3, 3, fixed=1), data_format="NDHWC"),
        c(VOLUME, f(4, 1, 2, 3, 3, fixed=1), groups=2),
        c(VOLUME, f(3, 2, 2, 2, 2, fixed=1), padding="SAME", dilation=[1, 2, 1]),
    ],
    "nn.functional.conv3d_transpose": [c(LAST_VOLUME, f(2, 3, 2, 2, 2, fixed=1), data_format="NDHWC")],
    "nn.functional.cross_entropy": [
        c(f(3, 4), dist(3, 4), soft_label=True, label_smoothing=0.2),
        c(f(3, 4), dist(3, 4), f(4, low=0.5, fixed=1, stop=1), soft_label=True),
    ],
    "nn.functional.dropout": [
        c(f(4000, 2, low=1.0), 0.3, axis=0),
        c(f(100, 40, low=1.0), 0.3, mode="downscale_in_infer"),
    ],
    "nn.functional.dropout2d": [c(f(60, 2, 2, 40, low=1.0), 0.3, data_format="NHWC")],
    "nn.functional.dropout3d": [c(f(60, 2, 2, 1, 40, low=1.0), 0.3, data_format="NDHWC")],
    "nn.functional.fold": [c(f(2, 12, 25), [5, 5], 2, paddings=1, dilations=2), c(f(2, 12, 4), [4, 4], [2, 2], [2, 2])],
    "nn.functional.unfold": [c(IMAGE, 2, 2, 1, 2)],
    "nn.functional.gumbel_softmax": [c(f(400, 6), 0.5), c(f(6, 400), axis=0), c(f(400, 6), hard=True)],
    "nn.functional.instance_norm": [
        c(f(2, 3, 4, 4), f(3, fixed=1), f(3, low=0.5, fixed=1), use_input_stats=False),
        c(f(2, 3, 4, 4), momentum=0.5),
    ],
    "nn.functional.layer_norm": [
        c(f(2, 3, 4), [3, 4], f(12, fixed=1), f(12, fixed=1), 0.0005),
        c(f(2, 3, 4), 4, f(4, fixed=1)),
        c(f(2, 3, 4), 4, None, f(4, fixed=1)),
    ],
    "nn.functional.max_unpool1d": [
        c(f(1, 1, 3), v([[[0, 2, 4]]], "int32"), 3, 2, 1),
        c(f(1, 2, 2), _POSITIONS, 2, output_size=[1, 2, 5]),
    ],
    "nn.functional.max_unpool3d": [
        c(f(1, 1, 1, 2, 2), v([[[[[0, 1], [3, 4]]]]], "int32"), [1, 3, 3], [1, 2, 2], [0, 1, 1])
    ],
    "nn.functional.maxout": [c(f(2, 2, 2, 6), 3, 3)],
    "nn.functional.rnnt_loss": [
        c(
            f(2, 4, 3, 5, high=0.0),
            v([[1, 2], [3, 0]], "int32"),
            v([4, 3], "int32"),
            v([2, 1], "int32"),
            4,
            0.0,
            reduction="none",
        )
    ],
    "nn.functional.scaled_dot_product_attention": [
        c(f(2, 3, 2, 4), f(2, 3, 2, 4), f(2, 3, 2, 4), dropout_p=0.5, training=False),
        c(f(2, 3, 2, 4), f(2, 3, 2, 4), f(2, 3, 2, 4), f(2, 1, 3, 3, stop=1)),
    ],
    "nn.functional.selu": [c(f(2, 3), 1.5, 0.7)],
    "nn.functional.softmax_with_cross_entropy": [
        c(f(2, 4, 3), i(2, 1, 3, high=3), axis=1),
        c(f(2, 4, 3), i(2, 4, 1, high=2), ignore_index=1),
    ],
    "nn.functional.triplet_margin_with_distance_loss": [
        c(f(3, 4), f(3, 4), f(3, 4), {"function": "squared_distance"}),
        c(f(3, 4), f(3, 4), f(3, 4), margin=0.5, swap=True, reduction="sum"),
    ],
    "nn.functional.upsample": [
        c(IMAGE, [4, 9], mode="bilinear", align_corners=True),
        c(IMAGE, [4, 9], mode="bicubic", align_corners=True),
        c(IMAGE, [4, 9], mode="bilinear", align_mode=1),
    ],
    "nn.functional.interpolate": [
        c(IMAGE, [4, 9], mode="bicubic", align_corners=True),
        c(LINE, [5], mode="linear", align_corners=True, data_format="NCW"),
        c(f(2, 8, 3), [5], mode="linear", data_format="NWC"),
        c(VOLUME, [2, 3, 5], mode="trilinear", align_corners=True, data_format="NCDHW"),
        c(VOLUME, [2, 3, 5], mode="trilinear", align_mode=1, data_format="NCDHW"),
        c(LAST_IMAGE, [4, 9], mode="bilinear", data_format="NHWC"),
        c(LAST_IMAGE, [4, 9], mode="bicubic", data_format="NHWC"),
        c(LAST_VOLUME, [2, 3, 5], mode="trilinear", data_format="NDHWC"),
        c(VOLUME, [2, 3, 5], data_format="NCDHW"),
    ],
    "nn.functional.pad": [
        *(c(LAST_IMAGE, [1, 2, 0, 1], mode, data_format="NHWC") for mode in ("reflect", "replicate", "circular")),
        *(c(VOLUME, [1, 1, 0, 1, 1, 0], mode, data_format="NCDHW") for mode in ("reflect", "replicate", "circular")),
        *(c(LINE, [1, 2], mode, data_format="NCL") for mode in ("reflect", "replicate", "circular")),
        c(LAST_LINE, [1, 2], value=0.5, data_format="NLC"),
        c(LAST_VOLUME, [1, 0, 0, 1, 1, 1], "reflect", data_format="NDHWC"),
    ],
    "nn.functional.binary_cross_entropy": [c(_LEFT, _RIGHT, f(3, 4, low=0.5, stop=1), "sum")],
    "nn.functional.binary_cross_entropy_with_logits": [
        c(f(3, 4), _RIGHT, f(4, low=0.5, fixed=1, stop=1), "none", pos_weight=f(4, low=0.5, fixed=1, stop=1))
    ],
    # Layers.
    "nn.AdaptiveAvgPool3D": [layer(2, "NDHWC")(LAST_VOLUME)],
    "nn.AvgPool2D": [layer(2, divisor_override=3)(IMAGE), layer(2, data_format="NHWC")(LAST_IMAGE)],
    "nn.AvgPool3D": [layer(2, divisor_override=3)(VOLUME), layer(2, data_format="NDHWC")(LAST_VOLUME)],
    "nn.MaxPool3D": [layer(2, data_format="NDHWC")(LAST_VOLUME)],
    "nn.BCELoss": [layer(f(3, 4, low=0.5, stop=1))(_LEFT, _RIGHT)],
    "nn.BCEWithLogitsLoss": [
        layer(f(3, 4, low=0.5, stop=1))(f(3, 4), _RIGHT),
        layer(pos_weight=_ONES)(f(3, 4), _RIGHT),
    ],
    "nn.BatchNorm": [
        layer(3, momentum=0.5, epsilon=0.0005, param_attr=NAMED, bias_attr=STILL)(f(4, 3, 2, 2)),
        layer(3, data_layout="NHWC", use_global_stats=True)(f(4, 2, 2, 3)),
        layer(3, moving_mean_name="m", moving_variance_name="s", do_model_average_for_mean_and_var=False)(f(4, 3)),
        layer(3, is_test=True, trainable_statistics=True)(f(4, 3)),
        layer(3, dtype="float64")(f(4, 3, dtype="float64")),
    ],
    "nn.BatchNorm1D": [
        layer(3, 0.5, 0.0005, NAMED, STILL)(f(4, 3)),
        layer(3, use_global_stats=True)(f(4, 3)),
        layer(3, data_format="NLC")(f(4, 5, 3)),
        layer(3, bias_attr=False)(f(4, 3)),
    ],
    "nn.BatchNorm2D": [
        layer(3, 0.5, 0.0005, HALF, False)(f(4, 3, 2, 2)),
        layer(3, use_global_stats=True)(f(4, 3, 2, 2)),
    ],
    "nn.BatchNorm3D": [
        layer(2, 0.5, 0.0005, NAMED, STILL)(VOLUME),
        layer(2, data_format="NDHWC")(LAST_VOLUME),
        layer(2, use_global_stats=True)(VOLUME),
    ],
    "nn.SyncBatchNorm": [
        layer(3, 0.5, 0.0005, NAMED, STILL)(f(4, 3, 2, 2)),
        layer(3, data_format="NHWC")(f(4, 2, 2, 3)),
    ],
    "nn.Bilinear": [layer(3, 4, 5, HALF)(f(2, 3), f(2, 4))],
    "nn.ChannelShuffle": [layer(3, "NHWC")(f(2, 2, 2, 6))],
    "nn.PixelShuffle": [layer(2, "NHWC")(f(2, 2, 3, 8))],
    "nn.PixelUnshuffle": [layer(2, "NHWC")(f(2, 4, 6, 2))],
    "nn.Conv1D": [
        layer(3, 4, 3, data_format="NLC")(LAST_LINE),
        layer(3, 6, 3, groups=3, weight_attr=HALF)(LINE),
        layer(3, 4, 3, padding=2, padding_mode="circular")(LINE),
    ],
    "nn.Conv1DTranspose": [
        layer(3, 2, 3, bias_attr=False, weight_attr=HALF)(LINE),
        layer(3, 2, 3, data_format="NLC")(LAST_LINE),
        layer(4, 2, 3, groups=2)(f(2, 4, 8)),
        layer(3, 2, 3, 2, 1, 1)(LINE),
        layer(3, 2, 3, 2)(LINE, 18),
    ],
    "nn.Conv2D": [
        layer(3, 4, 3, data_format="NHWC")(LAST_IMAGE),
        layer(3, 4, 3, weight_attr=HALF)(IMAGE),
        *(layer(3, 4, 3, padding=1, padding_mode=mode)(IMAGE) for mode in ("reflect", "replicate")),
        layer(3, 4, 3, padding="SAME", stride=2)(IMAGE),
    ],
    "nn.Conv2DTranspose": [
        layer(3, 2, 3, bias_attr=False, weight_attr=HALF)(f(2, 3, 4, 4)),
        layer(3, 2, 3, data_format="NHWC")(f(2, 4, 4, 3)),
        layer(4, 2, 3, groups=2)(f(2, 4, 4, 4)),
    ],
    "nn.Conv3D": [
        layer(2, 3, 2, bias_attr=False)(VOLUME),
        layer(2, 3, 2, data_format="NDHWC")(LAST_VOLUME),
        layer(2, 4, 2, groups=2, weight_attr=HALF)(VOLUME),
        layer(2, 3, 2, padding=1, padding_mode="replicate")(VOLUME),
    ],
    "nn.Conv3DTranspose": [
        layer(2, 3, 2, bias_attr=False, weight_attr=HALF)(VOLUME),
        layer(2, 3, 2, data_format="NDHWC")(LAST_VOLUME),
        layer(2, 4, 2, groups=2)(VOLUME),
    ],
    "nn.CrossEntropyLoss": [
        layer(f(4, low=0.5, fixed=1, stop=1))(f(3, 4), i(3, 1, high=3)),
        layer(axis=1)(f(2, 4, 3), i(2, 1, 3, high=3)),
        layer(use_softmax=False)(dist(3, 4), i(3, 1, high=3)),
        layer(soft_label=True, label_smoothing=0.2)(f(3, 4), dist(3, 4)),
    ],
    "nn.Dropout": [layer(0.4, 0)(f(4000, 2, low=1.0)), layer(0.4, mode="downscale_in_infer")(f(100, 40, low=1.0))],
    "nn.Dropout2D": [layer(0.4, "NHWC")(f(60, 2, 2, 40, low=1.0))],
    "nn.Dropout3D": [layer(0.4, "NDHWC")(f(60, 2, 2, 1, 40, low=1.0))],
    "nn.Embedding": [layer(5, 4, weight_attr=HALF)(i(2, 3, high=4))],
    "nn.Fold": [
        layer([5, 5], 2, 1, 1, 2)(f(2, 12, 9)),
        layer([4, 4], 2, 2)(f(2, 12, 4)),
        layer([5, 5], 2, dilations=2)(f(2, 12, 9, fixed=1)),
    ],
    "nn.Unfold": [layer(2, 2, 1, 2)(IMAGE), layer(2, dilations=2)(IMAGE), layer(2, paddings=1)(IMAGE)],
    "nn.GaussianNLLLoss": [layer(True)(f(3, 4), f(3, 4), f(3, 4, low=0.5))],
    "nn.GroupNorm": [layer(2, 4, data_format="NHWC")(f(2, 3, 3, 4))],
    "nn.HSigmoidLoss": [
        layer(3, 6, HALF, False)(f(4, 3), v([[0], [1], [5], [3]], "int64")),
        layer(3, 6, is_sparse=True)(f(4, 3), v([[0], [1], [5], [3]], "int64")),
    ],
    "nn.InstanceNorm1D": [
        layer(3, 0.1, 0.5, NAMED, STILL)(f(2, 3, 5)),
        layer(3, weight_attr=False, bias_attr=False)(f(2, 3, 5)),
    ],
    "nn.InstanceNorm2D": [layer(3, 0.1, 0.5)(f(2, 3, 4, 4))],
    "nn.InstanceNorm3D": [layer(2, 0.1, 0.5, False, False)(VOLUME)],
    "nn.LayerNorm": [
        layer(4, 0.0005, NAMED, STILL)(f(2, 3, 4)),
        layer(4, bias_attr=False)(f(2, 3, 4)),
        layer(4, weight_attr=False)(f(2, 3, 4)),
    ],
    "nn.MaxUnPool1D": [
        layer(3, 2, 1)(f(1, 1, 3), v([[[0, 2, 4]]], "int32")),
        layer(2, output_size=[1, 2, 5])(f(1, 2, 2), _POSITIONS),
        layer(2, data_format="NLC")(f(1, 2, 2), _POSITIONS),
    ],
    "nn.MaxUnPool2D": [
        layer(3, 2, 1)(f(1, 1, 2, 2), v([[[[0, 1], [3, 8]]]], "int32")),
        layer(2, output_size=[5, 5])(f(1, 1, 2, 2), v([[[[0, 3], [9, 24]]]], "int32")),
        layer(2, data_format="NHWC")(f(1, 2, 2, 1), v([[[[0], [3]], [[9], [15]]]], "int32")),
    ],
    "nn.MaxUnPool3D": [
        layer([1, 3, 3], [1, 2, 2], [0, 1, 1])(f(1, 1, 1, 2, 2), v([[[[[0, 1], [3, 4]]]]], "int32")),
        layer(2, output_size=[2, 4, 5])(f(1, 1, 1, 2, 2), v([[[[[0, 3], [9, 30]]]]], "int32")),
        layer(2, data_format="NDHWC")(f(1, 1, 2, 2, 1), v([[[[[0], [3]], [[9], [31]]]]], "int32")),
    ],
    "nn.Maxout": [layer(3, 3)(f(2, 2, 2, 6))],
    "nn.MultiHeadAttention": [
        layer(4, 2, kdim=3, vdim=5)(f(2, 3, 4), f(2, 6, 3), f(2, 6, 5)),
        layer(4, 2, bias_attr=False, weight_attr=HALF)(f(2, 3, 4)),
        layer(4, 2, 0.0)(f(2, 3, 4), attn_mask=b(2, 1, 3, 3)),
    ],
    "nn.MultiLabelSoftMarginLoss": [
        layer(f(2, low=0.5, fixed=1, stop=1))(f(3, 2), v([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], stop=1))
    ],
    "nn.MultiMarginLoss": [layer(weight=_ONES)(f(3, 4), i(3, high=3))],
    "nn.NLLLoss": [layer(_ONES)(f(3, 4), i(3, high=3)), layer(ignore_index=1, reduction="sum")(f(3, 4), i(3, high=3))],
    "nn.PReLU": [layer(weight_attr=NAMED)(f(2, 3, 4)), layer(3, data_format="NHWC")(f(2, 4, 4, 3))],
    "nn.Pad1D": [
        layer([1, 2], data_format="NLC")(LAST_LINE),
        layer([1, 2], "reflect")(LINE),
        layer([1, 2], "circular")(LINE),
        layer(1, value=0.5)(LINE),
    ],
    "nn.Pad2D": [
        layer([1, 2, 0, 1], data_format="NHWC")(LAST_IMAGE),
        layer(1, "replicate")(IMAGE),
        layer(1, "circular")(IMAGE),
    ],
    "nn.Pad3D": [
        layer(1, data_format="NDHWC")(LAST_VOLUME),
        *(layer(1, mode)(VOLUME) for mode in ("reflect", "replicate", "circular")),
    ],
    "nn.PoissonNLLLoss": [
        layer(False)(f(3, 4, low=0.2), f(3, 4, low=0.2, high=5.0, stop=1)),
        layer(full=True)(f(3, 4), f(3, 4, low=0.2, high=5.0, stop=1)),
    ],
    "nn.RReLU": [layer(0.1, 0.5)(f(100, 40))],
    "nn.SELU": [layer(1.5, 0.7)(f(2, 3))],
    "nn.SpectralNorm": [
        layer([3, 4], 1, 2)(f(3, 4, fixed=1)),
        layer([3, 4], 0, 2, 0.1)(f(3, 4, fixed=1)),
        layer([3, 4], dtype="float64")(f(3, 4, dtype="float64", fixed=1)),
    ],
    "nn.Transformer": [
        layer(4, 2, 1, 1, 8, 0.0, "gelu", normalize_before=True)(f(2, 3, 4), f(2, 5, 4)),
        layer(4, 2, 1, 1, 8, 0.0, bias_attr=False, weight_attr=HALF)(f(2, 3, 4), f(2, 5, 4)),
        layer(4, 2, 1, 1, 8, 0.0, attn_dropout=0.0, act_dropout=0.0)(f(2, 3, 4), f(2, 3, 4), _MASK, _MASK, _MASK),
    ],
    "nn.TransformerEncoderLayer": [
        layer(4, 2, 8, 0.0, attn_dropout=0.0, act_dropout=0.0, bias_attr=False, weight_attr=HALF)(f(2, 3, 4), _MASK),
    ],
    "nn.TransformerDecoderLayer": [
        layer(4, 2, 8, 0.0, "gelu", 0.0, 0.0, True)(f(2, 3, 4), f(2, 3, 4), _MASK, _MASK),
        layer(4, 2, 8, 0.0, weight_attr=HALF, bias_attr=False)(f(2, 3, 4), f(2, 5, 4)),
    ],
    "nn.TransformerEncoder": [
        layer(make("nn.TransformerEncoderLayer", 4, 2, 8, 0.0), 2, make("nn.LayerNorm", 4))(f(2, 3, 4), _MASK)
    ],
    "nn.TransformerDecoder": [
        layer(make("nn.TransformerDecoderLayer", 4, 2, 8, 0.0), 2, make("nn.LayerNorm", 4))(
            f(2, 3, 4), f(2, 3, 4), _MASK, _MASK
        )
    ],
    "nn.TripletMarginLoss": [layer(swap=True)(f(3, 4), f(3, 4), f(3, 4))],
    "nn.TripletMarginWithDistanceLoss": [
        layer({"function": "squared_distance"})(f(3, 4), f(3, 4), f(3, 4)),
        layer(swap=True)(f(3, 4), f(3, 4), f(3, 4)),
    ],
    "nn.Upsample": [
        layer([4, 9], mode="bilinear", align_corners=True)(IMAGE),
        layer([4, 9], mode="bicubic", align_mode=1)(IMAGE),
    ],
    "nn.UpsamplingBilinear2D": [layer(scale_factor=2)(IMAGE), layer([3, 9], data_format="NHWC")(LAST_IMAGE)],
    "nn.UpsamplingNearest2D": [layer(scale_factor=2)(IMAGE), layer([3, 9], data_format="NHWC")(LAST_IMAGE)],
    # Static functions.
    "static.nn.batch_norm": [
        c(f(4, 3, 2, 2), epsilon=0.0005, bias_attr=STILL),
        c(f(4, 3, 2, 2), do_model_average_for_mean_and_var=False),
    ],
    "static.nn.bilinear_tensor_product": [c(f(2, 3), f(2, 4), 5, param_attr=HALF)],
    "static.nn.conv2d": [
        c(IMAGE, 4, 3, padding=2, dilation=2),
        c(IMAGE, 4, 3, use_cudnn=False),
        c(IMAGE, 4, 3, padding="VALID", stride=2),
    ],
    "static.nn.conv2d_transpose": [
        c(f(2, 3, 4, 4), 2, filter_size=3, act="relu", bias_attr=False, param_attr=HALF),
        c(f(2, 4, 4, 3), 2, filter_size=3, data_format="NHWC"),
        c(f(2, 4, 4, 4), 2, filter_size=3, groups=2, dilation=2),
    ],
    "static.nn.conv3d": [
        c(VOLUME, 3, 2, [1, 2, 1], 1, param_attr=HALF),
        c(VOLUME, 4, 2, groups=2, dilation=[1, 2, 1]),
        c(LAST_VOLUME, 3, 2, data_format="NDHWC"),
    ],
    "static.nn.conv3d_transpose": [
        c(VOLUME, 2, filter_size=2, act="relu", bias_attr=False, param_attr=HALF),
        c(LAST_VOLUME, 2, filter_size=2, data_format="NDHWC"),
        c(VOLUME, 2, filter_size=2, groups=2, dilation=2),
    ],
    "static.nn.embedding": [c(i(2, 3, high=4), [5, 4], param_attr=HALF)],
    "static.nn.layer_norm": [c(f(2, 3, 4), epsilon=0.0005, act="tanh", param_attr=NAMED, bias_attr=STILL)],
    "static.nn.prelu": [c(f(2, 3, 4, 4), "channel", param_attr=HALF)],
    "static.nn.spectral_norm": [
        c(f(3, 4, fixed=1), 0, 2, 0.1),
        c(f(3, 4, dtype="float64", fixed=1), 0, 2),
        c(f(3, 4, fixed=1), 0, 20),
    ],
    "static.nn.group_norm": [c(f(2, 4, 3, 3), 2, bias_attr=HALF, param_attr=NAMED)],
    "static.nn.instance_norm": [c(f(2, 3, 4, 4), 0.1, NAMED, HALF)],
    "Variable.__getitem__": [
        c(f(3, 4, 5), t(sl(1, None), {"ellipsis": 1}, None, 2)),
        c(f(3, 4, 5), t(sl(None, None), v([0, 2], "int64", fixed=1))),
    ],
}
"""Public path below `paddle` -> further calls."""
