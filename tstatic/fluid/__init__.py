"""The 1.x names, as a package of alias modules: each is filled from the names that are exported beside the op definitions.

* ``layers``, ``nets``, ``dygraph``  functions and layer classes
* ``initializer``, ``regularizer``, ``clip``, ``param_attr``, ``layer_helper``, ``unique_name``  what they are built
  with
* ``backward``, ``optimizer``  gradients and updates
* ``framework``, ``core``, ``executor``, ``compiler``, ``generator``, ``profiler``  programs and running them
* ``input``, ``io``  inputs, saving and loading

Few names are more than aliases: ``layers.data`` prepends the batch axis, and full reductions give shape ``[1]``.
"""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(
    __name__,
    modules=(
        "backward clip compiler core dygraph executor framework generator initializer input io layer_helper layers nets "
        "optimizer param_attr profiler regularizer unique_name"
    ),
    others={
        "tstatic.flags": "get_flags, set_flags",
        "tstatic.ir.declare": "default_main_program, default_startup_program, program_guard",
        "tstatic.ir.program": "Program, Variable",
        "tstatic.places": (
            "CPUPlace, CUDAPinnedPlace, CUDAPlace, cpu_places, cuda_places, is_compiled_with_cuda, is_compiled_with_xpu"
        ),
        "tstatic.runtime.scope": "LoDTensor, LoDTensor Tensor, Scope, global_scope, scope_guard",
        "tstatic.static": "BuildStrategy, CompiledProgram, ExecutionStrategy, Executor, ParallelExecutor",
        "tstatic.static.mode": (
            "disable_static enable_dygraph, enable_static disable_dygraph, in_dynamic_mode in_dygraph_mode"
        ),
        "tstatic.utils": "require_version",
    },
)
