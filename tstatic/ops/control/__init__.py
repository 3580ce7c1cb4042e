"""Branches, loops, Python calls and debugging.

* ``conditional``: Branches: `conditional_block`, where they come together (`select_input`), cond, case, switch_case and
  Switch.
* ``debug``: Ops for looking into a run: `print` and `assert`.
* ``loop``: Loops: `while`, and while_loop and While built from it.
* ``tensor_array``: Lists of arrays that loops write and read: create_array, array_write, array_read, array_length.
* ``array_slice``: Parts of tensor arrays, for ``paddle.slice`` and for an index in brackets.
* ``py_func``: Calls a Python function in the middle of a program.
"""
