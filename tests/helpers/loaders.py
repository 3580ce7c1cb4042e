"""Everything public that reads files, as calls on one folder that has a valid file for each of them."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tstatic as paddle
from tests.dataset.made import build, flowers
from tests.dataset.test_dataset import KNOWN
from tstatic import fluid, static
from tstatic.benchlib import results, shapes
from tstatic.cli.perform import perform
from tstatic.dataset import common
from tstatic.fusion.engine import cache

KERNEL = "def value():\n    return 1\n"


class World:
    """A program with values, and a folder with everything that can be loaded.

    Attributes:
        main: A training program; ``x`` and ``y`` are input and result.
        exe: An executor.
        folder: The folder that is read; another one for each test.
    """

    def __init__(self, folder: Path, saved: bool = False) -> None:
        self.exe = static.Executor("cpu")
        self.main, startup = static.Program(), static.Program()
        with static.program_guard(self.main, startup), paddle.utils.unique_name.guard():
            self.x = static.data("x", [None, 4])
            self.y = static.nn.fc(self.x, 2)
            paddle.optimizer.SGD(0.1).minimize(paddle.mean(self.y))
        self.exe.run(startup)
        self.folder = folder
        if not saved:
            self._save()

    def _save(self) -> None:
        folder, main, exe = self.folder, self.main, self.exe
        static.save(main, str(folder / "m"))
        static.save(main, str(folder / "p"), format="paddle")
        static.save_inference_model(str(folder / "inf"), [self.x], [self.y], exe, program=main)
        fluid.io.save_persistables(exe, str(folder / "vars"), main)
        fluid.io.save_persistables(exe, str(folder), main, "all")
        fluid.io.save_inference_model(str(folder / "old"), ["x"], [self.y], exe, main)
        paddle.save({"w": np.ones(2, "float32")}, folder / "object")
        paddle.save(np.ones(2, "float32"), folder / "tensor", use_binary_format=True)
        fluid.save_dygraph({"w": np.ones(2, "float32")}, str(folder / "dygraph"))
        manager = static.CheckpointManager(folder / "run", main, keep=2)
        for step in (1, 2):
            manager.save(step, metric=step)
        static.save_to_file(str(folder / "bytes"), b"bytes")
        data = folder / "data"
        data.mkdir()
        build(data)
        flowers(data)
        for module, names in KNOWN.items():
            (data / "home" / module).mkdir(parents=True)
            for ours, theirs in names.items():
                shutil.copy(data / ours, data / "home" / module / theirs)
        for name in ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"):
            shutil.copy(data / ("images.gz" if "images" in name else "labels.gz"), data / "home/mnist" / name)
        (data / "home/conll05st/conll05st%2Femb").write_bytes(b"embedding")
        (data / "images/cat").mkdir(parents=True)
        np.save(data / "images/cat/a.npy", np.zeros((2, 2, 3), "uint8"))
        from PIL import Image

        Image.fromarray(np.zeros((2, 3, 3), "uint8")).save(data / "images/cat/b.png")
        (data / "part.txt").write_text("2 7 8\n2 1 2\n")
        np.savez(folder / "weights.npz", w=np.ones(2, "float32"))
        with (
            paddle.profiler.Profiler(on_trace_ready=lambda profiler: None) as profiler,
            paddle.profiler.RecordEvent("loading"),
        ):
            pass
        profiler.export(str(folder / "trace.pb"), format="pb")
        (folder / "result.json").write_text(f'{{"kind": "{results.KIND}", "version": {results.VERSION}, "rows": []}}')
        (folder / "sizes.toml").write_text("")
        with self.cached():
            cache.store(KERNEL, "k")

    @contextlib.contextmanager
    def cached(self) -> Iterator[None]:
        """Keeps generated kernels in the folder."""
        before = os.environ.get("TSTATIC_CACHE_DIR")
        os.environ["TSTATIC_CACHE_DIR"] = str(self.folder / "kernels")
        cache._reset_for_tests()
        try:
            yield
        finally:
            cache._reset_for_tests()
            if before is None:
                del os.environ["TSTATIC_CACHE_DIR"]
            else:
                os.environ["TSTATIC_CACHE_DIR"] = before

    def path(self, name: str) -> str:
        """Returns the path of a file in the folder."""
        return str(self.folder / name)


# -------------------------------------------------------------------------------------------------------------- data sets
Place = Callable[[str], str]
SETS: dict[str, Callable[[Place], Any]] = {
    "MNIST": lambda path: paddle.vision.datasets.MNIST(path("images.gz"), path("labels.gz"), backend="cv2"),
    "FashionMNIST": lambda path: paddle.vision.datasets.FashionMNIST(
        path("images.gz"), path("labels.gz"), backend="cv2"
    ),
    "Cifar10": lambda path: paddle.vision.datasets.Cifar10(path("cifar10.tar.gz"), backend="cv2"),
    "Cifar100": lambda path: paddle.vision.datasets.Cifar100(path("cifar100.tar.gz"), backend="cv2"),
    "VOC2012": lambda path: paddle.vision.datasets.VOC2012(path("voc.tar"), backend="cv2"),
    "Flowers": lambda path: paddle.vision.datasets.Flowers(
        path("flowers.tgz"), path("labels.mat"), path("parts.mat"), backend="cv2"
    ),
    "DatasetFolder": lambda path: paddle.vision.datasets.DatasetFolder(path("images"), extensions=(".npy", ".png")),
    "ImageFolder": lambda path: paddle.vision.datasets.ImageFolder(path("images"), extensions=(".npy", ".png")),
    "Imdb": lambda path: paddle.text.Imdb(path("imdb.tar.gz"), cutoff=1),
    "Imikolov": lambda path: paddle.text.Imikolov(path("ptb.tgz"), "NGRAM", 3, min_word_freq=1),
    "Movielens": lambda path: paddle.text.Movielens(path("ml-1m.zip")),
    "UCIHousing": lambda path: paddle.text.UCIHousing(path("housing.data")),
    "WMT14": lambda path: paddle.text.WMT14(path("wmt14.tgz"), dict_size=6),
    "WMT16": lambda path: paddle.text.WMT16(path("wmt16.tar.gz"), src_dict_size=6, trg_dict_size=7),
    "Conll05st": lambda path: paddle.text.Conll05st(
        *map(path, ("conll.tar.gz", "words.txt", "verbs.txt", "targets.txt", "words.txt"))
    ),
}
"""The classes of ``vision.datasets`` and ``text``, on files of their own."""
READERS: dict[str, Callable[[Any], Any]] = {
    "mnist.train": lambda data: data.mnist.train(),
    "mnist.test": lambda data: data.mnist.test(),
    "cifar.train10": lambda data: data.cifar.train10(),
    "cifar.test10": lambda data: data.cifar.test10(),
    "cifar.train100": lambda data: data.cifar.train100(),
    "cifar.test100": lambda data: data.cifar.test100(),
    "uci_housing.train": lambda data: data.uci_housing.train(),
    "uci_housing.test": lambda data: data.uci_housing.test(),
    "imdb.build_dict": lambda data: data.imdb.build_dict(re.compile("aclImdb/train/pos/"), 1),
    "imdb.word_dict": lambda data: data.imdb.word_dict(),
    "imdb.train": lambda data: data.imdb.train({"<unk>": 0}),
    "imdb.test": lambda data: data.imdb.test({"<unk>": 0}),
    "imikolov.build_dict": lambda data: data.imikolov.build_dict(1),
    "imikolov.train": lambda data: data.imikolov.train({"<unk>": 0}, 3),
    "imikolov.test": lambda data: data.imikolov.test({"<unk>": 0}, 3),
    "movielens.train": lambda data: data.movielens.train(),
    "movielens.test": lambda data: data.movielens.test(),
    "movielens.get_movie_title_dict": lambda data: data.movielens.get_movie_title_dict(),
    "movielens.movie_categories": lambda data: data.movielens.movie_categories(),
    "movielens.movie_info": lambda data: data.movielens.movie_info(),
    "movielens.user_info": lambda data: data.movielens.user_info(),
    "movielens.max_movie_id": lambda data: data.movielens.max_movie_id(),
    "movielens.max_user_id": lambda data: data.movielens.max_user_id(),
    "movielens.max_job_id": lambda data: data.movielens.max_job_id(),
    "wmt14.train": lambda data: data.wmt14.train(6),
    "wmt14.test": lambda data: data.wmt14.test(6),
    "wmt14.gen": lambda data: data.wmt14.gen(6),
    "wmt14.get_dict": lambda data: data.wmt14.get_dict(6),
    "wmt16.train": lambda data: data.wmt16.train(6, 7),
    "wmt16.test": lambda data: data.wmt16.test(6, 7),
    "wmt16.validation": lambda data: data.wmt16.validation(6, 7),
    "wmt16.get_dict": lambda data: data.wmt16.get_dict("en", 4),
    "conll05.test": lambda data: data.conll05.test(),
    "conll05.get_dict": lambda data: data.conll05.get_dict(),
    "conll05.get_embedding": lambda data: data.conll05.get_embedding(),
    "common.md5file": lambda data: common.md5file(common.DATA_HOME + "/uci_housing/housing.data"),
    "common.download": lambda data: common.download("http://x/housing.data", "uci_housing", ""),
}
"""The functions of ``paddle.dataset``, which look for their files below one folder."""


def _set(name: str) -> Callable[[World], None]:
    def run(w: World) -> None:
        data = SETS[name](lambda file: w.path(f"data/{file}"))
        for number in range(len(data)):
            data[number]

    return run


def _reader(name: str) -> Callable[[World], None]:
    def run(w: World) -> None:
        before, common.DATA_HOME = common.DATA_HOME, w.path("data/home")
        try:
            found = READERS[name](paddle.dataset)
            if callable(found):
                for _ in itertools.islice(found(), 20):
                    pass
        finally:
            common.DATA_HOME = before

    return run


def _file_set(kind: str) -> Callable[[World], None]:
    def run(w: World) -> None:
        with static.program_guard(static.Program(), static.Program()):
            ids = static.data("ids", [None, 2], "int64")
            made = getattr(paddle.distributed, kind)()
            made.init(batch_size=2, use_var=[ids])
            made.set_filelist([w.path("data/part.txt")])
            if kind == "InMemoryDataset":
                made.load_into_memory()
                made.preload_into_memory()
                made.wait_preload_done()
            else:
                list(made.batches())

    return run


# ----------------------------------------------------------------------------------------------------------------- others
def _predictor(*names: str) -> Callable[[World], Any]:
    def run(w: World) -> Any:
        made = paddle.inference.create_predictor(paddle.inference.Config(*map(w.path, names)))
        return made.run([np.ones((1, 4), "float32")])

    return run


def _manager(call: Callable[[static.CheckpointManager], Any]) -> Callable[[World], Any]:
    return lambda w: call(static.CheckpointManager(w.folder / "run", w.main, keep=2))


def _run(build: Callable[[], Any]) -> Any:
    """Runs a small program that reads a file while it runs."""
    with static.program_guard(static.Program(), static.Program()):
        return static.Executor("cpu").run(feed={}, fetch_list=[build()])


def _command(command: str, name: str, **options: Any) -> Callable[[World], Any]:
    def run(w: World) -> Any:
        target = {"target": w.path(name)} if name else {}
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return perform(command, True, **target, **options)

    return run


def _converted(name: str, to: str = "safetensors") -> Callable[[World], Any]:
    def run(w: World) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            return _command("weights:convert", "", source=w.path(name), destination=f"{folder}/made", to=to)(w)

    return run


def _program_that_loads(w: World) -> static.Program:
    program = static.Program()
    block = program.global_block()
    out = block.create_var(name="loaded", shape=[2], dtype="float32")
    block.append_op(type="load", outputs={"Out": [out]}, attrs={"file_path": w.path("tensor")})
    return program


def _local_fs(w: World) -> None:
    local = paddle.distributed.fleet.utils.LocalFS()
    local.ls_dir(str(w.folder))
    local.list_dirs(str(w.folder))
    with contextlib.suppress(UnicodeDecodeError):  # another file may be in the place of the text
        local.cat(w.path("bytes"))


def _listing(action: str) -> Callable[[World], Any]:
    def run(w: World) -> Any:
        with w.cached():
            return _command("kernel_cache:kernel_cache", "", action=action)(w)

    return run


def _kernel(w: World) -> Any:
    with w.cached():
        return cache.load(KERNEL, "k")


@dataclass(frozen=True)
class Loader:
    """Calls that read files.

    Attributes:
        covers: The public names that it stands for, without their modules.
        run: Reads what is in the world's folder.
    """

    covers: tuple[str, ...]
    run: Callable[[World], Any]


LOOKING = {"arguments": [], "program": 0, "first": 0}
LOADERS: dict[str, Loader] = {
    "static.load": Loader(("load",), lambda w: static.load(w.main, w.path("m"), w.exe)),
    "static.load, not strict": Loader((), lambda w: static.load(w.main, w.path("m"), w.exe, strict=False)),
    "static.load for Paddle": Loader((), lambda w: static.load(w.main, w.path("p"), w.exe)),
    "static.load of a folder": Loader((), lambda w: static.load(w.main, w.path("vars"), w.exe)),
    "load_program_state": Loader(("load_program_state",), lambda w: static.load_program_state(w.path("m"))),
    "load_program_state of a folder": Loader((), lambda w: static.load_program_state(w.path("vars"))),
    "load_program_state for Paddle": Loader((), lambda w: static.load_program_state(w.path("p"))),
    "load_inference_model": Loader(("load_inference_model",), lambda w: static.load_inference_model(w.path("inf"), w.exe)),
    "fluid.load_inference_model": Loader((), lambda w: fluid.io.load_inference_model(w.path("old"), w.exe)),
    "load_inference_model_distributed": Loader(
        ("load_inference_model_distributed",),
        lambda w: paddle.distributed.io.load_inference_model_distributed(w.path("old"), w.exe),
    ),
    "load_vars": Loader(
        ("load_vars",), lambda w: fluid.io.load_vars(w.exe, w.path("vars"), w.main, predicate=fluid.io.is_parameter)
    ),
    "load_params": Loader(("load_params",), lambda w: fluid.io.load_params(w.exe, w.path("vars"), w.main)),
    "load_persistables": Loader(("load_persistables",), lambda w: fluid.io.load_persistables(w.exe, w.path("vars"), w.main)),
    "load_persistables, not strict": Loader(
        (), lambda w: fluid.io.load_persistables(w.exe, w.path("vars"), w.main, strict=False)
    ),
    "load_persistables of one file": Loader(
        (), lambda w: fluid.io.load_persistables(w.exe, str(w.folder), w.main, "all")
    ),
    "load_from_file": Loader(("load_from_file",), lambda w: static.load_from_file(w.path("bytes"))),
    "paddle.load": Loader((), lambda w: paddle.load(w.path("object"))),
    "paddle.load of a program": Loader((), lambda w: paddle.load(w.path("m.pdmodel"))),
    "load_dygraph": Loader(("load_dygraph",), lambda w: fluid.load_dygraph(w.path("dygraph"))),
    "Predictor": Loader(("Predictor", "create_predictor"), _predictor("inf.pdmodel", "inf.pdiparams")),
    "Predictor of a folder": Loader((), _predictor("old")),
    "CheckpointManager.restore": Loader(("CheckpointManager.restore",), _manager(lambda m: m.restore())),
    "CheckpointManager.read": Loader(("CheckpointManager.read",), _manager(lambda m: m.read())),
    "CheckpointManager.steps": Loader(
        ("CheckpointManager.steps", "CheckpointManager.latest", "CheckpointManager.best", "CheckpointManager.path"),
        _manager(lambda m: (m.steps(), m.latest(), m.path(1), m.best())),
    ),
    "load while a program runs": Loader(
        (), lambda w: w.exe.run(_program_that_loads(w), fetch_list=["loaded"]),
    ),
    "read_file": Loader(("read_file",), lambda w: _run(lambda: paddle.vision.ops.read_file(w.path("bytes")))),
    "image_load": Loader(("image_load",), lambda w: np.asarray(paddle.vision.image_load(w.path("data/images/cat/b.png")))),
    "load_profiler_result": Loader(
        ("load_profiler_result",), lambda w: paddle.profiler.load_profiler_result(w.path("trace.pb"))
    ),
    "LocalFS": Loader(
        ("LocalFS.cat", "LocalFS.ls_dir", "LocalFS.list_dirs"),
        _local_fs,
    ),
    "InMemoryDataset": Loader(
        ("InMemoryDataset.load_into_memory", "InMemoryDataset.preload_into_memory", "InMemoryDataset.wait_preload_done"),
        _file_set("InMemoryDataset"),
    ),
    "QueueDataset": Loader(("QueueDataset",), _file_set("QueueDataset")),
    "results of the benchmark": Loader((), lambda w: results.read(w.folder / "result.json")),
    "sizes of the benchmark": Loader((), lambda w: shapes._read(w.folder / "sizes.toml")),
    "the kernel cache": Loader((), _kernel),
    "tstatic cache list": Loader(("tstatic cache",), _listing("list")),
    "tstatic cache size": Loader((), _listing("size")),
    "tstatic summary": Loader(("tstatic summary",), _command("looking:summary", "inf.pdmodel", **LOOKING)),
    "tstatic memory": Loader(("tstatic memory",), _command(
        "looking:memory", "inf.pdmodel", **LOOKING, feeds=[], batch=2, every=False, switches=[],
    )),
    "tstatic summary of a folder": Loader((), _command("looking:summary", "old", **LOOKING)),
    "tstatic explain": Loader(
        ("tstatic explain",), _command("looking:explain", "inf.pdmodel", **LOOKING, every=True, switches=[], batch=2)
    ),
    "tstatic kernels": Loader(
        ("tstatic kernels",), _command("looking:kernels", "inf.pdmodel", **LOOKING, every=True, switches=[], batch=2)
    ),
    "tstatic verify": Loader(
        ("tstatic verify",), _command("running:verify", "inf.pdmodel", **LOOKING, examples=1)
    ),
    "tstatic convert": Loader(("tstatic convert",), _converted("weights.npz")),
    "tstatic convert of a state": Loader((), _converted("m.pdparams")),
    "tstatic convert of a model": Loader((), _converted("inf", "paddle")),
    **{name: Loader((name,), _set(name)) for name in SETS},
    **{f"paddle.dataset.{name}": Loader((f"paddle.dataset.{name}",), _reader(name)) for name in READERS},
}  # fmt: skip
