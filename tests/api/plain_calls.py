"""Legal calls of what ``samples.py`` leaves to other tests: here of files and data; ``plain_objects.py`` has the others.

They are made with one wrong argument at a time (:mod:`tests.api.refused`): an error must have a type there, too. Their names are
those of functions, classes and methods; a method's call makes its object anew.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import tstatic as paddle
from tests.api.samples import Sample, data
from tstatic import fluid, static


# ---------------------------------------------------------------------------------------------------------------- objects
@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tstatic-plain-")


def folder() -> Path:
    """A folder of this process for what the calls read and write."""
    return Path(_folder().name)


@contextlib.contextmanager
def inside() -> Iterator[None]:
    """Works in that folder: a wrong path is often a legal one."""
    before = os.getcwd()
    os.chdir(folder())
    try:
        yield
    finally:
        os.chdir(before)


def rows(count: int = 6) -> list[tuple[Any, ...]]:
    """Samples of two floats and a label."""
    return [(np.full(2, i, "float32"), np.array([i % 2], "int64")) for i in range(count)]


class _Endless(paddle.io.IterableDataset):
    def __iter__(self) -> Iterator[Any]:
        yield from rows()


def reader() -> Iterator[Any]:
    """A reader in the sense of 1.x: a function that returns an iterator."""
    return iter(rows())


def image() -> Any:
    return np.arange(5 * 6 * 3, dtype="uint8").reshape(5, 6, 3)


def _trained() -> tuple[Any, Any]:
    """An Executor whose scope holds the parameters of the main program, and the output of that."""
    out = static.nn.fc(data([2, 3]), 2)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    return exe, out


@cache
def saved() -> str:
    """Prefix of a saved model for inference and of a checkpoint."""
    with (
        static.program_guard(static.Program(), static.Program()),
        static.scope_guard(static.Scope()),
        paddle.utils.unique_name.guard(),
    ):
        exe, out = _trained()
        prefix = str(folder() / "saved")
        static.save_inference_model(prefix, [static.default_main_program().global_block().var("x")], [out], exe)
        static.save(static.default_main_program(), f"{prefix}_state")
        paddle.save({"a": np.ones(3)}, f"{prefix}.object")
    return prefix


def _config() -> Any:
    return paddle.inference.Config(saved() + ".pdmodel", saved() + ".pdiparams")


@cache
def _images() -> str:
    """A folder of two classes with one image each."""
    from PIL import Image

    for name in ("a", "b"):
        (folder() / "images" / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image()).save(folder() / "images" / name / "one.png")
    return str(folder() / "images")


def _manager() -> Any:
    _trained()
    return static.CheckpointManager(str(folder() / "checkpoints"), static.default_main_program())


def _lod() -> Any:
    return fluid.LoDTensor(scope=static.Scope())


# ------------------------------------------------------------------------------------------------------------------ calls
CALLS: dict[str, Sample] = {}
"""Legal calls by the name of what is called."""
OBJECTS: dict[str, Callable[[], Any]] = {}
"""What makes the objects of methods."""


def add(
    name: str, call: Callable[..., Any], arguments: Callable[[], dict[str, Any]] | Mapping[str, Any] | None = None
) -> None:
    if arguments is None:
        arguments = {}
    if isinstance(arguments, Mapping):
        fixed = dict(arguments)
        CALLS[name] = Sample(lambda: dict(fixed), call=call)
    else:
        CALLS[name] = Sample(arguments, call=call)


def _maker(arguments: Mapping[str, Any]) -> Callable[[], dict[str, Any]]:
    """Makes arguments; those that are functions without a name make theirs anew for each call."""
    made = {key for key, value in arguments.items() if getattr(value, "__name__", "") == "<lambda>"}
    return lambda: {key: value() if key in made else value for key, value in arguments.items()}


def of(path: str, /, **arguments: Any) -> None:
    """Adds a public function or class, spelled from ``paddle``; arguments as of :func:`_maker`."""
    thing: Any = paddle
    for part in path.split("."):
        thing = getattr(thing, part)
    add(f"tstatic.{path}", thing, _maker(arguments))


def method(path: str, make: Callable[[], Any], /, **arguments: Any) -> None:
    """Adds a method; ``make`` makes the object, before the call; arguments as of :func:`_maker`."""
    CALLS[f"tstatic.{path}"] = Sample(_maker(arguments))
    OBJECTS[f"tstatic.{path}"] = make


# files
of(
    "static.CheckpointManager",
    folder="kept",
    program=lambda: static.default_main_program(),
    keep=3,
    mode="min",
    scheduler=None,
    name="step",
)
method("static.CheckpointManager.path", _manager, step=3)
method("static.CheckpointManager.save", _manager, step=3, metric=0.5, epoch=1)
method("static.CheckpointManager.read", lambda: _kept(), step=3)
method("static.CheckpointManager.restore", lambda: _kept(), step="latest")


def _kept() -> Any:
    manager = _manager()
    manager.save(3, metric=0.5)
    return manager


def executor() -> Any:
    return _trained()[0]


def main_program() -> Any:
    _trained()
    return static.default_main_program()


of("static.save", program=lambda: main_program(), model_path="p/q", protocol=4)
of(
    "static.load",
    program=lambda: main_program(),
    model_path=lambda: f"{saved()}_state",
    executor=None,
    var_list=None,
    strict=True,
)
of("static.load_program_state", model_path=lambda: f"{saved()}_state", var_list=None, strict=True)
of("static.set_program_state", program=lambda: main_program(), state_dict=lambda: {"fc_0.b_0": np.zeros(2, "float32")})
of(
    "static.save_inference_model",
    path_prefix="p/m",
    feed_vars=lambda: [data([2, 3])],
    fetch_vars=lambda: [_out()],
    executor=lambda: _exe_now(),
)


def _x() -> Any:
    return static.default_main_program().global_block().var("x")


def _out() -> Any:
    return static.nn.fc(_x(), 2)


def _exe_now() -> Any:
    exe = static.Executor()
    exe.run(static.default_startup_program())
    return exe


of(
    "static.load_inference_model",
    path_prefix=lambda: saved(),
    executor=lambda: static.Executor(),
    model_filename=None,
    params_filename=None,
)
of(
    "static.normalize_program",
    program=lambda: static.default_main_program(),
    feed_vars=lambda: [data([2, 3])],
    fetch_vars=lambda: [_out()],
)
of("static.serialize_program", feed_vars=lambda: [data([2, 3])], fetch_vars=lambda: [_out()])
of(
    "static.serialize_persistables",
    feed_vars=lambda: [data([2, 3])],
    fetch_vars=lambda: [_out()],
    executor=lambda: _exe_now(),
)
of("static.deserialize_program", data=lambda: Path(saved() + ".pdmodel").read_bytes())
of("static.save_to_file", path="bytes", content=b"abc")
of("static.load_from_file", path=lambda: saved() + ".pdmodel")
of("save", obj=lambda: {"a": np.ones(3)}, path="p/o", protocol=4)
of("load", path=lambda: saved() + ".object", return_numpy=True)
for _name in ("save_params", "save_persistables"):
    of(f"static.io.{_name}", executor=lambda: executor(), dirname="p/v", main_program=None, filename=None)
for _name in ("load_params", "load_persistables"):
    of(f"static.io.{_name}", executor=lambda: _written(), dirname="p/w", main_program=None, filename=None)


def _written() -> Any:
    exe = executor()
    static.io.save_persistables(exe, "p/w")
    return exe


for _name in ("save_vars", "load_vars"):
    of(
        f"static.io.{_name}",
        executor=lambda: _written(),
        dirname="p/w",
        main_program=None,
        vars=lambda: static.default_main_program().all_parameters(),
        filename=None,
    )
of("static.io.get_program_parameter", program=lambda: main_program())
of("static.io.get_program_persistable_vars", program=lambda: main_program())
of(
    "onnx.export",
    path_prefix="p/x",
    feed_vars=lambda: [data([2, 3])],
    fetch_vars=lambda: [paddle.tanh(_x())],
    program=None,
    opset_version=18,
)
of("inference.Config", prog_file=lambda: saved() + ".pdmodel", params_file=lambda: saved() + ".pdiparams")
of("inference.create_predictor", config=lambda: _config())
of("inference.PredictorPool", config=lambda: _config(), size=1)
of("inference.get_num_bytes_of_data_type", dtype=paddle.inference.DataType.FLOAT32)
method(
    "inference.Predictor.run",
    lambda: paddle.inference.create_predictor(_config()),
    inputs=lambda: [np.ones((2, 3), "float32")],
)
method("inference.Predictor.get_input_handle", lambda: paddle.inference.create_predictor(_config()), name="x")
method("inference.Tensor.copy_from_cpu", lambda: _handle(), data=lambda: np.ones((2, 3), "float32"))
method("inference.Tensor.reshape", lambda: _handle(), shape=[2, 3])
method("inference.Tensor.set_lod", lambda: _handle(), lod=[])
for _name, _given in {
    "set_cpu_math_library_num_threads": {"cpu_math_library_num_threads": 2},
    "set_mkldnn_cache_capacity": {"capacity": 1},
    "set_prog_file": {"path": "p"},
    "set_params_file": {"path": "p"},
    "set_model": {"prog_file": "a", "params_file": "b"},
    "switch_ir_optim": {"x": True},
    "enable_memory_optim": {"x": True},
}.items():
    method(f"inference.Config.{_name}", lambda: paddle.inference.Config(), **_given)


def _handle() -> Any:
    return paddle.inference.create_predictor(_config()).get_input_handle("x")


# data
of("io.random_split", dataset=lambda: rows(), lengths=[4, 2], generator=None)
of("io.Subset", dataset=lambda: rows(), indices=[0, 3])
of("io.TensorDataset", tensors=lambda: [np.ones((4, 2)), np.ones(4)])
of("io.ConcatDataset", datasets=lambda: [rows(), rows()])
of("io.ComposeDataset", datasets=lambda: [rows(), rows()])
of("io.ChainDataset", datasets=lambda: [_Endless()])
of("io.SequenceSampler", data_source=lambda: rows())
of("io.RandomSampler", data_source=lambda: rows(), replacement=True, num_samples=3, generator=None)
of("io.SubsetRandomSampler", indices=[0, 2])
of("io.WeightedRandomSampler", weights=[0.5, 0.5], num_samples=3, replacement=True)
of("io.BatchSampler", dataset=lambda: rows(), sampler=None, shuffle=True, batch_size=2, drop_last=True)
of(
    "io.DistributedBatchSampler",
    dataset=lambda: rows(),
    batch_size=2,
    num_replicas=2,
    rank=0,
    shuffle=True,
    drop_last=False,
)
method("io.DistributedBatchSampler.set_epoch", lambda: paddle.io.DistributedBatchSampler(rows(), 2, 1, 0), epoch=1)


def _loaded(**given: Any) -> Any:
    return list(paddle.io.DataLoader(**given))


add(
    "tstatic.io.DataLoader",
    _loaded,
    lambda: {
        "dataset": rows(),
        "feed_list": None,
        "places": None,
        "return_list": True,
        "batch_sampler": None,
        "batch_size": 2,
        "shuffle": True,
        "drop_last": False,
        "collate_fn": None,
        "num_workers": 0,
        "use_buffer_reader": False,
        "prefetch_factor": 2,
        "use_shared_memory": False,
        "timeout": 0,
        "worker_init_fn": None,
    },
)
of(
    "io.DataLoader.from_generator",
    feed_list=lambda: [data([2, 2])],
    capacity=4,
    use_double_buffer=False,
    iterable=True,
    return_list=False,
    use_multiprocess=False,
    drop_last=True,
)
for _name in ("set_sample_generator", "set_sample_list_generator", "set_batch_generator"):
    method(
        f"io.DataLoader.from_generator.{_name}",
        lambda: paddle.io.DataLoader.from_generator([data([2, 2])], 4, use_double_buffer=False),
        **({"batch_size": 2, "drop_last": True} if _name == "set_sample_generator" else {}),
        **{"reader": reader, "places": paddle.CPUPlace()},
    )


for _name, _given in {
    "batch": {"reader": reader, "batch_size": 2, "drop_last": False},
    "reader.cache": {"reader": reader},
    "reader.buffered": {"reader": reader, "size": 2},
    "reader.firstn": {"reader": reader, "n": 2},
    "reader.shuffle": {"reader": reader, "buf_size": 2},
    "reader.xmap_readers": {"mapper": len, "reader": reader, "process_num": 1, "buffer_size": 2, "order": True},
}.items():
    of(_name, **_given)
of("fluid.DataFeeder", feed_list=lambda: [data([2])], place=lambda: paddle.CPUPlace(), program=None)
method(
    "fluid.DataFeeder.feed",
    lambda: fluid.DataFeeder([data([2])], paddle.CPUPlace()),
    iterable=lambda: [(np.ones(2, "float32"),)],
)
method("fluid.LoDTensor.set", _lod, value=lambda: np.ones((3, 1), "float32"), place=None)
method("fluid.LoDTensor.set_lod", _lod, lod=[[0, 1, 3]])
method("fluid.LoDTensor.set_recursive_sequence_lengths", _lod, recursive_sequence_lengths=[[1, 2]])
of(
    "fluid.create_lod_tensor",
    data=lambda: np.ones((3, 1), "float32"),
    recursive_seq_lens=[[1, 2]],
    place=lambda: paddle.CPUPlace(),
)
of(
    "vision.datasets.DatasetFolder",
    root=lambda: _images(),
    loader=None,
    extensions=[".png"],
    transform=None,
    is_valid_file=None,
)
of(
    "vision.datasets.ImageFolder",
    root=lambda: _images(),
    loader=None,
    extensions=[".png"],
    transform=None,
    is_valid_file=None,
)
of("vision.image_load", path=lambda: _images() + "/a/one.png", backend=None)
of("vision.set_image_backend", backend="pil")
for _name in ("vision.datasets.MNIST", "vision.datasets.Cifar10", "vision.datasets.Flowers", "vision.datasets.VOC2012"):
    of(_name, mode="train", transform=None, download=False, backend=None)
for _name in ("Imdb", "Imikolov", "Movielens", "UCIHousing", "WMT14", "WMT16", "Conll05st"):
    of(f"text.{_name}", data_file=None, download=False)
