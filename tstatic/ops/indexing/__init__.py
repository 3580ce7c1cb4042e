"""Reading and writing entries by index or by truth.

* ``along_axis``: Reading and writing one entry per position along an axis: take_along_axis, index_sample,
  put_along_axis.
* ``embedding``: Rows of a table by index, and rows with a single one: the embedding lookup and one_hot.
* ``embedding_grad_add``: The gradient of a lookup, added to another gradient of the table.
* ``gather``: Reading rows by index: gather, gather_nd, index_select.
* ``getitem``: `variable[...]`: integers, slices, ellipsis, None, lists, arrays, and integer or bool Variables, by
  torch's rules.
* ``hash``: Rows of integers as numbers below a bound.
* ``masking``: Selecting by truth: masked_select, nonzero, masked_fill.
* ``placing``: Values with some of their elements replaced, named by any index: setitem, index_put, index_fill.
* ``scatter``: Writing and adding rows by index: scatter, scatter_nd, scatter_nd_add, index_add.
* ``unique``: The distinct elements of a value, sorted or in runs.
* ``_indexing``: Rows by index: what gather and scatter ops share, and adding rows into a table in an order that depends
  on the indices alone.
* ``_indexing_onnx``: Their forms in ONNX.
"""
