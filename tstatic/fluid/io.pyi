# Made from the registry of public names by `make api`.
from tstatic.static.io import load_program_state as load_program_state
from tstatic.static.io import set_program_state as set_program_state

__all__ = [
    "load_program_state",
    "set_program_state",
]
