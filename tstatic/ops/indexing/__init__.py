"""Reading and writing entries by index or by truth.

* ``along_axis``: Reading one entry per position along an axis: take_along_axis and index_sample.
* ``embedding``: Rows of a table by index: the embedding lookup, under its names of Paddle 2.x and 1.x.
* ``gather``: Reading rows by index: gather, gather_nd, index_select.
* ``getitem``: `variable[...]`: integers, slices, ellipsis, None, lists, arrays, and integer or bool Variables, by
  torch's rules.
* ``index_add``: Adding slices along an axis by index.
* ``masking``: Selecting by truth: masked_select, nonzero, masked_fill.
* ``one_hot``: Class numbers as rows of zeros with a single one.
* ``put_along_axis``: Writing, adding or multiplying one entry per position along an axis.
* ``scatter``: Writing and adding rows by index: scatter, scatter_nd, scatter_nd_add.
* ``unique``: The distinct elements of a value, sorted or in runs.
* ``_indexing``: Rows by index: what gather and scatter ops share.
* ``_scatter_add``: Adding rows into a table by index: fast, and in an order that depends on the indices alone.
"""
