"""Inference models: what is saved computes the same, alone, and what does not fit is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors

import tstatic as paddle
from tests.helpers.programs import canonical
from tstatic import fluid, static
from tstatic.errors import (
    CheckpointError,
    FeedError,
    NotFoundError,
    ProgramError,
    ProgramTypeError,
    ShapeError,
    TstaticError,
)
from tstatic.formats import checkpoint, serial
from tstatic.static.files.variable_files import file_name

X = np.random.default_rng(0).standard_normal((5, 6)).astype("float32")
Y = np.zeros((5, 1), "int64")


class Net:
    """A trained classifier with dropout and batch norm."""

    def __init__(self, width: int = 4) -> None:
        self.main, self.startup = static.Program(), static.Program()
        with static.program_guard(self.main, self.startup), paddle.utils.unique_name.guard():
            self.x = static.data("x", [None, 6])
            self.y = static.data("y", [None, 1], "int64")
            hidden = static.nn.batch_norm(static.nn.fc(self.x, width, activation="relu"))
            self.hidden = paddle.nn.functional.dropout(hidden, 0.5)
            self.logits = static.nn.fc(self.hidden, 3)
            self.loss = paddle.mean(paddle.nn.functional.cross_entropy(self.logits, self.y))
            self.test = self.main.clone(for_test=True)
            paddle.optimizer.Adam(0.1).minimize(self.loss)
        self.exe = static.Executor("cpu")
        paddle.seed(3)
        self.exe.run(self.startup)
        for _ in range(3):
            self.exe.run(self.main, feed={"x": X, "y": Y})

    def expected(self) -> Any:
        return self.exe.run(self.test, feed={"x": X, "y": Y}, fetch_list=[self.logits])[0]


@pytest.fixture
def net() -> Net:
    return Net()


def runs_like(model: list[Any], expected: Any) -> None:
    program, names, results = model
    assert np.array_equal(static.Executor("cpu").run(program, feed={names[0]: X}, fetch_list=results)[0], expected)


# --------------------------------------------------------------------------------------------------------- round trips
def test_a_saved_model_gives_the_same_alone(net: Net, tmp_path: Path) -> None:
    expected = net.expected()
    static.save_inference_model(str(tmp_path / "a/model"), [net.x], [net.logits], net.exe, program=net.main)
    assert sorted(os.listdir(tmp_path / "a")) == ["model.pdiparams", "model.pdmodel"]
    with static.scope_guard(static.Scope()):
        program, names, results = static.load_inference_model(str(tmp_path / "a/model"), net.exe)
        assert names == ["x"]
        assert [r.name for r in results] == ["save_infer_model/scale_0.tmp_0"]
        runs_like([program, names, results], expected)
        types = [op.type for op in program.global_block().ops]
        assert types[-1] == "scale"
        assert not any(op.role for op in program.global_block().ops)
        assert not any("grad" in t or t in ("adam", "cross_entropy") for t in types)
        assert "y" not in program.global_block().vars
        assert not any("moment" in v.name for v in program.list_vars())
    with safetensors.safe_open(tmp_path / "a/model.pdiparams", "np") as file:
        assert set(file.keys()) == {v.name for v in program.list_vars() if v.persistable}


def test_the_user_program_stays_as_it_was(net: Net, tmp_path: Path) -> None:
    before = canonical(net.main)
    version = net.main.version
    static.save_inference_model(str(tmp_path / "m"), net.x, net.logits, net.exe)
    assert canonical(net.main) == before
    assert net.main.version == version


def test_a_compiled_program_will_do(net: Net, tmp_path: Path) -> None:
    expected = net.expected()
    static.save_inference_model(
        str(tmp_path / "m"), net.x, net.logits, net.exe, program=static.CompiledProgram(net.test)
    )
    with static.scope_guard(static.Scope()):
        runs_like(static.load_inference_model(str(tmp_path / "m"), net.exe), expected)


def test_a_loaded_model_can_be_saved_again(net: Net, tmp_path: Path) -> None:
    expected = net.expected()
    for i in range(3):
        static.save_inference_model(str(tmp_path / f"m{i}"), net.x, net.logits, net.exe)
        program, names, results = static.load_inference_model(str(tmp_path / f"m{i}"), net.exe)
        net.x, net.logits = program.global_block().var(names[0]), results[0]
    assert net.logits.name == "save_infer_model/scale_0.tmp_2"
    runs_like([program, names, results], expected)


def test_several_inputs_and_results_of_several_dtypes(tmp_path: Path) -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        a, b = static.data("a", [2], "int64"), static.data("b", [2], "float16")
        results = [a + 1, b * 2.0, a > 1, a]
    feed = {"a": np.array([1, 2]), "b": np.array([0.5, -0.0], "float16")}
    exe = static.Executor("cpu")
    expected = exe.run(main, feed=feed, fetch_list=results)
    static.save_inference_model(str(tmp_path / "m"), [b, a], results, exe)
    program, names, found = static.load_inference_model(str(tmp_path / "m"), exe)
    assert names == ["b", "a"]
    for got, want in zip(exe.run(program, feed=feed, fetch_list=found), expected, strict=True):
        assert got.dtype == want.dtype
        assert got.tobytes() == want.tobytes()


def test_a_value_inside_the_program_can_be_an_input(net: Net, tmp_path: Path) -> None:
    static.save_inference_model(str(tmp_path / "m"), net.hidden, net.logits, net.exe)
    program, names, results = static.load_inference_model(str(tmp_path / "m"), net.exe)
    assert names == [net.hidden.name]
    assert [op.type for op in program.global_block().ops] == ["mul", "elementwise_add", "scale"]
    (got,) = net.exe.run(program, feed={names[0]: np.zeros((2, 4), "float32")}, fetch_list=results)
    bias = np.array(static.global_scope().find_var("fc_1.b_0").get_tensor())
    assert np.array_equal(got, [bias, bias])
    with pytest.raises(FeedError):
        net.exe.run(program, feed={}, fetch_list=results)


def test_control_flow_survives_and_unused_blocks_do_not(tmp_path: Path) -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [1])
        x.stop_gradient = False
        i, n = paddle.zeros([1], "int64"), paddle.full([1], 4, "int64")
        _, y = static.nn.while_loop(
            lambda i, y: i < n,
            lambda i, y: [i + 1, static.nn.cond(paddle.mean(y) > 10, lambda: y, lambda: y * 3.0)],
            [i, x],
        )
        static.append_backward(paddle.sum(y))
        unused = static.nn.cond(paddle.mean(x) > 0, lambda: x * 2.0, lambda: x)
        paddle.tanh(unused)
    assert main.num_blocks > 8
    exe = static.Executor("cpu")
    static.save_inference_model(str(tmp_path / "m"), x, y, exe)
    program, _, results = static.load_inference_model(str(tmp_path / "m"), exe)
    assert program.num_blocks == 4
    for start, want in ((1.0, 27.0), (5.0, 15.0), (20.0, 20.0)):
        assert exe.run(program, feed={"x": np.array([start], "float32")}, fetch_list=results)[0] == want


def test_clip_extra_takes_out_the_users_files(net: Net, tmp_path: Path) -> None:
    for clip in (True, False):
        static.save_inference_model(str(tmp_path / "m"), net.x, net.logits, net.exe, clip_extra=clip)
        data = (tmp_path / "m.pdmodel").read_bytes()
        assert (b"test_inference_model.py" in data) is not clip


def test_skip_prune_program_keeps_the_rest_of_the_forward_part(net: Net) -> None:
    program = static.normalize_program(net.main, [net.x], [net.logits])
    assert net.loss.name not in program.global_block().vars
    # The loss needs its label, which is then an input too.
    program = static.normalize_program(net.main, [net.x, net.y], [net.logits], skip_prune_program=True)
    assert net.loss.name in program.global_block().vars
    assert program.feed_names == ("x", "y")
    assert (program.clone().feed_names, program.clone().fetch_names) == (program.feed_names, program.fetch_names)


def test_printed_and_parsed_programs_run_alike(net: Net) -> None:
    expected = net.expected()
    for program in (
        static.Program.parse_from_text(str(net.test)),
        static.Program.parse_from_string(net.test.desc.serialize_to_string()),
    ):
        assert np.array_equal(net.exe.run(program, feed={"x": X, "y": Y}, fetch_list=[net.logits.name])[0], expected)


def test_a_parsed_training_program_trains_alike() -> None:
    weights = []
    for parsed in (False, True):
        with static.scope_guard(static.Scope()):
            net = Net()
            main = static.Program.parse_from_text(str(net.main)) if parsed else net.main
            static.global_scope().runs[main.uid] = static.global_scope().runs[net.main.uid]
            for _ in range(3):
                net.exe.run(main, feed={"x": X, "y": Y})
            weights.append(np.array(static.global_scope().find_var("fc_0.w_0").get_tensor()))
    assert np.array_equal(*weights)


# ----------------------------------------------------------------------------------------------------------------- pieces
def test_the_pieces_make_a_model(net: Net, tmp_path: Path) -> None:
    expected = net.expected()
    model = static.serialize_program([net.x], [net.logits], program=net.main)
    values = static.serialize_persistables([net.x], [net.logits], net.exe)
    static.save_to_file(str(tmp_path / "m.pdmodel"), model)
    static.save_to_file(str(tmp_path / "m.pdiparams"), values)
    assert static.load_from_file(str(tmp_path / "m.pdmodel")) == model
    with static.scope_guard(static.Scope()):
        runs_like(static.load_inference_model(str(tmp_path / "m"), net.exe), expected)
    with static.scope_guard(static.Scope()):
        program = static.deserialize_program(model)
        static.deserialize_persistables(program, values, net.exe)
        runs_like([program, program.feed_names, list(program.fetch_names)], expected)
    with static.scope_guard(static.Scope()):
        runs_like(static.load_inference_model(None, net.exe, model_filename=model, params_filename=values), expected)


def test_files_of_other_names_in_a_folder(net: Net, tmp_path: Path) -> None:
    expected = net.expected()
    static.save_inference_model(str(tmp_path / "m"), net.x, net.logits, net.exe)
    (tmp_path / "m.pdmodel").rename(tmp_path / "graph")
    (tmp_path / "m.pdiparams").rename(tmp_path / "weights")
    with static.scope_guard(static.Scope()):
        runs_like(
            static.load_inference_model(str(tmp_path), net.exe, model_filename="graph", params_filename="weights"),
            expected,
        )


def test_a_model_without_parameters_needs_no_second_file(tmp_path: Path) -> None:
    x = static.data("x", [2])
    static.save_inference_model(str(tmp_path / "m"), x, x * 2.0, static.Executor("cpu"))
    (tmp_path / "m.pdiparams").unlink()
    assert static.load_inference_model(str(tmp_path / "m"), static.Executor("cpu"))[1] == ["x"]


# ------------------------------------------------------------------------------------------------------------- refusals
def bad_saves(net: Net, path: str) -> dict[str, tuple[Any, type[TstaticError], str]]:
    save, exe = static.save_inference_model, net.exe
    grad = net.main.global_block().var("fc_0.w_0@GRAD")
    other = static.data("other", [2])
    return {
        "feed by name": (lambda: save(path, ["x"], net.logits, exe), ProgramTypeError, "'feed_vars' should be a Variable"),
        "fetch by name": (lambda: save(path, net.x, "logits", exe), ProgramTypeError, "'fetch_vars' should be a Variable"),
        "no results": (lambda: save(path, net.x, [], exe), ProgramError, "'x' has no part in the results, since fetch_vars"),
        "array": (lambda: save(path, X, net.logits, exe), ProgramTypeError, "'feed_vars'"),
        "no executor": (lambda: save(path, net.x, net.logits, "cpu"), ProgramTypeError, "Executor"),
        "no program": (lambda: save(path, net.x, net.logits, exe, program=3), ProgramTypeError, "Program"),
        "folder": (lambda: save(path + "/", net.x, net.logits, exe), ProgramError, "file name"),
        "gradient": (lambda: save(path, net.x, grad, exe), ProgramError, "no forward operator"),
        "missing input": (lambda: save(path, net.x, net.loss, exe), ProgramError, "results need 'y'"),
        "input without part": (lambda: save(path, [net.x, net.y], net.logits, exe), ProgramError, "no part"),
        "input of another program": (lambda: save(path, [net.x, other], net.logits, exe), ProgramError, "'other'"),
        "result of another program": (lambda: save(path, net.x, other, exe, program=net.main), ProgramError, "'other'"),
    }  # fmt: skip


BAD_SAVES = (
    "feed by name", "fetch by name", "no results", "array", "no executor", "no program", "folder", "gradient", "missing input",
    "input without part", "input of another program", "result of another program",
)  # fmt: skip


@pytest.mark.parametrize("name", BAD_SAVES)
def test_bad_arguments_are_refused_and_nothing_is_written(net: Net, tmp_path: Path, name: str) -> None:
    rows = bad_saves(net, str(tmp_path / "m"))
    assert tuple(rows) == BAD_SAVES
    call, kind, words = rows[name]
    with pytest.raises(kind) as caught:
        call()
    assert words in str(caught.value)
    assert caught.value.fix
    assert "test_inference_model.py" in (caught.value.where or "")
    assert os.listdir(tmp_path) == []


def test_values_must_be_there(net: Net, tmp_path: Path) -> None:
    with static.scope_guard(static.Scope()), pytest.raises(FeedError, match="Make sure it is initialized"):
        static.save_inference_model(str(tmp_path / "m"), net.x, net.logits, net.exe)
    assert os.listdir(tmp_path) == []


def test_unknown_arguments_are_named(net: Net, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    static.save_inference_model(str(tmp_path / "m"), net.x, net.logits, net.exe, parogram=net.main)
    assert "does not know the argument 'parogram'" in caplog.text
    assert "'program'" in caplog.text


def test_damaged_and_missing_files_are_refused_and_the_scope_stays(net: Net, tmp_path: Path) -> None:
    path = str(tmp_path / "m")
    static.save_inference_model(path, net.x, net.logits, net.exe)
    whole = {p: p.read_bytes() for p in tmp_path.iterdir()}
    with static.scope_guard(static.Scope()):
        for file, data in whole.items():
            for bad in (
                None,
                b"",
                data[:-1],
                data[: len(data) // 2],
                data[:200] + b"~" + data[201:],
                b"\x80\x04" + data,
            ):
                if bad is None:
                    file.unlink()
                else:
                    file.write_bytes(bad)
                with pytest.raises(CheckpointError) as caught:
                    static.load_inference_model(path, net.exe)
                assert file.name in str(caught.value)
                assert static.global_scope().local_var_names() == []
            file.write_bytes(data)
        static.load_inference_model(path, net.exe)


def test_a_saved_training_program_is_no_inference_model(net: Net, tmp_path: Path) -> None:
    static.save(net.main, str(tmp_path / "m"))
    with pytest.raises(CheckpointError, match="not an inference model"):
        static.load_inference_model(str(tmp_path / "m"), net.exe)


def test_values_of_another_width_are_refused(net: Net, tmp_path: Path) -> None:
    static.save_inference_model(str(tmp_path / "m"), net.x, net.logits, net.exe)
    with static.scope_guard(static.Scope()):
        wide = Net(width=7)
        static.save_inference_model(str(tmp_path / "w"), wide.x, wide.logits, wide.exe)
        (tmp_path / "w.pdiparams").replace(tmp_path / "m.pdiparams")
        with pytest.raises(ShapeError, match="expected a shape"):
            static.load_inference_model(str(tmp_path / "m"), net.exe)


def test_files_of_two_saves_are_refused(net: Net, tmp_path: Path) -> None:
    static.save_inference_model(str(tmp_path / "a"), net.x, net.logits, net.exe)
    static.save_inference_model(str(tmp_path / "b"), net.x, net.logits, net.exe, clip_extra=False)
    (tmp_path / "a.pdiparams").replace(tmp_path / "b.pdiparams")
    with pytest.raises(CheckpointError, match=r"not of one save: .*b\.pdiparams \(saved"):
        static.load_inference_model(str(tmp_path / "b"), net.exe)


def test_bytes_of_two_saves_are_refused(net: Net, tmp_path: Path) -> None:
    for name, clip in (("a", True), ("b", False)):
        static.save_inference_model(str(tmp_path / name), net.x, net.logits, net.exe, clip_extra=clip)
    model, values = ((tmp_path / name).read_bytes() for name in ("a.pdmodel", "b.pdiparams"))
    with pytest.raises(CheckpointError, match="not of one save: the model's bytes"):
        static.load_inference_model(None, net.exe, model_filename=model, params_filename=values)
    with pytest.raises(CheckpointError, match="not of one save: the model's bytes"):
        fluid.io.load_inference_model(None, net.exe, model, values)


def test_only_bytes_are_written(tmp_path: Path) -> None:
    with pytest.raises(ProgramTypeError, match="bytes"):
        static.save_to_file(str(tmp_path / "a"), "text")  # type: ignore[arg-type]
    with pytest.raises(ProgramTypeError, match="bytes"):
        static.load_inference_model(None, None, model_filename="a")


# --------------------------------------------------------------------------------------------------------------------- 1.x
@pytest.mark.parametrize("params", [None, "__params__"])
def test_the_1x_functions_save_folders(net: Net, tmp_path: Path, params: str | None) -> None:
    expected = net.expected()
    folder = str(tmp_path / "model")
    saved = fluid.io.save_inference_model(folder, ["x"], [net.logits], net.exe, net.main, params_filename=params)
    assert saved == [net.logits.name]
    files = set(os.listdir(folder))
    assert files == {"__model__", "__params__"} if params else {"__model__", "fc_0.w_0", "batch_norm_0.w_1"} <= files
    with static.scope_guard(static.Scope()):
        runs_like(fluid.io.load_inference_model(folder, net.exe, params_filename=params), expected)
    if params:
        model, values = ((tmp_path / "model" / n).read_bytes() for n in ("__model__", "__params__"))
        with static.scope_guard(static.Scope()):
            runs_like(fluid.io.load_inference_model(None, net.exe, model, values), expected)


def test_the_1x_options(net: Net, tmp_path: Path) -> None:
    save = fluid.io.save_inference_model
    save(str(tmp_path / "a"), "x", net.logits, net.exe, net.main, model_filename="net", program_only=True)
    assert os.listdir(tmp_path / "a") == ["net"]
    save(
        str(tmp_path / "b"), ["x"], [net.logits], net.exe, net.main, params_filename="all", export_for_deployment=False
    )
    assert sorted(os.listdir(tmp_path / "b")) == ["__model__.main_program", "all"]
    again = static.Program.parse_from_string((tmp_path / "b/__model__.main_program").read_bytes())
    assert canonical(again) == canonical(net.main)
    with pytest.raises(ProgramError, match="same file"):
        save(str(tmp_path / "c"), ["x"], [net.logits], net.exe, net.main, model_filename="m", params_filename="m")
    with pytest.raises(NotFoundError):
        save(str(tmp_path / "c"), ["nosuch"], [net.logits], net.exe, net.main)
    with pytest.raises(ProgramTypeError, match="feeded_var_names"):
        save(str(tmp_path / "c"), [net.x], [net.logits], net.exe, net.main)
    with pytest.raises(ProgramError, match="folder"):
        save("", ["x"], [net.logits], net.exe, net.main)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("filename", [None, "all"])
@pytest.mark.parametrize("kind", ["params", "persistables"])
def test_folders_of_values(net: Net, tmp_path: Path, kind: str, filename: str | None) -> None:
    folder = str(tmp_path / "values")
    getattr(fluid.io, f"save_{kind}")(net.exe, folder, net.main, filename)
    wanted = [
        v for v in net.main.list_vars() if v.persistable and (kind == "persistables" or isinstance(v, static.Parameter))
    ]
    assert len(os.listdir(folder)) == (1 if filename else len(wanted))
    before = {v.name: np.array(static.global_scope().find_var(v.name).get_tensor()) for v in wanted}
    with static.scope_guard(static.Scope()):
        getattr(fluid.io, f"load_{kind}")(net.exe, folder, net.main, filename)
        assert set(static.global_scope().local_var_names()) == set(before)
        for name, value in before.items():
            assert np.array_equal(np.array(static.global_scope().find_var(name).get_tensor()), value)


def test_chosen_variables(net: Net, tmp_path: Path) -> None:
    folder = str(tmp_path / "v")
    fluid.io.save_vars(net.exe, folder, net.main, predicate=lambda v: v.name.endswith("b_0"))
    assert sorted(os.listdir(folder)) == ["batch_norm_0.b_0", "fc_0.b_0", "fc_1.b_0"]
    fluid.io.load_vars(net.exe, folder, vars=[net.main.global_block().var("fc_0.b_0")])
    with pytest.raises(CheckpointError, match=r"fc_0\.w_0"):
        fluid.io.load_params(net.exe, folder, net.main)
    with pytest.raises(ProgramTypeError, match="'vars'"):
        fluid.io.save_vars(net.exe, folder, vars=["fc_0.b_0"])
    with pytest.raises(FeedError, match="Make sure"):
        fluid.io.save_vars(net.exe, folder, vars=[net.logits])
    os.replace(tmp_path / "v/fc_0.b_0", tmp_path / "v/fc_1.b_0")
    with pytest.raises(CheckpointError, match="lacks 1 variables"):
        fluid.io.load_vars(net.exe, folder, vars=[net.main.global_block().var("fc_1.b_0")])


def test_names_of_variables_cannot_leave_the_folder(tmp_path: Path) -> None:
    names = ["../up", "a/b", "..", ".", "a\\b", "nul\0", "%2E", "é", "x@GRAD"]
    files = [file_name(n) for n in names]
    assert len(set(files)) == len(names)
    for name in files:
        assert Path(name).name == name
        assert "/" not in name
        assert "\0" not in name
        assert not name.startswith(".")
    block = static.default_main_program().global_block()
    scope = static.global_scope()
    for name in names:
        block.create_var(name=name, shape=[1], dtype="float32", persistable=True)
        scope.var(name).get_tensor().set(np.ones(1, "float32"))
    fluid.io.save_persistables(None, str(tmp_path / "in"))
    assert os.listdir(tmp_path) == ["in"]
    fluid.io.load_persistables(None, str(tmp_path / "in"))


def test_kinds_of_variables(net: Net) -> None:
    io = fluid.io
    block = net.main.global_block()
    weight, moment = block.var("fc_0.w_0"), block.var("fc_0.w_0_moment1_0")
    assert [f(v) for f in (io.is_parameter, io.is_persistable, io.is_belong_to_optimizer) for v in (weight, moment, net.x)] == [
        True, False, False, True, True, False, False, True, False,
    ]  # fmt: skip
    assert [v.name for v in io.get_program_parameter(net.main)] == [p.name for p in net.main.all_parameters()]
    assert moment.name in [v.name for v in io.get_program_persistable_vars(net.main)]
    value = io.get_parameter_value(weight, net.exe)
    assert np.array_equal(value, io.get_parameter_value_by_name("fc_0.w_0", net.exe, net.main))
    value[...] = 7
    assert not np.array_equal(value, io.get_parameter_value(weight, net.exe))
    with pytest.raises(NotFoundError, match=r"fc_0\.w_0"):
        io.get_parameter_value_by_name("fc_0.w", net.exe, net.main)
    assert static.io._get_valid_program() is static.default_main_program()
    assert static.io.save_inference_model is static.save_inference_model


# ------------------------------------------------------------------------------------------------------------ static.save
def test_save_writes_the_program_too(net: Net, tmp_path: Path) -> None:
    static.save(net.main, str(tmp_path / "m.v1"))
    assert sorted(os.listdir(tmp_path)) == ["m.v1.pdmodel", "m.v1.pdopt", "m.v1.pdparams"]
    program = serial.decode((tmp_path / "m.v1.pdmodel").read_bytes())
    assert canonical(program) == canonical(net.main)
    static.save(net.main, str(tmp_path / "m.v1.pdparams"))
    assert sorted(os.listdir(tmp_path)) == ["m.v1.pdmodel", "m.v1.pdopt", "m.v1.pdparams"]


def test_a_program_that_cannot_be_saved_leaves_the_old_files(net: Net, tmp_path: Path) -> None:
    static.save(net.main, str(tmp_path / "m"))
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    net.main.global_block().ops[0]._attrs.put("x_num_col_dims", object())
    with pytest.raises(ProgramError, match="cannot be saved"):
        static.save(net.main, str(tmp_path / "m"))
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_the_file_of_values_is_plain_safetensors(net: Net, tmp_path: Path) -> None:
    static.save_inference_model(str(tmp_path / "m"), net.x, net.logits, net.exe)
    data = (tmp_path / "m.pdiparams").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert header["fc_0.w_0"]["dtype"] == "F32"
    assert checkpoint.decode(data, "m").kinds["fc_0.w_0"] == "parameter"


def test_values_of_a_program_without_state_are_none() -> None:
    x = static.data("x", [2])
    y = paddle.scale(x, 2.0)
    exe = static.Executor("cpu")
    assert static.serialize_persistables([x], [y], exe) is None
    static.deserialize_persistables(static.default_main_program(), None, exe)


def test_feeds_of_a_loaded_model_are_not_compared_with_the_declaration(tmp_path: Path) -> None:
    x = static.data("x", [None, 4])
    exe = static.Executor("cpu")
    static.save_inference_model(str(tmp_path / "m"), [x], [paddle.sum(x)], exe)
    program, feeds, fetches = static.load_inference_model(str(tmp_path / "m"), exe)
    assert exe.run(program, feed={feeds[0]: np.ones((32, 1, 4), "float32")}, fetch_list=fetches)[0] == 128


def test_inputs_that_only_the_other_branch_needs_may_be_left_out(tmp_path: Path) -> None:
    train = static.data("train", [1], "bool")
    x, label = static.data("x", [None, 2]), static.data("label", [None, 2])
    x.stop_gradient = False
    out = static.nn.cond(train, lambda: paddle.square(x - label), lambda: x * 3.0)
    exe, rows = static.Executor("cpu"), np.ones((2, 2), "float32")
    static.save_inference_model(str(tmp_path / "m"), [train, x], [out], exe)
    program, feeds, fetches = static.load_inference_model(str(tmp_path / "m"), exe)
    assert feeds == ["train", "x"]
    feed = {"train": np.array([False]), "x": rows}
    assert exe.run(program, feed=feed, fetch_list=fetches)[0].tolist() == [[3, 3], [3, 3]]
    with pytest.raises(FeedError, match="'label' is not fed, and the branch that runs reads it"):
        exe.run(program, feed={**feed, "train": np.array([True])}, fetch_list=fetches)
    assert exe.run(program, feed=feed, fetch_list=fetches)[0].tolist() == [[3, 3], [3, 3]]
    (dx,) = static.gradients([paddle.sum(out)], [x])
    main = static.default_main_program()
    assert exe.run(main, feed=feed, fetch_list=[dx])[0].tolist() == [[3, 3], [3, 3]]
    whole = {"train": np.array([True]), "x": rows, "label": 3 * rows}
    assert exe.run(main, feed=whole, fetch_list=[dx])[0].tolist() == [[-4, -4], [-4, -4]]
    twice = label * 2.0
    with pytest.raises(FeedError, match="'label' is not fed"):
        exe.run(main, feed=feed, fetch_list=[out, twice])
