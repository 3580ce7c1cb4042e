# Made from the registry of public names by `make api`.
from tstatic.autodiff.api import append_backward as append_backward
from tstatic.autodiff.api import gradients as gradients
from tstatic.ir.declare import data as data
from tstatic.ir.declare import default_main_program as default_main_program
from tstatic.ir.declare import default_startup_program as default_startup_program
from tstatic.ir.declare import device_guard as device_guard
from tstatic.ir.declare import fuse_together as fuse_together
from tstatic.ir.declare import name_scope as name_scope
from tstatic.ir.declare import no_fuse as no_fuse
from tstatic.ir.declare import program_guard as program_guard
from tstatic.ir.program import Operator as Operator
from tstatic.ir.program import Parameter as Parameter
from tstatic.ir.program import Program as Program
from tstatic.ir.program import Variable as Variable
from tstatic.nn.param import ParamAttr as ParamAttr
from tstatic.nn.param import WeightNormParamAttr as WeightNormParamAttr
from tstatic.nn.param import create_global_var as create_global_var
from tstatic.nn.param import create_parameter as create_parameter
from tstatic.ops.control.debug import Print as Print
from tstatic.ops.control.py_func import py_func as py_func
from tstatic.ops.loss.metric import accuracy as accuracy
from tstatic.ops.loss.metric import auc as auc
from tstatic.optimizer.decay_ops import exponential_decay as exponential_decay
from tstatic.places import cpu_places as cpu_places
from tstatic.places import cuda_places as cuda_places
from tstatic.runtime.scope import Scope as Scope
from tstatic.runtime.scope import global_scope as global_scope
from tstatic.runtime.scope import scope_guard as scope_guard
from tstatic.static import amp as amp
from tstatic.static import io as io
from tstatic.static import nn as nn
from tstatic.static.compiled_program import CompiledProgram as CompiledProgram
from tstatic.static.executor import Executor as Executor
from tstatic.static.inference import deserialize_persistables as deserialize_persistables
from tstatic.static.inference import deserialize_program as deserialize_program
from tstatic.static.inference import load_from_file as load_from_file
from tstatic.static.inference import load_inference_model as load_inference_model
from tstatic.static.inference import normalize_program as normalize_program
from tstatic.static.inference import save_inference_model as save_inference_model
from tstatic.static.inference import save_to_file as save_to_file
from tstatic.static.inference import serialize_persistables as serialize_persistables
from tstatic.static.inference import serialize_program as serialize_program
from tstatic.static.io import load as load
from tstatic.static.io import load_program_state as load_program_state
from tstatic.static.io import save as save
from tstatic.static.io import set_program_state as set_program_state
from tstatic.static.parallel_executor import ParallelExecutor as ParallelExecutor
from tstatic.static.strategy import BuildStrategy as BuildStrategy
from tstatic.static.strategy import ExecutionStrategy as ExecutionStrategy

__all__ = [
    "BuildStrategy",
    "CompiledProgram",
    "ExecutionStrategy",
    "Executor",
    "Operator",
    "ParallelExecutor",
    "ParamAttr",
    "Parameter",
    "Print",
    "Program",
    "Scope",
    "Variable",
    "WeightNormParamAttr",
    "accuracy",
    "amp",
    "append_backward",
    "auc",
    "cpu_places",
    "create_global_var",
    "create_parameter",
    "cuda_places",
    "data",
    "default_main_program",
    "default_startup_program",
    "deserialize_persistables",
    "deserialize_program",
    "device_guard",
    "exponential_decay",
    "fuse_together",
    "global_scope",
    "gradients",
    "io",
    "load",
    "load_from_file",
    "load_inference_model",
    "load_program_state",
    "name_scope",
    "nn",
    "no_fuse",
    "normalize_program",
    "program_guard",
    "py_func",
    "save",
    "save_inference_model",
    "save_to_file",
    "scope_guard",
    "serialize_persistables",
    "serialize_program",
    "set_program_state",
]
