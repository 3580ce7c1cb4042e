"""Kernels as modules that can be read, and run alone.

* ``emit``  a group as the text of a module
* ``composite``  kernels of several parts in one module
* ``prelude``  device functions that modules carry with them
* ``script``, ``reference``  the part that runs alone, and the numpy that it compares with
* ``docstring``, ``launched``  what a module says of itself: the user's variables, and which function runs where
* ``size_names``  names for sizes and strides
"""
