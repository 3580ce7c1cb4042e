"""``paddle.framework.random``: seeds of programs."""

from tstatic.ir.declare import default_main_program, default_startup_program
from tstatic.ir.program import Program
from tstatic.runtime.random import seed

__all__ = ["seed"]


def _manual_program_seed(seed: int) -> None:
    """Sets ``random_seed`` of the default programs and of all programs made later.

    Raises:
        ProgramTypeError: If ``seed`` is not an int.
    """
    default_main_program().random_seed = seed
    default_startup_program().random_seed = seed
    Program().global_seed(seed)
