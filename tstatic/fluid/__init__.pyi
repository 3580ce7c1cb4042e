# Made from the registry of public names by `make api`.
from tstatic.autodiff.api import append_backward as append_backward
from tstatic.autodiff.api import gradients as gradients
from tstatic.flags import get_flags as get_flags
from tstatic.flags import set_flags as set_flags
from tstatic.fluid import backward as backward
from tstatic.fluid import clip as clip
from tstatic.fluid import compiler as compiler
from tstatic.fluid import core as core
from tstatic.fluid import dygraph as dygraph
from tstatic.fluid import executor as executor
from tstatic.fluid import framework as framework
from tstatic.fluid import generator as generator
from tstatic.fluid import initializer as initializer
from tstatic.fluid import input as input
from tstatic.fluid import io as io
from tstatic.fluid import layer_helper as layer_helper
from tstatic.fluid import layers as layers
from tstatic.fluid import nets as nets
from tstatic.fluid import optimizer as optimizer
from tstatic.fluid import param_attr as param_attr
from tstatic.fluid import profiler as profiler
from tstatic.fluid import regularizer as regularizer
from tstatic.fluid import unique_name as unique_name
from tstatic.ir.declare import data as data
from tstatic.ir.declare import default_main_program as default_main_program
from tstatic.ir.declare import default_startup_program as default_startup_program
from tstatic.ir.declare import device_guard as device_guard
from tstatic.ir.declare import name_scope as name_scope
from tstatic.ir.declare import program_guard as program_guard
from tstatic.ir.program import Program as Program
from tstatic.ir.program import Variable as Variable
from tstatic.nn.initializer import set_global_initializer as set_global_initializer
from tstatic.nn.layer.layers import Layer as Layer
from tstatic.nn.param import ParamAttr as ParamAttr
from tstatic.nn.param import WeightNormParamAttr as WeightNormParamAttr
from tstatic.nn.static_linear import embedding as embedding
from tstatic.ops.indexing.embedding import fluid_one_hot as one_hot
from tstatic.places import CPUPlace as CPUPlace
from tstatic.places import CUDAPinnedPlace as CUDAPinnedPlace
from tstatic.places import CUDAPlace as CUDAPlace
from tstatic.places import cpu_places as cpu_places
from tstatic.places import cuda_places as cuda_places
from tstatic.places import is_compiled_with_cuda as is_compiled_with_cuda
from tstatic.places import is_compiled_with_xpu as is_compiled_with_xpu
from tstatic.runtime.scope import LoDTensor as LoDTensor
from tstatic.runtime.scope import LoDTensor as Tensor
from tstatic.runtime.scope import Scope as Scope
from tstatic.runtime.scope import global_scope as global_scope
from tstatic.runtime.scope import scope_guard as scope_guard
from tstatic.static import BuildStrategy as BuildStrategy
from tstatic.static import CompiledProgram as CompiledProgram
from tstatic.static import ExecutionStrategy as ExecutionStrategy
from tstatic.static import Executor as Executor
from tstatic.static import ParallelExecutor as ParallelExecutor
from tstatic.static.io import load as load
from tstatic.static.io import load_program_state as load_program_state
from tstatic.static.io import save as save
from tstatic.static.io import set_program_state as set_program_state
from tstatic.static.mode import disable_static as enable_dygraph
from tstatic.static.mode import enable_static as disable_dygraph
from tstatic.static.mode import in_dynamic_mode as in_dygraph_mode
from tstatic.utils import require_version as require_version

__all__ = [
    "BuildStrategy",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "CompiledProgram",
    "ExecutionStrategy",
    "Executor",
    "Layer",
    "LoDTensor",
    "ParallelExecutor",
    "ParamAttr",
    "Program",
    "Scope",
    "Tensor",
    "Variable",
    "WeightNormParamAttr",
    "append_backward",
    "backward",
    "clip",
    "compiler",
    "core",
    "cpu_places",
    "cuda_places",
    "data",
    "default_main_program",
    "default_startup_program",
    "device_guard",
    "disable_dygraph",
    "dygraph",
    "embedding",
    "enable_dygraph",
    "executor",
    "framework",
    "generator",
    "get_flags",
    "global_scope",
    "gradients",
    "in_dygraph_mode",
    "initializer",
    "input",
    "io",
    "is_compiled_with_cuda",
    "is_compiled_with_xpu",
    "layer_helper",
    "layers",
    "load",
    "load_program_state",
    "name_scope",
    "nets",
    "one_hot",
    "optimizer",
    "param_attr",
    "profiler",
    "program_guard",
    "regularizer",
    "require_version",
    "save",
    "scope_guard",
    "set_flags",
    "set_global_initializer",
    "set_program_state",
    "unique_name",
]
