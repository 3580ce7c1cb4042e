"""Names and module paths that Paddle scripts use: those that this release has are there, under both package names."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tstatic import as_paddle, errors, static, unsupported
from tstatic.ir.export import PUBLIC_API
from tstatic.ir.program import Program, Variable


def words(text: str) -> list[str]:
    """The words of a text."""
    return text.split()


# Below ``paddle``: what scripts and tests use most.
CLAIMED = words("""
static.Executor fluid.Executor fluid.executor.Executor
static.default_main_program fluid.default_main_program fluid.framework.default_main_program
static.default_startup_program fluid.default_startup_program fluid.framework.default_startup_program
static.save fluid.save static.load fluid.load static.load_program_state static.set_program_state static.data fluid.data
static.save_inference_model static.load_inference_model fluid.io.save_inference_model fluid.io.load_inference_model
fluid.io.save_persistables fluid.io.load_persistables fluid.io.save_params fluid.io.load_params static.io.is_persistable
save load static.InputSpec inference.Config inference.create_predictor inference.PredictorPool
static.program_guard fluid.framework.program_guard fluid.program_guard
static.global_scope fluid.global_scope static.scope_guard fluid.scope_guard static.Scope fluid.Scope fluid.core.Scope
static.ExecutionStrategy fluid.ExecutionStrategy fluid.core.ExecutionStrategy
static.BuildStrategy fluid.BuildStrategy fluid.compiler.BuildStrategy fluid.core.BuildStrategy
static.BuildStrategy.ReduceStrategy.AllReduce static.BuildStrategy.GradientScaleStrategy.Customized
static.Program fluid.Program fluid.framework.Program
static.CompiledProgram fluid.CompiledProgram fluid.compiler.CompiledProgram
static.auc fluid.layers.auc static.accuracy fluid.layers.accuracy metric.accuracy
static.create_parameter create_parameter fluid.layers.create_parameter
static.create_global_var fluid.layers.create_global_var fluid.layers.tensor.create_global_var
static.cpu_places fluid.cpu_places fluid.framework.cpu_places
static.cuda_places fluid.cuda_places fluid.framework.cuda_places
static.name_scope fluid.framework.name_scope fluid.name_scope static.device_guard fluid.device_guard
static.append_backward fluid.backward.append_backward static.gradients fluid.gradients
static.Variable fluid.framework.Variable static.exponential_decay fluid.layers.exponential_decay
static.Print fluid.layers.Print static.py_func fluid.layers.py_func static.amp.fp16_guard static.amp.decorate
static.amp.AutoMixedPrecisionLists static.amp.CustomOpLists static.amp.cast_model_to_fp16 static.amp.cast_parameters_to_fp16
static.amp.fp16_lists.white_list static.amp.fp16_lists.black_list static.amp.fp16_lists.gray_list static.amp.decorator.decorate
static.amp.fp16_utils.rewrite_program static.amp.bf16.decorate_bf16 static.amp.bf16.bf16_guard
static.amp.bf16.AutoMixedPrecisionListsBF16 static.amp.bf16.rewrite_program_bf16 static.amp.bf16.cast_model_to_bf16
static.amp.bf16.amp_lists.AutoMixedPrecisionListsBF16 static.amp.bf16.amp_utils.cast_parameters_to_bf16
fluid.contrib.mixed_precision.decorate fluid.contrib.mixed_precision.CustomOpLists
fluid.contrib.mixed_precision.AutoMixedPrecisionLists fluid.contrib.mixed_precision.decorator.decorate
fluid.contrib.mixed_precision.fp16_lists.AutoMixedPrecisionLists fluid.contrib.mixed_precision.fp16_utils.cast_model_to_fp16
fluid.contrib.mixed_precision.bf16.decorate_bf16
static.nn.fc static.nn.embedding fluid.embedding fluid.input.embedding static.nn.batch_norm fluid.layers.batch_norm
static.nn.conv2d fluid.layers.conv2d static.nn.cond static.nn.while_loop static.nn.case static.nn.switch_case
static.nn.layer_norm fluid.layers.layer_norm static.nn.conv2d_transpose fluid.layers.conv2d_transpose
reshape tensor.reshape mean concat tensor.concat sum cast matmul tensor.matmul multiply add transpose tensor.transpose to_tensor
nn.functional.softmax nn.functional.cross_entropy nn.functional.log_loss nn.functional.sigmoid nn.functional.label_smooth
nn.functional.one_hot nn.functional.relu nn.functional.dropout
nn.Layer fluid.Layer fluid.dygraph.Layer nn.Linear nn.Embedding nn.Conv2D nn.Dropout nn.ReLU nn.LayerNorm nn.Sequential
nn.BatchNorm2D nn.MaxPool2D nn.Transformer nn.LayerList nn.CrossEntropyLoss
nn.initializer.Normal nn.initializer.TruncatedNormal nn.initializer.Constant nn.initializer.Uniform nn.initializer.XavierUniform
fluid.initializer.Constant fluid.initializer.ConstantInitializer fluid.initializer.Uniform fluid.initializer.UniformInitializer
fluid.initializer.Normal fluid.initializer.Xavier fluid.initializer.MSRA fluid.initializer.NumpyArrayInitializer
optimizer.Adam optimizer.AdamW optimizer.Momentum optimizer.SGD optimizer.Adagrad optimizer.Lamb optimizer.RMSProp
optimizer.Adadelta optimizer.Adamax optimizer.lr.LRScheduler optimizer.lr.PiecewiseDecay optimizer.lr.NoamDecay
optimizer.lr.CosineAnnealingDecay optimizer.lr.LinearWarmup optimizer.lr.ReduceOnPlateau
fluid.optimizer.Adam fluid.optimizer.AdamOptimizer fluid.optimizer.SGD fluid.optimizer.SGDOptimizer fluid.optimizer.Adagrad
fluid.optimizer.AdagradOptimizer fluid.optimizer.Momentum fluid.optimizer.MomentumOptimizer
ParamAttr fluid.ParamAttr fluid.param_attr.ParamAttr framework.ParamAttr regularizer.L2Decay fluid.regularizer.L2Decay
fluid.regularizer.L2DecayRegularizer nn.ClipGradByGlobalNorm nn.ClipGradByNorm nn.ClipGradByValue
fluid.clip.set_gradient_clip fluid.clip.GradientClipByGlobalNorm
CPUPlace fluid.CPUPlace fluid.core.CPUPlace CUDAPlace fluid.CUDAPlace fluid.core.CUDAPlace enable_static disable_static
device.set_device set_device device.get_device get_device device.is_compiled_with_cuda is_compiled_with_cuda
fluid.is_compiled_with_cuda fluid.core.is_compiled_with_cuda fluid.core.get_cuda_device_count seed set_flags fluid.set_flags
get_flags utils.require_version fluid.require_version utils.unique_name.guard fluid.unique_name.guard
utils.unique_name.generate framework.random._manual_program_seed framework.seed get_default_dtype framework.get_default_dtype
version.full_version version.commit version.show_versions distributed.get_rank distributed.get_world_size
batch io.Dataset io.DataLoader io.BatchSampler io.get_worker_info io.random_split
reader.shuffle reader.decorator.buffered fluid.io.xmap_readers fluid.layers.batch fluid.DataFeeder base.DataFeeder
fluid.core.EOFException fluid.core.VarDesc.VarType.FP32 fluid.LoDTensor fluid.Tensor fluid.core.LoDTensor
fluid.layer_helper.LayerHelper fluid.nets.simple_img_conv_pool
fluid.layers.fc fluid.layers.data fluid.layers.io.data fluid.layers.mean fluid.layers.cross_entropy fluid.layers.embedding
fluid.layers.softmax fluid.layers.softmax_with_cross_entropy fluid.layers.fill_constant fluid.layers.tensor.fill_constant
fluid.layers.relu fluid.layers.ops.relu fluid.layers.pool2d fluid.layers.dropout fluid.layers.concat fluid.layers.reshape
fluid.layers.reduce_mean fluid.layers.reduce_sum fluid.layers.elementwise_add fluid.layers.elementwise_mul fluid.layers.matmul
fluid.layers.assign fluid.layers.cast fluid.layers.transpose fluid.layers.square fluid.layers.square_error_cost fluid.layers.tanh
fluid.layers.sigmoid fluid.layers.scale fluid.layers.slice fluid.layers.squeeze fluid.layers.stack fluid.layers.split
fluid.layers.gather fluid.layers.one_hot fluid.layers.sums fluid.layers.shape fluid.layers.increment fluid.layers.Switch
fluid.layers.While fluid.layers.nn.batch_norm fluid.layers.control_flow.Switch fluid.layers.label_smooth
fluid.layers.learning_rate_scheduler._decay_step_counter fluid.layers.noam_decay fluid.layers.polynomial_decay
fluid.layers.cosine_decay fluid.layers.piecewise_decay fluid.layers.linear_lr_warmup
""")

# Attributes that scripts use on objects.
MEMBERS = {
    "static.Executor": "run close",
    "static.Program": (
        "clone global_block block all_parameters list_vars random_seed current_block num_blocks _lr_schedule_guard "
        "_optimized_guard parse_from_string desc to_string state_dict set_state_dict _prune_with_input"
    ),
    "static.Variable": (
        "name astype shape clone sqrt stop_gradient isnan exp log stack unsqueeze block numpy type backward place dtype "
        "persistable sum mean tile ceil cos sin mod norm reshape grad_name __add__ __getitem__ __lt__ __matmul__"
    ),
    "static.Scope": "var find_var",
    "static.CompiledProgram": "memory_report explain plan program build_strategy with_data_parallel",
    "static.ExecutionStrategy": "num_threads num_iteration_per_drop_scope use_experimental_executor",
    "fluid.LoDTensor": "set _get_dims _dtype lod",
    "optimizer.Adam": "minimize backward apply_gradients get_lr set_lr step",
    "optimizer.lr.LRScheduler": "step get_lr state_dict set_state_dict",
    "nn.Layer": "forward add_sublayer parameters state_dict create_parameter train eval full_name",
    "fluid.layers.Switch": "case default",
    "fluid.layers.While": "block",
}

MODULES = words("""
fluid nn nn.functional nn.initializer static static.nn static.amp static.io base base.core base.framework base.layers
distributed optimizer optimizer.lr tensor metric regularizer device utils framework framework.random framework.core version
io reader reader.decorator fluid.data_feeder amp linalg device.cuda jit autograd tensor.creation tensor.math tensor.manipulation
tensor.stat static.nn.common static.nn.control_flow static.nn.sequence_lod
fluid.layers fluid.layers.nn fluid.layers.ops fluid.layers.tensor fluid.layers.control_flow fluid.layers.io
fluid.layers.learning_rate_scheduler fluid.framework fluid.nets fluid.unique_name fluid.core fluid.compiler fluid.optimizer
fluid.io fluid.regularizer fluid.executor fluid.initializer fluid.clip fluid.backward fluid.param_attr fluid.layer_helper
fluid.generator fluid.input fluid.contrib fluid.contrib.mixed_precision fluid.contrib.mixed_precision.fp16_lists
fluid.contrib.mixed_precision.fp16_utils fluid.contrib.mixed_precision.decorator fluid.contrib.mixed_precision.bf16
static.amp.fp16_lists static.amp.fp16_utils static.amp.decorator static.amp.bf16 static.amp.bf16.amp_lists
static.amp.bf16.amp_utils static.amp.bf16.decorator
""")


def resolve(path: str, root: str = "tstatic") -> Any:
    """Follows ``path`` from the package; an instance attribute counts as found.

    Raises:
        AttributeError, ModuleNotFoundError: If it leads nowhere.
    """
    found: Any = importlib.import_module(root)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def exists(path: str) -> bool:
    """Whether a path leads somewhere."""
    try:
        resolve(path)
    except AttributeError:
        return False
    return True


def test_claimed_names_exist() -> None:
    assert [path for path in CLAIMED if not exists(path)] == []
    assert len(CLAIMED) == len(set(CLAIMED)) > 200
    assert not exists("static.nothing")


@pytest.mark.parametrize("path", MEMBERS)
def test_claimed_member_exists(path: str) -> None:
    cls = resolve(path)
    instance = {"static.Variable": lambda: cls(importlib.import_module("tstatic").static.Program().global_block(), "x")}
    target = instance[path]() if path in instance else cls
    assert [name for name in MEMBERS[path].split() if not hasattr(target, name)] == []


def test_every_spelling_can_be_reached() -> None:
    methods = {"Variable": Variable, "Program": Program}
    for path, entry in PUBLIC_API.items():
        place, _, name = path.rpartition(".")
        if place in methods:
            assert getattr(methods[place], name) is entry.function, path
        else:
            assert resolve(path) is entry.function, path
            assert place != "tensor" or resolve(name) is entry.function, path


@pytest.mark.parametrize("name", MODULES)
def test_module_imports(name: str) -> None:
    assert importlib.import_module(f"tstatic.{name}")


def test_a_module_without_a_file_is_imported_first_and_looks_like_any_other() -> None:
    code = """
import importlib.util, inspect, pickle, pkgutil, pydoc
import tstatic.fluid.layers.ops as ops
from tstatic.fluid.initializer import ConstantInitializer
from tstatic import fluid
assert ops is fluid.layers.ops and fluid.initializer.ConstantInitializer is ConstantInitializer
assert ops.__name__ == "tstatic.fluid.layers.ops" and ops.__package__ == fluid.layers.__name__
assert importlib.util.find_spec("tstatic.fluid.layers.ops") is ops.__spec__
assert inspect.getdoc(ops) == "``fluid.layers.ops``: the elementwise functions." and "relu" in dict(inspect.getmembers(ops))
assert "weight decay" in pydoc.render_doc(fluid.regularizer)
assert pickle.loads(pickle.dumps(ops.relu)) is ops.relu and inspect.getmodule(ops.relu).__file__
assert "layers" not in {m.name for m in pkgutil.walk_packages(fluid.__path__)}  # no file
for name in ("tstatic.fluid.layers.nothing", "tstatic.fluid.nets.nothing", "tstatic.fluid.nothing"):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert error.name == name
    else:
        raise AssertionError(name)
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=Path(__file__).parents[2], check=True)


def test_all_modules_import_as_paddle(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    lines = ["import paddle", *(f"import paddle.{name}" for name in MODULES)]
    lines += [f"assert paddle.{name} is sys.modules['paddle.{name}']" for name in MODULES]
    lines += [
        "import paddle.fluid as fluid",
        "from paddle.fluid.layers.ops import relu",
        "from paddle.base import core",
    ]
    lines += [
        "from paddle.fluid.unique_name import guard",
        "assert core is fluid.core",
        "assert fluid.layers.relu is relu",
    ]
    script.write_text("\n".join(["import sys", *lines, "print('done')"]), encoding="utf-8")
    command = [sys.executable, "-W", "error", "-m", "tstatic.as_paddle", str(script)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.stdout == "done\n", done.stderr


def test_install_in_this_process() -> None:
    before, known = list(sys.meta_path), set(sys.modules)
    as_paddle.install()
    try:
        assert importlib.import_module("paddle.fluid.core") is importlib.import_module("tstatic.fluid.core")
        fleet = importlib.import_module("paddle.distributed.fleet")
        assert fleet is importlib.import_module("tstatic.distributed.fleet")
        with pytest.raises(ModuleNotFoundError, match=r"paddle\.testing\.nothing.*loaded on demand"):
            importlib.import_module("paddle.testing.nothing")
        with pytest.raises(ModuleNotFoundError, match=r"paddle\.audio.*static\.nn and nn for layers"):
            importlib.import_module("paddle.audio")
    finally:
        sys.meta_path[:] = before
        # What install marks all programs with would reach the tests that follow.
        static.Program.fetches_convert = False
        for name in set(sys.modules) - known:
            if name == "paddle" or name.startswith("paddle."):
                del sys.modules[name]


def test_the_small_modules_do_what_they_say() -> None:
    paddle = importlib.import_module("tstatic")
    paddle.framework.random._manual_program_seed(7)
    assert paddle.static.default_main_program().random_seed == 7
    assert paddle.static.default_startup_program().random_seed == 7
    assert paddle.static.Program().random_seed == 7
    with paddle.static.amp.fp16_guard():
        y = paddle.full([1], 1.0)
    (op,) = [op for op in y.block.ops if y.name in op.output_arg_names]
    assert "__use_fp16__" in op.attr("op_namescope")
    assert paddle.base.core is paddle.fluid.core is paddle.framework.core


# ----------------------------------------------------------------------------------------------------- what is not there
NAMES = [name for entry in unsupported.UNSUPPORTED for name in entry.names]


def test_no_name_is_listed_twice() -> None:
    assert len(NAMES) == len(set(NAMES))
    assert not [name for name in CLAIMED if unsupported.advice(name)]


def test_unsupported_names_are_missing_or_refuse() -> None:
    # tstatic.testing is there once anything has imported it.
    missing = [name for name in NAMES if not unsupported.declined(name)]
    docs = {name: resolve(name).__doc__ or "" for name in missing if name != "testing" and exists(name)}
    there = [name for name, doc in docs.items() if "Not part" not in doc and "UnsupportedError" not in doc]
    assert there == [], "these exist: take them out of tstatic/unsupported.py"
    for name in NAMES:
        advice = unsupported.advice(name)
        assert ": use " in advice
        assert advice.endswith(".")


def test_a_missing_name_says_what_to_use() -> None:
    for path, part in (
        ("fluid.layers.softmx", "did you mean 'softmax'"),
        ("static.nn.fcc", "did you mean 'fc'"),
        ("static.amp.debugging", "static.amp.decorate"),
        ("relu", "it is nn.functional.relu"),
        ("fc", "it is static.nn.fc"),
        ("static.nn.cross_entropy", "it is nn.functional.cross_entropy"),
        ("fluid.layers.open_files", "static.data"),
    ):
        with pytest.raises(AttributeError, match="has no attribute") as caught:
            resolve(path)
        assert part in str(caught.value)
        assert caught.value.name == path.rpartition(".")[2]
    assert not hasattr(errors, "nothing")
    # Whether the module is there depends on what has imported it.
    assert "import tstatic.testing" in unsupported.advice("testing")


def test_a_from_import_of_a_missing_name_gives_the_advice_of_attribute_access() -> None:
    for module, name, part in (
        ("tstatic.fluid.layers", "open_files", "exe.run"),
        ("tstatic", "relu", "it is nn.functional.relu"),
        ("tstatic.fluid.layers", "ConditionalBlock", "static.nn.cond"),
        ("tstatic.nn.functional", "sofmax", "did you mean 'softmax'"),
    ):
        with pytest.raises(ImportError) as caught:
            exec(f"from {module} import {name}")
        text = str(caught.value)
        assert text.startswith(f"cannot import name '{name}' from '{module}'")
        assert part in text
        with pytest.raises(AttributeError) as asked:
            resolve(f"{module.partition('.')[2]}.{name}".lstrip("."))
        assert text.partition(". ")[2] == str(asked.value).partition(". ")[2]


def test_a_declined_name_can_be_imported_and_raises_when_it_is_used() -> None:
    script = """
import tstatic as paddle
import tstatic.jit, tstatic.sparse.nn.functional
from tstatic import Model, DataParallel
from tstatic.jit import to_static, save as jit_save
from tstatic.fluid.dygraph import guard, Layer
from tstatic.autograd import PyLayer
from tstatic.amp import GradScaler
from tstatic.fluid.contrib.slim.quantization import anything

class Net(paddle.Model, dict):
    pass

class Exp(PyLayer):
    @staticmethod
    def forward(ctx, x):
        return x

uses = [Model, to_static, lambda: to_static(input_spec=[])(len), lambda: DataParallel(Layer()), guard, Net, Exp,
        lambda: Exp.apply(1), paddle.sparse.nn.functional.relu, paddle.jit.save, jit_save, GradScaler, anything,
        paddle.fluid.core.ProgramDesc, paddle.distributed.Shard]
for use in uses:
    try:
        use()
    except paddle.errors.UnsupportedError as error:
        assert "can be imported, but not used" in str(error) and error.fix.startswith("use "), error
    else:
        raise AssertionError(use)
assert not isinstance(1, DataParallel) and not issubclass(int, paddle.Model) and Exp.forward(None, 2) == 2
assert not hasattr(paddle, "nothing") and not hasattr(paddle.nn, "Nothing") and not hasattr(Model, "__wrapped__")
assert repr(Model) == "<paddle.Model, which tstatic does not have>"
"""
    subprocess.run([sys.executable, "-W", "error", "-c", script], cwd=Path(__file__).parents[2], check=True)


def test_every_declined_name_leads_to_a_stub_that_says_what_to_use() -> None:
    for name in (name for name in NAMES if unsupported.declined(name)):
        found = unsupported.Declined(name)
        with pytest.raises(errors.UnsupportedError) as caught:
            found()
        assert f"paddle.{name} can be imported" in str(caught.value)
        assert str(caught.value.fix) in unsupported.advice(name)
