# Made from the registry of public names by `make api`.
from tstatic.fluid.layers.control_flow import *
