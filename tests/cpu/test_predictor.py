"""``paddle.inference`` over models of tstatic and of Paddle."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.parity.saved import models
from tstatic import fluid, inference, static
from tstatic.errors import CheckpointError, FeedError, FeedTypeError, NotFoundError, ProgramError, ProgramTypeError

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model of ours: ``y = x w + b``, and whether that is positive."""
    with static.scope_guard(static.Scope()), static.program_guard(static.Program(), static.Program()):
        x = static.data("x", [None, 2])
        y = static.nn.fc(x, 3)
        exe = static.Executor("cpu")
        exe.run(static.default_startup_program())
        static.save_inference_model(str(tmp_path / "m"), [x], [y, y > 0], exe)
        static.save_inference_model(str(tmp_path / "p"), [x], [y, y > 0], exe, format="paddle")
        fluid.io.save_inference_model(str(tmp_path / "folder"), ["x"], [y, y > 0], exe)
    return tmp_path


def configs(folder: Path) -> dict[str, inference.Config]:
    model, values = (folder / name for name in ("m.pdmodel", "m.pdiparams"))
    memory = inference.Config()
    a, b = model.read_bytes(), values.read_bytes()
    memory.set_model_buffer(a, len(a), b, len(b))
    return {
        "two files": inference.Config(str(model), str(values)),
        "prefix": inference.Config(str(folder / "m")),
        "Paddle's format": inference.Config(str(folder / "p.pdmodel"), str(folder / "p.pdiparams")),
        "folder": inference.Config(str(folder / "folder")),
        "memory": memory,
    }


def test_models_become_those_of_16_bits(model: Path) -> None:
    files = [str(model / name) for name in ("p.pdmodel", "p.pdiparams", "low/m.pdmodel", "low/m.pdiparams")]
    x = np.array([[1, -2], [0.5, 3]], "float32")
    wanted = inference.create_predictor(inference.Config(*files[:2])).run([x])
    (model / "low").mkdir()
    for kind, digits in (("Half", 11), ("Bfloat16", 8)):
        precision = getattr(inference.PrecisionType, kind)
        inference.convert_to_mixed_precision(*files, precision, inference.PlaceType.CPU)
        predictor = inference.create_predictor(inference.Config(*files[2:]))
        assert predictor.get_input_handle("x").type() == inference.DataType.FLOAT32
        found = predictor.run([x])
        assert [a.dtype for a in found] == [a.dtype for a in wanted]
        assert 0 < np.abs(found[0] - wanted[0]).max() < 8 * 2.0**-digits * np.abs(wanted[0]).max()
    kept = {"black_list": {"mul", "elementwise_add"}}
    inference.convert_to_mixed_precision(*files, precision, inference.PlaceType.CPU, **kept)
    found = inference.create_predictor(inference.Config(*files[2:])).run([x])
    # At level O2 the values are rounded in any case, but the products are not.
    assert np.abs(found[0] - wanted[0]).max() < 2.0**-8 * np.abs(wanted[0]).max() * 4
    with pytest.raises(ProgramError, match="mixed_precision"):
        inference.convert_to_mixed_precision(*files, inference.PrecisionType.Int8, inference.PlaceType.CPU)
    with pytest.raises(NotImplementedError, match="keep_io_types"):
        inference.convert_to_mixed_precision(*files, precision, inference.PlaceType.CPU, keep_io_types=False)
    with pytest.raises(CheckpointError, match="Cannot open"):
        inference.convert_to_mixed_precision("no.pdmodel", *files[1:], precision, inference.PlaceType.CPU)
    assert inference.get_trt_runtime_version() == (0, 0, 0)
    with pytest.raises(ValueError, match="Cannot use XPU"):
        paddle.device.XPUPlace(0)
    with pytest.raises(ValueError, match="Cannot use IPU"):
        paddle.device.IPUPlace()


def test_every_way_to_name_a_model_gives_the_same_results(model: Path) -> None:
    x = np.array([[1, -2], [0.5, 3]], "float32")
    answers = []
    for config in configs(model).values():
        predictor = inference.create_predictor(config)
        assert predictor.get_input_names() == ["x"]
        handle = predictor.get_input_handle("x")
        assert (handle.name(), handle.shape(), handle.type()) == ("x", [0], inference.DataType.FLOAT32)
        handle.reshape([2, 2])
        handle.copy_from_cpu(x)
        assert predictor.run() is True
        first, second = (predictor.get_output_handle(name) for name in predictor.get_output_names())
        assert (first.shape(), first.type(), second.type()) == (
            [2, 3],
            inference.DataType.FLOAT32,
            inference.DataType.BOOL,
        )
        answers.append((first.copy_to_cpu().tolist(), second.copy_to_cpu().tolist()))
        assert [a.tolist() for a in predictor.run([x])] == [*answers[-1]]
    assert all(answer == answers[0] for answer in answers)
    assert not static.global_scope().local_var_names(), "a predictor has values of its own"


@pytest.mark.parametrize("name", models.MODELS)
def test_models_of_paddle_answer_as_there(name: str) -> None:
    folder = DATA / "paddle-2.6"
    predictor = inference.create_predictor(inference.Config(str(folder / name)))
    found = predictor.run([models.feed(99)[key] for key in predictor.get_input_names()])
    with np.load(folder / "answers.npz") as answers:
        for i, value in enumerate(found):
            np.testing.assert_allclose(value, answers[f"{name}.{i}"], rtol=1e-5, atol=1e-5)


def test_a_folder_of_paddle_1_is_a_model() -> None:
    predictor = inference.create_predictor(inference.Config(str(DATA / "paddle-1.8" / "mlp")))
    with np.load(DATA / "paddle-1.8" / "answers.npz") as answers:
        np.testing.assert_allclose(predictor.run([models.feed(99)["x"]])[0], answers["mlp.0"], rtol=1e-5, atol=1e-5)


def test_clones_share_values_and_run_at_once(model: Path) -> None:
    pool = inference.PredictorPool(inference.Config(str(model / "m")), 4)
    rows = [np.full((3, 2), i, "float32") for i in range(4)]
    expected = [pool.retrieve(0).run([x])[0].tolist() for x in rows]
    found: list[Any] = [None] * 4

    def work(i: int) -> None:
        predictor = pool.retrieve(i)
        for _ in range(20):
            found[i] = predictor.run([rows[i]])[0].tolist()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected
    one, other = pool.retrieve(0), pool.retrieve(1).clone()
    other.get_input_handle("x").copy_from_cpu(rows[2])
    with pytest.raises(FeedError, match="has no value yet"):
        other.get_output_handle(other.get_output_names()[0]).copy_to_cpu()
    assert one.get_input_handle("x").copy_to_cpu().tolist() == rows[0].tolist()
    assert pool.retrive(3) is pool.retrieve(3)


def test_what_an_array_of_the_caller_becomes_later_does_not_matter(model: Path) -> None:
    predictor = inference.create_predictor(inference.Config(str(model / "m")))
    x = np.ones((1, 2), "float32")
    handle = predictor.get_input_handle("x")
    handle.copy_from_cpu(x)
    predictor.run()
    before = predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()
    x[:] = 9
    predictor.run()
    assert np.array_equal(predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu(), before)
    assert predictor.try_shrink_memory() > 0
    predictor.clear_intermediate_tensor()
    predictor.run()
    handle.set_lod([[0, 1]])
    assert handle.lod() == [[0, 1]]


def test_errors_are_those_that_scripts_catch(model: Path) -> None:
    predictor = inference.create_predictor(inference.Config(str(model / "m")))
    for get in (predictor.get_input_handle, predictor.get_output_handle):
        with pytest.raises(NotFoundError, match="The variable named nope is not found") as caught:
            get("nope")
        assert isinstance(caught.value, RuntimeError)
    with pytest.raises(FeedError, match="'x' has no value yet"):
        predictor.run()
    handle = predictor.get_input_handle("x")
    with pytest.raises(FeedTypeError, match="only support numpy ndarray"):
        handle.copy_from_cpu([1, 2])
    handle.copy_from_cpu(np.ones((1, 2)))
    with pytest.raises(FeedTypeError, match="of another dtype"):
        predictor.run()
    with pytest.raises(FeedError, match="has 1 inputs, but 2 were given"):
        predictor.run([1, 2])
    with pytest.raises(FeedError, match="is a result"):
        predictor.get_output_handle(predictor.get_output_names()[0]).copy_from_cpu(np.ones(1))
    for config in (
        inference.Config(),
        inference.Config(str(model / "none")),
        inference.Config("no.pdmodel", "no.pdiparams"),
    ):
        with pytest.raises(CheckpointError, match="Cannot open file") as missing:
            inference.create_predictor(config)
        assert isinstance(missing.value, RuntimeError)
    with pytest.raises(ProgramTypeError, match="config"):
        inference.create_predictor("model")  # type: ignore[arg-type]
    for size in (0, 1.5):
        with pytest.raises(ProgramError, match="at least one predictor"):
            inference.PredictorPool(inference.Config(str(model / "m")), size)  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match="no such predictor"):
        inference.PredictorPool(inference.Config(str(model / "m")), 1).retrieve(1)


def test_the_settings_of_scripts_are_accepted_and_told(model: Path) -> None:
    config = inference.Config()
    config.set_prog_file("a")
    config.set_params_file("b")
    assert (config.prog_file(), config.params_file(), config.model_dir()) == ("a", "b", "")
    config.set_model(str(model / "folder"))
    assert config.model_dir() == str(model / "folder")
    config.enable_use_gpu(100, 2)
    assert (config.use_gpu(), config.gpu_device_id()) == (True, 2)
    config.disable_gpu()
    assert (config.use_gpu(), config.gpu_device_id()) == (False, 0)
    for name, values in {
        "switch_ir_optim": (False,), "enable_memory_optim": (), "set_cpu_math_library_num_threads": (4,), "disable_glog_info": (),
        "switch_use_feed_fetch_ops": (False,), "switch_specify_input_names": (True,), "enable_mkldnn": (),
        "set_mkldnn_cache_capacity": (10,), "enable_profile": (),
    }.items():  # fmt: skip
        getattr(config, name)(*values)
    assert (config.ir_optim(), config.cpu_math_library_num_threads(), config.glog_info_disabled()) == (False, 4, True)
    assert config.mkldnn_enabled()
    config.disable_mkldnn()
    assert not config.mkldnn_enabled()
    assert not config.tensorrt_engine_enabled()
    assert "threads: 4" in config.summary()
    assert not config.model_from_memory()
    assert inference.get_version() == f"version: {paddle.__version__}\n"
    assert inference.PrecisionType.Half == 2
    assert inference.PlaceType.GPU == 1
    assert inference.get_num_bytes_of_data_type(inference.DataType.FLOAT16) == 2
