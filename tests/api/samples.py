"""Calls of public functions that cannot be derived from signatures and domains, and other values of parameters by name."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tstatic as paddle
from tstatic import fluid, static


@dataclass(frozen=True)
class Sample:
    """A legal call.

    Attributes:
        arguments: Makes them, inside of a program; ``None`` where signatures, domains or the calls that are compared with Paddle
            (``tests/parity``) say enough.
        others: Parameter -> further values, or functions without a name that make them.
        more: Makers of further calls.
        call: Instead of the function, for any number of arguments.
        use: ``(result, arguments) -> result``: what is done with the result, for classes and what acts later.
    """

    arguments: Callable[[], dict[str, Any]] | None = None
    others: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    use: Callable[[Any, dict[str, Any]], Any] | None = None
    call: Callable[..., Any] | None = None
    more: Sequence[Callable[[], dict[str, Any]]] = ()


def data(shape: Sequence[int], dtype: str = "float32", name: str = "x") -> Any:
    return static.data(name, list(shape), dtype)


BASES: dict[str, Any] = {}
OTHERS: dict[str, Sequence[Any]] = {}
OWN_OTHERS: dict[str, Mapping[str, Sequence[Any]]] = {}
SAMPLES: dict[str, Sample] = {}

BASES |= {
    "axis": 0, "dim": 0, "perm": [1, 0], "shape": [2, 3], "size": 4, "num_filters": 2, "filter_size": 3, "dtype": "float32",
    "num": 2, "depth": 4, "k": 2, "value": 2.0, "act": "relu", "kernel_size": 2, "pool_size": 2, "output_size": 2,
    "groups": 1, "num_groups": 1, "num_or_sections": 2, "repeat_times": [2, 2], "expand_times": [2, 2], "sections": 2,
    "name": "base", "min": -1.0, "max": 1.0, "index": 0, "num_classes": 4, "chunks": 2, "fill_value": 1.5, "source": 0,
    "destination": 1, "repeats": 2, "axis0": 0, "axis1": 1, "other": 2, "item": 0, "decay_steps": 3, "decay_rate": 0.5,
    "learning_rate": 0.1, "step_each_epoch": 3, "epochs": 4, "warmup_steps": 3, "start_lr": 0.0, "end_lr": 0.2,
    "d_model": 8, "boundaries": [2, 4], "values": [0.3, 0.2, 0.1], "padding": 1, "normalized_shape": [6],
}  # fmt: skip
OTHERS |= {
    "name": ["other"],
    "act": ["tanh", "relu"],
    "dtype": ["float64", "int64", "int32", "float16"],
    "data_format": ["NHWC", "NLC", "NDHWC", "NCHW", "NCL", "NCDHW"],
    "data_layout": ["NHWC"],
    "reduction": ["sum", "none", "mean"],
    "param_attr": [lambda: paddle.ParamAttr(name="own"), lambda: paddle.ParamAttr(learning_rate=0.5), False],
    "weight_attr": [lambda: paddle.ParamAttr(name="own"), lambda: paddle.ParamAttr(learning_rate=0.5), False],
    "bias_attr": [lambda: paddle.ParamAttr(name="own"), lambda: paddle.ParamAttr(learning_rate=0.5), False],
    "attr": [lambda: paddle.ParamAttr(name="own")],
    "default_initializer": [lambda: paddle.nn.initializer.Constant(0.25)],
    "mode": ["reflect", "replicate", "bilinear", "downscale_in_infer", "max", "all", "channel"],
    "padding": ["SAME", "VALID"],
    "pool_type": ["avg"],
    "activation": ["relu", "gelu"],
}


# ----------------------------------------------------------------------------------------------------- of single functions
def ids(*shape: int, name: str = "ids") -> Any:
    return data(shape, "int64", name)


def parameter(name: str = "w", shape: Sequence[int] = (4,)) -> Any:
    return paddle.create_parameter(list(shape), "float32", name=name)


def _loss() -> Any:
    return paddle.mean(parameter() * data((4,)))


def _checkpoint_loss() -> dict[str, Any]:
    hidden = paddle.tanh(parameter() * data((4,)))
    hidden.persistable = False
    return {"loss": paddle.mean(paddle.exp(paddle.tanh(hidden)))}


def _hidden() -> list[Any]:
    return [v for v in static.default_main_program().list_vars() if v.name.startswith("tanh")][:1]


def _with_two_weights() -> dict[str, Any]:
    layer = paddle.nn.Linear(3, 3)
    layer.other = layer.create_parameter((3, 3))
    return {"layer": layer, "name": "other"}


def _block() -> dict[str, Any]:
    return {"x": data((2, 3, 4)), "linear1_weight": data((4, 5), name="a"), "linear2_weight": data((5, 4), name="b")}


def _heads() -> dict[str, Any]:
    return {"x": data((2, 3, 4)), "qkv_weight": data((3, 2, 2, 4), name="a"), "linear_weight": data((4, 4), name="b")}


def _normal() -> dict[str, Any]:
    return {
        "x": data((2, 1, 4)), "norm_weight": data((4,), name="w"), "norm_bias": data((4,), name="b"), "epsilon": 1e-5,
    }  # fmt: skip


IMAGE = (2, 4, 6, 6)
VOLUME = (2, 4, 6, 6, 6)

SAMPLES |= {
    "tstatic.fluid.layers.affine_channel": Sample(
        lambda: {"x": data((2, 4, 4, 4)), **{n: data((4,), name=n) for n in ("scale", "bias")}}
    ),
    "tstatic.static.gradients": Sample(
        lambda: {"targets": _loss(), "inputs": [static.default_main_program().global_block().var("w")]},
        {
            "inputs": [lambda: [static.default_main_program().global_block().var("x")]],
            "no_grad_set": [lambda: {"w"}, lambda: {"x"}],
        },
    ),
    "tstatic.masked_fill_": Sample(lambda: {"x": data((2,)), "mask": data((2,), "bool", "mask"), "value": 1.0}),
    "tstatic.put_along_axis": Sample(
        lambda: {"arr": data((4, 4)), "indices": ids(2, 1), "values": 1.0, "axis": 0, "reduce": "add"},
        {"reduce": ["mul"]},
    ),
    "tstatic.signal.stft": Sample(others={"pad_mode": ["constant"]}),
    "tstatic.signal.istft": Sample(
        lambda: {"x": data([2, 3, 8], "complex64"), "n_fft": 4},
        more=(lambda: {"x": data([2, 4, 8], "complex64"), "n_fft": 4, "onesided": False},),
    ),
    **{
        f"tstatic.geometric.{name}": Sample(others={"reduce_op": ["mean"], "message_op": ["mul"], "out_size": [5]})
        for name in ("send_u_recv", "send_uv", "send_ue_recv")
    },
    "tstatic.take_along_axis": Sample(lambda: {"arr": data((4, 4)), "indices": ids(2, 1), "axis": 0}),
    "tstatic.static.append_backward": Sample(
        _checkpoint_loss,
        {
            "parameter_list": [lambda: [parameter("v")], lambda: []],
            "no_grad_set": [lambda: {"w"}],
            "callbacks": [lambda: [lambda block, context: block.create_var(name="called", shape=[1], dtype="float32")]],
            "checkpoints": [lambda: _hidden()],
        },
    ),
    "tstatic.static.py_func": Sample(
        lambda: {
            "func": abs,
            "x": data((2,)),
            "out": static.default_main_program().global_block().create_var(name="o", shape=[2], dtype="float32"),
        },
        {"func": [lambda: round], "backward_func": [lambda: round]},
    ),
    "tstatic.static.nn.Assert": Sample(
        lambda: {"cond": data((1,), "bool", "c")}, {"data": [lambda: [data((2,), name="seen")]]}
    ),
    "tstatic.static.nn.cond": Sample(
        lambda: {"pred": data((1,), "bool", "c"), "true_fn": _full(1.0), "false_fn": _full(2.0)},
        {"true_fn": [lambda: _full(3.0)], "false_fn": [lambda: _full(4.0)]},
    ),
    "tstatic.static.nn.case": Sample(
        lambda: {"pred_fn_pairs": [(data((1,), "bool", "c"), _full(1.0))], "default": _full(2.0)},
        {"default": [lambda: _full(4.0)], "pred_fn_pairs": [lambda: [(data((1,), "bool", "d"), _full(1.0))]]},
    ),
    "tstatic.static.nn.switch_case": Sample(
        lambda: {"branch_index": ids(1), "branch_fns": [_full(1.0), _full(2.0)]},
        {"default": [lambda: _full(4.0)], "branch_fns": [lambda: [_full(1.0)] * 3]},
    ),
    "tstatic.einsum": Sample(
        lambda: {"equation": "ij,ij->i", "operands": [data((2, 3)), data((2, 3), name="y")]},
        {"equation": ["ij,ij->j"]},
        call=lambda equation, operands: paddle.einsum(equation, *operands),
    ),
    "tstatic.meshgrid": Sample(lambda: {}, call=lambda: paddle.meshgrid(data((2,)), data((3,), name="y"))),
    "tstatic.nn.functional.fold": Sample(
        lambda: {"x": data((1, 36, 9)), "output_sizes": [5, 5], "kernel_sizes": 3},
        {"output_sizes": [[3, 11]]},
        more=[lambda: {"x": data((1, 36, 16)), "output_sizes": [5, 5], "kernel_sizes": 3, "paddings": [1, 1, 0, 0]}],
    ),
    "tstatic.static.name_scope": Sample(lambda: {"prefix": "base"}),
    "tstatic.utils.deprecated": Sample(use=lambda mark, _: mark(lambda: 0).__doc__),
    "tstatic.fluid.unique_name.switch": Sample(
        others={"new_generator": [lambda: paddle.utils.unique_name.UniqueNameGenerator("own")]},
        use=lambda *_: paddle.utils.unique_name.generate("x"),
    ),
    "tstatic.fluid.unique_name.generate": Sample(lambda: {"key": "x"}),
    "tstatic.nn.initializer.default_initializer": Sample(lambda: {"is_bias": False}),
    "tstatic.nn.initializer.dtype_of": Sample(lambda: {"value": "float32"}, {"value": ["float64"]}),
    "tstatic.errors.near": Sample(lambda: {"name": "relu", "known": ["relu6"]}, {"known": [["rel"]]}),
    "Variable.to_string": Sample(lambda: {"self": data((2,))}),
    "tstatic.static.io.is_parameter": Sample(others={"var": [lambda: parameter()]}),
    "tstatic.static.is_persistable": Sample(others={"var": [lambda: parameter()]}),
    "tstatic.static.nn.while_loop": Sample(
        lambda: {"cond": lambda i: i < 3, "body": lambda i: [i + 1], "loop_vars": [ids(1)]},
        {
            "cond": [lambda: lambda i: i < 4],
            "body": [lambda: lambda i: [i + 2]],
            "loop_vars": [lambda: [ids(1, name="j")]],
        },
    ),
    "tstatic.static.nn.conv2d": Sample(lambda: {"input": data(IMAGE), "num_filters": 4, "filter_size": 3, "groups": 4}),
    "tstatic.static.nn.conv2d_transpose": Sample(
        lambda: {"input": data(IMAGE), "num_filters": 4, "filter_size": 3, "groups": 4, "stride": 2}
    ),
    "tstatic.nn.functional.conv1d_transpose": Sample(
        lambda: {"x": data((2, 4, 6)), "weight": data((4, 2, 3), name="w")}
    ),
    "tstatic.nn.functional.interpolate": Sample(lambda: {"x": data(IMAGE), "size": [3, 3], "mode": "bilinear"}),
    "tstatic.nn.functional.upsample": Sample(lambda: {"x": data(IMAGE), "size": [3, 3], "mode": "bilinear"}),
    "tstatic.fluid.layers.image_resize": Sample(
        lambda: {"input": data(IMAGE), "out_shape": [3, 3]},
        {"resample": ["NEAREST"]},
        more=[lambda: {"input": data(IMAGE), "scale": 2.0}],
    ),
    "tstatic.fluid.layers.resize_nearest": Sample(
        lambda: {"input": data(IMAGE), "out_shape": [3, 3]}, more=[lambda: {"input": data(IMAGE), "scale": 2.0}]
    ),
    "tstatic.fluid.layers.resize_trilinear": Sample(
        lambda: {"input": data(VOLUME), "out_shape": [3, 3, 3]}, more=[lambda: {"input": data(VOLUME), "scale": 2.0}]
    ),
    "tstatic.nn.utils.vector_to_parameters": Sample(
        lambda: {"vec": data((4,)), "parameters": [parameter()]}, {"parameters": [lambda: [parameter("v", (2, 2))]]}
    ),
    "tstatic.fluid.clip.append_gradient_clip_ops": Sample(
        lambda: {"param_grads": [(_clipped(), data((4,), name="g"))]},
        {"param_grads": [lambda: [(_clipped("v"), data((4,), name="h"))]]},
    ),
    "tstatic.fluid.clip.set_gradient_clip": Sample(
        lambda: {"clip": paddle.nn.ClipGradByNorm(1.0), "param_list": [parameter("v").name] and ["v"]},
        {
            "clip": [lambda: paddle.nn.ClipGradByNorm(2.0)],
            "param_list": [lambda: [parameter("u").name]],
            "program": [lambda: _elsewhere("v")],
        },
        use=lambda _, given: _minimized(parameter("w")),
    ),
    "tstatic.fluid.nets.simple_img_conv_pool": Sample(
        lambda: {"input": data(IMAGE), "num_filters": 2, "filter_size": 3, "pool_size": 2, "pool_stride": 2}
    ),
    "Variable.__and__": Sample(lambda: {"x": data((2,), "bool"), "other": data((2,), "bool", "y")}),
    "Variable.__or__": Sample(lambda: {"x": data((2,), "bool"), "other": data((2,), "bool", "y")}),
    "Variable.__rxor__": Sample(lambda: {"x": data((2,), "bool"), "other": data((2,), "bool", "y")}),
    "tstatic.nn.functional.batch_norm": Sample(
        lambda: {
            "x": data((2, 4, 6, 4)),
            "running_mean": data((4,), name="m"),
            "running_var": data((4,), name="v"),
            "weight": data((4,), name="w"),
            "bias": data((4,), name="b"),
            "training": True,
        }
    ),
}


def _full(value: float) -> Callable[[], Any]:
    return lambda: paddle.full([2], value)


def _clipped(name: str = "w") -> Any:
    found = parameter(name)
    found.gradient_clip_attr = paddle.nn.ClipGradByNorm(1.0)
    return found


def _elsewhere(name: str) -> Any:
    program = static.Program()
    with static.program_guard(program, static.Program()):
        parameter(name)
    return program


def _minimized(_: Any) -> None:
    block = static.default_main_program().global_block()
    paddle.optimizer.SGD(0.1).minimize(paddle.add_n([paddle.mean(p) for p in block.all_parameters()]))


# ------------------------------------------------------------------------------------------------------ mixed precision
def amp_loss() -> Any:
    """A loss of ops of all lists, some of them built under the guard."""
    x = static.data("amp_x", [4, 6])
    h = static.nn.fc(x, 5)
    with static.amp.fp16_guard():
        h = paddle.tanh(static.nn.fc(h, 5)) + x[:, :5]
        h = paddle.argmax(h, axis=1, keepdim=True).astype("float32") + paddle.flip(h, [0])
    return paddle.mean(paddle.nn.functional.softmax(h + paddle.tanh(h)))


def _amp_main() -> Any:
    amp_loss()
    return static.default_main_program()


def _amp_trained(optimizer: Any, _: Any) -> None:
    optimizer.minimize(amp_loss())


def _amp_rewritten(lists: Any, _: Any) -> None:
    amp_loss()
    static.amp.cast_model_to_fp16(static.default_main_program(), lists, False, lists.amp_dtype, "O1")


def _sgd() -> Any:
    return paddle.optimizer.SGD(0.1)


_AMP_LISTS: Any = {"amp_lists": [lambda: static.amp.CustomOpLists(custom_black_list=["mul"])]}
SAMPLES |= {
    "tstatic.static.amp.AutoMixedPrecisionLists": Sample(
        others={
            "custom_white_list": [["softmax"]],
            "custom_black_list": [["mul"]],
            "custom_black_varnames": [["amp_x"]],
            "dtype": ["bfloat16"],
        }
    ),
    "tstatic.static.amp.bf16.AutoMixedPrecisionListsBF16": Sample(
        others={"custom_bf16_list": [["softmax"]], "custom_fp32_list": [["mul"]], "custom_fp32_varnames": [["amp_x"]]}
    ),
    "tstatic.static.amp.decorate": Sample(
        lambda: {"optimizer": _sgd()},
        {
            **_AMP_LISTS,
            "optimizer": [lambda: paddle.optimizer.Adam()],
            "level": ["O2"],
            "dtype": ["bfloat16"],
            "master_weight": [False],
            "init_loss_scaling": [8.0],
            "use_dynamic_loss_scaling": [False],
        },
        use=_amp_trained,
        more=[lambda: {"optimizer": _sgd(), "level": "O2"}],
    ),
    "tstatic.fluid.contrib.mixed_precision.decorate": Sample(
        lambda: {"optimizer": _sgd()},
        {**_AMP_LISTS, "optimizer": [lambda: paddle.optimizer.Adam()], "init_loss_scaling": [8.0]},
        use=_amp_trained,
        more=[lambda: {"optimizer": _sgd(), "use_pure_fp16": True, "use_fp16_guard": True}],
    ),
    "tstatic.static.amp.bf16.decorate_bf16": Sample(
        lambda: {"optimizer": _sgd()},
        {**_AMP_LISTS, "optimizer": [lambda: paddle.optimizer.Adam()]},
        use=_amp_trained,
        more=[lambda: {"optimizer": _sgd(), "use_pure_bf16": True}],
    ),
    "tstatic.static.amp.cast_model_to_fp16": Sample(
        lambda: {"program": _amp_main()}, {**_AMP_LISTS, "dest_type": ["bfloat16"], "level": ["O1"]}
    ),
    "tstatic.static.amp.bf16.cast_model_to_bf16": Sample(lambda: {"program": _amp_main()}, _AMP_LISTS),
    "tstatic.static.amp.bf16.rewrite_program_bf16": Sample(lambda: {"main_prog": _amp_main()}, _AMP_LISTS),
    "tstatic.static.amp.fp16_utils.rewrite_program": Sample(
        lambda: {"main_prog": _amp_main(), "amp_lists": static.amp.CustomOpLists()}, _AMP_LISTS
    ),
}


# ------------------------------------------------------------------------------------------------------------- of classes
BASES |= {
    "num_channels": 4, "num_features": 4, "in_channels": 4, "out_channels": 4, "in_features": 6, "out_features": 3,
    "num_embeddings": 7, "embedding_dim": 3, "in1_features": 6, "in2_features": 6, "weight_shape": [4, 6], "d_model": 6,
    "nhead": 2, "num_heads": 2, "embed_dim": 6, "dim_feedforward": 8, "num_layers": 2, "kernel_sizes": 2,
    "output_sizes": [3, 3], "upscale_factor": 2, "downscale_factor": 2, "axes": [0], "weight": None, "T_max": 4, "T_0": 3,
    "gamma": 0.5, "milestones": [2, 4], "step_size": 2, "total_steps": 20, "max_learning_rate": 0.5,
    "base_learning_rate": 0.1, "step_size_up": 2, "lr_lambda": lambda epoch: 1.0 / (epoch + 1.0), "momentum": 0.9,
    "clip_norm": 1.0, "uniform": True,
}  # fmt: skip
OTHERS |= {
    "lr_lambda": [lambda: lambda epoch: 0.5 / (epoch + 1.0)],
    "learning_rate": [0.3],
    "grad_clip": [lambda: paddle.nn.ClipGradByValue(0.5)],
    "weight_decay": [0.3],
    "regularization": [lambda: paddle.regularizer.L2Decay(0.3)],
    "parameters": [lambda: ["w"]],
    "parameter_list": [lambda: ["w"]],
    "apply_decay_param_fun": [lambda: lambda name: name == "w"],
    "exclude_from_weight_decay_fn": [lambda: lambda param: param.name == "w"],
    "exclude_from_weight_decay": [lambda: ["w"]],
    "lr_ratio": [lambda: lambda param: 0.5],
    "anneal_strategy": ["linear"],
    "padding_mode": ["reflect", "replicate", "circular"],
    "nonlinearity": ["leaky_relu", "tanh"],
    "initializer": [lambda: paddle.nn.initializer.Constant(0.5)],
    "regularizer": [lambda: paddle.regularizer.L1Decay(0.5)],
    "threshold_mode": ["abs"],
    "mode": [*OTHERS["mode"], "triangular2", "exp_range", "nearest", "constant"],
}


INPUTS: tuple[tuple[tuple[Sequence[int], str], ...], ...] = (
    (((2, 4, 4, 4), "float32"),), (((2, 4, 6), "float32"),), (((2, 4, 4), "float32"),), (((2, 4, 4, 4, 4), "float32"),),
    (((2, 4, 4, 4), "float64"),), (((4, 6), "float32"),),
    (((4, 6), "int64"),), (((4, 6), "float32"), ((4, 6), "float32")), (((4, 6), "float32"), ((4,), "int64")),
    (((4, 6), "float32"), ((4, 6), "float32"), ((4, 6), "float32")), (((1, 16, 4), "float32"),),
    (((2, 4, 6), "float32"), ((2, 4, 6), "float32")),
)  # fmt: skip


def use_layer(layer: Any, _: Any) -> Any:
    """Calls a layer in training and in inference, with the first inputs that it takes."""
    for inputs in INPUTS:
        given = [
            data(shape, dtype, f"input{i}_{len(inputs)}_{'_'.join(map(str, shape))}_{dtype}")
            for i, (shape, dtype) in enumerate(inputs)
        ]
        try:
            layer.train()
            trained = layer(*given)
        except Exception:  # not for inputs of this kind
            continue
        layer.eval()
        return [trained, layer(*given), layer.full_name(), [(p.name, p.shape, p.trainable) for p in layer.parameters()]]
    raise AssertionError("no inputs fit")


def use_optimizer(optimizer: Any, _: Any) -> None:
    """Trains a vector, a table in float16 and a sparse table."""
    rows = paddle.nn.functional.embedding(ids(3), paddle.create_parameter([4, 2], "float32", name="table"), sparse=True)
    small = paddle.create_parameter([4], "float16", name="small").astype("float32")
    optimizer.minimize(paddle.mean(parameter() * data((4,))) + paddle.mean(rows) + paddle.mean(small))


def use_scheduler(scheduler: Any, _: Any) -> Any:
    """The rates of some steps, and what is printed meanwhile."""
    said = io.StringIO()
    rates = []
    with contextlib.redirect_stdout(said):
        for metric in (1.0, 0.9, 0.9, 0.89905, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 1e-9, 1e-9, 1e-9):
            rates.append(scheduler())
            scheduler.step(metric) if isinstance(scheduler, paddle.optimizer.lr.ReduceOnPlateau) else scheduler.step()
    return rates, said.getvalue()


def use_initializer(initializer: Any, _: Any) -> Any:
    try:
        return paddle.create_parameter([4, 6], "float32", name="made", default_initializer=initializer)
    except paddle.errors.ShapeError:
        return paddle.create_parameter([4, 4, 3, 3], "float32", name="filter", default_initializer=initializer)


def use_clip(clip: Any, _: Any) -> Any:
    paddle.optimizer.SGD(0.1, grad_clip=clip).minimize(_loss())
    if not isinstance(clip, paddle.nn.ClipGradByGlobalNorm):
        return None
    # Two parameters with a clip each: they share a norm if the groups have one name.
    program = static.Program()
    with static.program_guard(program, static.Program()), paddle.utils.unique_name.guard():
        loss = paddle.mean(parameter("v") * parameter("u"))
        paddle.fluid.clip.set_gradient_clip(clip, ["v"])
        paddle.fluid.clip.set_gradient_clip(paddle.nn.ClipGradByGlobalNorm(clip.clip_norm), ["u"])
        paddle.optimizer.SGD(0.1).minimize(loss)
    return program.to_string()


def use_decay(decay: Any, _: Any) -> None:
    paddle.optimizer.SGD(0.1, weight_decay=decay).minimize(_loss())


def use_attr(attr: Any, _: Any) -> Any:
    made = paddle.create_parameter([4, 6], "float32", attr=attr)
    loss = paddle.mean(made * parameter("v", (4, 6)))
    # With a clip of the optimizer's own for need_clip, without for gradient_clip.
    for clip in (paddle.nn.ClipGradByValue(1.0), None):
        paddle.optimizer.SGD(0.1, grad_clip=clip).apply_gradients(
            static.append_backward(loss) if clip else _pairs(made)
        )
    return made


def _pairs(made: Any) -> Any:
    return [(made, static.default_main_program().global_block().var(f"{made.name}@GRAD"))] if made.trainable else []


def _transformed(inputs: int) -> Callable[[Any, dict[str, Any]], Any]:
    def use(layer: Any, _: Any) -> Any:
        given = [data((2, 3, 6), name=f"input{i}") for i in range(inputs)]
        trained = layer(*given)
        layer.eval()
        return [trained, layer(*given), [(p.name, p.optimize_attr) for p in layer.parameters()]]

    return use


ATTRS = {n: [lambda: paddle.ParamAttr(learning_rate=0.5)] for n in ("weight_attr", "bias_attr")} | {
    "activation": ["gelu"],
    "norm": [lambda: paddle.nn.LayerNorm(6)],
}


def rows(width: int = 4, dtype: str = "float32", name: str = "rows", level: int = 1) -> Any:
    """An input of sequences."""
    return static.data(name, [None, width], dtype, lod_level=level)


def _drawn_rows(**arguments: Any) -> Any:
    np.random.seed(0)
    tensor = fluid.create_random_int_lodtensor(**arguments)
    return tensor.lod(), tensor.numpy().tolist()


_ACTIVATIONS = ["relu", "identity"]
_RECURRENCE: dict[str, Sequence[Any]] = {
    "gate_activation": _ACTIVATIONS, "cell_activation": _ACTIVATIONS, "candidate_activation": _ACTIVATIONS,
    "proj_activation": _ACTIVATIONS, "h_0": [None], "c_0": [None],
    "param_attr": [lambda: paddle.ParamAttr(learning_rate=0.5)], "size": [8],
}  # fmt: skip
SAMPLES |= {
    "tstatic.static.nn.sequence_pool": Sample(others={"pool_type": ["max"], "input": [lambda: rows(3, name="other")]}),
    "tstatic.static.nn.sequence_first_step": Sample(others={"input": [lambda: rows(3, name="other")]}),
    "tstatic.static.nn.sequence_last_step": Sample(others={"input": [lambda: rows(3, name="other")]}),
    "tstatic.static.nn.sequence_expand": Sample(others={"y": [lambda: rows(3, name="other")]}),
    "tstatic.static.nn.sequence_expand_as": Sample(others={"y": [lambda: rows(3, name="other")]}),
    "tstatic.static.nn.row_conv": Sample(others={"input": [lambda: data((2, 3, 4))]}),
    "tstatic.fluid.layers.dynamic_lstm": Sample(
        lambda: {"input": rows(16), "size": 16, "h_0": data((3, 4), name="h"), "c_0": data((3, 4), name="c")},
        {**_RECURRENCE, "h_0": [lambda: data((3, 4), name="g")], "c_0": [lambda: data((3, 4), name="g")]},
    ),
    "tstatic.fluid.layers.dynamic_lstmp": Sample(
        lambda: {
            "input": rows(16),
            "size": 16,
            "proj_size": 2,
            "h_0": data((3, 2), name="h"),
            "c_0": data((3, 4), name="c"),
        },
        {
            **_RECURRENCE,
            "h_0": [lambda: data((3, 2), name="g")],
            "c_0": [lambda: data((3, 4), name="g")],
            "proj_size": [3],
            "cell_clip": [3.0],
            "proj_clip": [3.0],
        },
        more=[lambda: {"input": rows(16), "size": 16, "proj_size": 2}],
    ),
    "tstatic.fluid.layers.dynamic_gru": Sample(others={**_RECURRENCE, "h_0": [lambda: data((3, 4), name="g")]}),
    "tstatic.fluid.nets.sequence_conv_pool": Sample(others={"pool_type": ["sum"]}),
    "tstatic.fluid.create_random_int_lodtensor": Sample(
        lambda: {"recursive_seq_lens": [[2, 1]], "base_shape": [1], "place": None, "low": 0, "high": 90},
        {"recursive_seq_lens": [[1, 3]], "base_shape": [[2]], "low": [80], "high": [10]},
        call=_drawn_rows,
    ),
    "tstatic.fluid.create_lod_tensor": Sample(
        lambda: {"data": [[1, 2], [3]], "recursive_seq_lens": [[2, 1]], "place": None}, {"data": [[[4, 5], [6]]]}
    ),
}


SAMPLES |= {
    "tstatic.static.WeightNormParamAttr": Sample(
        use=lambda attr, _: _minimized(static.nn.fc(data((2, 4)), 3, weight_attr=attr))
    ),
    "tstatic.nn.HSigmoidLoss": Sample(
        lambda: {"feature_size": 3, "num_classes": 4},
        use=lambda layer, _: layer(
            data((2, 3)), ids(2, 1), *((ids(2, 3), ids(2, 3)) if layer.weight.shape[0] == 4 else ())
        ),
    ),
    **{
        f"tstatic.nn.MaxUnPool{rank}D": Sample(
            others={"output_size": [lambda r=rank: [7] * r]},
            use=lambda layer, _, r=rank: layer(data((1, 1, *[3] * r)), ids(1, 1, *[3] * r)),
        )
        for rank in (1, 2, 3)
    },
    "tstatic.nn.weight_norm": Sample(
        lambda: {"layer": paddle.nn.Conv2D(3, 3, 3)},
        {"layer": [lambda: paddle.nn.Linear(3, 3)], "name": ["weight"]},
        more=[_with_two_weights],
    ),
    "tstatic.nn.remove_weight_norm": Sample(
        lambda: {"layer": paddle.nn.utils.weight_norm(paddle.nn.Conv2D(3, 3, 3))},
        {"layer": [lambda: paddle.nn.utils.weight_norm(paddle.nn.Linear(3, 3))]},
    ),
    "tstatic.nn.spectral_norm": Sample(
        lambda: {"layer": paddle.nn.Conv2D(3, 3, 3)},
        {"layer": [lambda: paddle.nn.Linear(3, 3)]},
        use=lambda layer, _: layer(data((1, 3, 6, 6))) if isinstance(layer, paddle.nn.Conv2D) else layer,
    ),
    "tstatic.nn.Fold": Sample(
        others={"paddings": [[0, 0, 1, 1]]}, use=lambda layer, _: layer(data((1, 36, 16 if layer.paddings != 0 else 9)))
    ),
    "tstatic.nn.TransformerEncoderLayer": Sample(use=_transformed(1)),
    "tstatic.nn.TransformerEncoder": Sample(
        lambda: {"encoder_layer": paddle.nn.TransformerEncoderLayer(6, 2, 8), "num_layers": 2},
        {**ATTRS, "encoder_layer": [lambda: paddle.nn.TransformerEncoderLayer(6, 3, 8)]},
    ),
    "tstatic.nn.TransformerDecoder": Sample(
        lambda: {"decoder_layer": paddle.nn.TransformerDecoderLayer(6, 2, 8), "num_layers": 2},
        {**ATTRS, "decoder_layer": [lambda: paddle.nn.TransformerDecoderLayer(6, 3, 8)]},
    ),
    "tstatic.nn.Transformer": Sample(
        lambda: {"d_model": 6, "nhead": 2, "num_encoder_layers": 1, "num_decoder_layers": 1, "dim_feedforward": 8},
        {
            **ATTRS,
            "custom_encoder": [lambda: paddle.nn.TransformerEncoder(paddle.nn.TransformerEncoderLayer(6, 3, 8), 1)],
            "custom_decoder": [lambda: paddle.nn.TransformerDecoder(paddle.nn.TransformerDecoderLayer(6, 3, 8), 1)],
        },
    ),
    **{
        f"tstatic.{name}": Sample(lambda: {"nonlinearity": "leaky_relu"})
        for name in ("nn.initializer.KaimingNormal", "nn.initializer.KaimingUniform", "fluid.initializer.MSRA")
    },
    "tstatic.optimizer.lr.CyclicLR": Sample(
        lambda: {
            "base_learning_rate": 0.1,
            "max_learning_rate": 0.5,
            "step_size_up": 2,
            "mode": "exp_range",
            "exp_gamma": 0.9,
        },
        {"scale_fn": [lambda: lambda x: 0.5], "scale_mode": ["iterations"]},
        more=[
            lambda: {
                "base_learning_rate": 0.1,
                "max_learning_rate": 0.5,
                "step_size_up": 2,
                "scale_fn": lambda x: 1.0 / (x + 1),
            }
        ],
    ),
    "tstatic.optimizer.lr.ReduceOnPlateau": Sample(lambda: {"learning_rate": 0.1, "patience": 1, "threshold": 1e-3}),
}


def use_of(cls: type) -> Callable[[Any, Any], Any] | None:
    """What is done with an object of a class, to see its settings."""
    kinds = (
        (paddle.nn.Layer, use_layer), (paddle.optimizer.Optimizer, use_optimizer),
        (paddle.optimizer.lr.LRScheduler, use_scheduler), (paddle.nn.initializer.Initializer, use_initializer),
        (paddle.nn.ClipGradByValue.__base__, use_clip), (paddle.regularizer.WeightDecayRegularizer, use_decay),
        (paddle.ParamAttr, use_attr), (static.amp.AutoMixedPrecisionLists, _amp_rewritten),
    )  # fmt: skip
    return next((use for kind, use in kinds if issubclass(cls, kind)), None)


# ------------------------------------------------------------------------------------------------------- label sequences
def _lengths(name: str = "n") -> Any:
    return ids(2, name=name)


def _crf(**arguments: Any) -> dict[str, Any]:
    parameter("crfw", (5, 3)), parameter("other", (5, 3))
    return {"input": data((2, 4, 3)), "param_attr": "crfw", "length": _lengths(), **arguments}


def _ctc(scores: str, label: str, length: str) -> Callable[[], dict[str, Any]]:
    return lambda: {
        scores: data((4, 2, 3)), label: ids(2, 2), f"input_{length}": _lengths(), f"label_{length}": _lengths("m"),
    }  # fmt: skip


def _beam() -> dict[str, Any]:
    def rows(name: str, width: int, dtype: str) -> Any:
        return static.data(name, [None, width], dtype, lod_level=2)

    return {
        "pre_ids": rows("last", 1, "int64"), "pre_scores": rows("score", 1, "float32"), "ids": rows("ids", 3, "int64"),
        "scores": rows("scores", 3, "float32"), "beam_size": 2, "end_id": 1,
    }  # fmt: skip


def _beams() -> dict[str, Any]:
    zero = paddle.zeros([1], "int64")
    kinds = (("ids", "int64"), ("scores", "float32"))
    arrays = {n: paddle.tensor.array_write(static.data(n, [None, 1], t, lod_level=2), zero) for n, t in kinds}
    return {**arrays, "beam_size": 2, "end_id": 1}


SAMPLES |= {
    "tstatic.static.nn.crf_decoding": Sample(_crf, {"param_attr": ["other"]}),
    "tstatic.fluid.layers.chunk_eval": Sample(
        lambda: {
            "input": ids(2, 4),
            "label": ids(2, 4, name="y"),
            "chunk_scheme": "IOB",
            "num_chunk_types": 2,
            "seq_length": _lengths(),
        },
        {"chunk_scheme": ["plain"]},
    ),
    "tstatic.fluid.layers.beam_search": Sample(_beam),
    "tstatic.fluid.layers.beam_search_decode": Sample(_beams),
    "tstatic.nn.CTCLoss": Sample(use=lambda layer, _: layer(*_ctc("log_probs", "labels", "lengths")().values())),
    "tstatic.nn.functional.margin_cross_entropy": Sample(lambda: {"logits": data((3, 4)), "label": ids(3)}),
    "tstatic.nn.RNNTLoss": Sample(
        use=lambda layer, _: layer(data((2, 3, 3, 4)), ids(2, 2), ids(2, name="steps"), ids(2, name="labels"))
    ),
    "tstatic.nn.CosineEmbeddingLoss": Sample(use=lambda layer, _: layer(data((4, 6)), data((4, 6), name="y"), ids(4))),
    "tstatic.text.ViterbiDecoder": Sample(use=lambda layer, _: layer(data((2, 4, 3)), _lengths())),
}


# -------------------------------------------------------------------------------------------------------- without samples
REFUSES = "always an error"
PROCESS = "it asks or sets a state of the process"
FILES = "it works on files, bytes or a scope"
INTERNAL = "it returns plain data, checks or prints: tests/api/test_internals.py"
ABSTRACT = "a base class, or a container without settings"
SAMPLES |= {
    f"tstatic.atleast_{n}d": Sample(
        lambda: {"name": "base"},
        call=lambda name=None, n=n: getattr(paddle, f"atleast_{n}d")(data([4] if n > 1 else []), name=name),
    )
    for n in (1, 2, 3)
}
SAMPLES |= {
    "tstatic.nn.functional.scaled_dot_product_attention": Sample(
        lambda: {
            **{n: data([2, 3, 2, 4], name=n) for n in ("query", "key", "value")},
            "dropout_p": 0.5,
            "training": True,
        }
    ),
    "tstatic.static.nn.sparse_embedding": Sample(lambda: {"input": data([4, 1], "int64"), "size": [5, 3]}),
    "tstatic.fluid.layers.assign": Sample(others={"output": (lambda: paddle.zeros([2, 3]),)}),
    **{
        f"tstatic.fluid.{name}": Sample(
            lambda: {"input_program": static.default_main_program()}, {"input_program": (lambda: static.Program(),)}
        )
        for name in ("memory_optimize", "release_memory")
    },
}
OWN_OTHERS |= {
    f"tstatic.nn.ClipGradBy{kind}": {
        **OWN_OTHERS.get(f"tstatic.nn.ClipGradBy{kind}", {}),
        "need_clip": (lambda: lambda p: False,),
    }
    for kind in ("Value", "Norm", "GlobalNorm")
}
OWN_OTHERS["tstatic.view_as"] = {"other": (lambda: data([2, 3, 1], name="another"),)}

DATA = "it gives samples; tests/io compares them"
RECURRENT = "its cells and states are objects; tests/recurrence compares it with torch and Paddle"
EXCHANGE = "it exchanges values between processes; tests/comm compares them"
IMAGES = "it makes a network or changes an array; tests/vision compares them"
NUMBERS = "it draws, or takes objects that are no Variables; tests/numbers compares it"
WITHOUT_SAMPLE: dict[str, str] = {
    **dict.fromkeys(
        (
            "tstatic.distribution.kl_divergence", "tstatic.distribution.register_kl", "tstatic.utils.dlpack.from_dlpack",
            "tstatic.utils.dlpack.to_dlpack", "tstatic.check_shape", "tstatic.geometric.sample_neighbors",
            "tstatic.geometric.weighted_sample_neighbors", "tstatic.incubate.graph_sample_neighbors",
        ),
        NUMBERS,
    ),
    **dict.fromkeys(
        (
            *(f"tstatic.nn.{name}" for name in (
                "BiRNN", "GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNCellBase", "SimpleRNN", "SimpleRNNCell",
                "dynamic_decode", "functional.birnn", "functional.rnn",
            )),
            *(f"tstatic.fluid.contrib.{name}" for name in ("BasicGRUUnit", "BasicLSTMUnit", "basic_gru", "basic_lstm")),
            *(f"tstatic.fluid.layers.{name}" for name in ("GRUCell", "LSTMCell", "RNNCell", "gru_unit", "lstm")),
        ),
        RECURRENT,
    ),
    **dict.fromkeys(
        (
            "tstatic.flops", "tstatic.summary", "tstatic.vision.image_load", "tstatic.vision.set_image_backend",
            *(f"tstatic.vision.models.{name}" for name in (
                "AlexNet", "LeNet", "MobileNetV1", "MobileNetV2", "ResNet", "SqueezeNet", "VGG", "alexnet", "mobilenet_v1",
                "mobilenet_v2", "resnet.BasicBlock", "resnet.BottleneckBlock", "squeezenet1_0", "squeezenet1_1",
                *(f"resnet{n}" for n in (18, 34, 50, 101, 152)), *(f"vgg{n}" for n in (11, 13, 16, 19)),
                *(f"resnext{n}_{m}x4d" for n in (50, 101, 152) for m in (32, 64)), "wide_resnet50_2", "wide_resnet101_2",
                "DenseNet", "GoogLeNet", "InceptionV3", "MobileNetV3Large", "MobileNetV3Small", "ShuffleNetV2", "googlenet",
                "inception_v3", "mobilenet_v3_large", "mobilenet_v3_small", "shufflenet_v2_swish",
                *(f"densenet{n}" for n in (121, 161, 169, 201, 264)),
                *(f"shufflenet_v2_x{n}" for n in ("0_25", "0_33", "0_5", "1_0", "1_5", "2_0")),
            )),
            *(f"tstatic.vision.transforms.{name}" for name in (
                "adjust_brightness", "adjust_contrast", "adjust_hue", "adjust_saturation", "center_crop", "crop", "erase", "hflip",
                "normalize", "pad", "resize", "to_grayscale", "to_tensor", "vflip",
                "affine", "perspective", "rotate",
            )),
        ),
        IMAGES,
    ),
    **dict.fromkeys(
        (
            *(f"tstatic.fluid.layers.{name}" for name in (
                "py_reader", "create_py_reader_by_data", "read_file", "double_buffer",
            )),
            "tstatic.batch", "tstatic.io.get_worker_info", "tstatic.io.random_split",
            *(f"tstatic.reader.{name}" for name in (
                "buffered", "cache", "chain", "compose", "firstn", "map_readers", "multiprocess_reader", "shuffle", "xmap_readers",
            )),
        ),
        DATA,
    ),
    **dict.fromkeys(
        (
            *(f"tstatic.compat.{name}" for name in ("floor_division", "get_exception_message", "round", "to_bytes", "to_text")),
            "tstatic.fluid.clip.error_clip_callback", "tstatic.fluid.io.default_collate_fn", "tstatic.fluid.layers.load",
        ),
        "it takes objects or calls functions: tests/parity/test_older_calls.py",
    ),
    "tstatic.grad": "it passes on to gradients, or refuses: tests/parity/test_older_calls.py",
    "tstatic.static.load_vars": FILES,
    "tstatic.static.save_vars": FILES,
    "tstatic.callbacks.train": "it calls what it is given: tests/cpu/test_callbacks.py",
    **dict.fromkeys(
        (
            "tstatic.nn.Layer", "tstatic.nn.LayerDict", "tstatic.nn.LayerList",
            "tstatic.nn.ParameterList", "tstatic.nn.initializer.Bilinear", "tstatic.nn.initializer.Initializer",
            "tstatic.optimizer.Optimizer", "tstatic.optimizer.lr.LRScheduler", "tstatic.regularizer.WeightDecayRegularizer",
            "tstatic.fluid.clip.GradientClipBase",
        ),
        ABSTRACT,
    ),
    **dict.fromkeys(
        (
            *(f"tstatic.distributed.{name}" for name in (
                "all_gather", "all_reduce", "all_to_all", "alltoall_single", "broadcast", "gather", "get_group", "irecv", "isend",
                "local", "mean", "new_group", "reduce", "reduce_scatter", "scatter", "spawn", "get_rank", "get_world_size",
                *(f"fleet.metrics.{name}" for name in ("acc", "auc", "mae", "max", "min", "mse", "rmse", "sum")),
                "all_gather_object", "broadcast_object_list", "scatter_object_list", "io.load_inference_model_distributed",
                *(f"fleet.meta_optimizers.common.is_{name}_op" for name in ("backward", "loss_grad", "optimizer", "update")),
            )),
        ),
        EXCHANGE,
    ),
    **dict.fromkeys(
        (
            "Variable.__setitem__", "Variable.backward", "Variable.item", "Variable.numpy",
            *(f"tstatic.static.{name}" for name in (
                "IpuCompiledProgram", "IpuStrategy", "ipu_shard_guard", "set_ipu_shard", "xpu_places",
            )),
        ),
        REFUSES,
    ),
    **dict.fromkeys(
        (
            *(f"tstatic.fluid.{name}" for name in (
                "backward._as_list", "backward.check_type", "data_feeder.check_dtype", "data_feeder.check_variable_and_dtype",
                "executor._as_lodtensor", "executor._fetch_var", "framework._get_var", "layers.collective._c_allgather",
                "layers.collective._c_sync_comm_stream", "layers.device.get_places", "transpiler.details.program_to_code",
            )),
            "tstatic.check_shape", "tstatic.framework.convert_np_dtype_to_dtype_", "tstatic.framework.grad_var_name",
        ),
        INTERNAL,
    ),
    **dict.fromkeys(
        (
            "tstatic.disable_static", "tstatic.get_rng_state", "tstatic.set_rng_state", "tstatic.set_cuda_rng_state",
            "tstatic.set_grad_enabled", "tstatic.is_tensor", "tstatic.is_complex", "tstatic.utils.try_import",
            *(f"tstatic.device.{name}" for name in ("Event", "Stream", "current_stream", "set_stream", "stream_guard")),
            "tstatic.get_flags", "tstatic.set_flags", "tstatic.seed", "tstatic.set_default_dtype", "tstatic.set_device",
            "tstatic.is_compiled_with_custom_device", "tstatic.register_kernel", "tstatic.show_versions",
            "tstatic.static.cuda_places", "tstatic.static.program_guard", "tstatic.static.scope_guard",
            "tstatic.nn.initializer.set_global_initializer", "tstatic.utils.require_version", "tstatic.utils.run_check",
            "tstatic.framework.switch_main_program",
            "tstatic.framework.switch_startup_program", "Variable.dim",
            "tstatic.profiler.export_chrome_tracing", "tstatic.profiler.export_protobuf",
            "tstatic.profiler.load_profiler_result", "tstatic.profiler.make_scheduler", "tstatic.profiler.profile",
            *(f"tstatic.utils.profiler.{name}" for name in ("cuda_profiler", "profiler", "start_profiler", "stop_profiler")),
            "tstatic.static.amp.cast_parameters_to_fp16", "tstatic.static.amp.bf16.cast_parameters_to_bf16",
        ),
        PROCESS,
    ),
    **dict.fromkeys(
        (
            "tstatic.static.deserialize_persistables", "tstatic.static.deserialize_program", "tstatic.static.load",
            "tstatic.static.load_from_file", "tstatic.static.load_inference_model", "tstatic.static.load_program_state",
            "tstatic.static.normalize_program", "tstatic.static.save", "tstatic.static.save_inference_model",
            "tstatic.static.save_to_file", "tstatic.static.serialize_persistables", "tstatic.static.serialize_program",
            "tstatic.static.set_program_state", "tstatic.fluid.io.get_parameter_value",
            "tstatic.fluid.io.get_parameter_value_by_name", "tstatic.fluid.io.load_inference_model",
            "tstatic.fluid.io.save_inference_model", "tstatic.load", "tstatic.save", "tstatic.fluid.load_dygraph",
            "tstatic.inference.convert_to_mixed_precision", "tstatic.inference.create_predictor",
            "tstatic.inference.get_num_bytes_of_data_type",
            "tstatic.fluid.save_dygraph",
            "Variable.get_value", "Variable.set_value", "tstatic.onnx.export",
            *(
                f"tstatic.static.io.{name}"
                for name in (
                    "_serialize_persistables", "get_program_parameter", "get_program_persistable_vars", "is_belong_to_optimizer",
                    "load_params", "load_persistables", "save_params", "save_persistables",
                )
            ),
        ),
        FILES,
    ),
    "tstatic.from_torch": "it takes modules of torch; tests/torch_import compares them",
}  # fmt: skip
"""Functions that only the check by syntax sees, and why; a new function needs a sample or an entry."""


# ------------------------------------------------------------------------------------------------------- tensor arrays
def array_of_two() -> Any:
    """A tensor array of two elements."""
    return paddle.tensor.create_array("float32", [paddle.ones([1, 2]), paddle.zeros([1, 2])])


def _at(i: int) -> Any:
    return paddle.full([1], i, "int64")


SAMPLES |= {
    "tstatic.array_length": Sample(
        lambda: {"array": array_of_two()}, {"array": [lambda: paddle.tensor.create_array("float32")]}
    ),
    "tstatic.array_read": Sample(
        lambda: {"array": array_of_two(), "i": _at(0)},
        {"array": [lambda: paddle.tensor.create_array("float32", [paddle.full([1, 2], 3.0)])]},
    ),
    "tstatic.array_write": Sample(
        lambda: {"x": data((1, 2)), "i": _at(2), "array": array_of_two()},
        {"array": [lambda: paddle.tensor.create_array("float32", [paddle.ones([1, 2])] * 3)]},
    ),
    "tstatic.tensor_array_to_tensor": Sample(
        lambda: {"input": array_of_two(), "axis": 0},
        {"input": [lambda: paddle.tensor.create_array("float32", [paddle.full([1, 2], 3.0)])]},
    ),
}


# ------------------------------------------------------------------------------------------------------- boxes and regions
def _number(name: str = "number") -> Any:
    return data((1,), "int32", name)


def _answer(channels: int = 7, **more: Any) -> dict[str, Any]:
    size = data((1, 2), "int32", "size")
    return {
        "x": data((1, channels, 2, 2)),
        "img_size": size,
        "anchors": [10, 12],
        "class_num": 2,
        "conf_thresh": 0.1,
    } | more


SAMPLES |= {
    "tstatic.fluid.layers.box_coder": Sample(
        lambda: {
            "prior_box": data((3, 4)),
            "prior_box_var": [0.1, 0.1, 0.2, 0.2],
            "target_box": data((2, 4), name="t"),
        },
        more=(
            lambda: {
                "prior_box": data((3, 4)),
                "prior_box_var": None,
                "target_box": data((3, 3, 4), name="t"),
                "code_type": "decode_center_size",
            },
        ),
    ),
    "tstatic.fluid.layers.image_resize_short": Sample(others={"resample": ["NEAREST"]}),
    "tstatic.fluid.layers.prior_box": Sample(
        others={"min_sizes": [[3.0]], "aspect_ratios": [[2.0]], "variance": [[0.2] * 4], "steps": [[2.0, 3.0]]}
    ),
    **dict.fromkeys(
        ("tstatic.fluid.layers.roi_align", "tstatic.fluid.layers.roi_pool"),
        Sample(
            lambda: {"input": data((1, 2, 4, 4)), "rois": data((1, 4), name="rois"), "rois_num": _number()},
            {"rois_num": [lambda: _number("other")], "rois_lod": [lambda: ids(2, name="more")]},
            more=[
                lambda: {
                    "input": data((1, 2, 4, 4)),
                    "rois": data((1, 4), name="rois"),
                    "rois_lod": ids(2, name="offsets"),
                }
            ],
        ),
    ),
    "tstatic.fluid.layers.cross": Sample(lambda: {"input": data((3, 3)), "other": data((3, 3), name="y")}),
    "tstatic.incubate.nn.functional.fused_feedforward": Sample(
        lambda: _block() | {"pre_layer_norm": True}, more=[_block]
    ),
    "tstatic.incubate.nn.functional.fused_multi_head_attention": Sample(
        lambda: _heads() | {"pre_layer_norm": True},
        more=[
            _heads,
            lambda: _heads() | {"transpose_qkv_wb": True, "num_heads": 2, "qkv_weight": data((4, 12), name="wide")},
        ],
    ),
    "tstatic.incubate.nn.functional.fused_layer_norm": Sample(
        lambda: {**_normal(), "begin_norm_axis": 2, "residual": data((2, 1, 4), name="r")}
    ),
    "tstatic.incubate.nn.functional.fused_rms_norm": Sample(lambda: {**_normal(), "begin_norm_axis": 2}),
    "tstatic.incubate.nn.functional.fused_rotary_position_embedding": Sample(
        lambda: {"q": data((2, 3, 2, 4)), "sin": data((3, 4), name="s"), "cos": data((3, 4), name="c")},
        {"k": [lambda: data((2, 3, 2, 4), name="k")], "v": [lambda: data((2, 3, 2, 4), name="v")]},
    ),
    "tstatic.incubate.nn.functional.variable_length_memory_efficient_attention": Sample(
        lambda: {
            **{name: data((2, 1, 3, 4), name=name) for name in ("query", "key", "value")},
            "seq_lens": ids(2, 1, name="n"),
            "kv_seq_lens": ids(2, 1, name="m"),
        }
    ),
    "tstatic.fluid.layers.hash": Sample(lambda: {"input": ids(2, 3), "hash_size": 100}),
    "tstatic.fluid.optimizer.append_regularization_ops": Sample(
        lambda: {"parameters_and_grads": [(parameter(), data((4,), name="g"))]},
        {"parameters_and_grads": [lambda: [(parameter("v"), data((4,), name="h"))]]},
    ),
    "tstatic.fluid.layers.sampled_softmax_with_cross_entropy": Sample(
        lambda: {"logits": data((2, 6)), "label": ids(2, 1), "num_samples": 3},
        more=(
            lambda: {
                "logits": data((2, 6)),
                "label": ids(2, 1),
                "num_samples": 3,
                "use_customized_samples": True,
                "customized_samples": ids(2, 4, name="drawn"),
                "customized_probabilities": data((2, 4), name="p"),
            },
            lambda: {"logits": data((2, 6)), "label": ids(2, 2), "num_samples": 3, "num_true": 2},
        ),
    ),
    "tstatic.fluid.layers.yolo_box": Sample(lambda: _answer(8, downsample_ratio=32, iou_aware=True)),
    "tstatic.static.nn.static_pylayer": Sample(
        lambda: {"forward_fn": lambda a: a * 2.0, "inputs": [data((2,))], "backward_fn": lambda g: g * 3.0},
        {"forward_fn": [lambda: lambda a: a * 4.0], "backward_fn": [lambda: lambda g: g * 5.0]},
    ),
}


def _use_regions(layer: Any, _: dict[str, Any]) -> Any:
    return layer(data((1, 8, 4, 4)), data((1, 4), name="boxes"), _number())


def _use_offsets(layer: Any, _: dict[str, Any]) -> Any:
    kernel = layer.weight.shape[2:]
    sizes = [
        (5 + 2 * pad - dilation * (k - 1) - 1) // stride + 1
        for k, stride, pad, dilation in zip(kernel, layer._stride, layer._padding, layer._dilation, strict=True)
    ]
    places = 2 * layer._deformable_groups * kernel[0] * kernel[1]
    return layer(data((1, layer.weight.shape[1] * layer._groups, 5, 5)), data((1, places, *sizes), name="o"))


def _deform() -> dict[str, Any]:
    return {"x": data((1, 4, 5, 5)), "offset": data((1, 18, 3, 3), name="o"), "weight": data((2, 4, 3, 3), name="w")}


SAMPLES |= {
    "tstatic.vision.ops.DeformConv2D": Sample(use=_use_offsets),
    "tstatic.vision.ops.PSRoIPool": Sample(use=_use_regions),
    "tstatic.vision.ops.RoIAlign": Sample(use=_use_regions),
    "tstatic.vision.ops.RoIPool": Sample(use=_use_regions),
    "tstatic.vision.ops.box_coder": SAMPLES["tstatic.fluid.layers.box_coder"],
    "tstatic.vision.ops.decode_jpeg": Sample(lambda: {"x": data((9,), "uint8")}, {"mode": ["gray"]}),
    "tstatic.vision.ops.deform_conv2d": Sample(_deform, {"mask": [lambda: data((1, 9, 3, 3), name="m")]}),
    "tstatic.vision.ops.prior_box": SAMPLES["tstatic.fluid.layers.prior_box"],
    "tstatic.vision.ops.read_file": Sample(lambda: {"filename": "one.jpg"}),
}
