# Made from the registry of public names by `make api`.
from tstatic.nn.static_linear import embedding as embedding

__all__ = [
    "embedding",
]
