"""Reading and writing entries by index or by truth.

* ``along_axis``: Reading and writing one entry per position along an axis: take_along_axis, index_sample,
  put_along_axis.
* ``embedding``: Rows of a table by index, and rows with a single one: the embedding lookup and one_hot.
* ``embedding_grad_add``: The gradient of a lookup, added to another gradient of the table.
* ``gather``: Reading rows by index: gather, gather_nd, index_select.
* ``masking``: Selecting by truth: masked_select, nonzero, masked_fill.
* ``scatter``: Writing and adding rows by index: scatter, scatter_nd, scatter_nd_add, index_add.
* ``unique``: The distinct elements of a value, sorted or in runs.
* ``_indexing_onnx``: Their forms in ONNX.
"""
