"""Sliding windows: convolution, pooling, interpolation and unfolding.

* ``conv``: Convolutions and transposed convolutions over one to three axes: plain, grouped and depthwise.
* ``grid_sample``: Reading images and volumes at places of a grid, and grids of affine maps.
* ``interpolate``: Resizing by interpolation along one to three axes: nearest, linear and cubic.
* ``output_sizes``: Sizes of a transposed convolution's output that Variables give when the program runs.
* ``pool``: Maximum and average pooling over two or three axes: sliding, global and adaptive windows; maxima also with
  their places.
* ``unfold``: Sliding blocks as columns (`unfold`) and their sum back into images (`fold`).
* ``unpool``: Maxima put back at the places that a maximum pooling took them from.
* ``_convolution``: What all convolutions share: geometry, shapes, the three products, tiles and cost.
* ``_conv_onnx``: Their forms in ONNX.
"""
