"""Sliding windows: convolution, pooling, interpolation and unfolding.

* ``conv``: Convolutions and transposed convolutions over one to three axes: plain, grouped and depthwise.
* ``grid_sample``: Reading images and volumes at places of a grid, and grids of affine maps.
* ``interpolate``: Resizing by interpolation along one to three axes: nearest, linear and cubic.
* ``interpolate_functions``: Public functions of resizing, of Paddle 2.x and 1.x.
* ``interpolate_when_run``: Resizing to sizes that are known when the program runs.
* ``output_sizes``: Sizes of a transposed convolution's output that Variables give when the program runs.
* ``pool``: Maximum and average pooling over two or three axes: sliding, global and adaptive windows; maxima also with
  their places.
* ``pool_first_generation``: Pooling under the names of Paddle 1.x.
* ``pool_functions``: Public functions of pooling over one to three axes.
* ``unfold``: Sliding blocks as columns (`unfold`) and their sum back into images (`fold`).
* ``unpool``: Maxima put back at the places that a maximum pooling took them from.
* ``_convolution``: What all convolutions share: geometry, shapes, the three products, tiles and cost.
* ``_sliding``: What convolution, pooling and unfold share: paddings as users give them, output sizes, and tiles of a
  batch.
* ``_conv_onnx``: Their forms in ONNX.
"""
