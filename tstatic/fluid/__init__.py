"""The 1.x names, as a package of alias modules: each is filled from the spellings that stand beside the op definitions.

* ``layers``, ``nets``, ``dygraph``  functions and layer classes
* ``initializer``, ``regularizer``, ``clip``, ``param_attr``, ``layer_helper``, ``unique_name``  what they are built
  with
* ``backward``, ``optimizer``  gradients and updates
* ``framework``, ``core``, ``executor``, ``compiler``, ``generator``, ``profiler``  programs and running them
* ``input``, ``io``  inputs, saving and loading

Few names are more than aliases: ``layers.data`` prepends the batch axis, and full reductions give shape ``[1]``.
"""

from tstatic.flags import get_flags, set_flags
from tstatic.fluid import (
    backward,
    clip,
    compiler,
    core,
    dygraph,
    executor,
    framework,
    generator,
    initializer,
    input,
    io,
    layer_helper,
    layers,
    nets,
    optimizer,
    param_attr,
    profiler,
    regularizer,
    unique_name,
)
from tstatic.ir.declare import default_main_program, default_startup_program, program_guard
from tstatic.ir.opdef import namespace as _namespace
from tstatic.ir.program import Program, Variable
from tstatic.nn.param import ParamAttr
from tstatic.places import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    cpu_places,
    cuda_places,
    is_compiled_with_cuda,
    is_compiled_with_xpu,
)
from tstatic.runtime.scope import LoDTensor, Scope, global_scope, scope_guard
from tstatic.static import BuildStrategy, CompiledProgram, ExecutionStrategy, Executor, ParallelExecutor
from tstatic.static.mode import disable_static as enable_dygraph
from tstatic.static.mode import enable_static as disable_dygraph
from tstatic.static.mode import in_dynamic_mode as in_dygraph_mode
from tstatic.unsupported import missing_in as _missing_in
from tstatic.utils import require_version

Tensor = LoDTensor

globals().update(_namespace("fluid"))

__all__ = [
    "BuildStrategy",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "CompiledProgram",
    "ExecutionStrategy",
    "Executor",
    "LoDTensor",
    "ParallelExecutor",
    "ParamAttr",
    "Program",
    "Scope",
    "Tensor",
    "Variable",
    "backward",
    "clip",
    "compiler",
    "core",
    "cpu_places",
    "cuda_places",
    "default_main_program",
    "default_startup_program",
    "disable_dygraph",
    "dygraph",
    "enable_dygraph",
    "executor",
    "framework",
    "generator",
    "get_flags",
    "global_scope",
    "in_dygraph_mode",
    "initializer",
    "input",
    "io",
    "is_compiled_with_cuda",
    "is_compiled_with_xpu",
    "layer_helper",
    "layers",
    "nets",
    "optimizer",
    "param_attr",
    "profiler",
    "program_guard",
    "regularizer",
    "require_version",
    "scope_guard",
    "set_flags",
    "unique_name",
    *sorted(_namespace("fluid")),
]
__getattr__ = _missing_in(__name__, __all__)
