"""Fetched arrays of one element convert to numbers in programs of 1.x and under ``as_paddle``; others fetch plain arrays."""

# ruff: noqa: UP031, UP032 - formats of all kinds are what is tested

from __future__ import annotations

import contextlib
import copy
import io
import math
import operator
import os
import pickle
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.api import refused
from tests.api.effects import NoSampleError
from tests.cpu.test_hot_step import own_calls
from tstatic import fluid, static
from tstatic.ir.export import PUBLIC_API
from tstatic.ir.program import Program
from tstatic.runtime.fetched import FetchedArray

FEED = {"x": np.array([[1, 2], [4, 3]], "float32")}


def _fetched(values: Any = (0.5,), dtype: str = "float32") -> FetchedArray:
    return np.array(values, dtype).view(FetchedArray)


def _fluid_loss() -> Any:
    return fluid.layers.mean(fluid.layers.data("x", [2]))


# ------------------------------------------------------------------------------------------------------- what a value does
ANSWERS: list[tuple[Callable[[Any], Any], Any]] = [
    (float, 2.5), (int, 2), (complex, 2.5 + 0j), (bool, True), (round, 2), (lambda a: round(a, 1), 2.5),
    (math.floor, 2), (math.isnan, False), (lambda a: "%f" % a, "2.500000"), (lambda a: "%d" % a, "2"),
    (lambda a: "%.1f" % a, "2.5"), (lambda a: "%s %.2f" % ("loss", a), "loss 2.50"), (lambda a: f"{a:.3f}", "2.500"),
    (lambda a: "{:>6.1f}".format(a), "   2.5"), (lambda a: np.full(2, a).tolist(), [2.5, 2.5]),
    (lambda a: float(a / 5), 0.5), (lambda a: float(1 + a), 3.5), (lambda a: float(np.float32(1) + a), 3.5),
    (lambda a: float(np.ones(1, np.float32) + a), 3.5), (lambda a: float(a - np.ones(1, np.float32)), 1.5),
    (lambda a: float(-a), -2.5), (lambda a: float(np.exp(a * 0)), 1.0), (lambda a: float(a.copy()), 2.5),
    (lambda a: float(a.reshape(-1)), 2.5), (lambda a: float(a.astype("float64")), 2.5), (lambda a: float(a[...]), 2.5),
    (lambda a: float(copy.copy(a)), 2.5), (lambda a: float(copy.deepcopy(a)), 2.5), (lambda a: float(sum([a, a])), 5.0),
    (lambda a: float(max(a, a * 2)), 5.0), (lambda a: float(np.mean([a, a])), 2.5), (lambda a: float(a.mean()), 2.5),
    (lambda a: "%.1f" % np.sum([a, a]), "5.0"), (lambda a: bool(a < 3), True),
]  # fmt: skip


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_one_element_of_any_rank_is_a_number(shape: tuple[int, ...], dtype: str) -> None:
    """numpy deprecates such conversions, and refuses them from 2.4 on: no warning, no error, in either."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for answer, wanted in ANSWERS:
            value = np.full(shape, 2.5, dtype).view(FetchedArray)
            assert answer(value) == wanted, answer
        into = np.zeros(2)
        into[1] = np.full(shape, 2.5, dtype).view(FetchedArray)
        assert into.tolist() == [0, 2.5]


def test_a_count_is_an_index() -> None:
    count = _fetched([3], "int64")
    assert operator.index(count) == 3
    assert list(range(count)) == [0, 1, 2]
    assert "abcd"[count] == "d"
    assert "%d" % count == f"{count:d}" == "3"
    assert "%x" % (count * 10) == "1e"
    for wrong in (_fetched([0.5]), _fetched([True], "bool")):
        with pytest.raises(TypeError, match="only integer scalar arrays"):
            operator.index(wrong)
    # As an index of arrays it is an array, as before.
    assert np.arange(5)[count].tolist() == [3]


@pytest.mark.parametrize("convert", [float, int, complex, operator.index, round, lambda a: f"{a:.3f}"])
@pytest.mark.parametrize("values", [[1, 2], []])
def test_several_elements_are_refused_as_numpy_refuses_them(convert: Callable[[Any], Any], values: list[int]) -> None:
    plain = np.array(values, "int64")
    with pytest.raises(TypeError) as wanted:
        convert(plain)
    with pytest.raises(TypeError) as got:
        convert(plain.view(FetchedArray))
    assert str(got.value) == str(wanted.value)


def test_losses_are_added_up_in_place() -> None:
    """``total += loss`` in a loop, from a number or from an array, is the commonest line of old scripts."""
    loss = _fetched([1.5])
    total: Any = 0.0
    for _ in range(3):
        total += loss
    assert type(total) is FetchedArray
    assert float(total / 3) == 1.5
    array = np.zeros(1).view(FetchedArray)
    kept = array
    array += loss
    array *= 2
    assert array is kept
    assert "%.1f" % array == "3.0"


SAME: list[Callable[[Any], Any]] = [
    lambda a: a.sum(), lambda a: a.mean(), np.mean, np.max, np.argmax, lambda a: a.any(), lambda a: a[0],
    lambda a: a[-1:], lambda a: a + a, lambda a: a[:1].reshape(()) * 2, np.squeeze, np.std, np.median, np.cumsum,
    lambda a: np.mean(a, keepdims=True), lambda a: a @ a, np.linalg.norm, lambda a: a.tolist(), str, repr,
    lambda a: [a, {"k": a}], lambda a: f"{a}", lambda a: "{}".format(a), lambda a: np.concatenate([a, a]), lambda a: a > 1,
    lambda a: np.clip(a, 0, 1), lambda a: a.dtype, lambda a: a.shape, lambda a: np.where(a > 1, a, 0),
    lambda a: np.add(a, a, out=np.zeros_like(a)), lambda a: np.stack([a, a]).sum(0), lambda a: a.item(0),
    lambda a: {np.argmax(a): 1},
]  # fmt: skip


@pytest.mark.parametrize("values", [[2.5], [2.5, 1.0, 4.0]])
def test_all_else_is_as_of_plain_arrays(values: list[float]) -> None:
    """Values, types of single numbers (which are keys of dicts), and how they are printed."""
    for function in SAME:
        wanted, got = function(np.array(values)), function(_fetched(values, "float64"))
        assert repr(got) == repr(wanted), function
        if not isinstance(wanted, np.ndarray):
            assert type(got) is type(wanted), function


def test_copies_for_others_are_plain() -> None:
    """Pickles are read without tstatic; ``np.array``, ``asarray`` and DLPack give what they give for any array."""
    value = _fetched([0.5, 2])
    plain = [pickle.loads(pickle.dumps(value, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    plain += [np.array(value), np.asarray(value), np.asarray(value, np.float64), np.copy(value), np.from_dlpack(value)]
    plain += [np.ascontiguousarray(value), np.array([value, value])[0], value.view(np.ndarray)]
    file = io.BytesIO()
    np.save(file, value)
    file.seek(0)
    for array in [*plain, np.load(file)]:
        assert type(array) is np.ndarray
        assert array.tolist() == [0.5, 2]
    assert b"tstatic" not in pickle.dumps(value)
    kept = [value.copy(), copy.copy(value), copy.deepcopy(value), value[:1], np.array(value, subok=True)]
    assert {type(one) for one in kept} == {FetchedArray}
    assert not np.shares_memory(copy.deepcopy(value), value)


# ----------------------------------------------------------------------------------------------------- which programs fetch them
def _twice_marked(program: Any, loss: Any) -> dict[str, Any]:
    """What each way to run a program fetches."""
    exe = static.Executor(paddle.CPUPlace())
    parallel = static.CompiledProgram(program).with_data_parallel(places=static.cpu_places(2))
    old = static.ParallelExecutor(False, main_program=program)
    found = {
        "plain": exe.run(program, FEED, [loss])[0],
        "compiled": exe.run(static.CompiledProgram(program), FEED, [loss])[0],
        "pruned": exe.run(program, FEED, [loss], use_prune=True)[0],
        "test": exe.run(program.clone(for_test=True), FEED, [loss])[0],
        "clone": exe.run(program.clone(), FEED, [loss])[0],
        "parallel": exe.run(parallel, FEED, [loss])[0],
        "ParallelExecutor": old.run([loss.name], FEED)[0],
    }
    apart = exe.run(parallel, FEED, [loss], return_merged=False)[0]
    return found | {f"apart {i}": one for i, one in enumerate(apart)}


def test_programs_of_fluid_fetch_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "2")
    loss = _fluid_loss()
    found = _twice_marked(static.default_main_program(), loss)
    assert {type(one) for one in found.values()} == {FetchedArray}
    assert {name: one.tolist() for name, one in found.items() if one.size == 1} == {
        **{way: [2.5] for way in ("plain", "compiled", "pruned", "test", "clone")}, "apart 0": [1.5], "apart 1": [3.5],
    }  # fmt: skip
    assert found["parallel"].tolist() == found["ParallelExecutor"].tolist() == [1.5, 3.5]
    assert "%.1f" % found["plain"] == "2.5"


def test_programs_of_2_x_fetch_plain_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though programs of ``fluid`` are built and run in the same process."""
    monkeypatch.setenv("CPU_NUM", "2")
    other = Program()
    with static.program_guard(other):
        fluid.layers.data("x", [2])
    assert other.fetches_convert
    loss = paddle.mean(static.data("x", [None, 2]))
    found = _twice_marked(static.default_main_program(), loss)
    assert {type(one) for one in found.values()} == {np.ndarray}


def test_tensors_stay_plain() -> None:
    (tensor,) = static.Executor().run(feed=FEED, fetch_list=[_fluid_loss()], return_numpy=False)
    assert type(np.array(tensor)) is np.ndarray


def test_as_paddle_fetches_numbers_from_every_program(tmp_path: Path) -> None:
    """A script of 2.x that says ``import paddle``, predictor and reloaded model included; numpy's warnings are errors."""
    script = tmp_path / "old.py"
    script.write_text(
        textwrap.dedent("""
        import numpy as np
        import paddle
        from paddle import static
        paddle.enable_static()
        x = static.data("x", [None, 2])
        loss = paddle.reshape(paddle.mean(static.nn.fc(x, 1)), [1, 1])
        exe = static.Executor(paddle.CPUPlace())
        exe.run(static.default_startup_program())
        total = 0.0
        for _ in range(2):
            out, = exe.run(feed={"x": np.ones((2, 2), "float32")}, fetch_list=[loss])
            total += out
        print("mean %f" % (total / 2), float(out) == round(out, 20))
        static.save_inference_model("model", [x], [loss], exe)
        program, feeds, fetches = static.load_inference_model("model", exe)
        again, = exe.run(program, feed={feeds[0]: np.ones((2, 2), "float32")}, fetch_list=fetches)
        print(float(again) == float(out))
        from paddle import inference
        predictor = inference.create_predictor(inference.Config("model.pdmodel", "model.pdiparams"))
        predictor.get_input_handle(predictor.get_input_names()[0]).copy_from_cpu(np.ones((2, 2), "float32"))
        predictor.run()
        print(float(predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()) == float(out))
        """)
    )
    command = [sys.executable, "-W", "error", "-m", "tstatic.as_paddle", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, env={**os.environ})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[0].endswith(" True")
    assert done.stdout.splitlines()[1:] == ["True", "True"]


def test_models_that_fluid_loads_fetch_numbers(tmp_path: Path) -> None:
    y = paddle.reshape(paddle.mean(static.data("x", [None, 2])), [1])
    exe = static.Executor()
    fluid.io.save_inference_model(str(tmp_path), ["x"], [y], exe)
    with static.program_guard(Program()):
        program, _, fetches = fluid.io.load_inference_model(str(tmp_path), exe)
    assert float(exe.run(program, FEED, fetches)[0]) == 2.5


def test_metrics_and_handlers_get_numbers(tmp_path: Path) -> None:
    """What metrics, evaluators and averages of fetched values give, and what a handler of a data set's run gets."""
    x = fluid.layers.data("x", [2])
    label = fluid.layers.data("label", [1], dtype="int64", lod_level=1)
    accuracy = fluid.layers.accuracy(x, label)
    chunks = fluid.evaluator.ChunkEvaluator(label, label, "plain", 1)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    feed = {"x": FEED["x"], "label": fluid.create_lod_tensor(np.array([[1], [1]]), [[2]], fluid.CPUPlace())}
    (value,) = exe.run(feed=feed, fetch_list=[accuracy])
    metric = fluid.metrics.Accuracy()
    metric.update(value, 2)
    average = fluid.average.WeightedAverage()
    average.add(value, 2)
    assert "%.2f %.2f" % (metric.eval(), average.eval()) == "0.50 0.50"
    assert all(0 <= float(one) <= 1 for one in chunks.eval(exe))

    got: list[Any] = []

    class Handler(fluid.executor.FetchHandler):
        def handler(self, res_dict: Any) -> None:
            got.append(float(res_dict["accuracy"]))

    part = tmp_path / "part.txt"
    part.write_text("2 1 2 1 1\n2 4 3 1 1\n")
    dataset = fluid.DatasetFactory().create_dataset("QueueDataset")
    dataset.set_use_var([x, label])
    dataset.set_batch_size(2)
    dataset.set_filelist([str(part)])
    exe.train_from_dataset(dataset=dataset, fetch_handler=Handler({"accuracy": accuracy}, period_secs=0))
    assert got == [0.5]


def test_what_was_fetched_is_fed_set_and_saved(tmp_path: Path) -> None:
    """A fetched value goes back into a run, a tensor and a file as a plain array does."""
    x = fluid.layers.data("x", [2])
    y = fluid.layers.scale(x, 2.0)
    exe = static.Executor()
    (value,) = exe.run(feed=FEED, fetch_list=[y])
    (again,) = exe.run(feed={"x": value}, fetch_list=[y])
    assert again.tolist() == (FEED["x"] * 4).tolist()
    paddle.save({"y": value}, str(tmp_path / "y.pdparams"))
    assert type(paddle.load(str(tmp_path / "y.pdparams"), return_numpy=True)["y"]) is np.ndarray
    tensor = static.global_scope().var("held").get_tensor()
    tensor.set(value, fluid.CPUPlace())
    value[:] = 0
    assert np.array(tensor).tolist() == (FEED["x"] * 2).tolist()


def test_tensor_arrays_fetch_numbers_one_by_one() -> None:
    x = fluid.layers.data("x", [2])
    array = fluid.layers.array_write(fluid.layers.mean(x), fluid.layers.fill_constant([1], "int64", 0))
    (values,) = static.Executor().run(feed=FEED, fetch_list=[array])
    assert [float(one) for one in values] == [2.5]


def test_a_plain_run_makes_no_call_for_it() -> None:
    """A run of a 2.x program enters no function of the module that converts."""
    loss = paddle.mean(static.data("x", [None, 2]))
    exe = static.Executor()
    found = own_calls(lambda: exe.run(feed=FEED, fetch_list=[loss]))
    assert found
    assert not [call for call in found if call.startswith("runtime/fetched.py")]


# ------------------------------------------------------------------------------------------------------- what marks a program
def test_only_what_fluid_alone_has_marks_a_program() -> None:
    """A name that 2.x has as well says nothing of the script; what calls a function of fluid inside does not, either."""
    names: dict[int, list[str]] = {}
    for name in PUBLIC_API:
        names.setdefault(id(PUBLIC_API[name].function), []).append(name)
    wrong, marking = [], 0
    # A fifth of them, and all in the long form: 6 s of processor time.
    for path, thing in list(refused.callables().items())[:: 1 if os.environ.get("TSTATIC_SOAK") else 5]:
        if id(thing) not in names:
            continue
        alone = all(name.startswith("fluid.") for name in names[id(thing)])
        call = None
        with refused.fresh() as programs:
            with contextlib.suppress(NoSampleError):
                call = refused.ready(path, thing, 0, 0)
            if call is None:
                continue
            for program in programs:
                vars(program).pop("fetches_convert", None)
            try:
                call()
            except Exception:
                continue
            marked = any(program.fetches_convert for program in programs)
        marking += marked
        if marked != alone:
            wrong.append(f"{path}: {'marks' if marked else 'does not mark'} the program")
    # A class to derive from, which builds nothing itself.
    assert set(wrong) <= {"tstatic.fluid.layers.RNNCell: does not mark the program"}
    assert marking > 20


def test_a_refused_call_marks_nothing() -> None:
    x = static.data("x", [None, 2])
    with pytest.raises(paddle.errors.TstaticError):
        fluid.layers.fc(x, -1)
    assert not static.default_main_program().fetches_convert
    fluid.layers.fc(x, 1)
    assert static.default_main_program().fetches_convert
