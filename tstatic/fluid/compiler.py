"""``fluid.compiler``: compiled programs and strategies."""

from tstatic.static.compiled_program import CompiledProgram
from tstatic.static.strategy import BuildStrategy, ExecutionStrategy

__all__ = ["BuildStrategy", "CompiledProgram", "ExecutionStrategy"]
