# Made from the registry of public names by `make api`.
from tstatic.fluid import core as core
from tstatic.framework import random as random
from tstatic.ir.declare import get_default_dtype as get_default_dtype
from tstatic.ir.declare import set_default_dtype as set_default_dtype
from tstatic.nn.param import ParamAttr as ParamAttr
from tstatic.places import CPUPlace as CPUPlace
from tstatic.places import CUDAPinnedPlace as CUDAPinnedPlace
from tstatic.places import CUDAPlace as CUDAPlace
from tstatic.runtime.random import seed as seed
from tstatic.static.mode import in_dynamic_mode as in_dynamic_mode

__all__ = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "ParamAttr",
    "core",
    "get_default_dtype",
    "in_dynamic_mode",
    "random",
    "seed",
    "set_default_dtype",
]
