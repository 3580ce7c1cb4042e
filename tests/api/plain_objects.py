"""Legal calls of what ``samples.py`` leaves to other tests: metrics, transforms, distributions, layers, profilers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tstatic as paddle
from tests.api.plain_calls import add, executor, image, main_program, method, of, saved
from tests.api.samples import data, ids
from tstatic import fluid, static

D = paddle.distribution
T = paddle.vision.transforms


def _transforming(name: str) -> Callable[..., Any]:
    """Makes a transform and uses it."""
    return lambda **given: getattr(T, name)(**given)(image())


def _recurrent(name: str) -> Callable[[], Any]:
    return lambda: getattr(paddle.nn, name)(3, 4)


def _net() -> Any:
    return paddle.nn.Sequential(paddle.nn.Linear(3, 2))


def _cell() -> Any:
    return paddle.nn.GRUCell(3, 4)


def _steps() -> Any:
    return data([2, 5, 3])


# metrics
_CORRECT = np.array([[1.0], [0.0]], "float32")
_PREDS, _LABELS = np.array([[0.3, 0.7], [0.6, 0.4]], "float32"), np.array([[1], [0]], "int64")
of("metric.Accuracy", topk=(1,), name=None)
of("metric.Precision", name="p")
of("metric.Recall", name="r")
of("metric.Auc", curve="ROC", num_thresholds=255, name="auc")
method("metric.Accuracy.compute", lambda: paddle.metric.Accuracy(), pred=lambda: data([2, 2]), label=lambda: ids(2, 1))
method("metric.Accuracy.update", lambda: paddle.metric.Accuracy(), correct=lambda: _CORRECT.copy())
of("fluid.metrics.Accuracy", name=None)
of("fluid.metrics.Auc", name="auc", curve="ROC", num_thresholds=255)
method("fluid.metrics.Accuracy.update", lambda: fluid.metrics.Accuracy(), value=0.5, weight=2)
for _name, _make, _given in (
    ("metric.Precision", lambda: paddle.metric.Precision(), _CORRECT), ("metric.Recall", lambda: paddle.metric.Recall(), _CORRECT),
    ("metric.Auc", lambda: paddle.metric.Auc(), _PREDS), ("fluid.metrics.Precision", lambda: fluid.metrics.Precision(), _CORRECT),
    ("fluid.metrics.Recall", lambda: fluid.metrics.Recall(), _CORRECT),
    ("fluid.metrics.Auc", lambda: fluid.metrics.Auc("a"), _PREDS),
):  # fmt: skip
    method(f"{_name}.update", _make, preds=lambda _given=_given: _given.copy(), labels=lambda: _LABELS.copy())
method(
    "fluid.metrics.EditDistance.update",
    lambda: fluid.metrics.EditDistance("e"),
    distances=lambda: _CORRECT.copy(),
    seq_num=2,
)
method(
    "fluid.metrics.ChunkEvaluator.update",
    lambda: fluid.metrics.ChunkEvaluator(),
    num_infer_chunks=3,
    num_label_chunks=3,
    num_correct_chunks=2,
)
method(
    "fluid.metrics.CompositeMetric.add_metric",
    lambda: fluid.metrics.CompositeMetric(),
    metric=lambda: fluid.metrics.Accuracy(),
)
method("fluid.average.WeightedAverage.add", lambda: fluid.average.WeightedAverage(), value=1.0, weight=2)

# images
for _name, _given in {
    "adjust_brightness": {"brightness_factor": 0.5},
    "adjust_contrast": {"contrast_factor": 0.5},
    "adjust_hue": {"hue_factor": 0.2},
    "adjust_saturation": {"saturation_factor": 0.5},
    "center_crop": {"output_size": 3},
    "crop": {"top": 1, "left": 1, "height": 2, "width": 2},
    "erase": {"i": 1, "j": 1, "h": 2, "w": 2, "v": 0, "inplace": False},
    "hflip": {},
    "vflip": {},
    "pad": {"padding": 1, "fill": 0, "padding_mode": "constant"},
    "resize": {"size": [4, 4], "interpolation": "bilinear"},
    "to_grayscale": {"num_output_channels": 1},
    "rotate": {"angle": 10.0, "interpolation": "nearest", "expand": False, "center": None, "fill": 0},
    "affine": {
        "angle": 10.0,
        "translate": [1, 1],
        "scale": 1.5,
        "shear": [1.0, 0.0],
        "interpolation": "nearest",
        "fill": 0,
        "center": None,
    },
    "perspective": {
        "startpoints": [[0, 0], [5, 0], [5, 4], [0, 4]],
        "endpoints": [[1, 0], [5, 0], [5, 4], [0, 4]],
        "interpolation": "nearest",
        "fill": 0,
    },
}.items():
    of(f"vision.transforms.{_name}", img=lambda: image(), **_given)
of("vision.transforms.to_tensor", pic=lambda: image(), data_format="CHW")
of(
    "vision.transforms.normalize",
    img=lambda: image().astype("float32"),
    mean=[0.0] * 3,
    std=[1.0] * 3,
    data_format="HWC",
    to_rgb=False,
)
for _name, _given in {
    "BrightnessTransform": {"value": 0.4},
    "CenterCrop": {"size": 3},
    "ColorJitter": {"brightness": 0.1, "contrast": 0.1, "saturation": 0.1, "hue": 0.1},
    "Compose": {"transforms": [T.ToTensor()]},
    "ContrastTransform": {"value": 0.4},
    "Grayscale": {"num_output_channels": 1},
    "HueTransform": {"value": 0.2},
    "Normalize": {"mean": [0.0] * 3, "std": [1.0] * 3, "data_format": "HWC", "to_rgb": False},
    "Pad": {"padding": 1, "fill": 0, "padding_mode": "constant"},
    "RandomAffine": {
        "degrees": 10,
        "translate": (0.1, 0.1),
        "scale": (0.5, 1.5),
        "shear": 5,
        "interpolation": "nearest",
    },
    "RandomCrop": {"size": 3, "padding": 1, "pad_if_needed": True, "fill": 0, "padding_mode": "constant"},
    "RandomErasing": {"prob": 1.0, "scale": (0.1, 0.3), "ratio": (0.3, 3.3), "value": 0, "inplace": False},
    "RandomHorizontalFlip": {"prob": 0.5},
    "RandomVerticalFlip": {"prob": 0.5},
    "RandomPerspective": {"prob": 1.0, "distortion_scale": 0.5, "interpolation": "nearest", "fill": 0},
    "RandomResizedCrop": {"size": 3, "scale": (0.1, 1.0), "ratio": (0.75, 1.3), "interpolation": "bilinear"},
    "RandomRotation": {"degrees": 10, "interpolation": "nearest", "expand": False, "center": None, "fill": 0},
    "Resize": {"size": 4, "interpolation": "bilinear"},
    "SaturationTransform": {"value": 0.4},
    "ToTensor": {"data_format": "CHW"},
    "Transpose": {"order": (2, 0, 1)},
}.items():
    add(
        f"tstatic.vision.transforms.{_name}",
        _transforming(_name),
        {**_given, **({} if _name == "Compose" else {"keys": None})},
    )

# random distributions
for _name, _given in {
    "Bernoulli": {"probs": 0.5},
    "Beta": {"alpha": 0.5, "beta": 0.5},
    "Categorical": {"logits": lambda: data([3])},
    "Cauchy": {"loc": 0.0, "scale": 1.0},
    "Dirichlet": {"concentration": lambda: data([3])},
    "Geometric": {"probs": 0.5},
    "Gumbel": {"loc": 0.0, "scale": 1.0},
    "Laplace": {"loc": 0.0, "scale": 1.0},
    "LogNormal": {"loc": 0.0, "scale": 1.0},
    "Multinomial": {"total_count": 3, "probs": lambda: data([3])},
    "Normal": {"loc": 0.0, "scale": 1.0},
    "Uniform": {"low": 0.0, "high": 1.0},
    "Distribution": {"batch_shape": (), "event_shape": ()},
    "Independent": {"base": lambda: D.Normal(data([3]), 1.0), "reinterpreted_batch_rank": 1},
    "TransformedDistribution": {"base": lambda: D.Normal(0.0, 1.0), "transforms": lambda: [D.ExpTransform()]},
    "AffineTransform": {"loc": lambda: data([1]), "scale": lambda: data([1])},
    "ChainTransform": {"transforms": lambda: [D.ExpTransform()]},
    "IndependentTransform": {"base": lambda: D.ExpTransform(), "reinterpreted_batch_rank": 1},
    "PowerTransform": {"power": lambda: data([1])},
    "ReshapeTransform": {"in_event_shape": (2, 3), "out_event_shape": (3, 2)},
    "StackTransform": {"transforms": lambda: [D.ExpTransform()], "axis": 0},
}.items():
    of(f"distribution.{_name}", **_given)
_DRAWN: dict[str, Callable[[], Any]] = {
    "Bernoulli": lambda: D.Bernoulli(0.5),
    "Beta": lambda: D.Beta(0.5, 0.5),
    "Categorical": lambda: D.Categorical(data([3])),
    "Cauchy": lambda: D.Cauchy(0.0, 1.0),
    "Geometric": lambda: D.Geometric(0.5),
    "Gumbel": lambda: D.Gumbel(0.0, 1.0),
    "Laplace": lambda: D.Laplace(0.0, 1.0),
    "LogNormal": lambda: D.LogNormal(0.0, 1.0),
    "Normal": lambda: D.Normal(0.0, 1.0),
    "Uniform": lambda: D.Uniform(0.0, 1.0),
}
for _name, _make in _DRAWN.items():
    method(f"distribution.{_name}.sample", _make, shape=[2])
    method(
        f"distribution.{_name}.log_prob",
        _make,
        value=lambda n=_name: data([2], "int64" if n == "Categorical" else "float32", "v"),
    )
method("distribution.Normal.kl_divergence", _DRAWN["Normal"], other=lambda: D.Normal(1.0, 1.0))
of("distribution.kl_divergence", p=lambda: D.Normal(0.0, 1.0), q=lambda: D.Normal(1.0, 1.0))
of("distribution.register_kl", cls_p=D.Normal, cls_q=D.Normal)
method(
    "distribution.AffineTransform.forward",
    lambda: D.AffineTransform(data([1]), data([1], name="s")),
    x=lambda: data([2], name="v"),
)
method("distribution.ReshapeTransform.forward_shape", lambda: D.ReshapeTransform((2, 3), (3, 2)), shape=(2, 3))

# recurrent layers
for _name in ("GRU", "LSTM", "SimpleRNN"):
    of(f"nn.{_name}", input_size=3, hidden_size=4, num_layers=1, direction="forward", time_major=False, dropout=0.0)
    method(f"nn.{_name}.forward", _recurrent(_name), inputs=lambda: _steps(), initial_states=None, sequence_length=None)
    of(f"nn.{_name}Cell", input_size=3, hidden_size=4)
    method(f"nn.{_name}Cell.forward", _recurrent(f"{_name}Cell"), inputs=lambda: data([2, 3]), states=None)
of("nn.RNN", cell=lambda: _cell(), is_reverse=False, time_major=False)
of("nn.BiRNN", cell_fw=lambda: _cell(), cell_bw=lambda: _cell(), time_major=False)
of(
    "nn.functional.rnn",
    cell=lambda: _cell(),
    inputs=lambda: _steps(),
    initial_states=None,
    sequence_length=None,
    time_major=False,
    is_reverse=False,
)
of(
    "nn.functional.birnn",
    cell_fw=lambda: _cell(),
    cell_bw=lambda: _cell(),
    inputs=lambda: _steps(),
    initial_states=None,
    sequence_length=None,
    time_major=False,
)
of(
    "fluid.layers.lstm",
    input=lambda: data([5, 2, 3]),
    init_h=lambda: data([1, 2, 4], name="h"),
    init_c=lambda: data([1, 2, 4], name="c"),
    max_len=5,
    hidden_size=4,
    num_layers=1,
    dropout_prob=0.0,
    is_bidirec=False,
    is_test=False,
)
of("fluid.layers.gru_unit", input=lambda: data([2, 12]), hidden=lambda: data([2, 4], name="h"), size=12)
of(
    "fluid.contrib.basic_gru",
    input=lambda: _steps(),
    init_hidden=None,
    hidden_size=4,
    num_layers=1,
    sequence_length=None,
    dropout_prob=0.0,
    bidirectional=False,
    batch_first=True,
)
of(
    "fluid.contrib.basic_lstm",
    input=lambda: _steps(),
    init_hidden=None,
    init_cell=None,
    hidden_size=4,
    num_layers=1,
    sequence_length=None,
    dropout_prob=0.0,
    bidirectional=False,
    batch_first=True,
)

# layers and networks
of("nn.LayerList", sublayers=lambda: [_net()])
of("nn.LayerDict", sublayers=lambda: {"a": _net()})
of("nn.ParameterList", parameters=lambda: [paddle.create_parameter([2], "float32")])
for _name, _given in {
    "add_parameter": {"name": "w", "parameter": lambda: paddle.create_parameter([2], "float32")},
    "add_sublayer": {"name": "s", "sublayer": lambda: _net()},
    "apply": {"fn": lambda: print},
    "create_parameter": {"shape": [2], "attr": None, "dtype": None, "is_bias": False, "default_initializer": None},
    "register_buffer": {"name": "b", "tensor": lambda: paddle.zeros([2]), "persistable": True},
    "register_forward_pre_hook": {"hook": lambda: print},
    "state_dict": {"destination": None, "include_sublayers": True},
    "set_state_dict": {"state_dict": lambda: {"0.bias": np.zeros(2, "float32")}, "use_structured_name": True},
    "named_sublayers": {"prefix": "", "include_self": False, "layers_set": None},
}.items():
    method(f"nn.Layer.{_name}", _net, **_given)
of("summary", net=lambda: _net(), input_size=(2, 3), dtypes=None, input=None)
of("flops", net=lambda: _net(), input_size=[2, 3], custom_ops=None, print_detail=False)
for _name, _given in {
    "LeNet": {"num_classes": 10},
    "vgg11": {"pretrained": False, "batch_norm": False},
    "resnet18": {"pretrained": False},
    "mobilenet_v1": {"pretrained": False, "scale": 0.25},
    "mobilenet_v2": {"pretrained": False, "scale": 0.25},
}.items():
    of(f"vision.models.{_name}", **_given)


# state of the process, profilers, places, programs
def _step(batch: Any) -> dict[str, float]:
    return {"loss": 0.5}


of("seed", seed=3)
of("get_flags", flags=["FLAGS_check_nan_inf"])
of("set_flags", flags={"FLAGS_check_nan_inf": 0})
of("set_default_dtype", d="float32")
of("set_device", device="cpu")
of("set_grad_enabled", mode=True)
of("set_printoptions", precision=8, threshold=1000, edgeitems=3, sci_mode=False, linewidth=75)
of("CUDAPlace", id=0)
of("device.XPUPlace", dev_id=0)
of("static.cuda_places", device_ids=[0])
of("static.InputSpec", shape=[None, 2], dtype="float32", name="x", stop_gradient=False)
method("static.InputSpec.batch", lambda: static.InputSpec([2]), batch_size=3)
of("static.InputSpec.from_numpy", ndarray=lambda: np.ones(3), name=None)
of("static.InputSpec.from_tensor", tensor=lambda: data([3]), name=None)
of("static.Scope", parent=None)
for _name in ("var", "find_var", "array"):
    method(f"static.Scope.{_name}", lambda: _scope(), name="v")


def _open() -> Any:
    static.nn.fc(static.data("x", [None, 3]), 2)
    static.Executor().run(static.default_startup_program())
    return static.default_main_program()


def _scope() -> Any:
    scope = static.Scope()
    scope.var("v").get_tensor().set(np.ones(2, "float32"), paddle.CPUPlace())
    return scope


method("static.Program.clone", static.Program, for_test=False)
method("static.Program.block", static.Program, index=0)
method("static.Program.global_seed", static.Program, seed=1)
method("static.Program.state_dict", lambda: main_program(), mode="all", scope=None)
method(
    "static.Program.set_state_dict",
    lambda: main_program(),
    state=lambda: {"fc_0.b_0": np.zeros(2, "float32")},
    scope=None,
)
method("static.Program.to_string", static.Program, throw_on_error=True, with_details=False)
of("static.Program.parse_from_string", data=lambda: Path(saved() + ".pdmodel").read_bytes())
of("static.program_guard", main_program=lambda: static.Program(), startup_program=lambda: static.Program())
of("static.scope_guard", scope=lambda: static.Scope())
of("static.Executor", place=lambda: paddle.CPUPlace())
of(
    "static.CompiledProgram",
    program_or_graph=lambda: static.default_main_program(),
    build_strategy=None,
    exec_strategy=None,
    numerics=None,
)
of(
    "static.ParallelExecutor",
    use_cuda=False,
    loss_name=None,
    main_program=None,
    share_vars_from=None,
    exec_strategy=None,
    build_strategy=None,
    num_trainers=1,
    trainer_id=0,
    scope=None,
)
add(
    "tstatic.static.ExponentialMovingAverage",
    static.ExponentialMovingAverage,
    lambda: {"decay": _net()(data([2, 3])) is not None and 0.99, "thres_steps": None, "name": None},
)
for _name, _given in {
    "explain": {"fetch_list": None, "feed_shapes": {"x": [2, 3]}, "verbose": False},
    "memory_report": {"feed_shapes": {"x": [2, 3]}, "fetch_list": None, "scope": None, "place": None},
    "fits": {"memory": 1 << 30, "feed_shapes": {"x": [2, 3]}, "fetch_list": None, "scope": None},
    "with_data_parallel": {
        "loss_name": None,
        "build_strategy": None,
        "exec_strategy": None,
        "share_vars_from": None,
        "places": None,
    },
}.items():
    method(f"static.CompiledProgram.{_name}", lambda: static.CompiledProgram(main_program()), **_given)
method(
    "static.CompiledProgram.max_batch",
    lambda: static.CompiledProgram(_open()),
    memory=1 << 20,
    feed_shapes=None,
    fetch_list=None,
    scope=None,
    multiple_of=1,
)
method(
    "static.Executor.run",
    lambda: executor(),
    program=None,
    feed=lambda: {"x": np.ones((2, 3), "float32")},
    fetch_list=lambda: ["fc_0.b_0"],
    scope=None,
    return_numpy=True,
    use_program_cache=False,
    return_merged=True,
    use_prune=False,
)
of("profiler.profile", ops=True, shapes=False, memory=False, kernels=False, trace=None)
of("profiler.make_scheduler", closed=1, ready=1, record=1, repeat=0, skip_first=0)
of("profiler.export_chrome_tracing", dir_name="p/t", worker_name=None)
of("profiler.export_protobuf", dir_name="p/t", worker_name=None)
of("profiler.load_profiler_result", filename="nothing.json")
of(
    "profiler.Profiler",
    targets=None,
    scheduler=None,
    on_trace_ready=None,
    record_shapes=False,
    profile_memory=False,
    timer_only=True,
    emit_nvtx=False,
    custom_device_types=(),
    with_flops=False,
)
of("profiler.RecordEvent", name="e", event_type=None)
of("utils.profiler.profiler", state="CPU", sorted_key=None, profile_path="p/profile", tracer_option="Default")
of("utils.try_import", module_name="json")
of("utils.require_version", min_version="0.0.1", max_version=None)
of("is_compiled_with_custom_device", device_type="npu")
of("callbacks.CSVLogger", path="log.csv", append=False)
of("callbacks.CallbackList", callbacks=())
of("callbacks.ProgBarLogger", stream=None)
of("callbacks.TensorBoard", log_dir="p/runs", every=1)
# As many epochs as it is asked for: that it does not end is no fault.
add(
    "tstatic.callbacks.train",
    lambda step, batches, callbacks: paddle.callbacks.train(step, batches, 1, callbacks),
    lambda: {"step": _step, "batches": [[1], [2]], "callbacks": ()},
)
of("incubate.LookAhead", inner_optimizer=lambda: paddle.optimizer.SGD(0.1), alpha=0.5, k=5, name=None)
of(
    "incubate.ModelAverage",
    average_window_rate=0.1,
    parameters=None,
    min_average_window=2,
    max_average_window=4,
    name=None,
)
of("incubate.optimizer.GradientMergeOptimizer", inner_optimizer=lambda: paddle.optimizer.SGD(0.1), k_steps=2, avg=True)
of("incubate.optimizer.RecomputeOptimizer", optimizer=lambda: paddle.optimizer.SGD(0.1))

# processes, of which there is one
for _name, _given in {
    "all_reduce": {"tensor": lambda: data([2]), "op": 0},
    "broadcast": {"tensor": lambda: data([2]), "src": 0},
    "reduce": {"tensor": lambda: data([2]), "dst": 0, "op": 0},
    "all_gather": {"tensor_list": lambda: [], "tensor": lambda: data([2])},
    "scatter": {"tensor": lambda: data([2]), "tensor_list": lambda: [data([2])], "src": 0},
    "get_group": {"id": 0},
    "new_group": {"ranks": None, "backend": None, "timeout": None},
    "get_rank": {"group": None},
    "get_world_size": {"group": None},
    "all_gather_object": {"object_list": lambda: [], "obj": 3},
    "broadcast_object_list": {"object_list": lambda: [3], "src": 0},
    "local": {"array": lambda: np.ones(3)},
}.items():
    of(f"distributed.{_name}", **_given)
for _name in ("sum", "max", "min"):
    of(f"distributed.fleet.metrics.{_name}", input=lambda: np.ones(2), scope=None, util=None)
of("distributed.fleet.UserDefinedRoleMaker", is_collective=True, current_id=0, worker_num=1)
of("distributed.fleet.PaddleCloudRoleMaker", is_collective=True)
