"""Shapes and the positions of elements: reshaping, joining, slicing, padding, and constants.

* ``creation``: The functions that make constants: full, zeros, ones, empty, to_tensor, assign and their 1.x forms.
* ``diagonal``: Diagonals and triangles of matrices, and the identity.
* ``expanding``: Repeating values: broadcasting to a shape, tiling, and repeating each entry.
* ``fill``: Values from nothing: one number everywhere, given numbers, and the `shape` argument that says how many.
* ``joining``: Joining values along an axis, old or new, splitting one into several, and taking one apart.
* ``number_of``: An argument that is a number or a Variable, as a value of one element.
* ``pad``: Padding: pad, pad2d, pad3d and nn.functional.pad.
* ``reshape``: Changing the shape without moving an element: reshape, flatten, squeeze, unsqueeze.
* ``sequence``: Number sequences, coordinate grids, and the sizes of a value as values.
* ``slicing``: Selecting runs along axes: slice, strided_slice and crop.
* ``transpose``: Reordering axes and the elements along them: transpose, flip, roll and rot90.
* ``vision``: Rearrangements of channels among themselves, between channels and pixels, and between frames.
* ``when_run``: Axes, parts and paddings that are Variables.
* ``_shape_onnx``: Their forms in ONNX.
"""
