"""``fluid.framework``: programs, blocks, operators and variables."""

from tstatic.ir.declare import (
    default_main_program,
    default_startup_program,
    device_guard,
    name_scope,
    program_guard,
    switch_main_program,
    switch_startup_program,
)
from tstatic.ir.operator import OpRole
from tstatic.ir.program import Block, Operator, Parameter, Program, Variable
from tstatic.places import cpu_places, cuda_places, is_compiled_with_cuda
from tstatic.static.mode import in_dynamic_mode
from tstatic.static.mode import in_dynamic_mode as in_dygraph_mode

__all__ = [
    "Block",
    "OpRole",
    "Operator",
    "Parameter",
    "Program",
    "Variable",
    "cpu_places",
    "cuda_places",
    "default_main_program",
    "default_startup_program",
    "device_guard",
    "in_dygraph_mode",
    "in_dynamic_mode",
    "is_compiled_with_cuda",
    "name_scope",
    "program_guard",
    "switch_main_program",
    "switch_startup_program",
]
