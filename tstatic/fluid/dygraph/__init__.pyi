# Made from the registry of public names by `make api`.
from tstatic.fluid.dygraph import nn as nn
from tstatic.nn.layer.container import LayerList as LayerList
from tstatic.nn.layer.container import ParameterList as ParameterList
from tstatic.nn.layer.container import Sequential as Sequential
from tstatic.nn.layer.layers import Layer as Layer
from tstatic.nn.layer.norm import BatchNorm as BatchNorm

__all__ = [
    "BatchNorm",
    "Layer",
    "LayerList",
    "ParameterList",
    "Sequential",
    "nn",
]
