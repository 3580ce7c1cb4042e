"""Paddle's static-graph classes and functions; the only layer that knows all stages from program to run.

* ``pipeline``  the passes and fusions that a program and a strategy require, in order: read this first
* ``compile``, ``plan_cache``  compiles a program for given feeds and fetches into a Compilation, and keeps it
* ``any_size``  plans for feeds of any size, to which new sizes of a known program are bound
* ``executor``, ``ledger``  runs programs; what each compilation cost, and why it was needed
* ``prepared_run``, ``run_future``  a run whose plan is there, and the results of one that does not wait for its device
* ``from_dataset``  runs over all batches of a data set of files
* ``request``  the arguments of a run: feeds, fetches, state
* ``compiled_program``, ``history``, ``max_batch``  a program with strategies, and its runs; the largest batch that fits in a memory
* ``data_parallel``  the replicas of a program on several places
* ``parallel_executor``  a data-parallel program and its Executor in one, as in Paddle 1.x
* ``strategy``, ``strategy_property``  BuildStrategy and ExecutionStrategy, and the record of a property
* ``explain``, ``inquiry``, ``property_status``, ``savings``, ``strict_cost``  what fusions did to a program, and why not more: the
  records and their text, how they are found, what properties do, the bytes that each saves or would save, what strict numerics cost
* ``graph_parts``  what of a program a device launches as one, and what keeps it from being one
* ``explain_html``  the page that shows it, with a style and a script that lie beside: ``explain.css``, ``explain.js``,
  ``explain_layout.js``
* ``why``  why two operators are one kernel or not, and what would join them
* ``dot``  a compiled program as a graph
* ``saving``, ``loading``  save and load; how files of any form are read and checked before their values are written
* ``inference``  inference models, as files and as bytes
* ``onnx_export``, ``onnx_model``  models in ONNX: an inference program's operators as its nodes, and the file's content
* ``checkpoint_manager``  checkpoints of a training: the newest, the best, and going on
* ``object_files``, ``input_spec``  nests of plain data; shape and dtype of an input
* ``predictor``, ``predictor_config``, ``mixed_inference``  ``paddle.inference``
* ``file_ops``  raw operators that save and load while a program runs
* ``variable_files``  Paddle 1.x's functions for saved values and models
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
        "tstatic.static.compiled_program": "CompiledProgram",
        "tstatic.static.executor": "Executor",
        "tstatic.static.parallel_executor": "ParallelExecutor",
        "tstatic.static.run_future": "RunFuture",
        "tstatic.static.strategy": "BuildStrategy, ExecutionStrategy",
    },
)
facade_module("static.input", "declared inputs.", "static", only="InputSpec data")
facade_module("static.io", "saved programs, values and inference models.")
