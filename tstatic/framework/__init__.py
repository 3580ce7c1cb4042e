"""``paddle.framework``: default dtypes, seeds and parameter settings under the module path that scripts import.

* ``random``  seeds of programs

``paddle.framework.core`` is ``fluid.core``.
"""

import sys

from tstatic.fluid import core
from tstatic.ir.export import facade, facade_module

# ``import paddle.framework.core`` gives the one module that there is.
sys.modules[f"{__name__}.core"] = core

__getattr__, __dir__ = facade(
    __name__,
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
        "tstatic.static.object_files": "load, save",
    },
)
facade_module("framework.framework", "default dtypes.", "tensor", only="get_default_dtype set_default_dtype")
facade_module(
    "framework.io", "saving and loading of nests of data.", others={"tstatic.static.object_files": "load, save"}
)
facade_module(
    "framework.io_utils",
    "kinds of variables.",
    others={"tstatic.fluid": "core", "tstatic.ir.program": "Parameter, Variable"},
)
