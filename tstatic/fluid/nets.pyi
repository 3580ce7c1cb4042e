# Made from the registry of public names by `make api`.
from tstatic.nn.nets import img_conv_group as img_conv_group
from tstatic.nn.nets import simple_img_conv_pool as simple_img_conv_pool

__all__ = [
    "img_conv_group",
    "simple_img_conv_pool",
]
