"""Paddle's static-graph classes and functions; the only layer that knows all stages from program to run.

* ``pipeline``  the passes and fusions that a program and a strategy require, in order: read this first
* ``compile``  compiles a program for given feeds and fetches into a Compilation; and the cache
* ``executor``  runs programs
* ``request``  the arguments of a run: feeds, fetches, state
* ``compiled_program``  a program with strategies, and the history of its runs
* ``data_parallel``  the replicas of a program on several places
* ``parallel_executor``  a data-parallel program and its Executor in one, as in Paddle 1.x
* ``strategy``, ``strategy_property``  BuildStrategy and ExecutionStrategy, and the record of a property
* ``inquiry``  what the fusions did to a program, and why not more
* ``explain``, ``explain_html``, ``explain_page``  the explanation as text and as a page
* ``as_program``, ``dot``  a compiled program, for reading and drawing
* ``io``, ``loading``  save and load, and the checks before loaded values are written
* ``inference``, ``serialize``  inference models, and their parts as bytes
* ``model_files``, ``variable_files``  Paddle 1.x's functions for saved models and values
* ``nn``  layers that make parameters
* ``amp``  marks for mixed precision
* ``mode``  static mode, which is the only one
"""

import tstatic.nn
import tstatic.ops
import tstatic.optimizer  # noqa: F401 - fills the registry of spellings
from tstatic.ir.declare import default_main_program, default_startup_program, program_guard
from tstatic.ir.opdef import namespace as _namespace
from tstatic.ir.program import Operator, Parameter, Program, Variable
from tstatic.ir.program import hooks as _hooks
from tstatic.nn.param import ParamAttr, WeightNormParamAttr
from tstatic.places import cpu_places, cuda_places
from tstatic.runtime.scope import Scope, global_scope, scope_guard
from tstatic.static import amp, inference, io, model_files, nn, serialize, variable_files  # noqa: F401 - they fill the registry
from tstatic.static.compiled_program import CompiledProgram
from tstatic.static.executor import Executor
from tstatic.static.parallel_executor import ParallelExecutor
from tstatic.static.strategy import BuildStrategy, ExecutionStrategy
from tstatic.unsupported import missing_in as _missing_in
from tstatic.viz import draw as _draw

globals().update(_namespace("static"))
vars(io).update(_namespace("static.io"))

_hooks.svg = _draw

# Methods that need a scope: the values of programs and variables in it.
for _class in (Program, Variable):
    for _name, _function in _namespace(_class.__name__).items():
        setattr(_class, _name, _function)

__all__ = [
    "BuildStrategy",
    "CompiledProgram",
    "ExecutionStrategy",
    "Executor",
    "Operator",
    "ParallelExecutor",
    "ParamAttr",
    "Parameter",
    "Program",
    "Scope",
    "Variable",
    "WeightNormParamAttr",
    "amp",
    "cpu_places",
    "cuda_places",
    "default_main_program",
    "default_startup_program",
    "global_scope",
    "io",
    "nn",
    "program_guard",
    "scope_guard",
    *sorted(_namespace("static")),
]
__getattr__ = _missing_in(__name__, __all__)
