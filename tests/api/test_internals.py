"""What scripts take from inside Paddle's modules: cheap private names, and module paths with their own names only."""

from __future__ import annotations

import copy
import importlib
import io
import os
import pickle
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.api.test_paths import resolve, words
from tstatic import errors, fluid, static
from tstatic.utils import environments

CPU = paddle.CPUPlace()


# ------------------------------------------------------------------------------------------------------ names of gradients
def test_names_of_gradients() -> None:
    backward = fluid.backward
    assert fluid.framework.grad_var_name("x") == backward._append_grad_suffix_("x") == "x@GRAD"
    # Numbers of Paddle 2.6.2.
    for name, stem in (("x@GRAD", "x"), ("x@GRAD@RENAME@block0@0", "x"), ("grad/x@GRAD", "x"), ("x", "x")):
        assert backward._strip_grad_suffix_(name) == stem
    assert [backward._as_list(x) for x in (None, 3, (1, 2), [4])] == [[], [3], [1, 2], [4]]
    # Paddle makes letters of a name.
    assert [backward._as_list(x) for x in ("ab", b"ab", ["ab"])] == [["ab"], [b"ab"], ["ab"]]


def test_calc_gradient_gives_a_list() -> None:
    x = static.data("x", [2])
    x.stop_gradient = False
    found = fluid.backward.calc_gradient(paddle.sum(x * x), x)
    assert isinstance(found, list)
    (value,) = static.Executor().run(feed={"x": np.array([1, 3], "float32")}, fetch_list=found)
    assert value.tolist() == [2.0, 6.0]


# ----------------------------------------------------------------------------------------------------- checks and dtypes
def test_a_dtype_has_one_name_whatever_gives_it() -> None:
    types = fluid.core.VarDesc.VarType
    for given in ("float32", np.float32, np.dtype("float32"), types.FP32, 5):
        assert fluid.data_feeder.convert_dtype(given) == "float32"
        assert fluid.framework.convert_np_dtype_to_dtype_(given) is types.FP32
    assert fluid.data_feeder.convert_dtype(types.BF16) == "uint16"
    assert fluid.executor.convert_dtype is paddle.common_ops_import.convert_dtype
    with pytest.raises(TypeError):
        fluid.data_feeder.convert_dtype("foo")


def test_checks_of_arguments_say_what_paddle_says() -> None:
    x, feeder = static.data("x", [2, 3]), fluid.data_feeder
    feeder.check_variable_and_dtype(x, "x", ["float32"], "op")
    feeder.check_type([1], "x", (int, list), "op")
    feeder.check_dtype("bfloat16", "x", ["uint16"], "op")
    for wrong, text in (
        (lambda: feeder.check_variable_and_dtype(x, "x", ["int64"], "op"),
         "The data type of 'x' in op must be ['int64'], but received float32."),
        (lambda: feeder.check_variable_and_dtype(1, "x", ["int64"], "op", "More."), "but received <class 'int'>. More."),
        (lambda: feeder.check_type([1], "a", (int, str), "op"),
         "The type of 'a' in op must be (<class 'int'>, <class 'str'>), but received <class 'list'>."),
        (lambda: feeder.check_dtype("float32", "y", ["int64", "bool"], "op", "Hint."),
         "The data type of 'y' in op must be ['int64', 'bool'], but received float32. Hint."),
    ):  # fmt: skip
        with pytest.raises(TypeError) as caught:
            wrong()
        assert isinstance(caught.value, errors.TstaticError)
        assert text in str(caught.value)


def test_shapes_are_checked_by_type() -> None:
    for right in ([2, 3], (2, -1), [static.data("a", [1], "int32")], static.data("c", [2], "int64"), []):
        paddle.check_shape(right, "op")
    for wrong, text in (
        ([2.5], "The type of 'element of shape' in op must be"),
        ("ab", "The type of 'shape' in op must be"),
        (
            static.data("b", [2], "float32"),
            "The data type of 'shape' in op must be ('int32', 'int64'), but received float32.",
        ),
        ([static.data("d", [1], "float32")], "but received float32."),
    ):
        with pytest.raises(TypeError) as caught:
            paddle.check_shape(wrong, "op")
        assert text in str(caught.value)
    with pytest.raises(TypeError):
        paddle.check_shape((2,), "op", expected_shape_type=(list,))


# -------------------------------------------------------------------------------------------------- variables and values
def test_variables_and_values_are_found_by_name() -> None:
    w = paddle.create_parameter([2], "float32", name="w", default_initializer=paddle.nn.initializer.Constant(3.0))
    exe = static.Executor()
    with pytest.raises(errors.NotFoundError, match="persistable"):
        fluid.executor._fetch_var("w")
    exe.run(static.default_startup_program())
    assert fluid.framework._get_var("w") is w
    assert fluid.executor._fetch_var("w").tolist() == [3.0, 3.0]
    assert fluid.executor._fetch_var("w", return_numpy=False).shape() == [2]
    own = static.Scope()
    own.var("v").get_tensor().set(np.zeros(1), CPU)
    assert fluid.executor._fetch_var("v", own).tolist() == [0.0]
    for wrong in (
        lambda: fluid.framework._get_var("nope"),
        lambda: fluid.framework._get_var("w", 3),
        lambda: fluid.executor._fetch_var(3),
    ):
        with pytest.raises((errors.NotFoundError, errors.ProgramTypeError)):
            wrong()


@pytest.mark.parametrize(
    ("data", "dtype", "expected"),
    [
        (3, "float32", 3.0),
        ([1, 2], "int64", [1, 2]),
        (np.ones(2), None, [1, 1]),
        ([np.ones(2)] * 2, "float32", [[1, 1]] * 2),
    ],
)
def test_data_becomes_a_tensor(data: Any, dtype: Any, expected: Any) -> None:
    tensor = fluid.executor._as_lodtensor(data, CPU, dtype)
    assert isinstance(tensor, fluid.LoDTensor)
    assert np.array(tensor).tolist() == expected
    assert dtype is None or str(np.array(tensor).dtype) == dtype


@pytest.mark.parametrize(("data", "dtype"), [(3, None), ([1, 2], None), ([[1, 2], [3]], "int64"), ("text", "float32")])
def test_data_that_cannot_become_a_tensor_is_refused(data: Any, dtype: Any) -> None:
    with pytest.raises(errors.FeedTypeError):
        fluid.executor._as_lodtensor(data, CPU, dtype)


# ------------------------------------------------------------------------------------------------------------------- core
def test_kinds_of_variables_are_names_with_paddles_numbers() -> None:
    types = fluid.core.VarDesc.VarType
    names = "LOD_TENSOR SELECTED_ROWS FEED_MINIBATCH FETCH_LIST STEP_SCOPES LOD_RANK_TABLE LOD_TENSOR_ARRAY PLACE_LIST READER RAW"
    assert [int(getattr(types, name)) for name in names.split()] == [7, 8, 9, 10, 11, 12, 13, 14, 15, 17]
    assert (int(types.STRING), int(types.STRINGS), int(types.VOCAB)) == (25, 26, 27)
    block = static.default_main_program().global_block()
    array = block.create_var(name="a", type=types.LOD_TENSOR_ARRAY)
    assert array.type == types.LOD_TENSOR_ARRAY != types.LOD_TENSOR
    assert static.data("x", [2]).type == types.LOD_TENSOR
    for same in (copy.copy(types.READER), pickle.loads(pickle.dumps(types.READER))):
        assert (same, int(same)) == ("reader", 15)
    # A program with one is copied, printed and saved like any other.
    program = static.default_main_program()
    assert (
        static.Program.parse_from_string(program.desc.serialize_to_string()).global_block().var("a").type == array.type
    )
    assert program.clone().global_block().var("a").type == array.type


def test_flags_are_a_mapping() -> None:
    flags = fluid.core.globals()
    assert flags["FLAGS_check_nan_inf"] is False
    flags["FLAGS_check_nan_inf"] = True
    assert paddle.get_flags("FLAGS_check_nan_inf") == {"FLAGS_check_nan_inf": True}
    flags["FLAGS_check_nan_inf"] = False
    assert flags.get("FLAGS_nope", 3) == 3
    assert flags.is_public("FLAGS_check_nan_inf")
    assert not flags.is_public("FLAGS_nope")
    assert len(flags) == len(list(flags)) > 5
    with pytest.raises(KeyError):
        flags["FLAGS_nope"]
    with pytest.raises(errors.NotFoundError):
        flags["FLAGS_nope"] = 1
    with pytest.raises(TypeError):
        del flags["FLAGS_check_nan_inf"]


def test_core_says_what_it_is_built_with() -> None:
    core = fluid.core
    assert core.is_bfloat16_supported(CPU)
    assert not core.is_float16_supported(CPU)
    assert core.supports_bfloat16()
    assert core.cudnn_version() == -1
    assert not core.is_compiled_with_mkldnn()
    assert core.get_version() == paddle.inference.get_version()
    assert core.op_proto_and_checker_maker.kOpDeviceAttrName() == "op_device"
    assert not paddle.framework.in_pir_mode()
    assert not fluid.framework.in_pir_mode()


# --------------------------------------------------------------------------------------------------------------- programs
def test_training_info_is_removed_from_a_copy() -> None:
    x = static.data("x", [None, 3])
    y = static.nn.fc(x, 2)
    program = static.default_main_program()
    made = program._remove_training_info()
    assert made is not program
    assert {v.stop_gradient for v in made.list_vars()} == {False}
    assert x.stop_gradient
    assert made._remove_training_info(clip_extra=False).global_block().has_var(y.name)


def test_members_of_blocks_and_variables() -> None:
    x = static.data("x", [2, 3], lod_level=0)
    block = static.default_main_program().global_block()
    assert (block.idx, block.parent_idx, x.lod_level, x.ndimension(), x.dim(), x.ndim) == (0, -1, 0, 2, 2, 2)


def test_memory_is_optimized_without_doing_anything() -> None:
    static.data("x", [2])
    before = str(static.default_main_program())
    for module in (fluid, fluid.transpiler):
        module.memory_optimize(static.default_main_program())
        module.release_memory(static.default_main_program())
    assert str(static.default_main_program()) == before


def test_a_program_is_printed_as_text() -> None:
    from tstatic.fluid.transpiler.details import program_to_code

    static.data("x", [2])
    out = io.StringIO()
    program_to_code(static.default_main_program(), fout=out, skip_op_callstack=True)
    assert out.getvalue() == f"{static.default_main_program()}\n"


def test_places_are_listed() -> None:
    from tstatic.fluid.layers.device import get_places

    assert [p.is_cpu_place() for p in get_places(device_count=2, device_type="CPU")] == [True, True]


def test_collectives_of_one_process_are_identities() -> None:
    from tstatic.fluid.layers import collective

    x = static.data("x", [2, 3])
    out = static.default_main_program().current_block().create_var(name="out", dtype="float32")
    summed = collective._c_allreduce(collective._c_sync_calc_stream(x), out, reduce_type="max")
    gathered = collective._c_broadcast(collective._c_allgather(summed, 1))
    value = np.arange(6, dtype="float32").reshape(2, 3)
    fetched = static.Executor().run(feed={"x": value}, fetch_list=[out, collective._c_sync_comm_stream(gathered, 0)])
    assert all((one == value).all() for one in fetched)
    for wrong in (lambda: collective._c_allreduce(x, reduce_type="mean"), lambda: collective._c_allgather(x, 2)):
        with pytest.raises(errors.ProgramError):
            wrong()


# ------------------------------------------------------------------------------------------------------------ environment
def test_variables_of_the_environment_have_types(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("A_TEXT", "A_TRUTH", "A_NUMBER"):
        monkeypatch.delenv(name, raising=False)
    text = environments.StringEnvironmentVariable("A_TEXT", "none")
    truth = environments.BooleanEnvironmentVariable("A_TRUTH", False)
    number = environments.IntegerEnvironmentVariable("A_NUMBER", 7)
    assert (text.get(), truth.get(), number.get()) == ("none", False, 7)
    with environments.EnvironmentVariableGuard(truth, True), environments.EnvironmentVariableGuard(number, 3):
        assert (truth.get(), number.get(), os.environ["A_TRUTH"], repr(number)) == (True, 3, "true", "Env(A_NUMBER=3)")
    assert (truth.get(), number.get()) == (False, 7)
    os.environ["A_NUMBER"], os.environ["A_TRUTH"] = "many", "On"
    assert (number.get(), truth.get()) == (7, True)
    number.delete()
    text.set("x")
    assert text.get() == os.environ["A_TEXT"] == "x"
    for wrong in (
        lambda: number.set(True), lambda: truth.set(1), lambda: text.set(3),
        lambda: environments.IntegerEnvironmentVariable("N", "1"),
    ):  # fmt: skip
        with pytest.raises(errors.ProgramTypeError):
            wrong()


# ----------------------------------------------------------------------------------------------------------------- modules
MODULES = words("""
static.nn.control_flow static.nn.common static.nn.sequence_lod static.nn.loss static.nn.metric static.input static.io
tensor.creation tensor.math tensor.manipulation tensor.stat tensor.array tensor.attribute tensor.linalg tensor.logic
tensor.random tensor.search framework.io_utils framework.io framework.framework framework.random common_ops_import
utils.environments utils.unique_name incubate amp autograd jit
""")
FLUID = words("""
transpiler transpiler.details.program_utils contrib average metrics evaluator reader data_feeder lod_tensor layers.device
layers.collective layers.loss layers.detection layers.metric_op layers.io layers.ops layers.tensor layers.control_flow
layers.sequence_lod layers.nn layers.learning_rate_scheduler incubate layer_helper parallel_executor install_check executor
backward framework core compiler
""")


def test_paths_of_modules_can_be_imported() -> None:
    for name in MODULES:
        assert importlib.import_module(f"tstatic.{name}") is resolve(name)
    for name in FLUID:
        assert importlib.import_module(f"tstatic.base.{name}") is importlib.import_module(f"tstatic.fluid.{name}")


NAMES = {
    "static.nn.common": "fc conv2d batch_norm embedding py_func ExponentialMovingAverage prelu",
    "static.nn.control_flow": "cond case switch_case while_loop While Switch Assert Print",
    "static.nn.sequence_lod": "sequence_pool sequence_expand sequence_mask sequence_conv",
    "static.nn.metric": "accuracy auc",
    "static.input": "data InputSpec",
    "common_ops_import": (
        "LayerHelper ParamAttr Variable VarDesc check_dtype check_type check_variable_and_dtype convert_dtype core "
        "convert_np_dtype_to_dtype_ default_main_program device_guard in_dygraph_mode"
    ),
    "framework.io_utils": "Parameter Variable core is_belong_to_optimizer is_parameter is_persistable",
    "framework": (
        "Block LayerHelper ParamAttr Parameter Program Variable convert_np_dtype_to_dtype_ dtype get_default_dtype get_flags "
        "in_pir_mode is_belong_to_optimizer is_parameter is_persistable load save seed set_default_dtype set_flags "
        "switch_main_program switch_startup_program io_utils no_grad in_dynamic_mode"
    ),
    "fluid.data_feeder": "DataFeeder convert_dtype check_variable_and_dtype check_type check_dtype",
    "fluid.backward": "append_backward gradients calc_gradient _append_grad_suffix_ _strip_grad_suffix_ _as_list check_type",
    "fluid.executor": "Executor global_scope scope_guard _fetch_var _as_lodtensor convert_dtype",
    "fluid.layers.loss": "cross_entropy warpctc softmax_with_cross_entropy",
    "fluid.layers.metric_op": "accuracy auc",
    "fluid.install_check": "run_check",
    "fluid.parallel_executor": "ParallelExecutor BuildStrategy ExecutionStrategy",
}


@pytest.mark.parametrize("path", NAMES)
def test_a_module_has_its_names(path: str) -> None:
    module = resolve(path)
    assert [name for name in NAMES[path].split() if not hasattr(module, name)] == []


def test_modules_of_static_nn_have_their_own_names_only() -> None:
    found: dict[str, str] = {}
    for leaf in ("common", "control_flow", "loss", "metric", "sequence_lod"):
        module = resolve(f"static.nn.{leaf}")
        for name in module.__all__:
            assert getattr(module, name).__name__
            assert name not in found, f"in {found[name]} and {leaf}"
            found[name] = leaf
            owner = static.nn if hasattr(static.nn, name) else static if hasattr(static, name) else fluid.layers
            assert getattr(module, name) is getattr(owner, name)
    assert not hasattr(static.nn.common, "cond")
    assert not hasattr(static.nn.control_flow, "fc")
    with pytest.raises(AttributeError, match=r"it is static\.nn\.fc"):
        static.nn.control_flow.fc  # noqa: B018
    with pytest.raises(ImportError, match=r"static\.nn\.cond"):
        exec("from tstatic.static.nn.common import cond")


def test_the_optimizer_that_needs_eager_losses_is_declined() -> None:
    from tstatic.optimizer import LBFGS

    with pytest.raises(errors.UnsupportedError, match=r"exe\.run"):
        LBFGS(parameters=[])


def test_transpilers_of_parameter_servers_are_declined() -> None:
    from tstatic.fluid.core import PSGPU, DistFleetWrapper, GraphGpuWrapper, run_cmd
    from tstatic.fluid.transpiler import DistributeTranspiler, DistributeTranspilerConfig

    for stub in (
        DistributeTranspiler, DistributeTranspilerConfig, fluid.DistributeTranspiler, PSGPU, DistFleetWrapper, GraphGpuWrapper,
        run_cmd, fluid.incubate.fleet.utils.hdfs.HDFSClient,
    ):  # fmt: skip
        with pytest.raises(errors.UnsupportedError, match=r"fleet\.init"):
            stub()
