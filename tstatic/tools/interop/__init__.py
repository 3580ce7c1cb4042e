"""Networks of other libraries as programs: modules of torch.

* ``from_torch``       the public function, and what it returns
* ``exported``         what ``torch.export`` says about a module, with its writes to memory sorted out
* ``values``           parameters, buffers and constants of a module as variables and arrays
* ``conversion``       the registry of ATen operators, and what a converter is given
* ``aten_arithmetic``  arithmetic, comparisons, functions of each element
* ``aten_activations``  activations and dropout
* ``aten_shapes``      views, copies, joining, splitting, indexing
* ``aten_filled``      constants, ranges, conversions of types
* ``aten_reductions``  sums, extrema, order, softmax
* ``aten_products``    matrix products, attention, lookups
* ``aten_images``      convolutions, pooling, resizing
* ``aten_norms``       normalisation and losses
* ``aten_recurrent``   LSTM, GRU and simple recurrences
"""
