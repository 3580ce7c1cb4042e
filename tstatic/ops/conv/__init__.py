"""Sliding windows: convolution, pooling, interpolation and unfolding.

* ``conv2d``: Convolution over two axes (plain, grouped, depthwise), and over one axis as a composition.
* ``conv3d``: Convolution over three axes: sums of convolutions over two.
* ``conv_transpose``: Transposed convolution over two axes, and over one axis as a composition.
* ``interpolate``: Resizing by interpolation along one to three axes: nearest, linear and cubic.
* ``interpolate_functions``: Public functions of resizing, of Paddle 2.x and 1.x.
* ``pool``: Maximum and average pooling over two axes: sliding, global and adaptive windows.
* ``pool_fluid``: Pooling under the names of Paddle 1.x.
* ``pool_functions``: Public functions of pooling: sliding and adaptive windows over one and two axes.
* ``pool_index``: Maximum pooling that also returns where each maximum stands.
* ``unfold``: Sliding blocks as columns (`unfold`) and their sum back into images (`fold`).
* ``_convolution``: What all convolution op definitions share: attributes, shapes, tiles and cost.
* ``_pooling``: Geometry of pooling ops: windows from attributes, shapes, divisors and tiles.
* ``_sliding``: What convolution, pooling and unfold share: paddings as users give them, output sizes, and tiles of a
  batch.
"""
