"""Shapes and the places of elements: reshaping, joining, slicing, padding, and constants.

* ``creation``: The functions that make constants: full, zeros, ones, empty, to_tensor, assign and their 1.x forms.
* ``cropping``: Cutting a window of a given size out of a value.
* ``diagonal``: Diagonals: reading them, making matrices from them, and the identity.
* ``expanding``: Broadcasting to a shape: expand, expand_as, broadcast_to, broadcast_tensors.
* ``fill``: Values from nothing: one number everywhere, or given numbers.
* ``flip``: Reversing, rolling and rotating along axes.
* ``joining``: Joining values along an axis, and splitting one into several.
* ``meshgrid``: Coordinate grids from vectors.
* ``pad``: Padding: pad, pad2d, pad3d and nn.functional.pad.
* ``repeat``: Repeating each entry along an axis.
* ``reshape``: Changing the shape without moving an element: reshape and flatten.
* ``sequence``: Number sequences: `range` (arange) and `linspace`.
* ``sizes``: The shape, the number of elements and the rank of a value, as values.
* ``slicing``: Selecting runs along axes: slice and strided_slice.
* ``squeeze``: Removing and inserting axes of size 1.
* ``stacking``: Joining values along a new axis, and taking one apart along an axis.
* ``tiling``: Repeating a value along its axes: tile, and the older expand and expand_as.
* ``transpose``: Reordering axes: transpose and what follows from it.
* ``triangles``: The lower and the upper triangle of matrices.
* ``vision``: Rearrangements of channels among themselves, and between channels and places.
* ``_joining``: The shape rules of joining and splitting.
* ``_padding``: Padding along any axes: the calls that fill borders, and those that fold them back for the gradient.
* ``_reshaping``: The shape rules of reshape, and the gradient that all ops which only change the shape have.
* ``_shape_arg``: The `shape` argument of functions that make a value from nothing: sizes, or Variables that hold
  sizes.
* ``_shapes``: What the shape and indexing families share: axes, sizes given as Variables, copies, tiles, index
  checks.
* ``_slicing``: Runs along axes: what `slice`, `strided_slice` and `crop_tensor` select, and the gradient they
  share.
"""
