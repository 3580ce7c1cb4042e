# Made from the registry of public names by `make api`.
from tstatic.nn.nets import data as data

__all__ = [
    "data",
]
