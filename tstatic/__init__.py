"""tstatic: a static-graph deep-learning runtime with the API of PaddlePaddle's static mode.

``import tstatic as paddle`` runs a Paddle static script. Importing this package imports neither torch, triton nor scipy.

The API:

* ``static``     Program, Executor, CompiledProgram, strategies, save and load
* ``nn``         layers, functional, initializers
* ``optimizer``  update rules and learning rates
* ``inference``  predictors over saved models; ``onnx`` writes models for other runtimes
* ``io``         data sets, samplers, and loaders that batch them; ``reader`` has those of Paddle 1.x
* ``compat``   texts and bytes, for scripts of both Pythons
* ``tensor``, ``metric``, ``regularizer``, ``device``, ``distributed``, ``utils``, ``framework``, ``base``  Paddle's module paths
* ``fluid``      the 1.x names
* ``incubate``   averages of parameters, LookAhead, LARS
* ``callbacks``  training loops with callbacks: progress, CSV, TensorBoard
* ``extras``     images, data sets, distributions, Fourier transforms: ``vision``, ``dataset``, ``fft`` and the like
* ``tools``      the command line, benchmarks, the profiler, ``testing``, ``from_torch``
* ``as_paddle``  runs a script in which ``paddle`` is this package
* ``__main__``   the command line

What it is made of, from the bottom:

* ``aliases``    old names of modules that moved
* ``errors``, ``flags``, ``logs``, ``places``, ``target``, ``version``  facts that any layer may need
* ``guards``, ``locks``, ``shield``, ``forks``, ``undo``, ``shortage``, ``regular``, ``where``, ``tracebacks``  what all share,
* ``display``, ``progress``, ``no_effect``, ``unsupported``  and more of it
* ``ir``         programs and op definitions
* ``tuned``, ``ops``, ``devices``  numpy functions for speed, the ops, and what runs them
* ``records``    what was measured while programs ran
* ``autodiff``, ``passes``, ``fusion``, ``comm``  from program to program
* ``viz``        drawings of programs
* ``chips``, ``plan``, ``runtime``  kernels compiled for chips, how to compute a program, and running it
"""

from importlib import import_module as _import_module

from tstatic import aliases as _aliases
from tstatic import tracebacks as _tracebacks
from tstatic import where as _where  # noqa: F401 - the name itself is removed below
from tstatic.ir.export import facade, facade_module
from tstatic.ir.hooks import hooks as _hooks
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
        "tstatic.device": "XPUPlace",
        "tstatic.flags": "get_flags, set_flags",
        "tstatic.fusion.register": "register_kernel",
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
        "tstatic.static.object_files": "load, save",
        "tstatic.static.summary": "flops, summary",
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
_hooks.svg = _draw
_hooks.gradients = lambda *args: _import_module("tstatic.autodiff").gradients(*args)  # half of all processes never do
add_methods()
_tracebacks.install()
# The module gives way to the function ``tstatic.where``. After an import that was broken off, a second one finds it loaded and does
# not set the attribute again.
globals().pop("where", None)
