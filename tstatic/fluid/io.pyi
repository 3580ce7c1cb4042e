# Made from the registry of public names by `make api`.
from tstatic.static.io import load as load
from tstatic.static.io import load_program_state as load_program_state
from tstatic.static.io import save as save
from tstatic.static.io import set_program_state as set_program_state
from tstatic.static.variable_files import _get_valid_program as _get_valid_program
from tstatic.static.variable_files import get_parameter_value as get_parameter_value
from tstatic.static.variable_files import get_parameter_value_by_name as get_parameter_value_by_name
from tstatic.static.variable_files import get_program_parameter as get_program_parameter
from tstatic.static.variable_files import get_program_persistable_vars as get_program_persistable_vars
from tstatic.static.variable_files import is_belong_to_optimizer as is_belong_to_optimizer
from tstatic.static.variable_files import is_parameter as is_parameter
from tstatic.static.variable_files import is_persistable as is_persistable
from tstatic.static.variable_files import load_inference_model as load_inference_model
from tstatic.static.variable_files import load_params as load_params
from tstatic.static.variable_files import load_persistables as load_persistables
from tstatic.static.variable_files import load_vars as load_vars
from tstatic.static.variable_files import save_inference_model as save_inference_model
from tstatic.static.variable_files import save_params as save_params
from tstatic.static.variable_files import save_persistables as save_persistables
from tstatic.static.variable_files import save_vars as save_vars

__all__ = [
    "_get_valid_program",
    "get_parameter_value",
    "get_parameter_value_by_name",
    "get_program_parameter",
    "get_program_persistable_vars",
    "is_belong_to_optimizer",
    "is_parameter",
    "is_persistable",
    "load",
    "load_inference_model",
    "load_params",
    "load_persistables",
    "load_program_state",
    "load_vars",
    "save",
    "save_inference_model",
    "save_params",
    "save_persistables",
    "save_vars",
    "set_program_state",
]
