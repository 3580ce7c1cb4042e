"""tstatic: a static-graph deep-learning runtime with the API of PaddlePaddle's static mode.

``import tstatic as paddle`` runs a Paddle static script. Importing this package imports neither torch, triton nor scipy.

The API:

* ``static``  Program, Executor, CompiledProgram, strategies, save and load
* ``nn``, ``optimizer``, ``metric``, ``io``, ``distributed``, ``fluid``  Paddle's library: layers, update rules, loaders, 1.x names
* ``extras``  images, data sets, distributions, Fourier transforms: ``vision``, ``dataset``, ``fft`` and the like
* ``tools``  the command line, benchmarks, the profiler, ``testing``, ``from_torch``
* ``__main__``  the command line

Modules that only pass on names, as ``tensor``, ``linalg`` and ``inference`` do, are rows of the table below.

What it is made of, from the bottom:

* ``aliases``    further names of modules
* ``errors``, ``flags``, ``logs``, ``places``, ``target``, ``version``  facts that any layer may need
* ``guards``, ``locks``, ``shield``, ``forks``, ``undo``, ``shortage``, ``regular``, ``where``, ``tracebacks``  what all share,
* ``display``, ``progress``, ``no_effect``, ``unsupported``  and more of it
* ``ir``, ``formats``  programs and op definitions, and how files hold them
* ``tuned``, ``ops``, ``devices``  numpy functions for speed, the ops, and what runs them
* ``records``    what was measured while programs ran
* ``autodiff``, ``passes``, ``fusion``, ``comm``  from program to program
* ``viz``        drawings of programs
* ``chips``, ``plan``, ``runtime``  kernels compiled for chips, how to compute a program, and running it
"""

from tstatic import aliases as _aliases
from tstatic import tracebacks as _tracebacks
from tstatic import where as _where  # noqa: F401 - the name itself is removed below
from tstatic.ir.export import facade, facade_module
from tstatic.ir.hooks import hooks as _hooks
from tstatic.ir.hooks import later as _later
from tstatic.ir.methods import add_methods
from tstatic.viz import draw as _draw

_aliases.install()
__getattr__, __dir__ = facade(
    __name__,
    "tensor",
    modules=(
        "amp autodiff base callbacks compat dataset device distributed distribution errors fft fluid framework geometric incubate "
        "inference io linalg metric nn onnx optimizer profiler reader regularizer signal static tensor text utils version vision"
    ),
    others={
        "tstatic.fluid.device": "XPUPlace",
        "tstatic.flags": "get_flags, set_flags",
        "tstatic.fusion.user.register": "register_kernel",
        "tstatic.tools.interop.from_torch": "from_torch",
        "tstatic.io.readers": "batch",
        "tstatic.ir.program": "Variable Tensor",
        "tstatic.ir.types": (
            "DType dtype, bfloat16, bool_ bool, complex64, complex128, float16, float32, float64, int8, int16, int32, int64, uint8"
        ),
        "tstatic.places": (
            "CPUPlace, CUDAPinnedPlace, CUDAPlace, get_device, is_compiled_with_cinn, is_compiled_with_cuda, "
            "is_compiled_with_custom_device, is_compiled_with_distribute, is_compiled_with_ipu, is_compiled_with_mlu, "
            "is_compiled_with_npu, is_compiled_with_rocm, is_compiled_with_xpu, set_device"
        ),
        "tstatic.static.files.object_files": "load, save",
        "tstatic.nn.summary": "flops, summary",
        "tstatic.static.mode": (
            "disable_signal_handler, disable_static, enable_grad, enable_static, in_dynamic_mode, is_grad_enabled, no_grad, "
            "set_grad_enabled, set_printoptions"
        ),
        "tstatic.version": "__version__, commit __git_commit__, show_versions",
    },
)
facade_module("reader", "readers of samples, and what decorates them.", modules="decorator")
facade_module("linalg", "linear algebra on matrices and batches of them.")
facade_module("geometric", "rows pooled by segment, and messages along the edges of graphs.")
facade_module("fft", "discrete Fourier transforms.")
facade_module("signal", "short-time Fourier transforms.")
facade_module("amp", "which 16-bit floats there are; ``static.amp`` has mixed precision.")
facade_module("onnx", "static programs as models in ONNX.")
facade_module("reader.decorator", "readers of samples, and what decorates them.", "reader")
facade_module(
    "common_ops_import",
    "what Paddle's layers are written with.",
    "fluid.data_feeder",
    others={
        "tstatic.fluid": "core",
        "tstatic.fluid.core": "VarDesc",
        "tstatic.ir.declare": "default_main_program, device_guard",
        "tstatic.ir.program": "Variable",
        "tstatic.nn.param": "LayerHelper, ParamAttr",
        "tstatic.static.internals": "convert_np_dtype_to_dtype_",
        "tstatic.static.mode": "in_dynamic_mode in_dygraph_mode",
    },
    only="check_dtype check_type check_variable_and_dtype convert_dtype",
)
facade_module("text", "decoders of label sequences, and data sets of texts.", modules="datasets")
facade_module("text.datasets", "data sets of texts.", "text")
facade_module(
    "regularizer", "weight decay.", others={"tstatic.nn.regularizer": "L1Decay, L2Decay, WeightDecayRegularizer"}
)
facade_module("inference", "predictors over saved models.")
facade_module(
    "framework",
    "default dtypes, seeds and parameter settings under the module path that scripts import.",
    modules="framework io io_utils random",
    others={
        "tstatic.flags": "get_flags, set_flags",
        "tstatic.fluid": "core",
        "tstatic.ir.declare": "switch_main_program, switch_startup_program",
        "tstatic.ir.program": "Block, Parameter, Program, Variable",
        "tstatic.ir.types": "DType dtype",
        "tstatic.nn.param": "LayerHelper",
        "tstatic.places": "CPUPlace, CUDAPinnedPlace, CUDAPlace",
        "tstatic.static.mode": "disable_static, enable_static, in_dynamic_mode, no_grad",
        "tstatic.static.files.object_files": "load, save",
    },
)
facade_module("framework.framework", "default dtypes.", "tensor", only="get_default_dtype set_default_dtype")
facade_module(
    "framework.io", "saving and loading of nests of data.", others={"tstatic.static.files.object_files": "load, save"}
)
facade_module(
    "framework.io_utils",
    "kinds of variables.",
    others={"tstatic.fluid": "core", "tstatic.ir.program": "Parameter, Variable"},
)
facade_module("framework.random", "seeds of programs.", others={"tstatic.runtime.random": "seed, _manual_program_seed"})
facade_module(
    "incubate", "averages of parameters, LookAhead and LARS, beside Paddle's stable API.", modules="nn optimizer"
)
facade_module("incubate.optimizer", "the update rules and averages of ``incubate``.")
facade_module("incubate.nn", "blocks of networks.", modules="functional")
facade_module("incubate.nn.functional", "blocks of networks as functions.")
# The tensor functions are names of this package, too. Paddle has them in several modules, which scripts import from.
facade_module(
    "tensor",
    "the tensor functions.",
    modules="array attribute creation linalg logic manipulation math ops random search stat",
)
facade_module("tensor.array", "tensor functions; each module here has all.", "tensor", "linalg")
facade_module("tensor.attribute", "tensor functions; each module here has all.", "tensor", "linalg")
facade_module("tensor.creation", "tensor functions; each module here has all.", "tensor", "linalg")
facade_module("tensor.linalg", "tensor functions; each module here has all.", "tensor", "linalg")
facade_module("tensor.logic", "tensor functions; each module here has all.", "tensor", "linalg")
facade_module("tensor.manipulation", "tensor functions; each module here has all.", "tensor", "linalg")
facade_module("tensor.math", "tensor functions; each module here has all.", "tensor", "linalg")
facade_module("tensor.ops", "tensor functions; each module here has all.", "tensor", "linalg")
facade_module("tensor.random", "tensor functions; each module here has all.", "tensor", "linalg")
facade_module("tensor.search", "tensor functions; each module here has all.", "tensor", "linalg")
facade_module("tensor.stat", "tensor functions; each module here has all.", "tensor", "linalg")
_hooks.svg = _draw
_hooks.text = _later("tstatic.formats.text", "text_of", "writing a program as text")
_hooks.parse = _later("tstatic.formats.parse", "parse", "reading a program's text")
_hooks.encode = _later("tstatic.formats.serial", "encode", "saving a program")
_hooks.decode = _later("tstatic.formats.serial", "decode", "loading a program")
_hooks.gradients = _later("tstatic.autodiff", "gradients", "differentiating a program")
add_methods()
_tracebacks.install()
# The module gives way to the function ``tstatic.where``. After an import that was broken off, a second one finds it loaded and does
# not set the attribute again.
globals().pop("where", None)
