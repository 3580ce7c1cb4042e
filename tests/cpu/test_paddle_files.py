"""Files that Paddle 2.6.2 and 1.8.5 wrote give what they gave there; what is written for Paddle is read back."""

from __future__ import annotations

import io
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.parity.saved import both_ways, calls, models
from tstatic import fluid, static
from tstatic.errors import CheckpointError, NotFoundError, ProgramError, ProgramTypeError, ShapeError
from tstatic.formats import paddle_program, paddle_proto, paddle_writing
from tstatic.formats.paddle_attributes import Constants
from tstatic.formats.schema import OpDesc
from tstatic.ir.opdef import OPS
from tstatic.runtime.scope import LoDTensor

DATA = Path(__file__).parents[1] / "data"
NEW, OLD = DATA / "paddle-2.6", DATA / "paddle-1.8"
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def recorded(folder: Path, name: str) -> list[Any]:
    with np.load(folder / "answers.npz") as answers:
        return [answers[key] for key in sorted(answers) if key.rpartition(".")[0] == name]


def compare(found: list[Any], expected: list[Any]) -> None:
    assert [(a.shape, a.dtype) for a in found] == [(b.shape, b.dtype) for b in expected]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, **CLOSE)


@pytest.fixture(autouse=True)
def own_scope() -> Any:
    with static.scope_guard(static.Scope()):
        yield


# ------------------------------------------------------------------------------------------------------ inference models
@pytest.mark.parametrize("name", models.MODELS)
def test_a_model_of_paddle_answers_as_there(name: str) -> None:
    exe = static.Executor("cpu")
    program, feeds, fetches = static.load_inference_model(str(NEW / name), exe)
    compare(models.inferred(paddle, program, feeds, fetches, exe), recorded(NEW, name))
    assert not [op for op in program.global_block().ops if op.type in ("feed", "fetch")]


@pytest.mark.parametrize("name", ["LSTM", "GRU", "SimpleRNN"])
def test_recurrent_layers_of_paddle_answer_as_there(name: str) -> None:
    exe = static.Executor("cpu")
    program, _, fetches = static.load_inference_model(str(NEW / name), exe)
    feed = {"x": np.linspace(-1, 1, 30).reshape(2, 5, 3).astype("float32"), "lengths": np.array([5, 3])}
    compare(exe.run(program, feed=feed, fetch_list=fetches), recorded(NEW, name))


@pytest.mark.parametrize(("name", "values"), [("mlp", None), ("conv", "__params__"), ("words", None)])
def test_a_folder_of_paddle_1_answers_as_there(name: str, values: str | None) -> None:
    exe = static.Executor("cpu")
    program, feeds, fetches = fluid.io.load_inference_model(str(OLD / name), exe, params_filename=values)
    compare(models.inferred(paddle, program, feeds, fetches, exe), recorded(OLD, name))


def test_sequences_of_paddle_1_are_divided_as_there() -> None:
    exe = static.Executor("cpu")
    program, feeds, fetches = fluid.io.load_inference_model(str(OLD / "sentences"), exe, params_filename="__params__")
    rows = fluid.create_lod_tensor(np.arange(7).reshape(7, 1), [[2, 4, 1]], fluid.CPUPlace())
    again = paddle_program.read(paddle_writing.write(program))
    for one, results in ((program, fetches), (again, list(again.fetch_names))):
        found = exe.run(one, feed={feeds[0]: rows}, fetch_list=results, return_numpy=False)
        compare([np.array(value) for value in found], recorded(OLD, "sentences"))
        assert found[1].lod() == [[0, 2, 6, 7]]


@pytest.mark.parametrize("name", models.MODELS)
def test_what_is_written_for_paddle_is_read_back(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    main, built, exe = models.trained(paddle, name, 1)
    path = str(tmp_path / name)
    static.save_inference_model(path, built.feeds, built.outputs, exe, program=main)
    ours = models.inferred(paddle, *static.load_inference_model(path, exe), exe)
    static.save_inference_model(path, built.feeds, built.outputs, exe, program=main, format="paddle")
    assert (tmp_path / f"{name}.pdmodel").read_bytes()[:1] == b"\x0a"
    again = models.inferred(paddle, *static.load_inference_model(path, exe), exe)
    assert [a.tobytes() for a in ours] == [b.tobytes() for b in again]


def test_the_format_of_paddle_says_that_it_has_no_checksums(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    main = static.Program()
    with caplog.at_level(logging.WARNING):
        static.save(main, str(tmp_path / "m"), format="paddle")
    assert "no place for checksums" in caplog.text
    with pytest.raises(ProgramError, match="does not know the format 'torch'"):
        static.save(main, str(tmp_path / "m"), format="torch")


# ------------------------------------------------------------------------------------------------------------ parameters
@pytest.mark.parametrize("name", ["mlp", "resnet", "words"])
def test_a_training_of_paddle_goes_on_here(name: str, tmp_path: Path) -> None:
    main, built, exe = models.trained(paddle, name, 0)
    static.load(main, str(NEW / f"{name}_training"), exe)
    state = static.load_program_state(str(NEW / f"{name}_training"))
    assert set(state) == {var.name for var in main.list_vars() if var.persistable}
    for key, value in state.items():
        assert np.array_equal(np.array(static.global_scope().find_var(key).get_tensor()), value)
    # The inference model was saved from this state.
    static.save_inference_model(str(tmp_path / "m"), built.feeds, built.outputs, exe, program=main)
    compare(models.inferred(paddle, *static.load_inference_model(str(tmp_path / "m"), exe), exe), recorded(NEW, name))
    static.save(main, str(tmp_path / "t"), format="paddle")
    assert sorted(p.name for p in tmp_path.glob("t.*")) == ["t.pdmodel", "t.pdopt", "t.pdparams"]
    before = models.checked(paddle, main)
    exe.run(
        main, feed={k: v for k, v in models.feed(0).items() if main.global_block().has_var(k)}, fetch_list=[built.loss]
    )
    assert not np.array_equal(models.checked(paddle, main), before)
    static.load(main, str(tmp_path / "t"), exe)
    assert np.array_equal(models.checked(paddle, main), before)


def test_values_of_paddle_1_are_loaded(tmp_path: Path) -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x, y = fluid.data("x", [None, 12]), fluid.data("label", [None, 1], "int64")
        h = fluid.layers.dropout(fluid.layers.fc(x, 16, act="relu"), 0.3)
        loss = fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.fc(h, 4, act="softmax"), y))
        fluid.optimizer.Adam(0.01).minimize(loss)
    exe = static.Executor("cpu")
    exe.run(startup)
    expected = static.load_program_state(str(OLD / "mlp_training"))
    loads: list[Any] = [
        lambda: static.load(main, str(OLD / "mlp_training"), exe),
        lambda: fluid.io.load_persistables(exe, str(OLD), main, "mlp_all"),
        lambda: fluid.io.load_params(exe, str(OLD / "mlp"), main),
        lambda: static.load(main, str(OLD / "mlp_all"), exe),
        lambda: static.load(main, str(OLD / "mlp"), exe, main.all_parameters()),
    ]
    for load in loads:
        exe.run(startup)
        load()
        for var in main.all_parameters():
            assert np.array_equal(np.array(static.global_scope().find_var(var.name).get_tensor()), expected[var.name])
    parameters = {n: v for n, v in expected.items() if n.startswith("fc_") and n.count("_") == 2}
    for var_list in (None, main.all_parameters()):
        state = static.load_program_state(str(OLD / "mlp"), var_list)
        assert {n: v.tolist() for n, v in state.items()} == {n: v.tolist() for n, v in parameters.items()}
    other = static.Program()
    other.global_block().create_var(name="fc_0.b_0", shape=[3], dtype="float32", persistable=True)
    with pytest.raises(ShapeError, match="expected a shape"):
        fluid.io.load_persistables(exe, str(OLD / "mlp"), other)


def test_one_file_for_fewer_variables_than_it_holds_is_refused() -> None:
    main = static.Program()
    main.global_block().create_var(name="fc_0.b_0", shape=[16], dtype="float32", persistable=True)
    with pytest.raises(CheckpointError, match="damaged, or of another program"):
        fluid.io.load_persistables(None, str(OLD), main, "mlp_all")


# ------------------------------------------------------------------------------------------------------------------ nests
@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_a_nest_of_paddle_is_loaded(protocol: int) -> None:
    found = paddle.load(str(NEW / f"nest_{protocol}"), return_numpy=True)
    assert found["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["rows"][0].tolist() == [0, 1, 2]
    assert found["rows"][1:] == [2.5, None, ("text", True)]
    assert found["number"] == 0.5
    tensors = paddle.load(str(NEW / f"nest_{protocol}"))
    assert isinstance(tensors["w"], LoDTensor)
    assert isinstance(tensors["rows"][0], LoDTensor)
    assert np.array(paddle.load(str(NEW / "tensor"))).tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("format", ["tstatic", "paddle"])
@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_any_nest_is_the_same_after_a_save(protocol: int, format: str, tmp_path: Path) -> None:
    tensor = LoDTensor()
    tensor.set(np.arange(3, dtype="int64"))
    nest = {"a": tensor, "b": [np.ones((2, 0)), {"c": (1, 2.5, None, True, "x")}], 3: np.float32(2), "t": ("name", 1)}
    path = tmp_path / "new" / "folder" / "nest"
    paddle.save(nest, str(path), protocol, format=format)
    found = paddle.load(path, return_numpy=True)
    assert found["a"].tolist() == [0, 1, 2]
    assert found["b"][0].shape == (2, 0)
    assert found["b"][1] == {"c": (1, 2.5, None, True, "x")}
    assert found[3] == 2
    assert isinstance(paddle.load(path)["b"][0], LoDTensor)
    file = io.BytesIO()
    paddle.save(nest, file, protocol, format=format)
    assert file.getvalue() == path.read_bytes()
    assert paddle.load(io.BytesIO(file.getvalue()), return_numpy=True)["b"][1] == found["b"][1]


def test_every_flipped_bit_and_every_cut_of_a_nest_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "nest"
    paddle.save({"w": np.arange(4, dtype="float32"), "n": [1, "x"]}, path)
    data = path.read_bytes()
    for bit in range(8 * len(data)):
        harmed = bytearray(data)
        harmed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CheckpointError):
            paddle.load(io.BytesIO(bytes(harmed)))
    for end in range(len(data)):
        if data[:end].endswith(b"."):
            continue  # a whole pickle, as Paddle writes it
        with pytest.raises(CheckpointError):
            paddle.load(io.BytesIO(data[:end]))


def test_programs_and_states_are_saved_like_any_object(tmp_path: Path) -> None:
    main, _, _ = models.trained(paddle, "mlp", 1)
    for format in ("tstatic", "paddle"):
        paddle.save(main, tmp_path / "p.pdmodel", format=format)
        again = paddle.load(tmp_path / "p.pdmodel")
        assert isinstance(again, static.Program)
        assert [op.type for op in again.global_block().ops] == [op.type for op in main.global_block().ops]
    before = models.checked(paddle, main)
    paddle.save(main.state_dict(), tmp_path / "s.pdparams")
    main.set_state_dict({name: np.zeros_like(np.array(t)) for name, t in main.state_dict("param").items()})
    assert not np.array_equal(models.checked(paddle, main), before)
    main.set_state_dict(paddle.load(tmp_path / "s.pdparams"))
    assert np.array_equal(models.checked(paddle, main), before)
    static.save(main, str(tmp_path / "m"))
    assert set(paddle.load(tmp_path / "m.pdparams")) == set(main.state_dict("param"))
    assert set(paddle.load(tmp_path / "m.pdopt")) == set(main.state_dict("opt"))


def test_dicts_of_paddle_1_go_to_the_file_of_their_kind(tmp_path: Path) -> None:
    main, _, _ = models.trained(paddle, "mlp", 1)
    with static.program_guard(main):
        fluid.save_dygraph(main.state_dict("param"), str(tmp_path / "m"))
        fluid.save_dygraph(main.state_dict("opt"), str(tmp_path / "m"))
    parameters, optimizer = fluid.load_dygraph(str(tmp_path / "m.pdparams"))
    assert parameters is not None
    assert optimizer is not None
    assert set(parameters) == set(main.state_dict("param"))
    assert set(optimizer) == set(main.state_dict("opt"))
    static.load(main, str(tmp_path / "m"))
    with pytest.raises(ValueError, match="to load model not exists"):
        fluid.load_dygraph(str(tmp_path / "other"))
    with pytest.raises(ProgramError, match="state_dict is empty"):
        fluid.save_dygraph({}, str(tmp_path / "m"))


def test_wrong_arguments_of_save_and_load_are_named(tmp_path: Path) -> None:
    x = static.data("x", [1])
    with pytest.raises(ProgramTypeError, match="'x' is a Variable"):
        paddle.save({"a": [x]}, tmp_path / "a")
    with pytest.raises(ValueError, match="filename is empty string"):
        paddle.save(1, f"{tmp_path}/")
    with pytest.raises(ValueError, match="received protocol=1"):
        paddle.save(1, tmp_path / "a", 1)
    with pytest.raises(ProgramTypeError, match="only plain data"):
        paddle.save(object(), tmp_path / "a")
    with pytest.raises(TypeError, match="unexpected keyword argument 'more'"):
        paddle.save(1, tmp_path / "a", more=1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'more'"):
        paddle.load(tmp_path / "a", more=1)
    for path in (tmp_path / "a", "", tmp_path):
        with pytest.raises(NotFoundError, match=r"to load model not exists"):
            paddle.load(path)
    assert list(tmp_path.iterdir()) == []


def test_names_of_layers_become_those_of_parameters(tmp_path: Path) -> None:
    table = {
        "StructuredToParameterName@@": {"fc.weight": "w"},
        "fc.weight": np.ones(2, "float32"),
        "LR_Scheduler": {"a": 1},
    }
    paddle.save(table, tmp_path / "m.pdparams")
    assert set(paddle.load(tmp_path / "m.pdparams")) == {"fc.weight", "LR_Scheduler"}
    assert set(paddle.load(tmp_path / "m.pdparams", keep_name_table=True)) == set(table)
    assert set(static.load_program_state(str(tmp_path / "m"))) == {"w"}


def test_bfloat16_goes_as_its_bits(tmp_path: Path) -> None:
    main = static.Program()
    main.global_block().create_var(name="w", shape=[2], dtype="bfloat16", persistable=True)
    value = np.array([1.5, -2], paddle.bfloat16.np)
    static.global_scope().var("w").get_tensor().set(value)
    static.save(main, str(tmp_path / "m"), format="paddle")
    assert paddle.load(tmp_path / "m.pdopt", return_numpy=True)["w"].dtype == np.uint16
    static.global_scope().var("w").get_tensor().set(np.zeros_like(value))
    static.load(main, str(tmp_path / "m"))
    assert np.array(static.global_scope().find_var("w").get_tensor()).tolist() == [1.5, -2]


# ------------------------------------------------------------------------------------------------------------ translation
def changed(name: str, change: Any) -> bytes:
    """A model of Paddle after a change of its message."""
    program = paddle_proto.read_program((NEW / f"{name}.pdmodel").read_bytes())
    change(program.blocks[0])
    return paddle_proto.write_program(program)


def test_all_unknown_operators_are_named_in_one_error() -> None:
    def change(block: Any) -> None:
        for op, type in zip(block.ops[2:6], ("alpha", "beta", "alpha", "gamma_grad"), strict=True):
            op.type = type

    with pytest.raises(
        CheckpointError, match=r"3 types of operators that tstatic lacks: 'alpha', 'beta', 'gamma_grad'"
    ):
        paddle_program.read(changed("mlp", change))


def test_kernel_attributes_are_ignored_and_others_named() -> None:
    def add(name: str, **value: Any) -> Any:
        op = {"value": 1}

        def change(block: Any) -> None:
            found = next(op for op in block.ops if op.type == "relu")
            found.attrs.append(paddle_proto.Attr(name, **value))
            op["value"] = 0

        return change

    for name, value in (
        ("use_cudnn", {"type": 6, "b": True}), ("op_callstack", {"type": 5, "strings": ["line"]}),
        ("Scale_in", {"type": 1, "f": 1.0}), ("new", {"type": 2, "s": ""}), ("new", {"type": 3, "ints": []}),
    ):  # fmt: skip
        paddle_program.read(changed("mlp", add(name, **value)))
    with pytest.raises(CheckpointError, match=r"operator 'relu' has attributes that tstatic lacks: new = 3"):
        paddle_program.read(changed("mlp", add("new", type=0, i=3)))
    with pytest.raises(CheckpointError, match="attribute 'new' of type 40"):
        paddle_program.read(changed("mlp", add("new", type=40, i=3)))


def test_an_operator_that_paddle_lacks_is_named(tmp_path: Path) -> None:
    x = static.data("x", [4, 1], dtype="int64")
    y = fluid.layers.one_hot(x, 3)
    exe = static.Executor("cpu")
    with pytest.raises(ProgramError, match="Paddle has no counterpart of 1 operators: one_hot"):
        static.save_inference_model(str(tmp_path / "m"), [x], [y], exe, format="paddle")
    assert list(tmp_path.iterdir()) == []


def build_numbers() -> tuple[list[Any], list[Any]]:
    """Ops whose form in Paddle differs."""
    x = static.data("x", [None, 3])
    whole = paddle.assign(np.array([2**40 + 1, -3], "int64"))
    wide = paddle.assign(np.linspace(0, 1, 100))
    small = paddle.assign(np.array([1, 2], "uint8"))
    flags = paddle.assign(np.array([True, False]))
    sizes = [
        paddle.arange(1, 9, 2),
        paddle.arange(0, 1, 0.25, "float32"),
        paddle.linspace(0, 1, 5),
        paddle.full([2], 2**53 + 1, "int64"),
    ]
    parts = paddle.split(x, 3, axis=-1)
    dynamic = paddle.full(paddle.shape(x), 1.5)
    shrunk = paddle.nn.functional.softshrink(x, 0.2)
    total = fluid.layers.reduce_sum(x)
    return [x], [
        whole,
        wide,
        small,
        flags,
        *sizes,
        parts[1],
        dynamic,
        shrunk,
        total,
        fluid.layers.mean(x),
        *refused_there(),
    ]


def refused_there() -> list[Any]:
    """Results of ops whose kernels in Paddle refuse, or get wrong, what is allowed here: they are written in another way."""
    rows = paddle.assign(np.arange(12, dtype="float32").reshape(3, 4))
    ints = paddle.assign(np.arange(8).reshape(2, 2, 2))
    column, one = paddle.assign(np.array([[1.0], [-2.0]], "float32")), paddle.assign(np.array([0.5], "float32"))
    return [
        paddle.gather(rows, paddle.assign(np.array([2, 0])), axis=-1), paddle.index_select(rows, paddle.assign(np.array([1])), -1),
        paddle.repeat_interleave(rows, 2, axis=-1), paddle.einsum("ii->i", rows[:, :3]), rows[2:1], paddle.arange(5, 1),
        paddle.tile(rows, [0, 1]), paddle.bmm(ints, ints), paddle.mv(ints[0], ints[1, 1]), paddle.atan2(column, one),
        paddle.logical_and(ints, paddle.cast(ints > 3, "float32")), paddle.isclose(column, one), paddle.allclose(ints, ints[0]),
        paddle.histogram(rows, 4), paddle.polygamma(rows + 0.5, 0), paddle.prod(column * 1.6, dtype="int32"),
    ]  # fmt: skip


def test_what_paddle_spells_in_another_way_is_the_same_after_both_translations(tmp_path: Path) -> None:
    feeds, fetches = build_numbers()
    exe = static.Executor("cpu")
    feed = {"x": np.array([[-1, 0.1, 2]], "float32")}
    expected = exe.run(feed=feed, fetch_list=fetches)
    static.save_inference_model(str(tmp_path / "m"), feeds, fetches, exe, format="paddle")
    program, _, results = static.load_inference_model(str(tmp_path / "m"), exe)
    found = exe.run(program, feed=feed, fetch_list=results)
    assert [(a.dtype, a.shape, a.tolist()) for a in found] == [(b.dtype, b.shape, b.tolist()) for b in expected]


def test_what_kernels_of_paddle_refuse_is_written_in_another_way() -> None:
    """Our reader takes both forms, so the written ones are looked at."""
    program = static.normalize_program(static.default_main_program(), [], refused_there())
    ops = paddle_proto.read_program(paddle_writing.write(program)).blocks[0].ops
    attrs = [(op.type, a.name, a.type, paddle_proto.value_of(a)) for op in ops for a in op.attrs]
    assert {a[::3] for a in attrs if a[1] in ("axis", "dim") and a[0] in ("gather", "index_select", "repeat_interleave")} == {
        ("gather", 1), ("index_select", 1), ("repeat_interleave", 1)
    }  # fmt: skip
    assert {a[3] for a in attrs if a[:2] == ("strided_slice", "infer_flags")} == {(1,)}
    assert {a[2] for a in attrs if a[0] == "histogram" and a[1] in ("min", "max")} == {0}
    types = [op.type for op in ops]
    assert not {"bmm", "mv", "polygamma", "tile", "range"} & set(types)
    assert types.count("broadcast_tensors") == 3
    dtypes = {v.name: v.type.lod_tensor.tensor.data_type for v in program_vars(program)}
    read = {op.type: [dtypes[n] for slot in op.inputs for n in slot.arguments] for op in ops}
    numbers = paddle_proto.DTYPE_NUMBERS
    assert read["logical_and"] == [numbers["bool"]] * 2
    assert read["reduce_prod"] == [numbers["int32"]]
    assert read["allclose"] == [numbers["float64"]] * 2


def program_vars(program: Any) -> list[Any]:
    """Variables of the first block as they are written, those with tensors."""
    block = paddle_proto.read_program(paddle_writing.write(program)).blocks[0]
    return [v for v in block.vars if v.type is not None and v.type.lod_tensor is not None]


def test_a_bound_that_paddle_has_no_place_for_is_refused() -> None:
    x = static.data("x", [4])
    program = static.normalize_program(static.default_main_program(), [x], [paddle.histogram(x, 2, 0.5, 1.5)])
    with pytest.raises(ProgramError, match="attribute 'min' of operator 'histogram' has no place"):
        paddle_writing.write(program)


def test_functions_of_python_are_refused_by_name() -> None:
    x = static.data("x", [4])
    out = static.default_main_program().global_block().create_var(name="out", dtype="float32", shape=[4])
    static.py_func(lambda a: a, x, out)
    program = static.normalize_program(static.default_main_program(), [x], [out])
    with pytest.raises(ProgramError, match="'py_func' calls Python functions, which are not part of what is saved"):
        paddle_writing.write(program)


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("exp", [0, 1], np.exp(np.array([0, 1], "float32"))),
        ("log1p", [0, 3], np.log1p(np.array([0, 3], "float32"))),
        ("atan2", [1, -2], np.arctan2([1.0, -2.0], [1.0, -2.0])),
        ("multiply", [True, False], np.array([True, False])),
    ],
)
def test_an_operator_of_paddle_takes_the_dtypes_that_it_takes_there(name: str, given: Any, expected: Any) -> None:
    """Its kernels convert whole numbers; here such a program is written for floats, and then changed."""
    x = static.data("x", [2])
    y = getattr(paddle, name)(*[x] * (2 if name in ("atan2", "multiply") else 1))
    message = paddle_proto.read_program(
        paddle_writing.write(static.normalize_program(static.default_main_program(), [x], [y]))
    )
    numbers, found = paddle_proto.DTYPE_NUMBERS, np.asarray(given)
    for op in message.blocks[0].ops:
        if op.type == "scale":  # what a result of floats goes through
            op.type, op.attrs = "assign", []
    for var in message.blocks[0].vars:
        if var.type is not None and var.type.lod_tensor is not None:
            kind = found.dtype if var.name == "x" else expected.dtype
            var.type.lod_tensor.tensor.data_type = numbers[kind.name]
    program = paddle_program.read(paddle_proto.write_program(message))
    (result,) = static.Executor("cpu").run(program, feed={"x": found}, fetch_list=list(program.fetch_names))
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def paddles(
    types: dict[str, tuple[int, list[int]]], rows: list[tuple[Any, ...]], feeds: list[str], fetches: list[str]
) -> bytes:
    """A program as Paddle saves it: variables with number of dtype and shape, and rows of type, inputs, outputs and attributes."""
    p = paddle_proto
    tensor = lambda number, dims: p.VarType(7, lod_tensor=p.LoDTensorDesc(p.TensorDesc(number, dims)))  # noqa: E731
    variables = [p.VarDesc(name, tensor(*one), need_check_feed=name in feeds) for name, one in types.items()]
    ops = [
        p.OpDesc(
            [p.Slot(n, row) for n, row in ins.items()], [p.Slot(n, row) for n, row in outs.items()], type, list(attrs)
        )
        for type, ins, outs, *attrs in rows
    ]
    return p.write_program(p.ProgramDesc([p.BlockDesc(0, -1, variables, ops, -1)], p.Version(2_006_002)))


BACKWARD = {
    # What its backward op reads there is an output that the op lacks here; and the name of a gradient's slot is another.
    "squeeze2": (
        "squeeze2",
        {"X": ["x"]},
        {"Out": ["y"], "XShape": ["s"]},
        {"XShape": ["s"], "Out@GRAD": ["y@GRAD"]},
        "X@GRAD",
    ),
    "tile": ("tile", {"X": ["x"]}, {"Out": ["y"]}, {"X": ["x"], "Out@GRAD": ["y@GRAD"]}, "X@GRAD"),
    "trace": ("trace", {"Input": ["x"]}, {"Out": ["y"]}, {"Input": ["x"], "Out@GRAD": ["y@GRAD"]}, "Input@GRAD"),
    "meshgrid": ("meshgrid", {"X": ["x"]}, {"Out": ["y"]}, {"X": ["x"], "outputs@GRAD": ["y@GRAD"]}, "X@GRAD"),
    "silu": ("silu", {"X": ["x"]}, {"Out": ["y"]}, {"X": ["x"], "Out": ["y"], "Out@GRAD": ["y@GRAD"]}, "X@GRAD"),
}


@pytest.mark.parametrize("name", BACKWARD)
def test_a_backward_op_in_another_form_follows_from_its_forward_op(name: str) -> None:
    type, inputs, outputs, back, slot = BACKWARD[name]
    value = (
        np.linspace(-1, 1, 3).astype("float32")
        if name == "meshgrid"
        else np.linspace(-1, 1, 9).astype("float32").reshape(3, 3)
    )
    value = value[:, None, :] if name == "squeeze2" else value
    attrs = {
        "squeeze2": [paddle_proto.Attr("axes", 3, ints=[1])], "tile": [paddle_proto.Attr("repeat_times", 3, ints=[2, 1])],
        "trace": [paddle_proto.Attr("offset", 0, i=0), paddle_proto.Attr("axis1", 0, i=0), paddle_proto.Attr("axis2", 0, i=1)],
    }.get(name, [])  # fmt: skip
    x = static.data("x", list(value.shape))
    x.stop_gradient = False
    call = {
        "squeeze2": lambda: paddle.squeeze(x, 1), "tile": lambda: paddle.tile(x, [2, 1]), "trace": lambda: paddle.trace(x),
        "meshgrid": lambda: paddle.meshgrid(x)[0], "silu": lambda: paddle.nn.functional.silu(x),
    }[name]  # fmt: skip
    y = call()
    weight = np.arange(1, 1 + int(np.prod(y.shape)), dtype="float32").reshape(y.shape)
    (expected,) = static.gradients([y], [x], [paddle.assign(weight)])
    exe = static.Executor("cpu")
    (expected,) = exe.run(feed={"x": value}, fetch_list=[expected])
    shapes = {"x": (5, list(value.shape)), "y": (5, list(y.shape)), "s": (5, [0]), "y@GRAD": (5, list(y.shape))}
    backward = (f"{type}_grad", back, {slot: ["x@GRAD"]}, *attrs)
    data = paddles(
        shapes | {"x@GRAD": shapes["x"]}, [(type, inputs, outputs, *attrs), backward], ["x", "y@GRAD"], ["x@GRAD"]
    )
    program = paddle_program.read(data)
    (found,) = exe.run(program, feed={"x": value, "y@GRAD": weight}, fetch_list=["x@GRAD"])
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_gradient_that_nothing_says_how_to_compute_is_refused() -> None:
    """A zero in its place would be a wrong answer without a word."""
    shapes = {name: (5, [3, 3]) for name in ("x", "y", "z", "y@GRAD", "x@GRAD")}
    forward = ("trace", {"Input": ["x"]}, {"Out": ["y"]})
    backward = ("trace_grad", {"Out@GRAD": ["y@GRAD"]}, {"Other@GRAD": ["x@GRAD"]})
    with pytest.raises(CheckpointError, match="'trace_grad' is not the backward op of 'trace' before it"):
        paddle_program.read(paddles(shapes, [forward, backward], ["x", "y@GRAD"], ["x@GRAD"]))
    with pytest.raises(CheckpointError, match="lacks: 'nothing_grad'"):
        paddle_program.read(paddles(shapes, [forward, ("nothing_grad", {}, {})], ["x"], ["y"]))


@pytest.mark.slow
def test_programs_of_described_calls_mean_the_same_after_both_translations() -> None:
    """One in five of those that `make parity` sends to Paddle, and back."""
    rows = [calls.save(paddle, call) for call in both_ways.described(5)]
    rows = [row for row in rows if not {"left", "refused"} & row.keys()]
    assert len(rows) > 500
    assert {row["id"]: found for row in rows if (found := calls.read(paddle, row))} == {}


def test_no_op_without_a_counterpart_is_written_unnoticed() -> None:
    """Types that Paddle 2.6.2 registers are on record; each other op says how it is written, or that it cannot be."""
    known = set((Path(__file__).parent / "paddle_op_types.txt").read_text().split())
    lacking = [
        type for type in OPS if type not in known and not type.endswith("_grad") and not type.startswith("fused_")
        and OPS[type].paddle is None and not OPS[type].kernel and OPS[type].domain is not None
    ]  # fmt: skip
    assert lacking == [], "give these paddle=ABSENT, or a PaddleForm that writes them (tstatic/ir/paddle_form.py)"


def test_a_message_survives_a_round_trip() -> None:
    for path in NEW.glob("*.pdmodel"):
        program = paddle_proto.read_program(path.read_bytes())
        assert paddle_proto.read_program(paddle_proto.write_program(program)) == program


def test_files_of_two_worlds_do_not_get_mixed_up(tmp_path: Path) -> None:
    for name in ("mlp.pdmodel", "mlp.pdiparams"):
        shutil.copyfile(NEW / name, tmp_path / name)
    main, built, exe = models.trained(paddle, "mlp", 1)
    static.save_inference_model(str(tmp_path / "mlp"), built.feeds, built.outputs, exe, program=main)
    shutil.copyfile(NEW / "lenet.pdiparams", tmp_path / "mlp.pdiparams")
    with pytest.raises(ShapeError, match="expected a shape"):
        static.load_inference_model(str(tmp_path / "mlp"), exe)


@pytest.mark.parametrize("shape", [(2**62,) * 20, (2**62,) * 20 + (0,), (-(2**62),) * 21, (65,)])
def test_constants_of_sizes_that_no_memory_has_are_not_noted(shape: tuple[int, ...]) -> None:
    """A file may name any sizes; nothing is computed of them, and numpy does not warn."""
    made = OpDesc(
        type="fill_constant", inputs={}, outputs={"Out": ["c"]}, position=0, attrs={"shape": shape, "value": 2.0}
    )
    constants = Constants()
    constants.note(made)
    assert not constants.values.get("c")
