# Made from the registry of public names by `make api`.
from tstatic.autodiff.api import append_backward as append_backward
from tstatic.autodiff.api import gradients as gradients

__all__ = [
    "append_backward",
    "gradients",
]
