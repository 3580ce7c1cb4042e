# Made from the registry of public names by `make api`.
from tstatic.nn.param import ParamAttr as ParamAttr
from tstatic.nn.param import WeightNormParamAttr as WeightNormParamAttr

__all__ = [
    "ParamAttr",
    "WeightNormParamAttr",
]
