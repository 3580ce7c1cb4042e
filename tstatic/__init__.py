"""tstatic: a static-graph deep-learning runtime with the API of PaddlePaddle's static mode.

``import tstatic as paddle`` runs a Paddle static script. Importing this package imports neither torch, triton nor scipy.

The API:

* ``static``     Program, Executor, CompiledProgram, strategies, save and load
* ``nn``         layers, functional, initializers
* ``optimizer``  update rules and learning rates
* ``io``         samplers for the parts of a data set
* ``testing``    checks for programs of one's own
* ``tensor``, ``metric``, ``regularizer``, ``device``, ``distributed``, ``utils``, ``framework``, ``base``  Paddle's module paths
* ``fluid``      the 1.x names
* ``as_paddle``  runs a script in which ``paddle`` is this package

What it is made of, from the bottom:

* ``errors``, ``flags``, ``logs``, ``places``, ``target``, ``version``  facts that any layer may need
* ``guards``, ``locks``, ``where``, ``no_effect``, ``unsupported``  what all public functions share
* ``ir``         programs and op definitions
* ``tuned``, ``ops``, ``devices``  numpy functions for speed, the ops, and what runs them
* ``autodiff``, ``passes``, ``fusion``, ``comm``  from program to program
* ``viz``        drawings of programs
* ``chips``, ``plan``, ``runtime``  kernels compiled for chips, how to compute a program, and running it
"""

from tstatic import (
    autodiff,
    base,
    device,
    distributed,
    errors,
    fluid,
    framework,
    io,
    metric,
    nn,
    optimizer,
    regularizer,
    static,
    tensor,
    utils,
    version,
)
from tstatic.flags import get_flags, set_flags
from tstatic.fusion.register import register_kernel
from tstatic.ir.opdef import namespace as _namespace
from tstatic.ir.program import Variable as Tensor
from tstatic.ir.types import DType as dtype
from tstatic.ir.types import (
    bfloat16,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
)
from tstatic.ir.types import bool_ as bool
from tstatic.nn.param import ParamAttr
from tstatic.places import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    get_device,
    is_compiled_with_cuda,
    is_compiled_with_custom_device,
    set_device,
)
from tstatic.places import (
    is_compiled_with_rocm as is_compiled_with_rocm,
)
from tstatic.places import (
    is_compiled_with_xpu as is_compiled_with_xpu,
)
from tstatic.static.mode import disable_static, enable_static, in_dynamic_mode, no_grad
from tstatic.unsupported import missing_in as _missing_in
from tstatic.version import __version__, show_versions

globals().update(_namespace("tensor"))

__all__ = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "ParamAttr",
    "Tensor",
    "__version__",
    "autodiff",
    "base",
    "bfloat16",
    "bool",
    "device",
    "disable_static",
    "distributed",
    "dtype",
    "enable_static",
    "errors",
    "float16",
    "float32",
    "float64",
    "fluid",
    "framework",
    "get_device",
    "get_flags",
    "in_dynamic_mode",
    "int8",
    "int16",
    "int32",
    "int64",
    "io",
    "is_compiled_with_cuda",
    "is_compiled_with_custom_device",
    "is_compiled_with_rocm",
    "is_compiled_with_xpu",
    "metric",
    "nn",
    "no_grad",
    "optimizer",
    "register_kernel",
    "regularizer",
    "set_device",
    "set_flags",
    "show_versions",
    "static",
    "tensor",
    "uint8",
    "utils",
    "version",
    *sorted(_namespace("tensor")),
]
__getattr__ = _missing_in(__name__, __all__)
