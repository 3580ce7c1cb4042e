# Made from the registry of public names by `make api`.
from tstatic.nn.layer.common import Flatten as Flatten
from tstatic.nn.layer.norm import SpectralNorm as SpectralNorm

__all__ = [
    "Flatten",
    "SpectralNorm",
]
