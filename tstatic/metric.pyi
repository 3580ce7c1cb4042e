# Made from the registry of public names by `make api`.
from tstatic.ops.loss.metric import accuracy as accuracy

__all__ = [
    "accuracy",
]
