# Made from the registry of public names by `make api`.
from tstatic.nn.layer import activation as activation
from tstatic.nn.layer import common as common
from tstatic.nn.layer import container as container
from tstatic.nn.layer import conv as conv
from tstatic.nn.layer import loss as loss
from tstatic.nn.layer import norm as norm
from tstatic.nn.layer import pooling as pooling
from tstatic.nn.layer import transformer as transformer
from tstatic.nn.layer.layers import Layer as Layer

__all__ = [
    "Layer",
    "activation",
    "common",
    "container",
    "conv",
    "loss",
    "norm",
    "pooling",
    "transformer",
]
