"""Legal calls of what `paddle.fluid` alone has, recorded from Paddle 1.8.5: names that are no 2.x function with equal arguments."""

from __future__ import annotations

from tests.parity.namespace_samples import ANCHORS, SIX, rows, way, words
from tests.parity.samples import Data, b, c, dist, f, i, make, v

IMAGE = f(2, 3, 6, 6)
VOLUME = f(2, 2, 3, 4, 4)
PAIR = [c(f(2, 3), f(2, 3)), c(f(2, 3, 4), f(3, fixed=1), axis=1), c(f(2, 3), f(2, 3), act="relu")]
REDUCED = [c(f(2, 3)), c(f(2, 3), 1), c(f(2, 3, 4), [0, 2], True)]
COMPARED = [c(f(2, 3), f(2, 3)), c(i(2, 3), i(2, 3))]
BOXES = v([[0.5, 1.0, 6.0, 5.0], [2.0, 0.0, 5.0, 8.0], [0.0, 2.0, 3.0, 6.0]], lod=[[2, 1]], fixed=1, stop=1)
CORNERS = f(5, 4, low=0.0, high=8.0, fixed=1, stop=1)
TRUE = v([[[0.2, 0.2, 0.1, 0.15], [0.5, 0.6, 0.4, 0.2]]], fixed=1, stop=1)
TOKENS = [[1], [2], [0], [1], [2], [1]]
_DIAGONAL = v([[0.4, 0.0], [0.0, 0.5]], fixed=1)
HALF = make("fluid.initializer.Constant", 0.5)
ATTR = make("fluid.ParamAttr", initializer=HALF)

LAYERS: dict[str, list[Data]] = {
    "accuracy": [c(f(4, 5, low=0), i(4, 1, high=4)), c(f(4, 5, low=0), i(4, 1, high=4), 3)],
    "adaptive_pool2d": [c(IMAGE, 3), c(IMAGE, [2, 3], "avg"), c(IMAGE, 3, require_index=True)],
    "adaptive_pool3d": [c(VOLUME, [1, 2, 2]), c(VOLUME, [1, 2, 2], "avg")],
    "add_position_encoding": [c(f(2, 3, 6), 1.5, 0.5), c(f(2, 3, 6), 0.0, 1.0)],
    "Categorical": [
        way("entropy", f(2, 3))(),
        way("kl_divergence", f(2, 3))(make("fluid.layers.Categorical", f(2, 3))),
    ],
    "MultivariateNormalDiag": [
        way("entropy", f(2, fixed=1), _DIAGONAL)(),
        way("kl_divergence", f(2, fixed=1), _DIAGONAL)(
            make("fluid.layers.MultivariateNormalDiag", f(2, fixed=1), v([[0.7, 0.0], [0.0, 1.5]], fixed=1))
        ),
    ],
    "Normal": [
        way("entropy", f(2, 3), f(2, 3, low=0.5, high=3.0))(),
        way("entropy", 0.0, 3.0)(),
        way("log_prob", f(2, 3), f(2, 3, low=0.5, high=3.0))(f(2, 3)),
        way("kl_divergence", f(2, 3), f(2, 3, low=0.5, high=3.0))(
            make("fluid.layers.Normal", f(2, 3), f(2, 3, low=0.5, high=3.0))
        ),
    ],
    "Uniform": [
        way("entropy", f(2, 3, low=-3, high=-2), f(2, 3, low=2, high=3))(),
        way("log_prob", f(2, 3, low=-3, high=-2), f(2, 3, low=2, high=3))(f(2, 3, low=-1, high=1)),
    ],
    "affine_grid": [c(f(2, 2, 3, fixed=1), [2, 3, 2, 4])],
    "cross": [c(f(2, 3), f(2, 3)), c(f(3, 2, fixed=1), f(3, 2, fixed=1), 0)],
    "full": [c([2, 3], 1.5), c([2], 2, dtype="int64")],
    "gather_nd": [
        c(f(3, 4, fixed=1), v([[0, 1], [2, 3]], "int64", fixed=1)),
        c(f(3, 4, fixed=1), v([[2], [0]], "int32", fixed=1)),
    ],
    "kron": [c(f(2, 3), f(2, 2, fixed=1))],
    "log1p": [c(f(2, 3, low=0.0, high=3.0))],
    "log_softmax": [c(f(2, 3)), c(f(2, 3), 0), c(f(2, 3), dtype="float64")],
    "npair_loss": [
        c(f(3, 4), f(3, 4), v([0.0, 1.0, 0.0], fixed=1, stop=1)),
        c(f(3, 4), f(3, 4), v([0.0, 1.0, 2.0], fixed=1, stop=1), 0.1),
    ],
    "prelu": [c(f(2, 3, 4, 4), mode, ATTR) for mode in ("all", "channel", "element")],
    "sums": [c([f(2, 3), f(2, 3), f(2, 3)])],
    "tril": [c(f(3, 4)), c(f(3, 4), 1)],
    "triu": [c(f(3, 4)), c(f(3, 4), -1)],
    "affine_channel": [
        c(IMAGE, f(3, fixed=1), f(3, fixed=1)),
        c(f(2, 4, 5, 3), f(3, fixed=1), f(3, fixed=1), "NHWC", act="relu"),
    ],
    "argmax": [c(f(2, 3)), c(f(2, 3), 1)],
    "argmin": [c(f(2, 3)), c(f(2, 3), 1)],
    "argsort": [c(f(2, 3)), c(f(3, 2), 0), c(f(2, 3), descending=True)],
    "assign": [c(f(2, 3))],
    "auc": [c(dist(4, 2), i(4, 1, high=1)), c(dist(4, 2), i(4, 1, high=1), num_thresholds=100, slide_steps=0)],
    "box_coder": [
        c(CORNERS, [0.1, 0.1, 0.2, 0.2], f(3, 4, low=0.0, high=8.0, fixed=1, stop=1)),
        c(
            CORNERS,
            f(5, 4, low=0.1, high=0.5, fixed=1, stop=1),
            f(3, 4, low=0.0, high=8.0, fixed=1, stop=1),
            box_normalized=False,
        ),
        c(CORNERS, [0.1, 0.1, 0.2, 0.2], f(3, 5, 4, fixed=1, stop=1), "decode_center_size"),
    ],
    "bpr_loss": [c(f(3, 4), i(3, 1, high=3))],
    "brelu": [c(f(2, 3)), c(f(2, 3), -0.5, 0.7)],
    "center_loss": [
        c(f(4, 2), v([[0], [1], [0], [0]], "int64", fixed=1), 3, 0.1, HALF),
        c(f(4, 2), v([[0], [1], [0], [0]], "int64", fixed=1), 3, 0.1, HALF, False),
    ],
    "clip": [c(f(2, 3), -0.5, 0.7)],
    "concat": [c([f(2, 3), f(2, 3)]), c([f(2, 3), f(2, 4)], 1)],
    "continuous_value_model": [
        c(f(3, 4, low=0.0, high=5.0), f(3, 2, stop=1)),
        c(f(3, 4, low=0.0, high=5.0), f(3, 2, stop=1), False),
    ],
    "cos_sim": [c(f(2, 3), f(2, 3)), c(f(2, 3), f(1, 3, fixed=1))],
    "crop": [c(f(3, 4, fixed=1), [2, 2], [1, 1]), c(f(3, 4, fixed=1), [2, 3])],
    "cross_entropy": [
        c(dist(3, 4), i(3, 1, high=3)),
        c(dist(3, 4), dist(3, 4), True),
        c(dist(3, 4), v([[1], [2], [1]], "int64"), ignore_index=2),
    ],
    "ctc_greedy_decoder": [
        c(rows(6, 4, lod=SIX), 0),
        c(f(2, 3, 4), 0, v([[3], [2]], "int64", fixed=1), 9),
    ],
    "cumsum": [c(f(2, 3)), c(f(2, 3), 1), c(f(2, 3), 0, True), c(f(2, 3), 1, False, True)],
    "deformable_conv": [
        c(
            f(2, 2, 4, 4),
            f(2, 18, 4, 4),
            f(2, 9, 4, 4, low=0.1),
            3,
            3,
            padding=1,
            deformable_groups=1,
            groups=1,
            im2col_step=1,
        ),
        c(
            f(2, 2, 4, 4),
            f(2, 18, 4, 4),
            None,
            3,
            3,
            padding=1,
            deformable_groups=1,
            groups=1,
            im2col_step=1,
            modulated=False,
            bias_attr=False,
        ),
    ],
    "diag": [c(f(3, fixed=1))],
    "distribute_fpn_proposals": [
        c(
            v([[0.0, 0.0, 4.0, 4.0], [5.0, 5.0, 30.0, 29.0], [1.0, 6.0, 2.0, 9.0]], lod=[[2, 1]], fixed=1, stop=1),
            2,
            5,
            4,
            20,
        )
    ],
    "dropout": [
        c(f(2, 3), 0.0),
        c(f(2, 3), 0.4, True),
        c(f(2, 3), 0.4, True, dropout_implementation="upscale_in_train"),
    ],
    "dynamic_gru": [
        c(rows(6, 12, lod=SIX), 4),
        c(
            rows(6, 12, lod=SIX),
            4,
            is_reverse=True,
            gate_activation="tanh",
            candidate_activation="sigmoid",
            origin_mode=True,
        ),
        c(rows(6, 12, lod=SIX), 4, bias_attr=False),
    ],
    "dynamic_lstm": [
        c(rows(6, 16, lod=SIX), 16),
        c(rows(6, 16, lod=SIX), 16, use_peepholes=False, is_reverse=True),
        c(rows(6, 16, lod=SIX), 16, gate_activation="tanh", cell_activation="sigmoid", candidate_activation="relu"),
    ],
    "dynamic_lstmp": [
        c(rows(6, 16, lod=SIX), 16, 3),
        c(rows(6, 16, lod=SIX), 16, 3, use_peepholes=False, is_reverse=True, proj_activation="identity"),
        c(rows(6, 16, lod=SIX), 16, 3, cell_clip=0.4, proj_clip=0.3),
    ],
    "edit_distance": [
        c(words(TOKENS, SIX), words([[1], [2], [2], [1]], [[1, 2, 1]])),
        c(words(TOKENS, SIX), words([[1], [2], [2], [1]], [[1, 2, 1]]), False, [2]),
    ],
    **{f"elementwise_{name}": PAIR for name in ("add", "sub", "mul", "max", "min")},
    "elementwise_div": [
        c(f(2, 3), f(2, 3, low=0.5)),
        c(f(2, 3, 4), f(3, low=0.5, fixed=1), axis=1),
        c(f(2, 3), f(2, 3, low=0.5), act="tanh"),
    ],
    "elementwise_pow": [c(f(2, 3, low=0.5), f(2, 3)), c(f(2, 3, 4, low=0.5), f(3, fixed=1), axis=1)],
    "elementwise_mod": [c(i(2, 3, high=9), i(2, 3, low=1, high=4)), c(f(2, 3), f(2, 3, low=0.5))],
    "elementwise_floordiv": [c(i(2, 3, high=9), i(2, 3, low=1, high=4))],
    "embedding": [
        c(i(4, 1, high=4), [5, 3]),
        c(i(4, 1, high=4), [5, 3], padding_idx=1),
        c(i(4, 1, high=4), [5, 3], True),
    ],
    "equal": COMPARED,
    "expand": [c(f(2, 3), [2, 1]), c(f(2, 3, fixed=1), [1, 3])],
    "expand_as": [c(f(2, 1, fixed=1), f(2, 3, fixed=1))],
    "eye": [c(3), c(2, 3), c(2, 3, [2]), c(3, dtype="int64")],
    "fc": [
        c(f(2, 3), 4),
        c(f(2, 3, 4), 5, 2),
        c(f(2, 3), 4, act="relu", bias_attr=False),
        c([f(2, 3), f(2, 4)], 5),
        c(f(2, 3), 4, param_attr=ATTR),
    ],
    "fill_constant_batch_size_like": [c(f(2, 3), [1, 4], "float32", 1.5), c(f(2, 3), [4, 1], "int64", 2, 0, 1)],
    "flatten": [c(f(2, 3, 4)), c(f(2, 3, 4), 2), c(f(2, 3, 4, fixed=1), 0)],
    "fsp_matrix": [c(f(2, 3, 4, 5), f(2, 2, 4, 5))],
    "gather": [c(f(4, 3), v([0, 2, 0], "int64", fixed=1)), c(f(4, 3), v([0, 2], "int32", fixed=1), False)],
    "gaussian_random": [c([40, 100]), c([4000], 1.0, 2.0)],
    "gaussian_random_batch_size_like": [c(f(40, 3), [1, 100]), c(f(40, 3), [1, 100], mean=1.0, std=2.0)],
    "generate_proposals": [
        c(
            f(1, 3, 3, 3, low=0.0, high=1.0, stop=1),
            f(1, 12, 3, 3, stop=1),
            v([[8.0, 7.0, 1.0]], fixed=1, stop=1),
            f(3, 3, 3, 4, low=0.0, high=8.0, fixed=1, stop=1),
            f(3, 3, 3, 4, low=0.5, high=1.0, fixed=1, stop=1),
            20,
            6,
            0.4,
            0.5,
        ),
    ],
    "greater_equal": COMPARED,
    "greater_than": COMPARED,
    "grid_sampler": [c(f(2, 3, 4, 5), f(2, 4, 5, 2, low=-1.2, high=1.2))],
    "gru_unit": [
        c(f(2, 12), f(2, 4), 12),
        c(f(2, 12), f(2, 4), 12, activation="sigmoid", gate_activation="tanh", origin_mode=True),
        c(f(2, 12), f(2, 4), 12, bias_attr=False),
    ],
    "hard_shrink": [c(f(2, 3)), c(f(2, 3), 0.3)],
    "hard_sigmoid": [c(f(2, 3)), c(f(2, 3), 0.3, 0.1)],
    "hard_swish": [c(f(2, 3)), c(f(2, 3), 4.0, 5.0, 1.0)],
    "has_inf": [c(f(2, 3)), c(v([1.0, float("inf")]))],
    "has_nan": [c(f(2, 3)), c(v([1.0, float("nan")]))],
    "hsigmoid": [
        c(f(4, 3), v([[0], [1], [5], [3]], "int64"), 6),
        c(f(4, 3), v([[0], [1], [5], [3]], "int64"), 6, bias_attr=False),
        c(
            f(2, 3),
            v([[0], [1]], "int64"),
            6,
            path_table=v([[0, 2, -1, -1], [0, 1, 4, 2]], "int64"),
            path_code=v([[0, 1, -1, -1], [1, 0, 0, 1]], "int64"),
            is_custom=True,
        ),
    ],
    "huber_loss": [c(f(3, 1), f(3, 1), 1.0), c(f(3, 1), f(3, 1), 0.3)],
    "im2sequence": [c(f(2, 3, 4, 4), 2), c(f(2, 3, 4, 4), [2, 1], [2, 1], [1, 0, 1, 0])],
    "image_resize": [
        c(IMAGE, [4, 9]),
        c(IMAGE, [4, 9], align_corners=False),
        c(IMAGE, [4, 9], align_corners=False, align_mode=0),
        c(IMAGE, [4, 9], resample="NEAREST"),
        c(IMAGE, scale=1.5),
        c(f(2, 6, 6, 3), [4, 9], data_format="NHWC"),
        c(VOLUME, [2, 3, 5], resample="TRILINEAR", data_format="NCDHW"),
    ],
    "image_resize_short": [c(f(2, 3, 4, 7), 3), c(f(2, 3, 4, 7), 6, "NEAREST")],
    "increment": [c(f(1, fixed=1)), c(f(1, fixed=1), 2.0, False)],
    "iou_similarity": [
        c(CORNERS, f(3, 4, low=0.0, high=8.0, fixed=1, stop=1)),
        c(CORNERS, f(3, 4, low=0.0, high=8.0, fixed=1, stop=1), False),
    ],
    "is_empty": [c(f(2, 3))],
    "isfinite": [c(f(2, 3)), c(v([1.0, float("inf")]))],
    "kldiv_loss": [c(f(3, 4), dist(3, 4), how) for how in ("none", "batchmean", "mean", "sum")],
    "l2_normalize": [c(f(2, 3), 1), c(f(2, 3), 0), c(f(2, 3, 4), -1, 0.1)],
    "label_smooth": [c(dist(3, 4)), c(dist(3, 4), epsilon=0.3), c(dist(3, 4), f(1, 4, low=0.1, fixed=1, stop=1))],
    "leaky_relu": [c(f(2, 3)), c(f(2, 3), 0.3)],
    "less_equal": COMPARED,
    "less_than": COMPARED,
    "linear_chain_crf": [
        c(rows(6, 3, lod=SIX), words(TOKENS, SIX)),
        c(f(2, 3, 3), i(2, 3, 1), length=v([[3], [2]], "int64", fixed=1)),
    ],
    "lod_append": [c(rows(6, 2, lod=[[2, 4]]), [0, 1, 2, 3, 4, 5, 6])],
    "lod_reset": [c(f(6, 2, fixed=1), target_lod=[0, 2, 6]), c(f(6, 2, fixed=1), rows(6, 2, lod=SIX))],
    "logsigmoid": [c(f(2, 3))],
    "lrn": [c(f(2, 5, 4, 4)), c(f(2, 5, 4, 4), 3, 2.0, 0.1, 0.5), c(f(2, 4, 4, 5), data_format="NHWC")],
    "lstm_unit": [c(f(2, 3), f(2, 4), f(2, 4)), c(f(2, 3), f(2, 4), f(2, 4), 1.0)],
    "margin_rank_loss": [
        c(v([[1.0], [0.0], [1.0]], stop=1), f(3, 1), f(3, 1)),
        c(v([[1.0], [0.0], [1.0]], stop=1), f(3, 1), f(3, 1), 0.5),
    ],
    "matmul": [
        c(f(2, 3), f(3, 4, fixed=1)),
        c(f(3, 2, fixed=1), f(3, 4, fixed=1), True, alpha=0.5),
        c(f(2, 3, 4), f(2, 5, 4), transpose_y=True),
    ],
    "maxout": [c(f(2, 6, 2, 2), 3), c(f(2, 2, 2, 6), 3, axis=-1)],
    "mean": [c(f(2, 3))],
    "mean_iou": [c(v([[0, 1, 2], [1, 1, 0]], "int32", fixed=1), v([[0, 1, 1], [2, 1, 0]], "int32", fixed=1), 4)],
    "mish": [c(f(2, 3)), c(f(2, 3), 1.0)],
    "mse_loss": [c(f(3, 4), f(3, 4))],
    "mul": [c(f(2, 3), f(3, 4, fixed=1)), c(f(2, 3, 4), f(4, 5, fixed=1), 2), c(f(2, 12), f(3, 4, 5, fixed=1), 1, 2)],
    "multiclass_nms": [
        c(f(2, 8, 4, low=0.0, high=8.0, stop=1), f(2, 3, 8, low=0.0, high=1.0, stop=1), 0.2, 6, 7, 0.3),
        c(
            f(2, 8, 4, low=0.0, high=8.0, stop=1),
            f(2, 3, 8, low=0.0, high=1.0, stop=1),
            0.2,
            -1,
            4,
            0.7,
            False,
            0.8,
            -1,
        ),
    ],
    "not_equal": COMPARED,
    "one_hot": [c(i(3, 1, high=3), 4), c(v([[5], [1]], "int64"), 4, True)],
    "ones": [c([2, 3], "float32"), c([2], "int64")],
    "ones_like": [c(f(2, 3))],
    "pad": [c(f(2, 3), [0, 1, 2, 0]), c(f(2, 3), [0, 0, 1, 1], 0.5)],
    "pad2d": [
        c(IMAGE, [1, 2, 0, 1]),
        c(IMAGE, [1, 2, 0, 1], "reflect"),
        c(IMAGE, [1, 2, 0, 1], "edge"),
        c(f(2, 6, 6, 3), [1, 0, 2, 1], "constant", 0.5, "NHWC"),
    ],
    "pad_constant_like": [
        c(f(2, 4, 3, stop=1, fixed=1), f(2, 2, 3, fixed=1)),
        c(f(2, 4, 3, stop=1, fixed=1), f(2, 2, 3, fixed=1), 1.5),
    ],
    "pixel_shuffle": [c(f(2, 8, 2, 3), 2)],
    "pool2d": [
        c(IMAGE, 2),
        c(IMAGE, [3, 2], "avg", 2, 1),
        c(IMAGE, 3, "avg", 2, 1, exclusive=False),
        c(IMAGE, pool_type="avg", global_pooling=True),
        c(f(1, 1, 7, 7), 2, "max", 2, 1, ceil_mode=True),
        c(f(2, 6, 6, 3), 2, "avg", 2, data_format="NHWC"),
        c(IMAGE, 3, pool_padding="SAME"),
    ],
    "pool3d": [
        c(VOLUME, 2),
        c(VOLUME, [3, 2, 2], "avg", 1, 1),
        c(VOLUME, 3, "avg", 2, 1, exclusive=False),
        c(VOLUME, pool_type="max", global_pooling=True),
        c(f(1, 3, 4, 4, 2), 2, "avg", data_format="NDHWC"),
    ],
    "pow": [c(f(2, 3, low=0.5), 2.5), c(f(2, 3))],
    "prior_box": [
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
    "psroi_pool": [c(f(2, 12, 6, 5), BOXES, 2, 0.7, 2, 3)],
    "range": [c(1, 7, 2, "int64"), c(0.0, 2.0, 0.5, "float32")],
    "rank_loss": [c(v([[1.0], [0.0], [1.0]], stop=1), f(3, 1), f(3, 1))],
    "reduce_all": [c(b(2, 3)), c(b(2, 3), 1), c(b(2, 3), [0, 1], True)],
    "reduce_any": [c(b(2, 3)), c(b(2, 3), 1), c(b(2, 3), [0, 1], True)],
    **{f"reduce_{name}": REDUCED for name in ("max", "mean", "min", "sum")},
    "reduce_prod": [c(f(2, 3, low=0.5)), c(f(2, 3, low=0.5), 1), c(f(2, 3, 4, low=0.5), [0, 2], True)],
    "relu6": [c(f(2, 3)), c(f(2, 3), 1.0)],
    "reshape": [c(f(2, 6), [3, 4]), c(f(2, 6), [0, 3, -1]), c(f(2, 6), [-1, 4], act="relu")],
    "resize_bilinear": [c(IMAGE, [4, 9]), c(IMAGE, [4, 9], align_corners=False, align_mode=0), c(IMAGE, scale=0.5)],
    "resize_nearest": [
        c(IMAGE, [4, 9]),
        c(IMAGE, [4, 9], align_corners=False),
        c(f(2, 6, 6, 3), [4, 9], data_format="NHWC"),
    ],
    "resize_trilinear": [c(VOLUME, [2, 3, 5]), c(VOLUME, [2, 3, 5], align_corners=False, align_mode=0)],
    "roi_align": [c(f(2, 3, 6, 5), BOXES, 2, 3, 0.7), c(f(2, 3, 6, 5), BOXES, 2, 2, 0.9, 2)],
    "roi_pool": [c(f(2, 3, 6, 5), BOXES, 2, 3, 0.7)],
    "sampled_softmax_with_cross_entropy": [
        c(
            f(2, 10),
            v([[1], [3]], "int64", fixed=1),
            4,
            use_customized_samples=True,
            customized_samples=v([[1, 4, 0, 1, 2], [3, 4, 0, 1, 2]], "int64", fixed=1),
            customized_probabilities=f(2, 5, low=0.1, high=0.9, fixed=1, stop=1),
        ),
    ],
    "scatter": [
        c(f(4, 3), v([1, 3], "int64", fixed=1), f(2, 3, fixed=1)),
        c(f(4, 3), v([1, 1], "int64", fixed=1), f(2, 3, fixed=1), overwrite=False),
    ],
    "scatter_nd_add": [c(f(4, 3), v([[1], [3], [1]], "int64", fixed=1), f(3, 3, fixed=1))],
    "selu": [c(f(2, 3)), c(f(2, 3), 1.5, 0.7)],
    "shuffle_channel": [c(f(2, 6, 2, 2), 3)],
    "sigmoid_cross_entropy_with_logits": [
        c(f(3, 4), f(3, 4, low=0, high=1, stop=1)),
        c(f(3, 2), v([[0.3, -1.0], [1.0, 0.6], [-1.0, 0.2]], stop=1), -1, normalize=True),
    ],
    "size": [c(f(2, 3))],
    "smooth_l1": [c(f(3, 4), f(3, 4)), c(f(3, 4), f(3, 4), f(3, 4, stop=1), f(3, 4, stop=1), 2.0)],
    "soft_relu": [c(f(2, 3)), c(f(2, 3), 1.0)],
    "softmax": [c(f(2, 3)), c(f(2, 3), axis=0)],
    "softplus": [c(f(2, 3))],
    "softshrink": [c(f(2, 3)), c(f(2, 3), 0.3)],
    "space_to_depth": [c(f(2, 4, 4, 4), 2)],
    "split": [c(f(2, 6), 3), c(f(2, 6), [1, 2, 3], 1), c(f(4, 6, fixed=1), 2, 0)],
    "squeeze": [c(f(2, 1, 3), [1]), c(f(2, 1, 3, 1), [])],
    "strided_slice": [c(f(4, 5), [1], [0], [5], [2]), c(f(4, 5, fixed=1), [0, 1], [3, 4], [0, -6], [-1, -2])],
    "sum": [c([f(2, 3), f(2, 3), f(2, 3)]), c(f(2, 3))],
    "swish": [c(f(2, 3)), c(f(2, 3), 0.7)],
    "teacher_student_sigmoid_loss": [
        c(v([[0.3], [0.4], [0.5], [-0.6]]), v([[-2.0], [-1.0], [0.3], [1.4]], stop=1)),
        c(v([[0.3], [0.4], [3.0], [-3.0]]), v([[-2.0], [-1.0], [0.3], [-2.0]], stop=1), 2.0, -2.0),
    ],
    "thresholded_relu": [c(f(2, 3)), c(f(2, 3), 0.3)],
    "topk": [c(f(2, 5), 2)],
    "uniform_random": [c([40, 100]), c([4000], min=2.0, max=3.0)],
    "uniform_random_batch_size_like": [c(f(40, 3), [1, 100]), c(f(40, 3), [1, 100], min=2.0, max=3.0)],
    "unique": [c(v([3, 1, 2, 1], "int64", fixed=1)), c(v([3, 1, 2, 1], "int64", fixed=1), "int64")],
    "unique_with_counts": [c(v([3, 1, 2, 1], "int64", fixed=1)), c(v([3, 1, 2, 1], "int64", fixed=1), "int64")],
    "unsqueeze": [c(f(2, 3), [0]), c(f(2, 3), [1, 3])],
    "warpctc": [
        c(rows(6, 4, lod=SIX), words([[1], [2], [3]], [[1, 1, 1]], "int32")),
        c(rows(6, 4, lod=SIX), words([[1], [2], [0]], [[1, 1, 1]], "int32"), 3, True),
        c(
            f(5, 2, 4, fixed=1),
            v([[1, 2], [3, 1]], "int32", fixed=1),
            input_length=v([5, 4], "int64", fixed=1),
            label_length=v([2, 1], "int64", fixed=1),
        ),
    ],
    "where": [c(v([True, False, True], "bool", fixed=1))],
    "yolo_box": [
        c(f(2, 21, 3, 3, stop=1), v([[60, 50], [64, 96]], "int32", fixed=1), ANCHORS, 2, 0.3, 32),
        c(f(1, 21, 3, 3, stop=1), v([[60, 50]], "int32", fixed=1), ANCHORS, 2, 0.01, 32, False, None, 1.2),
    ],
    "yolov3_loss": [
        c(f(1, 14, 3, 3), TRUE, v([[0, 1]], "int32", fixed=1), ANCHORS, [0, 2], 2, 0.3, 32),
        c(
            f(1, 14, 3, 3),
            TRUE,
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
    "zeros": [c([2, 3], "float32"), c([2], "int64")],
    "zeros_like": [c(f(2, 3))],
    "fluid.one_hot": [c(i(3, high=3), 4), c(v([5, 1], "int64"), 4, True)],
    "fluid.nets.glu": [c(f(2, 6)), c(f(2, 4, 3), 1)],
    "fluid.nets.scaled_dot_product_attention": [
        c(f(2, 3, 4), f(2, 5, 4), f(2, 5, 6)),
        c(f(2, 3, 4), f(2, 5, 4), f(2, 5, 6), 2),
    ],
    "fluid.nets.sequence_conv_pool": [
        c(rows(6, 3, lod=SIX), 4, 3),
        c(rows(6, 3, lod=SIX), 4, 2, act="tanh", pool_type="average"),
    ],
    "fluid.nets.simple_img_conv_pool": [
        c(IMAGE, 4, 3, 2, 2),
        c(IMAGE, 4, 3, 2, 2, 1, "avg", conv_padding=1, act="relu"),
    ],
    "fluid.nets.img_conv_group": [
        c(IMAGE, [4, 4], 2, conv_act="relu"),
        c(IMAGE, [4], 2, 0, 3, "tanh", None, True, 0.0, 1, "avg"),
    ],
}

_DRAWN = {"compare": "moments"}
_FIRST = {"weighed": 1}
_FORWARD = {"forward_only": 1}
HOW: dict[str, Data] = {
    **dict.fromkeys(
        ("gaussian_random", "gaussian_random_batch_size_like", "uniform_random", "uniform_random_batch_size_like"),
        _DRAWN,
    ),
    # Paddle takes no gradient of the other results.
    **dict.fromkeys(("dynamic_lstm", "dynamic_lstmp", "gru_unit"), _FIRST),
    # Declared as floats, which they are not.
    **dict.fromkeys(("has_inf", "has_nan", "distribute_fpn_proposals"), _FORWARD),
}
"""How the calls of a function are compared where that is not by values and gradients of all results."""

SAMPLES = {name if name.startswith("fluid.") else f"fluid.layers.{name}": calls for name, calls in LAYERS.items()}
"""Public path below `paddle` -> its calls."""
