"""Op types of Paddle that are several ordinary ops here: raw ``append_op`` builds each as the public function does."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import errors, fluid, static
from tstatic.formats import paddle_proto as proto
from tstatic.formats import paddle_writing
from tstatic.ir.composed import COMPOSED, composed_op
from tstatic.ir.opdef import OPS
from tstatic.no_effect import declared

F = paddle.nn.functional


def ramp(*shape: int, low: float = -1.0, high: float = 2.0) -> np.ndarray[Any, Any]:
    """Distinct float32 numbers."""
    return np.linspace(low, high, int(np.prod(shape, dtype=int)), dtype="float32").reshape(shape)


SQUARE = np.array([[4, 1, 0.5], [1, 3, 0.2], [0.5, 0.2, 2]], "float32")
LOWER = np.tril(SQUARE)
CORNERS = np.array([[0, 0, 2, 1], [1, 0, 4, 5], [0.5, 2, 3, 3]], "float32")


def gru(x: Any, hidden: Any, weight: Any, bias: Any) -> tuple[Any, ...]:
    """One step by its formula, with the weight's two matrices one after the other in memory."""
    width = hidden.shape[1]
    packed = paddle.reshape(weight, [-1])
    first = paddle.reshape(packed[: 2 * width * width], [width, 2 * width])
    last = paddle.reshape(packed[2 * width * width :], [width, width])
    gates = F.sigmoid((x + bias)[:, : 2 * width] + paddle.matmul(hidden, first))
    u, reset = gates[:, :width], gates[:, width:] * hidden
    n = paddle.tanh((x + bias)[:, 2 * width :] + paddle.matmul(reset, last))
    return paddle.concat([gates, n], 1), reset, u * hidden + (1 - u) * n


def lstm(x: Any, cell: Any) -> tuple[Any, Any]:
    """The gates of one step by their formula, with a forget bias of 1."""
    i, f, o, g = paddle.split(x, 4, 1)
    new = F.sigmoid(f + 1.0) * cell + F.sigmoid(i) * paddle.tanh(g)
    return new, F.sigmoid(o) * paddle.tanh(new)


# type -> (inputs, attributes, output slots, the public function of the inputs)
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], list[str], Any]] = {
    "einsum": ({"Operands": [ramp(2, 3), ramp(3, 4)]}, {"equation": "ij,jk->ik"}, ["Out"], lambda a, b: paddle.matmul(a, b)),
    "addmm": ({"Input": ramp(2, 4), "X": ramp(2, 3), "Y": ramp(3, 4)}, {"Alpha": 2.0, "Beta": 0.5}, ["Out"],
              lambda i, x, y: paddle.addmm(i, x, y, 0.5, 2.0)),
    "kron": ({"X": ramp(2, 2), "Y": ramp(2, 3)}, {}, ["Out"], paddle.kron),
    "cross": ({"X": ramp(2, 3), "Y": ramp(2, 3, low=3)}, {"dim": 1}, ["Out"], lambda x, y: paddle.cross(x, y, 1)),
    "dist": ({"X": ramp(2, 3), "Y": ramp(2, 3, low=0.5)}, {"p": 3.0}, ["Out"], lambda x, y: paddle.dist(x, y, 3)),
    "bilinear_tensor_product": ({"X": ramp(2, 3), "Y": ramp(2, 4), "Weight": ramp(5, 3, 4), "Bias": ramp(1, 5)}, {}, ["Out"],
                                F.bilinear),
    "multi_dot": ({"X": [ramp(2, 3), ramp(3, 4), ramp(4, 2)]}, {}, ["Out"], lambda *x: paddle.linalg.multi_dot(list(x))),
    "renorm": ({"X": ramp(3, 4)}, {"p": 2.0, "axis": 0, "max_norm": 1.0}, ["Out"], lambda x: paddle.renorm(x, 2.0, 0, 1.0)),
    "trace": ({"Input": ramp(3, 4)}, {"offset": 1, "axis1": 0, "axis2": 1}, ["Out"], lambda x: paddle.trace(x, 1)),
    "matrix_power": ({"X": SQUARE}, {"n": 3}, ["Out"], lambda x: paddle.linalg.matrix_power(x, 3)),
    "cholesky_solve": ({"X": ramp(3, 2), "Y": LOWER}, {"upper": False}, ["Out"], paddle.linalg.cholesky_solve),
    "eigh": ({"X": LOWER}, {"UPLO": "L"}, ["Eigenvalues", "Eigenvectors"], lambda x: paddle.linalg.eigh(x, "L")),
    "eigvalsh": ({"X": LOWER.T}, {"UPLO": "U"}, ["Eigenvalues"], lambda x: paddle.linalg.eigvalsh(x, "U")),
    "lu": ({"X": SQUARE}, {"pivots": True}, ["Out", "Pivots", "Infos"], lambda x: paddle.linalg.lu(x, True, True)),
    "lu_unpack": ({"X": SQUARE, "Pivots": np.array([1, 3, 3], "int32")}, {}, ["Pmat", "L", "U"], paddle.linalg.lu_unpack),
    "lstsq": ({"X": ramp(4, 2) ** 2, "Y": ramp(4, 1)}, {"rcond": 1e-6, "driver": "gelsy"}, ["Solution", "Rank"],
              lambda x, y: paddle.linalg.lstsq(x, y, 1e-6)[0:3:2]),
    "matrix_rank": ({"X": SQUARE}, {"tol": 2.5, "use_default_tol": False}, ["Out"], lambda x: paddle.linalg.matrix_rank(x, 2.5)),
    "set_value": ({"Input": ramp(3, 4), "ValueTensor": ramp(1, 2)},
                  {"axes": [0, 1], "starts": [1, 0], "ends": [2, 4], "steps": [1, 2], "decrease_axes": [0]}, ["Out"],
                  lambda x, v: static.setitem(x, (1, slice(0, 4, 2)), paddle.reshape(v, [2]))),
    "index_put": ({"x": ramp(3, 4), "indices": [np.array([0, 2])], "value": ramp(2, 4)}, {"accumulate": True}, ["out"],
                  lambda x, i, v: paddle.index_put(x, (i,), v, True)),
    "fill_diagonal_tensor": ({"X": ramp(3, 4), "Y": ramp(1, 3)}, {"offset": 1}, ["Out"],
                             lambda x, y: paddle.diagonal_scatter(x, paddle.reshape(y, [-1]), 1)),
    "shard_index": ({"X": np.array([[3], [12]])}, {"index_num": 20, "nshards": 2, "shard_id": 0}, ["Out"],
                    lambda x: paddle.shard_index(x, 20, 2, 0)),
    "tril_indices": ({}, {"rows": 3, "cols": 2, "dtype": 3}, ["out"], lambda: paddle.tril_indices(3, 2)),
    "triu_indices": ({}, {"row": 3, "col": 3, "offset": 1, "dtype": 2}, ["out"], lambda: paddle.triu_indices(3, 3, 1, "int32")),
    "logspace": ({"Start": ramp(1), "Stop": ramp(1, low=2), "Base": ramp(1, low=3)}, {"num": [4], "dtype": 5}, ["Out"],
                 lambda a, b, c: paddle.logspace(a, b, 4, c, "float32")),
    "fill_constant": ({"ValueTensor": ramp(1)}, {"shape": [2, 3], "dtype": 5}, ["Out"],
                      lambda v: paddle.full([2, 3], v, "float32")),
    "nanmedian": ({"X": ramp(2, 5)}, {"axis": [1], "keepdim": True}, ["Out"], lambda x: paddle.nanmedian(x, [1], True)),
    "logcumsumexp": ({"X": ramp(2, 3)}, {"flatten": True, "axis": -1}, ["Out"], paddle.logcumsumexp),
    "concat": ({"X": [ramp(2, 3), ramp(2, 3)], "AxisTensor": np.array([1], "int32")}, {}, ["Out"],
               lambda x, y, axis: paddle.concat([x, y], axis)),
    "split": ({"X": ramp(2, 3), "AxisTensor": np.array([1], "int32")}, {"num": 1}, ["Out"],
              lambda x, axis: paddle.split(x, 1, axis)),
    "unsqueeze2": ({"X": ramp(2, 3), "AxesTensor": np.array([1], "int32")}, {}, ["Out"], paddle.unsqueeze),
    "scale": ({"X": ramp(2, 3), "ScaleTensor": ramp(1, low=0.5)}, {"bias": 1.0, "bias_after_scale": True}, ["Out"],
              lambda x, factor: paddle.scale(x, factor, 1.0)),
    "clip": ({"X": ramp(2, 3), "Min": ramp(1, low=0.5)}, {"min": 0.0, "max": 1.0}, ["Out"],
             lambda x, low: paddle.clip(x, low, 1.0)),
    "affine_grid": ({"Theta": ramp(1, 2, 3)}, {"output_shape": [1, 2, 3, 4], "align_corners": False}, ["Output"],
                    lambda t: F.affine_grid(t, [1, 2, 3, 4], False)),
    "temporal_shift": ({"X": ramp(4, 4, 1, 2)}, {"seg_num": 2, "shift_ratio": 0.25}, ["Out"], lambda x: F.temporal_shift(x, 2)),
    "pad3d": ({"X": ramp(1, 1, 2, 2, 2), "Paddings": np.array([1, 0, 0, 1, 0, 0], "int32")}, {"value": 3.0}, ["Out"],
              lambda x, p: F.pad(x, p, "constant", 3.0, "NCDHW")),
    "bilinear_interp_v2": ({"X": ramp(1, 1, 2, 2), "OutSize": np.array([3, 4], "int32")},
                           {"interp_method": "bilinear", "align_corners": True, "out_h": -1}, ["Out"],
                           lambda x, s: F.interpolate(x, s, mode="bilinear", align_corners=True, align_mode=1)),
    "box_coder": ({"PriorBox": CORNERS, "TargetBox": ramp(2, 3, 4)},
                  {"code_type": "decode_center_size", "variance": [0.1, 0.1, 0.2, 0.2], "box_normalized": False}, ["OutputBox"],
                  lambda p, t: paddle.vision.ops.box_coder(p, [0.1, 0.1, 0.2, 0.2], t, "decode_center_size", False)),
    "yolo_box": ({"X": ramp(1, 16, 2, 3), "ImgSize": np.array([[64, 96]], "int32")},
                 {"anchors": [10, 13, 16, 30], "class_num": 2, "iou_aware": True, "conf_thresh": 0.5}, ["Boxes", "Scores"],
                 lambda x, size: paddle.vision.ops.yolo_box(x, size, [10, 13, 16, 30], 2, 0.5, 32, iou_aware=True)),
    "gru_unit": ({"Input": ramp(2, 9), "HiddenPrev": ramp(2, 3, low=0.1), "Weight": ramp(3, 9), "Bias": ramp(1, 9, low=0.3)},
                 {"origin_mode": True}, ["Gate", "ResetHiddenPrev", "Hidden"], gru),
    "lstm_unit": ({"X": ramp(2, 8), "C_prev": ramp(2, 2, low=0.3)}, {"forget_bias": 1.0}, ["C", "H"], lstm),
    "lrn": ({"X": ramp(2, 5, 2, 3)}, {"n": 3, "k": 1.0, "alpha": 0.5}, ["Out", "MidOut"],
            lambda x: (F.local_response_norm(x, 3, alpha=1.5, k=1.0), (x / F.local_response_norm(x, 3, 1.5, k=1.0)) ** (4 / 3))),
    "affine_channel": ({"X": ramp(2, 4, 3), "Scale": ramp(3, low=0.5), "Bias": ramp(3)}, {"data_layout": "NHWC"}, ["Out"],
                       lambda x, scale, bias: fluid.layers.affine_channel(x, scale, bias, "NHWC")),
    "spectral_norm": ({"Weight": SQUARE, "U": ramp(3, low=0.5), "V": ramp(3, low=0.2)}, {"dim": 0, "power_iters": 50}, ["Out"],
                      lambda w, u, v: w / paddle.max(paddle.linalg.svd(w)[1])),
}  # fmt: skip


def fed(inputs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs as Variables by slot, and what they are fed with."""
    feed: dict[str, Any] = {}

    def variable(array: Any) -> Any:
        name = f"x{len(feed)}"
        feed[name] = array
        return static.data(name, list(array.shape), str(array.dtype))

    return {s: [variable(a) for a in v] if isinstance(v, list) else variable(v) for s, v in inputs.items()}, feed


@pytest.mark.parametrize("type", CASES)
def test_a_raw_operator_is_its_function(type: str) -> None:
    inputs, attrs, slots, function = CASES[type]
    variables, feed = fed(inputs)
    block = static.default_main_program().global_block()
    made = [block.create_var(name=f"made_{slot}") for slot in slots]
    block.append_op(type=type, inputs=variables, outputs=dict(zip(slots, made, strict=True)), attrs=attrs)
    row = [one for value in variables.values() for one in (value if isinstance(value, list) else [value])]
    expected = function(*row)
    expected = list(expected) if isinstance(expected, list | tuple) else [expected]
    fetched = static.Executor().run(feed=feed, fetch_list=[*made, *expected[: len(made)]])
    for found, wanted in zip(fetched[: len(made)], fetched[len(made) :], strict=True):
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_every_composed_type_has_a_case_and_names_its_idle_attributes() -> None:
    from tests.raw_ops.described import OPS as FIRST_GENERATION

    covered = {
        *CASES,
        "feed",
        "fetch",
        "save",
        "load",
        "save_combine",
        "load_combine",
        *(row[0] for row in FIRST_GENERATION.values()),
    }
    types = {key.removeprefix("raw ") for key in COMPOSED}
    interpolations = {f"{name}_interp_v2" for name in ("nearest", "linear", "trilinear", "bicubic")}
    assert types - covered - interpolations == set(), "add a case above"
    for type in types:
        entry = COMPOSED[f"raw {type}"]
        read = set(inspect.unwrap(entry.build).__code__.co_varnames[: entry.build.__code__.co_argcount])
        assert {*entry.slots} == read
        idle = [name for name in entry.attrs if name not in declared(entry.build) and not _reads(entry.build, name)]
        assert idle == [], f"{type} does nothing with these: say why with @no_effect"


def _reads(function: Any, name: str) -> bool:
    """Whether a function's body mentions a parameter."""
    body = inspect.getsource(function).partition("Results:")[2] or inspect.getsource(function).partition(") ->")[2]
    return name in body


def test_an_operator_with_a_definition_keeps_it_where_it_suffices() -> None:
    assert composed_op("concat", ["X"], ["axis"]) is None
    assert composed_op("concat", ["X", "AxisTensor"], []) is COMPOSED["raw concat"]
    assert composed_op("kron", [], []) is COMPOSED["raw kron"]
    assert composed_op("relu", ["X"], []) is None
    assert "kron" not in OPS
    for key, entry in COMPOSED.items():
        definition = OPS.find(key.removeprefix("raw "))
        if definition is not None:
            assert {*entry.slots} - {*definition.input_slots} or {*entry.attrs} - {*definition.attrs}, (
                f"{key} adds nothing"
            )


@pytest.mark.parametrize(
    ("type", "slots", "outputs", "attrs", "text"),
    [
        ("kron", {"X": "x"}, {"Out": "out"}, {}, "Input Y not found"),
        ("trace", {"Input": "x"}, {"Out": "out"}, {"ofset": 1}, "did you mean 'offset'"),
        ("trace", {"Inputs": "x"}, {"Out": "out"}, {}, "did you mean 'Input'"),
        ("trace", {"Input": "x"}, {"Output": "out"}, {}, "did you mean 'Out'"),
        ("matrix_power", {"X": "x"}, {"Out": "out"}, {}, "Attribute n not found"),
        ("tril_indices", {}, {"out": "out"}, {"rows": 2**20, "cols": 2**20}, "too many"),
    ],
)
def test_a_wrong_operator_is_named_and_leaves_nothing(
    type: str, slots: dict[str, str], outputs: dict[str, str], attrs: dict[str, Any], text: str
) -> None:
    static.data("x", [3, 3])
    program = static.default_main_program()
    block = program.global_block()
    block.create_var(name="out")
    before = str(program)
    with pytest.raises(errors.TstaticError) as caught:
        block.append_op(type=type, inputs=slots, outputs=outputs, attrs=attrs)
    assert text in str(caught.value)
    assert str(program) == before
    y = paddle.tanh(block.var("x"))  # building goes on
    assert static.Executor().run(feed={"x": SQUARE}, fetch_list=[y])[0].shape == (3, 3)


def test_limits_of_whole_numbers_do_not_grow_when_they_are_written() -> None:
    x, wide = static.data("x", [2], "int32"), static.data("wide", [2], "int64")
    ys = [paddle.clip(x, min=1), paddle.clip(wide, min=1)]
    program = static.normalize_program(static.default_main_program(), [x, wide], ys)
    found = proto.read_program(paddle_writing.write(program)).blocks[0].ops
    limits = [proto.value_of(a) for op in found if op.type == "clip" for a in op.attrs if a.name == "max"]
    assert limits == [2147483520.0, 9223371487098961920.0]  # what Paddle writes


def test_a_number_beyond_float32_is_written_as_infinite() -> None:
    op = proto.OpDesc(type="clip", attrs=[proto.Attr("max", 1, f=1e300), proto.Attr("min", 1, f=-1e300)])
    program = proto.ProgramDesc([proto.BlockDesc(ops=[op])])
    found = proto.read_program(proto.write_program(program)).blocks[0].ops[0].attrs
    assert [proto.value_of(attr) for attr in found] == [float("inf"), -float("inf")]


def test_what_a_file_names_is_not_taken_for_a_part_of_an_operator() -> None:
    """A file of another process has the names that this one would generate next."""

    def variable(name: str) -> proto.VarDesc:
        return proto.VarDesc(name, proto.VarType(7, lod_tensor=proto.LoDTensorDesc(proto.TensorDesc(5, [2, 3]))))

    def op(type: str, inputs: dict[str, str], **outputs: str) -> proto.OpDesc:
        rows = ([proto.Slot(slot, [name]) for slot, name in side.items()] for side in (inputs, outputs))
        return proto.OpDesc(*rows, type)

    with paddle.utils.unique_name.guard():
        names = [paddle.utils.unique_name.generate(f"{key}_0.tmp") for key in ("square", "elementwise_sub")]
    made, other = names
    ops = [
        op("square", {"X": "x"}, Out=made),
        op("scale", {"X": made}, Out=other),
        op("squared_l2_distance", {"X": "x", "Y": "y"}, sub_result="sub", Out="out"),
    ]
    block = proto.BlockDesc(vars=[variable(n) for n in ("x", "y", *names, "sub", "out")], ops=ops)
    with paddle.utils.unique_name.guard():
        program = static.Program.parse_from_string(proto.write_program(proto.ProgramDesc([block])))
    x = ramp(2, 3)
    feed = {"x": x, "y": x - 1}
    found = static.Executor().run(program, feed=feed, fetch_list=[*names, "out"])
    for value, wanted in zip(found, (x * x, x * x, [[3.0], [3.0]]), strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-5)


# ------------------------------------------------------------------------------------------------- feed, fetch, save, load
def test_feed_and_fetch_name_inputs_and_results() -> None:
    program = static.default_main_program()
    block = program.global_block()
    holder = block.create_var(name="feed", type=paddle.fluid.core.VarDesc.VarType.FEED_MINIBATCH, persistable=True)
    x = block.create_var(name="x", shape=[-1, 2], dtype="float32")
    made = block.append_op(type="feed", inputs={"X": [holder]}, outputs={"Out": [x]}, attrs={"col": 0})
    y = x * 2
    results = block.create_var(name="fetch", type=paddle.fluid.core.VarDesc.VarType.FETCH_LIST, persistable=True)
    last = block.append_op(type="fetch", inputs={"X": [y]}, outputs={"Out": [results]}, attrs={"col": 0})
    assert (made.type, made.output("Out"), last.type, last.input("X")) == ("feed", ["x"], "fetch", [y.name])
    assert (program.feed_names, program.fetch_names) == (("x",), (y.name,))
    found = static.Executor().run(program, feed={"x": ramp(3, 2)}, fetch_list=[y])
    np.testing.assert_array_equal(found[0], ramp(3, 2) * 2)
    with pytest.raises(errors.ProgramError, match="column 1"):
        block.append_op(type="fetch", inputs={"X": [y]}, outputs={"Out": [results]}, attrs={"col": 5})


def test_save_and_load_operators_exchange_files_with_paddle(tmp_path: Any) -> None:
    path = str(tmp_path / "folder" / "w")
    block = static.default_main_program().global_block()
    x = static.data("x", [2, 3])
    block.append_op(type="save", inputs={"X": [x]}, outputs={}, attrs={"file_path": path, "overwrite": False})
    y = x + 1
    block.append_op(type="save_combine", inputs={"X": [x, y]}, outputs={}, attrs={"file_path": path + "2"})
    exe = static.Executor()
    exe.run(feed={"x": ramp(2, 3)})
    with pytest.raises(errors.CheckpointError, match="overwrite=False"):
        exe.run(feed={"x": ramp(2, 3)})
    with static.program_guard(static.Program()):
        block = static.default_main_program().global_block()
        one, two, half = (block.create_var(name=n, shape=[2, 3], dtype=d, persistable=n == "one")
                          for n, d in (("one", "float32"), ("two", "float32"), ("half", "float16")))  # fmt: skip
        three = block.create_var(name="three", shape=[2, 3], dtype="float32")
        block.append_op(type="load", inputs={}, outputs={"Out": [one]}, attrs={"file_path": path})
        block.append_op(type="load_combine", inputs={}, outputs={"Out": [two, three]}, attrs={"file_path": path + "2"})
        block.append_op(
            type="load", inputs={}, outputs={"Out": [half]}, attrs={"file_path": path, "load_as_fp16": True}
        )
        found = exe.run(fetch_list=[one, two, three, half])
        block.append_op(type="load", inputs={}, outputs={"Out": [one]}, attrs={"file_path": path + "3"})
        with pytest.raises(errors.CheckpointError, match="w3"):
            exe.run(fetch_list=[one])
    for value, expected in zip(
        found, (ramp(2, 3), ramp(2, 3), ramp(2, 3) + 1, ramp(2, 3).astype("float16")), strict=True
    ):
        assert value.dtype == expected.dtype
        np.testing.assert_array_equal(value, expected)
    # One variable per file is what fluid.io.load_vars reads, too.
    np.testing.assert_array_equal(paddle.fluid.executor._fetch_var("one"), ramp(2, 3))


@pytest.mark.parametrize("type", ["save", "load", "save_combine", "load_combine"])
def test_a_model_file_cannot_read_or_write_files(type: str) -> None:
    op = proto.OpDesc(type=type, attrs=[proto.Attr("file_path", 2, s="somewhere")])
    data = proto.write_program(proto.ProgramDesc([proto.BlockDesc(ops=[op])]))
    with pytest.raises(errors.CheckpointError, match=f"lacks: '{type}'"):
        static.Program.parse_from_string(data)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_nearest_places_of_computed_sizes_are_those_of_known_ones(align_corners: bool, layout: str) -> None:
    """Computed sizes did not see align_corners."""
    shape = (1, 1, 4, 5) if layout == "NCHW" else (1, 4, 5, 1)
    x = static.data("x", list(shape))
    size = static.data("size", [2], "int32")
    block = static.default_main_program().global_block()
    attrs = {"interp_method": "nearest", "align_corners": align_corners, "data_layout": layout}
    made = block.create_var(name="made")
    block.append_op("nearest_interp_v2", {"X": x, "OutSize": size}, {"Out": made}, {**attrs, "out_h": -1, "out_w": -1})
    known = block.create_var(name="known")
    block.append_op("nearest_interp_v2", {"X": x}, {"Out": known}, {**attrs, "out_h": 7, "out_w": 3})
    feed = {"x": np.arange(20, dtype="float32").reshape(shape), "size": np.array([7, 3], "int32")}
    found, wanted = static.Executor().run(feed=feed, fetch_list=[made, known])
    np.testing.assert_array_equal(found, wanted)
