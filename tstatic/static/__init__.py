"""Paddle's static-graph classes and functions; the only layer that knows all stages from program to run.

* ``strategy``  BuildStrategy and ExecutionStrategy
* ``compile``  a program becomes a Compilation: passes, fusions and plan
* ``explain``  what fusions did to a program, and why not more
* ``run``  the Executor, CompiledProgram and ParallelExecutor
* ``files``  saves, loads, inference models, checkpoints, ONNX, and the predictors of ``paddle.inference``
* ``input_spec``  shape and dtype of an input
* ``nn``  layers that make parameters
* ``amp``  mixed precision
* ``mode``  static mode, which is the only one
* ``internals``  what scripts take from inside Paddle's modules
* ``other_devices``  names for devices that are not there
"""

from tstatic.ir.export import facade, facade_module

__getattr__, __dir__ = facade(
    __name__,
    modules="amp io nn",
    others={
        "tstatic.ir.declare": "default_main_program, default_startup_program, program_guard",
        "tstatic.ir.program": "Operator, Parameter, Program, Variable",
        "tstatic.nn.param": "WeightNormParamAttr",
        "tstatic.places": "cpu_places, cuda_places",
        "tstatic.runtime.scope": "Scope, global_scope, scope_guard",
        "tstatic.static.run.compiled_program": "CompiledProgram",
        "tstatic.static.run.executor": "Executor",
        "tstatic.static.run.parallel_executor": "ParallelExecutor",
        "tstatic.static.run.run_future": "RunFuture",
        "tstatic.static.strategy": "BuildStrategy, ExecutionStrategy",
    },
)
facade_module("static.input", "declared inputs.", "static", only="InputSpec data")
facade_module("static.io", "saved programs, values and inference models.")
