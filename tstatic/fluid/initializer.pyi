# Made from the registry of public names by `make api`.
from tstatic.nn.initializer import Assign as NumpyArrayInitializer
from tstatic.nn.initializer import Bilinear as Bilinear
from tstatic.nn.initializer import Bilinear as BilinearInitializer
from tstatic.nn.initializer import Constant as Constant
from tstatic.nn.initializer import Constant as ConstantInitializer
from tstatic.nn.initializer import MSRAInitializer as MSRA
from tstatic.nn.initializer import MSRAInitializer as MSRAInitializer
from tstatic.nn.initializer import Normal as Normal
from tstatic.nn.initializer import Normal as NormalInitializer
from tstatic.nn.initializer import TruncatedNormal as TruncatedNormal
from tstatic.nn.initializer import TruncatedNormal as TruncatedNormalInitializer
from tstatic.nn.initializer import Uniform as Uniform
from tstatic.nn.initializer import Uniform as UniformInitializer
from tstatic.nn.initializer import XavierInitializer as Xavier
from tstatic.nn.initializer import XavierInitializer as XavierInitializer

__all__ = [
    "Bilinear",
    "BilinearInitializer",
    "Constant",
    "ConstantInitializer",
    "MSRA",
    "MSRAInitializer",
    "Normal",
    "NormalInitializer",
    "NumpyArrayInitializer",
    "TruncatedNormal",
    "TruncatedNormalInitializer",
    "Uniform",
    "UniformInitializer",
    "Xavier",
    "XavierInitializer",
]
